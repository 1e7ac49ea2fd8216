"""Memory that blocks tell each other of: an addition that releases, and a read that acquires, at the scope of a device.

What a thread wrote before it releases, and what it knew of, is visible to who acquires the place after it. With a
barrier of the block before the one and after the other, that is so for all lanes of both blocks: PTX's causality order
goes through barriers. Each instruction has a twin for the simulator, whose memory has one order anyway; tests put
another one in its place (`simulated`), which notes what was released and acquired.
"""

from __future__ import annotations

import threading
from typing import Any

from llvmlite import ir

from rnnops.kernels.cuda.facade import SIMULATED, intrinsic, types

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
