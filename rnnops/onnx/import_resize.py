"""How Resize and Upsample of ONNX become look-ups and products, axis by axis.

Where a size is open, an axis that grows by a whole number, or to a size that follows from shapes, is looked up by
integer arithmetic in the run; everything else needs fixed sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.node import Node, Rule
from rnnops.onnx.probes import fixed_dims
from rnnops.onnx.resize_open import resized_open
from rnnops.onnx.resize_taps import Taps, Way, taps_of
from rnnops.ops.comparison import identity, where
from rnnops.ops.indexing import gather
from rnnops.ops.movement import transpose
from rnnops.ops.products import matmul
from rnnops.types import is_float

MOST = 2**22  # elements of a resized axis, or weights of a matrix: what reading a file may cost has an end
FEW = 2  # taps that are looked up one by one; more are a product with a matrix
TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
Region = dict[int, tuple[float, float]]  # axis -> where it begins and ends, from 0 to 1
Targets = dict[int, tuple[int | None, float]]  # axis -> its new size, None where only a scale says it, and the scale


def resize(node: Node) -> Sequence[Blob]:
    """Scales, or sizes, of all axes or of some."""
    if node.opset < 11:
        return upsample(node)
    x, rank = node.input(0), node.rank(node.input(0))
    axes = [axis % rank for axis in node.attr("axes", "ints", tuple(range(rank)))] if rank else []
    way, value = way_of(node), node.attr("extrapolation_value", "float", 0.0)
    policy = node.attr("keep_aspect_ratio_policy", "string", "stretch")
    scales, sizes = (known_list(node, i, len(axes)) for i in (2, 3))
    if scales is None and not (node.has(3) and wide(node, 3)):
        node.fail("neither scales nor sizes are known", wanted="one of them as a constant", came="none")
    if scales is None and sizes is None:
        return (by_open_sizes(node, x, axes, way),)
    pairs = dict(zip(axes, targets(node, axes, scales, sizes, policy), strict=True))
    return (resized(node, x, pairs, way, regions(node, axes, way), value),)


def upsample(node: Node) -> Sequence[Blob]:
    """Resize before op set 11, and Upsample: places are those of the corner, the nearest below."""
    x, rank = node.input(0), node.rank(node.input(0))
    given = node.required("scales", "floats") if node.opset < 9 else known_list(node, 1, rank)
    if given is None:
        node.fail("the scales are not known before a run", wanted="a constant")
    mode = MODES.get(node.attr("mode", "string", "nearest"))
    if mode not in ("nearest", "linear") or len(given) != rank or min(given, default=1.0) <= 0:
        node.fail("the mode or the scales make no sense", wanted=f"{rank} positive scales", came=list(given))
    if mode == "nearest" and min(given, default=1.0) < 1:
        node.fail("which element is the nearest where an axis shrinks is not agreed on before op set 11")
    way = Way(mode, "asymmetric", "floor")
    pairs: Targets = {axis: (None, float(scale)) for axis, scale in enumerate(given)}
    return (resized(node, x, pairs, way, {}, 0.0),)


def way_of(node: Node) -> Way:
    """The attributes. Raises OnnxError for words that are unknown."""
    mode = node.attr("mode", "string", "nearest")
    transform = node.attr("coordinate_transformation_mode", "string", "half_pixel")
    nearest = node.attr("nearest_mode", "string", "round_prefer_floor")
    antialias, exclude = bool(node.attr("antialias", "int", 0)), bool(node.attr("exclude_outside", "int", 0))
    if mode not in MODES or transform not in TRANSFORMS or nearest not in NEAREST_MODES:
        node.fail("it resizes in a way that is unknown", came=f"{mode}, {transform}, {nearest}")
    if mode == "nearest" and antialias:
        node.fail("antialias goes with kernels", wanted="mode 'linear' or 'cubic'", came=mode)
    return Way(MODES[mode], transform, nearest, node.attr("cubic_coeff_a", "float", -0.75), antialias, exclude)


def known_list(node: Node, i: int, count: int) -> list[float] | None:
    """One number for each axis as input i has them, None where there are none or they are not known."""
    value = node.known_value(i)
    if value is None or not value.size:
        return None
    if value.shape != (count,):
        node.fail("one number for each axis", wanted=count, came=list(value.shape))
    numbers: list[float] = value.tolist()
    return numbers


def wide(node: Node, i: int) -> bool:
    """Whether an input is no empty list."""
    known = node.known(node.input(i))
    return known is None or known[0].shape != (0,)


def targets(
    node: Node, axes: Sequence[int], scales: list[float] | None, sizes: list[float] | None, policy: str
) -> list[tuple[int | None, float]]:
    """For each axis its new size, None where only a scale says it, and the scale."""
    if scales is not None:
        if min(scales, default=1.0) <= 0:
            node.fail("a scale is not above 0", came=scales)
        return [(None, float(scale)) for scale in scales]
    known = node.known(node.input(0))
    dims = [fixed_dims(known)[axis] if known else None for axis in axes]
    wanted = [int(size) for size in sizes or ()]
    if any(not isinstance(dim, int) for dim in dims) or min(wanted, default=0) < 0:
        node.fail(
            "sizes of an array whose own sizes the file leaves open",
            hint="Give those that are open: load(path, sizes={...}).",
        )
    ratios = [size / max(int(dim or 0), 1) for size, dim in zip(wanted, dims, strict=True)]
    if policy == "stretch":
        return list(zip(wanted, ratios, strict=True))
    if policy not in ("not_larger", "not_smaller"):
        node.fail("unknown keep_aspect_ratio_policy", came=policy)
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [(int(ratio * int(dim or 0) + 0.5), ratio) for dim in dims]


def regions(node: Node, axes: Sequence[int], way: Way) -> Region:
    """What part of each axis is resized."""
    if way.transform != "tf_crop_and_resize":
        return {}
    value = node.known_value(1)
    if value is None or value.shape != (2 * len(axes),):
        node.fail("the region is not known before a run", wanted=f"a constant of {2 * len(axes)} numbers")
    return {axis: (float(value[i]), float(value[i + len(axes)])) for i, axis in enumerate(axes)}


def resized(node: Node, x: Blob, pairs: Targets, way: Way, region: Region, value: float) -> Blob:
    """An array resized along axes, one after the other."""
    known, y = node.known(x), x
    dims = fixed_dims(known) if known else ()
    outside: Any = None
    for axis, (wanted, scale) in pairs.items():
        if scale == 1.0 and axis not in region and wanted in (None, dims[axis]):
            continue
        size = dims[axis]
        if not isinstance(size, int):
            y = resized_open(node, y, len(dims), axis, scale, way)
            continue
        count = int(np.floor(size * scale)) if wanted is None else wanted
        if not size and count:
            node.fail("an empty axis has nothing to repeat", came=axis)
        if max(size, count) > MOST:
            node.fail("an axis is too long", wanted=f"at most {MOST} elements", came=max(size, count))
        taps = taps_of(way, size, count, scale, region.get(axis, (0.0, 1.0)))
        y = y if taps.are_all(size) else interpolated(node, y, len(dims), axis, taps, size)
        if taps.outside.any():
            along = taps.outside.reshape([-1 if i == axis else 1 for i in range(len(dims))])
            outside = along if outside is None else outside | along
    return identity(y) if outside is None else where(node.net.constant(outside), value, y)


def interpolated(node: Node, x: Blob, rank: int, axis: int, taps: Taps, size: int) -> Blob:
    """Elements of an axis as weighted sums of others."""
    if taps.places.shape[1] == 1:
        return gather(x, node.net.constant(taps.places[:, 0], "int64"), axis)
    if not is_float(x.dtype):
        node.fail("integers are not interpolated", wanted="mode 'nearest', or floats", came=x.dtype)
    if taps.places.shape[1] > FEW:
        if size * len(taps.places) > MOST:
            node.fail("two axes are too long", wanted=f"at most {MOST} weights", came=size * len(taps.places))
        return by_matrix(node, x, rank, axis, taps.matrix(size))
    parts = []
    for place, weight in zip(taps.places.T, taps.weights.T, strict=True):
        part = gather(x, node.net.constant(place, "int64"), axis)
        along = weight.astype(node.float_dtype).reshape(-1, *(1,) * (rank - axis - 1))
        parts.append(part * node.net.constant(along))
    return parts[0] + parts[1]


def by_matrix(node: Node, x: Blob, rank: int, axis: int, matrix: np.ndarray[Any, Any]) -> Blob:
    """The product of an axis with a matrix of weights, [new size, size]."""
    if axis == rank - 2:
        return matmul(node.net.constant(matrix.astype(node.float_dtype)), x)
    perm = [*(i for i in range(rank) if i != axis), axis]
    last = x if axis == rank - 1 else transpose(x, perm)
    y = matmul(last, node.net.constant(matrix.T.astype(node.float_dtype)))
    return y if axis == rank - 1 else transpose(y, [perm.index(i) for i in range(rank)])


def by_open_sizes(node: Node, x: Blob, axes: Sequence[int], way: Way) -> Blob:
    """Sizes that follow from shapes, which the file leaves open."""
    if node.attr("keep_aspect_ratio_policy", "string", "stretch") != "stretch":
        node.fail(
            "an aspect ratio is kept where sizes are open", hint="Give those that are open: load(path, sizes={...})."
        )
    y, rank = x, node.rank(x)
    for i, axis in enumerate(axes):
        y = resized_open(node, y, rank, axis, (node.input(3), i), way)
    return identity(y)


RESIZE_RULES: dict[str, Rule] = {"Resize": resize, "Upsample": upsample}
