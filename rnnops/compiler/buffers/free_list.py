"""A free list: memory that went out of use waits for the next call, so that no pages have to be made anew.

A system's allocator gives large blocks back as soon as they are free, and each page of a new one costs a fault: a
quarter of a training step of a small recurrence. Blocks in use and blocks that wait are never more than blocks in use
were at once: a new one lets go of as many bytes that wait. While `tracemalloc` traces, all memory is new, so that it is
seen.
"""

from __future__ import annotations

import os
import tracemalloc

import numpy as np

from rnnops.kernels.cpu.drivers import memory_address
from rnnops.types import Array

ALIGNMENT = 64  # bytes: a line of the cache
PAGED = 64 * 1024  # bytes from which on memory is taken from here; allocators keep smaller blocks themselves
SPARE = 1 / 16  # of a block may be unused
MOST_BLOCKS = 256  # that wait: looking for one stays quick
MOST_BYTES = 2**30  # that wait, or a sixteenth of the machine's memory where that is less


class FreeList:
    """Blocks of memory that wait; no lock is needed, as lists change in single steps.

    Args:
        most: bytes that wait.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._idle: list[_Block] = []  # longest idle first

    @property
    def nbytes(self) -> int:
        """Bytes that wait."""
        return sum([block.nbytes for block in self._idle])  # a list is quicker than what makes one after the other

    def empty(self, nbytes: int) -> Array:
        """Uninitialised bytes from a line of the cache on, which come back when no array over them is left."""
        if nbytes < PAGED or tracemalloc.is_tracing():
            return new_bytes(nbytes)
        block = self._fitting(nbytes)
        if block is None:
            self.release(nbytes)
            block = _Block(nbytes)
        return np.asarray(_Lease(self, block, nbytes))

    def release(self, nbytes: int | None = None) -> None:
        """Let go of so many bytes at least, or of all that wait."""
        while self._idle and (nbytes is None or nbytes > 0):
            try:
                block = self._idle.pop(0)
            except IndexError:  # another thread was first
                return
            nbytes = None if nbytes is None else nbytes - block.nbytes

    def take_back(self, block: _Block) -> None:
        """Memory that nobody reads any more."""
        if tracemalloc.is_tracing() or block.nbytes > self.most:
            return
        self._idle.append(block)
        while len(self._idle) > MOST_BLOCKS or self.nbytes > self.most:
            self.release(1)

    def _fitting(self, nbytes: int) -> _Block | None:
        """The smallest block that is large enough and not much larger."""
        while True:
            found, least = None, nbytes * (1 + SPARE)
            for block in tuple(self._idle):
                if nbytes <= block.nbytes and (block.nbytes < least or (found is None and block.nbytes == least)):
                    found, least = block, block.nbytes
            if found is None:
                return None
            try:
                self._idle.remove(found)
            except ValueError:  # another thread was first
                continue
            return found


def new_bytes(nbytes: int) -> Array:
    """Uninitialised bytes from a line of the cache on."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory_address(memory) % ALIGNMENT
    return memory[start : start + nbytes]


class _Block:
    """Memory of its own."""

    __slots__ = ("address", "memory", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.memory = new_bytes(nbytes)
        self.address, self.nbytes = memory_address(self.memory), nbytes


class _Lease:
    """What arrays over a block keep alive, and what gives the block back in the end."""

    __slots__ = ("__array_interface__", "_block", "_home")

    def __init__(self, home: FreeList, block: _Block, nbytes: int) -> None:
        self._home, self._block = home, block
        self.__array_interface__ = {"data": (block.address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._home.take_back(self._block)


def is_leased(array: Array) -> bool:
    """Whether an array is what `FreeList.empty` gave, whose memory nothing else has meanwhile."""
    return isinstance(array.base, _Lease)


def _bytes_to_keep() -> int:
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return MOST_BYTES
    return min(MOST_BYTES, machine // 16)


HOST_MEMORY = FreeList(_bytes_to_keep())


def release_memory() -> None:
    """Give memory that waits for the next call back to the system.

    Of what calls used so far at most a GiB waits, or a sixteenth of the machine's memory where that is less; it saves
    the system the work of making pages anew.

    Example:
        >>> ro.release_memory()
    """
    HOST_MEMORY.release()
