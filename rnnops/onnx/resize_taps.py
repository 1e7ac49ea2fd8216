"""Where each element of a resized axis comes from: places in the axis before, and their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rnnops.types import Array

SAME = 1e-7  # of an axis: float32 numbers closer than this are one
NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True)
class Way:
    """How to resize: the attributes of a Resize.

    Args:
        mode: `"nearest"`, `"linear"` or `"cubic"`; transform: the coordinate_transformation_mode.
        nearest: which neighbour; cubic: the coefficient a; antialias: whether kernels widen where axes shrink.
        exclude: whether places outside have no weight, else they are the border again.
    """

    mode: str = "nearest"
    transform: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude: bool = False


@dataclass(frozen=True)
class Taps:
    """For each of n elements of a resized axis: [n, k] places, [n, k] weights, [n] whether it is outside."""

    places: Array
    weights: Array
    outside: Array

    def are_all(self, size: int) -> bool:
        """Whether the axis stays as it is."""
        same = self.places.shape == (size, 1) and bool((self.places[:, 0] == np.arange(size)).all())
        return same and not self.outside.any()

    def matrix(self, size: int) -> Array:
        """The weights as a matrix, [n, size]."""
        found = np.zeros((len(self.places), size))
        np.add.at(found, (np.arange(len(found))[:, None], self.places), self.weights)
        return found


def taps_of(way: Way, size: int, wanted: int, scale: float, region: tuple[float, float]) -> Taps:
    """The taps of an axis.

    Args:
        size, wanted: elements before and after; scale: by how much it grows, which need not be wanted / size.
        region: first and last of the axis, from 0 to 1, for the transform `"tf_crop_and_resize"`.
    """
    x = sources(way.transform, size, wanted, scale, region)
    halves = np.round(2 * x) / 2  # where a scale is meant to be 0.6 and is 0.60000002, elements lie on others
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


def kernel(way: Way, distance: Array) -> Array:
    """The weight of an element so far away."""
    if way.mode == "linear":
        return np.maximum(1.0 - distance, 0.0)
    a, d = way.cubic, distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def sources(transform: str, size: int, wanted: int, scale: float, region: tuple[float, float]) -> Array:
    """The place in the axis before of each element, between its elements."""
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
