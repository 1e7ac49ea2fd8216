"""Convolutions over the last axes: Conv.

Its loop form is a product of windows with weights; what it is for each channel by itself, a sum over the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rnnops.blob import Blob
from rnnops.loops import Expansion
from rnnops.net import common_net
from rnnops.ops.base import quiet
from rnnops.ops.conv_parts import (
    Convolving,
    by_channel,
    reference_convolution,
    weight_gradient,
    with_bias,
    with_channels,
)
from rnnops.ops.conv_transpose import transposed_convolution
from rnnops.ops.internal import sum_to
from rnnops.ops.movement import concat, reshape_to, split, transpose
from rnnops.ops.products import matmul
from rnnops.ops.windows import FIRST_AXIS, Geometry, geometry_of, integers_given
from rnnops.schema import Call, Gradients, register
from rnnops.types import Array, Shape

FEW_GROUPS = 8  # which get a product each


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
        geometry, groups = self.geometry(call), call.attr("group")
        padded = geometry.padded(x)
        if call.shape(1)[1] == 1 and groups > 1:
            y = by_channel(padded, w, geometry, call.shape(0)[0], call.shape(1), groups)
            return with_bias(y, b, call.shape(1)[0], len(geometry.sizes))
        return self.products(call, padded, w, b, geometry)

    def products(self, call: Call, padded: Blob, w: Blob, b: Blob | None, geometry: Geometry) -> Blob:
        """Rows of windows times the weights, for each group; the bias is added where channels are columns."""
        groups, batch, weight = call.attr("group"), call.shape(0)[0], call.shape(1)
        matrix, places = (weight[0] // groups, prod(weight[1:])), prod(geometry.places)
        if groups > FEW_GROUPS:
            rows = rows_of_windows(padded, geometry, batch, weight[1] * groups)
            rows = transpose(reshape_to(rows, (batch, places, groups, matrix[1])), [0, 2, 1, 3])
            stack = transpose(reshape_to(w, (groups, *matrix)), [0, 2, 1])
            made = matmul(rows, stack)
            y = reshape_to(transpose(made, [0, 2, 1, 3]), (batch, places, weight[0]))
        else:
            parts = (padded,) if groups == 1 else split(padded, groups, axis=1)
            weights = (w,) if groups == 1 else split(w, groups, axis=0)
            every = [
                matmul(rows_of_windows(part, geometry, batch, weight[1]), transpose(reshape_to(one, matrix)))
                for part, one in zip(parts, weights, strict=True)
            ]
            y = every[0] if groups == 1 else concat(*every, axis=-1)
        y = y if b is None else y + b
        return reshape_to(transpose(y, [0, 2, 1]), (batch, weight[0], *geometry.places))


def rows_of_windows(padded: Blob, geometry: Geometry, batch: int, channels: int) -> Blob:
    """What each place meets: [N, C, *covered] as [N, places, C * kernel]."""
    count, shape = len(geometry.sizes), (batch, prod(geometry.places), channels * prod(geometry.kernel))
    if prod(geometry.kernel) == 1:
        (tap,) = geometry.taps(padded) if max(geometry.strides) > 1 else (padded,)
        return reshape_to(transpose(tap, [0, *range(2, count + 2), 1]), shape)
    places = range(FIRST_AXIS, FIRST_AXIS + count)
    order = [0, *places, 1, *(axis + count for axis in places)]
    return reshape_to(transpose(geometry.windows(padded), order), shape)


conv = register(Conv())
