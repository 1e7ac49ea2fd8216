"""ONNX ops that mask, scatter, order and resize.

**Resize and Upsample** become look-ups and products, axis by axis. If a size is open, an axis is looked up by integer
arithmetic in the run. It must grow by a whole number, or to a size that is computed from shapes. All other resizes need
fixed sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.net.blob import Blob
from rnnops.onnx.import_groups import extent, inside, number, numbers_along
from rnnops.onnx.import_ops import along_axis, plain
from rnnops.onnx.node import Node, Rule, element_dtype
from rnnops.ops.arithmetic import neg
from rnnops.ops.comparison import cast, equal, identity, max as max_, min as min_, where
from rnnops.ops.indexing import gather, slice as slice_
from rnnops.ops.linear_algebra import matmul
from rnnops.ops.loss import one_hot
from rnnops.ops.movement import concat, reshape, squeeze, transpose, unsqueeze
from rnnops.ops.ordering import argmax, cumprod, cumsum, topk
from rnnops.ops.scatter import scatter_elements
from rnnops.ops.shapes import range as range_, shape
from rnnops.types import Array, is_float


def eye_like(node: Node) -> Sequence[Blob]:
    """1 on a diagonal of a matrix, 0 elsewhere. The dtype is the input's, or that of the attribute."""
    x, k, to = node.input(0), node.attr("k", "int", 0), node.attr("dtype", "int")
    if node.rank(x) != 2:
        node.fail("the input is not a matrix", wanted="two axes", came=node.rank(x))
    dtype = x.dtype if to is None else node.dtype(element_dtype(to, "the result of an EyeLike"))
    rows, columns = range_(0, extent(x, 0)), range_(0, extent(x, 1))
    here = unsqueeze(rows, [1])
    return (cast(equal(here + k if k else here, columns), dtype),)


def non_zero(node: Node) -> Sequence[Blob]:
    """The indices of nonzero elements in an array that is known before a run."""
    found = np.array(np.nonzero(_known(node, 0, "which elements are not zero")), np.int64)
    return (node.net.constant(found, "int64"),)


def compress(node: Node) -> Sequence[Blob]:
    """The slices that a condition takes, which must be known before a run."""
    x, condition, axis = node.input(0), _known(node, 1, "which slices stay"), node.attr("axis", "int")
    if condition.ndim != 1:
        node.fail("the condition has one axis", came=condition.ndim)
    of = x if axis is not None else reshape(x, [-1])
    return (gather(of, node.net.constant(np.flatnonzero(condition), "int64"), axis or 0),)


def _known(node: Node, i: int, what: str) -> np.ndarray[Any, Any]:
    value = node.known_value(i)
    if value is None:
        node.fail(
            f"{what} decides a shape, but cannot be known before a run",
            blob=node.bound[node.input(i).name],
            wanted="what follows from constants and fixed sizes",
            hint="If it is the same in all runs, give the inputs that decide it: load(path, constants={...}).",
        )
    return value


def old_scatter(node: Node) -> Sequence[Blob]:
    """Scatter is the former name of ScatterElements."""
    return (scatter_elements(node.input(0), node.input(1), node.input(2), node.attr("axis", "int", 0)),)


def gather_nd(node: Node) -> Sequence[Blob]:
    """Slices by their places. The first axes of the array are joined to one for this."""
    data, indices, batch = node.input(0), node.input(1), node.attr("batch_dims", "int", 0)
    rank, of = node.rank(data), node.rank(indices)
    columns = node.dims(indices)[-1] if of else None
    if not isinstance(columns, int) or not 0 <= batch < min(rank, of) or not 0 < columns <= rank - batch:
        node.fail("the last axis of indices is longer than the rank of the data", came=columns)
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
    """An array whose first axes are joined to one."""
    if first == rank:
        return reshape(data, [-1])
    rest = shape(data, first)  # the sizes come before the constant, which a file has right before the op that reads it
    return reshape(data, concat(data.net.constant([-1], "int64"), rest, axis=0))


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
    """TopK. k was an attribute before op set 10, and may be computed from shapes. Results are always sorted."""
    node.attr("sorted", "int")
    axis, largest, x = node.attr("axis", "int", -1), node.attr("largest", "int", 1), node.input(0)
    if node.opset < 10:
        k: Blob | int = node.required("k", "int")
    else:
        k = number(node, 1) if node.value(1) is not None else node.input(1)
    values, indices = topk(x if largest else turned(x), k, axis)
    return values if largest else turned(values), indices


