"""Rows that are not over: for each step of a tile, which rows of a batch a thread works on."""

from __future__ import annotations

from rnnops.kernels.cpu.instructions import loaded, stored
from rnnops.kernels.cpu.team_memory import WORD_BYTES
from rnnops.kernels.cpu.words import Address


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
