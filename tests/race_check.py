"""Races of a simulated kernel: every access to an element is noted, and compared with those it is not ordered with.

Two accesses by different threads are ordered by a grid's `sync` between them, within a block by `syncthreads` also, and
by a release after the one and an acquire of the same place before the other, as far as barriers of their blocks tell
the threads of both (`happens_before.py`). Where nothing orders them, they touch the same element, and not both read or
both are atomic, there is a race: on a device another block need not see what was written. It need not have shown in
this run: which threads took turns in which order is of no importance, only what each of them touched.

Memory is known by address, so that views, slices and arrays that overlap are the same elements. Of each thread
and each kind of access it is enough to keep one, the first after the thread's latest barrier before it: whatever races
with another one races with that, or has been found already.

Limits: atomics without release and acquire order nothing; local arrays are not looked at; indices are integers and
slices.
"""

from __future__ import annotations

import math
import operator
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from grid_threads import GridThread, Site, lines_of, site_text
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, FakeWithinKernelCUDAArray

READ, WRITE, ATOMIC = range(3)
DONE = ("read", "written", "changed atomically")
CONFLICTS = ((WRITE, ATOMIC), (READ, WRITE, ATOMIC), (READ, WRITE))
PLAIN = frozenset({"shape", "size", "ndim", "dtype", "strides", "itemsize", "nbytes", "flags"})
VIEWS = frozenset({"reshape", "ravel", "view", "transpose"})


class RaceError(RuntimeError):
    """Two threads touch an element, one of them writes, and no barrier is between them."""


class Access(NamedTuple):
    """What a thread did last to a unit of memory.

    Args:
        epoch: by its own clock.
        value: what it wrote, where that matters.
    """

    epoch: int
    site: Site
    value: bytes | None


Cell = tuple[dict[GridThread, Access], dict[GridThread, Access], dict[GridThread, Access]]


class Origin(NamedTuple):
    """An array as the kernel knows it, which views are cut from."""

    name: str
    array: np.ndarray

    def element(self, address: int) -> str:
        """The element at an address, by its index."""
        rest, index = address - _address(self.array), [0] * self.array.ndim
        for axis in sorted(range(self.array.ndim), key=lambda axis: -self.array.strides[axis]):
            if self.array.strides[axis] > 0:
                index[axis], rest = divmod(rest, self.array.strides[axis])
        return f"{self.name}[{', '.join(map(str, index))}]"


class Races:
    """The memory of one launch.

    Args:
        same_value_is_fine: whether threads may write to the same element if they write the same.
    """

    def __init__(self, kernel: str, same_value_is_fine: bool) -> None:
        self.kernel, self.same_value_is_fine = kernel, same_value_is_fine
        self._memories: dict[int, Memory] = {}

    def forget(self) -> None:
        """All threads have come to a `sync` of the grid: nothing before it races with anything after it."""
        for memory in self._memories.values():
            memory.cells.clear()

    def watched(self, value: Any, name: str) -> Any:
        """An argument with the arrays in it watched."""
        if isinstance(value, tuple):
            return tuple(self.watched(part, f"{name}[{i}]") for i, part in enumerate(value))
        if isinstance(value, FakeWithinKernelCUDAArray):
            value = value._item
        if isinstance(value, FakeCUDAArray):
            value = value._ary
        if not isinstance(value, np.ndarray) or value.dtype.names:
            return value
        return WatchedArray(value, self._memory_of(value), Origin(name, value))

    def _memory_of(self, array: np.ndarray) -> Memory:
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        return self._memories.setdefault(id(root), Memory(self, root))


