"""Which memory arrays lie in, to ask of many others whether they may lie there too.

Answers are those of `np.may_share_memory`, which looks at the lowest and highest address of two arrays; stretches of
addresses are kept sorted and joined, so that a question costs a bisection. Most arrays need no address: what NumPy or
the free list has allocated belongs to one array, and views of another one lie elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np

from rnnops.compiler.buffers.free_list import is_leased
from rnnops.kernels.cpu.drivers import memory_address
from rnnops.types import Array


class MemoryInUse:
    """The memory of arrays, of the host or of a device."""

    def __init__(self, arrays: Iterable[Any] = ()) -> None:
        self._owned: dict[int, _Stretches] = {}  # by id of the array that has allocated the memory
        self._others = _Stretches()  # of memory that something else has allocated
        self._elsewhere: list[Any] = []  # arrays that only NumPy's dispatch can compare
        for array in arrays:
            self.add(array)

    def add(self, array: Any) -> None:
        """Memory that is in use from now on; the array has to stay."""
        if not isinstance(array, np.ndarray):
            self._elsewhere.append(array)
            return
        owner = _owner(array)
        there = self._others if owner is None else self._owned.setdefault(id(owner), _Stretches())
        there.arrays.append(array)

    def holds(self, array: Any) -> bool:
        """Whether an array may have an element in memory that is in use."""
        if not isinstance(array, np.ndarray):
            return any(np.may_share_memory(array, other) for other in self._elsewhere)
        owner = _owner(array)
        if owner is None:
            return any(there.hold(array) for there in (self._others, *self._owned.values()))
        there = self._owned.get(id(owner))
        return (there is not None and there.hold(array)) or self._others.hold(array)


class _Stretches:
    """Stretches of addresses, of arrays that wait to be looked at."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def hold(self, array: Array) -> bool:
        """Whether an array may have an element in one of them."""
        while self.arrays:
            self._join(self.arrays.pop())
        if not self._starts or not array.size:
            return False
        start, end = stretch(array)
        after = bisect_right(self._ends, start)
        return after < len(self._starts) and self._starts[after] < end

    def _join(self, array: Array) -> None:
        if array.size:
            start, end = stretch(array)
            first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
            if first < last:
                start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
            self._starts[first:last], self._ends[first:last] = [start], [end]


def _owner(array: Array) -> Array | None:
    """The array that has allocated the memory of an array; None where something else has, which others may wrap too."""
    base = array.base
    owner = base if type(base) is np.ndarray else array
    return owner if owner.flags.owndata or is_leased(owner) else None


def stretch(array: Array) -> tuple[int, int]:
    """The address of the lowest byte of an array that has elements, and the one behind its highest."""
    start = memory_address(array)
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    moves = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(move, 0) for move in moves), start + sum(max(move, 0) for move in moves) + array.itemsize
