"""ScatterElements and ScatterND."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion, LoopForm
from rnnops.net.net import common_net
from rnnops.net.schema import Call, Gradients, OpSchema, register
from rnnops.ops.arithmetic import div, mul
from rnnops.ops.base import INDEX_DTYPES, choice, quiet, scatter_add
from rnnops.ops.comparison import cast, equal, identity, max as max_, min as min_, where
from rnnops.ops.indexing import check_places, gather, places_of
from rnnops.ops.movement import concat, reshape, unsqueeze
from rnnops.ops.reduction import reduce_max, reduce_min, reduce_prod
from rnnops.ops.shapes import constant_of_shape
from rnnops.types import BOOL, Array, Shape, limit

FEW = 2**14  # up to this number of pairs (element, update), compiled code looks at all pairs; above, the reference runs
UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


class Scatter(OpSchema):
    """Base of both ops. Updates go to rows of data, which is seen as rows of one shape.

    There is a loop form for sums, for indices that are known before a run, and for few updates of few rows (it looks at
    all pairs). Otherwise the reference runs.

    Returns:
        data's shape and dtype.
    """

    inputs = ("data", "indices", "updates")
    outputs = ("output",)
    same_dtype: ClassVar[tuple[int, ...] | None] = (0, 2)
    keeps = ("data", "indices", "updates")

    def columns(self, call: Call) -> tuple[Array, list[tuple[int | None, int, int]]]:
        """The part of rows from places of updates, and (column of indices, size, stride) of the other parts."""
        raise NotImplementedError

    def rows(self, call: Call) -> tuple[int, Shape, int]:
        """The number of rows, the shape of a row, and the number of updates."""
        raise NotImplementedError

    def check_call(self, call: Call) -> None:
        if call.dtype(1) not in INDEX_DTYPES:
            call.fail(
                "indices must be integers", blob=call.op.inputs[1], wanted=" or ".join(INDEX_DTYPES), came=call.dtype(1)
            )
        if choice(call, "reduction", "none", *UFUNCS) != "none" and call.dtype(0) == BOOL:
            call.fail("bools cannot be reduced", wanted="reduction='none'", came=call.attr("reduction"))

    @quiet
    def reference(self, call: Call, data: Array, indices: Array, updates: Array) -> Array:
        (count, row, number), places = self.rows(call), self.known_places(call, indices)
        result, parts = np.array(data).reshape(count, *row), updates.reshape(number, *row)
        if call.attr("reduction") == "none":
            result[places] = parts  # the last of several updates wins
        else:
            UFUNCS[call.attr("reduction")].at(result, places, parts)
        return result.reshape(data.shape)

    def known_places(self, call: Call, indices: Array) -> Array:
        """The row of each update. Raises TypeRuleError for an index that is out of range."""
        base, columns = self.columns(call)
        place = base
        for column, size, stride in columns:
            part = indices if column is None else indices[..., column]
            place = place + check_places(call, part.ravel().astype(np.int64), size) * stride
        return place

    def places(self, call: Call, indices: Blob) -> Blob:
        """The row of each update as a blob. It is out of range if an index is."""
        base, columns = self.columns(call)
        return places_of(indices, base, columns, self.rows(call)[0])

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        data, indices, updates, _, dy = blobs
        rules = {"none": self.gradient_of_none, "add": self.gradient_of_add, "mul": self.gradient_of_mul}
        rule = rules.get(call.attr("reduction"), self.gradient_of_extrema)
        return rule(call, data, indices, updates, dy)

    def gradient_of_none(self, call: Call, data: Blob, indices: Blob, updates: Blob, dy: Blob) -> Gradients:
        """True for data that stays, and (of several updates of one place) for the last update."""
        net, (count, row, number) = dy.net, self.rows(call)
        nothing = constant_of_shape(net, list(call.shape(2)), 0.0)
        numbers = net.constant(np.arange(1, number + 1), "int64")
        places = self.places(call, indices)
        none, column = constant_of_shape(net, [count], 0), reshape(places, [number, 1])
        owners = net.append("ScatterND", [none, column, numbers])[0]
        mine = reshape(equal(gather(owners, places), numbers), [number, *(1,) * len(row)])
        found = where(mine, self.taken(call, places, dy), 0.0)
        return self.again(call, dy, indices, nothing, "none"), None, reshape(found, list(call.shape(2)), allowzero=1)

    def gradient_of_add(self, call: Call, data: Blob, indices: Blob, updates: Blob, dy: Blob) -> Gradients:
        return dy, None, self.as_updates(call, indices, dy)

    def gradient_of_mul(self, call: Call, data: Blob, indices: Blob, updates: Blob, dy: Blob) -> Gradients:
        """Each factor gets the product of the others.

        If one is zero, only that one gets a gradient: the product of the rest.
        """
        zero, ones = equal(updates, 0.0), constant_of_shape(dy.net, list(call.shape(0)), 1.0)
        others = self.again(call, ones, indices, where(zero, 1.0, updates), "mul")
        zeros = self.again(call, ones - 1.0, indices, cast(zero, dy.dtype), "add")
        whole = where(equal(zeros, 0.0), others, 0.0)
        alone = where(equal(zeros, 1.0), others, 0.0)
        by_zero, by_one = (self.as_updates(call, indices, dy * data * part) for part in (alone, whole))
        return dy * whole, None, where(zero, by_zero, div(by_one, where(zero, 1.0, updates)))

    def gradient_of_extrema(self, call: Call, data: Blob, indices: Blob, updates: Blob, dy: Blob) -> Gradients:
        """Elements that tie share the gradient equally. If one is NaN, none gets any."""
        y = self.again(call, data, indices, updates, call.attr("reduction"))
        mine, theirs = equal(data, y), equal(updates, self.as_updates(call, indices, y))
        count = self.again(call, cast(mine, dy.dtype), indices, cast(theirs, dy.dtype), "add")
        share = dy / count
        return where(mine, share, 0.0), None, where(theirs, self.as_updates(call, indices, share), 0.0)

    def taken(self, call: Call, places: Blob, blob: Blob) -> Blob:
        """For each update, its row of an array with data's shape."""
        count, row, _ = self.rows(call)
        return gather(reshape(blob, [count, *row], allowzero=1), places)

    def as_updates(self, call: Call, indices: Blob, blob: Blob) -> Blob:
        """For each element of updates, its element of an array with data's shape."""
        return reshape(self.taken(call, self.places(call, indices), blob), list(call.shape(2)), allowzero=1)

    def again(self, call: Call, data: Blob, indices: Blob, updates: Blob, reduction: str) -> Blob:
        """The same places in another array."""
        attributes = {**call.op.attributes, "reduction": reduction}
        return data.net.append(self.name, [data, indices, updates], attributes)[0]

    def loop_form(self, call: Call) -> LoopForm | None:
        (count, row, number), reduction = self.rows(call), call.attr("reduction")
        known = reduction == "none" and self.known_indices(call) is not None
        return Expansion() if reduction == "add" or known or count * number * prod(row) <= FEW else None

    def known_indices(self, call: Call) -> Array | None:
        """The indices, if they are known before a run."""
        return call.values[1] if len(call.values) > 1 else None

    def expand(self, call: Call, data: Blob, indices: Blob, updates: Blob) -> Blob:
        (count, row, number), shape, reduction = self.rows(call), list(call.shape(0)), call.attr("reduction")
        rows, parts = reshape(data, [count, *row], allowzero=1), reshape(updates, [number, *row], allowzero=1)
        if not count or not number:
            return identity(data)
        if reduction == "add":
            return data + reshape(scatter_add(parts, self.places(call, indices), 0, count), shape, allowzero=1)
        value = self.known_indices(call)
        if reduction == "none" and value is not None:
            source = np.arange(count)
            source[self.known_places(call, value)] = count + np.arange(number)
            found = gather(concat(rows, parts, axis=0), data.net.constant(source, "int64"))
        else:
            found = self.reduced(call, rows, parts, self.places(call, indices))
        return reshape(found, shape, allowzero=1)

    def reduced(self, call: Call, rows: Blob, parts: Blob, places: Blob) -> Blob:
        """Reduces each row with all updates. Updates of other rows are replaced by neutral numbers."""
        (count, row, number), reduction, net = self.rows(call), call.attr("reduction"), rows.net
        numbers = net.constant(np.arange(count), "int64")
        checked = gather(numbers, places)  # raises an error for an index that is out of range
        mine = equal(unsqueeze(numbers, [1]), checked)
        if reduction == "none":
            last = reduce_max(where(mine, net.constant(np.arange(1, number + 1), "int64"), 0), [1], keepdims=0)
            return gather(concat(rows, parts, axis=0), where(equal(last, 0), numbers, last + (count - 1)))
        mine = reshape(mine, [count, number, *(1,) * len(row)])
        reduce, join, start = REDUCTIONS[reduction]
        return join(rows, reduce(where(mine, unsqueeze(parts, [0]), start(call.dtype(0))), [1], keepdims=0))


