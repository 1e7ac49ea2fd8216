"""RMSNormalization: rows divided by their root mean square."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Expansion
from rnnops.net import common_net
from rnnops.ops.arithmetic import reciprocal, sqrt
from rnnops.ops.base import number, quiet
from rnnops.ops.internal import sum_to
from rnnops.ops.reduction import reduce_mean
from rnnops.schema import Call, Gradients, OpSchema, register
from rnnops.types import FLOATS, Array, Shape


class RMSNormalization(OpSchema):
    """`x / sqrt(mean(x * x) + epsilon) * scale` over all axes from `axis` on.

    ONNX: RMSNormalization, op set 23; a file of an older op set gets the formula.

    Args:
        x: [...] float.
        scale: float, of x's sizes from `axis` on, or what broadcasts to x.
        axis: the first of the axes that are normalised; negative ones count from the end.
        epsilon: a number, which keeps rows of zeros finite.

    Returns:
        x's shape and dtype.

    Raises:
        NetError: one is no blob, they are of several nets, or epsilon is no number.
        TypeRuleError: one is not float; once shapes are known, scale does not broadcast to x, or the axis is out of
            range.

    Example:
        >>> net = ro.Net("n")
        >>> x, scale = net.inputs("x", "scale")
        >>> net.outputs(y=ro.rms_normalization(x, scale))
        >>> ro.compile(net, device="reference")({"x": np.array([[3.0, 4.0]]), "scale": np.ones(2)})["y"]
        array([[0.8485, 1.1314]])
    """

    inputs = ("X", "scale")
    attributes: ClassVar[dict[str, Any]] = {"axis": -1, "epsilon": 1e-5}
    accepts = FLOATS
    keeps = ("X", "scale")
    loop = Expansion()

    def __call__(self, x: Blob, scale: Blob, axis: int = -1, epsilon: float = 1e-5) -> Blob:
        attributes = {"axis": axis, "epsilon": number(epsilon, self.name)}
        return common_net([x]).append(self.name, [x, scale], attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape = call.shape(0)
        call.axis(call.attr("axis"), call.rank(0))
        if call.broadcast(shape, call.shape(1)) != shape:
            call.fail("scale broadcasts to the rows", blob=call.op.inputs[1], came=list(call.shape(1)))
        return (shape,)

    @quiet
    def reference(self, call: Call, x: Array, scale: Array) -> Array:
        axes = self.axes(call)
        count = x.dtype.type(prod(x.shape[axis] for axis in axes))
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

    def axes(self, call: Call) -> tuple[int, ...]:
        rank = call.rank(0)
        return tuple(range(call.axis(call.attr("axis"), rank), rank))


rms_normalization = register(RMSNormalization())
