"""aten ops that fold axes: sums, means, extrema, norms, softmax, normalization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import rnnops as ro
from rnnops.blob import Blob
from rnnops.torch.aten.table import RULES, Node, rule

MOST_FACTORS = 64


def _axes(dim: Any) -> list[int] | None:
    """All axes for None and for `[]`, as PyTorch has it."""
    return [dim] if isinstance(dim, int) else list(dim) if dim else None


def _reduction(function: Callable[..., Blob]) -> Callable[..., Blob]:
    def translate(node: Node, x: Blob, dim: Any = None, keepdim: bool = False, **_: Any) -> Blob:
        x = node.blob(x)
        return function(x, _axes(dim), keepdims=int(keepdim)) if node.shape_of(0) else x

    return translate


RULES.update({
    "sum": _reduction(ro.reduce_sum),
    "mean": _reduction(ro.reduce_mean),
    "amax": _reduction(ro.reduce_max),
    "amin": _reduction(ro.reduce_min),
    "logsumexp": _reduction(ro.reduce_log_sum_exp),
})  # fmt: skip


@rule("prod")
def _prod(node: Node, x: Blob, dim: int | None = None, keepdim: bool = False, **_: Any) -> Blob:
    """One factor after another, so that gradients are right where factors are 0."""
    x = node.blob(x) if dim is not None else ro.reshape(node.blob(x), [-1])
    axis, count = (0, prod(node.shape_of(0))) if dim is None else (dim, node.shape_of(0)[dim])
    if not 0 < count <= MOST_FACTORS:
        node.fail("a product of none or very many factors", wanted=f"1 to {MOST_FACTORS}", came=count)
    total, *others = ro.split(x, [1] * count, axis=axis) if count > 1 else (x,)
    for factor in others:
        total = total * factor
    return total if keepdim else ro.squeeze(total, [axis])


@rule("var", "var_mean")
def _var(node: Node, x: Blob, dim: Any = None, correction: Any = 1, keepdim: bool = False, **_: Any) -> Any:
    shape = node.shape_of(0)
    axes = _axes(dim) or list(range(len(shape)))
    count = prod(shape[axis] for axis in axes) - (1 if correction is None else correction)
    if count <= 0:
        node.fail("a variance of too few elements", came=f"{count} degrees of freedom")
    mean = ro.reduce_mean(x, axes)
    difference = x - mean
    var = ro.reduce_sum(difference * difference, axes, keepdims=int(keepdim)) * (1.0 / count)
    return (var, mean if keepdim else ro.squeeze(mean, axes)) if node.name == "var_mean" else var


@rule("std")
def _std(node: Node, x: Blob, dim: Any = None, correction: Any = 1, keepdim: bool = False, **_: Any) -> Blob:
    return _root(_var(node, x, dim, correction, keepdim))


def _root(square: Blob) -> Blob:
    """A square root whose gradient is 0 at 0, as PyTorch has it for deviations and norms."""
    none = ro.equal(square, 0.0)
    return ro.where(none, 0.0, ro.sqrt(ro.where(none, 1.0, square)))


@rule("linalg_vector_norm")
def _norm(node: Node, x: Blob, order: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Blob:
    axes, keep = _axes(dim), int(keepdim)
    if order == 2:
        return _root(ro.reduce_sum_square(x, axes, keepdims=keep))
    node.known("order of a norm", order, 1, 2, float("inf"))
    return (
        ro.reduce_sum(ro.abs(x), axes, keepdims=keep) if order == 1 else ro.reduce_max(ro.abs(x), axes, keepdims=keep)
    )


@rule("_softmax")
def _softmax(node: Node, x: Blob, dim: int, half_to_float: bool) -> Blob:
    return ro.softmax(x, dim)


@rule("_log_softmax")
def _log_softmax(node: Node, x: Blob, dim: int, half_to_float: bool) -> Blob:
    return ro.log_softmax(x, dim)


def _normalized(
    node: Node, x: Blob, sizes: Sequence[int], scale: Blob | None, bias: Blob | None, epsilon: float
) -> Blob:
    ones = node.full(1.0, sizes, "float") if scale is None else scale
    return ro.layer_normalization(x, ones, bias, -len(sizes), float(epsilon))


@rule("native_layer_norm")
def _layer_norm(
    node: Node, x: Blob, sizes: Sequence[int], scale: Blob | None, bias: Blob | None, epsilon: float
) -> tuple[Blob, None, None]:
    return _normalized(node, x, sizes, scale, bias, epsilon), None, None


@rule("native_group_norm")
def _group_norm(
    node: Node, x: Blob, scale: Blob | None, bias: Blob | None, N: int, C: int, area: int, groups: int, epsilon: float
) -> tuple[Blob, None, None]:
    shape, width = node.shape_of(0), C // groups * area
    y = _normalized(node, ro.reshape(x, [N, groups, width], allowzero=1), [width], None, None, epsilon)
    return _scaled(ro.reshape(y, shape, allowzero=1), scale, bias, [C, *[1] * (len(shape) - 2)]), None, None


@rule("_native_batch_norm_legit_no_training")
def _batch_norm(
    node: Node, x: Blob, scale: Blob | None, bias: Blob | None, mean: Blob, var: Blob, momentum: float, epsilon: float
) -> tuple[Blob, None, None]:
    at = [node.shape_of(0)[1], *[1] * (len(node.shape_of(0)) - 2)]
    y = (x - ro.reshape(mean, at)) * ro.reciprocal(ro.sqrt(ro.reshape(var, at) + epsilon))
    return _scaled(y, scale, bias, at), None, None


@rule("_native_batch_norm_legit_functional", "_native_batch_norm_legit")
def _batch_norm_in_training(node: Node, *_: Any) -> Any:
    node.fail(
        "BatchNorm in training changes its running statistics at every step",
        hint="Call .eval() on it, or use LayerNorm in a recurrent cell.",
    )


def _scaled(y: Blob, scale: Blob | None, bias: Blob | None, shape: Sequence[int]) -> Blob:
    y = y if scale is None else y * ro.reshape(scale, shape)
    return y if bias is None else y + ro.reshape(bias, shape)
