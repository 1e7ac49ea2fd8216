"""erf: x + x P(x^2) below 1; 1 - exp(-Q(|x| - 1)) above, where Q approaches -log(erfc), until erf is 1 to the last bit.

Both are computed for every x and one is chosen.
"""

from __future__ import annotations

from typing import Any

from rnnops.kernels.cpu import coefficients as table
from rnnops.kernels.cpu.bits import either, like, select, with_sign
from rnnops.kernels.cpu.exponential import exp
from rnnops.kernels.cpu.polynomial import polynomial

LARGEST_SINGLE, LARGEST_DOUBLE = 4.0, 6.0  # from here up erf is 1

near_zero = polynomial(table.ERF_SINGLE, table.ERF_DOUBLE)
minus_log_erfc = polynomial(table.ERF_TAIL_SINGLE, table.ERF_TAIL_DOUBLE)


def erf(x: Any) -> Any:
    """The error function `2 / sqrt(pi) * integral of exp(-t^2) from 0 to x`."""
    one, largest = like(x, 1.0), either(x, LARGEST_SINGLE, LARGEST_DOUBLE)
    size = with_sign(x, one)
    size = select(size > largest, largest, size)
    tail = one - exp(-minus_log_erfc(size - one))
    return with_sign(select(size < one, size + size * near_zero(size * size), tail), x)
