"""Scalar functions: those that texts of loop forms may call, the modules that implement them, and random numbers.

**The table.** A new function is one line here, and a function of its name in the module of `kernels/cpu` and in that of
`kernels/cuda` that the line names. The words that texts may use, the heads of generated modules, and the calls of the
CUDA simulator follow from the table.

**Random numbers** are Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC
2011). Every word depends only on a key and a counter, so random arrays are equal on every device and in every order.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from rnnops.types import Array


@dataclass(frozen=True)
class ScalarFunction:
    """A function of numbers of one dtype, whose result has that dtype.

    Args:
        operands: the count of operands.
        cpu, cuda: modules of `kernels/cpu` and `kernels/cuda` that have it; empty for a function of Python itself.
        integers: whether it takes integers as well as floats.
        ulps: bounds of its error on processors for float32 and float64, in units in the last place. None if it is
            exact, or rounds an exact result only once.
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
    ScalarFunction("bfloat16_code", 1, "pointwise", "tensor_cores"),
    ScalarFunction("bfloat16_value", 1, "pointwise", "tensor_cores"),
    ScalarFunction("cos", 1, "elementary", "device_scalars", ulps=(2.0, 3.5)),
    ScalarFunction("divide_towards_zero", 2, "pointwise", "device_scalars", integers=True),
    ScalarFunction("erf", 1, "elementary", "device_scalars", ulps=(1.5, 2.0)),
    ScalarFunction("exp", 1, "elementary", "device_scalars", ulps=(1.5, 1.5)),
    ScalarFunction("expm1", 1, "elementary", "device_scalars", ulps=(2.5, 3.0)),
    ScalarFunction("floor", 1, "pointwise", "device_scalars"),
    ScalarFunction("fmod", 2, "pointwise", "device_scalars"),
    ScalarFunction("log", 1, "elementary", "device_scalars", ulps=(1.5, 1.5)),
    ScalarFunction("log1p", 1, "elementary", "device_scalars", ulps=(2.0, 2.0)),
    ScalarFunction("maximum", 2, "pointwise", "device_scalars", integers=True),
    ScalarFunction("minimum", 2, "pointwise", "device_scalars", integers=True),
    ScalarFunction("pow", 2, "elementary", "device_scalars", integers=True, ulps=(2.5, 2.0)),
    ScalarFunction("rint", 1, "pointwise", "device_scalars"),
    ScalarFunction("sigmoid", 1, "elementary", "device_scalars", ulps=(3.0, 3.0)),
    ScalarFunction("sign", 1, "pointwise", "device_scalars", integers=True),
    ScalarFunction("sin", 1, "elementary", "device_scalars", ulps=(2.0, 3.5)),
    ScalarFunction("sqrt", 1, "pointwise", "device_scalars", ulps=(0.5, 0.5)),
    ScalarFunction("tanh", 1, "elementary", "device_scalars", ulps=(3.0, 3.5)),
)
SCALAR_FUNCTIONS = {function.name: function for function in TABLE}


def homes(device: str) -> dict[str, list[str]]:
    """Module of the kernels for a device, `cpu` or `cuda` -> its scalar functions."""
    found: dict[str, list[str]] = {}
    for function in TABLE:
        home = getattr(function, device)
        if home:
            found.setdefault(f"rnnops.kernels.{device}.{home}", []).append(function.name)
    return dict(sorted(found.items()))


def import_lines(device: str) -> list[str]:
    """The import lines of a module that uses all scalar functions of a device."""
    return [f"from {home} import {', '.join(names)}" for home, names in homes(device).items()]


@cache
def implementations(device: str) -> dict[str, Callable[..., Any]]:
    """The scalar functions of a device by name. Their modules are imported."""
    found = {name: getattr(import_module(home), name) for home, names in homes(device).items() for name in names}
    return {name: found[name] if name in found else getattr(builtins, name) for name in SCALAR_FUNCTIONS}


ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF


def philox4x32(counter: Array, key: tuple[int, int]) -> Array:
    """Four random words for each counter.

    Args:
        counter: [4, ...], words below 2**32.
        key: two words.

    Returns: uint32 [4, ...].
    """
    c0, c1, c2, c3 = np.asarray(counter, np.uint64)
    k0, k1 = key
    low, half = np.uint64(WORD), np.uint64(32)
    for _ in range(ROUNDS):
        product0, product1 = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c2 = (product1 >> half) ^ c1 ^ np.uint64(k0), (product0 >> half) ^ c3 ^ np.uint64(k1)
        c1, c3 = product1 & low, product0 & low
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def uniform_rows(seed: int, ordinal: int, t: int, rows: int, row_size: int) -> Array:
    """Uniform numbers in [0, 1) for one step: float64 [rows, row_size].

    Element e of row n is word `e % 4` of counter (t, n, e // 4, upper half of the seed), times 2**-32; the key is the
    lower half of the seed and the ordinal of the random op.
    """
    blocks = -(-row_size // 4)
    counter = np.zeros((4, rows, blocks), np.uint64)
    counter[0] = t
    counter[1] = np.arange(rows, dtype=np.uint64)[:, None]
    counter[2] = np.arange(blocks, dtype=np.uint64)
    counter[3] = (seed >> 32) & WORD
    words = philox4x32(counter, (seed & WORD, ordinal & WORD))
    flat = np.moveaxis(words, 0, -1).reshape(rows, 4 * blocks)
    return flat[:, :row_size] * 2.0**-32
