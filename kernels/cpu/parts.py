"""Parts of arrays that generated drivers hand to kernels: shares of rows, matrices in flat memory, safe indices."""

from __future__ import annotations

from typing import Any

from rnnops.kernels.cpu.fastmath import inlined


@inlined
def part(rank: int, threads: int, count: int, block: int) -> tuple[int, int]:
    """First and last (not included) of the `count` things that a thread takes, in whole blocks but for the last."""
    blocks = (count + block - 1) // block
    return min(count, blocks * rank // threads * block), min(count, blocks * (rank + 1) // threads * block)


@inlined
def matrix(array: Any, start: int, rows: int, stride: int, column: int, columns: int) -> Any:
    """`[rows, columns]` in a 1-D array: rows begin at `start + column`, `stride` numbers apart."""
    return array[start : start + rows * stride].reshape((rows, stride))[:, column : column + columns]


@inlined
def inside(index: Any, size: int) -> Any:
    """An index counted from the end where negative, moved into `[0, size)` where it is out of range."""
    place = index + size if index < 0 else index
    return min(max(place, 0), size - 1)
