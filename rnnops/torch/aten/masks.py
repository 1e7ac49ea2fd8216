"""Elements that a mask picks, changed and put back: `y[mask] = f(y[mask])`.

PyTorch computes on as many elements as the mask has, a number that follows from data. Here f is computed for all
elements, and the mask picks afterwards: `y = where(mask, f(where(mask, y, 1)), y)`. The inner choice keeps what f makes
of the other elements, as NaN of a logarithm, out of the gradient.

A mask may be taken by a mask: `z = y[m]; z[k] = f(z[k]); y[m] = z` is the same twice, from the inside out.

Limits: f consists of ops on one element each, and of numbers; the mask has the tensor's shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten
PUTS = (aten.index_put.default, aten._unsafe_index_put.default)
BY_ELEMENT = (  # which PyTorch does not mark as pointwise
    aten.detach.default, aten.clone.default, aten.alias.default, aten._to_copy.default, aten.where.ScalarOther,
    aten.masked_fill.Tensor,
)  # fmt: skip


def spread_masks(graph: fx.Graph) -> None:
    """Rewrite values that are put where a mask is set, numbers or f of what it picks, as ops on whole tensors."""
    for node in [node for node in graph.nodes if node.target in PUTS]:
        x, indices, value, *accumulate = node.args
        if len(indices) != 1 or not _is_mask(indices[0], x) or any(accumulate):
            continue
        found = dict[fx.Node, bool]()
        if not _is_number(value) and not (_is_picked(value, indices[0], found) and any(found.values())):
            continue
        with graph.inserting_before(node):
            whole = dict[fx.Node, fx.Node]()
            for old in [old for old in graph.nodes if old in found]:
                whole[old] = _whole(graph, old, indices[0], whole, found[old])
            chosen = graph.call_function(aten.where.self, (indices[0], whole.get(value, value), x))
        chosen.meta["val"] = x.meta["val"]
        node.replace_all_uses_with(chosen)


def _is_number(node: fx.Node) -> bool:
    return node.meta["val"].dim() == 0


def _is_mask(index: Any, x: fx.Node) -> bool:
    mask: Any = index.meta.get("val") if isinstance(index, fx.Node) else None
    return isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == x.meta["val"].shape


def _is_picked(node: fx.Node, mask: fx.Node, found: dict[fx.Node, bool]) -> bool:
    """True if a node follows from elements that the mask picks, and from numbers.

    Args:
        found: is given the nodes; True for those that pick.
    """
    if node in found:
        return True
    if node.target is aten.index.Tensor:
        x, indices = node.args
        found[node] = len(indices) == 1 and _is_mask(indices[0], x) and _is_equal(indices[0], mask)
        return found[node]
    tags, given = getattr(node.target, "tags", ()), [one for one in node.all_input_nodes if not _is_number(one)]
    is_pointwise = torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags
    if not given or not (is_pointwise or node.target in BY_ELEMENT):
        return False
    if not all(_is_picked(one, mask, found) for one in given):
        return False
    found[node] = False
    return True


def _is_equal(one: Any, other: Any) -> bool:
    """True if two arguments are one value, or computed alike."""
    if not isinstance(one, fx.Node) or not isinstance(other, fx.Node):
        return type(one) is type(other) and bool(one == other)
    alike = one.op == other.op == "call_function" and one.target is other.target and one.kwargs == other.kwargs == {}
    is_random = torch.Tag.nondeterministic_seeded in getattr(one.target, "tags", ())
    pairs = zip(one.args, other.args, strict=False)
    return one is other or (
        alike and not is_random and len(one.args) == len(other.args) and all(_is_equal(a, b) for a, b in pairs)
    )


def _whole(graph: fx.Graph, old: fx.Node, mask: fx.Node, whole: dict[fx.Node, fx.Node], picks: bool) -> fx.Node:
    """The node for all elements, 1 where the mask picks none."""
    kind = old.meta["val"].dtype
    if picks:
        made = graph.call_function(aten.where.ScalarOther, (mask, old.args[0], True if kind == torch.bool else 1))
    else:
        made = graph.node_copy(old, lambda node: whole.get(node, node))
    made.meta["val"] = mask.meta["val"].to(kind)
    return made
