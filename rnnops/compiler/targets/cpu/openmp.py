"""One pool of threads with a library beside us: kernels run on the OpenMP threads that it has loaded.

Its threads stay awake after its own work for milliseconds, on the cores that workers of ours would need: a step between
two matrix products of PyTorch takes half as long again where both have a pool.

Limits: runtimes with GNU's entry points, which on Linux are all (GNU's, LLVM's, Intel's). In a forked child, and where
the runtime gives fewer threads than asked for, a team of our own runs the function.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rnnops.compiler.targets.cpu.team import check_threads, run_together
from rnnops.kernels.cpu.drivers import as_words
from rnnops.kernels.cpu.native import NativeFunction
from rnnops.kernels.cpu.runtime import threads as thread_library

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


def run_in_region(openmp: OpenMP, driver: NativeFunction, threads: int, arrays: Sequence[Any]) -> None:
    """Have threads of a runtime's pool run a driver, as `run_together` does with ours."""
    threads = check_threads(threads)
    if threads > 1 and os.getpid() == PROCESS:
        words = as_words(arrays)
        if _lead()(driver.address, *openmp.addresses, threads, words.ctypes.data, len(arrays)):
            return
    run_together(driver, threads, arrays)


@cache
def _lead() -> Any:
    return thread_library().callable("lead_region", 7, ctypes.c_int64)
