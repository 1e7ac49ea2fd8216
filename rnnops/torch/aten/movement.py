"""aten ops that make, move or order tensors, and matrix products.

Elements that a mask picks may be changed and put back: `y[mask] = f(y[mask])`.

PyTorch computes on as many elements as the mask picks, a number that depends on data. Here f is computed for all
elements, and the mask picks afterwards: `y = where(mask, f(where(mask, y, 1)), y)`. The inner `where` keeps values of f
at other elements, such as NaN of a logarithm, out of the gradient.

Masks may be nested: `z = y[m]; z[k] = f(z[k]); y[m] = z` is rewritten twice, from the inside out.

Limits: f consists of numbers, and of ops on one element each. The mask has the tensor's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

import rnnops as ro
from rnnops.net.blob import Blob
from rnnops.ops.linear_algebra import swap_last_axes
from rnnops.torch.aten.table import RULES, AtenNode, normal_axis, rule

VALUES = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
UNSET = ("empty", "empty_like", "empty_permuted", "new_empty", "empty_strided")


@rule("full", "full_like", "fill", "new_full", "scalar_tensor", *VALUES, *UNSET)
def _full(node: AtenNode, *arguments: Any, **_: Any) -> Blob:
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
def _arange(node: AtenNode, *bounds: Any, **_: Any) -> Blob:
    numbers = [bound for bound in bounds if bound is not None]
    values = torch.arange(*numbers, dtype=node.result().dtype)
    return node.net.constant(values.numpy(), node.out_kind)


RULES.update(
    {
        **dict.fromkeys(("_to_copy", "to"), lambda node, x, *_, **__: node.blob(x)),
        **dict.fromkeys(
            ("clone", "alias", "lift_fresh_copy", "lift_fresh", "contiguous", "lift"), lambda node, x, **_: x
        ),
        "detach": lambda node, x: ro.stop_gradient(x) if node.out_kind == "float" else x,
        "embedding": lambda node, weight, indices, *_: ro.gather(weight, indices, axis=0),
        "expand": lambda node, x, *_, **__: x if node.out_shape == node.shape_of(0) else ro.expand(x, node.out_shape),
        "index_select": lambda node, x, dim, indices: ro.gather(x, indices, axis=dim),
        "permute": lambda node, x, order: ro.transpose(x, [normal_axis(axis, len(order)) for axis in order]),
        "rand_like": lambda node, x, **_: ro.random_uniform_like(node.full(0.0, node.out_shape, node.out_kind)),
        "t": lambda node, x: ro.transpose(x, [1, 0]) if len(node.shape_of(0)) == 2 else x,
        **dict.fromkeys(("mm", "bmm", "mv", "dot"), lambda node, a, b: a @ b),
        "linalg_inv_ex": lambda node, x, **_: (
            ro.solve(x, node.net.constant(np.eye(node.shape_of(0)[-1]), "float")),
            None,
        ),
    }
)


@rule("with_slopes")
def _with_slopes(node: AtenNode, y: Blob, xs: list[Blob], slopes: list[Blob]) -> Blob:
    for x, slope in zip(xs, slopes, strict=True):
        y = ro.with_gradient(y, x, slope)
    return y


@rule("addmm", "baddbmm", "addmv")
def _addmm(node: AtenNode, bias: Blob, a: Blob, b: Blob, beta: float = 1, alpha: float = 1) -> Blob:
    y = a @ b if alpha == 1 else (a @ b) * alpha
    return y if beta == 0 else y + (bias if beta == 1 else bias * beta)


@rule("_linalg_solve_ex")
def _solve(node: AtenNode, a: Blob, b: Blob, *, left: bool = True, **_: Any) -> tuple[Blob, None, None, None]:
    ranks = [len(node.shape_of(i)) for i in range(2)]
    rank = node.result(0).dim()
    if rank < ranks[0]:  # b holds vectors
        x = ro.squeeze(ro.solve(a, ro.unsqueeze(b, [-1])), [-1])
    elif left:
        x = ro.solve(a, b)
    else:
        x = swap_last_axes(ro.solve(swap_last_axes(a, ranks[0]), swap_last_axes(b, ranks[1])), rank)
    return x, None, None, None


@rule("linalg_cholesky_ex", "cholesky")
def _cholesky(node: AtenNode, x: Blob, upper: bool = False, **_: Any) -> Any:
    """One half of the matrix is read. Both halves get the gradient."""
    rank = len(node.shape_of(0))
    x = swap_last_axes(x, rank) if upper else x
    other, half = swap_last_axes(x, rank), np.tril(np.ones(node.shape_of(0)[-2:])).astype(bool)
    both = (x + other) * 0.5
    read = ro.where(node.net.constant(half, "bool"), x, other)
    y = ro.cholesky(ro.stop_gradient(read) + (both - ro.stop_gradient(both)))
    y = swap_last_axes(y, rank) if upper else y
    return y if node.name == "cholesky" else (y, None)


@rule("_linalg_det", "_linalg_slogdet")
def _determinant(node: AtenNode, x: Blob) -> tuple[Blob | None, ...]:
    sign, logarithm = ro.slogdet(x)
    return (sign * ro.exp(logarithm) if node.name == "_linalg_det" else sign, logarithm, None, None)


@rule("convolution")
def _convolution(
    node: AtenNode, x: Blob, weight: Blob, bias: Blob | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> Blob:  # fmt: skip
    lists: dict[str, Any] = {
        "dilations": list(dilation),
        "strides": list(stride),
        "pads": [*padding, *padding],
        "group": groups,
    }
    if transposed:
        return ro.conv_transpose(x, weight, bias, output_padding=list(output_padding), **lists)
    return ro.conv(x, weight, bias, **lists)


@rule("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(
    node: AtenNode, x: Blob, kernel: Sequence[int], stride: Sequence[int] = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Blob, None]:  # fmt: skip
    return _pooled(node, ro.max_pool, x, kernel, stride, padding, ceil_mode, dilations=dilation), None


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _average_pool(
    node: AtenNode, x: Blob, kernel: Sequence[int], stride: Sequence[int] = (), padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Blob:  # fmt: skip
    node.known("divisor_override", divisor_override, None)
    count = int(count_include_pad)
    return _pooled(node, ro.average_pool, x, kernel, stride, padding, ceil_mode, count_include_pad=count)


def _pooled(
    node: AtenNode, pool: Callable[..., Blob], x: Blob, kernel: Sequence[int], stride: Sequence[int], padding: Any,
    ceil_mode: bool, **options: Any,
) -> Blob:  # fmt: skip
    node.known("ceil_mode", ceil_mode, False)
    axes = range(-len(kernel), 0)

    def each(value: Any) -> list[int]:
        return [value] * len(kernel) if isinstance(value, int) else list(value) * (len(kernel) // len(value))

    if "dilations" in options:
        options["dilations"] = each(options["dilations"])
    alone = len(node.shape_of(0)) == len(axes) + 1
    x = ro.unsqueeze(x, [0]) if alone else x
    y = pool(x, list(kernel), pads=each(padding) * 2, strides=each(stride or kernel), **options)
    return ro.squeeze(y, [0]) if alone else y


NEAREST = [f"{name}{count}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for count in (1, 2, 3)]
LINEAR = ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"]
LINEAR += ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"]


@rule(*NEAREST, *LINEAR)
def _resize(node: AtenNode, x: Blob, sizes: Sequence[int], *options: Any) -> Blob:
    """A product with a matrix along each axis, the last axis first. Nearest elements are looked up instead."""
    shape = node.shape_of(0)
    for place in reversed(range(len(sizes))):
        axis = len(shape) - len(sizes) + place
        matrix = _resizing(node, shape[axis], sizes, place, options)
        if node.name in NEAREST:
            x = ro.gather(x, node.net.constant(matrix.argmax(0), "int64"), axis=axis)
        elif axis == len(shape) - 1:
            x = x @ node.net.constant(matrix, "float")
        else:
            x = ro.reshape(x, [*shape[: axis + 1], prod(shape[axis + 1 :])], allowzero=1)
            x = node.net.constant(matrix.T, "float") @ x
        shape[axis] = sizes[place]
        x = ro.reshape(x, shape, allowzero=1)
    return x


def _resizing(node: AtenNode, count: int, sizes: Sequence[int], place: int, options: Sequence[Any]) -> Any:
    """The matrix `[count, size]` along an axis: PyTorch's op applied to a unit matrix."""

    def only(value: Any, other: Any) -> list[Any]:
        return [value if i == place else other for i in range(len(sizes))]

    flags = [option for option in options if isinstance(option, bool)]
    scales = only(options[len(flags) + place], None) if len(options) > len(flags) else []
    unit = torch.eye(count, dtype=torch.float64).reshape(1, count, *only(count, 1))
    resize: Any = node.node.target
    # two elements on each other axis: PyTorch's antialiasing is wrong where the last axis has size 1
    result = resize(unit.repeat(1, 1, *only(1, 2)), only(sizes[place], 2), *flags, *scales)
    return result.movedim(place + 2, 2).flatten(3)[0, ..., 0].numpy() if len(sizes) > 1 else result[0].numpy()


