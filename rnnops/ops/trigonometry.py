"""Trigonometric and hyperbolic functions."""

from __future__ import annotations

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Pointwise
from rnnops.ops.base import Unary, quiet
from rnnops.schema import Call, Gradients, register
from rnnops.types import Array


class Sin(Unary):
    """Sine of x in radians; NaN for infinities.

    ONNX: Sin, op set 7. Its slope is `cos(x)`.

    Args:
        x: [...] float.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.sin(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, np.pi / 2])})["y"]
        array([0.    , 0.8415, 1.    ])
    """

    keeps = ("X",)
    loop = Pointwise("sin({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.sin(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * cos(x)


class Cos(Unary):
    """Cosine of x in radians; NaN for infinities.

    ONNX: Cos, op set 7. Its slope is `-sin(x)`.

    Args:
        x: [...] float.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.cos(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, np.pi])})["y"]
        array([ 1.    ,  0.5403, -1.    ])
    """

    keeps = ("X",)
    loop = Pointwise("cos({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.cos(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return -(dy * sin(x))


class Tan(Unary):
    """Tangent of x in radians; NaN for infinities.

    ONNX: Tan, op set 7. Its slope is `1 + y * y`.

    Args:
        x: [...] float.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.tan(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, np.pi / 4])})["y"]
        array([0.    , 1.5574, 1.    ])
    """

    keeps = ("Y",)
    loop = Pointwise("sin({0}) / cos({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.tan(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy * (1.0 + y * y)


class Atan(Unary):
    """Arc tangent in radians, between `-pi / 2` and `pi / 2`.

    ONNX: Atan, op set 7. Its slope is `1 / (1 + x * x)`.

    Args:
        x: [...] float.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.atan(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, np.inf])})["y"]
        array([-0.7854,  0.    ,  1.5708])
    """

    keeps = ("X",)
    loop = Pointwise("atan({0})")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.arctan(x))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy / (1.0 + x * x)


LARGE = 40.0  # from here on exp(-x) is nothing beside exp(x)


class Sinh(Unary):
    """Hyperbolic sine.

    ONNX: Sinh, op set 9. Its slope is `cosh(x)`. Compiled code takes half of `expm1(x) - expm1(-x)`, which keeps the
    digits of a small x; of a large one half of `exp(|x|)`, as the square of a root that is finite wherever the result
    is.

    Args:
        x: [...] float.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.sinh(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([-1.1752,  0.    ,  1.1752])
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
    """Hyperbolic cosine.

    ONNX: Cosh, op set 9. Its slope is `sinh(x)`. Compiled code takes half of `exp(x) + exp(-x)`, of a large x as Sinh
    does.

    Args:
        x: [...] float.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob.
        TypeRuleError: x is not float.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.cosh(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 0.0, 1.0])})["y"]
        array([1.5431, 1.    , 1.5431])
    """

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


sin, cos, tan, atan = register(Sin()), register(Cos()), register(Tan()), register(Atan())
sinh, cosh = register(Sinh()), register(Cosh())
