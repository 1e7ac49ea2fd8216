"""aten ops that sum up to each element, or say which elements are the largest."""

from __future__ import annotations

from typing import Any

import rnnops as ro
from rnnops.blob import Blob
from rnnops.torch.aten.table import Node, rule


@rule("cumsum")
def _cumsum(node: Node, x: Blob, dim: int, **_: Any) -> Blob:
    return ro.cumsum(node.blob(x), dim) if node.shape_of(0) else node.blob(x)


@rule("flip")
def _flip(node: Node, x: Blob, dims: list[int]) -> Blob:
    if not dims:
        return x
    far = 2**31 - 1
    return ro.slice(x, [far] * len(dims), [-far] * len(dims), axes=list(dims), steps=[-1] * len(dims))


@rule("argmax", "argmin")
def _argmax(node: Node, x: Blob, dim: int | None = None, keepdim: bool = False) -> Blob:
    x = _turned(node, x) if node.name == "argmin" else x
    if dim is None:
        index = ro.argmax(ro.reshape(x, [-1]), 0, 0)
        return ro.reshape(index, node.out_shape) if keepdim else index
    return ro.argmax(x, dim, int(keepdim))


@rule("max", "min")
def _max(node: Node, x: Blob, dim: int, keepdim: bool = False) -> tuple[Blob, Blob]:
    """With the index of the element, which alone has a gradient."""
    values, indices = ro.topk(_turned(node, x) if node.name == "min" else x, 1, dim)
    values = _turned(node, values) if node.name == "min" else values
    return (values, indices) if keepdim else (ro.squeeze(values, [dim]), ro.squeeze(indices, [dim]))


@rule("topk")
def _topk(node: Node, x: Blob, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Blob, Blob]:  # noqa: A002
    values, indices = ro.topk(x if largest else _turned(node, x), k, dim)
    return (values if largest else _turned(node, values)), indices


def _turned(node: Node, x: Blob) -> Blob:
    if x.dtype != "float":
        node.fail("the smallest of integers are not translated", wanted="floats", came=x.dtype)
    return ro.neg(x)
