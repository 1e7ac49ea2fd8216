"""Activation functions. If the slope follows exactly from the value, only the value is kept."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob
from rnnops.net.loop_forms import LoopForm, Pointwise
from rnnops.net.net import common_net
from rnnops.net.schema import Call, Gradients, register
from rnnops.ops.arithmetic import abs, erf, erf_array, exp  # noqa: A004
from rnnops.ops.base import OpRow, Unary, choice, elementwise, number, quiet
from rnnops.ops.comparison import where
from rnnops.types import Array, Shape

TANH_SCALE, TANH_CUBE = math.sqrt(2.0 / math.pi), 0.044715  # constants of Gelu's approximation by tanh
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # float32 numbers, as in ONNX


def sigmoid_array(x: Array) -> Array:
    """The logistic function without overflow. Both halves are computed from `exp(-|x|)`."""
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, decay, x.dtype.type(1)) / (x.dtype.type(1) + decay))


class Sigmoid(Unary):
    """`1 / (1 + exp(-x))`, element by element, without overflow.

    ONNX: Sigmoid, op set 13. Its slope is `y * (1 - y)`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.sigmoid(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([0.2689, 0.5   , 0.7311])
    """

    row = OpRow(sigmoid_array, "sigmoid({0})", lambda x, y, dy: dy * y * (1.0 - y), keeps=("Y",))


class Tanh(Unary):
    """Hyperbolic tangent, element by element.

    ONNX: Tanh, op set 13. Its slope is `1 - y * y`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.tanh(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([-0.7616,  0.    ,  0.7616])
    """

    row = OpRow(np.tanh, "tanh({0})", lambda x, y, dy: dy * (1.0 - y * y), keeps=("Y",))


class Relu(Unary):
    """`max(x, 0)`, element by element; NaN stays NaN.

    ONNX: Relu, op set 14. Its slope is 1 above 0 and 0 elsewhere, also at 0 and NaN.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.relu(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 2.0])})["y"]
        array([0., 0., 2.])
    """

    keeps = ("Y",)
    loop = Pointwise("0.0 if {0} < 0.0 else {0}")
    reference = elementwise(lambda x: np.maximum(x, x.dtype.type(0)))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return where(y > 0.0, dy, 0.0)


class LeakyRelu(Unary):
    """`x` where it is above 0, else `alpha * x`.

    ONNX: LeakyRelu, op set 16. Its slope at 0 is `alpha`.

    Args:
        x: [...] float.
        alpha: a number, the slope below 0.

    Raises:
        NetError: x is not a blob, or alpha is not a number.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.leaky_relu(net.input("x"), alpha=0.1))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 2.0])})["y"]
        array([-0.1,  0. ,  2. ])
    """

    attributes: ClassVar[dict[str, Any]] = {"alpha": 0.01}
    keeps = ("X",)
    loop = Pointwise("{0} if {0} > 0.0 else {alpha} * {0}")

    def __call__(self, x: Blob, alpha: float = 0.01) -> Blob:
        return common_net([x]).apply(self.name, [x], alpha=number(alpha, self.name))

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.where(x > 0, x, x.dtype.type(call.attr("alpha")) * x)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return where(x > 0.0, dy, dy * call.attr("alpha"))


class Elu(Unary):
    """`x` where it is above 0, else `alpha * (exp(x) - 1)`.

    ONNX: Elu, op set 6. Its slope at 0 is `alpha`.

    Args:
        x: [...] float.
        alpha: a number. Far below 0 the result tends to `-alpha`.

    Raises:
        NetError: x is not a blob, or alpha is not a number.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.elu(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 2.0])})["y"]
        array([-0.6321,  0.    ,  2.    ])
    """

    attributes: ClassVar[dict[str, Any]] = {"alpha": 1.0}
    keeps = ("X",)
    loop = Pointwise("{0} if {0} > 0.0 else {alpha} * expm1({0})")

    def __call__(self, x: Blob, alpha: float = 1.0) -> Blob:
        return common_net([x]).apply(self.name, [x], alpha=number(alpha, self.name))

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.where(x > 0, x, x.dtype.type(call.attr("alpha")) * np.expm1(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return where(x > 0.0, dy, dy * exp(x) * call.attr("alpha"))


class Selu(Unary):
    """`gamma * x` where x is above 0, else `gamma * alpha * (exp(x) - 1)`.

    ONNX: Selu, op set 6. Its slope at 0 is `gamma * alpha`.

    Args:
        x: [...] float.
        alpha, gamma: numbers. By default those of Klambauer and others (2017).

    Raises:
        NetError: x is not a blob, or alpha or gamma is not a number.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.selu(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 2.0])})["y"]
        array([-1.1113,  0.    ,  2.1014])
    """

    attributes: ClassVar[dict[str, Any]] = {"alpha": SELU_ALPHA, "gamma": SELU_GAMMA}
    keeps = ("X",)
    loop = Pointwise("{gamma} * ({0} if {0} > 0.0 else {alpha} * expm1({0}))")

    def __call__(self, x: Blob, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> Blob:
        return common_net([x]).apply(self.name, [x], alpha=number(alpha, self.name), gamma=number(gamma, self.name))

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        alpha, gamma = x.dtype.type(call.attr("alpha")), x.dtype.type(call.attr("gamma"))
        return np.asarray(gamma * np.where(x > 0, x, alpha * np.expm1(x)))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        scaled = dy * call.attr("gamma")
        return where(x > 0.0, scaled, scaled * exp(x) * call.attr("alpha"))


class Softplus(Unary):
    """`log(1 + exp(x))`, element by element, without overflow.

    ONNX: Softplus, op set 1. Its slope is `sigmoid(x)`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.softplus(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 100.0])})["y"]
        array([  0.3133,   0.6931, 100.    ])
    """

    keeps = ("X",)
    loop = Pointwise("maximum({0}, 0.0) + log1p(exp(-abs({0})))")
    reference = elementwise(lambda x: np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x))))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * sigmoid(x)


class Softsign(Unary):
    """`x / (1 + |x|)`, element by element; NaN for infinities, as in ONNX.

    ONNX: Softsign, op set 1. Its slope is `1 / (1 + |x|)^2`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.softsign(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 3.0])})["y"]
        array([-0.5 ,  0.  ,  0.75])
    """

    keeps = ("X",)
    loop = Pointwise("{0} / (1.0 + abs({0}))")
    reference = elementwise(lambda x: x / (x.dtype.type(1) + np.abs(x)))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        width = 1.0 + abs(x)
        return dy / (width * width)


class HardSigmoid(Unary):
    """`max(0, min(1, alpha * x + beta))`, element by element.

    ONNX: HardSigmoid, op set 6. Its slope is `alpha` if the result lies between 0 and 1, and 0 at both ends.

    Args:
        x: [...] float.
        alpha, beta: numbers, slope and value at 0.

    Raises:
        NetError: x is not a blob, or alpha or beta is not a number.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.hard_sigmoid(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-3.0, 0.0, 1.0])})["y"]
        array([0. , 0.5, 0.7])
    """

    attributes: ClassVar[dict[str, Any]] = {"alpha": 0.2, "beta": 0.5}
    keeps = ("Y",)
    loop = Pointwise("maximum(0.0, minimum(1.0, {alpha} * {0} + {beta}))")

    def __call__(self, x: Blob, alpha: float = 0.2, beta: float = 0.5) -> Blob:
        return common_net([x]).apply(self.name, [x], alpha=number(alpha, self.name), beta=number(beta, self.name))

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        number = x.dtype.type
        line = number(call.attr("alpha")) * x + number(call.attr("beta"))
        return np.asarray(np.maximum(number(0), np.minimum(number(1), line)))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        inside = dy.net.apply("And", [y > 0.0, y < 1.0])
        return where(inside, dy * call.attr("alpha"), 0.0)


class Gelu(Unary):
    """`x * P(z < x)` for a standard normal z, element by element; NaN for -inf.

    ONNX: Gelu, op set 20.

    Args:
        x: [...] float.
        approximate: `"none"` computes P by erf, `"tanh"` as `0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is not float. Once shapes are known: `approximate` is unknown.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.gelu(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([-0.1587,  0.    ,  0.8413])
    """

    attributes: ClassVar[dict[str, Any]] = {"approximate": "none"}
    keeps = ("X",)

    def __call__(self, x: Blob, approximate: str = "none") -> Blob:
        return common_net([x]).apply(self.name, [x], approximate=approximate)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        choice(call, "approximate", "none", "tanh")
        return (call.shape(0),)

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        number = x.dtype.type
        if call.attr("approximate") == "tanh":
            bell = np.tanh(number(TANH_SCALE) * (x + number(TANH_CUBE) * x * x * x))
        else:
            bell = erf_array(x * number(math.sqrt(0.5)))
        return np.asarray(number(0.5) * x * (number(1) + bell))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        # y = x (1 + b(x)) / 2, so y' = (1 + b + x b') / 2
        if call.attr("approximate") == "tanh":
            bell = tanh(TANH_SCALE * (x + TANH_CUBE * x * x * x))
            slope = (1.0 - bell * bell) * (TANH_SCALE * (1.0 + 3.0 * TANH_CUBE * x * x))
        else:
            bell = erf(x * math.sqrt(0.5))
            slope = exp(-0.5 * x * x) * TANH_SCALE
        return dy * 0.5 * (1.0 + bell + x * slope)

    def loop_form(self, call: Call) -> LoopForm:
        if call.attr("approximate") == "tanh":
            cubic = f"{{0}} + {TANH_CUBE} * {{0}} * {{0}} * {{0}}"
            return Pointwise(f"0.5 * {{0}} * (1.0 + tanh({TANH_SCALE} * ({cubic})))")
        return Pointwise(f"0.5 * {{0}} * (1.0 + erf({math.sqrt(0.5)} * {{0}}))")


sigmoid, tanh, relu = register(Sigmoid()), register(Tanh()), register(Relu())
leaky_relu, elu, selu = register(LeakyRelu()), register(Elu()), register(Selu())
softplus, softsign, hard_sigmoid, gelu = (
    register(Softplus()),
    register(Softsign()),
    register(HardSigmoid()),
    register(Gelu()),
)
