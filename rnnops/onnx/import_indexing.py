"""ONNX ops that mask, scatter and order elements.

How EyeLike, NonZero and Compress of ONNX become ops of rnnops; sizes that data decide are refused.

How the Scatter family and GatherND of ONNX become ops of rnnops.

How ArgMax, ArgMin, TopK, Hardmax, CumSum and CumProd of ONNX become ops of rnnops, which have fewer options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.import_groups import extent, inside, numbers_along
from rnnops.onnx.import_ops import append
from rnnops.onnx.node import Node, Rule
from rnnops.onnx.open_sizes import fixed_dims
from rnnops.onnx.tensors import element_dtype
from rnnops.ops.arithmetic import neg
from rnnops.ops.comparison import cast, equal
from rnnops.ops.indexing import gather, slice as slice_
from rnnops.ops.loss import one_hot
from rnnops.ops.movement import concat, flatten, reshape, squeeze, unsqueeze
from rnnops.ops.ordering import argmax, cumprod, cumsum, topk
from rnnops.ops.scatter import scatter_elements
from rnnops.ops.shapes import range as range_, shape
from rnnops.types import is_float


def eye_like(node: Node) -> Sequence[Blob]:
    """1 on a diagonal of a matrix, 0 elsewhere, in the input's dtype or another."""
    x, k, to = node.input(0), node.attr("k", "int", 0), node.attr("dtype", "int")
    if node.rank(x) != 2:
        node.fail("it is no matrix", wanted="two axes", came=node.rank(x))
    dtype = x.dtype if to is None else node.dtype(element_dtype(to, "the result of an EyeLike"))
    rows, columns = range_(0, extent(x, 0)), range_(0, extent(x, 1))
    here = unsqueeze(rows, [1])
    return (cast(equal(here + k if k else here, columns), dtype),)


def non_zero(node: Node) -> Sequence[Blob]:
    """The indices of what is not zero in an array that is known."""
    found = np.array(np.nonzero(_known(node, 0, "which elements are not zero")), np.int64)
    return (node.net.constant(found, "int64"),)


def compress(node: Node) -> Sequence[Blob]:
    """The slices that a known condition takes."""
    x, condition, axis = node.input(0), _known(node, 1, "which slices stay"), node.attr("axis", "int")
    if condition.ndim != 1:
        node.fail("the condition has one axis", came=condition.ndim)
    taken = node.net.constant(np.flatnonzero(condition), "int64") if axis is not None else None
    if taken is not None:
        return (gather(x, taken, axis),)
    flat = reshape(x, [-1])
    return (gather(flat, node.net.constant(np.flatnonzero(condition), "int64"), 0),)


def _known(node: Node, i: int, what: str) -> np.ndarray[Any, Any]:
    value = node.known_value(i)
    if value is None:
        node.fail(
            f"{what} decides a shape, but cannot be known before a run",
            blob=node.reader.bound[node.input(i).name],
            wanted="what follows from constants and fixed sizes",
            hint="If it is the same in all runs, give the inputs that decide it: load(path, constants={...}).",
        )
    return value


MASK_RULES: dict[str, Rule] = {
    "Compress": compress,
    "EyeLike": eye_like,
    "NonZero": non_zero,
}


def elements(node: Node) -> Sequence[Blob]:
    """Reductions are younger than the op."""
    return append(node, axis=node.attr("axis", "int"), reduction=node.attr("reduction", "string"))


def slices(node: Node) -> Sequence[Blob]:
    return append(node, reduction=node.attr("reduction", "string"))


def old_scatter(node: Node) -> Sequence[Blob]:
    """Scatter is the former name of ScatterElements."""
    return (scatter_elements(node.input(0), node.input(1), node.input(2), node.attr("axis", "int", 0)),)


