"""One array for all threads of a block where numba's CUDA simulator sometimes makes several.

Its `cuda.shared.array` looks an array up by the line that asks, and makes it where there is none; between the two
another thread may have asked, which then computes with an array of its own: wrong sums, once in some thousand
launches (numba 0.68, `FakeCUDAShared.array`). Here both are one step. Arrays of size 0, the dynamic ones, are the
simulator's business.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numba import types
from numba.cuda.simulator.kernelapi import FakeCUDAShared
from numba.np.numpy_support import as_dtype

_dynamic = FakeCUDAShared.array


def shared_array(memory: FakeCUDAShared, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
    """The array of the line that asks: `dict.setdefault` is one step for all threads; nothing is aligned here."""
    if shape == 0:
        return _dynamic(memory, shape, dtype)
    asking = sys._getframe(1)
    made = np.empty(shape, as_dtype(dtype) if isinstance(dtype, types.Type) else dtype)
    return memory._allocations.setdefault((asking.f_code, asking.f_lineno), made)


def share_arrays() -> None:
    """Let kernels in the simulator have their shared arrays from here."""
    FakeCUDAShared.array = shared_array
