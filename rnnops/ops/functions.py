"""Functions that few nets use: logarithm and exponential near 0 and 1, tangents, hyperbolic functions, Round, Mod."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob, Operand
from rnnops.loops import LoopForm, Pointwise
from rnnops.net import common_net
from rnnops.ops.base import Binary, Unary, flag, quiet
from rnnops.schema import Call, Gradients, register
from rnnops.types import FLOATS, Array


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


class Round(Unary):
    """The nearest integer, the even one of two; gradients stop here."""

    differentiable = False
    loop = Pointwise("rint({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.rint(x))


class Atan(Unary):
    """Arc tangent, in radians."""

    keeps = ("X",)
    loop = Pointwise("atan({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.arctan(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy / (1.0 + x * x)


class Mod(Binary):
    """What is left of `a` after division by `b`, with the sign of `b`, or of `a` with `fmod`; integers by 0 give 0."""

    attributes: ClassVar[dict[str, Any]] = {"fmod": 0}
    keeps = ("A", "B", "C")

    def __call__(self, a: Operand, b: Operand, fmod: int = 0) -> Blob:
        attributes = {"fmod": 1} if flag(fmod, self.name) else {}
        return common_net([a, b]).apply(self.name, [a, b], **attributes)

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        rest = np.asarray(np.fmod(a, b))
        if call.attr("fmod"):
            return rest
        return np.asarray(np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)).astype(a.dtype)

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, dc: Blob) -> Gradients:
        return dc, -dc * round((a - c) / b)  # the whole quotient, which is a constant

    def loop_form(self, call: Call) -> LoopForm:
        rest = "fmod({0}, {1})"
        if call.dtype(0) not in FLOATS:
            rest = "({0} - divide_towards_zero({0}, {1}) * {1} if {1} != 0 else {1})"
        if call.attr("fmod"):
            return Pointwise(rest)
        return Pointwise(f"{rest} if {rest} == 0 or ({rest} < 0) == ({{1}} < 0) else {rest} + {{1}}")


class Tan(Unary):
    """Tangent of x in radians."""

    keeps = ("Y",)
    loop = Pointwise("sin({0}) / cos({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.tan(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * (1.0 + y * y)


LARGE = 40.0  # from here on exp(-x) is nothing beside exp(x)


class Sinh(Unary):
    """Hyperbolic sine: half of `expm1(x) - expm1(-x)`, which keeps the digits of a small x.

    Of a large one half of `exp(|x|)`, as the square of a root that is finite wherever the result is.
    """

    keeps = ("X",)
    loop = Pointwise(
        f"0.5 * (expm1({{0}}) - expm1(-{{0}})) if abs({{0}}) < {LARGE} else "
        "0.5 * sign({0}) * exp(0.5 * abs({0})) * exp(0.5 * abs({0}))"
    )

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.sinh(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * cosh(x)


class Cosh(Unary):
    """Hyperbolic cosine, as the hyperbolic sine."""

    keeps = ("X",)
    loop = Pointwise(
        f"0.5 * (exp({{0}}) + exp(-{{0}})) if abs({{0}}) < {LARGE} else "
        "0.5 * exp(0.5 * abs({0})) * exp(0.5 * abs({0}))"
    )

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.cosh(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * sinh(x)


log1p, expm1, ceil = register(Log1p()), register(Expm1()), register(Ceil())
round, atan, mod = register(Round()), register(Atan()), register(Mod())  # noqa: A001
tan, sinh, cosh = register(Tan()), register(Sinh()), register(Cosh())