def cumulated(function: Callable[..., Blob]) -> Rule:
    """A rule for CumSum or CumProd, whose axis is an input."""

    def rule(node: Node) -> Sequence[Blob]:
        exclusive, reverse = (node.attr(name, "int", 0) for name in ("exclusive", "reverse"))
        return (function(node.input(0), number(node, 1), exclusive, reverse),)

    return rule


def turned(x: Blob) -> Blob:
    """Negates numbers so that their order turns around. Applied twice, it gives the numbers back."""
    if is_float(x.dtype):
        return neg(x)
    return (np.iinfo(x.dtype).max if x.dtype.startswith("u") else -1) - x


def first_largest(node: Node, x: Blob, axis: int) -> Blob:
    """1 at the first largest element along an axis, 0 elsewhere."""
    size, place = shape(x, axis, None if axis == -1 else axis + 1), argmax(x, axis, 0)
    return one_hot(place, size, np.array([0, 1], node.float_dtype), axis=axis)


SAME = 1e-7  # part of an axis; places that are nearer to each other than this count as one
NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True)
class ResizeMode:
    """The attributes of a Resize.

    Args:
        mode: `"nearest"`, `"linear"` or `"cubic"`; transform: the coordinate_transformation_mode.
        nearest: the rule that picks a neighbour; cubic: the coefficient a; antialias: True if kernels widen where an
            axis shrinks; exclude: True if places outside get no weight. Else places outside repeat the border.
    """

    mode: str = "nearest"
    transform: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude: bool = False


@dataclass(frozen=True)
class Taps:
    """The sources of n elements of a resized axis: [n, k] places, [n, k] weights, [n] True for elements outside."""

    places: Array
    weights: Array
    outside: Array

    def are_all(self, size: int) -> bool:
        """True if each element is its own source, so that the axis stays."""
        same = self.places.shape == (size, 1) and bool((self.places[:, 0] == np.arange(size)).all())
        return same and not self.outside.any()

    def matrix(self, size: int) -> Array:
        """The weights as a matrix, [n, size]."""
        found = np.zeros((len(self.places), size))
        np.add.at(found, (np.arange(len(found))[:, None], self.places), self.weights)
        return found


def taps_of(way: ResizeMode, size: int, wanted: int, scale: float, region: tuple[float, float]) -> Taps:
    """The taps of an axis.

    Args:
        size, wanted: number of elements before and after; scale: factor of growth, which may differ from wanted / size.
        region: first and last of the axis, from 0 to 1, for the transform `"tf_crop_and_resize"`.
    """
    x = sources(way.transform, size, wanted, scale, region)
    # A scale that is meant to be 0.6 may be 0.60000002, which would move elements off the middle between two places.
    halves = np.round(2 * x) / 2
    x = np.where(np.abs(x - halves) < SAME * max(size, 1), halves, x)
    outside = (x < 0) | (x > size - 1) if way.transform == "tf_crop_and_resize" else np.zeros(wanted, bool)
    if way.mode == "nearest":
        places = NEAREST[way.nearest](x)[:, None]
        weights = np.ones_like(places)
    else:
        shrink = min(scale, 1.0) if way.antialias else 1.0
        reach = int(np.ceil((1 if way.mode == "linear" else 2) / shrink))
        places = np.floor(x)[:, None] + np.arange(1 - reach, reach + 1)
        weights = kernel(way, np.abs(places - x[:, None]) * shrink)
        weights = np.where((places < 0) | (places >= size), 0.0, weights) if way.exclude else weights
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return Taps(np.clip(places, 0, size - 1).astype(np.int64), weights, outside)


