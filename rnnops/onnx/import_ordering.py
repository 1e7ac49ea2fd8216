"""How ArgMax, ArgMin, TopK and CumSum of ONNX become ops of rnnops, which have fewer options."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.blob import Blob
from rnnops.onnx.node import Node, Rule
from rnnops.ops.arithmetic import neg
from rnnops.ops.cumulative import cumsum
from rnnops.ops.indexing import slice as slice_
from rnnops.ops.ordering import argmax, topk
from rnnops.ops.shapes import shape
from rnnops.types import is_float

FIRST, PAST = -(2**31), 2**31 - 1  # beyond any axis, for slices that go backwards


def extremum(smallest: bool) -> Rule:
    """A rule for ArgMax or ArgMin."""

    def rule(node: Node) -> Sequence[Blob]:
        axis, keepdims = node.attr("axis", "int", 0), node.attr("keepdims", "int", 1)
        x = _negated(node, node.input(0)) if smallest else node.input(0)
        if not node.attr("select_last_index", "int", 0):
            return (argmax(x, axis, keepdims),)
        backwards = argmax(slice_(x, [PAST], [FIRST], [axis], [-1]), axis, keepdims)
        size = shape(x, axis, None if axis == -1 else axis + 1)
        return (size - 1 - backwards,)

    return rule


def top_k(node: Node) -> Sequence[Blob]:
    """The number was an attribute before op set 10; results that need not be sorted may be."""
    node.attr("sorted", "int")
    axis, largest, x = node.attr("axis", "int", -1), node.attr("largest", "int", 1), node.input(0)
    k = node.required("k", "int") if node.opset < 10 else _integer(node, 1)
    values, indices = topk(x if largest else _negated(node, x), k, axis)
    return values if largest else neg(values), indices


def cum_sum(node: Node) -> Sequence[Blob]:
    """The axis is an input there."""
    exclusive, reverse = (node.attr(name, "int", 0) for name in ("exclusive", "reverse"))
    return (cumsum(node.input(0), _integer(node, 1), exclusive, reverse),)


def _integer(node: Node, i: int) -> int:
    value = node.value(i)
    if value is None or value.size != 1:
        node.fail(f"input {i} is one number that is known before a run", came=None if value is None else value.shape)
    return int(value.item())


def _negated(node: Node, x: Blob) -> Blob:
    """Turned round, so that the smallest is the largest."""
    if not is_float(x.dtype):
        node.fail("the smallest of integers are not supported", wanted="floats", came=x.dtype)
    return neg(x)


ORDERING_RULES: dict[str, Rule] = {
    "ArgMax": extremum(smallest=False),
    "ArgMin": extremum(smallest=True),
    "CumSum": cum_sum,
    "TopK": top_k,
}
