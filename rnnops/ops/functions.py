"""Elementary functions that few nets use: logarithm and exponential near 0 and 1, tangents, hyperbolic functions."""

from __future__ import annotations

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Pointwise
from rnnops.ops.base import Unary, quiet
from rnnops.schema import Call, Gradients, register
from rnnops.types import Array


class Log1p(Unary):
    """`log(1 + x)`, also where 1 + x would lose the digits of x."""

    keeps = ("X",)
    loop = Pointwise("log1p({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.log1p(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy / (1.0 + x)


class Expm1(Unary):
    """`e ** x - 1`, also where that difference would lose digits."""

    keeps = ("Y",)
    loop = Pointwise("expm1({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.expm1(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * (y + 1.0)


class Ceil(Unary):
    """The smallest integer not below x; gradients stop here."""

    differentiable = False
    loop = Pointwise("-floor(-{0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.ceil(x))


class Tan(Unary):
    """Tangent of x in radians."""

    keeps = ("Y",)
    loop = Pointwise("sin({0}) / cos({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.tan(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * (1.0 + y * y)


class Sinh(Unary):
    """Hyperbolic sine: half of `expm1(x) - expm1(-x)`, which keeps the digits of a small x."""

    keeps = ("X",)
    loop = Pointwise("0.5 * (expm1({0}) - expm1(-{0}))")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.sinh(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * cosh(x)


class Cosh(Unary):
    """Hyperbolic cosine."""

    keeps = ("X",)
    loop = Pointwise("0.5 * (exp({0}) + exp(-{0}))")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.cosh(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * sinh(x)


log1p, expm1, ceil = register(Log1p()), register(Expm1()), register(Ceil())
tan, sinh, cosh = register(Tan()), register(Sinh()), register(Cosh())
