"""Memory of compiled recurrences: buffers, their allocation, and the bytes that a call takes.

**A free list** keeps memory that went out of use for the next call, so that no pages have to be made anew. A system's
allocator gives large blocks back as soon as they are free, and each page of a new one costs a fault: a quarter of a
training step of a small recurrence. Before a new block is made, waiting blocks of as many bytes are freed. So used and
waiting blocks together are never more than the most that was in use at once. While `tracemalloc` traces, all memory is
new, so that it is counted.

**Buffers** are the pieces of memory that a plan asks for. One function allocates them, and lends scratch. Scratch is
cut from blocks that all scans of a run borrow in turn: forward and backward passes and plans of all shapes share it, so
that a run holds about as much of it as its largest scan needs. Results that die within a pass lie in the same block as
its scratch, as `rnnops/compiler/run/compile_programs.py` has planned.

**Memory in use** (`MemoryInUse`): whether an array may share memory with any of many others. Answers are those of
`np.may_share_memory`, which compares the lowest and highest addresses of two arrays. Ranges of addresses are sorted and
joined, so that a question costs a bisection. Most arrays need no addresses: memory that NumPy or the free list has
allocated belongs to one array, and only its views can share it.

**State tensors** (`StateTensor`) hold the states of a recurrence: `[L + T, N, ...]` in order of time. The L initial
steps come first, or last in a recurrence that runs in reverse.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rnnops.compiler.lower.lower_ops import Hoisted
from rnnops.compiler.lower.scan import Role, Slot, Tensor, TensorName
from rnnops.compiler.lower.statements import Access, Layout, dense
from rnnops.kernels.cpu.threads import memory_address
from rnnops.recurrent.recurrence import Recurrence, State
from rnnops.recurrent.stepping import StepMemory, tensor_shape
from rnnops.templates import Shared
from rnnops.types import Array, Shape, Type
from rnnops.util import cached_property

ALIGNMENT = 64  # bytes: a line of the cache
PAGED = 64 * 1024  # bytes from which on the free list is used; allocators keep smaller blocks themselves
SPARE = 1 / 16  # the part of a block that may stay unused
MOST_BLOCKS = 256  # the most blocks that wait, so that a search stays quick
MOST_BYTES = 2**30  # the most bytes that wait, or a sixteenth of the machine's memory if that is less


class FreeList:
    """Blocks of memory that wait for use. No lock is needed, because each change of a list is a single step.

    Args:
        most: the most bytes that wait.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._idle: list[_Block] = []  # longest idle first

    @property
    def nbytes(self) -> int:
        """Bytes that wait."""
        return sum([block.nbytes for block in self._idle])  # a list is quicker than a generator

    def empty(self, nbytes: int) -> Array:
        """Uninitialised bytes that begin at a line of the cache. They come back when no array over them is left."""
        if nbytes < PAGED or tracemalloc.is_tracing():
            return new_bytes(nbytes)
        block = self._fitting(nbytes)
        if block is None:
            self.release(nbytes)
            block = _Block(nbytes)
        return np.asarray(_Lease(self, block, nbytes))

    def release(self, nbytes: int | None = None) -> None:
        """Free waiting blocks: at least so many bytes, or all."""
        while self._idle and (nbytes is None or nbytes > 0):
            try:
                block = self._idle.pop(0)
            except IndexError:  # another thread was first
                return
            nbytes = None if nbytes is None else nbytes - block.nbytes

    def take_back(self, block: _Block) -> None:
        """Keep a block that is no longer in use, within the limits."""
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
    """Uninitialised bytes that begin at a line of the cache."""
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
    """The use of a block. Arrays over the block keep this object alive. It gives the block back when it dies."""

    __slots__ = ("__array_interface__", "_block", "_home")

    def __init__(self, home: FreeList, block: _Block, nbytes: int) -> None:
        self._home, self._block = home, block
        self.__array_interface__ = {"data": (block.address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._home.take_back(self._block)


def is_leased(array: Array) -> bool:
    """True if an array is a result of `FreeList.empty`, so that no other array has its memory."""
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

    After calls, at most a GiB of memory waits, or a sixteenth of the machine's memory if that is less. It saves the
    system the work of making pages anew.

    Example:
        >>> ro.release_memory()
    """
    HOST_MEMORY.release()


SMALL = 1024  # bytes from which on alignment is worth its overhead
IDLE_BLOCKS = 16  # blocks that wait in a pool; each call that runs at the same time takes one

KEPT, OUTPUT, GRADIENT, SUMS = "kept", "output", "gradient", "sums"
SCRATCH, PACKED = "scratch", "packed weights"
KINDS = (KEPT, OUTPUT, GRADIENT, SUMS, PACKED, SCRATCH)


@dataclass(frozen=True)
class Buffer:
    """Memory that a plan asks for.

    Args:
        what: the name of its contents, for people.
        kind: its use: one of `KINDS`.
    """

    what: str
    kind: str
    dtype: str
    shape: Shape

    @cached_property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


def allocate(buffer: Buffer, zeros: bool = False) -> Array:
    """Allocates all memory of compiled recurrences. Buffers of 1 KiB and more begin at a line of the cache.

    Memory is uninitialised unless zeros are wanted.
    """
    if buffer.nbytes < SMALL:
        return (np.zeros if zeros else np.empty)(buffer.shape, buffer.dtype)
    memory = HOST_MEMORY.empty(buffer.nbytes)
    if zeros:
        memory.fill(0)
    array: Array = np.ndarray(buffer.shape, buffer.dtype, memory)
    return array


def on_host(array: Any) -> Any:
    """The array as a NumPy array; one of another device is copied to the host."""
    return array.to_host() if hasattr(array, "to_host") else array


def read_only(arrays: dict[str, Array]) -> dict[str, Array]:
    """The same arrays, made read-only."""
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def contiguous(array: Array) -> Array:
    """The array, or a copy without gaps. It may be an array of another device."""
    return np.asarray(array, order="C") if isinstance(array, np.ndarray) else array.contiguous()


class MemoryInUse:
    """The memory of some arrays, of the host or of a device."""

    def __init__(self, arrays: Iterable[Any] = ()) -> None:
        self._owned: dict[int, _Stretches] = {}  # by id of the array that owns the memory
        self._others = _Stretches()  # of memory that no array owns
        self._elsewhere: list[Any] = []  # arrays that only NumPy's dispatch can compare
        for array in arrays:
            self.add(array)

    def add(self, array: Any) -> None:
        """Count the memory of an array as in use. The caller must keep the array alive."""
        if not isinstance(array, np.ndarray):
            self._elsewhere.append(array)
            return
        owner = _owner(array)
        there = self._others if owner is None else self._owned.setdefault(id(owner), _Stretches())
        there.arrays.append(array)

    def holds(self, array: Any) -> bool:
        """True if an array may have an element in memory that is in use."""
        if not isinstance(array, np.ndarray):
            return any(np.may_share_memory(array, other) for other in self._elsewhere)
        owner = _owner(array)
        if owner is None:
            return any(there.hold(array) for there in (self._others, *self._owned.values()))
        there = self._owned.get(id(owner))
        return (there is not None and there.hold(array)) or self._others.hold(array)


class _Stretches:
    """Ranges of addresses. New arrays wait in `arrays` until the next question."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def hold(self, array: Array) -> bool:
        """True if an array may have an element in one of the ranges."""
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
    """The array that owns the memory of an array. None if no array does: then other arrays may wrap the memory, too."""
    base = array.base
    owner = base if type(base) is np.ndarray else array
    return owner if owner.flags.owndata or is_leased(owner) else None


def stretch(array: Array) -> tuple[int, int]:
    """The address of an array's lowest byte, and the address after its highest byte. The array must have elements."""
    start = memory_address(array)
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    moves = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(move, 0) for move in moves), start + sum(max(move, 0) for move in moves) + array.itemsize


class Block:
    """Memory that is lent to one scan or one pass at a time."""

    def __init__(self, nbytes: int) -> None:
        self.memory = allocate(Buffer("scratch", SCRATCH, "uint8", (nbytes,)))
        self._owner: Array = self.memory if self.memory.base is None else self.memory.base
        self._start = self.memory.ctypes.data - self._owner.ctypes.data
        self._references = sys.getrefcount(self._owner)
        self._parts: WeakKeyDictionary[object, dict[str, Array]] = WeakKeyDictionary()

    def parts(self, user: object, wanted: Mapping[str, Buffer], offset: int = 0) -> Mapping[str, Array]:
        """The buffers that a user wants, one after another from an offset on. They are made once for each user."""
        found = self._parts.get(user)
        if found is None:
            found = self._parts[user] = self._cut(wanted, offset)
        return found

    def part(self, buffer: Buffer, offset: int) -> Array:
        """One buffer, at an offset."""
        part: Array = np.ndarray(buffer.shape, buffer.dtype, self._owner, self._start + offset)
        return part

    def is_held(self) -> bool:
        """True if an array from `part`, or a view of one, is still alive."""
        return sys.getrefcount(self._owner) > self._references + sum(map(len, self._parts.values()))

    def _cut(self, wanted: Mapping[str, Buffer], start: int) -> dict[str, Array]:
        parts = {}
        for name, buffer in wanted.items():
            parts[name] = self.part(buffer, start)
            start += rounded(buffer.nbytes)
        return parts


class Pool(Shared):
    """Blocks that wait for the next scan. `pop` and `append` of its list need no lock.

    Args:
        make: makes a block of so many bytes.
    """

    def __init__(self, make: Callable[[int], Any] = Block) -> None:
        self.make = make
        self._idle: list[Any] = []

    def take(self, nbytes: int) -> Any:
        """A block of at least so many bytes. If the waiting block is too small, it is freed first."""
        try:
            block = self._idle.pop()
        except IndexError:
            return self.make(nbytes)
        if block.memory.nbytes >= nbytes:
            return block
        del block
        return self.make(nbytes)

    def give(self, block: Any) -> None:
        """Give back a block without parts in use."""
        if len(self._idle) < IDLE_BLOCKS:
            self._idle.append(block)

    def clear(self) -> None:
        """Free all blocks that wait."""
        self._idle.clear()


class Memory(StepMemory):
    """Gives an op its memory: a new array for each buffer, scratch from a pool."""

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
        """Return a block whose scratch is no longer needed."""
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


@dataclass(frozen=True)
class Demand:
    """Memory of one run of a compiled recurrence.

    Args:
        made: buffers that are there from the beginning to the end.
        sums: buffers of sums over steps, and of results that are made from sums. All are there at once; then those
            that are not results are freed.
        late: buffers that are made after that.
        results: for each output of the op the buffers that it lies in.
        lent: buffers in the block that it borrows.
        lasting: buffers that it allocates at its first run and keeps for the next.
        interpreted: those of all these buffers that the interpreter makes within the op. The op makes the others.
    """

    made: tuple[Buffer, ...]
    results: tuple[tuple[Buffer, ...], ...]
    sums: tuple[Buffer, ...] = ()
    late: tuple[Buffer, ...] = ()
    lent: tuple[Buffer, ...] = ()
    lasting: tuple[Buffer, ...] = ()
    interpreted: tuple[Buffer, ...] = ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers of a run."""
        return *self.made, *self.sums, *self.late, *self.lent, *self.lasting

    def asked_for(self) -> tuple[Buffer, ...]:
        """The allocations of the op other than scratch."""
        others = {id(buffer) for buffer in self.interpreted}
        return tuple(buffer for buffer in (*self.made, *self.sums, *self.late) if id(buffer) not in others)

    def moments(self) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
        """The buffers that are there when all sums are, and those at the end."""
        results = {id(buffer) for buffers in self.results for buffer in buffers}
        left = tuple(buffer for buffer in self.sums if id(buffer) in results)
        return (*self.made, *self.sums), (*self.made, *left, *self.late)


def prologue_buffers(hoisted: Hoisted) -> tuple[Buffer, ...]:
    """The results of ops that run once, before the first step."""
    if hoisted.prologue is None:
        return ()
    types = {name: hoisted.prologue.types[blob] for name, blob in hoisted.prologue.net.output_blobs.items()}
    return tuple(Buffer(name, SCRATCH, kind.dtype, kind.shape) for name, kind in types.items())


@dataclass(frozen=True)
class StateTensor:
    """A state's tensor. Its steps are in order of time, so a recurrence in reverse has its initial steps at the end.

    Args:
        initial_steps: L.
        shape: of one step.
    """

    state: State
    initial_steps: int
    steps: int
    shape: Shape
    dtype: str
    reverse: bool

    @cached_property
    def name(self) -> TensorName:
        return Role.STATE.of(self.state.input)

    @property
    def length(self) -> int:
        return self.initial_steps + self.steps

    @property
    def first(self) -> int:
        """The place, in order of execution, of the earliest step that the state input contains at the first step."""
        return self.state.offset or 0

    def read(self) -> Slot:
        """The slot at which the state input of step t begins."""
        if not self.reverse:
            return Slot(self.name, self.first)
        return Slot(self.name, self.initial_steps - self.first - (self.state.window - 1))

    def write(self) -> Slot:
        return Slot(self.name, 0 if self.reverse else self.initial_steps)

    def access(self) -> Access:
        """The state input as a blob: a window in reverse runs from the last place to the first."""
        kind = self.input_shape
        layout = dense(kind)
        if self.reverse and self.state.window > 1:
            step = prod(self.shape)
            layout = Layout((self.state.window - 1) * step, kind, (-step, *layout.strides[1:]))
        return Access(self.state.input, layout)

    @property
    def input_shape(self) -> Shape:
        return self.shape if self.state.window == 1 else (self.state.window, *self.shape)

    @property
    def batch_axis(self) -> int:
        """Of the state input."""
        return 0 if self.state.window == 1 else 1

    def can_roll(self) -> bool:
        """True: memory for L + 1 steps is enough, unless all steps are read afterwards."""
        return self.state.window == 1

    def is_plain(self) -> bool:
        """True if a step reads only the step before. Memory for two steps is then enough for the gradient."""
        return self.state.window == 1 and self.initial_steps == 1

    def tensor(self, ring: bool) -> Tensor:
        return Tensor(self.dtype, self.shape, self.initial_steps + 1 if ring else self.length, ring)

    # -- memory --------------------------------------------------------------------------------------------------

    def fill(self, tensor: Array, initial: Array) -> None:
        """Write the initial steps into new memory, which may be a ring."""
        steps = initial if initial.ndim == len(self.shape) + 1 else initial[None]
        for p in range(self.initial_steps):
            place = (self.length - 1 - p) % len(tensor) if self.reverse else p
            tensor[place] = steps[min(p, len(steps) - 1)]

    def every(self, tensor: Array) -> Array:
        """The output `_all`, as a view of a tensor that is not a ring."""
        return tensor[: self.steps] if self.reverse else tensor[self.initial_steps :]

    def before(self, tensor: Array, place: int) -> Array:
        """For each step, the value at one place of its state input, as a view of a tensor that is not a ring."""
        first = self.read().shift + (self.state.window - 1 - place if self.reverse else place)
        return tensor[first : first + self.steps]

    def last(self, tensor: Array) -> Array:
        """The output `_last`: the state after the last executed step."""
        place = (0 if self.reverse else self.length - 1) % len(tensor)
        return tensor[place : place + 1]

    def head(self, tensor: Array) -> Array:
        """The initial steps, in order of execution, as a view of a tensor that is not a ring."""
        return tensor[self.steps :][::-1] if self.reverse else tensor[: self.initial_steps]


def state_tensors(recurrence: Recurrence, types: Mapping[str, Type]) -> list[StateTensor]:
    """The tensors of all states, given the types of the recurrence's inputs by cell input."""
    steps, batch = recurrence.steps_and_batch(types)
    result = []
    for state in recurrence.states:
        kind = types[state.input]
        length, *shape = tensor_shape(kind.shape, state.feature_rank, steps, batch)
        result.append(StateTensor(state, length - steps, steps, tuple(shape), kind.dtype, recurrence.reverse))
    return result


def read_by_backward(recurrence: Recurrence) -> list[TensorName]:
    """Tensors that the forward pass fills and the backward pass reads."""
    read, blobs = recurrence.backward_reads, recurrence.cell.output_blobs
    states = [Role.STATE.of(state.input) for state in recurrence.states if {state.input, blobs[state.output]} & read]
    outputs = [Role.OUTPUT.of(name) for name in recurrence.wanted_step_outputs if blobs[name] in read]
    return [*states, *outputs, *map(Role.KEPT.of, recurrence.keep)]