def gather_nd(node: Node) -> Sequence[Blob]:
    """Slices by their places in an array whose first axes are one."""
    data, indices, batch = node.input(0), node.input(1), node.attr("batch_dims", "int", 0)
    known, rank, of = node.known(indices), node.rank(data), node.rank(indices)
    columns = fixed_dims(known)[-1] if known and of else None
    if not isinstance(columns, int) or not 0 <= batch < min(rank, of) or not 0 < columns <= rank - batch:
        node.fail("the last axis of indices is the number of axes that they are of", came=columns)
    whole, first = cast(indices, "int64"), batch + columns
    place = None
    for axis in range(first):
        if axis < batch:
            index = numbers_along(data, axis, of - 1)
        else:
            column = slice_(whole, [axis - batch], [axis - batch + 1], [-1])
            index = inside(squeeze(column, [-1]), data, axis)
        place = index if place is None else place * extent(data, axis) + index
    assert place is not None
    return (gather(rows_of(data, first, rank), place),)


def rows_of(data: Blob, first: int, rank: int) -> Blob:
    """An array whose first axes are one."""
    if first == rank:
        return reshape(data, [-1])
    rest = shape(data, first)  # before the constant, which a file has right before the op that reads it
    return reshape(data, concat(data.net.constant([-1], "int64"), rest, axis=0))


SCATTER_RULES: dict[str, Rule] = {
    "GatherND": gather_nd,
    "Scatter": old_scatter,
    "ScatterElements": elements,
    "ScatterND": slices,
}


FIRST, PAST = -(2**31), 2**31 - 1  # beyond any axis, for slices that go backwards


def extremum(smallest: bool) -> Rule:
    """A rule for ArgMax or ArgMin."""

    def rule(node: Node) -> Sequence[Blob]:
        axis, keepdims = node.attr("axis", "int", 0), node.attr("keepdims", "int", 1)
        x = turned(node.input(0)) if smallest else node.input(0)
        if not node.attr("select_last_index", "int", 0):
            return (argmax(x, axis, keepdims),)
        backwards = argmax(slice_(x, [PAST], [FIRST], [axis], [-1]), axis, keepdims)
        size = shape(x, axis, None if axis == -1 else axis + 1)
        return (size - 1 - backwards,)

    return rule


def top_k(node: Node) -> Sequence[Blob]:
    """The number was an attribute before op set 10, and may follow from shapes; results that need not be sorted are."""
    node.attr("sorted", "int")
    axis, largest, x = node.attr("axis", "int", -1), node.attr("largest", "int", 1), node.input(0)
    if node.opset < 10:
        k: Blob | int = node.required("k", "int")
    else:
        k = _integer(node, 1) if node.value(1) is not None else node.input(1)
    values, indices = topk(x if largest else turned(x), k, axis)
    return values if largest else turned(values), indices


def cumulated(function: Callable[..., Blob]) -> Rule:
    """A rule for CumSum or CumProd, whose axis is an input."""

    def rule(node: Node) -> Sequence[Blob]:
        exclusive, reverse = (node.attr(name, "int", 0) for name in ("exclusive", "reverse"))
        return (function(node.input(0), _integer(node, 1), exclusive, reverse),)

    return rule


def _integer(node: Node, i: int) -> int:
    value = node.value(i)
    if value is None or value.size != 1:
        node.fail(f"input {i} is one number that is known before a run", came=None if value is None else value.shape)
    return int(value.item())


def turned(x: Blob) -> Blob:
    """Numbers in the opposite order, so that the smallest is the largest; twice gives them back."""
    if is_float(x.dtype):
        return neg(x)
    return (np.iinfo(x.dtype).max if x.dtype.startswith("u") else -1) - x


def hardmax(node: Node) -> Sequence[Blob]:
    """1 at the first largest element, 0 elsewhere; before op set 13 all axes from `axis` on were one."""
    x, axis = node.input(0), node.attr("axis", "int", 1 if node.opset < 13 else -1)
    if node.opset >= 13:
        return (_first_largest(node, x, axis),)
    rows = flatten(x, axis=axis)
    return (reshape(_first_largest(node, rows, 1), shape(x), allowzero=1),)


def _first_largest(node: Node, x: Blob, axis: int) -> Blob:
    size, place = shape(x, axis, None if axis == -1 else axis + 1), argmax(x, axis, 0)
    return one_hot(place, size, np.array([0, 1], node.float_dtype), axis=axis)


ORDERING_RULES: dict[str, Rule] = {
    "ArgMax": extremum(smallest=False),
    "ArgMin": extremum(smallest=True),
    "CumProd": cumulated(cumprod),
    "CumSum": cumulated(cumsum),
    "Hardmax": hardmax,
    "TopK": top_k,
}
