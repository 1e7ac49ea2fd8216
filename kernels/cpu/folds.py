"""Steps of reductions in plain Python: sums in any order, multiply-adds, extrema that keep NaN.

Compiled code has its own for them. A sum written as a loop is a chain of additions; `add_any_order` marks one addition,
that to the accumulator, as free to be done in another order, which each target chooses, while the arithmetic of the
summands keeps its own. On processors it is one fixed grouping (`rnnops/compiler/targets/cpu/row_sums.py`): the bits of
a sum follow from its summands alone, whatever else a loop does and however wide vectors are. Extrema are one
instruction each, known for what they are, and exact in any order.

Limits: accumulator and operand are of one dtype. Which NaN an extremum gives, and the sign of a zero, are left open.
"""

from __future__ import annotations

from typing import Any

from rnnops.kernels.cpu.bits import maximum, minimum


def add_any_order(accumulator: Any, x: Any) -> Any:
    """`accumulator + x`; a loop of such steps may add in any order."""
    return accumulator + x


def add_product_any_order(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add; a loop of such steps may add in any order."""
    return accumulator + x * y


def add_product(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add; a loop of such steps adds in its order."""
    return accumulator + x * y


def larger(accumulator: Any, x: Any) -> Any:
    """The larger of the two, NaN if one is; loops of such steps become vector loops."""
    return maximum(accumulator, x)


def smaller(accumulator: Any, x: Any) -> Any:
    """The smaller of the two, NaN if one is."""
    return minimum(accumulator, x)
