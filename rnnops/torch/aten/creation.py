"""aten ops that make tensors, change dtypes, stop gradients or draw random numbers."""

from __future__ import annotations

from typing import Any

import torch

import rnnops as ro
from rnnops.blob import Blob
from rnnops.torch.aten.table import Node, rule

VALUES = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
UNSET = ("empty", "empty_like", "empty_permuted", "new_empty", "empty_strided")


@rule("full", "full_like", "fill", "new_full", "scalar_tensor", *VALUES, *UNSET)
def _full(node: Node, *arguments: Any, **_: Any) -> Blob:
    if node.name == "scalar_tensor":
        value = arguments[0]
    elif node.name == "new_full":
        value = arguments[2]
    elif node.name in ("full", "full_like", "fill"):
        value = arguments[1]
    else:
        value = VALUES.get(node.name, 0)
    if isinstance(value, Blob):
        return ro.expand(node.blob(value), node.out_shape)
    return node.full(value, node.out_shape, node.out_kind)


@rule("arange")
def _arange(node: Node, *bounds: Any, **_: Any) -> Blob:
    numbers = [bound for bound in bounds if bound is not None]
    values = torch.arange(*numbers, dtype=node.result().dtype)
    return node.net.constant(values.numpy(), node.out_kind)


@rule("_to_copy", "to")
def _to(node: Node, x: Blob, *_: Any, **__: Any) -> Blob:
    return node.blob(x)


@rule("detach")
def _detach(node: Node, x: Blob) -> Blob:
    return ro.stop_gradient(x) if node.out_kind == "float" else x


@rule("with_slopes")
def _with_slopes(node: Node, y: Blob, xs: list[Blob], slopes: list[Blob]) -> Blob:
    for x, slope in zip(xs, slopes, strict=True):
        y = ro.with_gradient(y, x, slope)
    return y


@rule("rand_like")
def _rand_like(node: Node, x: Blob, **_: Any) -> Blob:
    return ro.random_uniform_like(node.full(0.0, node.out_shape, node.out_kind))
