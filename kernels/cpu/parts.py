"""What generated drivers say in plain Python: shares of rows, parts of flat memory, safe indices.

Compiled drivers have a few instructions for each (`rnnops/compiler/ir/llvm_text.py`), which compute the same.
"""

from __future__ import annotations

from typing import Any


def part(rank: int, threads: int, count: int, block: int) -> tuple[int, int]:
    """First and last (not included) of the `count` things that a thread takes, in whole blocks but for the last."""
    blocks = (count + block - 1) // block
    return min(count, blocks * rank // threads * block), min(count, blocks * (rank + 1) // threads * block)


def at(array: Any, offset: int) -> Any:
    """An element of a 1-D array, and what follows it; memory of its own, whatever else is at hand."""
    return array[offset:]


def vector(array: Any, start: int, count: int) -> Any:
    """So many numbers of a 1-D array. Nothing is checked."""
    return array[start : start + count]


def matrix(array: Any, start: int, rows: int, stride: int, column: int, columns: int) -> Any:
    """`[rows, columns]` in a 1-D array: rows begin at `start + column`, `stride` numbers apart. Nothing is checked."""
    return array[start : start + rows * stride].reshape((rows, stride))[:, column : column + columns]


def inside(index: Any, size: int) -> Any:
    """An index counted from the end where negative, moved into `[0, size)` where it is out of range."""
    place = index + size if index < 0 else index
    return min(max(place, 0), size - 1)
