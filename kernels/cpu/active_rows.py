"""Rows that are not over: for each step of a tile, which rows of a batch a thread works on."""

from __future__ import annotations

from typing import Any

from rnnops.kernels.cpu.fastmath import inlined


@inlined
def list_rows(ends: Any, order: Any, low: int, steps: int, first: int, last: int, lists: Any, start: int) -> int:
    """Write down a thread's rows for steps `low ... low + steps - 1`; return how many rows of all threads are not over.

    For each step two numbers and as many places as there are rows: how many rows that are not over come before the
    thread's own, those of earlier steps included; how many of its own are not over; its own rows, those that are over
    last.

    Args:
        ends: steps of each row, in the order in which rows are shared out.
        order: the rows as the caller numbers them, in that order.
        first, last: the thread's share, `last` not included.
        lists, start: where to write.
    """
    total = 0
    for i in range(steps):
        t, place = low + i, start + i * (ends.size + 2)
        for p in range(first):
            total += 1 if ends[p] > t else 0
        own = 0
        for p in range(first, last):
            own += 1 if ends[p] > t else 0
        lists[place], lists[place + 1] = total, own
        total += own
        front, back = place + 2, place + 2 + own
        for p in range(first, last):
            if ends[p] > t:
                lists[front] = order[p]
                front += 1
            else:
                lists[back] = order[p]
                back += 1
        for p in range(last, ends.size):
            total += 1 if ends[p] > t else 0
    return total