END = 2**62  # larger than any axis


@rule("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
def _reshape(node: AtenNode, x: Blob, *_: Any) -> Blob:
    shape = node.out_shape
    return x if shape == node.shape_of(0) else ro.reshape(x, shape, allowzero=int(0 in shape))


@rule("transpose")
def _transpose(node: AtenNode, x: Blob, i: int, j: int) -> Blob:
    order = list(range(len(node.shape_of(0))))
    if order:
        order[i], order[j] = order[j], order[i]
    return ro.transpose(x, order)


@rule("slice")
def _slice(node: AtenNode, x: Blob, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Blob:
    return ro.slice(x, [start or 0], [min(END if end is None else end, END)], axes=[dim], steps=[step])


@rule("select")
def _select(node: AtenNode, x: Blob, dim: int, index: int) -> Blob:
    at = index % node.shape_of(0)[dim]
    return ro.squeeze(ro.slice(x, [at], [at + 1], axes=[dim]), [dim])


@rule("slice_scatter", "select_scatter")
def _scatter(
    node: AtenNode, x: Blob, part: Blob, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Blob:
    """Joins the pieces before, the part, and the pieces after."""
    count, rank = node.out_shape[dim], len(node.out_shape)
    if node.name == "select_scatter":
        start, part = start % count, ro.unsqueeze(part, [normal_axis(dim, rank)])
        end = start + 1
    begin, stop, stride = slice(start, end, step).indices(count)
    if stride != 1:
        return _interleaved(node, x, node.blob(part), normal_axis(dim, rank), range(begin, stop, stride))
    pieces = [ro.slice(x, [0], [begin], axes=[dim])] if begin else []
    pieces.append(node.blob(part))
    pieces += [ro.slice(x, [stop], [count], axes=[dim])] if stop < count else []
    return pieces[0] if len(pieces) == 1 else ro.concat(pieces, axis=dim)


def _interleaved(node: AtenNode, x: Blob, part: Blob, axis: int, places: range) -> Blob:
    """Puts the elements of a part at places that are not neighbours. Other places keep their elements."""
    count, shape = node.out_shape[axis], [-1 if other == axis else 1 for other in range(len(node.out_shape))]
    index = np.arange(count)
    taken = (index >= places.start) & (index < places.stop) & ((index - places.start) % places.step == 0)
    source = np.where(taken, (index - places.start) // places.step, 0)
    spread = ro.gather(part, node.net.constant(source, "int64"), axis=axis)
    return ro.where(node.net.constant(taken.reshape(shape), "bool"), spread, x)


@rule("cat")
def _cat(node: AtenNode, blobs: Sequence[Blob], dim: int = 0) -> Blob:
    """Joins tensors. Tensors `[0]` of another rank are left out, as PyTorch does."""
    rank = len(node.out_shape)
    tensors = [argument.meta["val"] for argument in node.node.args[0]]
    kept = [node.blob(blob) for blob, tensor in zip(blobs, tensors, strict=True) if tensor.dim() == rank]
    return kept[0] if len(kept) == 1 else ro.concat(kept, axis=dim)


@rule("stack")
def _stack(node: AtenNode, blobs: Sequence[Blob], dim: int = 0) -> Blob:
    axis = normal_axis(dim, len(node.out_shape))
    parts = [ro.unsqueeze(node.blob(blob), [axis]) for blob in blobs]
    return parts[0] if len(parts) == 1 else ro.concat(parts, axis=axis)


@rule("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes")
def _split(node: AtenNode, x: Blob, _: Any, dim: int = 0) -> tuple[Blob, ...]:
    parts: Any = node.node.meta["val"]
    return ro.split(x, [node.size(part.shape[dim]) for part in parts], axis=dim)


@rule("unbind")
def _unbind(node: AtenNode, x: Blob, dim: int = 0) -> tuple[Blob, ...]:
    parts: Any = node.node.meta["val"]
    pieces = ro.split(x, [1] * len(parts), axis=dim) if len(parts) > 1 else (x,)
    return tuple(ro.squeeze(piece, [dim]) for piece in pieces)


@rule("constant_pad_nd")
def _pad(node: AtenNode, x: Blob, pads: Sequence[int], value: float = 0.0) -> Blob:
    count, rank = len(pads) // 2, len(node.out_shape)
    return ro.pad(x, [*pads[-2::-2], *pads[::-2]], value, axes=list(range(rank - count, rank)))


@rule("repeat")
def _repeat(node: AtenNode, x: Blob, repeats: Sequence[int]) -> Blob:
    shape = node.shape_of(0)
    missing = len(repeats) - len(shape)
    return ro.tile(ro.reshape(x, [1] * missing + shape, allowzero=1) if missing else x, list(repeats))


@rule("copy")
def _copy(node: AtenNode, old: Blob, new: Blob, *_: Any) -> Blob:
    cast = node.blob(new)
    return cast if node.shape_of(1) == node.out_shape else ro.expand(cast, node.out_shape)


@rule("index")
def _index(node: AtenNode, x: Blob, indices: Sequence[Blob | None]) -> Blob:
    """Joins several indices to one index into their joined axes. If these axes are apart, they go to the front."""
    given = [(axis, blob) for axis, blob in enumerate(indices) if blob is not None]
    if any(blob.dtype == "bool" for _, blob in given):
        node.fail("a tensor is indexed by a mask", hint="Use torch.where.")
    if len(given) == 1:
        return ro.gather(x, given[0][1], axis=given[0][0])
    shape, axes = node.shape_of(0), [axis for axis, _ in given]
    first = axes[0] if axes[-1] - axes[0] + 1 == len(axes) else 0
    others = [axis for axis in range(len(shape)) if axis not in axes]
    order = [*others[:first], *axes, *others[first:]]
    x = x if order == sorted(order) else ro.transpose(x, order)
    sizes = [shape[axis] for axis in axes]
    merged = [*(shape[axis] for axis in others[:first]), prod(sizes), *(shape[axis] for axis in others[first:])]
    index = _joined_index(node, [blob for _, blob in given], sizes)
    return ro.gather(ro.reshape(x, merged, allowzero=1), index, axis=first)


def _joined_index(node: AtenNode, indices: Sequence[Blob], sizes: Sequence[int]) -> Blob:
    """One index into joined axes. It is out of range where one of the indices is."""
    joined, outside = node.blob(0, "int64"), node.blob(False, "bool")
    for index, size in zip(indices, sizes, strict=True):
        index = node.blob(index, "int64")
        outside = outside | (index < -size) | ~(index < size)
        joined = joined * size + ro.where(index < 0, index + size, index)
    return ro.where(outside, node.blob(prod(sizes), "int64"), joined)


@rule("scatter", "scatter_add", "scatter_reduce")
def _scatter_elements(
    node: AtenNode, x: Blob, dim: int, index: Blob, source: Any, reduce: str | None = None, include_self: bool = True
) -> Blob:
    node.known("reduce", reduce, None, "add", "sum")
    node.known("include_self", include_self, True)
    sizes = node.shape_of(2)
    if not isinstance(source, Blob):
        source = node.full(source, sizes, node.out_kind)
    elif node.shape_of(3) != sizes:
        source = ro.slice(source, [0] * len(sizes), sizes)
    added = "add" if reduce or node.name == "scatter_add" else "none"
    return ro.scatter_elements(x, node.blob(index, "int64"), node.blob(source), dim, added)


@rule("diagonal")
def _diagonal(node: AtenNode, x: Blob, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Blob:
    """Picks the diagonal of two axes by known places in their joined axis, which comes last."""
    shape = node.shape_of(0)
    axes = [normal_axis(dim, len(shape)) for dim in (dim1, dim2)]
    others = [axis for axis in range(len(shape)) if axis not in axes]
    rows, columns = (shape[axis] for axis in axes)
    places = np.arange(node.out_shape[-1]) * (columns + 1) + max(offset, 0) + max(-offset, 0) * columns
    joined = ro.reshape(
        ro.transpose(x, [*others, *axes]), [*(shape[axis] for axis in others), rows * columns], allowzero=1
    )
    return ro.gather(joined, node.net.constant(places, "int64"), axis=len(others))


@rule("unfold")
def _unfold(node: AtenNode, x: Blob, dim: int, size: int, step: int) -> Blob:
    """Windows along an axis. The elements of a window become the last axis."""
    rank = len(node.shape_of(0))
    if not rank:
        return ro.reshape(x, node.out_shape)
    axis = normal_axis(dim, rank)
    places = np.arange(node.out_shape[axis])[:, None] * step + np.arange(size)
    windows = ro.gather(x, node.net.constant(places, "int64"), axis=axis)
    return ro.transpose(windows, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])


@rule("gather")
def _gather(node: AtenNode, x: Blob, dim: int, index: Blob, sparse_grad: bool = False) -> Blob:
    shape, chosen = node.shape_of(0), node.shape_of(2)
    axis = normal_axis(dim, len(shape))
    if not shape or any(a != b for i, (a, b) in enumerate(zip(shape, chosen, strict=True)) if i != axis):
        node.fail("an index does not have the shape of the result", wanted=shape, came=chosen)
    return taken(node, x, shape, axis, index)


def taken(node: AtenNode, x: Blob, shape: Sequence[int], axis: int, index: Blob) -> Blob:
    """Elements of x along an axis, in this shape. Each index is compared with all places."""
    places = np.arange(shape[axis]).reshape([-1 if other == axis else 1 for other in range(len(shape) + 1)])
    here = ro.equal(ro.unsqueeze(node.blob(index, "int64"), [axis]), node.net.constant(places, "int64"))
    return ro.reduce_sum(ro.where(here, ro.unsqueeze(x, [axis + 1]), node.blob(0, x.dtype)), [axis], keepdims=0)


@rule("index_put", "_unsafe_index_put")
def _index_put(node: AtenNode, x: Blob, indices: Sequence[Blob | None], value: Blob, accumulate: bool = False) -> Blob:
    """Puts values at places given by integers, or one value where a mask is set."""
    given = [(axis, blob) for axis, blob in enumerate(indices) if blob is not None]
    if all(blob.dtype != "bool" for _, blob in given):
        return _put(node, x, given, node.blob(value), accumulate)
    mask, count = indices[0], node.node.args[2].meta["val"].numel()
    if len(indices) != 1 or mask is None or accumulate or count != 1:
        node.fail("a tensor is written at places of a mask", hint="Use torch.where, or one value by one mask.")
    missing = len(node.out_shape) - len(node.node.args[1][0].meta["val"].shape)
    rank = len(node.out_shape)
    wide = ro.unsqueeze(mask, list(range(rank - missing, rank))) if missing else mask
    return ro.where(wide, ro.reshape(node.blob(value), []), x)


def _put(node: AtenNode, x: Blob, given: Sequence[tuple[int, Blob]], value: Blob, accumulate: bool) -> Blob:
    """Moves the axes of the indices to the front, writes, and moves them back."""
    shape, axes = node.out_shape, [axis for axis, _ in given]
    at = np.broadcast_shapes(*(tuple(node.shape(node.node.args[1][axis].meta["val"])) for axis in axes))
    others = [axis for axis in range(len(shape)) if axis not in axes]
    first = axes[0] if axes[-1] - axes[0] + 1 == len(axes) else 0  # place of the indices' axes in the value
    sizes, order = [shape[axis] for axis in others], [*axes, *others]
    places = ro.concat([ro.unsqueeze(ro.expand(node.blob(blob, "int64"), at), [-1]) for _, blob in given], axis=-1)
    value = ro.expand(value, [*sizes[:first], *at, *sizes[first:]])
    end = first + len(at)
    value = ro.transpose(value, [*range(first, end), *range(first), *range(end, len(sizes) + len(at))])
    y = ro.scatter_nd(ro.transpose(x, order), places, value, "add" if accumulate else "none")
    return ro.transpose(y, [order.index(axis) for axis in range(len(shape))])


@rule("flip")
def _flip(node: AtenNode, x: Blob, dims: list[int]) -> Blob:
    if not dims:
        return x
    far = 2**31 - 1
    return ro.slice(x, [far] * len(dims), [-far] * len(dims), axes=list(dims), steps=[-1] * len(dims))


@rule("argmax", "argmin")
def _argmax(node: AtenNode, x: Blob, dim: int | None = None, keepdim: bool = False) -> Blob:
    x = _turned(node, x) if node.name == "argmin" else x
    if dim is None:
        index = ro.argmax(ro.reshape(x, [-1]), 0, 0)
        return ro.reshape(index, node.out_shape) if keepdim else index
    return ro.argmax(x, dim, int(keepdim))


@rule("max", "min")
def _max(node: AtenNode, x: Blob, dim: int | None = None, keepdim: bool = False) -> Blob | tuple[Blob, Blob]:
    """The largest or smallest element. With an axis: also its index, and one element gets the gradient.

    Without an axis equal elements share the gradient.
    """
    if dim is None:
        return (ro.reduce_max if node.name == "max" else ro.reduce_min)(x, keepdims=0) if node.shape_of(0) else x
    values, indices = ro.topk(x if node.name == "max" else _turned(node, x), 1, dim)
    values = values if node.name == "max" else ro.neg(values)
    return (values, indices) if keepdim else (ro.squeeze(values, [dim]), ro.squeeze(indices, [dim]))


@rule("sort")
def _sort(node: AtenNode, x: Blob, *order: Any, **named: Any) -> tuple[Blob, Blob]:
    # aten.sort.stable has one more argument in front
    if "stable" in named or (order and not isinstance(order[0], int)):
        order = order[1:]
    defaults: list[Any] = [-1, False]
    dim, descending = [*order, *defaults[len(order) :]]
    dim, descending = named.get("dim", dim), named.get("descending", descending)
    return _ordered(node, x, node.shape_of(0), node.shape_of(0)[dim], dim, descending)


@rule("median", "kthvalue")
def _median(node: AtenNode, x: Blob, *place: Any, **named: Any) -> Any:
    """The lower of the two middle elements. Without an axis equal elements share the gradient."""
    k, place = (place[0], place[1:]) if node.name == "kthvalue" else (None, place)
    defaults: list[Any] = [-1, False]
    dim, keepdim = [*place, *defaults[len(place) :]]
    dim, keepdim = named.get("dim", dim), named.get("keepdim", keepdim)
    whole = not isinstance(node.node.meta["val"], tuple | list)
    if whole:
        x = ro.reshape(x, [-1])
    count = prod(node.shape_of(0)) if whole else node.shape_of(0)[dim]
    k = (count + 1) // 2 if k is None else k
    shape = [count] if whole else node.shape_of(0)
    parts = tuple(ro.slice(part, [k - 1], [k], axes=[dim]) for part in _ordered(node, x, shape, k, dim, False))
    if node.name == "median":  # NaN if any element is NaN
        first = ro.topk(x, 1, dim)
        parts = tuple(ro.where(ro.equal(first[0], first[0]), *pair) for pair in zip(parts, first, strict=True))
    parts = parts if keepdim else tuple(ro.squeeze(part, [dim]) for part in parts)
    if not whole:
        return parts
    return ro.reduce_max(ro.where(x > ro.stop_gradient(parts[0]), -inf, x), keepdims=0)


RULES["argsort"] = lambda node, x, *order, **named: _sort(node, x, *order, **named)[1]
RULES["topk"] = lambda node, x, k, dim=-1, largest=True, *_, **__: _ordered(node, x, node.shape_of(0), k, dim, largest)


def _ordered(node: AtenNode, x: Blob, shape: list[int], k: int, dim: int, largest: bool) -> tuple[Blob, Blob]:
    """The first k elements by size, and their indices. NaN is larger than infinity."""
    if largest:
        return ro.topk(x, k, dim)
    finite = ro.max(_turned(node, x), node.net.constant(torch.finfo(node.float_dtype).min, "float"))
    indices = ro.topk(ro.where(ro.equal(x, x), finite, -inf), k, dim)[1]
    return taken(node, x, shape, dim % len(shape), indices), indices


def _turned(node: AtenNode, x: Blob) -> Blob:
    if x.dtype != "float":
        node.fail("the smallest of integers is not translated", wanted="floats", came=x.dtype)
    return ro.neg(x)


aten = torch.ops.aten
PUTS = (aten.index_put.default, aten._unsafe_index_put.default)
BY_ELEMENT = (  # ops on single elements that PyTorch does not mark as pointwise
    aten.detach.default, aten.clone.default, aten.alias.default, aten._to_copy.default, aten.where.ScalarOther,
    aten.masked_fill.Tensor,
)  # fmt: skip


def spread_masks(graph: fx.Graph) -> None:
    """Rewrites `y[mask] = ...` as ops on whole tensors.

    The new values are numbers, or a function of the elements that the mask picks.
    """
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
    """True if a node depends only on elements that the mask picks and on numbers.

    Args:
        found: gets each such node; True if it depends on picked elements.
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
    """True if two arguments are the same value, or are computed alike."""
    if not isinstance(one, fx.Node) or not isinstance(other, fx.Node):
        return type(one) is type(other) and bool(one == other)
    alike = one.op == other.op == "call_function" and one.target is other.target and one.kwargs == other.kwargs == {}
    is_random = torch.Tag.nondeterministic_seeded in getattr(one.target, "tags", ())
    pairs = zip(one.args, other.args, strict=False)
    return one is other or (
        alike and not is_random and len(one.args) == len(other.args) and all(_is_equal(a, b) for a, b in pairs)
    )


def _whole(graph: fx.Graph, old: fx.Node, mask: fx.Node, whole: dict[fx.Node, fx.Node], picks: bool) -> fx.Node:
    """The node for all elements, with 1 where the mask does not pick."""
    kind = old.meta["val"].dtype
    if picks:
        made = graph.call_function(aten.where.ScalarOther, (mask, old.args[0], True if kind == torch.bool else 1))
    else:
        made = graph.node_copy(old, lambda node: whole.get(node, node))
    made.meta["val"] = mask.meta["val"].to(kind)
    return made
