"""Elementwise arithmetic and functions: the four rules, powers, exponentials, roots, trigonometry, rounding, signs."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob, Operand
from rnnops.net.loop_forms import LoopForm, Pointwise
from rnnops.net.net import common_net
from rnnops.net.schema import Call, Gradients, register
from rnnops.ops.base import Binary, OpRow, Unary, flag, quiet
from rnnops.types import FLOATS, NUMERIC, Array
from rnnops.util import LazyModule

special = LazyModule("scipy.special")


class Add(Binary):
    """`a + b`, with broadcasting. The operator appends it too.

    ONNX: Add, op set 14. Integers wrap around.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.add(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0]), "b": np.array([[10.0], [20.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[11., 12.],
               [21., 22.]])
    """

    row = OpRow(np.add, "{0} + {1}", lambda a, b, c, dc: (dc, dc))


class Sub(Binary):
    """`a - b`, with broadcasting. The operator appends it too.

    ONNX: Sub, op set 14. Integers wrap around.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.sub(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0]), "b": np.array([[10.0], [20.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[ -9.,  -8.],
               [-19., -18.]])
    """

    row = OpRow(np.subtract, "{0} - {1}", lambda a, b, c, dc: (dc, -dc))


class Mul(Binary):
    """`a * b`, with broadcasting. The operator appends it too.

    ONNX: Mul, op set 14. Integers wrap around.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.mul(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0]), "b": np.array([[10.0], [20.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[10., 20.],
               [20., 40.]])
    """

    row = OpRow(np.multiply, "{0} * {1}", lambda a, b, c, dc: (dc * b, dc * a), keeps=("A", "B"))


class Div(Binary):
    """`a / b`, with broadcasting. The operator appends it too.

    ONNX: Div, op set 14. Integers are rounded towards zero, and an integer divided by 0 gives 0. Floats divided by 0
    give infinities and NaN.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.div(a, b))
        >>> feeds = {"a": np.array([1.0, -1.0, 3.0]), "b": np.array([4.0, 0.0, 2.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([0.25, -inf, 1.5 ])
    """

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
    """`a ** b`, with broadcasting. The operator appends it too.

    ONNX: Pow, op set 15. A negative float has only powers of whole numbers. Other powers are NaN. The gradient of `b`
    is `dy * y * log(a)`. It is taken as 0 where `a` is 0, and is NaN where `a` is negative.

    Raises:
        NetError: neither is a blob, they are of two nets, or a float meets integers.
        TypeRuleError: their dtypes differ or are not accepted, or they do not broadcast. In a run: an integer has a
            negative power.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.pow(a, b))
        >>> feeds = {"a": np.array([2.0, -2.0, -2.0]), "b": np.array([3.0, 2.0, 0.5])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([ 8.,  4., nan])
    """

    keeps = ("A", "B", "C")
    loop = Pointwise("pow({0}, {1})")

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        if a.dtype.kind != "f" and (b < 0).any():
            call.fail("an integer has no power below 0", blob=call.op.inputs[1])
        shape = np.broadcast_shapes(a.shape, b.shape)
        # With a scalar power NumPy may take a root instead, which differs at -inf and -0.
        powers = np.array(np.broadcast_to(b, shape or (1,)))
        return np.asarray(np.power(a, powers)).reshape(shape)

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, dc: Blob) -> Gradients:
        # d/da = b a^(b-1). Where b = 0 it is written b a^0 / a, so that it and its own gradient are 0 at a = 0 too, and
        # at NaN, as nothing is divided by NaN. d/db = c log(a), taken as 0 where a = 0 (its limit for b > 0).
        net, zero_base, zero_power = dc.net, dc.net.apply("Equal", [a, 0.0]), dc.net.apply("Equal", [b, 0.0])
        base = net.apply("Where", [zero_base, dc.net.operands([1.0], a.dtype)[0], a])
        divided = net.apply("And", [zero_power, net.apply("Equal", [a, a])])
        divisor = net.apply("Where", [divided, base, net.operands([1.0], a.dtype)[0]])
        slope = b * a ** net.apply("Where", [zero_power, b, b - 1.0]) / divisor
        return dc * slope, dc * c * log(base)


class Neg(Unary):
    """`-x`. The operator appends it too.

    ONNX: Neg, op set 13. The gradient is `-dy`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.neg(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 2.0])})["y"]
        array([ 1., -2.])
    """

    accepts = NUMERIC
    row = OpRow(np.negative, "-{0}", lambda x, y, dy: -dy)


class Sign(Unary):
    """-1, 0 or 1; NaN stays NaN.

    ONNX: Sign, op set 13. Gradients stop here: the gradient of x is 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.sign(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-3.0, 0.0, 2.0])})["y"]
        array([-1.,  0.,  1.])
    """

    accepts = NUMERIC
    row = OpRow(np.sign, "sign({0})", gradient=None)


neg, sign = register(Neg()), register(Sign())


class Abs(Unary):
    """`|x|`; also written `abs(x)`.

    ONNX: Abs, op set 13. Its slope is `sign(x)`, 0 at 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.abs(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 2.0])})["y"]
        array([1., 2.])
    """

    accepts = NUMERIC
    row = OpRow(np.abs, "abs({0})", lambda x, y, dy: dy * sign(x), keeps=("X",))


class Exp(Unary):
    """`e ** x`.

    ONNX: Exp, op set 13. Its slope is the result.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.exp(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([0.3679, 1.    , 2.7183])
    """

    row = OpRow(np.exp, "exp({0})", lambda x, y, dy: dy * y, keeps=("Y",))


class Log(Unary):
    """Natural logarithm; -inf at 0, NaN below.

    ONNX: Log, op set 13. Its slope is `1 / x`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.log(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, 10.0])})["y"]
        array([  -inf, 0.    , 2.3026])
    """

    row = OpRow(np.log, "log({0})", lambda x, y, dy: dy / x, keeps=("X",))


class Sqrt(Unary):
    """Square root; NaN below 0.

    ONNX: Sqrt, op set 13. Its slope is `0.5 / y`, infinite at 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.sqrt(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 2.0, 9.0])})["y"]
        array([0.    , 1.4142, 3.    ])
    """

    row = OpRow(np.sqrt, "sqrt({0})", lambda x, y, dy: 0.5 * dy / y, keeps=("Y",))


class Reciprocal(Unary):
    """`1 / x`; infinite at 0.

    ONNX: Reciprocal, op set 13. Its slope is `-y * y`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.reciprocal(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-2.0, 0.0, 4.0])})["y"]
        array([-0.5 ,   inf,  0.25])
    """

    row = OpRow(lambda x: np.divide(x.dtype.type(1), x), "1.0 / {0}", lambda x, y, dy: -(dy * y * y), keeps=("Y",))


exp, log, sqrt, reciprocal = register(Exp()), register(Log()), register(Sqrt()), register(Reciprocal())


def erf_array(x: Array) -> Array:
    """erf of every element, rounded once from float64."""
    return np.array(special.erf(np.asarray(x, np.float64)), x.dtype)


class Erf(Unary):
    """The error function `2 / sqrt(pi) * integral of exp(-t^2) from 0 to x`.

    ONNX: Erf, op set 13. Its slope is `2 / sqrt(pi) * exp(-x^2)`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.erf(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 0.5])})["y"]
        array([-0.8427,  0.    ,  0.5205])
    """

    row = OpRow(erf_array, "erf({0})", lambda x, y, dy: dy * exp(-(x * x)) * (2.0 / math.sqrt(math.pi)), keeps=("X",))


add, sub, mul, div, pow = register(Add()), register(Sub()), register(Mul()), register(Div()), register(Pow())  # noqa: A001
abs, erf = register(Abs()), register(Erf())  # noqa: A001


class Log1p(Unary):
    """`log(1 + x)`, precise for small x too. -inf at -1, NaN below.

    Not in ONNX: a file gets a few ops that keep the digits. Its slope is `1 / (1 + x)`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.log1p(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([  -inf, 0.    , 0.6931])
    """

    row = OpRow(np.log1p, "log1p({0})", lambda x, y, dy: dy / (1.0 + x), keeps=("X",))


class Expm1(Unary):
    """`e ** x - 1`, precise for small x too.

    Not in ONNX: a file gets a few ops that keep the digits. Its slope is `y + 1`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.expm1(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([-0.6321,  0.    ,  1.7183])
    """

    row = OpRow(np.expm1, "expm1({0})", lambda x, y, dy: dy * (y + 1.0), keeps=("Y",))


class Floor(Unary):
    """The largest whole number that is not above x.

    ONNX: Floor, op set 13. Gradients stop here: the gradient of x is 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.floor(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.5, 1.5])})["y"]
        array([-2.,  1.])
    """

    row = OpRow(np.floor, "floor({0})", gradient=None)


class Ceil(Unary):
    """The smallest whole number that is not below x.

    ONNX: Ceil, op set 13. Gradients stop here: the gradient of x is 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.ceil(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.5, 1.5])})["y"]
        array([-1.,  2.])
    """

    row = OpRow(np.ceil, "-floor(-{0})", gradient=None)


class Round(Unary):
    """The nearest whole number. In the middle of two, it is the even one.

    ONNX: Round, op set 11. Gradients stop here: the gradient of x is 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.round(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.5, 0.5, 1.7])})["y"]
        array([-2.,  0.,  2.])
    """

    row = OpRow(np.rint, "rint({0})", gradient=None)


class Mod(Binary):
    """The remainder of `a / b`, with the sign of `b`; also written `a % b`.

    ONNX: Mod, op set 13. `fmod=0` is only for integers there, and for floats too here. With a divisor of 0 integers
    give 0, and floats NaN. The gradient of `a` is `dy`. The gradient of `b` is `-dy` times the whole quotient.

    Args:
        a, b: float or integers that broadcast, one of them a blob; a number or an array takes the blob's dtype.
        fmod: 1 or True for the sign of `a`, as in C's fmod.

    Raises:
        NetError: neither is a blob, they are of two nets, a float meets integers, or fmod is neither on nor off.
        TypeRuleError: their dtypes differ or are not accepted, or they do not broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.mod(a, b))
        >>> feeds = {"a": np.array([5.5, -5.5]), "b": np.array([2.0, 2.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([1.5, 0.5])
    """

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
        return dc, -dc * round((a - c) / b)  # the whole quotient, which counts as a constant

    def loop_form(self, call: Call) -> LoopForm:
        rest = "fmod({0}, {1})"
        if call.dtype(0) not in FLOATS:
            rest = "({0} - divide_towards_zero({0}, {1}) * {1} if {1} != 0 else {1})"
        if call.attr("fmod"):
            return Pointwise(rest)
        return Pointwise(f"{rest} if {rest} == 0 or ({rest} < 0) == ({{1}} < 0) else {rest} + {{1}}")


log1p, expm1, mod = register(Log1p()), register(Expm1()), register(Mod())
floor, ceil, round = register(Floor()), register(Ceil()), register(Round())  # noqa: A001


class Sin(Unary):
    """Sine of x in radians; NaN for infinities.

    ONNX: Sin, op set 7. Its slope is `cos(x)`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.sin(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, np.pi / 2])})["y"]
        array([0.    , 0.8415, 1.    ])
    """

    row = OpRow(np.sin, "sin({0})", lambda x, y, dy: dy * x.net.apply("Cos", [x]), keeps=("X",))


class Cos(Unary):
    """Cosine of x in radians; NaN for infinities.

    ONNX: Cos, op set 7. Its slope is `-sin(x)`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.cos(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, np.pi])})["y"]
        array([ 1.    ,  0.5403, -1.    ])
    """

    row = OpRow(np.cos, "cos({0})", lambda x, y, dy: -(dy * x.net.apply("Sin", [x])), keeps=("X",))


class Tan(Unary):
    """Tangent of x in radians; NaN for infinities.

    ONNX: Tan, op set 7. Its slope is `1 + y * y`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.tan(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, np.pi / 4])})["y"]
        array([0.    , 1.5574, 1.    ])
    """

    row = OpRow(np.tan, "sin({0}) / cos({0})", lambda x, y, dy: dy * (1.0 + y * y), keeps=("Y",))


class Atan(Unary):
    """Arc tangent in radians, between `-pi / 2` and `pi / 2`.

    ONNX: Atan, op set 7. Its slope is `1 / (1 + x * x)`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.atan(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, np.inf])})["y"]
        array([-0.7854,  0.    ,  1.5708])
    """

    row = OpRow(np.arctan, "atan({0})", lambda x, y, dy: dy / (1.0 + x * x), keeps=("X",))


LARGE = 40.0  # from here on exp(-x) is negligible compared with exp(x)


class Sinh(Unary):
    """Hyperbolic sine.

    ONNX: Sinh, op set 9. Its slope is `cosh(x)`. Compiled code computes half of `expm1(x) - expm1(-x)`, which is
    precise for small x. For large x it is half of `exp(|x|)`, computed as the square of a root, which is finite
    wherever the result is.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.sinh(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([-1.1752,  0.    ,  1.1752])
    """

    row = OpRow(
        np.sinh,
        f"0.5 * (expm1({{0}}) - expm1(-{{0}})) if abs({{0}}) < {LARGE} else "
        "0.5 * sign({0}) * exp(0.5 * abs({0})) * exp(0.5 * abs({0}))",
        lambda x, y, dy: dy * x.net.apply("Cosh", [x]),
        keeps=("X",),
    )


class Cosh(Unary):
    """Hyperbolic cosine.

    ONNX: Cosh, op set 9. Its slope is `sinh(x)`. Compiled code computes half of `exp(x) + exp(-x)`, and for large x the
    same as Sinh.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.cosh(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([1.5431, 1.    , 1.5431])
    """

    row = OpRow(
        np.cosh,
        f"0.5 * (exp({{0}}) + exp(-{{0}})) if abs({{0}}) < {LARGE} else "
        "0.5 * exp(0.5 * abs({0})) * exp(0.5 * abs({0}))",
        lambda x, y, dy: dy * x.net.apply("Sinh", [x]),
        keeps=("X",),
    )


sin, cos, tan, atan = register(Sin()), register(Cos()), register(Tan()), register(Atan())
sinh, cosh = register(Sinh()), register(Cosh())