def kernel(way: ResizeMode, distance: Array) -> Array:
    """The weight of an element at this distance."""
    if way.mode == "linear":
        return np.maximum(1.0 - distance, 0.0)
    a, d = way.cubic, distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def sources(transform: str, size: int, wanted: int, scale: float, region: tuple[float, float]) -> Array:
    """For each element, its place on the old axis, which may lie between two old elements."""
    i, whole = np.arange(wanted, dtype=np.float64), scale * size
    if transform == "align_corners":
        return i * (size - 1) / (whole - 1) if whole != 1 else i * 0.0
    if transform == "asymmetric":
        return i / scale
    if transform == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if transform == "tf_crop_and_resize":
        first, last = (edge * (size - 1) for edge in region)
        return first + (i * (last - first) / (whole - 1) if whole != 1 else (i * 0.0 + (last - first) / 2))
    if transform == "pytorch_half_pixel" and whole <= 1:
        return i * 0.0
    shift = size / 2 * (1 - wanted / whole) if transform == "half_pixel_symmetric" else 0.0
    return shift + (i + 0.5) / scale - 0.5


OPEN_TRANSFORMS = ("half_pixel", "asymmetric", "align_corners")
Target = float | tuple[Blob, int]  # a scale, or the list of sizes and the place of this axis in it


def resized_open(node: Node, x: Blob, rank: int, axis: int, target: Target, way: ResizeMode) -> Blob:
    """Resizes an axis of open size. Raises OnnxError for a mode that needs fixed sizes.

    Element i of the result lies at the place `above / below` of the old axis. Both are integers.
    """
    check_way(node, x, target, way)
    size = extent(x, axis)
    if isinstance(target, tuple):
        sizes, place = target
        wanted = squeeze(slice_(cast(sizes, "int64"), [place], [place + 1]), [0])
    else:
        wanted = size * int(target)
    i = range_(0, wanted)
    above, below = fraction(way, i, size, wanted)
    if way.mode == "nearest":
        return gather(x, place_inside(OPEN_NEAREST[way.nearest](above, below), size), axis)
    first = floor_of(above, below)
    along = [-1, *(1,) * (rank - axis - 1)]
    weight = reshape(cast(above - first * below, x.dtype) / cast(below, x.dtype), along)
    left, right = (gather(x, place_inside(place, size), axis) for place in (first, first + 1))
    return left * (1.0 - weight) + right * weight


def check_way(node: Node, x: Blob, target: Target, way: ResizeMode) -> None:
    """Raise OnnxError for a mode that integer arithmetic on sizes cannot do."""
    fits = (
        way.mode in ("nearest", "linear") and way.transform in OPEN_TRANSFORMS and not way.antialias and not way.exclude
    )
    whole = isinstance(target, tuple) or (target == int(target) and target >= 1)
    if not fits or not whole or (way.mode != "nearest" and not is_float(x.dtype)):
        node.fail(
            "this mode cannot resize an axis whose size the file leaves open",
            wanted=f"nearest or linear, {' or '.join(OPEN_TRANSFORMS)}, by a whole number or to sizes that follow",
            came=f"{way.mode}, {way.transform}" + ("" if isinstance(target, tuple) else f", by {target}"),
            hint=GIVE_SIZES,
        )


def fraction(way: ResizeMode, i: Blob, size: Blob, wanted: Blob) -> tuple[Blob, Blob]:
    """The places of elements on the old axis, as numerators and a positive denominator."""
    if way.transform == "asymmetric":
        return i * size, max_(wanted, 1)
    if way.transform == "align_corners":
        return i * (size - 1), max_(wanted - 1, 1)
    return (i * 2 + 1) * size - wanted, max_(wanted * 2, 1)


def floor_of(above: Blob, below: Blob) -> Blob:
    """The quotient rounded down. It must be -1 or more."""
    return (above + below) / below - 1


