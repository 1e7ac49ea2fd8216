"""What functions of words do with memory and with other threads: loads and stores, atomic ones, calls by address.

In plain Python loads and stores go through `ctypes`; what other threads take part in is there in compiled code only.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import partial
from typing import Any

from rnnops.errors import DeviceError
from rnnops.kernels.cpu.processor import ARM, X86
from rnnops.kernels.cpu.team_memory import WORD_BYTES
from rnnops.kernels.cpu.words import Instruction

OF_BYTES: dict[int, Any] = {4: ctypes.c_int32, 8: ctypes.c_int64}


def _load(size: int, address: int) -> int:
    found: int = OF_BYTES[size].from_address(address).value
    return found


def _store(size: int, address: int, number: int) -> None:
    OF_BYTES[size].from_address(address).value = number


def _copy(size: int, target: int, source: int) -> None:
    ctypes.memmove(target, source, size)


def only_compiled(*_: int) -> Any:
    """What plain Python says that wants to wait for other threads."""
    raise DeviceError("threads join in compiled code only", wanted="1 thread")


def _pause() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The instruction for a short rest, and its declaration; none where the processor has none that is known."""
    machine = platform.machine().lower()
    if machine in X86:
        return ("call void @llvm.x86.sse2.pause()",), ("declare void @llvm.x86.sse2.pause()",)
    if machine in ARM:  # about as long as a pause; `yield` takes no time at all
        return ("call void @llvm.aarch64.isb(i32 15)",), ("declare void @llvm.aarch64.isb(i32)",)
    return ("fence seq_cst",), ()


def copied(size: int) -> Instruction:
    """`copy(target, source)` of a number of `size` bytes."""
    kind = f"i{8 * size}"
    lines = f"%c{{n}} = load {kind}, ptr {{p1}}, align {size}", f"store {kind} %c{{n}}, ptr {{p0}}, align {size}"
    return Instruction(lines, "void", partial(_copy, size))


def zeroed(size: int) -> Instruction:
    """`zero(address)`: a number of `size` bytes becomes zero."""
    return Instruction((f"store i{8 * size} 0, ptr {{p0}}, align {size}",), "void", partial(_store, size, number=0))


def room(count: int) -> Instruction:
    """The address of `count` bytes on the stack, of cache lines of their own; they go when the caller returns."""
    return Instruction((f"alloca [{count} x i8], align 64",), "ptr", only_compiled, entry=True)


def address_of(name: str) -> Instruction:
    """The address of something of the same module."""
    return Instruction((f'ptrtoint ptr @"{name}" to i64',), "i64", only_compiled)


def _copy_bytes(target: int, source: int, count: int) -> None:
    ctypes.memmove(target, source, count)


def _clear_bytes(target: int, count: int) -> None:
    ctypes.memset(target, 0, count)


GIVE = "SwitchToThread" if sys.platform == "win32" else "sched_yield"
copy_bytes = Instruction(  # target, source, how many
    ("call void @llvm.memcpy.p0.p0.i64(ptr {p0}, ptr {p1}, i64 {2}, i1 false)",),
    "void",
    _copy_bytes,
    ("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",),
)
clear_bytes = Instruction(  # target, how many
    ("call void @llvm.memset.p0.i64(ptr {p0}, i8 0, i64 {1}, i1 false)",),
    "void",
    _clear_bytes,
    ("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",),
)
loaded = Instruction(("load i64, ptr {p0}",), "i64", partial(_load, WORD_BYTES))  # the number at an address
loaded_int32 = Instruction(("%c{n} = load i32, ptr {p0}", "sext i32 %c{n} to i64"), "i64", partial(_load, 4))
stored = Instruction(("store i64 {1}, ptr {p0}",), "void", partial(_store, WORD_BYTES))  # a number is put there
seen = Instruction(("load atomic i64, ptr {p0} acquire, align 8",), "i64", only_compiled)  # with all written before it
shown = Instruction(("store atomic i64 {1}, ptr {p0} release, align 8",), "void", only_compiled)  # after all else
added = Instruction(("atomicrmw add ptr {p0}, i64 {1} seq_cst",), "i64", only_compiled)  # what was there before
exchanged = Instruction(("atomicrmw xchg ptr {p0}, i64 {1} seq_cst",), "i64", only_compiled)
compared = (
    Instruction(  # what was at an address before a new number was put there, which is done only if it was the old
        ("%c{n} = cmpxchg ptr {p0}, i64 {1}, i64 {2} seq_cst seq_cst", "extractvalue {{ i64, i1 }} %c{n}, 0"),
        "i64",
        only_compiled,
    )
)
paused = Instruction(*_pause()[:1], "void", only_compiled, _pause()[1])  # for some ten nanoseconds
give_processor = Instruction((f"call i32 @{GIVE}()",), "i32", only_compiled, (f"declare i32 @{GIVE}()",))
# The interpreter's portable locks: whoever calls these needs no lock of the interpreter.
acquire_lock = Instruction(
    ("call i32 @PyThread_acquire_lock(ptr {p0}, i32 1)",),
    "i32",
    only_compiled,
    ("declare i32 @PyThread_acquire_lock(ptr, i32)",),
)
release_lock = Instruction(
    ("call void @PyThread_release_lock(ptr {p0})",),
    "void",
    only_compiled,
    ("declare void @PyThread_release_lock(ptr)",),
)
call_driver = Instruction(  # function, rank, threads, words
    ("call void {p0}(i64 {1}, i64 {2}, ptr {p3})",), "void", only_compiled
)
call_count = Instruction(("call i32 {p0}()",), "i32", only_compiled)  # of `omp_get_thread_num` and its like
call_parallel = Instruction(  # GOMP_parallel, region, job, threads
    ("%c{n} = trunc i64 {3} to i32", "call void {p0}(ptr {p1}, ptr {p2}, i32 %c{n}, i32 0)"), "void", only_compiled
)
