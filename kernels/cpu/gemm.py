"""Matrix products x @ W, x @ W^T and A^T @ B for one thread, on parts of the result; also with operands as bfloat16.

The outer levels of Goto and van de Geijn (ACM TOMS 34(3), 2008) around `micro_kernel.py`. k goes in blocks of equal
size, at most 512, and rows of C in blocks; within a block panel by panel of B, within a panel tile by tile:

- a block of a panel, 512 x 192 bytes = 96 KiB at 512 bits, stays in L2 for all rows: tiles read 16 bytes of it a cycle;
- a block of A is read once for each panel: 8 rows x 4 bytes for 192 bytes of B are 3 bytes a cycle, from L2 or L3;
- C is read and written once for every 512 multiply-adds of an element: 8 bytes for 1024 flops in float32. If the
  product is added to C, C is read and written only once: then a whole panel, 192 KiB for 1024 rows of B, must stay in
  L2;
- B is read from memory once for every block of rows, ahead of its use: M rows give M / 2 flops a byte, so that
  16 rows at 250 GFLOP/s need 31 GB/s as soon as B is larger than the caches.

`gemm_packed` takes B as `panels.py` packs it, and A in blocks of 512 KiB, half of a small L2. `gemm_tn` reads both
operands row by row. It copies one block of a panel of B to the stack at a time: rows of B that are a power of two long
fall into few sets of L1 and L2, and would be a fifth slower in place. The copy costs 6 to 10 cycles, where the
multiply-adds take 12 M / 8, so rows come in blocks of up to 2 MiB of A. Many rows are packed for the same reason, in
blocks of 512 KiB.

Sums do not depend on threads. An element of `gemm_packed` is C (or bias, or zero) plus the sum of its products in
order. That sum goes on from block to block in C. If the product is added to C, k is one block. The sum of products is
then complete before C is added to it, so the bits are those of a product and an addition. An element of `gemm_tn` is C,
then for each block of k the sum of its products. Blocks of k depend only on K. Any cut of rows or columns, any order of
parts, and any vector width gives the same bits. Functions allocate only stack: 96 KiB, and 512 KiB more in `gemm_tn`.
The interpreter's lock is not held, so threads may share one C.

If B is packed as whole numbers of a byte each (`narrow`, native.py), all else is the same, also the bits. For one row,
widening takes two operations for each multiply-add. On Zen 4 that gives 31 billion numbers a second. float32 gives 21
to 25 from L2 or L3, and 55 is the peak of multiply-adds. So bytes are 1.3 to 1.4 times as fast, and 2.6 times if
float32 comes from memory. With more rows both are about equally fast within caches: 0.9 for 4 rows, 1.0 from 8 rows on.

Limits: all operands are float32, or all are float64; rows are contiguous; C overlaps no operand. Nothing is checked
here (`native.Products` checks calls from Python). One or two rows are bound by reading B (2 flops a byte and row).

**Operands rounded to bfloat16**. The same loops. A is rounded a block at a time, B when it is packed.
`C [M, N] = A [M, K] @ B [K, N]`, all float32 in memory. A block of A is rounded to words (`panels.py`) on the stack,
once for all panels of B. That is one vector of work for N / 2 vectors of multiply-adds of pairs. Weight gradients round
panels of B the same way, once for each block of rows of C.

Words are pairs if the processor multiplies these (AVX512-BF16). An instruction then does twice the multiply-adds, and B
has half the bytes. Otherwise words are single numbers, which cost what float32 does. Both sum the same products in the
same order with the same roundings, so the bits are the same. There is one exception: multiply-adds of pairs take
operands and sums below the smallest normal number (1.2e-38) for zeros. Blocks of k depend only on K, so any cut, any
thread and any width gives the same bits.

**Whole numbers of a byte each, on both sides** (`QUADS`): the same loops with words of four numbers, which the
processor multiplies and adds in integers (VNNI: four times the multiply-adds of an instruction). The sum of a block is
exact. Sums of blocks are exact up to 2^24, the whole numbers that floats have.

Limits: as above; up to 372 KiB of stack.

**Packed matrices of whole numbers of a byte each**: panels like those of floats, but of int8. B holds whole numbers
from -128 to 127. It is packed number by number, about a nanosecond each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llvmlite import ir

from rnnops.kernels.cpu.micro_kernel import (
    BYTES,
    FLOATS,
    I8,
    I64,
    PANEL_VECTORS,
    block_part,
    define,
    define_turn,
    loop_to,
    micro_kernels,
    zeros_name,
)
from rnnops.kernels.cpu.native import K_BLOCK
from rnnops.kernels.cpu.panels import (
    columns_part,
    define_rounding,
    first_panel,
    full_panels,
    make_copy_panel,
    make_packers,
    make_turn_panel,
    panel_vectors,
    rows_part,
    vector_count,
)
from rnnops.kernels.cpu.processor import ITEM_SIZES, NUMBERS, PAIRS, QUADS, SINGLES, lanes
from rnnops.kernels.cpu.words import Address, ModulePart, address_of, copied, room, text_of, zeroed

PACKED_BLOCK_BYTES, TN_BLOCK_BYTES = 2**19, 2**21  # of A in a block of rows
WHOLE_RATE = 2**32  # a block prefetches one row of the next panel with each k, in 2^32 parts of a row


# A^T is packed from so many rows, and so many vectors in a row of C, on. The bytes of a packed block are on the stack.
PACK_FROM, PACK_VECTORS, PACKED_BYTES = 64, 16, 2**19
AS_THEY_LIE = ((True, False), (False, False), (False, True))  # whether A and B are transposed in memory


def make_products(dtype: str, width: int) -> dict[str, Callable[..., None]]:
    """`gemm_packed`, `gemm_tn`, `gemm_nn` and `gemm_nt`, by name."""
    unpacked = {f"gemm_{'nt'[a]}{'nt'[b]}": make_unpacked(dtype, width, a, b) for a, b in AS_THEY_LIE}
    return {"gemm_packed": make_packed(dtype, width), **unpacked}


def make_packed(dtype: str, width: int, narrow: bool = False) -> Callable[..., None]:
    count, item = lanes(width, dtype), ITEM_SIZES[dtype]
    each = 1 if narrow else item  # bytes of a packed number
    row_block, rate = PACKED_BLOCK_BYTES // (K_BLOCK * item), WHOLE_RATE
    block, zeros = block_part(dtype, width, narrow), address_of(zeros_name(dtype))

    def gemm_packed(
        A: Address, _: int, A_stride: int, K: int, packed: Address, _packed_size: int, C: Address, _rows: int,
        C_stride: int, N: int, accumulate: bool, bias: Address, biases: int, row_begin: int, row_end: int,
        column_begin: int, column_end: int,
    ) -> None:  # fmt: skip
        """A part of C [M, N] becomes A [M, K] @ B, B [K, N] being packed; plus bias [N] if there are `biases`.

        With `accumulate` the product is added to C. A panel of B belongs to the part that has its first column.
        """
        vectors, blocks = vector_count(N, count), k_blocks(K)
        if accumulate:
            blocks = 1
        begin, end = first_panel(vectors, column_begin, count), vector_count(column_end, count)
        a_row, c_row = A_stride * item, C_stride * item
        for number in range(blocks):
            k, k_end = K * number // blocks, K * (number + 1) // blocks
            for row in range(row_begin, row_end, row_block):
                rows, done = min(row_block, row_end - row), begin
                a = A + row * a_row + k * item
                while done < end:
                    wide = panel_vectors(vectors - done)
                    panels = panels_at_once(rows, vectors - done, end - done)
                    first, apart = done * count, K * wide * count * each
                    B, c = packed + K * first * each + k * wide * count * each, C + row * c_row + first * item
                    addend, addend_row = zeros(), 0
                    if accumulate:
                        addend, addend_row = c, c_row
                    elif biases > 0 and number == blocks - 1:
                        addend = bias + first * item
                    last = N - first - (wide * panels - 1) * count
                    ahead, ahead_row = B + panels * apart, wide * count * each
                    block(
                        rows, wide, panels, a, a_row, item, B, apart, k_end - k, addend, addend_row, c, c_row, last,
                        ahead, ahead_row, rate, min(number, 1),
                    )  # fmt: skip
                    done += wide * panels

    return gemm_packed


def make_unpacked(dtype: str, width: int, turned_a: bool, turned_b: bool) -> Callable[..., None]:
    """A product of unpacked operands. Each pair of `turned_a` and `turned_b` has a function of its own, in which unit
    strides are constants."""
    count, item = lanes(width, dtype), ITEM_SIZES[dtype]
    row_block, rate = TN_BLOCK_BYTES // (K_BLOCK * item), WHOLE_RATE
    block, zeros, copy_panel = block_part(dtype, width), address_of(zeros_name(dtype)), make_copy_panel(dtype, width)
    turn_panel, a_turned, b_turned = make_turn_panel(dtype, width), int(turned_a), int(turned_b)
    new_panel, new_rows = room(K_BLOCK * PANEL_VECTORS * count * item), room(PACKED_BYTES if turned_a else item)
    packed_rows = PACKED_BYTES // (K_BLOCK * item)

    def gemm(
        A: Address, a_rows: int, A_stride: int, a_columns: int, B: Address, _rows: int, B_stride: int, _columns: int,
        C: Address, _c_rows: int, C_stride: int, _c_columns: int, accumulate: bool, row_begin: int, row_end: int,
        column_begin: int, column_end: int,
    ) -> None:  # fmt: skip
        """A part of C [M, N] becomes the product of A [M, K] and B [K, N]. With `accumulate` the product is added."""
        a_row, a_step = A_stride * item, item
        b_row, b_column = B_stride * item, item
        K = a_columns
        if a_turned == 1:
            a_row, a_step = item, A_stride * item
            K = a_rows
        if b_turned == 1:
            b_row, b_column = item, B_stride * item
        panel, vectors, blocks = new_panel(), vector_count(column_end - column_begin, count), k_blocks(K)
        c_row, tall, together = C_stride * item, row_block, row_block
        packs = a_turned == 1 and row_end - row_begin >= PACK_FROM and vectors >= PACK_VECTORS
        packed = new_rows()
        if packs:
            tall, together = packed_rows, count
        for number in range(blocks):
            k, k_end = K * number // blocks, K * (number + 1) // blocks
            for row in range(row_begin, row_end, tall):
                rows, done = min(tall, row_end - row), 0
                a, a_tile = A + k * a_step + row * a_row, tall * a_row
                if packs:  # rows in groups of a vector, each [k, lanes]
                    for tile in range(0, rows, count):
                        into = packed + tile * (k_end - k) * item
                        copy_panel(a + tile * item, a_step, k_end - k, rows - tile, 1, into)
                    a, a_tile = packed, (k_end - k) * count * item
                while done < vectors:
                    wide, first = panel_vectors(vectors - done), column_begin + done * count
                    source, c = B + k * b_row + first * b_column, C + row * c_row + first * item
                    if b_turned == 1:
                        turn_panel(source, b_column, k_end - k, column_end - first, wide, panel)
                    else:
                        copy_panel(source, b_row, k_end - k, column_end - first, wide, panel)
                    addend, addend_row = zeros(), 0
                    if accumulate or number > 0:
                        addend, addend_row = c, c_row
                    last, step = column_end - first - (wide - 1) * count, a_step
                    if packs:
                        step = count * item
                    for tile in range(0, rows, together):
                        part, ahead = tile // together, rate
                        if packs and tile + together < rows:
                            ahead = 0
                        block(
                            min(together, rows - tile), wide, 1, a + part * a_tile, a_row, step, panel, 0, k_end - k,
                            addend + tile * addend_row, addend_row, c + tile * c_row, c_row, last,
                            source + wide * count * b_column, b_row, ahead, 0,
                        )  # fmt: skip
                    done += wide

    return gemm


def k_blocks(K: int) -> int:
    """The count of blocks of k. It is 1 for K = 0, because C is written anyway."""
    return max(1, (K + K_BLOCK - 1) // K_BLOCK)


def panels_at_once(rows: int, vectors: int, part: int) -> int:
    """The count of panels that one tile takes: several for one or two rows, if the next panels are full.

    Args:
        vectors: vectors that are left of the matrix. They decide the widths of panels.
        part: vectors that are left of the part to be computed. A panel must begin in it.
    """
    panels = min(full_panels(vectors), (part + 2) // 3)
    if rows > 2 or panels < 2:
        return 1
    return 4 if rows == 1 and panels >= 4 else 2


WORD = 4  # bytes
SPARE = 16  # words by which a row of a block may be longer than K_BLOCK numbers, as its last vector is whole
ROWS = {QUADS: 256, PAIRS: 128, SINGLES: 64}  # rows of A in a block that is rounded at once: 136 KiB of words
TN_ROWS = {PAIRS: 256, SINGLES: 128}  # rows of C for which a panel of B is rounded once: a tenth faster than half of it
DTYPES = {QUADS: QUADS, PAIRS: PAIRS, SINGLES: "float32"}  # way -> the micro-kernel's dtype


def make_rounded_products(way: str, width: int) -> dict[str, Callable[..., None]]:
    """`gemm_packed`, and, except for quads, `gemm_tn`, by name."""
    packed = {"gemm_packed": make_rounded_packed(way, width)}
    return packed if way == QUADS else {**packed, "gemm_tn": make_rounded_tn(way, width)}


def make_rounded_packed(way: str, width: int) -> Callable[..., None]:
    count, each, item, rate, dtype = lanes(width, "float32"), NUMBERS[way], WORD, WHOLE_RATE, DTYPES[way]
    block, zeros, round_rows = block_part(dtype, width), address_of(zeros_name(dtype)), rows_part(way, width)
    row_block, even = ROWS[way], max(each, 2)
    words_row = (K_BLOCK // each + SPARE) * WORD
    new_block = room(row_block * words_row)

    def gemm_packed(
        A: Address, _: int, A_stride: int, K: int, packed: Address, _packed_size: int, C: Address, _rows: int,
        C_stride: int, N: int, accumulate: bool, bias: Address, biases: int, row_begin: int, row_end: int,
        column_begin: int, column_end: int,
    ) -> None:  # fmt: skip
        """The same product as `gemm_packed` of floats. B is packed as words."""
        words, vectors, blocks, depth = new_block(), vector_count(N, count), k_blocks(K), (K + each - 1) // each
        begin, end = first_panel(vectors, column_begin, count), vector_count(column_end, count)
        a_row, c_row = A_stride * item, C_stride * item
        for number in range(blocks):
            k, k_end = even_part(K, number, blocks, even), even_part(K, number + 1, blocks, even)
            steps = (k_end - k + each - 1) // each
            for row in range(row_begin, row_end, row_block):
                rows, done = min(row_block, row_end - row), begin
                round_rows(A + row * a_row + k * item, a_row, rows, k_end - k, words, words_row)
                while done < end:
                    wide = panel_vectors(vectors - done)
                    panels = panels_at_once(rows, vectors - done, end - done)
                    first, apart = done * count, depth * wide * count * item
                    B = packed + depth * first * item + k // each * wide * count * item
                    c = C + row * c_row + first * item
                    addend, addend_row = zeros(), 0
                    if accumulate or number > 0:
                        addend, addend_row = c, c_row
                    elif biases > 0:
                        addend = bias + first * item
                    last = N - first - (wide * panels - 1) * count
                    ahead, ahead_row = B + panels * apart, wide * count * item
                    block(
                        rows, wide, panels, words, words_row, item, B, apart, steps, addend, addend_row, c, c_row, last,
                        ahead, ahead_row, rate, 0,
                    )  # fmt: skip
                    done += wide * panels

    return gemm_packed


def make_rounded_tn(way: str, width: int) -> Callable[..., None]:
    count, each, item, rate, dtype = lanes(width, "float32"), NUMBERS[way], WORD, WHOLE_RATE, DTYPES[way]
    block, zeros, round_columns = block_part(dtype, width), address_of(zeros_name(dtype)), columns_part(way, width)
    row_block = TN_ROWS[way]
    most, words_row = K_BLOCK // each + SPARE, row_block * WORD
    new_block, new_panel = room(most * words_row), room(most * PANEL_VECTORS * count * WORD)

    def gemm_tn(
        A: Address, K: int, A_stride: int, _: int, B: Address, _rows: int, B_stride: int, _columns: int, C: Address,
        _c_rows: int, C_stride: int, _c_columns: int, accumulate: bool, row_begin: int, row_end: int,
        column_begin: int, column_end: int,
    ) -> None:  # fmt: skip
        """The same product as `gemm_tn` of floats. Its operands are rounded."""
        words, panel = new_block(), new_panel()
        vectors, blocks = vector_count(column_end - column_begin, count), k_blocks(K)
        a_step, b_row, c_row = A_stride * item, B_stride * item, C_stride * item
        for number in range(blocks):
            k, k_end = even_part(K, number, blocks, 2), even_part(K, number + 1, blocks, 2)
            steps = (k_end - k + each - 1) // each
            for row in range(row_begin, row_end, row_block):
                rows, done = min(row_block, row_end - row), 0
                round_columns(A + k * a_step + row * item, a_step, k_end - k, rows, words, words_row)
                while done < vectors:
                    wide, first = panel_vectors(vectors - done), column_begin + done * count
                    source, c = B + k * b_row + first * item, C + row * c_row + first * item
                    there = min(column_end - first, wide * count)
                    round_columns(source, b_row, k_end - k, there, panel, wide * count * item)
                    addend, addend_row = zeros(), 0
                    if accumulate or number > 0:
                        addend, addend_row = c, c_row
                    last = column_end - first - (wide - 1) * count
                    block(
                        rows, wide, 1, words, item, words_row, panel, 0, steps, addend, addend_row, c, c_row, last,
                        source + wide * count * item, each * b_row, rate, 0,
                    )  # fmt: skip
                    done += wide

    return gemm_tn


def even_part(K: int, number: int, blocks: int, even: int) -> int:
    """The first k of a block. It is a multiple of `even`, so that no word belongs to two blocks."""
    begin = K
    if number < blocks:
        begin = K * number // blocks // even * even
    return begin


def make_rounded_packers(way: str, width: int) -> dict[str, Callable[..., None]]:
    """`pack_into` and `pack_transposed_into`, by name."""
    count, each, item, k_block = lanes(width, "float32"), NUMBERS[way], WORD, K_BLOCK
    round_rows, round_columns = rows_part(way, width), columns_part(way, width)
    copy_word, set_zero = copied(WORD), zeroed(WORD)
    words_row = (K_BLOCK // each + SPARE) * WORD
    new_block = room(PANEL_VECTORS * count * words_row)

    def pack_into(B: Address, K: int, stride: int, N: int, packed: Address, _: int) -> None:
        """B [K, N], its rows `stride` numbers apart, into `packed`."""
        vectors, done, depth = vector_count(N, count), 0, (K + each - 1) // each
        while done < vectors:
            wide, column = panel_vectors(vectors - done) * count, done * count
            there, panel = min(wide, N - column), packed + depth * column * item
            round_columns(B + column * item, stride * item, K, there, panel, wide * item)
            done += wide // count

    def turn(words: int, rows: int, steps: int, target: int, wide: int) -> None:
        """Rows of words become columns of a panel that is `wide` words wide; zeros in columns behind them."""
        for k in range(steps):
            for c in range(rows):
                copy_word(target + (k * wide + c) * item, words + c * words_row + k * item)
            for c in range(rows, wide):
                set_zero(target + (k * wide + c) * item)

    def pack_transposed_into(B: Address, N: int, stride: int, K: int, packed: Address, _: int) -> None:
        """B^T [K, N] into `packed`, from B [N, K], its rows `stride` numbers apart."""
        words, vectors, done, depth = new_block(), vector_count(N, count), 0, (K + each - 1) // each
        while done < vectors:
            wide, column = panel_vectors(vectors - done) * count, done * count
            there, panel = min(wide, N - column), packed + depth * column * item
            for k in range(0, K, k_block):
                numbers = min(k_block, K - k)
                round_rows(B + column * stride * item + k * item, stride * item, there, numbers, words, words_row)
                turn(words, there, (numbers + each - 1) // each, panel + k // each * wide * item, wide)
            done += wide // count

    return {"pack_into": pack_into, "pack_transposed_into": pack_transposed_into}


DTYPE = "float32"  # of matrices before they are packed as bytes
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
    """A function (source, down, along, rows, columns, target, wide): writes floats with any strides as bytes.

    Each row of the target has `wide` bytes, with zeros after its columns.
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


def products_text(symbols: Mapping[str, str], dtype: str, width: int) -> str:
    """Products and packing of one dtype with vectors of one width, as LLVM IR.

    Args:
        symbols: function -> its name in LLVM.
    """
    functions = {**make_products(dtype, width), **make_packers(dtype, width)}
    return micro_kernels(dtype, width, lambda module: define_turn(module, dtype, width)) + text_of(symbols, functions)


def rounded_products_text(symbols: Mapping[str, str], way: str, width: int) -> str:
    """The same for operands that are rounded to bfloat16, or are bytes, as words of a way.

    Args:
        symbols: function -> its name in LLVM.
        way: one of `processor.NUMBERS`.
    """
    functions = {**make_rounded_products(way, width), **make_rounded_packers(way, width)}
    text = micro_kernels(DTYPES[way], width, lambda module: define_rounding(module, way, width))
    return text + text_of(symbols, functions)


def int8_products_text(symbols: Mapping[str, str], width: int) -> str:
    """Products of float32 rows with whole numbers of a byte each; arguments as for `products_text`."""
    functions = {"gemm_packed": make_packed("float32", width, narrow=True), **make_int8_packers(width)}
    return micro_kernels("float32", width, define_narrowing, narrow=True) + text_of(symbols, functions)
