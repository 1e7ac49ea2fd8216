"""Normalisation along axes: Softmax, LogSoftmax, LayerNormalization."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Expansion
from rnnops.net import common_net
from rnnops.op import Op
from rnnops.ops.arithmetic import exp, log, reciprocal, sqrt
from rnnops.ops.base import Unary, number, quiet
from rnnops.ops.internal import normalized, sum_to
from rnnops.ops.reduction import reduce_max, reduce_mean, reduce_sum
from rnnops.ops.repetition import expand
from rnnops.schema import Call, Gradients, OpSchema, register
from rnnops.types import FLOATS, Array, Shape


class _AlongAxis(Unary):
    """What softmax and its logarithm share."""

    attributes: ClassVar[dict[str, Any]] = {"axis": -1}
    keeps = ("Y",)
    loop = Expansion()

    def __call__(self, x: Blob, axis: int = -1) -> Blob:
        return common_net([x]).apply(self.name, [x], axis=axis)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        call.axis(call.attr("axis"), call.rank(0))
        return (call.shape(0),)


class Softmax(_AlongAxis):
    """`exp(x) / sum(exp(x))` along an axis, without overflow; a row of nothing but -inf is NaN, as in ONNX.

    ONNX: Softmax, op set 13. The gradient is `y * (dy - sum(y * dy))`.

    Args:
        x: [...] float.
        axis: along which; negative ones count from the end.

    Returns:
        The same shape and dtype; each row sums up to 1.

    Raises:
        NetError: x is no blob.
        TypeRuleError: x is not float; once shapes are known, the axis is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.softmax(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, 2.0])})["y"]
        array([0.09  , 0.2447, 0.6652])
    """

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        axis = call.attr("axis")
        powers = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
        return np.asarray(powers / powers.sum(axis=axis, keepdims=True, dtype=x.dtype))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return y * (dy - reduce_sum(dy * y, [call.attr("axis")]))

    def expand(self, call: Call, x: Blob) -> Blob:
        axes = [call.attr("axis")]
        powers = exp(x - reduce_max(x, axes))
        return powers / reduce_sum(powers, axes)


class LogSoftmax(_AlongAxis):
    """`x - log(sum(exp(x)))` along an axis, without overflow; a row of nothing but -inf is NaN, as in ONNX.

    ONNX: LogSoftmax, op set 13. The gradient is `dy - exp(y) * sum(dy)`.

    Args:
        x: [...] float.
        axis: along which; negative ones count from the end.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob.
        TypeRuleError: x is not float; once shapes are known, the axis is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.log_softmax(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, 2.0])})["y"]
        array([-2.4076, -1.4076, -0.4076])
    """

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return log_softmax_array(x, call.attr("axis"))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy - exp(y) * reduce_sum(dy, [call.attr("axis")])

    def expand(self, call: Call, x: Blob) -> Blob:
        axes = [call.attr("axis")]
        shifted = x - reduce_max(x, axes)
        return shifted - log(reduce_sum(exp(shifted), axes))


class LayerNormalization(OpSchema):
    """`(x - mean) / sqrt(variance + epsilon) * scale + bias` over all axes from `axis` on, in two passes.

    ONNX: LayerNormalization, op set 17, whose further results, mean and inverse deviation of each row, stay inside;
    from them what is recomputed gives the result again, bit for bit.

    Args:
        x: [...] float.
        scale: float, of x's sizes from `axis` on, or what broadcasts to x.
        bias: as scale; none if left out.
        axis: the first of the axes that are normalised; negative ones count from the end.
        epsilon: a number, which keeps rows of one value finite.

    Returns:
        x's shape and dtype.

    Raises:
        NetError: one is no blob, they are of several nets, or epsilon is no number.
        TypeRuleError: one is not float; once shapes are known, scale or bias do not broadcast to x, or the axis is
            out of
            range.

    Example:
        >>> net = ro.Net("n")
        >>> x, scale, bias = net.inputs("x", "scale", "bias")
        >>> net.outputs(y=ro.layer_normalization(x, scale, bias))
        >>> feeds = {"x": np.array([[1.0, 2.0, 3.0]]), "scale": np.ones(3), "bias": np.zeros(3)}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[-1.2247,  0.    ,  1.2247]])
    """

    inputs = ("X", "Scale", "B?")
    outputs = ("Y", "Mean", "InvStdDev")
    attributes: ClassVar[dict[str, Any]] = {"axis": -1, "epsilon": 1e-5}
    accepts = FLOATS
    keeps = ("X", "Scale", "Mean", "InvStdDev")
    optional_grads = True
    loop = Expansion()

    def __call__(self, x: Blob, scale: Blob, bias: Blob | None = None, axis: int = -1, epsilon: float = 1e-5) -> Blob:
        inputs = [x, scale] if bias is None else [x, scale, bias]
        return common_net([x]).append(self.name, inputs, {"axis": axis, "epsilon": number(epsilon, self.name)})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.axis(call.attr("axis"), call.rank(0))
        for i in range(1, len(call.op.inputs)):
            if call.has(i) and call.broadcast(shape, call.shape(i)) != shape:
                call.fail("scale and bias broadcast to the rows", blob=call.op.inputs[i], came=list(call.shape(i)))
        rows = (*shape[:axis], *(1,) * (len(shape) - axis))
        return shape, rows, rows

    @quiet
    def reference(self, call: Call, x: Array, scale: Array, bias: Array | None = None) -> tuple[Array, Array, Array]:
        axes, count = self.axes(call), x.dtype.type(self.count(call))
        mean = x.sum(axis=axes, keepdims=True, dtype=x.dtype) / count
        variance = np.square(x - mean).sum(axis=axes, keepdims=True, dtype=x.dtype) / count
        inv_std_dev = x.dtype.type(1) / np.sqrt(variance + x.dtype.type(call.attr("epsilon")))
        return normalized(x, mean, inv_std_dev, scale, bias), mean, inv_std_dev

    def gradient(self, call: Call, *blobs: Any) -> Gradients:
        x, scale, (mean, inv), (dy, dmean, dinv) = blobs[0], blobs[1], blobs[-5:-3], blobs[-3:]
        unit = (x - mean) * inv
        parts = [
            None if dy is None else self.data_gradient(call, unit, dy * scale, inv),
            None if dmean is None else dmean * (1.0 / max(self.count(call), 1)),
            None if dinv is None else unit * (dinv * inv * inv * (-1.0 / max(self.count(call), 1))),
        ]
        given = [part for part in parts if part is not None]
        dx = given[0] if len(given) == 1 else x.net.apply("Sum", given) if given else None
        dscale = None if dy is None else sum_to(dy * unit, call.shape(1))
        dbias = None if dy is None or not call.has(2) else sum_to(dy, call.shape(2))
        return (dx if dx is None else expand(dx, list(call.shape(0))), dscale, dbias)[: len(call.op.inputs)]

    def data_gradient(self, call: Call, unit: Blob, dunit: Blob, inv: Blob) -> Blob:
        """From the gradient of `unit = (x - mean) * inv` to that of x."""
        axes = list(self.axes(call))
        along = reduce_mean(dunit * unit, axes)
        return inv * (dunit - reduce_mean(dunit, axes) - unit * along)

    def expand(self, call: Call, x: Blob, scale: Blob, bias: Blob | None = None) -> tuple[Blob, ...]:
        axes = list(self.axes(call))
        mean = reduce_mean(x, axes)
        centred = x - mean
        inv = reciprocal(sqrt(reduce_mean(centred * centred, axes) + call.attr("epsilon")))
        scaled = centred * inv * scale
        return scaled if bias is None else scaled + bias, mean, inv

    def replay(self, op: Op) -> Op | None:
        if not all(op.outputs):
            return None
        (x, *affine), (y, *statistics) = op.inputs, op.outputs
        axis = op.attributes.get("axis", self.attributes["axis"])
        return replace(op, type="Normalize", inputs=(x, *statistics, *affine), outputs=(y,), attributes={"axis": axis})

    def axes(self, call: Call) -> tuple[int, ...]:
        rank = call.rank(0)
        return tuple(range(call.axis(call.attr("axis"), rank), rank))

    def count(self, call: Call) -> int:
        """How many elements a row has."""
        return prod(call.shape(0)[axis] for axis in self.axes(call))


def log_softmax_array(x: Array, axis: int) -> Array:
    """`x - log(sum(exp(x)))` along an axis, by way of the largest element."""
    shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True, dtype=x.dtype)))


softmax, log_softmax, layer_normalization = register(Softmax()), register(LogSoftmax()), register(LayerNormalization())
