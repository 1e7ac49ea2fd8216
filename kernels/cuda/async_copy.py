"""Memory between blocks: asynchronous copies, ordered accesses, barriers of a group.

**Copies from memory into shared memory that go on while a lane does something else, 16 bytes each, and early reads**. A
copy reads and writes at some time between its start and `copies_done` of the same lane; other lanes see it after a
barrier of the block behind that. It goes past the L1 cache, so that what other blocks wrote is not read from there.
Before compute capability 8.0 it is a load and a store. The simulator's twin copies at the last moment, in
`copies_done`: what is read too early is not there, and what changes too early arrives changed. Limit: arrays of the
simulator count as if they began at a multiple of 16 bytes.

**Memory that blocks tell each other of**: an addition that releases, and a read that acquires, at the scope of a
device. What a thread wrote before it releases, and what it knew of, is visible to who acquires the place after it. With
a barrier of the block before the one and after the other, that is so for all lanes of both blocks: PTX's causality
order goes through barriers. Each instruction has a twin for the simulator, whose memory has one order anyway; tests put
another one in its place (`simulated`), which notes what was released and acquired.

**Blocks of a group wait for each other, release what they wrote and acquire what the others did**. A group has a word
of memory: its highest bit is the turn, the rest counts. Of `members` blocks the first adds 2^31 - (members - 1), all
others 1: when all have come, the sum has turned the highest bit and left zeros below, for the next time, in this launch
or another one. Every block knows which turn it waits for: it reads the word before it has come to any barrier, when the
bit cannot turn without it, and counts from there. So nothing is set back between launches and no block waits for the
answer to its own addition.

No block waits for ever: the launch is cooperative, so that all blocks run at the same time; all members of a group
come to the same barriers in the same order, as a group goes through the same steps and regions; a block comes to a
barrier only after it has left the one before, so that at most one barrier of a group is open, and the members that
have not come to it are not waiting for anything of other groups. Each addition is made before its block begins to read,
and a word that has turned stays so until all members, also the one that reads, have come to the next barrier.

Order: lanes meet before the first one releases, so that it releases what all have written; it acquires before they meet
again, so that all may read what others released (`async_copy.py`).

Functions are text (`source`) for generated modules, as the simulator puts its own `cuda` only into the module that a
kernel is from. Limits: words of groups are the launch's own as long as it runs, which a stream's order gives; a launch
that is broken off leaves them as they are.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from llvmlite import ir

from rnnops.kernels.cuda.facade import SIMULATED, compiled_for, cuda, device_functions, intrinsic, types

COPIED = 16  # bytes of a copy; where they lie on both sides is a multiple of them
GO_ON = 8, 0  # compute capability from which on copies do
COPY = "cp.async.cg.shared.global [$0], [$1], 16;"
DONE = "cp.async.wait_all;"
FETCH = "prefetch.global.L2 [$0];"

if SIMULATED:
    _started = threading.local()

    def starts_a_copy(array: Any, first: int) -> bool:
        """True if an element of an array of one axis lies where copies may begin."""
        return bool(first * array.dtype.itemsize % COPIED == 0)

    def copy_soon(target: Any, place: int, source: Any, first: int) -> None:
        """16 bytes from `source[first]` on begin their way to `target[place]`, in shared memory."""
        if not hasattr(_started, "copies"):
            _started.copies = []
        _started.copies.append((target, place, source, first))

    def copies_done() -> None:
        """All copies that this lane has begun have arrived."""
        for target, place, source, first in _started.__dict__.pop("copies", ()):
            count = COPIED // source.dtype.itemsize
            target[place : place + count] = source[first : first + count]

    def fetch_early(array: Any, place: int) -> None:
        """Have an element, and what lies beside it, nearer when it is read."""

else:
    SHORT, LONG = ir.IntType(32), ir.IntType(64)

    @intrinsic
    def starts_a_copy(_context: Any, array: Any, first: Any) -> Any:
        """True if an element of an array of one axis lies where copies may begin."""

        def test(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            address = builder.ptrtoint(_pointer(context, builder, array, values[0], values[1]), LONG)
            rest = builder.and_(address, ir.Constant(LONG, COPIED - 1))
            return builder.icmp_unsigned("==", rest, ir.Constant(LONG, 0))

        return types.boolean(array, types.intp), test

    @intrinsic
    def copy_soon(_context: Any, target: Any, place: Any, source: Any, first: Any) -> Any:
        """16 bytes from `source[first]` on begin their way to `target[place]`, in shared memory."""

        def copy(context: Any, builder: Any, signature: Any, values: Any) -> None:
            to = _pointer(context, builder, target, values[0], values[1])
            if compiled_for() < GO_ON:
                _copy_now(builder, to, _pointer(context, builder, source, values[2], values[3]))
                return
            shared = builder.addrspacecast(to, ir.PointerType(to.type.pointee, 3))
            given = builder.ptrtoint(_pointer(context, builder, source, values[2], values[3]), LONG)
            _do(builder, COPY, "r,l,~{memory}", builder.ptrtoint(shared, SHORT), given)

        return types.void(target, types.intp, source, types.intp), copy

    @intrinsic
    def copies_done(_context: Any) -> Any:
        """All copies that this lane has begun have arrived."""

        def done(context: Any, builder: Any, signature: Any, values: Any) -> None:
            if compiled_for() >= GO_ON:
                _do(builder, DONE, "~{memory}")

        return types.void(), done

    @intrinsic
    def fetch_early(_context: Any, array: Any, place: Any) -> Any:
        """Have an element, and what lies beside it, nearer when it is read."""

        def fetch(context: Any, builder: Any, signature: Any, values: Any) -> None:
            pointer = _pointer(context, builder, array, values[0], values[1])
            _do(builder, FETCH, "l", builder.ptrtoint(pointer, LONG))

        return types.void(array, types.intp), fetch


def _pointer(context: Any, builder: Any, kind: Any, value: Any, place: Any) -> Any:
    """A pointer to an element of an array, or of what a pointer points to."""
    start = context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
    return builder.gep(start, [place])


def _copy_now(builder: Any, target: Any, source: Any) -> None:
    vector = ir.VectorType(ir.IntType(32), 4).as_pointer()
    numbers = builder.load(builder.bitcast(source, vector))
    store = builder.store(numbers, builder.bitcast(target, vector))
    numbers.align = store.align = COPIED


def _do(builder: Any, assembly: str, constraints: str, *operands: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [operand.type for operand in operands])
    builder.call(ir.InlineAsm(kind, assembly, constraints, side_effect=True), operands)


ADD_RELEASE = "red.release.gpu.global.add.u32 [$0], $1;"
WORD_VALUES = 1 << 32
LOAD_ACQUIRE = "ld.acquire.gpu.global.u32 $0, [$1];"


class PlainMemory:
    """The simulator's memory: threads take turns, so that a lock is all an addition needs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def add_release(self, counters: Any, place: int, value: Any) -> None:
        with self._lock:
            counters[place] = (int(counters[place]) + int(value)) % WORD_VALUES

    def load_acquire(self, counters: Any, place: int) -> Any:
        return counters[place]


