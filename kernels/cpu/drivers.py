"""Drivers: functions that every thread of a run calls with its rank, `void driver(i64 rank, i64 threads, ptr words)`.

The words are the addresses of the memory of a run's arrays, then how many elements each has: first the barrier, the
status and the sizes, then all others. Python writes the addresses of NumPy's objects, as it has nothing to look up for
these but `id`; what starts a driver replaces them.

Limits: arrays are C-contiguous and live as long as the call; bools are read as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_size_t
from typing import Any

import numpy as np

HEADER = object.__basicsize__  # of an object, behind which NumPy's C interface has the address of an array's memory
GIVEN = ("barrier", "status", "sizes")  # the first arrays of every driver, int64 all


def as_words(arrays: Sequence[Any]) -> Any:
    """Arrays as what starts drivers takes them."""
    return np.array([*map(id, arrays), *(array.size for array in arrays)], np.int64)


def memory_address(array: Any) -> int:
    """The address of the memory of a NumPy array, in a fifth of the time of `array.ctypes.data`."""
    return c_size_t.from_address(id(array) + HEADER).value
