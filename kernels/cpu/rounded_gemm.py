"""Matrix products with operands rounded to bfloat16.

Products of operands rounded to bfloat16: `gemm.py` with A rounded a block at a time, and B as it is packed.

C [M, N] = A [M, K] @ B [K, N], all float32 in memory. A block of A is rounded to words (`packing.py`) on the
stack, once for all panels of B: one vector of work beside N / 2 vectors of multiply-adds of pairs. Weight gradients
round panels of B the same way, once for each block of rows of C.

Words are pairs where the processor multiplies these (AVX512-BF16: twice the multiply-adds of an instruction, and half
the bytes of B), else single numbers, which cost what float32 does. Both sum the same products in the same order with
the same roundings: the same bits, but that multiply-adds of pairs take operands and sums below the smallest normal
number (1.2e-38) for zeros. Blocks of k depend on K alone, so any cut, any thread and any width gives the same bits.

Limits: as those of `gemm.py`; up to 372 KiB of stack.
"""

from __future__ import annotations

from collections.abc import Callable

from rnnops.kernels.cpu.gemm import K_BLOCK, WHOLE_RATE, k_blocks, panels_at_once
from rnnops.kernels.cpu.micro_kernel import PANEL_VECTORS, block_part, zeros_name
from rnnops.kernels.cpu.packing import columns_part, first_panel, panel_vectors, rows_part, vector_count
from rnnops.kernels.cpu.processor import NUMBERS, PAIRS, SINGLES, lanes
from rnnops.kernels.cpu.words import Address, address_of, copied, room, zeroed

WORD = 4  # bytes
SPARE = 16  # words that a row of a block may be longer than K_BLOCK numbers, as its last vector is whole
ROWS = {PAIRS: 128, SINGLES: 64}  # of C, for which a block of A is rounded: 136 KiB of words
TN_ROWS = {PAIRS: 256, SINGLES: 128}  # for which panels of B are rounded: a tenth faster than half as many
DTYPES = {PAIRS: PAIRS, SINGLES: "float32"}  # way -> what the micro-kernel is made for


def make_rounded_products(way: str, width: int) -> dict[str, Callable[..., None]]:
    """`gemm_packed` and `gemm_tn`, by name."""
    return {"gemm_packed": make_packed(way, width), "gemm_tn": make_tn(way, width)}


def make_packed(way: str, width: int) -> Callable[..., None]:
    count, each, item, rate, dtype = lanes(width, "float32"), NUMBERS[way], WORD, WHOLE_RATE, DTYPES[way]
    block, zeros, round_rows = block_part(dtype, width), address_of(zeros_name(dtype)), rows_part(way, width)
    row_block = ROWS[way]
    words_row = (K_BLOCK // each + SPARE) * WORD
    new_block = room(row_block * words_row)

    def gemm_packed(
        A: Address,
        _: int,
        A_stride: int,
        K: int,
        packed: Address,
        _packed_size: int,
        C: Address,
        _rows: int,
        C_stride: int,
        N: int,
        accumulate: bool,
        bias: Address,
        biases: int,
        row_begin: int,
        row_end: int,
        column_begin: int,
        column_end: int,
    ) -> None:
        """As `gemm.gemm_packed`, where B is packed as words."""
        words, vectors, blocks, depth = new_block(), vector_count(N, count), k_blocks(K), (K + each - 1) // each
        begin, end = first_panel(vectors, column_begin, count), vector_count(column_end, count)
        a_row, c_row = A_stride * item, C_stride * item
        for number in range(blocks):
            k, k_end = even_part(K, number, blocks), even_part(K, number + 1, blocks)
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


def make_tn(way: str, width: int) -> Callable[..., None]:
    count, each, item, rate, dtype = lanes(width, "float32"), NUMBERS[way], WORD, WHOLE_RATE, DTYPES[way]
    block, zeros, round_columns = block_part(dtype, width), address_of(zeros_name(dtype)), columns_part(way, width)
    row_block = TN_ROWS[way]
    most, words_row = K_BLOCK // each + SPARE, row_block * WORD
    new_block, new_panel = room(most * words_row), room(most * PANEL_VECTORS * count * WORD)

    def gemm_tn(
        A: Address,
        K: int,
        A_stride: int,
        _: int,
        B: Address,
        _rows: int,
        B_stride: int,
        _columns: int,
        C: Address,
        _c_rows: int,
        C_stride: int,
        _c_columns: int,
        accumulate: bool,
        row_begin: int,
        row_end: int,
        column_begin: int,
        column_end: int,
    ) -> None:
        """As `gemm.gemm_tn`."""
        words, panel = new_block(), new_panel()
        vectors, blocks = vector_count(column_end - column_begin, count), k_blocks(K)
        a_step, b_row, c_row = A_stride * item, B_stride * item, C_stride * item
        for number in range(blocks):
            k, k_end = even_part(K, number, blocks), even_part(K, number + 1, blocks)
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


def even_part(K: int, number: int, blocks: int) -> int:
    """Where a block of k begins: no pair is in two of them."""
    begin = K
    if number < blocks:
        begin = K * number // blocks // 2 * 2
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