simulated = PlainMemory()

if SIMULATED:

    def add_release(counters: Any, place: int, value: Any) -> None:
        """Add to a uint32, modulo 2^32, after all that this thread knows of."""
        simulated.add_release(counters, place, value)

    def load_acquire(counters: Any, place: int) -> Any:
        """A uint32; all that was released with it is known from now on."""
        return simulated.load_acquire(counters, place)

else:
    WORD, ADDRESS = ir.IntType(32), ir.IntType(64)

    @intrinsic
    def add_release(_context: Any, counters: Any, place: Any, value: Any) -> Any:
        """Add to a uint32, modulo 2^32, after all that this thread knows of."""

        def add(context: Any, builder: Any, signature: Any, values: Any) -> None:
            assembly = ir.InlineAsm(
                ir.FunctionType(ir.VoidType(), [ADDRESS, WORD]), ADD_RELEASE, "l,r,~{memory}", side_effect=True
            )
            builder.call(assembly, [_address(context, builder, signature, values), values[2]])

        return types.void(counters, types.intp, types.uint32), add

    @intrinsic
    def load_acquire(_context: Any, counters: Any, place: Any) -> Any:
        """A uint32; all that was released with it is known from now on. Its kernel is launched cooperatively."""

        def load(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            context.active_code_library.use_cooperative = True
            kind = ir.FunctionType(WORD, [ADDRESS])
            assembly = ir.InlineAsm(kind, LOAD_ACQUIRE, "=r,l,~{memory}", side_effect=True)
            return builder.call(assembly, [_address(context, builder, signature, values)])

        return types.uint32(counters, types.intp), load


def _address(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    memory = context.make_array(signature.args[0])(context, builder, values[0]).data
    return builder.ptrtoint(builder.gep(memory, [values[1]]), ir.IntType(64))


WORDS = 32  # of a group, so that each has a line of the cache of its own
HALF = 1 << 31


def turn_of(counters: Any, line: int) -> int:
    """The turn of a group's word, before this block has come to any barrier."""
    return np.int64(load_acquire(counters, line)) >> 31


def arrive(counters: Any, line: int, member: int, members: int) -> None:
    """All lanes of a member have come; until the group is waited for, they may do what needs no other member.

    Args:
        line: where the group's word is.
    """
    cuda.syncthreads()
    if members > 1 and cuda.threadIdx.x == 0:
        add_release(counters, line, np.uint32(HALF - members + 1 if member == 0 else 1))


def await_group(counters: Any, line: int, members: int, turns: int) -> None:
    """All members have come, and all lanes see what any of them wrote before.

    Args:
        turns: the turn at the beginning, plus how many barriers lie behind.
    """
    if members > 1:
        if cuda.threadIdx.x == 0:
            while np.int64(load_acquire(counters, line)) >> 31 == turns & 1:
                pass
        cuda.syncthreads()


FUNCTIONS = (turn_of, arrive, await_group)


def source() -> str:
    """The text of the functions, for modules that define `cuda`, `device_function` and what `async_copy.py` has."""
    return "\n\n\n".join([f"HALF = {HALF}", *device_functions(FUNCTIONS)])
