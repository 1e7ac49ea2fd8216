"""Elementwise arithmetic: the four rules, powers, exponentials, roots, trigonometry, rounding, sums of many."""

from __future__ import annotations

import math

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import LoopForm, Pointwise
from rnnops.ops.base import Binary, Unary, Variadic, fold, quiet, summed
from rnnops.schema import Call, Gradients, register
from rnnops.types import FLOATS, NUMERIC, Array


class Add(Binary):
    """`a + b`."""

    loop = Pointwise("{0} + {1}")

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.add(a, b))

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, dc: Blob) -> Gradients:
        return dc, dc


class Sub(Binary):
    """`a - b`."""

    loop = Pointwise("{0} - {1}")

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.subtract(a, b))

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, dc: Blob) -> Gradients:
        return dc, -dc


class Mul(Binary):
    """`a * b`."""

    keeps = ("A", "B")
    loop = Pointwise("{0} * {1}")

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.multiply(a, b))

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, dc: Blob) -> Gradients:
        return dc * b, dc * a


class Div(Binary):
    """`a / b`; integers are divided towards zero, as ONNX does."""

    keeps = ("B", "C")
    loop = Pointwise("{0} / {1}")

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        if a.dtype.kind == "f":
            return np.asarray(np.divide(a, b))
        quotient = np.floor_divide(a, b)
        return np.asarray(quotient + ((quotient < 0) & (quotient * b != a))).astype(a.dtype)

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, dc: Blob) -> Gradients:
        da = dc / b
        return da, -(da * c)

    def loop_form(self, call: Call) -> LoopForm:
        return self.loop if call.dtype(0) in FLOATS else Pointwise("divide_towards_zero({0}, {1})")


class Pow(Binary):
    """`a ** b`."""

    keeps = ("A", "B", "C")
    loop = Pointwise("pow({0}, {1})")

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        if a.dtype.kind != "f" and (b < 0).any():
            call.fail("an integer has no power below 0", blob=call.op.inputs[1])
        shape = np.broadcast_shapes(a.shape, b.shape)
        # one power for all elements or for a scalar: NumPy may take a root, whose values at -inf and -0 are others
        powers = np.array(np.broadcast_to(b, shape or (1,)))
        return np.asarray(np.power(a, powers)).reshape(shape)

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, dc: Blob) -> Gradients:
        # d/da = b a^(b-1), and 0 where b = 0; d/db = c log(a), taken as 0 where a = 0 (its limit for b > 0)
        net, zero_base, zero_power = dc.net, dc.net.apply("Equal", [a, 0.0]), dc.net.apply("Equal", [b, 0.0])
        base = net.apply("Where", [zero_base, dc.net.operands([1.0], a.dtype)[0], a])
        slope = net.apply("Where", [zero_power, net.operands([0.0], a.dtype)[0], b * a ** (b - 1.0)])
        return dc * slope, dc * c * log(base)


class Neg(Unary):
    """`-x`."""

    accepts = NUMERIC
    loop = Pointwise("-{0}")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.negative(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return -dy


class Abs(Unary):
    """`|x|`; the gradient at 0 is 0."""

    accepts = NUMERIC
    keeps = ("X",)
    loop = Pointwise("abs({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.abs(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * sign(x)


class Sign(Unary):
    """-1, 0 or 1; gradients stop here."""

    accepts = NUMERIC
    differentiable = False
    loop = Pointwise("sign({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.sign(x))


class Floor(Unary):
    """The largest integer not above x; gradients stop here."""

    differentiable = False
    loop = Pointwise("floor({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.floor(x))


class Exp(Unary):
    """`e ** x`."""

    keeps = ("Y",)
    loop = Pointwise("exp({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.exp(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * y


class Log(Unary):
    """Natural logarithm."""

    keeps = ("X",)
    loop = Pointwise("log({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.log(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy / x


class Sqrt(Unary):
    """Square root."""

    keeps = ("Y",)
    loop = Pointwise("sqrt({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.sqrt(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return 0.5 * dy / y


class Reciprocal(Unary):
    """`1 / x`."""

    keeps = ("Y",)
    loop = Pointwise("1.0 / {0}")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.divide(x.dtype.type(1), x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return -(dy * y * y)


class Sin(Unary):
    """Sine of x in radians."""

    keeps = ("X",)
    loop = Pointwise("sin({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.sin(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * cos(x)


class Cos(Unary):
    """Cosine of x in radians."""

    keeps = ("X",)
    loop = Pointwise("cos({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.cos(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return -(dy * sin(x))


class Erf(Unary):
    """The error function `2 / sqrt(pi) * integral of exp(-t^2) from 0 to x`."""

    keeps = ("X",)
    loop = Pointwise("erf({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return erf_array(x)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * exp(-(x * x)) * (2.0 / math.sqrt(math.pi))


class Sum(Variadic):
    """The sum of all operands, left to right."""

    accepts = FLOATS

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        return fold(np.add, arrays)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        return (blobs[-1],) * len(call.op.inputs)

    def text(self, count: int) -> str:
        return summed(count)


class Mean(Variadic):
    """The mean of all operands."""

    accepts = FLOATS

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        return np.asarray(fold(np.add, arrays) / arrays[0].dtype.type(len(arrays)))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        share = blobs[-1] * (1.0 / len(call.op.inputs))
        return (share,) * len(call.op.inputs)

    def text(self, count: int) -> str:
        return f"({summed(count)}) / {count}"


def erf_array(x: Array) -> Array:
    """erf of every element, from the C library by way of `math`."""
    return np.array([math.erf(value) for value in x.ravel().tolist()], dtype=x.dtype).reshape(x.shape)


add, sub, mul, div, pow = register(Add()), register(Sub()), register(Mul()), register(Div()), register(Pow())  # noqa: A001
neg, abs, sign, floor = register(Neg()), register(Abs()), register(Sign()), register(Floor())  # noqa: A001
exp, log, sqrt, reciprocal = register(Exp()), register(Log()), register(Sqrt()), register(Reciprocal())
sin, cos, erf = register(Sin()), register(Cos()), register(Erf())
sum, mean = register(Sum()), register(Mean())  # noqa: A001
