"""Packed matrices, of floats and of int8.

Packed matrices: B [K, N] as panels `[panel][K][panel width]`, in the order in which products read them.

Panels are 3 vectors wide; the last one or two are 2 vectors wide where N asks for it (7 vectors: 3, 2, 2), and B of a
single vector is one narrow panel. So only the last vector can be partial; it is padded with zeros. A packed matrix is a
1-D array of K * N rounded up to whole vectors; the panel that starts at column c starts at number K * c.

Packing reads and writes each number once. `pack_into` copies whole rows of a panel; `pack_transposed_into` takes B^T in
squares of 16 x 16, of which each line of memory is touched once, 0.3 to 1 ns a number (copying: 0.1 to 0.5).

Limits: nothing is checked here (`gemm.py` does for calls from Python); no NaN or infinity is treated specially.

Packed matrices of whole numbers of a byte each: panels as those of `packing.py`, of int8 in place of float32.

Limits: B holds whole numbers from -127 to 127; it is packed number by number, a nanosecond or some each.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from rnnops.kernels.cpu.micro_kernel import copy_part
from rnnops.kernels.cpu.processor import ITEM_SIZES, lanes
from rnnops.kernels.cpu.vectors import BYTES, FLOATS, I8, I64, define, loop_to
from rnnops.kernels.cpu.words import Address, ModulePart, copied, zeroed

SQUARE = 16


def panel_vectors(left: int) -> int:
    """Vectors of the next panel where `left` vectors are left."""
    return left if left < 3 else 2 if left == 4 else 3


def full_panels(left: int) -> int:
    """How many of the next panels are 3 vectors wide where `left` vectors are left."""
    return left // 3 if left % 3 != 1 else max(0, left - 4) // 3


def first_panel(vectors: int, column: int, count: int) -> int:
    """The vector at which the first panel begins that begins at a column or behind it; `vectors` where none does."""
    done = 0
    while done < vectors and done * count < column:
        done += panel_vectors(vectors - done)
    return done


def vector_count(columns: int, count: int) -> int:
    """Vectors of `count` lanes that hold a row."""
    return (columns + count - 1) // count


def make_copy_panel(dtype: str, width: int) -> Callable[..., None]:
    """`copy_panel(B, stride, k_steps, columns, wide, panel)`: rows of B into a panel, zeros behind its columns."""
    count = lanes(width, dtype)
    copy1, copy2, copy3 = (copy_part(dtype, width, vectors) for vectors in (1, 2, 3))

    def copy_panel(B: int, stride: int, k_steps: int, columns: int, wide: int, panel: int) -> None:
        last = columns - (wide - 1) * count
        if wide == 1:
            copy1(B, stride, panel, k_steps, last)
        elif wide == 2:
            copy2(B, stride, panel, k_steps, last)
        else:
            copy3(B, stride, panel, k_steps, last)

    return copy_panel


def make_packers(dtype: str, width: int) -> dict[str, Callable[..., None]]:
    """`pack_into` and `pack_transposed_into`, by name."""
    count, item = lanes(width, dtype), ITEM_SIZES[dtype]
    copy_panel, copy_number, set_zero = make_copy_panel(dtype, width), copied(item), zeroed(item)

    def pack_into(B: Address, K: int, stride: int, N: int, packed: Address, _: int) -> None:
        """B [K, N], its rows `stride` numbers apart, into `packed`."""
        vectors, done = vector_count(N, count), 0
        while done < vectors:
            wide, column = panel_vectors(vectors - done), done * count
            copy_panel(B + column * item, stride * item, K, N - column, wide, packed + K * column * item)
            done += wide

    def transpose_square(
        source: int, stride: int, rows: int, begin: int, end: int, columns: int, target: int, wide: int
    ) -> None:
        """Columns begin:end of so many rows become rows of a panel that is `wide` numbers wide."""
        for k in range(begin, end):
            for c in range(rows):
                copy_number(target + (k * wide + columns + c) * item, source + (c * stride + k) * item)

    def pack_transposed_into(B: Address, N: int, stride: int, K: int, packed: Address, _: int) -> None:
        """B^T [K, N] into `packed`, from B [N, K], its rows `stride` numbers apart."""
        vectors, done = vector_count(N, count), 0
        while done < vectors:
            wide, column = panel_vectors(vectors - done) * count, done * count
            there, panel = min(wide, N - column), packed + K * column * item
            for k in range(0, K, SQUARE):
                end = min(k + SQUARE, K)
                for c in range(0, there, SQUARE):
                    rows, source = min(SQUARE, there - c), B + (column + c) * stride * item
                    transpose_square(source, stride, rows, k, end, c, panel, wide)
                for row in range(k, end):
                    for c in range(there, wide):
                        set_zero(panel + (row * wide + c) * item)
            done += wide // count

    return {"pack_into": pack_into, "pack_transposed_into": pack_transposed_into}


DTYPE = "float32"  # of what is packed
TYPES = (BYTES, I64, I64, I64, I64, BYTES, I64)
NARROW = ModulePart("narrow", tuple("ptr" if kind == BYTES else "i64" for kind in TYPES))


def make_int8_packers(width: int) -> dict[str, Callable[..., None]]:
    """`pack_into` and `pack_transposed_into`, by name."""
    count, item, narrow = lanes(width, DTYPE), ITEM_SIZES[DTYPE], NARROW

    def pack(B: int, down: int, along: int, K: int, N: int, packed: int) -> None:
        """B [K, N], its numbers `down` bytes from row to row and `along` from column to column."""
        vectors, done = vector_count(N, count), 0
        while done < vectors:
            wide, column = panel_vectors(vectors - done) * count, done * count
            narrow(B + column * along, down, along, K, min(wide, N - column), packed + K * column, wide)
            done += wide // count

    def pack_into(B: Address, K: int, stride: int, N: int, packed: Address, _: int) -> None:
        """B [K, N], its rows `stride` numbers apart, into `packed`."""
        pack(B, stride * item, item, K, N, packed)

    def pack_transposed_into(B: Address, N: int, stride: int, K: int, packed: Address, _: int) -> None:
        """B^T [K, N] into `packed`, from B [N, K], its rows `stride` numbers apart."""
        pack(B, item, stride * item, K, N, packed)

    return {"pack_into": pack_into, "pack_transposed_into": pack_transposed_into}


def define_narrowing(module: ir.Module) -> None:
    """A function (source, down, along, rows, columns, target, wide): floats with any strides as bytes.

    Each row of the target is `wide` bytes, with zeros behind its columns.
    """
    define(module, NARROW.name, TYPES, _emit_narrow)


def _emit_narrow(function: ir.Function) -> None:
    source, down, along, rows, columns, target, wide = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    with loop_to(builder, rows) as row:
        start, into = (builder.gep(at, [builder.mul(row, step)]) for at, step in ((source, down), (target, wide)))
        with loop_to(builder, columns) as column:
            place = builder.bitcast(builder.gep(start, [builder.mul(column, along)]), FLOATS[DTYPE].as_pointer())
            number = builder.load(place)
            number.align = ITEM_SIZES[DTYPE]
            builder.store(builder.fptosi(number, I8), builder.gep(into, [column]))
        with loop_to(builder, builder.sub(wide, columns)) as column:
            builder.store(I8(0), builder.gep(into, [builder.add(columns, column)]))
    builder.ret_void()
