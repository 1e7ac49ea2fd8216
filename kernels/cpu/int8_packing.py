"""Packed matrices of whole numbers of a byte each: panels as those of `packing.py`, of int8 in place of float32.

Limits: B holds whole numbers from -127 to 127; it is packed number by number, a nanosecond or some each.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from rnnops.kernels.cpu.packing import panel_vectors, vector_count
from rnnops.kernels.cpu.vector_width import ITEM_SIZES, lanes
from rnnops.kernels.cpu.vectors import BYTES, FLOATS, I8, I64, define, loop_to
from rnnops.kernels.cpu.words import Address, Part

DTYPE = "float32"  # of what is packed
TYPES = (BYTES, I64, I64, I64, I64, BYTES, I64)
NARROW = Part("narrow", tuple("ptr" if kind == BYTES else "i64" for kind in TYPES))


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
