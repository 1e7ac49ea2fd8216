"""One pool of threads with a library beside us: kernels run on the OpenMP threads that it has loaded.

Its threads stay awake after its own work for milliseconds, on the cores that workers of ours would need: a step between
two matrix products of PyTorch takes half as long again where both have a pool.

Limits: runtimes with GNU's entry points, which on Linux are all (GNU's, LLVM's, Intel's). In a forked child, and where
the runtime gives fewer threads than asked for, a team of our own runs the function.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from rnnops.compiler.team import check_threads, machine_code_of, run_together
from rnnops.kernels.cpu.barrier import WORD
from rnnops.kernels.cpu.fastmath import types
from rnnops.kernels.cpu.machine_code import compile_once
from rnnops.kernels.cpu.openmp import lead_region
from rnnops.kernels.cpu.revision import REVISION

ENTRY_POINTS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
PROCESS = os.getpid()  # which has the threads of the pool; forked children do not, and would wait for them


@dataclass(frozen=True)
class OpenMP:
    """A runtime that this process has loaded, by the addresses of its entry points."""

    addresses: tuple[int, ...]


def openmp_of(library: str) -> OpenMP | None:
    """The runtime that a loaded library works with; None where it has none of a kind that is known.

    Args:
        library: the library's file.
    """
    try:
        loaded = ctypes.CDLL(library)
        found = [ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value for name in ENTRY_POINTS]
    except (OSError, AttributeError):
        return None
    return OpenMP(tuple(address for address in found if address))


def run_in_region(openmp: OpenMP, function: Any, threads: int, *arguments: Any) -> None:
    """Call `function(rank, threads, *arguments)` on threads of a runtime's pool, as `run_together` does on ours."""
    threads = check_threads(threads)
    if threads > 1 and os.getpid() == PROCESS:
        launch, address = _launches.get(function) or _prepare(function, arguments)
        if launch(address, openmp.addresses, threads, *arguments):
            return
    run_together(function, threads, *arguments)


_launches: WeakKeyDictionary[Any, tuple[Any, int]] = WeakKeyDictionary()


def _prepare(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, int]:
    """What starts a function, and the address of its machine code."""
    kinds, address = machine_code_of(function, arguments)
    _launches[function] = _launch(kinds), address
    return _launches[function]


@cache
def _launch(kinds: tuple[Any, ...]) -> Any:
    """Compiled code that runs a function with arguments of these types as a parallel region."""
    revision = REVISION

    def launch(function: int, runtime: Any, threads: int, *arguments: Any) -> Any:
        _ = revision
        return lead_region(function, runtime, threads, arguments)

    runtime = types.UniTuple(WORD, len(ENTRY_POINTS))
    return compile_once(launch, types.boolean(WORD, runtime, WORD, types.Tuple(kinds)))
