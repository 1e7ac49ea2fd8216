"""Elementwise extrema: Min, Max, Clip."""

from __future__ import annotations

import numpy as np

from rnnops.blob import Blob, Operand
from rnnops.loops import LoopForm, Pointwise
from rnnops.net import common_net
from rnnops.ops.base import Variadic, fold, nested
from rnnops.ops.comparison import cast, equal, greater, less, where
from rnnops.ops.internal import sum_to
from rnnops.schema import Call, Gradients, OpSchema, register
from rnnops.types import NUMERIC, Array, Shape


class Min(Variadic):
    """The smallest of two operands or more, element by element with broadcasting; NaN where one is.

    ONNX: Min, op set 13. Operands that tie share the gradient equally; where one is NaN none gets any. `ro.reduce_min`
    is over axes of one blob.

    Args:
        operands: float or integers of one dtype that broadcast, two or more, one of them a blob.

    Returns:
        The same dtype, of the shape that all broadcast to.

    Raises:
        NetError: fewer than two, none is a blob, they are of several nets, or a float meets integers.
        TypeRuleError: their dtypes differ or are bool, or they do not broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.min(a, b))
        >>> feeds = {"a": np.array([1.0, np.nan]), "b": np.array([2.0, 3.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([ 1., nan])
    """

    keeps = ("A", "more")

    def reference(self, call: Call, *arrays: Array) -> Array:
        return fold(np.minimum, arrays)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        operands = blobs[: len(call.op.inputs)]
        return shared_among_ties(operands, blobs[-1].net.apply(self.name, operands), blobs[-1])

    def text(self, count: int) -> str:
        return nested("minimum", count)


class Max(Variadic):
    """The largest of two operands or more, element by element with broadcasting; NaN where one is.

    ONNX: Max, op set 13. Operands that tie share the gradient equally; where one is NaN none gets any. `ro.reduce_max`
    is over axes of one blob.

    Args:
        operands: float or integers of one dtype that broadcast, two or more, one of them a blob.

    Returns:
        The same dtype, of the shape that all broadcast to.

    Raises:
        NetError: fewer than two, none is a blob, they are of several nets, or a float meets integers.
        TypeRuleError: their dtypes differ or are bool, or they do not broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.max(a, b))
        >>> feeds = {"a": np.array([1.0, np.nan]), "b": np.array([2.0, 3.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([ 2., nan])
    """

    keeps = ("A", "more")

    def reference(self, call: Call, *arrays: Array) -> Array:
        return fold(np.maximum, arrays)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        operands = blobs[: len(call.op.inputs)]
        return shared_among_ties(operands, blobs[-1].net.apply(self.name, operands), blobs[-1])

    def text(self, count: int) -> str:
        return nested("maximum", count)


class Clip(OpSchema):
    """`minimum(maximum(x, min), max)`: where the bounds cross, `max` wins; NaN stays NaN.

    ONNX: Clip, op set 13. The gradient passes between the bounds and on them; outside it goes to the bound.

    Args:
        x: [...] float or integer.
        min, max: [] of x's dtype, a blob or a number; no bound if left out.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob, or a float bounds integers.
        TypeRuleError: a bound has another dtype, or x is bool; once shapes are known, a bound is no scalar.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.clip(net.input("x"), 0.0, 1.0))
        >>> ro.compile(net, device="reference")({"x": np.array([-2.0, 0.5, 3.0])})["y"]
        array([0. , 0.5, 1. ])
    """

    inputs = ("input", "min?", "max?")
    outputs = ("output",)
    accepts = NUMERIC
    keeps = ("input", "min", "max")

    def __call__(self, x: Blob, min: Operand | None = None, max: Operand | None = None) -> Blob:  # noqa: A002
        net = common_net([x])
        low, high = (None if bound is None else net.operands([bound], x.dtype)[0] for bound in (min, max))
        inputs = [x, low, high] if high is not None else [x, low] if low is not None else [x]
        return net.append(self.name, inputs)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        for i in (1, 2):
            if call.has(i) and call.shape(i) != ():
                call.fail("a bound is a scalar", blob=call.op.inputs[i], came=list(call.shape(i)))
        return (call.shape(0),)

    def reference(self, call: Call, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
        bounded = x.copy() if low is None else np.maximum(x, low)
        return np.asarray(bounded if high is None else np.minimum(bounded, high))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        x, low, high, dy = blobs[0], blobs[1] if call.has(1) else None, blobs[2] if call.has(2) else None, blobs[-1]
        inner, dlow, dhigh = dy, None, None  # inner: what reaches maximum(x, low)
        if high is not None:
            above = greater(x if low is None else max(x, low), high)
            inner, dhigh = where(above, 0.0, dy), sum_to(where(above, dy, 0.0), ())
        dx = inner
        if low is not None:
            below = less(x, low)
            dx, dlow = where(below, 0.0, inner), sum_to(where(below, inner, 0.0), ())
        return (dx, dlow, dhigh)[: len(call.op.inputs)]

    def loop_form(self, call: Call) -> LoopForm:
        text = "maximum({0}, {1})" if call.has(1) else "{0}"
        return Pointwise(f"minimum({text}, {{2}})" if call.has(2) else text)


def shared_among_ties(operands: tuple[Blob, ...], y: Blob, dy: Blob) -> Gradients:
    """`dy` in equal shares to the operands that are equal to `y`."""
    tied = [equal(operand, y) for operand in operands]
    count = cast(tied[0], dy.dtype)
    for mask in tied[1:]:
        count = count + cast(mask, dy.dtype)
    share = dy / count
    return tuple(where(mask, share, 0.0) for mask in tied)


min, max, clip = register(Min()), register(Max()), register(Clip())  # noqa: A001
