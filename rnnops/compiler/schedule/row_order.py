"""The order in which rows of a batch are shared out among threads, so that each has long ones and short ones."""

from __future__ import annotations

from functools import cache

import numpy as np

from rnnops.types import Array


def order_rows(lengths: Array, steps: int, order: Array, ends: Array, part: tuple[int, int] | None = None) -> None:
    """Put rows in an order of which every stretch holds about as many rows that last until step t as any other.

    Rows that all last as long stay as they are: memory is read fastest in the order in which it lies.

    Args:
        lengths: steps of each row.
        steps: of this part of a recurrence.
        order, ends: get the rows in their order, and how many steps of the part each has.
        part: its first timestep, and how many steps a row has at most; all steps if left out.
    """
    first, most = part or (0, steps)
    lasting = np.minimum(lengths, most)
    order[...] = np.arange(len(lengths))
    if (lasting != lasting[0]).any():
        order[...] = np.argsort(-lasting.astype(np.int64), kind="stable")[scattered(len(lengths))]
    ends[...] = np.minimum(lasting[order] - first, steps)


@cache
def scattered(count: int) -> Array:
    """The numbers below `count` by their bits read backwards: neighbours are far apart (van der Corput)."""
    numbers, backwards = np.arange(count), np.zeros(count, np.int64)
    for bit in range(count.bit_length()):
        backwards = 2 * backwards + (numbers >> bit & 1)
    return np.argsort(backwards, kind="stable")
