"""The table of scalar functions: all that texts of loop forms may call, and which kernels implement each.

A new function is one line here, and a function of its name in the module of `kernels/cpu` and in that of `kernels/cuda`
that the line names. Words that texts may use, the heads of generated modules, and what the CUDA simulator calls follow.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class ScalarFunction:
    """A function of numbers of one dtype, whose result has that dtype.

    Args:
        operands: how many it takes.
        cpu, cuda: modules of `kernels/cpu` and `kernels/cuda` that have it; empty for a function of Python itself.
        integers: whether it takes integers as well as floats.
        ulps: bounds of its error on processors for float32 and float64, in units in the last place; None where it is
            exact, or rounds an exact result but once.
    """

    name: str
    operands: int
    cpu: str = ""
    cuda: str = ""
    integers: bool = False
    ulps: tuple[float, float] | None = None


TABLE = (
    ScalarFunction("abs", 1, integers=True),
    ScalarFunction("atan", 1, "elementary", "device_scalars", ulps=(2.0, 2.0)),
    ScalarFunction("bfloat16_code", 1, "bits", "tensor_cores"),
    ScalarFunction("bfloat16_value", 1, "bits", "tensor_cores"),
    ScalarFunction("cos", 1, "elementary", "trigonometry", ulps=(2.0, 3.5)),
    ScalarFunction("divide_towards_zero", 2, "bits", "device_scalars", integers=True),
    ScalarFunction("erf", 1, "elementary", "device_scalars", ulps=(1.5, 2.0)),
    ScalarFunction("exp", 1, "elementary", "device_scalars", ulps=(1.5, 1.5)),
    ScalarFunction("expm1", 1, "elementary", "device_scalars", ulps=(2.5, 3.0)),
    ScalarFunction("floor", 1, "bits", "device_scalars"),
    ScalarFunction("fmod", 2, "bits", "device_scalars"),
    ScalarFunction("log", 1, "elementary", "device_scalars", ulps=(1.5, 1.5)),
    ScalarFunction("log1p", 1, "elementary", "device_scalars", ulps=(2.0, 2.0)),
    ScalarFunction("maximum", 2, "bits", "device_scalars", integers=True),
    ScalarFunction("minimum", 2, "bits", "device_scalars", integers=True),
    ScalarFunction("pow", 2, "elementary", "device_scalars", integers=True, ulps=(2.5, 2.0)),
    ScalarFunction("rint", 1, "bits", "device_scalars"),
    ScalarFunction("sigmoid", 1, "elementary", "device_scalars", ulps=(3.0, 3.0)),
    ScalarFunction("sign", 1, "bits", "device_scalars", integers=True),
    ScalarFunction("sin", 1, "elementary", "trigonometry", ulps=(2.0, 3.5)),
    ScalarFunction("sqrt", 1, "bits", "device_scalars", ulps=(0.5, 0.5)),
    ScalarFunction("tanh", 1, "elementary", "device_scalars", ulps=(3.0, 3.5)),
)
SCALAR_FUNCTIONS = {function.name: function for function in TABLE}


def homes(device: str) -> dict[str, list[str]]:
    """Modules of the kernels for a device, `cpu` or `cuda`, and the scalar functions that each has."""
    found: dict[str, list[str]] = {}
    for function in TABLE:
        home = getattr(function, device)
        if home:
            found.setdefault(f"rnnops.kernels.{device}.{home}", []).append(function.name)
    return dict(sorted(found.items()))


def import_lines(device: str) -> list[str]:
    """The import lines of a module that uses all scalar functions of a device."""
    return [f"from {home} import {', '.join(names)}" for home, names in homes(device).items()]


def implementations(device: str) -> dict[str, Callable[..., Any]]:
    """The scalar functions of a device by name; imports the kernels that have them."""
    found = {name: getattr(import_module(home), name) for home, names in homes(device).items() for name in names}
    return {name: found[name] if name in found else getattr(builtins, name) for name in SCALAR_FUNCTIONS}
