"""Sum and Mean of any number of operands, and sums of products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnops.blob import Blob
from rnnops.ops.base import Variadic, fold, quiet, summed
from rnnops.schema import Call, Gradients, no_gradient, register
from rnnops.types import FLOATS, Array, Shape


class Sum(Variadic):
    """The sum of two operands or more, left to right, with broadcasting.

    ONNX: Sum, op set 13. Each operand gets the gradient of the result. `ro.reduce_sum` adds up one blob over its axes.

    Args:
        operands: float that broadcast, two or more, one of them a blob.

    Returns:
        The same dtype, of the shape that all broadcast to.

    Raises:
        NetError: fewer than two, none is a blob, or they are of several nets.
        TypeRuleError: one is not float, or they do not broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.sum(a, b, 0.5))
        >>> feeds = {"a": np.array([1.0, 2.0]), "b": np.array([[10.0], [20.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[11.5, 12.5],
               [21.5, 22.5]])
    """

    accepts = FLOATS

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        return fold(np.add, arrays)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        return (blobs[-1],) * len(call.op.inputs)

    def text(self, count: int) -> str:
        return summed(count)


class Mean(Variadic):
    """The mean of two operands or more, with broadcasting.

    ONNX: Mean, op set 13. Each of n operands gets the gradient of the result over n. `ro.reduce_mean` is over axes of
    one blob.

    Args:
        operands: float that broadcast, two or more, one of them a blob.

    Returns:
        The same dtype, of the shape that all broadcast to.

    Raises:
        NetError: fewer than two, none is a blob, or they are of several nets.
        TypeRuleError: one is not float, or they do not broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.mean(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 6.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([2., 4.])
    """

    accepts = FLOATS

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        return np.asarray(fold(np.add, arrays) / arrays[0].dtype.type(len(arrays)))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        share = blobs[-1] * (1.0 / len(call.op.inputs))
        return (share,) * len(call.op.inputs)

    def text(self, count: int) -> str:
        return f"({summed(count)}) / {count}"


class SumOfProducts(Variadic):
    """The sum of `left[i] * right[i]`, first to last: what a convolution of each channel by itself is.

    One op, so that its operands are read where they lie, however many there are, and its sum stays in a register.
    """

    accepts = FLOATS
    internal = True
    gradient = no_gradient

    def __call__(self, left: Sequence[Blob], right: Sequence[Blob]) -> Blob:  # type: ignore[override]
        return super().__call__(*left, *right)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if len(call.types) % 2:
            call.fail("products have two factors each", wanted="as many left ones as right ones", came=len(call.types))
        return super().shapes(call)

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        pairs = zip(arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :], strict=True)
        return fold(np.add, [a * b for a, b in pairs])

    def text(self, count: int) -> str:
        return " + ".join(f"{{{i}}} * {{{count // 2 + i}}}" for i in range(count // 2))


sum, mean, sum_of_products = register(Sum()), register(Mean()), register(SumOfProducts())  # noqa: A001
