"""Conv and ConvTranspose, over the last axes.

The loop form is a product of windows with weights. If each channel has its own kernel, it is a sum over the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.errors import NetError
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion, View
from rnnops.net.schema import Call, Gradients, OpSchema, no_gradient, register
from rnnops.ops.base import Unary, choice, quiet, sum_to
from rnnops.ops.indexing import pad, slice as slice_
from rnnops.ops.linear_algebra import matmul
from rnnops.ops.movement import concat, reshape_to, split, transpose
from rnnops.ops.reduction import FIRST_AXIS, reduce_sum, sizes_under, sum_of_products
from rnnops.ops.windows import (
    AUTO_PADS,
    WINDOW_ATTRIBUTES,
    Geometry,
    Sizes,
    append_windowed,
    channels_last,
    geometry_of,
    halves,
    numbers_of,
    reach,
    spans_of,
    windows_of,
)
from rnnops.types import FLOATS, Array, Shape


class Convolving(OpSchema):
    """Base of both convolutions: x, weights and a bias, with the attributes of windows.

    Returns:
        [N, O, *places] of the same dtype.
    """

    inputs: ClassVar[tuple[str, ...]] = ("X", "W", "B?")
    attributes: ClassVar[dict[str, Any]] = {**WINDOW_ATTRIBUTES, "group": 1}
    accepts = FLOATS
    keeps: ClassVar[tuple[str, ...]] = ("X", "W")

    def appended(self, blobs: Sequence[Blob | None], auto_pad: str, group: int, **lists: Any) -> Blob:
        """Appends the op. Raises NetError for attributes of wrong types."""
        if isinstance(group, bool) or not isinstance(group, int | np.integer):
            raise NetError("group must be an integer", op=self.name, came=repr(group))
        return append_windowed(self, blobs, auto_pad, {"group": int(group)}, **lists)

    def checked_groups(self, call: Call, channels: Shape) -> int:
        """The number of groups. Also checks that ranks fit."""
        sizes, groups = sizes_under(call), call.attr("group")
        if call.rank(1) != call.rank(0) or min(call.shape(1)) < 1:
            wanted = f"rank {len(sizes) + 2}, without empty axes"
            call.fail("weights must have as many axes as x", wanted=wanted, came=list(call.shape(1)))
        if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1:
            call.fail("group must be 1 or more", came=repr(groups))
        if channels[0] % groups:
            call.fail("channels cannot be cut into equal groups", wanted=f"{groups} parts", came=channels[0])
        return groups

    def check_bias(self, call: Call, channels: int) -> None:
        if call.has(2) and call.shape(2) != (channels,):
            call.fail("a bias must have one number for each channel", wanted=[channels], came=list(call.shape(2)))

    def kernel(self, call: Call) -> Sizes:
        """The sizes of the kernel, from the weights."""
        kernel, given = call.shape(1)[FIRST_AXIS:], call.attr("kernel_shape")
        if given is not None and numbers_of(call, "kernel_shape", len(kernel), 1) != kernel:
            call.fail("kernel_shape differs from the weights", wanted=list(kernel), came=list(given))
        return kernel

    def geometry(self, call: Call) -> Geometry:
        """The windows over x."""
        return geometry_of(call, self.kernel(call))

    def with_bias_gradient(self, call: Call, dx: Blob, dw: Blob, dy: Blob) -> Gradients:
        """The gradients of x, of the weights, and of the bias (if there is one)."""
        if not call.has(2):
            return dx, dw
        total = sum_to(dy, (1, *call.shape(2), *(1 for _ in sizes_under(call))))
        return dx, dw, reshape_to(total, call.shape(2))


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
    """The gradient of the weights: products of windows over x with `dy`, summed over the batch.

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


FEW_GROUPS = 8  # up to this number, each group gets its own product
MANY_TAPS = 32  # from this number of kernel elements on, they are not summed one by one


