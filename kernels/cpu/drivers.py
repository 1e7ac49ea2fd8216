"""Drivers: functions that every thread of a run calls with its rank, and arrays of known dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnnops.kernels.cpu import barrier as teams
from rnnops.kernels.cpu.called_by_name import called_by_name
from rnnops.kernels.cpu.fastmath import OPTIONS, Function, types
from rnnops.kernels.cpu.machine_code import compile_once


def driver(*dtypes: str) -> Callable[[Function], Function]:
    """Compile `function(rank, threads, barrier, status, sizes, *arrays)` for arrays of one axis of these dtypes."""
    number, numbers = types.int64, types.int64[::1]
    arrays = [getattr(types, dtype)[::1] for dtype in dtypes]
    signature: Any = types.void(number, number, numbers, numbers, numbers, *arrays)

    def compile_driver(function: Function) -> Function:
        return compile_once(function, signature, no_cpython_wrapper=True, **OPTIONS)

    return compile_driver


def wait(barrier: Any, threads: int) -> None:
    """`barrier.wait`, by name."""
    teams.wait(barrier, threads)


wait = called_by_name(wait, types.void(types.int64[::1], types.int64), **OPTIONS)
