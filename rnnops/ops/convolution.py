"""Convolutions over the last axes: Conv.

Its loop form is a product of windows with weights; what it is for each channel by itself, a sum over the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Expansion, View
from rnnops.net import common_net
from rnnops.ops.base import quiet
from rnnops.ops.conv_parts import (
    Convolving,
    reference_convolution,
    weight_gradient,
    with_channels,
)
from rnnops.ops.conv_transpose import transposed_convolution
from rnnops.ops.internal import sum_to
from rnnops.ops.movement import concat, reshape_to, split, transpose
from rnnops.ops.products import matmul
from rnnops.ops.reduction import reduce_sum
from rnnops.ops.sums import sum_of_products
from rnnops.ops.windows import FIRST_AXIS, Geometry, Sizes, geometry_of, integers_given, numbers_of, sizes_under
from rnnops.schema import Call, Gradients, OpSchema, no_gradient, register
from rnnops.types import FLOATS, Array, Shape

FEW_GROUPS = 8  # which get a product each
MANY_TAPS = 32  # elements of a kernel that are no more summed one by one


class Conv(Convolving):
    """The convolution of x with w, as networks have it: the kernel is not turned round.

    ONNX: Conv, op set 11. `y[n, o, i]` is `b[o]` plus the sum over c and j of `w[o, c, j]` times
    `x[n, c, i * stride + j * dilation - begin]`, x being 0 outside. With groups, the channels of x and those of y are
    cut into as many parts, each of which follows from its like alone. The gradients are a ConvTranspose, and products
    of windows with what comes back.

    Args:
        x: [N, C, *sizes] float, with one axis or more to slide over.
        w: [O, C / group, *kernel] of the same dtype.
        b: [O] of the same dtype; none if left out.
        auto_pad: `"NOTSET"`: `pads` say it; `"VALID"`: no pads; `"SAME_UPPER"`, `"SAME_LOWER"`: as much as gives
            `ceil(size / stride)` places, the odd one at the end or at the begin.
        dilations: between the elements of the kernel, 1 for each axis if left out.
        group: how many parts the channels have.
        kernel_shape: that of w, which it follows from.
        pads: zeros around x: all begins, then all ends; none if left out.
        strides: from place to place, 1 for each axis if left out.

    Returns:
        [N, O, *places] of the same dtype.

    Raises:
        NetError: x or w is no blob, they are of several nets, or a list has others than integers.
        TypeRuleError: one is not float; once shapes are known, channels or lists do not fit, or the kernel is larger
            than what it slides over.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.conv(net.input("x"), net.input("w"), pads=[1, 0]))
        >>> feeds = {"x": np.array([[[1.0, 2.0, 4.0]]]), "w": np.array([[[-1.0, 1.0]]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[[1., 1., 2.]]])
    """

    loop = Expansion()

    def __call__(
        self,
        x: Blob,
        w: Blob,
        b: Blob | None = None,
        auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Blob:
        inputs = [x, w] if b is None else [x, w, b]
        lists = integers_given(self.name, dilations=dilations, kernel_shape=kernel_shape, pads=pads, strides=strides)
        return common_net(inputs).append(self.name, inputs, {**self.plain(auto_pad, group), **lists})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        groups, weight = self.checked_groups(call, call.shape(0)[1:2]), call.shape(1)
        if weight[1] * groups != call.shape(0)[1]:
            call.fail("channels do not fit the weights", wanted=weight[1] * groups, came=call.shape(0)[1])
        if weight[0] % groups:
            call.fail("the channels that come out have no equal groups", wanted=f"{groups} parts", came=weight[0])
        self.check_bias(call, weight[0])
        return ((call.shape(0)[0], weight[0], *self.geometry(call).places),)

    def geometry(self, call: Call) -> Geometry:
        """Where the windows over x lie."""
        return geometry_of(call, self.kernel(call))

    @quiet
    def reference(self, call: Call, x: Array, w: Array, b: Array | None = None) -> Array:
        y = reference_convolution(x, w, self.geometry(call), call.attr("group"))
        return y if b is None else y + with_channels(b, y.ndim)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        x, w, dy = blobs[0], blobs[1], blobs[-1]
        geometry, groups = self.geometry(call), call.attr("group")
        dx = transposed_convolution(dy, w, geometry, groups)
        dw = weight_gradient(x, dy, geometry, call.shape(1), call.shape(0)[0], groups)
        if not call.has(2):
            return dx, dw
        channels = sum_to(dy, (1, call.shape(1)[0], *(1 for _ in geometry.sizes)))
        return dx, dw, reshape_to(channels, call.shape(2))

    def expand(self, call: Call, x: Blob, w: Blob, b: Blob | None = None) -> Blob:
        shapes = (call.shape(0), call.shape(1))
        return convolved(x, conv_matrix(w), b, self.geometry(call), *shapes, call.attr("group"))


class ConvMatrix(OpSchema):
    """Weights of a Conv, [O, C / group, *kernel], as the matrix that windows meet: [kernel * C / group, O]."""

    inputs = ("W",)
    accepts = FLOATS
    internal = True
    loop = View()

    def __call__(self, w: Blob) -> Blob:
        return common_net([w]).apply(self.name, [w])

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        channels, *inner = call.shape(0)
        return ((prod(inner), channels),)

    def reference(self, call: Call, w: Array) -> Array:
        turned = np.transpose(w, [*range(FIRST_AXIS, w.ndim), 1, 0])
        return np.array(turned, order="C").reshape(call.output_types[0].shape)

    def gradient(self, call: Call, w: Blob, matrix: Blob, dmatrix: Blob) -> Gradients:
        (made, inner, *kernel), count = call.shape(0), call.rank(0) - FIRST_AXIS
        return transpose(reshape_to(dmatrix, (*kernel, inner, made)), [count + 1, count, *range(count)])


class MatrixConv(Convolving):
    """A Conv whose weights are a matrix already, as `ConvMatrix` makes it, and whose `kernel_shape` is given."""

    inputs = ("X", "M", "B?")
    internal = True
    gradient = no_gradient
    keeps = ()
    loop = Expansion()

    def __call__(self, x: Blob, matrix: Blob, b: Blob | None = None, **attributes: Any) -> Blob:
        return common_net([x]).append(self.name, [x, matrix] if b is None else [x, matrix, b], attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        weight = self.weight(call)
        if weight[1] * call.attr("group") != call.shape(0)[1] or weight[0] % call.attr("group"):
            call.fail("channels do not fit the weights", wanted=weight[1] * call.attr("group"), came=call.shape(0)[1])
        return ((call.shape(0)[0], weight[0], *self.geometry(call).places),)

    def weight(self, call: Call) -> Shape:
        """The shape that the weights had."""
        inner, made = call.shape(1)
        kernel = self.kernel(call)
        return (made, inner // prod(kernel), *kernel)

    def kernel(self, call: Call) -> Sizes:
        return numbers_of(call, "kernel_shape", len(sizes_under(call)), 1)

    def geometry(self, call: Call) -> Geometry:
        """Where the windows over x lie."""
        return geometry_of(call, self.kernel(call))

    @quiet
    def reference(self, call: Call, x: Array, matrix: Array, b: Array | None = None) -> Array:
        made, inner, *kernel = self.weight(call)
        count = len(kernel)
        w = np.transpose(matrix.reshape(*kernel, inner, made), [count + 1, count, *range(count)])
        y = reference_convolution(x, w, self.geometry(call), call.attr("group"))
        return y if b is None else y + with_channels(b, y.ndim)

    def expand(self, call: Call, x: Blob, matrix: Blob, b: Blob | None = None) -> Blob:
        return convolved(x, matrix, b, self.geometry(call), call.shape(0), self.weight(call), call.attr("group"))


def convolved(
    x: Blob, matrix: Blob, b: Blob | None, geometry: Geometry, shape: Shape, weight: Shape, groups: int
) -> Blob:
    """The convolution of x [N, C, *sizes] with a matrix [kernel * C / group, O], as simpler ops."""
    batch, channels = shape[:FIRST_AXIS]
    padded = geometry.last(x, channels, batch)
    if weight[1] == 1 and groups > 1:
        y = by_channel(padded, matrix, geometry, batch, weight, groups)
    elif groups <= FEW_GROUPS:
        parts = (padded,) if groups == 1 else split(padded, groups, axis=-1)
        matrices = (matrix,) if groups == 1 else split(matrix, groups, axis=1)
        rows = [rows_of_windows(part, geometry, batch, weight[1]) for part in parts]
        every = [matmul(one, columns) for one, columns in zip(rows, matrices, strict=True)]
        y = every[0] if groups == 1 else concat(*every, axis=-1)
    else:
        y = in_stacks(padded, matrix, geometry, batch, weight, groups)
    return geometry.first(y if b is None else y + b, weight[0], batch)


def rows_of_windows(padded: Blob, geometry: Geometry, batch: int, channels: int) -> Blob:
    """What each place meets: [N, *covered, C] as [N, places, kernel * C]."""
    shape = (batch, prod(geometry.places), channels * prod(geometry.kernel))
    if prod(geometry.kernel) > 1:
        return reshape_to(geometry.windows(padded), shape)
    (tap,) = geometry.taps(padded) if max(geometry.strides) > 1 else (padded,)
    return reshape_to(tap, shape)


def by_channel(padded: Blob, matrix: Blob, geometry: Geometry, batch: int, weight: Shape, groups: int) -> Blob:
    """The convolution of each channel by itself, [N, *places, O]: the sum of what each element of the kernel meets."""
    times, taps = weight[0] // groups, prod(geometry.kernel)
    ones = (1,) * len(geometry.sizes)
    if taps > MANY_TAPS:
        every = reshape_to(geometry.windows(padded), (batch, *geometry.places, taps, groups, 1))
        products = every * reshape_to(matrix, (*ones, taps, groups, times))
        total = reduce_sum(products, [1 + len(ones)], keepdims=0)
    else:
        wide = list(geometry.taps(padded))
        if times > 1:
            wide = [reshape_to(tap, (batch, *geometry.places, groups, 1)) for tap in wide]
        shape = (taps, groups) if times == 1 else (taps, groups, times)
        total = sum_of_products(wide, split(reshape_to(matrix, shape), [1] * taps, axis=0))
    return reshape_to(total, (batch, prod(geometry.places), weight[0]))


def in_stacks(padded: Blob, matrix: Blob, geometry: Geometry, batch: int, weight: Shape, groups: int) -> Blob:
    """The products of many groups as one of stacks of matrices, [N, places, O]."""
    places, taps, made = prod(geometry.places), prod(geometry.kernel), weight[0] // groups
    rows = reshape_to(geometry.windows(padded), (batch, places, taps, groups, weight[1]))
    rows = reshape_to(transpose(rows, [0, 3, 1, 2, 4]), (batch, groups, places, taps * weight[1]))
    stack = transpose(reshape_to(matrix, (taps * weight[1], groups, made)), [1, 0, 2])
    return reshape_to(transpose(matmul(rows, stack), [0, 2, 1, 3]), (batch, places, weight[0]))


conv, conv_matrix, matrix_conv = register(Conv()), register(ConvMatrix()), register(MatrixConv())
