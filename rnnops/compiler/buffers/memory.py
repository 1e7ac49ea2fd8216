"""Memory of compiled recurrences: the buffers that a plan asks for, one function that allocates them, lent scratch.

Scratch is cut from blocks that all scans of a run borrow in turn: forward and backward passes and plans of all shapes
share it, so that a run holds about as much of it as its largest scan needs. A pass whose ops make results that die
within it borrows one block for both, as `rnnops/compiler/execute/recycle.py` has planned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rnnops.compiler.buffers.free_list import ALIGNMENT, HOST_MEMORY
from rnnops.fill import Shared
from rnnops.lazy import cached_property
from rnnops.recurrent.place import Place
from rnnops.types import Array, Shape

SMALL = 1024  # bytes from which on alignment is worth its overhead
IDLE_BLOCKS = 16  # that wait in a pool: one for each call at a time

KEPT, OUTPUT, GRADIENT, SUMS = "kept", "output", "gradient", "sums"
SCRATCH, PACKED = "scratch", "packed weights"
KINDS = (KEPT, OUTPUT, GRADIENT, SUMS, PACKED, SCRATCH)


@dataclass(frozen=True)
class Buffer:
    """Memory that a plan asks for.

    Args:
        what: it holds, for people.
        kind: what it is for: one of `KINDS`.
    """

    what: str
    kind: str
    dtype: str
    shape: Shape

    @cached_property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


def allocate(buffer: Buffer, zeros: bool = False) -> Array:
    """The one function that gives compiled recurrences memory; from 1 KiB on it begins at a line of the cache.

    It is uninitialised unless zeros are wanted.
    """
    if buffer.nbytes < SMALL:
        return (np.zeros if zeros else np.empty)(buffer.shape, buffer.dtype)
    memory = HOST_MEMORY.empty(buffer.nbytes)
    if zeros:
        memory.fill(0)
    array: Array = np.ndarray(buffer.shape, buffer.dtype, memory)
    return array


def on_host(array: Any) -> Any:
    """The array as a NumPy array, if it is one of another device."""
    return array.to_host() if hasattr(array, "to_host") else array


def contiguous(array: Array) -> Array:
    """The array, or a copy without gaps; arrays of another device than the host too."""
    return np.asarray(array, order="C") if isinstance(array, np.ndarray) else array.contiguous()


class Block:
    """Memory that is lent to one scan or one pass at a time."""

    def __init__(self, nbytes: int) -> None:
        self.memory = allocate(Buffer("scratch", SCRATCH, "uint8", (nbytes,)))
        self._owner: Array = self.memory if self.memory.base is None else self.memory.base
        self._start = self.memory.ctypes.data - self._owner.ctypes.data
        self._references = sys.getrefcount(self._owner)
        self._parts: WeakKeyDictionary[object, dict[str, Array]] = WeakKeyDictionary()

    def parts(self, user: object, wanted: Mapping[str, Buffer], offset: int = 0) -> Mapping[str, Array]:
        """The buffers that a user wants, side by side from an offset on; worked out once for each user."""
        found = self._parts.get(user)
        if found is None:
            found = self._parts[user] = self._cut(wanted, offset)
        return found

    def part(self, buffer: Buffer, offset: int) -> Array:
        """One buffer, at an offset."""
        part: Array = np.ndarray(buffer.shape, buffer.dtype, self._owner, self._start + offset)
        return part

    def is_held(self) -> bool:
        """Whether somebody has a `part` of it, or a view of one."""
        return sys.getrefcount(self._owner) > self._references + sum(map(len, self._parts.values()))

    def _cut(self, wanted: Mapping[str, Buffer], start: int) -> dict[str, Array]:
        parts = {}
        for name, buffer in wanted.items():
            parts[name] = self.part(buffer, start)
            start += rounded(buffer.nbytes)
        return parts


class Pool(Shared):
    """Blocks that wait for the next scan; `pop` and `append` need no lock.

    Args:
        make: a block of so many bytes.
    """

    def __init__(self, make: Callable[[int], Any] = Block) -> None:
        self.make = make
        self._idle: list[Any] = []

    def take(self, nbytes: int) -> Any:
        """A block of at least so many bytes; one that is too small makes room for it."""
        try:
            block = self._idle.pop()
        except IndexError:
            return self.make(nbytes)
        if block.memory.nbytes >= nbytes:
            return block
        del block
        return self.make(nbytes)

    def give(self, block: Any) -> None:
        """Give a block back, of which nobody has a part."""
        if len(self._idle) < IDLE_BLOCKS:
            self._idle.append(block)

    def clear(self) -> None:
        """Let go of all blocks that wait."""
        self._idle.clear()


class Memory(Place):
    """Where an op's memory comes from: each buffer by itself, scratch from a pool."""

    def empty(self, shape: Shape, dtype: str) -> Array:
        return self(Buffer("stepped from Python", OUTPUT, dtype, shape))

    def zeros(self, shape: Shape, dtype: str) -> Array:
        return self(Buffer("stepped from Python", OUTPUT, dtype, shape), zeros=True)

    def __call__(self, buffer: Buffer, zeros: bool = False) -> Array:
        """Memory for a buffer."""
        return allocate(buffer, zeros)

    def borrow(self, pool: Pool, nbytes: int) -> tuple[Any, int]:
        """A block with so many bytes of scratch, and where in it they begin."""
        return pool.take(nbytes), 0

    def give_back(self, pool: Pool, block: Any) -> None:
        """The scratch is needed no longer."""
        pool.give(block)


PLAIN = Memory()


def block_bytes(wanted: Iterable[Buffer]) -> int:
    """Bytes of a block from which these buffers can be cut."""
    return sum(rounded(buffer.nbytes) for buffer in wanted)


def rounded(count: int) -> int:
    """Bytes up to the next line of the cache."""
    return -(-count // ALIGNMENT) * ALIGNMENT


def flat_memory(array: Array) -> Array:
    """Memory without gaps as one axis, bools as bytes."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8) if flat.dtype.char == "?" else flat