OPEN_NEAREST: dict[str, Callable[[Blob, Blob], Blob]] = {
    "round_prefer_floor": lambda above, below: floor_of(above * 2 + below - 1, below * 2),
    "round_prefer_ceil": lambda above, below: floor_of(above * 2 + below, below * 2),
    "floor": floor_of,
    "ceil": lambda above, below: floor_of(above + below - 1, below),
}


def place_inside(place: Blob, size: Blob) -> Blob:
    """The nearest place that lies on the axis."""
    return min_(max_(place, 0), size - 1)


MOST = 2**22  # most elements of a resized axis, and most weights of a matrix: reading a file must not cost too much
GIVE_SIZES = "Give the sizes that are open: load(path, sizes={...})."
FEW = 2  # up to this number of taps, each is looked up; more taps are a product with a matrix
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
NEAREST_MODES = tuple(NEAREST)
Region = dict[int, tuple[float, float]]  # axis -> its begin and end in the old axis, from 0 to 1
Targets = dict[int, tuple[int | None, float]]  # axis -> its new size (None if only the scale gives it), and the scale


def resize(node: Node) -> Sequence[Blob]:
    """Resize: scales, or sizes, of all axes or of some."""
    if node.opset < 11:
        return upsample(node)
    x, rank = node.input(0), node.rank(node.input(0))
    axes = [axis % rank for axis in node.attr("axes", "ints", tuple(range(rank)))] if rank else []
    way, value = way_of(node), node.attr("extrapolation_value", "float", 0.0)
    policy = node.attr("keep_aspect_ratio_policy", "string", "stretch")
    scales, sizes = (known_list(node, i, len(axes)) for i in (2, 3))
    if scales is None and not (node.has(3) and node.dims(node.input(3)) != (0,)):
        node.fail("neither scales nor sizes are known", wanted="one of them as a constant", came="none")
    if scales is None and sizes is None:
        return (by_open_sizes(node, x, axes, way),)
    pairs = dict(zip(axes, targets(node, axes, scales, sizes, policy), strict=True))
    return (resized(node, x, pairs, way, regions(node, axes, way), value),)


def upsample(node: Node) -> Sequence[Blob]:
    """Upsample, and Resize before op set 11. Places count from the corner; the nearest place below is taken."""
    x, rank = node.input(0), node.rank(node.input(0))
    given = node.required("scales", "floats") if node.opset < 9 else known_list(node, 1, rank)
    if given is None:
        node.fail("the scales are not known before a run", wanted="a constant")
    mode = MODES.get(node.attr("mode", "string", "nearest"))
    if mode not in ("nearest", "linear") or len(given) != rank or min(given, default=1.0) <= 0:
        node.fail("the mode is unknown, or the scales do not fit", wanted=f"{rank} positive scales", came=list(given))
    if mode == "nearest" and min(given, default=1.0) < 1:
        node.fail("before op set 11 it is not agreed which element is the nearest when an axis shrinks")
    way = ResizeMode(mode, "asymmetric", "floor")
    pairs: Targets = {axis: (None, float(scale)) for axis, scale in enumerate(given)}
    return (resized(node, x, pairs, way, {}, 0.0),)


def way_of(node: Node) -> ResizeMode:
    """The attributes of a Resize. Raises OnnxError for unknown words."""
    mode = node.attr("mode", "string", "nearest")
    transform = node.attr("coordinate_transformation_mode", "string", "half_pixel")
    nearest = node.attr("nearest_mode", "string", "round_prefer_floor")
    antialias, exclude = bool(node.attr("antialias", "int", 0)), bool(node.attr("exclude_outside", "int", 0))
    if mode not in MODES or transform not in TRANSFORMS or nearest not in NEAREST_MODES:
        node.fail("this way of resizing is unknown", came=f"{mode}, {transform}, {nearest}")
    if mode == "nearest" and antialias:
        node.fail("antialias needs another mode", wanted="mode 'linear' or 'cubic'", came=mode)
    return ResizeMode(MODES[mode], transform, nearest, node.attr("cubic_coeff_a", "float", -0.75), antialias, exclude)


