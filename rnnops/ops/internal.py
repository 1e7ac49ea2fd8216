"""Ops that rnnops inserts by itself: most have no ONNX name, and none a gradient of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Kernel, LoopForm, Pointwise, Reduction, View
from rnnops.net import common_net
from rnnops.ops.base import quiet
from rnnops.schema import REQUIRED, Call, OpSchema, no_gradient, register
from rnnops.types import ANY, FLOATS, NUMERIC, Array, Shape, broadcast_shapes

INDEX_DTYPES = ("int32", "int64")


class SumTo(OpSchema):
    """Sum over the axes that broadcasting repeated: the gradient of every broadcast.

    x: an array to whose shape `shape` broadcasts; y: of shape `shape`.
    """

    attributes: ClassVar[dict[str, Any]] = {"shape": REQUIRED}
    accepts = NUMERIC
    internal = True
    gradient = no_gradient
    loop = Reduction("{a} + {b}", 0)

    def __call__(self, x: Blob, shape: Shape) -> Blob:
        return common_net([x]).append(self.name, [x], {"shape": tuple(shape)})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape = tuple(call.attr("shape"))
        if broadcast_shapes([shape, call.shape(0)]) != call.shape(0):
            call.fail("a sum to a shape that does not broadcast to the operand's", wanted=list(shape))
        return (shape,)

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        total = np.asarray(x.sum(axis=self.reduced_axes(call), dtype=x.dtype))
        return total.reshape(call.output_types[0].shape)

    def reduced_axes(self, call: Call) -> tuple[int, ...]:
        came, shape = call.shape(0), tuple(call.attr("shape"))
        extra = len(came) - len(shape)
        repeated = (extra + i for i, size in enumerate(shape) if size == 1 and came[extra + i] != 1)
        return (*range(extra), *repeated)


class ScatterAdd(OpSchema):
    """The gradient of Gather: slices of `x` are added up where `indices` send them, in the order of `x`.

    x: [..., *indices.shape, ...] with the indices' axes from `axis` on; y: [..., size, ...].
    """

    inputs = ("X", "indices")
    attributes: ClassVar[dict[str, Any]] = {"axis": REQUIRED, "size": REQUIRED}
    accepts = NUMERIC
    same_dtype = (0,)
    internal = True
    gradient = no_gradient
    loop = Kernel("scatter_add")

    def __call__(self, x: Blob, indices: Blob, axis: int, size: int) -> Blob:
        return common_net([x]).append(self.name, [x, indices], {"axis": axis, "size": size})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis, rank = call.shape(0), call.attr("axis"), call.rank(1)
        if shape[axis : axis + rank] != call.shape(1) or call.dtype(1) not in INDEX_DTYPES:
            call.fail("indices do not match the axes they scatter", came=f"{list(call.shape(1))} from axis {axis}")
        return ((*shape[:axis], call.attr("size"), *shape[axis + rank :]),)

    @quiet
    def reference(self, call: Call, x: Array, indices: Array) -> Array:
        shape, axis = call.output_types[0].shape, call.attr("axis")
        targets = check_indices(call, indices, shape[axis])
        result = np.zeros(shape, x.dtype)
        np.add.at(result, (*(slice(None),) * axis, targets), x)
        return result


class ScatterSlice(OpSchema):
    """The gradient of a Slice with steps: `x` is put where the slice took it from, 0 elsewhere.

    Starts are 0 or more; place `k` along `axes[j]` is `starts[j] + k * steps[j]` in y, which has shape `shape`.
    """

    attributes: ClassVar[dict[str, Any]] = {"shape": REQUIRED, "starts": REQUIRED, "axes": REQUIRED, "steps": REQUIRED}
    accepts = ANY
    internal = True
    gradient = no_gradient
    loop = View()

    def __call__(self, x: Blob, shape: Shape, starts: Sequence[int], axes: Sequence[int], steps: Sequence[int]) -> Blob:
        attributes = {"shape": shape, "starts": starts, "axes": axes, "steps": steps}
        return common_net([x]).append(self.name, [x], attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (tuple(call.attr("shape")),)

    def reference(self, call: Call, x: Array) -> Array:
        result = np.zeros(call.output_types[0].shape, x.dtype)
        places = [np.arange(size) for size in x.shape]
        for axis, start, step in zip(call.attr("axes"), call.attr("starts"), call.attr("steps"), strict=True):
            places[axis] = start + step * places[axis]
        result[np.ix_(*places)] = x
        return result


class Normalize(OpSchema):
    """Y of LayerNormalization from row statistics that are known: `(x - mean) * inv_std_dev * scale + bias`.

    Bit for bit what LayerNormalization gives. Mean, InvStdDev: x's shape with size 1 from `axis` on.
    """

    inputs = ("X", "Mean", "InvStdDev", "Scale", "B?")
    attributes: ClassVar[dict[str, Any]] = {"axis": -1}
    accepts = FLOATS
    internal = True
    gradient = no_gradient

    def __call__(
        self, x: Blob, mean: Blob, inv_std_dev: Blob, scale: Blob, bias: Blob | None = None, axis: int = -1
    ) -> Blob:
        inputs = [x, mean, inv_std_dev, scale, *([] if bias is None else [bias])]
        return common_net([x]).append(self.name, inputs, {"axis": axis})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.axis(call.attr("axis"), call.rank(0))
        rows = (*shape[:axis], *(1,) * (len(shape) - axis))
        for i in (1, 2):
            if call.shape(i) != rows:
                call.fail("not the statistics of these rows", blob=call.op.inputs[i], wanted=list(rows))
        return (shape,)

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        return normalized(*arrays)

    def loop_form(self, call: Call) -> LoopForm:
        return Pointwise("({0} - {1}) * {2} * {3}" + (" + {4}" if call.has(4) else ""))


def normalized(x: Array, mean: Array, inv_std_dev: Array, scale: Array, bias: Array | None = None) -> Array:
    """The last step of layer normalization, in one fixed order of operations."""
    scaled = (x - mean) * inv_std_dev * scale
    return np.asarray(scaled if bias is None else scaled + bias)


def check_indices(call: Call, indices: Array, size: int) -> Array:
    """Indices as they are. Raises TypeRuleError for one outside `[-size, size)`."""
    wrong = indices[(indices < -size) | (indices >= size)]
    if wrong.size:
        call.fail(
            "an index is out of range", blob=call.op.inputs[1], wanted=f"{-size} to {size - 1}", came=int(wrong.flat[0])
        )
    return indices


sum_to, scatter_add, scatter_slice = register(SumTo()), register(ScatterAdd()), register(ScatterSlice())
normalize = register(Normalize())
