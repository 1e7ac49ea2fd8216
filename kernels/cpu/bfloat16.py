"""bfloat16: the upper half of a float32, as a whole number from 0 to 65535 that travels as a float.

Rounding is to the nearest, of two that are as near to the even one; infinities stay, numbers too large become them, and
every NaN becomes one and the same. Both functions take float64 too, which is a float32 first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu.bits import anchored, from_upper_half, upper_half
from rnnops.kernels.cpu.traced import as_dtype, dtype_of


def bfloat16_code(x: Any) -> Any:
    """The bits of x as bfloat16."""
    return as_dtype(dtype_of(x).type, upper_half(as_dtype(np.float32, x)))


def bfloat16_value(code: Any) -> Any:
    """The number with these bits; `code` is whole, from 0 to 65535."""
    return as_dtype(dtype_of(code).type, from_upper_half(anchored(as_dtype(np.float32, code))))
