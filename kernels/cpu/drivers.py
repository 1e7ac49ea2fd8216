"""Drivers: functions that every thread of a run calls with its rank; one signature for all.

The arrays of a run come as one array of numbers: the addresses of NumPy's array objects, then how many elements each
has. So what starts a driver is compiled once for all of them, and Python has nothing to look up but `id`.

Limits: arrays are C-contiguous and live as long as the call; bools are read as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnops.kernels.cpu.fastmath import types

NUMBERS = types.int64[::1]
DRIVER = types.void(types.int64, types.int64, NUMBERS, NUMBERS, NUMBERS, NUMBERS)  # barrier, status, sizes, arrays
HEADER = object.__basicsize__  # of an object, behind which NumPy's C interface has the address of an array's memory


def as_numbers(arrays: Sequence[Any]) -> Any:
    """Arrays as drivers take them."""
    return np.array([*map(id, arrays), *(array.size for array in arrays)], np.int64)
