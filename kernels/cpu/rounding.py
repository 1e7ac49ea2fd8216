"""A number rounded to bfloat16, for products that pointwise kernels do: to the nearest, ties to even.

NaN stays NaN and infinities stay. Numbers below the smallest normal one are rounded like all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cpu.traced import Symbol, select

HALF, QUIET, UPPER = 0x7FFF, 0x400000, 0xFFFF0000


def round_bfloat16(x: Any) -> Any:
    """A float32 number, or array of such, as the nearest one whose lower half is zero."""
    bits = (x if isinstance(x, Symbol) else np.asarray(x)).view("uint32")
    half, one, upper = (np.uint32(number) for number in (HALF, 1, UPPER))
    nearest = bits + half + ((bits >> np.uint32(16)) & one)
    chosen = select(x != x, bits | np.uint32(QUIET), nearest) & upper
    return chosen.view("float32") if isinstance(x, Symbol) else np.asarray(chosen).view("float32")[()]
