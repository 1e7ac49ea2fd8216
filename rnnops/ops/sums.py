"""Sum and Mean of any number of operands."""

from __future__ import annotations

import numpy as np

from rnnops.blob import Blob
from rnnops.ops.base import Variadic, fold, quiet, summed
from rnnops.schema import Call, Gradients, register
from rnnops.types import FLOATS, Array


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


sum, mean = register(Sum()), register(Mean())  # noqa: A001
