"""What Conv and ConvTranspose share: their ports, checks, plain NumPy, and the gradient of the weights."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.errors import NetError
from rnnops.ops.arithmetic import add
from rnnops.ops.internal import sum_to
from rnnops.ops.movement import reshape_to, split, transpose
from rnnops.ops.products import matmul
from rnnops.ops.reduction import reduce_sum
from rnnops.ops.windows import FIRST_AXIS, WINDOW_ATTRIBUTES, Geometry, Sizes, numbers_of, sizes_under, windows_of, word
from rnnops.schema import Call, OpSchema
from rnnops.types import FLOATS, Array, Shape

MANY_TAPS = 32  # elements of a kernel that are summed one by one


class Convolving(OpSchema):
    """x, weights and a bias, with the attributes of windows."""

    inputs = ("X", "W", "B?")
    attributes: ClassVar[dict[str, Any]] = {**WINDOW_ATTRIBUTES, "group": 1}
    accepts = FLOATS
    keeps = ("X", "W")

    def plain(self, auto_pad: str, group: int) -> dict[str, Any]:
        """Attributes that are no lists, those that have their defaults left out. Raises NetError for others."""
        if isinstance(group, bool) or not isinstance(group, int | np.integer):
            raise NetError("group is an integer", op=self.name, came=repr(group))
        given = {"auto_pad": word(auto_pad, self.name), "group": int(group)}
        return {name: value for name, value in given.items() if value != self.attributes[name]}

    def checked_groups(self, call: Call, channels: Shape) -> int:
        """The number of groups, with ranks that fit."""
        sizes, groups = sizes_under(call), call.attr("group")
        if call.rank(1) != call.rank(0) or min(call.shape(1)) < 1:
            call.fail(
                "weights have an axis for each of x",
                wanted=f"rank {len(sizes) + 2}, no empty axis",
                came=list(call.shape(1)),
            )
        if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1:
            call.fail("group is a number of 1 or more", came=repr(groups))
        if channels[0] % groups:
            call.fail("channels have no equal groups", wanted=f"{groups} parts", came=channels[0])
        return groups

    def check_bias(self, call: Call, channels: int) -> None:
        if call.has(2) and call.shape(2) != (channels,):
            call.fail("a bias has one number for each channel", wanted=[channels], came=list(call.shape(2)))

    def kernel(self, call: Call) -> Sizes:
        """The sizes of the kernel: those of the weights."""
        kernel, given = call.shape(1)[FIRST_AXIS:], call.attr("kernel_shape")
        if given is not None and numbers_of(call, "kernel_shape", len(kernel), 1) != kernel:
            call.fail("kernel_shape is not that of the weights", wanted=list(kernel), came=list(given))
        return kernel


def with_channels(b: Array, rank: int) -> Array:
    """A bias [O] that broadcasts to [N, O, ...]."""
    return b.reshape(1, -1, *(1,) * (rank - FIRST_AXIS))


def with_bias(y: Blob, b: Blob | None, channels: int, count: int) -> Blob:
    """An array [N, O, *places] plus a number for each channel."""
    return y if b is None else y + reshape_to(b, (channels, *(1,) * count))


def reference_convolution(x: Array, w: Array, geometry: Geometry, groups: int) -> Array:
    """The convolution in plain NumPy: windows of each group times its weights."""
    around = [(0, 0), (0, 0), *zip(geometry.begins, geometry.ends, strict=True)]
    padded = np.pad(x, around)
    windows = windows_of(padded, geometry.kernel, geometry.strides, geometry.dilations)
    folded = (1, *range(FIRST_AXIS + len(geometry.sizes), windows.ndim))
    parts = [
        np.tensordot(part, weight, (folded, (1, *range(FIRST_AXIS, w.ndim))))
        for part, weight in zip(np.split(windows, groups, 1), np.split(w, groups, 0), strict=True)
    ]
    return np.ascontiguousarray(np.moveaxis(np.concatenate(parts, -1), -1, 1))


def by_channel(padded: Blob, w: Blob, geometry: Geometry, batch: int, weight: Shape, groups: int) -> Blob:
    """The convolution of each channel by itself: the sum of what each element of the kernel meets."""
    ones, times, taps = (1,) * len(geometry.sizes), weight[0] // groups, prod(geometry.kernel)
    if taps > MANY_TAPS:
        shape = (batch, groups, 1, *geometry.places, *geometry.kernel)
        products = reshape_to(geometry.windows(padded), shape) * reshape_to(w, (groups, times, *ones, *geometry.kernel))
        total = reduce_sum(products, list(range(3 + len(ones), 3 + 2 * len(ones))), keepdims=0)
    else:
        factors = reshape_to(w, (groups, times, *ones, taps))
        each = split(factors, [1] * taps, axis=-1) if taps > 1 else (factors,)
        total = reduce(add, (
            reshape_to(tap, (batch, groups, 1, *geometry.places)) * reshape_to(factor, (groups, times, *ones))
            for tap, factor in zip(geometry.taps(padded), each, strict=True)
        ))  # fmt: skip
    return reshape_to(total, (batch, weight[0], *geometry.places))


def weight_gradient(x: Blob, dy: Blob, geometry: Geometry, weight: Shape, batch: int, groups: int) -> Blob:
    """The gradient of the weights: products of what came out with the windows over x, summed over the batch.

    Args:
        x: [N, C, *sizes]; dy: [N, O, *places].
        weight: [O, C / groups, *kernel].
    """
    count, places, inner = len(geometry.sizes), prod(geometry.places), prod(weight[1:])
    windows = geometry.windows(geometry.padded(x))  # [N, C, *places, *kernel]
    axes = range(FIRST_AXIS, FIRST_AXIS + count)
    by_place = transpose(windows, [0, *axes, 1, *(axis + count for axis in axes)])
    if groups == 1:
        left, rows = reshape_to(dy, (batch, weight[0], places)), reshape_to(by_place, (batch, places, inner))
        return reshape_to(sum_to(matmul(left, rows), (weight[0], inner)), weight)
    left = reshape_to(dy, (batch, groups, weight[0] // groups, places))
    rows = transpose(reshape_to(by_place, (batch, places, groups, inner)), [0, 2, 1, 3])
    return reshape_to(sum_to(matmul(left, rows), (groups, weight[0] // groups, inner)), weight)
