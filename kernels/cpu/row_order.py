"""The order in which rows are shared out, as a driver: what `schedule/row_order.py` computes in NumPy, for few rows."""

from __future__ import annotations

from rnnops.kernels.cpu.instructions import loaded, loaded_int32, stored
from rnnops.kernels.cpu.team_memory import WORD_BYTES
from rnnops.kernels.cpu.words import Address

MOST_ROWS = 256  # as each row is compared with each other
LENGTHS, ORDER, ENDS, PLACES, ROWS, SIZE, STEPS, FIRST, MOST = (i * WORD_BYTES for i in range(9))  # words


def lasting(words: Address, row: int) -> int:
    """Steps of a row."""
    size = loaded(words + SIZE)
    place = loaded(words + LENGTHS) + row * size
    length = loaded_int32(place)
    if size == WORD_BYTES:
        length = loaded(place)
    return min(length, loaded(words + MOST))


def longer(words: Address, row: int) -> int:
    """How many rows come before a row when the longest come first, and as they are where they last as long."""
    own, count = lasting(words, row), 0
    for other in range(loaded(words + ROWS)):
        length = lasting(words, other)
        count += 1 if length > own else 0
        count += 1 if length == own and other < row else 0
    return count


def order_rows(rank: int, threads: int, words: Address) -> None:
    """A driver for one thread.

    Words: addresses of lengths, of the order and of ends, which it writes, and of places: where in the order the row
    lies that so many are longer than; then how many rows, bytes of a length, steps, the first timestep, and how many
    steps a row has at most.
    """
    rows = loaded(words + ROWS)
    different = False
    for row in range(rows):
        different = different or lasting(words, row) != lasting(words, 0)
    for row in range(rows):
        place = row * WORD_BYTES
        if different:
            place = loaded(loaded(words + PLACES) + longer(words, row) * WORD_BYTES) * WORD_BYTES
        stored(loaded(words + ORDER) + place, row)
        stored(loaded(words + ENDS) + place, min(lasting(words, row) - loaded(words + FIRST), loaded(words + STEPS)))
