"""How threads work together in compiled code: a barrier for a team, a gate between two threads, jobs for workers.

The barrier is the central sense-reversing one of Mellor-Crummey and Scott (ACM TOCS 9(1), 1991), a phase number taking
the place of the sense: who arrives reads the phase, then counts itself; the last sets the count back and opens the next
phase. The gate lets one thread through each time that another opens it; who waits long sleeps on a lock. A job is a
function and its arguments, which `lead` puts on its stack; workers read them there through an entry, a small function
that knows their types, so that arguments are unpacked once and workers stay in compiled code.

Waiting threads pause the processor 64 times, give it to others once, and so on: two threads on one core hand it over in
microseconds. After some 100 microseconds the barrier gives the processor away at every try and the gate sleeps. Nothing
here needs the interpreter's lock, allocates or raises; all may be kept in numba's disk cache. What a thread wrote
before a barrier or a gate is seen by all after it.

Limits: memory is not checked: barriers hold `new_barrier().size` numbers or more, all threads of a team pass the same
number to `wait`, one team at a time uses a barrier, and one thread that never arrives stops all. Who waits in a barrier
keeps its core busy where no other wants it. A job's function returns nothing.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from rnnops.errors import DeviceError
from rnnops.kernels.cpu.fastmath import compiled_as, extending, inlined, primitive, types
from rnnops.kernels.cpu.vector_width import ARM, X86
from rnnops.kernels.cpu.vectors import I64

LINE_BYTES, NUMBER_BYTES = 64, 8
LINE = LINE_BYTES // NUMBER_BYTES
PAUSES, PATIENCE = 64, 4096  # tries between two gifts of the processor, tries until it is always given or slept
CLOSED, OPEN, SLEEPER = 0, 1, 2  # states of a gate, which is two numbers: the state, the address of a lock
DONE_GATE, JOB, MAILBOX_LINES = LINE_BYTES, 2 * LINE_BYTES, 3  # a mailbox: gate to a worker, gate from it, its job

WORD: Any = types.int64
ENTRY: Any = types.none, (WORD, WORD, WORD)  # result and operands (block, rank, threads)


def cache_lines(count: int) -> Any:
    """Zeros, int64, that fill cache lines of their own."""
    numbers = np.zeros((count + 1) * LINE, np.int64)
    start = -numbers.ctypes.data % LINE_BYTES // NUMBER_BYTES
    return numbers[start : start + count * LINE]


def _numbers(*operands: Any) -> Any:
    integers = all(isinstance(operand, types.Integer) for operand in operands)
    return WORD(*(WORD for _ in operands)) if integers else None


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, I64.as_pointer())


def _emit_stored(builder: Any, address: Any, number: Any) -> Any:
    builder.store_atomic(number, _pointer(builder, address), "release", NUMBER_BYTES)
    return number


def _emit_compared(builder: Any, address: Any, old: Any, new: Any) -> Any:
    found = builder.cmpxchg(_pointer(builder, address), old, new, "seq_cst", "seq_cst")
    return builder.extract_value(found, 0)


def _emit_paused(builder: Any, number: Any) -> Any:
    machine, whole_system = platform.machine().lower(), ir.IntType(32)(15)
    if machine in X86:
        _call(builder, "llvm.x86.sse2.pause")
    elif machine in ARM:
        _call(builder, "llvm.aarch64.isb", whole_system)  # about as long as a pause; `yield` takes no time at all
    return number


def _call(builder: Any, name: str, *operands: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [operand.type for operand in operands])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), operands)


@primitive(_numbers, lambda builder, a: builder.load_atomic(_pointer(builder, a), "acquire", NUMBER_BYTES))
def loaded(address: int) -> int:
    """The number at an address."""
    raise only_compiled()


@primitive(_numbers, _emit_stored)
def stored(address: int, number: int) -> int:
    """A number, put at an address."""
    raise only_compiled()


@primitive(_numbers, lambda builder, a, n: builder.atomic_rmw("add", _pointer(builder, a), n, "seq_cst"))
def added(address: int, number: int) -> int:
    """What was at an address before a number was added to it."""
    raise only_compiled()


@primitive(_numbers, lambda builder, a, n: builder.atomic_rmw("xchg", _pointer(builder, a), n, "seq_cst"))
def exchanged(address: int, number: int) -> int:
    """What was at an address before a number was put there."""
    raise only_compiled()


@primitive(_numbers, _emit_compared)
def compared(address: int, old: int, new: int) -> int:
    """What was at an address before `new` was put there, which is done only if it was `old`."""
    raise only_compiled()


@primitive(_numbers, _emit_paused)
def paused(number: int) -> int:
    """A number, after the processor has rested for some ten nanoseconds."""
    raise only_compiled()


def only_compiled() -> DeviceError:
    """What plain Python says that wants to wait for other threads."""
    return DeviceError("threads join in compiled code only", wanted="1 thread", hint="Is NUMBA_DISABLE_JIT set?")


give_processor: Any = types.ExternalFunction(
    "SwitchToThread" if sys.platform == "win32" else "sched_yield", types.int32()
)
# The interpreter's portable locks: whoever calls these needs no lock of the interpreter.
acquire_lock: Any = types.ExternalFunction("PyThread_acquire_lock", types.int32(WORD, types.int32))
release_lock: Any = types.ExternalFunction("PyThread_release_lock", types.void(WORD))


@inlined
def after_rest(tries: int) -> int:
    """Let a moment pass between two tries; one more try."""
    tries = paused(tries)
    if tries >= PATIENCE or tries % PAUSES == PAUSES - 1:
        give_processor()
    return tries + 1


def new_barrier() -> Any:
    """The memory of a barrier: the count and the phase."""
    return cache_lines(2)


def _wait(barrier: Any, threads: int) -> None:
    if threads > 1:
        count = barrier.ctypes.data
        phase = count + LINE_BYTES
        now = loaded(phase)  # before the count: as soon as all are counted it may change
        if added(count, 1) == threads - 1:
            stored(count, 0)  # before the phase: whoever sees the next phase may count itself again
            stored(phase, now + 1)
        else:
            tries = 0
            while loaded(phase) == now:
                tries = after_rest(tries)


def _choose_wait(barrier: Any, threads: Any) -> Any:
    numbers = isinstance(barrier, types.Array) and (barrier.dtype, barrier.ndim, barrier.layout) == (WORD, 1, "C")
    return _wait if numbers and isinstance(threads, types.Integer) else None


@compiled_as(_choose_wait)
def wait(barrier: Any, threads: int) -> None:
    """Return when all threads of a team have called this.

    Args:
        barrier: from `new_barrier`, the same for all; may be used again at once, any number of times.
        threads: how many they are; one returns at once.

    Raises DeviceError in plain Python for more threads than one, nothing in compiled code.
    """
    if threads > 1:
        raise only_compiled()


@inlined
def open_gate(gate: int) -> None:
    """Let the thread through that waits, or that comes next."""
    if exchanged(gate, OPEN) == SLEEPER:
        release_lock(loaded(gate + NUMBER_BYTES))


@inlined
def pass_gate(gate: int) -> None:
    """Wait until the gate is open, and close it behind."""
    tries = 0
    while loaded(gate) != OPEN and tries < PATIENCE:
        tries = after_rest(tries)
    if compared(gate, CLOSED, SLEEPER) == CLOSED:
        acquire_lock(loaded(gate + NUMBER_BYTES), types.int32(1))
    stored(gate, CLOSED)


@inlined
def lead(function: int, mailboxes: Any, threads: int, arguments: Any) -> None:
    """Run a function as rank 0 while workers run it as the other ranks; return when all have ended.

    Args:
        function: address of what numba compiled as void(int64 rank, int64 threads, *arguments).
        mailboxes: addresses of the mailboxes of workers, one for each other rank or more.
    """
    entry, block = packed(function, arguments)
    for rank in range(1, threads):
        mailbox = mailboxes[rank - 1]
        stored(mailbox + JOB, entry)
        stored(mailbox + JOB + NUMBER_BYTES, block)
        stored(mailbox + JOB + 2 * NUMBER_BYTES, rank)
        stored(mailbox + JOB + 3 * NUMBER_BYTES, threads)
        open_gate(mailbox)
    run_first(entry, block, threads, mailboxes)


@inlined
def serve(mailbox: int) -> None:
    """Run one job after the other as a worker, until there is none; who catches an error opens the gate behind it."""
    while True:
        pass_gate(mailbox)
        entry = loaded(mailbox + JOB)
        if entry == 0:
            return
        block, rank = loaded(mailbox + JOB + NUMBER_BYTES), loaded(mailbox + JOB + 2 * NUMBER_BYTES)
        run(entry, block, rank, loaded(mailbox + JOB + 3 * NUMBER_BYTES))
        open_gate(mailbox + DONE_GATE)


def _join(mailboxes: Any, threads: int) -> None:
    for rank in range(1, threads):
        pass_gate(mailboxes[rank - 1] + DONE_GATE)


@extending.intrinsic
def packed(_typing: Any, function: Any, arguments: Any) -> Any:
    """The address of an entry, and that of a block on the stack with the function and its arguments after the ranks."""
    kinds = tuple(arguments)

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        unpacked = cgutils.unpack_tuple(builder, values[1])
        numbers = [values[0], *context.get_arg_packer(kinds).as_arguments(builder, unpacked)]
        block = cgutils.alloca_once(builder, ir.LiteralStructType([number.type for number in numbers]))
        for place, number in enumerate(numbers):
            builder.store(number, cgutils.gep_inbounds(builder, block, 0, place))
        entry = _define_entry(context, builder.module, kinds, block.type)
        return context.make_tuple(builder, signature.return_type, [builder.ptrtoint(x, I64) for x in (entry, block)])

    return types.UniTuple(WORD, 2)(function, arguments), lower


def _define_entry(context: Any, module: Any, kinds: tuple[Any, ...], block_type: Any) -> Any:
    """A function, called as numba calls its own, that calls the function in the block with the arguments there."""
    entry = ir.Function(module, context.call_conv.get_function_type(*ENTRY), module.get_unique_name("entry"))
    entry.linkage = "internal"
    builder = ir.IRBuilder(entry.append_basic_block())
    result, error, block, rank, threads = entry.args
    block = builder.inttoptr(block, block_type)
    places = range(len(block_type.pointee.elements))
    address, *numbers = (builder.load(cgutils.gep_inbounds(builder, block, 0, place)) for place in places)
    kind = context.call_conv.get_function_type(types.none, (WORD, WORD, *kinds))
    function = builder.inttoptr(address, kind.as_pointer())
    builder.ret(builder.call(function, [result, error, rank, threads, *numbers]))
    return entry


@extending.intrinsic
def run(_typing: Any, entry: Any, block: Any, rank: Any, threads: Any) -> Any:
    """Call an entry; raise what it raises."""

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return emit_raise(context, builder, emit_call(context, builder, *values))

    return types.void(entry, block, rank, threads), lower


@extending.intrinsic
def run_first(_typing: Any, entry: Any, block: Any, threads: Any, mailboxes: Any) -> Any:
    """Call an entry as rank 0, wait for the workers, and only then raise what it raises: they read the stack."""

    def lower(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        entry, block, count, addresses = values
        status = emit_call(context, builder, entry, block, I64(0), count)
        context.compile_internal(builder, _join, types.void(mailboxes, threads), (addresses, count))
        return emit_raise(context, builder, status)

    return types.void(entry, block, threads, mailboxes), lower


def emit_call(context: Any, builder: Any, entry: Any, *operands: Any) -> Any:
    function = builder.inttoptr(entry, context.call_conv.get_function_type(*ENTRY).as_pointer())
    status, _ = context.call_conv.call_function(builder, function, *ENTRY, operands)
    return status


def emit_raise(context: Any, builder: Any, status: Any) -> Any:
    with cgutils.if_unlikely(builder, status.is_error):
        context.call_conv.return_status_propagate(builder, status)
    return context.get_dummy_value()
