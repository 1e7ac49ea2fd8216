"""ScatterElements and ScatterND: elements, or slices, put into an array where indices say."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.net import common_net
from rnnops.ops.scattered_rows import Scatter
from rnnops.schema import Call, register
from rnnops.types import Array, Shape


class ScatterElements(Scatter):
    """A copy of data with elements of updates, each where its own place says, but along the axis where its index does.

    ONNX: ScatterElements, op set 18. Of several updates of one element the last one stays. Gradients are exact with
    reductions, too: what ties for `"max"` or `"min"` shares.

    Args:
        data: [...] any dtype.
        indices: int32 or int64, of data's rank and no larger but along the axis; negative ones count from the end.
        updates: of indices' shape and data's dtype.
        axis: along which; negative ones count from the end.
        reduction: `"none"`, `"add"`, `"mul"`, `"max"` or `"min"`, of what is there and all updates.

    Returns:
        data's shape and dtype.

    Raises:
        NetError: one is no blob, or they are of several nets.
        TypeRuleError: updates have another dtype, indices are no integers, or bools are reduced; once shapes are known,
            these or the axis do not fit; in a run, an index is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> x, i, v = net.input("x"), net.input("i", "int64"), net.input("v")
        >>> net.outputs(y=ro.scatter_elements(x, i, v, reduction="add"))
        >>> feeds = {"x": np.zeros(3), "i": np.array([2, 0, 2]), "v": np.array([1.0, 2.0, 3.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([2., 0., 4.])
    """

    attributes: ClassVar[dict[str, Any]] = {"axis": 0, "reduction": "none"}

    def __call__(self, data: Blob, indices: Blob, updates: Blob, axis: int = 0, reduction: str = "none") -> Blob:
        attributes = {"axis": axis, "reduction": reduction}
        return common_net([data]).append(self.name, [data, indices, updates], attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        self.check_call(call)
        axis, shape, of = call.axis(call.attr("axis"), call.rank(0)), call.shape(0), call.shape(1)
        if call.shape(2) != of:
            call.fail("one update for each index", blob=call.op.inputs[2], wanted=list(of), came=list(call.shape(2)))
        fits = len(of) == len(shape) and all(
            a <= b or i == axis for i, (a, b) in enumerate(zip(of, shape, strict=True))
        )
        if not fits:
            call.fail("indices go beyond data", blob=call.op.inputs[1], wanted=f"at most {list(shape)}", came=list(of))
        return (shape,)

    def rows(self, call: Call) -> tuple[int, Shape, int]:
        return prod(call.shape(0)), (), prod(call.shape(1))

    def columns(self, call: Call) -> tuple[Array, list[tuple[int | None, int, int]]]:
        axis, shape, of = call.axis(call.attr("axis"), call.rank(0)), call.shape(0), call.shape(1)
        strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
        own = sum(
            (
                (np.arange(size) * strides[i]).reshape([-1 if i == k else 1 for k in range(len(of))])
                for i, size in enumerate(of)
                if i != axis
            ),
            start=np.zeros(of, np.int64),
        )
        return own.ravel(), [(None, shape[axis], strides[axis])]


class ScatterND(Scatter):
    """A copy of data with slices of updates, each where its row of indices says.

    ONNX: ScatterND, op set 18. Of several updates of one element the last one stays. Gradients are exact with
    reductions, too: what ties for `"max"` or `"min"` shares.

    Args:
        data: [D_1, ..., D_k, ...] any dtype.
        indices: [..., k] int32 or int64, of the first k axes; negative ones count from the end.
        updates: of indices' shape without its last axis, then data's without the first k; data's dtype.
        reduction: `"none"`, `"add"`, `"mul"`, `"max"` or `"min"`, of what is there and all updates.

    Returns:
        data's shape and dtype.

    Raises:
        NetError: one is no blob, or they are of several nets.
        TypeRuleError: updates have another dtype, indices are no integers, or bools are reduced; once shapes are known,
            these do not fit; in a run, an index is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> x, i, v = net.input("x"), net.input("i", "int64"), net.input("v")
        >>> net.outputs(y=ro.scatter_nd(x, i, v))
        >>> feeds = {"x": np.zeros((3, 2)), "i": np.array([[2], [0]]), "v": np.array([[1.0, 2.0], [3.0, 4.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[3., 4.],
               [0., 0.],
               [1., 2.]])
    """

    attributes: ClassVar[dict[str, Any]] = {"reduction": "none"}

    def __call__(self, data: Blob, indices: Blob, updates: Blob, reduction: str = "none") -> Blob:
        return common_net([data]).append(self.name, [data, indices, updates], {"reduction": reduction})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        self.check_call(call)
        shape, of = call.shape(0), call.shape(1)
        if not of or not 0 < of[-1] <= len(shape):
            wanted = f"[..., 1 to {len(shape)}]"
            call.fail("rows of indices are of the first axes", blob=call.op.inputs[1], wanted=wanted, came=list(of))
        if call.shape(2) != (*of[:-1], *shape[of[-1] :]):
            came, slices = list(call.shape(2)), [*of[:-1], *shape[of[-1] :]]
            call.fail("one slice for each index", blob=call.op.inputs[2], wanted=slices, came=came)
        return (shape,)

    def rows(self, call: Call) -> tuple[int, Shape, int]:
        shape, of = call.shape(0), call.shape(1)
        return prod(shape[: of[-1]]), shape[of[-1] :], prod(of[:-1])

    def columns(self, call: Call) -> tuple[Array, list[tuple[int | None, int, int]]]:
        shape, of = call.shape(0), call.shape(1)
        sizes = shape[: of[-1]]
        return np.zeros(prod(of[:-1]), np.int64), [(i, size, prod(sizes[i + 1 :])) for i, size in enumerate(sizes)]


scatter_elements, scatter_nd = register(ScatterElements()), register(ScatterND())
