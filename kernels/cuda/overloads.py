"""Which operands a function of a device takes: floats of one dtype, or integers, where the widest counts.

Refused operands are errors when a kernel is compiled: numba would make float64 of a float32 with a float64, and of an
int64 with a uint64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnnops.kernels.cuda.facade import Function, compiled_as, types


def are_floats(*operands: Any) -> bool:
    """True if types are those of floats of one dtype."""
    return isinstance(operands[0], types.Float) and set(operands) == {operands[0]}


def widest(*operands: Any) -> Any:
    """The widest of integer types, None where not all are integers or some have signs and others none."""
    if not all(isinstance(operand, types.Integer) for operand in operands):
        return None
    if len({operand.signed for operand in operands}) > 1:
        return None
    found = max(operands, key=lambda operand: operand.bitwidth)
    return types.unliteral(found)


def of_floats(function: Function) -> Function:
    """A function of floats."""
    return compiled_as(lambda *operands: function if are_floats(*operands) else None)(function)


def of_integers(function: Function) -> Function:
    """A function of integers of any type."""

    def choose(*operands: Any) -> Any:
        return function if all(isinstance(operand, types.Integer) for operand in operands) else None

    return compiled_as(choose)(function)


def of_numbers(function: Function) -> Function:
    """A function of floats, integers or bools that is one text for all."""

    def choose(*operands: Any) -> Any:
        fit = are_floats(*operands) or widest(*operands) or set(operands) == {types.boolean}
        return function if fit else None

    return compiled_as(choose)(function)


def with_integers(integers: Callable[[Any], Callable[..., Any]]) -> Callable[[Function], Function]:
    """A function of floats that is another one for integers.

    Args:
        integers: from the widest integer type of the operands, which is also that of the result, to the function.
    """

    def register(function: Function) -> Function:
        def choose(*operands: Any) -> Any:
            if are_floats(*operands):
                return function
            widest_type = widest(*operands)
            return integers(widest_type) if widest_type else None

        return compiled_as(choose)(function)

    return register