def known_list(node: Node, i: int, count: int) -> list[float] | None:
    """The numbers in input i, one for each axis. None if the input is missing or its value is unknown."""
    value = node.known_value(i)
    if value is None or not value.size:
        return None
    if value.shape != (count,):
        node.fail(f"input {i} must have one number for each axis", wanted=count, came=list(value.shape))
    numbers: list[float] = value.tolist()
    return numbers


def targets(
    node: Node, axes: Sequence[int], scales: list[float] | None, sizes: list[float] | None, policy: str
) -> list[tuple[int | None, float]]:
    """For each axis: its new size (None if only the scale gives it), and the scale."""
    if scales is not None:
        if min(scales, default=1.0) <= 0:
            node.fail("a scale is not above 0", came=scales)
        return [(None, float(scale)) for scale in scales]
    dims = [node.dims(node.input(0))[axis] for axis in axes]
    wanted = [int(size) for size in sizes or ()]
    if any(not isinstance(dim, int) for dim in dims) or min(wanted, default=0) < 0:
        node.fail("sizes are given for an array whose own sizes the file leaves open", hint=GIVE_SIZES)
    ratios = [size / max(int(dim or 0), 1) for size, dim in zip(wanted, dims, strict=True)]
    if policy == "stretch":
        return list(zip(wanted, ratios, strict=True))
    if policy not in ("not_larger", "not_smaller"):
        node.fail("unknown keep_aspect_ratio_policy", came=policy)
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [(int(ratio * int(dim or 0) + 0.5), ratio) for dim in dims]


def regions(node: Node, axes: Sequence[int], way: ResizeMode) -> Region:
    """For each axis, the part of it that is resized."""
    if way.transform != "tf_crop_and_resize":
        return {}
    value = node.known_value(1)
    if value is None or value.shape != (2 * len(axes),):
        node.fail("the region is not known before a run", wanted=f"a constant of {2 * len(axes)} numbers")
    return {axis: (float(value[i]), float(value[i + len(axes)])) for i, axis in enumerate(axes)}


def resized(node: Node, x: Blob, pairs: Targets, way: ResizeMode, region: Region, value: float) -> Blob:
    """Resizes an array along several axes, one after the other."""
    dims, y = node.dims(x), x
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
    """Elements of an axis as weighted sums of old elements."""
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
    """The product of an axis with a matrix of weights, [new size, old size]."""
    if axis == rank - 2:
        return matmul(node.net.constant(matrix.astype(node.float_dtype)), x)
    perm = [*(i for i in range(rank) if i != axis), axis]
    last = x if axis == rank - 1 else transpose(x, perm)
    y = matmul(last, node.net.constant(matrix.T.astype(node.float_dtype)))
    return y if axis == rank - 1 else transpose(y, [perm.index(i) for i in range(rank)])


def by_open_sizes(node: Node, x: Blob, axes: Sequence[int], way: ResizeMode) -> Blob:
    """Resizes axes to sizes that are computed from shapes, which the file leaves open."""
    if node.attr("keep_aspect_ratio_policy", "string", "stretch") != "stretch":
        node.fail("the aspect ratio cannot be kept while sizes are open", hint=GIVE_SIZES)
    y, rank = x, node.rank(x)
    for i, axis in enumerate(axes):
        y = resized_open(node, y, rank, axis, (node.input(3), i), way)
    return identity(y)


INDEXING_RULES: dict[str, Rule] = {
    "ArgMax": extremum(smallest=False),
    "ArgMin": extremum(smallest=True),
    "Compress": compress,
    "CumProd": cumulated(cumprod),
    "CumSum": cumulated(cumsum),
    "EyeLike": eye_like,
    "GatherND": gather_nd,
    "Hardmax": along_axis(first_largest),
    "NonZero": non_zero,
    "Resize": resize,
    "Scatter": old_scatter,
    "ScatterElements": plain(axis="int", reduction="string"),
    "ScatterND": plain(reduction="string"),
    "TopK": top_k,
    "Upsample": upsample,
}
