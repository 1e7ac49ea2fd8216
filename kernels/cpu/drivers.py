"""Drivers: functions that every thread of a run calls with its rank, and arrays of known dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnnops.kernels.cpu.fastmath import OPTIONS, Function, types
from rnnops.kernels.cpu.machine_code import compile_once


def driver(*dtypes: str) -> Callable[[Function], Function]:
    """Compile `function(rank, threads, barrier, status, sizes, *arrays)` for arrays of one axis of these dtypes."""
    number, numbers = types.int64, types.int64[::1]
    arrays = [getattr(types, dtype)[::1] for dtype in dtypes]
    signature: Any = types.void(number, number, numbers, numbers, numbers, *arrays)

    def compile_driver(function: Function) -> Function:
        return compile_once(function, signature, **OPTIONS)

    return compile_driver