class Conv(Convolving):
    """The convolution of x with w as in neural networks: the kernel is not flipped.

    ONNX: Conv, op set 11. `y[n, o, i]` is `b[o]` plus a sum over c and j of
    `w[o, c, j] * x[n, c, i * stride + j * dilation - begin]`. x is 0 outside. With groups, the channels of x and y are
    cut into as many parts, and each part of y depends only on its part of x. The gradients are a ConvTranspose, and
    products of windows with the gradient of y.

    Args:
        x: [N, C, *sizes] float, with one axis or more to slide over.
        w: [O, C / group, *kernel] of the same dtype.
        b: [O] of the same dtype. By default none.
        auto_pad: `"NOTSET"`: `pads` gives the padding. `"VALID"`: no padding. `"SAME_UPPER"`, `"SAME_LOWER"`: as much
            as gives `ceil(size / stride)` places. An odd one goes to the end or to the begin.
        dilations: distances of the kernel's elements. By default 1 for each axis.
        group: number of parts of the channels.
        kernel_shape: kernel sizes, which must be those of w. By default they are taken from w.
        pads: numbers of zeros around x: all begins, then all ends. By default none.
        strides: distances of places. By default 1 for each axis.

    Raises:
        NetError: x or w is not a blob, they are of several nets, or a list has values that are not integers.
        TypeRuleError: an argument is not float. Once shapes are known: channels or lists do not fit, or the kernel is
            larger than the padded axes.

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
        lists = {"dilations": dilations, "kernel_shape": kernel_shape, "pads": pads, "strides": strides}
        return self.appended([x, w, b], auto_pad, group, **lists)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        groups, weight = self.checked_groups(call, call.shape(0)[1:2]), call.shape(1)
        if weight[1] * groups != call.shape(0)[1]:
            call.fail("channels do not fit the weights", wanted=weight[1] * groups, came=call.shape(0)[1])
        if weight[0] % groups:
            call.fail("result channels cannot be cut into equal groups", wanted=f"{groups} parts", came=weight[0])
        self.check_bias(call, weight[0])
        return ((call.shape(0)[0], weight[0], *self.geometry(call).places),)

    @quiet
    def reference(self, call: Call, x: Array, w: Array, b: Array | None = None) -> Array:
        y = reference_convolution(x, w, self.geometry(call), call.attr("group"))
        return y if b is None else y + with_channels(b, y.ndim)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        x, w, dy = blobs[0], blobs[1], blobs[-1]
        geometry, groups = self.geometry(call), call.attr("group")
        dx = transposed_convolution(dy, w, geometry, groups)
        dw = weight_gradient(x, dy, geometry, call.shape(1), call.shape(0)[0], groups)
        return self.with_bias_gradient(call, dx, dw, dy)

    def expand(self, call: Call, x: Blob, w: Blob, b: Blob | None = None) -> Blob:
        shapes = (call.shape(0), call.shape(1))
        return convolved(x, conv_matrix(w), b, self.geometry(call), *shapes, call.attr("group"))


class ConvMatrix(Unary):
    """Weights of a Conv, [O, C / group, *kernel], as the matrix for products with windows: [kernel * C / group, O]."""

    inputs = ("W",)
    internal = True
    loop = View()

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
    """A Conv whose weights are a matrix from `ConvMatrix`. `kernel_shape` must be given."""

    inputs = ("X", "M", "B?")
    internal = True
    gradient = no_gradient
    keeps = ()
    loop = Expansion()

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        weight = self.weight(call)
        if weight[1] * call.attr("group") != call.shape(0)[1] or weight[0] % call.attr("group"):
            call.fail("channels do not fit the weights", wanted=weight[1] * call.attr("group"), came=call.shape(0)[1])
        return ((call.shape(0)[0], weight[0], *self.geometry(call).places),)

    def weight(self, call: Call) -> Shape:
        """The shape of the weights before they became a matrix."""
        inner, made = call.shape(1)
        kernel = self.kernel(call)
        return (made, inner // prod(kernel), *kernel)

    def kernel(self, call: Call) -> Sizes:
        return numbers_of(call, "kernel_shape", len(sizes_under(call)), 1)

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
    """The window of each place, [N, places, kernel * C], from [N, *covered, C]."""
    shape = (batch, prod(geometry.places), channels * prod(geometry.kernel))
    if prod(geometry.kernel) > 1:
        return reshape_to(geometry.windows(padded), shape)
    (tap,) = geometry.taps(padded) if max(geometry.strides) > 1 else (padded,)
    return reshape_to(tap, shape)


def by_channel(padded: Blob, matrix: Blob, geometry: Geometry, batch: int, weight: Shape, groups: int) -> Blob:
    """The convolution of each channel with its own kernel, [N, *places, O], as a sum over kernel elements."""
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
    """The products of many groups, as one product of stacks of matrices: [N, places, O]."""
    places, taps, made = prod(geometry.places), prod(geometry.kernel), weight[0] // groups
    rows = reshape_to(geometry.windows(padded), (batch, places, taps, groups, weight[1]))
    rows = reshape_to(transpose(rows, [0, 3, 1, 2, 4]), (batch, groups, places, taps * weight[1]))
    stack = transpose(reshape_to(matrix, (taps * weight[1], groups, made)), [1, 0, 2])
    return reshape_to(transpose(matmul(rows, stack), [0, 2, 1, 3]), (batch, places, weight[0]))


conv, conv_matrix = register(Conv()), register(ConvMatrix())
register(MatrixConv())


class ConvTranspose(Convolving):
    """Adds each element of x times the kernel at the places of its window.

    It is the gradient of a Conv for its operand.

    ONNX: ConvTranspose, op set 11. Each axis has `stride * (size - 1) + output_padding + span - pads` places, where
    `span = (kernel - 1) * dilation + 1`. Gradients are a Conv, and products of windows.

    Args:
        x: [N, C, *sizes] float.
        w: [C, O / group, *kernel] of the same dtype.
        b: [O] of the same dtype. By default none.
        auto_pad: as for `ro.conv`. With `"SAME_UPPER"` and `"SAME_LOWER"` there are `size * stride` places.
        dilations, group, kernel_shape, strides: as for `ro.conv`.
        output_padding: more places at the ends. By default 0.
        output_shape: numbers of places along each axis, from which pads are computed. An odd one is cut off at the
            begin, or at the end with `"SAME_UPPER"`. If there are too few places, zeros are added at the end.
        pads: numbers of places that are cut off: all begins, then all ends. By default none.

    Raises:
        NetError: x or w is not a blob, they are of several nets, or a list has values that are not integers.
        TypeRuleError: an argument is not float. Once shapes are known: channels or lists do not fit, or too much is cut
            off.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.conv_transpose(net.input("x"), net.input("w"), strides=[2]))
        >>> feeds = {"x": np.array([[[1.0, 2.0]]]), "w": np.array([[[1.0, 1.0, 3.0]]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[[1., 1., 5., 2., 6.]]])
    """

    attributes: ClassVar[dict[str, Any]] = {**Convolving.attributes, "output_padding": None, "output_shape": None}
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
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Blob:
        lists = {"dilations": dilations, "kernel_shape": kernel_shape, "pads": pads, "strides": strides}
        further = {"output_padding": output_padding, "output_shape": output_shape}
        return self.appended([x, w, b], auto_pad, group, **lists, **further)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        groups, weight = self.checked_groups(call, call.shape(1)[:1]), call.shape(1)
        if weight[0] != call.shape(0)[1]:
            call.fail("channels do not fit the weights", wanted=weight[0], came=call.shape(0)[1])
        self.check_bias(call, weight[1] * groups)
        return ((call.shape(0)[0], weight[1] * groups, *self.geometry(call).sizes),)

    def geometry(self, call: Call) -> Geometry:
        """The windows over the result, one for each element of x."""
        places, kernel = sizes_under(call), self.kernel(call)
        count = len(places)
        strides, dilations = (numbers_of(call, name, count, 1) for name in ("strides", "dilations"))
        more = numbers_of(call, "output_padding", count, 0, 0)
        spans = spans_of(kernel, dilations)
        reached = reach(places, strides, spans)
        full = tuple(map(sum, zip(reached, more, strict=True)))
        begins, ends = self.cuts(call, full, [n * stride for n, stride in zip(places, strides, strict=True)])
        sizes = tuple(size - begin - end for size, begin, end in zip(full, begins, ends, strict=True))
        if min(*sizes, *places) < 1:
            call.fail("an axis has no places left", wanted="pads that leave a place", came=list(sizes))
        ends = tuple(end - extra for end, extra in zip(ends, more, strict=True))
        return Geometry(sizes, kernel, strides, dilations, begins, ends, places)

    def cuts(self, call: Call, full: Sizes, same: Sequence[int]) -> tuple[Sizes, Sizes]:
        """Numbers of places that are cut off at begins and ends. They are negative where zeros are added."""
        count, auto = len(full), choice(call, "auto_pad", *AUTO_PADS)
        pads, given = numbers_of(call, "pads", 2 * count, 0, 0), call.attr("output_shape")
        if given is None and not auto.startswith("SAME"):
            if auto == "VALID" and any(pads):
                call.fail("pads are given together with auto_pad", wanted="auto_pad='NOTSET' or no pads", came=auto)
            return pads[:count], pads[count:]
        wanted = same if given is None else numbers_of(call, "output_shape", count, 1)
        totals = [size - places for size, places in zip(full, wanted, strict=True)]
        begins, ends = halves([max(total, 0) for total in totals], auto)
        return begins, tuple(end + min(total, 0) for end, total in zip(ends, totals, strict=True))

    @quiet
    def reference(self, call: Call, x: Array, w: Array, b: Array | None = None) -> Array:
        geometry, groups = self.geometry(call), call.attr("group")
        x_parts, w_parts = np.split(x, groups, 1), np.split(w, groups, 0)
        parts = [_spread(part, weight, geometry) for part, weight in zip(x_parts, w_parts, strict=True)]
        y = np.concatenate(parts, 1)
        return y if b is None else y + with_channels(b, y.ndim)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        x, w, dy = blobs[0], blobs[1], blobs[-1]
        geometry, groups = self.geometry(call), call.attr("group")
        dx = convolution(dy, w, geometry, groups)
        dw = weight_gradient(dy, x, geometry, call.shape(1), call.shape(0)[0], groups)
        return self.with_bias_gradient(call, dx, dw, dy)

    def expand(self, call: Call, x: Blob, w: Blob, b: Blob | None = None) -> Blob:
        geometry, groups, weight = self.geometry(call), call.attr("group"), call.shape(1)
        batch, channels = call.shape(0)[0], weight[1] * groups
        if max(geometry.strides) == 1:
            back = geometry.backwards()
            return convolved(
                x,
                conv_matrix(turned_weights(w, weight, groups)),
                b,
                back,
                call.shape(0),
                (channels, weight[0] // groups, *weight[FIRST_AXIS:]),
                groups,
            )
        rows = channels_last(x)
        spread = (transposed_by_channel if weight[0] == groups and groups > 1 else products)(
            rows, w, geometry, batch, weight, groups
        )
        y = geometry.put_back(spread, channels, batch)
        return y if b is None else y + reshape_to(b, (channels, *(1 for _ in geometry.sizes)))


def turned_weights(w: Blob, weight: Shape, groups: int) -> Blob:
    """Weights of a ConvTranspose of stride 1 as those of a Conv, with the kernel flipped: [O, C / groups, *kernel]."""
    channels, made, *kernel = weight
    axes = [i + FIRST_AXIS for i in range(len(kernel))]
    back = slice_(w, [-1] * len(axes), [-(2**62)] * len(axes), axes, [-1] * len(axes))
    parts = transpose(reshape_to(back, (groups, channels // groups, made, *kernel)), [0, 2, 1, *(a + 1 for a in axes)])
    return reshape_to(parts, (groups * made, channels // groups, *kernel))


def transposed_by_channel(rows: Blob, w: Blob, geometry: Geometry, batch: int, weight: Shape, groups: int) -> Blob:
    """Each element of [N, places, C] times its channel's kernels, [N, *places, *kernel, O]."""
    times, taps, places = weight[1], prod(geometry.kernel), prod(geometry.places)
    factors = transpose(reshape_to(w, (groups, times, taps)), [2, 0, 1])
    product = reshape_to(rows, (batch, places, 1, groups, 1)) * factors
    return reshape_to(product, (batch, *geometry.places, *geometry.kernel, groups * times))


def products(rows: Blob, w: Blob, geometry: Geometry, batch: int, weight: Shape, groups: int) -> Blob:
    """Products of rows [N, places, C] and the weights, for each group: [N, *places, *kernel, O]."""
    (channels, made, *kernel), taps, places = weight, prod(geometry.kernel), prod(geometry.places)
    inner, shape = channels // groups, (batch, *geometry.places, *kernel, made * groups)
    by_tap = transpose(reshape_to(w, (groups, inner, made, taps)), [0, 1, 3, 2])
    if groups == 1:
        return reshape_to(matmul(rows, reshape_to(by_tap, (inner, taps * made))), shape)
    stack = transpose(reshape_to(rows, (batch, places, groups, inner)), [0, 2, 1, 3])
    spread = matmul(stack, reshape_to(by_tap, (groups, inner, taps * made)))
    spread = transpose(reshape_to(spread, (batch, groups, places, taps, made)), [0, 2, 3, 1, 4])
    return reshape_to(spread, shape)


def _spread(x: Array, w: Array, geometry: Geometry) -> Array:
    """One group in plain NumPy: adds, for each kernel element, its products at the places that it meets."""
    spread = np.tensordot(x, w, (1, 0))  # [N, *places, O, *kernel]
    count = len(geometry.sizes)
    reached = reach(geometry.places, geometry.strides, geometry.spans)
    total = np.zeros((x.shape[0], w.shape[1], *reached), x.dtype)
    for tap in np.ndindex(*geometry.kernel):
        counted = zip(tap, geometry.dilations, geometry.places, geometry.strides, strict=True)
        met = tuple(slice(i * d, i * d + (n - 1) * s + 1, s) for i, d, n, s in counted)
        part = np.moveaxis(spread, range(-len(tap), 0), range(len(tap)))[tap]
        total[(slice(None), slice(None)) + met] += np.moveaxis(part, -1, 1)  # noqa: RUF005
    result = np.zeros((*total.shape[:FIRST_AXIS], *geometry.sizes), x.dtype)
    target, source = [slice(None)] * FIRST_AXIS, [slice(None)] * FIRST_AXIS
    for axis in range(count):
        begin, size = geometry.begins[axis], geometry.sizes[axis]
        first, last = max(0, begin), min(reached[axis], size + begin)
        source.append(slice(first, max(first, last)))
        target.append(slice(first - begin, max(first, last) - begin))
    result[tuple(target)] = total[tuple(source)]
    return result


def convolution(x: Blob, w: Blob, geometry: Geometry, groups: int) -> Blob:
    """A Conv over given windows, which may also cut x."""
    pads = (*geometry.begins, *geometry.ends)
    attributes: dict[str, Any] = {"dilations": geometry.dilations, "strides": geometry.strides, "group": groups}
    if min(pads) >= 0:
        return x.net.append("Conv", [x, w], {**attributes, "pads": pads})[0]
    padded = pad(x, list(pads), axes=list(range(FIRST_AXIS, FIRST_AXIS + len(geometry.sizes))))
    return x.net.append("Conv", [padded, w], attributes)[0]


def transposed_convolution(x: Blob, w: Blob, geometry: Geometry, groups: int) -> Blob:
    """A ConvTranspose that adds at the places of given windows."""
    reached = reach(geometry.places, geometry.strides, geometry.spans)
    more = tuple(size - used for size, used in zip(geometry.covered, reached, strict=True))
    attributes = {"dilations": geometry.dilations, "strides": geometry.strides, "group": groups}
    lists = {"pads": (*geometry.begins, *geometry.ends), "output_padding": more}
    return x.net.append("ConvTranspose", [x, w], {**attributes, **lists})[0]


conv_transpose = register(ConvTranspose())
