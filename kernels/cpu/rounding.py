"""bfloat16: its codes, and rounding to it.

bfloat16: the upper half of a float32, as a whole number from 0 to 65535 that travels as a float.

Rounding is to the nearest, of two that are as near to the even one; infinities stay, numbers too large become them, and
every NaN becomes one and the same. Both functions take float64 too, which is a float32 first.

A number rounded to bfloat16, for products that pointwise kernels do: to the nearest, ties to even.

NaN stays NaN and infinities stay. Numbers below the smallest normal one are rounded like all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu.bits import anchored, from_upper_half, upper_half
from rnnops.kernels.cpu.traced import Symbol, as_dtype, dtype_of, select


def bfloat16_code(x: Any) -> Any:
    """The bits of x as bfloat16."""
    return as_dtype(dtype_of(x).type, upper_half(as_dtype(np.float32, x)))


def bfloat16_value(code: Any) -> Any:
    """The number with these bits; `code` is whole, from 0 to 65535."""
    return as_dtype(dtype_of(code).type, from_upper_half(anchored(as_dtype(np.float32, code))))


HALF, QUIET, UPPER = 0x7FFF, 0x400000, 0xFFFF0000


def round_bfloat16(x: Any) -> Any:
    """A float32 number, or array of such, as the nearest one whose lower half is zero."""
    bits = (x if isinstance(x, Symbol) else np.asarray(x)).view("uint32")
    half, one, upper = (np.uint32(number) for number in (HALF, 1, UPPER))
    nearest = bits + half + ((bits >> np.uint32(16)) & one)
    chosen = select(x != x, bits | np.uint32(QUIET), nearest) & upper
    return chosen.view("float32") if isinstance(x, Symbol) else np.asarray(chosen).view("float32")[()]
