"""What Conv and ConvTranspose share: their ports, checks, plain NumPy, and the gradient of the weights."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.errors import NetError
from rnnops.ops.internal import sum_to
from rnnops.ops.movement import reshape_to, transpose
from rnnops.ops.products import matmul
from rnnops.ops.windows import (
    FIRST_AXIS,
    WINDOW_ATTRIBUTES,
    Geometry,
    Sizes,
    channels_last,
    numbers_of,
    sizes_under,
    windows_of,
    word,
)
from rnnops.schema import Call, OpSchema
from rnnops.types import FLOATS, Array, Shape


class Convolving(OpSchema):
    """x, weights and a bias, with the attributes of windows."""

    inputs: ClassVar[tuple[str, ...]] = ("X", "W", "B?")
    attributes: ClassVar[dict[str, Any]] = {**WINDOW_ATTRIBUTES, "group": 1}
    accepts = FLOATS
    keeps: ClassVar[tuple[str, ...]] = ("X", "W")

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


def reference_convolution(x: Array, w: Array, geometry: Geometry, groups: int) -> Array:
    """The convolution in plain NumPy: windows of each group times its weights."""
    padded = np.pad(x, [(0, 0), (0, 0), *zip(geometry.begins, geometry.ends, strict=True)])
    windows = windows_of(np.moveaxis(padded, 1, -1), geometry.kernel, geometry.strides, geometry.dilations)
    count = len(geometry.sizes)
    folded, by = tuple(range(1 + count, windows.ndim)), (*range(FIRST_AXIS, w.ndim), 1)
    parts = [
        np.tensordot(part, weight, (folded, by))
        for part, weight in zip(np.split(windows, groups, -1), np.split(w, groups, 0), strict=True)
    ]
    return np.ascontiguousarray(np.moveaxis(np.concatenate(parts, -1), -1, 1))


def weight_gradient(x: Blob, dy: Blob, geometry: Geometry, weight: Shape, batch: int, groups: int) -> Blob:
    """The gradient of the weights: products of windows over x with what came out, summed over the batch.

    Args:
        x: [N, C, *sizes]; dy: [N, O, *places].
        weight: [O, C / groups, *kernel].
    """
    (made, inner, *kernel), places, taps = weight, prod(geometry.places), prod(geometry.kernel)
    windows = geometry.windows(geometry.last(x, inner * groups, batch))  # [N, *places, *kernel, C]
    if groups == 1:
        left = transpose(reshape_to(windows, (batch, places, taps * inner)), [0, 2, 1])
        matrix = sum_to(matmul(left, channels_last(dy)), (taps * inner, made))
    else:
        left = transpose(reshape_to(windows, (batch, places, taps, groups, inner)), [0, 3, 2, 4, 1])
        left = reshape_to(left, (batch, groups, taps * inner, places))
        right = transpose(reshape_to(channels_last(dy), (batch, places, groups, made // groups)), [0, 2, 1, 3])
        matrix = transpose(sum_to(matmul(left, right), (groups, taps * inner, made // groups)), [1, 0, 2])
    return transpose(reshape_to(matrix, (*kernel, inner, made)), [len(kernel) + 1, len(kernel), *range(len(kernel))])
