"""Packed matrices of numbers rounded to bfloat16: panels as those of `packing.py`, of words in place of numbers."""

from __future__ import annotations

from collections.abc import Callable

from rnnops.kernels.cpu.gemm import K_BLOCK
from rnnops.kernels.cpu.instructions import copied, room, zeroed
from rnnops.kernels.cpu.micro_kernel import PANEL_VECTORS
from rnnops.kernels.cpu.packing import panel_vectors, vector_count
from rnnops.kernels.cpu.round_operands import columns_part, rows_part
from rnnops.kernels.cpu.rounded_gemm import SPARE, WORD
from rnnops.kernels.cpu.vector_width import NUMBERS, lanes
from rnnops.kernels.cpu.words import Address


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