class Memory:
    """Accesses to one allocation since the last `sync` of the grid.

    Args:
        unit: bytes that are looked at together, no more than an element of any array in this memory has.
    """

    def __init__(self, races: Races, root: np.ndarray) -> None:
        self.races, self.root = races, root  # which keeps the root's id its own
        self.start, self.unit = _address(root), root.itemsize
        self.cells: dict[int, Cell] = {}

    def refine(self, array: np.ndarray) -> None:
        """Make units small enough for the elements of an array."""
        before = self.unit
        self.unit = math.gcd(before, array.itemsize, _address(array) - self.start, *array.strides)
        if self.unit != before:
            cells, self.cells = self.cells, {}
            for address, cell in cells.items():
                for part in range(0, before, self.unit):
                    self.cells[address + part] = tuple(_parts(kind, part, self.unit) for kind in cell)

    def note(self, kind: int, address: int, element: np.ndarray, origin: Origin) -> None:
        """The current thread has read an element, or has written it. Raises RaceError."""
        thread: Any = threading.current_thread()
        epoch, keep = thread.grid.clocks.now(thread.number), kind == WRITE and self.races.same_value_is_fine
        for part in range(0, element.itemsize, self.unit):
            cell = self.cells.get(address + part)
            if cell is None:
                cell = self.cells[address + part] = ({}, {}, {})
            if keep or not self._noted(cell, kind, thread, epoch):
                value = element.tobytes()[part : part + self.unit] if keep else None
                now = Access(epoch, (next(lines_of(sys._getframe(1))),), value)
                self._compare(cell, kind, thread, now, address, origin)
                cell[kind][thread] = now

    def _noted(self, cell: Cell, kind: int, thread: GridThread, epoch: int) -> bool:
        """Whether an access since the last barrier stands for another: what races with that has raced with this."""
        own, written = cell[kind].get(thread), cell[WRITE].get(thread)
        return (own is not None and own.epoch == epoch) or (
            kind == READ and written is not None and written.epoch == epoch
        )

    def _compare(self, cell: Cell, kind: int, thread: GridThread, now: Access, address: int, origin: Origin) -> None:
        for other_kind in CONFLICTS[kind]:
            for other, access in cell[other_kind].items():
                ordered = other is thread or thread.grid.clocks.knows(thread.number, other.number, access.epoch)
                if not ordered and not self._same(cell, kind, other_kind, thread, now, access):
                    barrier = "syncthreads" if other.block is thread.block else "sync of the grid"
                    raise RaceError(
                        f"kernel {self.races.kernel}: race for {origin.element(address)}: "
                        f"{DONE[other_kind]} by {other} ({site_text(access.site)}), "
                        f"{DONE[kind]} by {thread} ({site_text(now.site)}), without a {barrier} between them"
                    )

    def _same(self, cell: Cell, kind: int, other_kind: int, thread: GridThread, now: Access, access: Access) -> bool:
        """Whether all that two threads wrote is the same; a thread may read what it has written itself."""
        if other_kind != WRITE or not self.races.same_value_is_fine:
            return False
        own = now if kind == WRITE else cell[WRITE].get(thread)
        return own is not None and own.epoch == now.epoch and own.value == access.value


def _parts(accesses: dict[GridThread, Access], start: int, size: int) -> dict[GridThread, Access]:
    return {
        thread: access._replace(value=access.value[start : start + size]) if access.value is not None else access
        for thread, access in accesses.items()
    }


class WatchedArray:
    """An array in a kernel; elements that are read and written are noted, views are watched as well."""

    __slots__ = ("_address", "_array", "_memory", "_origin")

    def __init__(self, array: np.ndarray, memory: Memory, origin: Origin) -> None:
        memory.refine(array)
        self._array, self._memory, self._origin = array, memory, origin
        self._address = _address(array)

    def __getattr__(self, name: str) -> Any:
        if name in PLAIN:
            return getattr(self._array, name)
        if name == "T":
            return self._view(self._array.T)
        if name in VIEWS:
            return lambda *arguments, **options: self._view(getattr(self._array, name)(*arguments, **options))
        raise AttributeError(f"the race check knows no {name!r} of arrays ({self._origin.name})")

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        found = self._array[index]
        if isinstance(found, np.ndarray):
            return self._view(found)
        self._note(READ, index, found)
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = _read(value)
        written = self._array[index]
        if isinstance(written, np.ndarray):
            self._view(written)._note_all(WRITE)
        else:
            self._note(WRITE, index, written)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", ())
        if out:
            options["out"] = tuple(array._array if isinstance(array, WatchedArray) else array for array in out)
        result = getattr(ufunc, method)(*map(_read, inputs), **options)
        for array in out:
            if isinstance(array, WatchedArray):
                array._note_all(WRITE)
        return result

    def atomically(self, operation: Callable[..., Any], index: Any, *operands: Any) -> Any:
        """The result of an atomic operation `(array, index, *operands)` on an element."""
        result = operation(self._array, index, *operands)
        self._note(ATOMIC, index, self._array[index])
        return result

    def place(self, index: int) -> int:
        """The address of an element."""
        return int(self._address + operator.index(index) * self._array.strides[0])

    def _view(self, view: np.ndarray) -> WatchedArray:
        if view.size and not np.may_share_memory(view, self._array):
            raise TypeError(f"a copy of {self._origin.name} is made where a kernel can only have a view")
        return WatchedArray(view, self._memory, self._origin)

    def _note(self, kind: int, index: Any, element: Any) -> None:
        address = self._address
        places = index if isinstance(index, tuple) else (index,)
        for place, size, stride in zip(places, self._array.shape, self._array.strides, strict=True):
            i = operator.index(place)
            address += (i + size if i < 0 else i) * stride
        self._memory.note(kind, address, element, self._origin)

    def _note_all(self, kind: int) -> None:
        for index in np.ndindex(self._array.shape):
            self._note(kind, index, self._array[index])


def _read(value: Any) -> Any:
    """A number or an array; all elements of an array that is watched have been read."""
    if not isinstance(value, WatchedArray):
        return value
    value._note_all(READ)
    return value._array


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def names_of(parameters: Iterable[str], count: int) -> list[str]:
    """A name for each of a kernel's arguments; those of `*arrays` are numbered."""
    names = list(parameters)
    return [names[i] if i < len(names) - 1 or count == len(names) else f"{names[-1]}[{i}]" for i in range(count)]
