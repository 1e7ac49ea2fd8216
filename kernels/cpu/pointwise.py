"""The scalar functions that texts of `Pointwise` loop forms name, for code that numba compiles.

Each is a plain Python function over NumPy scalars and arrays, float32 and float64 alike; compiled code gets straight
arithmetic without a branch, a call or (float64 sin and cos apart) a table, which LLVM turns into vector instructions
when a loop runs over it. Operands of one call are of one dtype: a float64 literal beside a float32 is an error.

Errors are within `ERROR_BOUNDS` for every finite operand whose result is a normal number. Infinities, NaN, zeros and
numbers below the smallest normal one are right; results below the smallest normal number are too, or are 0. The signs
of zeros are kept by odd functions. The bounds hold with and without fused multiply-adds, compiled or not; run in plain
Python, functions may warn of overflow and invalid values (`np.errstate`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnnops.kernels.cpu.error_function import erf
from rnnops.kernels.cpu.exponential import exp, expm1, sigmoid, tanh
from rnnops.kernels.cpu.logarithm import log, log1p
from rnnops.kernels.cpu.power import pow  # noqa: A004
from rnnops.kernels.cpu.selection import divide_towards_zero, floor, maximum, minimum, sign, sqrt
from rnnops.kernels.cpu.trigonometry import cos, sin

# In units in the last place of the exact result, float32 and float64.
ERROR_BOUNDS: dict[str, tuple[float, float]] = {
    "cos": (2.0, 3.5),
    "erf": (1.5, 2.0),
    "exp": (1.5, 1.5),
    "expm1": (2.5, 3.0),
    "log": (1.5, 1.5),
    "log1p": (2.0, 2.0),
    "pow": (2.5, 2.0),
    "sigmoid": (3.0, 3.0),
    "sin": (2.0, 3.5),
    "sqrt": (0.5, 0.5),
    "tanh": (3.0, 3.5),
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(abs, cos, divide_towards_zero, erf, exp, expm1, floor, log, log1p),
        *(maximum, minimum, pow, sigmoid, sign, sin, sqrt, tanh),
    )
}
