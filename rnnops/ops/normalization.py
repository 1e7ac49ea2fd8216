"""Normalizations: Softmax, LogSoftmax, LayerNormalization, RMSNormalization, BatchNormalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion
from rnnops.net.net import common_net
from rnnops.net.op import Op
from rnnops.net.schema import Call, Gradients, OpSchema, register
from rnnops.ops.arithmetic import exp, log, reciprocal, sqrt
from rnnops.ops.base import Unary, flag, normalized, number, quiet, sum_to
from rnnops.ops.movement import expand, reshape
from rnnops.ops.reduction import reduce_max, reduce_mean, reduce_sum
from rnnops.types import FLOATS, Array, Shape


class _AlongAxis(Unary):
    """Base of softmax and its logarithm.

    Args:
        x: [...] {dtypes}.
        axis: the axis. Negative numbers count from the end.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is not {dtypes}. Once shapes are known: the axis is out of range.
    """

    attributes: ClassVar[dict[str, Any]] = {"axis": -1}
    keeps = ("Y",)
    loop = Expansion()

    def __call__(self, x: Blob, axis: int = -1) -> Blob:
        return common_net([x]).apply(self.name, [x], axis=axis)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        call.axis(call.attr("axis"), call.rank(0))
        return (call.shape(0),)


class Softmax(_AlongAxis):
    """`exp(x) / sum(exp(x))` along an axis, without overflow.

    A row in which all numbers are -inf gives NaN, as in ONNX.

    ONNX: Softmax, op set 13. The gradient is `y * (dy - sum(y * dy))`.

    Returns:
        The same shape and dtype. The sum of each row is 1.

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
    """`x - log(sum(exp(x)))` along an axis, without overflow.

    A row in which all numbers are -inf gives NaN, as in ONNX.

    ONNX: LogSoftmax, op set 13. The gradient is `dy - exp(y) * sum(dy)`.

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


class RowNormalization(OpSchema):
    """Base of ops that normalize each row. A row has the elements of all axes from `axis` on.

    Returns:
        x's shape and dtype.
    """

    attributes: ClassVar[dict[str, Any]] = {"axis": -1, "epsilon": 1e-5}
    accepts = FLOATS
    loop = Expansion()

    def axes(self, call: Call) -> tuple[int, ...]:
        """The axes of a row."""
        rank = call.rank(0)
        return tuple(range(call.axis(call.attr("axis"), rank), rank))

    def count(self, call: Call) -> int:
        """The number of elements of a row."""
        return prod(call.shape(0)[axis] for axis in self.axes(call))


def through_unit(unit: Blob, dunit: Blob, inv: Blob, axes: Sequence[int]) -> Blob:
    """The gradient of x through `unit = (x - mean) * inv`. Mean and `inv` are statistics of x over the axes."""
    along = reduce_mean(dunit * unit, axes)
    return inv * (dunit - reduce_mean(dunit, axes) - unit * along)


class LayerNormalization(RowNormalization):
    """`(x - mean) / sqrt(variance + epsilon) * scale + bias` over all axes from `axis` on, in two passes.

    ONNX: LayerNormalization, op set 17. Its further results, mean and inverse deviation of each row, are internal. A
    recomputed result is made from them, and has the same bits.

    Args:
        x: [...] float.
        scale: float, with x's sizes from `axis` on, or a shape that broadcasts to x.
        bias: as scale. By default none.
        axis: the first of the normalized axes. Negative numbers count from the end.
        epsilon: a number. It keeps rows of equal numbers finite.

    Raises:
        NetError: an argument is not a blob, they are of several nets, or epsilon is not a number.
        TypeRuleError: an argument is not float. Once shapes are known: scale or bias does not broadcast to x, or the
            axis is out of range.

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
    keeps = ("X", "Scale", "Mean", "InvStdDev")
    optional_grads = True

    def __call__(self, x: Blob, scale: Blob, bias: Blob | None = None, axis: int = -1, epsilon: float = 1e-5) -> Blob:
        inputs = [x, scale] if bias is None else [x, scale, bias]
        return common_net([x]).append(self.name, inputs, {"axis": axis, "epsilon": number(epsilon, self.name)})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.axis(call.attr("axis"), call.rank(0))
        for i in range(1, len(call.op.inputs)):
            if call.has(i) and call.broadcast(shape, call.shape(i)) != shape:
                call.fail("scale and bias must broadcast to the rows", blob=call.op.inputs[i], came=list(call.shape(i)))
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
            None if dy is None else through_unit(unit, dy * scale, inv, list(self.axes(call))),
            None if dmean is None else dmean * (1.0 / max(self.count(call), 1)),
            None if dinv is None else unit * (dinv * inv * inv * (-1.0 / max(self.count(call), 1))),
        ]
        given = [part for part in parts if part is not None]
        dx = given[0] if len(given) == 1 else x.net.apply("Sum", given) if given else None
        dscale = None if dy is None else sum_to(dy * unit, call.shape(1))
        dbias = None if dy is None or not call.has(2) else sum_to(dy, call.shape(2))
        return (dx if dx is None else expand(dx, list(call.shape(0))), dscale, dbias)[: len(call.op.inputs)]

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