REDUCTIONS: dict[str, tuple[Callable[..., Blob], Callable[[Blob, Blob], Blob], Callable[[str], float | int]]] = {
    # function that joins updates, function that joins them with data, neutral number
    "mul": (reduce_prod, mul, lambda dtype: 1),
    "max": (reduce_max, max_, lambda dtype: limit(dtype, -1)),
    "min": (reduce_min, min_, lambda dtype: limit(dtype, 1)),
}


class ScatterElements(Scatter):
    """A copy of data with elements of updates.

    An update keeps its own place, except along the axis, where its index counts.

    ONNX: ScatterElements, op set 18. Of several updates of one element the last one wins. Gradients are exact with
    reductions too. Elements that tie for `"max"` or `"min"` share the gradient.

    Args:
        data: [...] any dtype.
        indices: int32 or int64, of data's rank. Only along the axis may they be larger than data. Negative ones count
            from the end.
        updates: of indices' shape and data's dtype.
        axis: along which; negative ones count from the end.
        reduction: `"none"`, `"add"`, `"mul"`, `"max"` or `"min"`, of data's element and all its updates.

    Raises:
        NetError: an argument is not a blob, or they are of several nets.
        TypeRuleError: updates have another dtype, indices are not integers, or bools are reduced. Once shapes are
            known: shapes or the axis do not fit. In a run: an index is out of range.

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
            call.fail(
                "updates need one for each index", blob=call.op.inputs[2], wanted=list(of), came=list(call.shape(2))
            )
        fits = len(of) == len(shape) and all(
            a <= b or i == axis for i, (a, b) in enumerate(zip(of, shape, strict=True))
        )
        if not fits:
            call.fail("indices exceed data", blob=call.op.inputs[1], wanted=f"at most {list(shape)}", came=list(of))
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
    """A copy of data with slices of updates. A row of indices says the place of a slice.

    ONNX: ScatterND, op set 18. Of several updates of one element the last one wins. Gradients are exact with reductions
    too. Elements that tie for `"max"` or `"min"` share the gradient.

    Args:
        data: [D_1, ..., D_k, ...] any dtype.
        indices: [..., k] int32 or int64, indices into the first k axes. Negative ones count from the end.
        updates: of data's dtype. The shape is that of indices without the last axis, then that of data without the
            first k axes.
        reduction: `"none"`, `"add"`, `"mul"`, `"max"` or `"min"`, of data's element and all its updates.

    Raises:
        NetError: an argument is not a blob, or they are of several nets.
        TypeRuleError: updates have another dtype, indices are not integers, or bools are reduced. Once shapes are
            known: shapes do not fit. In a run: an index is out of range.

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
            call.fail("rows of indices are too long", blob=call.op.inputs[1], wanted=wanted, came=list(of))
        if call.shape(2) != (*of[:-1], *shape[of[-1] :]):
            came, slices = list(call.shape(2)), [*of[:-1], *shape[of[-1] :]]
            call.fail("updates must be one slice for each index", blob=call.op.inputs[2], wanted=slices, came=came)
        return (shape,)

    def rows(self, call: Call) -> tuple[int, Shape, int]:
        shape, of = call.shape(0), call.shape(1)
        return prod(shape[: of[-1]]), shape[of[-1] :], prod(of[:-1])

    def columns(self, call: Call) -> tuple[Array, list[tuple[int | None, int, int]]]:
        shape, of = call.shape(0), call.shape(1)
        sizes = shape[: of[-1]]
        return np.zeros(prod(of[:-1]), np.int64), [(i, size, prod(sizes[i + 1 :])) for i, size in enumerate(sizes)]


scatter_elements, scatter_nd = register(ScatterElements()), register(ScatterND())
