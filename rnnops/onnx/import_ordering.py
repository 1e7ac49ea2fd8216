"""How ArgMax, ArgMin, TopK, Hardmax, CumSum and CumProd of ONNX become ops of rnnops, which have fewer options."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.node import Node, Rule
from rnnops.ops.arithmetic import neg
from rnnops.ops.cumulative import cumsum
from rnnops.ops.cumulative_product import cumprod
from rnnops.ops.indexing import slice as slice_
from rnnops.ops.loss import one_hot
from rnnops.ops.movement import flatten, reshape
from rnnops.ops.ordering import argmax, topk
from rnnops.ops.shapes import shape
from rnnops.types import is_float

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