def log_softmax_array(x: Array, axis: int) -> Array:
    """`x - log(sum(exp(x)))` along an axis. The largest element is subtracted first."""
    shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True, dtype=x.dtype)))


softmax, log_softmax, layer_normalization = register(Softmax()), register(LogSoftmax()), register(LayerNormalization())


class RMSNormalization(RowNormalization):
    """`x / sqrt(mean(x * x) + epsilon) * scale` over all axes from `axis` on.

    ONNX: RMSNormalization, op set 23. A file of an older op set gets the formula.

    Args:
        x: [...] float.
        scale: float, with x's sizes from `axis` on, or a shape that broadcasts to x.
        axis: the first of the normalized axes. Negative numbers count from the end.
        epsilon: a number. It keeps rows of zeros finite.

    Raises:
        NetError: an argument is not a blob, they are of several nets, or epsilon is not a number.
        TypeRuleError: an argument is not float. Once shapes are known: scale does not broadcast to x, or the axis is
            out of range.

    Example:
        >>> net = ro.Net("n")
        >>> x, scale = net.inputs("x", "scale")
        >>> net.outputs(y=ro.rms_normalization(x, scale))
        >>> ro.compile(net, device="reference")({"x": np.array([[3.0, 4.0]]), "scale": np.ones(2)})["y"]
        array([[0.8485, 1.1314]])
    """

    inputs = ("X", "scale")
    keeps = ("X", "scale")

    def __call__(self, x: Blob, scale: Blob, axis: int = -1, epsilon: float = 1e-5) -> Blob:
        attributes = {"axis": axis, "epsilon": number(epsilon, self.name)}
        return common_net([x]).append(self.name, [x, scale], attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape = call.shape(0)
        call.axis(call.attr("axis"), call.rank(0))
        if call.broadcast(shape, call.shape(1)) != shape:
            call.fail("scale must broadcast to the rows", blob=call.op.inputs[1], came=list(call.shape(1)))
        return (shape,)

    @quiet
    def reference(self, call: Call, x: Array, scale: Array) -> Array:
        axes, count = self.axes(call), x.dtype.type(self.count(call))
        square = np.square(x).sum(axis=axes, keepdims=True, dtype=x.dtype) / count
        inverse = x.dtype.type(1) / np.sqrt(square + x.dtype.type(call.attr("epsilon")))
        return np.asarray(x * inverse * scale)

    def gradient(self, call: Call, x: Blob, scale: Blob, y: Blob, dy: Blob) -> Gradients:
        inverse = self.inverse(call, x)
        unit, dunit = x * inverse, dy * scale
        dx = inverse * (dunit - unit * reduce_mean(dunit * unit, list(self.axes(call))))
        return dx, sum_to(dy * unit, call.shape(1))

    def expand(self, call: Call, x: Blob, scale: Blob) -> Blob:
        return x * self.inverse(call, x) * scale

    def inverse(self, call: Call, x: Blob) -> Blob:
        """One over the root mean square of each row."""
        return reciprocal(sqrt(reduce_mean(x * x, list(self.axes(call))) + call.attr("epsilon")))


rms_normalization = register(RMSNormalization())


class BatchNormalization(OpSchema):
    """`(x - mean) / sqrt(var + epsilon) * scale + bias` for each channel. Axis 1 counts the channels.

    ONNX: BatchNormalization, op set 15. With `training_mode`, mean and variance are those of the batch, and gradients
    pass through them. The variance is that of the elements themselves (divided by n, not by n - 1).

    Args:
        x: [N, C, ...] float. Without a second axis there is one channel.
        scale, bias, mean, var: [C] float.
        epsilon: a number. It keeps channels of equal numbers finite.
        training_mode: 1 or True for the statistics of the batch.
        momentum: the share of `mean` and `var` in the running statistics.

    Returns:
        x's shape and dtype. With `training_mode` also `mean * momentum + batch_mean * (1 - momentum)`, and the same for
        the variance, [C] each.

    Raises:
        NetError: an argument is not a blob, they are of several nets, or an attribute is not a number or flag.
        TypeRuleError: an argument is not float. Once shapes are known: an argument does not fit the channels, or x has
            no axes.

    Example:
        >>> net = ro.Net("n")
        >>> x, scale, bias, mean, var = net.inputs("x", "scale", "bias", "mean", "var")
        >>> net.outputs(y=ro.batch_normalization(x, scale, bias, mean, var, epsilon=0.0))
        >>> feeds = {"x": np.array([[1.0, 2.0], [3.0, 6.0]]), "scale": np.ones(2), "bias": np.zeros(2)}
        >>> feeds.update(mean=np.array([2.0, 2.0]), var=np.array([1.0, 4.0]))
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[-1.,  0.],
               [ 1.,  2.]])
    """

    inputs = ("X", "scale", "B", "input_mean", "input_var")
    outputs = ("Y", "running_mean", "running_var")
    attributes: ClassVar[dict[str, Any]] = {"epsilon": 1e-5, "momentum": 0.9, "training_mode": 0}
    accepts = FLOATS
    keeps = ("X", "scale", "input_mean", "input_var")
    optional_grads = True
    loop = Expansion()

    def __call__(
        self,
        x: Blob,
        scale: Blob,
        bias: Blob,
        mean: Blob,
        var: Blob,
        epsilon: float = 1e-5,
        training_mode: int = 0,
        momentum: float = 0.9,
    ) -> Blob | tuple[Blob, ...]:
        attributes: dict[str, Any] = {"epsilon": number(epsilon, self.name)}
        if flag(training_mode, self.name):
            attributes.update(training_mode=1, momentum=number(momentum, self.name))
        results = common_net([x]).append(self.name, [x, scale, bias, mean, var], attributes)
        return results if len(results) > 1 else results[0]

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        return 3 if attributes.get("training_mode") else 1

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if not call.rank(0):
            call.fail("x has no axes, so there is no batch", blob=call.op.inputs[0])
        channels = self.channels(call)
        for i in range(1, 5):
            if call.shape(i) != channels:
                came = list(call.shape(i))
                call.fail("each channel needs one number", blob=call.op.inputs[i], wanted=list(channels), came=came)
        return (call.shape(0), *([channels] * 2 if call.attr("training_mode") else []))

    @quiet
    def reference(self, call: Call, x: Array, *others: Array) -> tuple[Array, ...]:
        one, axes, momentum = x.dtype.type(1), self.batch_axes(call), x.dtype.type(call.attr("momentum"))
        scale, bias, mean, var = (array.reshape(self.along(call)) for array in others)
        running: tuple[Array, ...] = ()
        if call.attr("training_mode"):
            count, before = x.dtype.type(self.count(call)), (mean, var)
            mean = x.sum(axis=axes, keepdims=True, dtype=x.dtype) / count
            var = np.square(x - mean).sum(axis=axes, keepdims=True, dtype=x.dtype) / count
            pairs = zip(before, (mean, var), strict=True)
            running = tuple(
                (old * momentum + new * (one - momentum)).reshape(self.channels(call)) for old, new in pairs
            )
        inv = one / np.sqrt(var + x.dtype.type(call.attr("epsilon")))
        return (np.asarray((x - mean) * inv * scale + bias), *running)

    def gradient(self, call: Call, *blobs: Any) -> Gradients:
        return self.batch_gradient(call, *blobs) if call.attr("training_mode") else self.fixed_gradient(call, *blobs)

    def fixed_gradient(self, call: Call, *blobs: Any) -> Gradients:
        """With given statistics: scales and moves channels."""
        (x, scale, _, mean, var), dy = blobs[:5], blobs[-1]
        if dy is None:
            return (None,) * 5
        inv = reciprocal(sqrt(var + call.attr("epsilon")))
        total = self.sum_of(call, dy)
        moments = self.sum_of(call, dy * (x - self.widened(call, mean)))
        dx = dy * self.widened(call, scale * inv)
        return dx, moments * inv, total, -total * scale * inv, moments * scale * inv * inv * inv * -0.5

    def batch_gradient(self, call: Call, *blobs: Any) -> Gradients:
        """With the statistics of x."""
        x, scale, (dy, dmean, dvar) = blobs[0], blobs[1], blobs[-3:]
        momentum, axes = call.attr("momentum"), list(self.batch_axes(call))
        centred = x - reduce_mean(x, axes)
        inv = reciprocal(sqrt(reduce_mean(centred * centred, axes) + call.attr("epsilon")))
        unit, share = centred * inv, (1.0 - momentum) / max(self.count(call), 1)
        parts = [
            None if dy is None else through_unit(unit, dy * self.widened(call, scale), inv, axes),
            None if dmean is None else self.widened(call, dmean) * share,
            None if dvar is None else centred * (self.widened(call, dvar) * (2.0 * share)),
        ]
        given = [part for part in parts if part is not None]
        dx = given[0] if len(given) == 1 else x.net.apply("Sum", given) if given else None
        return (
            dx if dx is None else expand(dx, list(call.shape(0))),
            None if dy is None else self.sum_of(call, dy * unit),
            None if dy is None else self.sum_of(call, dy),
            None if dmean is None else dmean * momentum,
            None if dvar is None else dvar * momentum,
        )

    def expand(self, call: Call, x: Blob, *others: Blob) -> Blob | tuple[Blob, ...]:
        scale, bias, mean, var = (self.widened(call, blob) for blob in others)
        if not call.attr("training_mode"):
            return (x - mean) * reciprocal(sqrt(var + call.attr("epsilon"))) * scale + bias
        axes, momentum, channels = list(self.batch_axes(call)), call.attr("momentum"), list(self.channels(call))
        batch_mean = reduce_mean(x, axes)
        centred = x - batch_mean
        batch_var = reduce_mean(centred * centred, axes)
        y = centred * reciprocal(sqrt(batch_var + call.attr("epsilon"))) * scale + bias
        pairs = ((mean, batch_mean), (var, batch_var))
        return y, *(reshape(old * momentum + new * (1.0 - momentum), channels) for old, new in pairs)

    def channels(self, call: Call) -> Shape:
        """The shape of a number for each channel."""
        return call.shape(0)[1:2] or (1,)

    def along(self, call: Call) -> Shape:
        """The shape with which numbers of channels broadcast to x."""
        return (*self.channels(call), *(1,) * (call.rank(0) - 2))

    def batch_axes(self, call: Call) -> tuple[int, ...]:
        """All axes except for that of the channels."""
        return tuple(axis for axis in range(call.rank(0)) if axis != 1)

    def count(self, call: Call) -> int:
        """Number of elements of a channel."""
        return prod(call.shape(0)[axis] for axis in self.batch_axes(call))

    def widened(self, call: Call, blob: Blob) -> Blob:
        """A number for each channel, reshaped to broadcast to x."""
        return blob if call.rank(0) <= 2 else reshape(blob, list(self.along(call)), allowzero=1)

    def sum_of(self, call: Call, blob: Blob) -> Blob:
        """The sum over each channel."""
        total = reduce_sum(blob, list(self.batch_axes(call)), keepdims=0)
        return total if call.rank(0) > 1 else reshape(total, [1])


batch_normalization = register(BatchNormalization())
