"""Rows of a batch: which are active at a step, and in which order threads take them.

**Rows that are not over**: for each step of a tile, which rows of a batch a thread works on.

**The order in which rows are shared out, as a driver**: what `schedule/batch_axis.py` computes in NumPy, for few rows.
"""

from __future__ import annotations

from rnnops.kernels.cpu.words import WORD_BYTES, Address, loaded, loaded_int32, stored


def living(ends: Address, t: int, first: int, last: int) -> int:
    """How many rows of a range are not over at a step."""
    count = 0
    for p in range(first, last):
        count += 1 if loaded(ends + p * WORD_BYTES) > t else 0
    return count


def list_rows(
    ends: Address,
    batch: int,
    order: Address,
    _: int,
    low: int,
    steps: int,
    first: int,
    last: int,
    lists: Address,
    _size: int,
    start: int,
) -> int:
    """Write down a thread's rows for steps `low ... low + steps - 1`; return how many rows of all threads are not over.

    For each step two numbers and as many places as there are rows: how many rows that are not over come before the
    thread's own, those of earlier steps included; how many of its own are not over; its own rows, those that are over
    last.

    Args:
        ends: [batch] int64, steps of each row, in the order in which rows are shared out.
        order: [batch] int64, the rows as the caller numbers them, in that order.
        first, last: the thread's share, `last` not included.
        lists, start: where to write.
    """
    total = 0
    for i in range(steps):
        t, place = low + i, lists + (start + i * (batch + 2)) * WORD_BYTES
        total += living(ends, t, 0, first)
        own = living(ends, t, first, last)
        stored(place, total)
        stored(place + WORD_BYTES, own)
        front = place + 2 * WORD_BYTES
        back = front + own * WORD_BYTES
        for p in range(first, last):
            row = loaded(order + p * WORD_BYTES)
            if loaded(ends + p * WORD_BYTES) > t:
                stored(front, row)
                front += WORD_BYTES
            else:
                stored(back, row)
                back += WORD_BYTES
        total += own + living(ends, t, last, batch)
    return total


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

    Words: addresses of lengths, of the order and of ends, which it writes, and of places (`places[k]`: the position of
    the row that k rows are longer than); then how many rows, bytes of a length, steps, the first timestep,
    and how many steps a row has at most.
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
