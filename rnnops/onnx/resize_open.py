"""An axis of open size resized by look-ups whose places are integer arithmetic on sizes, without rounding."""

from __future__ import annotations

from rnnops.blob import Blob
from rnnops.onnx.import_groups import extent
from rnnops.onnx.node import Node
from rnnops.onnx.resize_taps import Way
from rnnops.ops.comparison import cast
from rnnops.ops.extrema import max as max_, min as min_
from rnnops.ops.indexing import gather, slice as slice_
from rnnops.ops.movement import reshape, squeeze
from rnnops.ops.shapes import range as range_
from rnnops.types import is_float

TRANSFORMS = ("half_pixel", "asymmetric", "align_corners")
Target = float | tuple[Blob, int]  # a scale, or the list of sizes and the place in it


def resized_open(node: Node, x: Blob, rank: int, axis: int, target: Target, way: Way) -> Blob:
    """Resize an axis. Raises OnnxError for a way that needs fixed sizes.

    The element i of the result lies at `above / below` of the axis, two integers.
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
        return gather(x, nearest(way, above, below, size), axis)
    first = floor_of(above, below)
    along = [-1, *(1,) * (rank - axis - 1)]
    weight = reshape(cast(above - first * below, x.dtype) / cast(below, x.dtype), along)
    left, right = (gather(x, inside(place, size), axis) for place in (first, first + 1))
    return left * (1.0 - weight) + right * weight


def check_way(node: Node, x: Blob, target: Target, way: Way) -> None:
    """Raise OnnxError for what integer arithmetic on sizes does not do."""
    fits = way.mode in ("nearest", "linear") and way.transform in TRANSFORMS and not way.antialias and not way.exclude
    whole = isinstance(target, tuple) or (target == int(target) and target >= 1)
    if not fits or not whole or (way.mode != "nearest" and not is_float(x.dtype)):
        node.fail(
            "an axis whose size the file leaves open is not resized in this way",
            wanted=f"nearest or linear, {' or '.join(TRANSFORMS)}, by a whole number or to sizes that follow",
            came=f"{way.mode}, {way.transform}" + ("" if isinstance(target, tuple) else f", by {target}"),
            hint="Give the sizes that are open: load(path, sizes={...}).",
        )


def fraction(way: Way, i: Blob, size: Blob, wanted: Blob) -> tuple[Blob, Blob]:
    """Where elements lie between those of the axis before, as numerators and a denominator above 0."""
    if way.transform == "asymmetric":
        return i * size, max_(wanted, 1)
    if way.transform == "align_corners":
        return i * (size - 1), max_(wanted - 1, 1)
    return (i * 2 + 1) * size - wanted, max_(wanted * 2, 1)


def nearest(way: Way, above: Blob, below: Blob, size: Blob) -> Blob:
    """The nearest place; halves go down, or up."""
    if way.nearest == "floor":
        found = floor_of(above, below)
    elif way.nearest == "ceil":
        found = floor_of(above + below - 1, below)
    elif way.nearest == "round_prefer_ceil":
        found = floor_of(above * 2 + below, below * 2)
    else:
        found = floor_of(above * 2 + below - 1, below * 2)
    return inside(found, size)


def floor_of(above: Blob, below: Blob) -> Blob:
    """The quotient rounded down; it is not below -1."""
    return (above + below) / below - 1


def inside(place: Blob, size: Blob) -> Blob:
    """The nearest place on the axis."""
    return min_(max_(place, 0), size - 1)
