"""Functions that few nets use: trigonometric and hyperbolic ones, rounding, Mod."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob, Operand
from rnnops.net.loop_forms import LoopForm, Pointwise
from rnnops.net.net import common_net
from rnnops.net.schema import Call, Gradients, register
from rnnops.ops.base import Binary, OpRow, Unary, flag, quiet
from rnnops.types import FLOATS, Array


class Log1p(Unary):
    """`log(1 + x)`, also where `1 + x` would lose the digits of x; -inf at -1, NaN below.

    Not in ONNX: a file gets a few ops that keep the digits. Its slope is `1 / (1 + x)`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.log1p(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([  -inf, 0.    , 0.6931])
    """

    row = OpRow(np.log1p, "log1p({0})", lambda x, y, dy: dy / (1.0 + x), keeps=("X",))


class Expm1(Unary):
    """`e ** x - 1`, also where that difference would lose digits.

    Not in ONNX: a file gets a few ops that keep the digits. Its slope is `y + 1`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.expm1(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([-0.6321,  0.    ,  1.7183])
    """

    row = OpRow(np.expm1, "expm1({0})", lambda x, y, dy: dy * (y + 1.0), keeps=("Y",))


class Floor(Unary):
    """The largest whole number not above x.

    ONNX: Floor, op set 13. Gradients stop here: that of x is 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.floor(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.5, 1.5])})["y"]
        array([-2.,  1.])
    """

    row = OpRow(np.floor, "floor({0})", gradient=None)


class Ceil(Unary):
    """The smallest whole number not below x.

    ONNX: Ceil, op set 13. Gradients stop here: that of x is 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.ceil(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.5, 1.5])})["y"]
        array([-1.,  2.])
    """

    row = OpRow(np.ceil, "-floor(-{0})", gradient=None)


class Round(Unary):
    """The nearest whole number, of two the even one.

    ONNX: Round, op set 11. Gradients stop here: that of x is 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.round(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.5, 0.5, 1.7])})["y"]
        array([-2.,  0.,  2.])
    """

    row = OpRow(np.rint, "rint({0})", gradient=None)


class Mod(Binary):
    """The remainder of `a / b`, with the sign of `b`; also written `a % b`.

    ONNX: Mod, op set 13. There `fmod=0` is only for integers; here it is for floats too. Integers by 0 give 0,
    floats NaN. The gradient of `a` is `dy`, that of `b` is `-dy` times the whole quotient.

    Args:
        a, b: float or integers that broadcast, one of them a blob; a number or an array takes the blob's dtype.
        fmod: 1 or True for the sign of `a`, as C's fmod has it.

    Raises:
        NetError: neither is a blob, they are of two nets, a float meets integers, or fmod is neither on nor off.
        TypeRuleError: their dtypes differ or are none of these, or they do not broadcast.

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
        return dc, -dc * round((a - c) / b)  # the whole quotient, which is a constant

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


LARGE = 40.0  # from here on exp(-x) is nothing compared with exp(x)


class Sinh(Unary):
    """Hyperbolic sine.

    ONNX: Sinh, op set 9. Its slope is `cosh(x)`. Compiled code takes half of `expm1(x) - expm1(-x)`, which keeps the
    digits of a small x; of a large one half of `exp(|x|)`, as the square of a root that is finite wherever the result
    is.

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

    ONNX: Cosh, op set 9. Its slope is `sinh(x)`. Compiled code takes half of `exp(x) + exp(-x)`, of a large x as Sinh
    does.

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
