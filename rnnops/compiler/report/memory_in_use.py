"""Which memory arrays lie in, to ask of many others whether they may lie there too.

Answers are those of `np.may_share_memory`, which looks at the lowest and highest address of two arrays; stretches of
addresses are kept sorted and joined, so that a question costs a bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np

from rnnops.kernels.cpu.drivers import memory_address
from rnnops.types import Array


class MemoryInUse:
    """The memory of arrays, of the host or of a device."""

    def __init__(self, arrays: Iterable[Any] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._elsewhere: list[Any] = []  # arrays that only NumPy's dispatch can compare
        for array in arrays:
            self.add(array)

    def add(self, array: Any) -> None:
        """Memory that is in use from now on."""
        if not isinstance(array, np.ndarray):
            self._elsewhere.append(array)
        elif array.size:
            start, end = stretch(array)
            first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
            if first < last:
                start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
            self._starts[first:last], self._ends[first:last] = [start], [end]

    def holds(self, array: Any) -> bool:
        """Whether an array may have an element in memory that is in use."""
        if not isinstance(array, np.ndarray):
            return any(np.may_share_memory(array, other) for other in self._elsewhere)
        if not array.size:
            return False
        start, end = stretch(array)
        after = bisect_right(self._ends, start)
        return after < len(self._starts) and self._starts[after] < end


def stretch(array: Array) -> tuple[int, int]:
    """The address of the lowest byte of an array that has elements, and the one behind its highest."""
    start = memory_address(array)
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    moves = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(move, 0) for move in moves), start + sum(max(move, 0) for move in moves) + array.itemsize
