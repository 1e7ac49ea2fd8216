"""ConvTranspose: what Conv does to gradients of its operand, as an op of its own."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Expansion
from rnnops.net import common_net
from rnnops.ops.base import choice, quiet
from rnnops.ops.conv_parts import Convolving, weight_gradient, with_channels
from rnnops.ops.indexing import pad
from rnnops.ops.internal import sum_to
from rnnops.ops.movement import reshape_to, transpose
from rnnops.ops.products import matmul
from rnnops.ops.windows import (
    AUTO_PADS,
    FIRST_AXIS,
    Geometry,
    Sizes,
    channels_last,
    halves,
    integers_given,
    numbers_of,
    reach,
    sizes_under,
    spans_of,
)
from rnnops.schema import Call, Gradients, register
from rnnops.types import Array, Shape


class ConvTranspose(Convolving):
    """Every element of x times the kernel, added up where it lies: the gradient of a Conv by its operand.

    ONNX: ConvTranspose, op set 11. Along each axis there are `stride * (size - 1) + output_padding + span - pads`
    places, where `span = (kernel - 1) * dilation + 1`. Gradients are a Conv, and products of windows.

    Args:
        x: [N, C, *sizes] float.
        w: [C, O / group, *kernel] of the same dtype.
        b: [O] of the same dtype; none if left out.
        auto_pad: as for `ro.conv`; with `"SAME_UPPER"` and `"SAME_LOWER"` there are `size * stride` places.
        dilations, group, kernel_shape, strides: as for `ro.conv`.
        output_padding: more places at the ends, 0 if left out.
        output_shape: how many places there are along each axis, from which pads follow, the odd one at the begin unless
            auto_pad is `"SAME_UPPER"`; zeros are put at the end where there are too few.
        pads: what is cut off: all begins, then all ends; none if left out.

    Returns:
        [N, O, *places] of the same dtype.

    Raises:
        NetError: x or w is no blob, they are of several nets, or a list has others than integers.
        TypeRuleError: one is not float; once shapes are known, channels or lists do not fit, or more is cut off than
            there is.

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
        inputs = [x, w] if b is None else [x, w, b]
        lists = integers_given(
            self.name,
            dilations=dilations,
            kernel_shape=kernel_shape,
            output_padding=output_padding,
            output_shape=output_shape,
            pads=pads,
            strides=strides,
        )
        return common_net(inputs).append(self.name, inputs, {**self.plain(auto_pad, group), **lists})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        groups, weight = self.checked_groups(call, call.shape(1)[:1]), call.shape(1)
        if weight[0] != call.shape(0)[1]:
            call.fail("channels do not fit the weights", wanted=weight[0], came=call.shape(0)[1])
        self.check_bias(call, weight[1] * groups)
        return ((call.shape(0)[0], weight[1] * groups, *self.geometry(call).sizes),)

    def geometry(self, call: Call) -> Geometry:
        """Where windows over the result lie, one for each element of x."""
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
            call.fail("nothing is left along an axis", wanted="pads that leave a place", came=list(sizes))
        ends = tuple(end - extra for end, extra in zip(ends, more, strict=True))
        return Geometry(sizes, kernel, strides, dilations, begins, ends, places)

    def cuts(self, call: Call, full: Sizes, same: Sequence[int]) -> tuple[Sizes, Sizes]:
        """What is cut off at the begins and at the ends; below 0 where zeros are put there."""
        count, auto = len(full), choice(call, "auto_pad", *AUTO_PADS)
        pads, given = numbers_of(call, "pads", 2 * count, 0, 0), call.attr("output_shape")
        if given is None and not auto.startswith("SAME"):
            if auto == "VALID" and any(pads):
                call.fail("pads are given, and to be none", wanted="auto_pad='NOTSET' or no pads", came=auto)
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
        geometry, groups, weight = self.geometry(call), call.attr("group"), call.shape(1)
        dx = convolution(dy, w, geometry, groups)
        dw = weight_gradient(dy, x, geometry, weight, call.shape(0)[0], groups)
        if not call.has(2):
            return dx, dw
        channels = sum_to(dy, (1, weight[1] * groups, *(1 for _ in geometry.sizes)))
        return dx, dw, reshape_to(channels, call.shape(2))

    def expand(self, call: Call, x: Blob, w: Blob, b: Blob | None = None) -> Blob:
        geometry, groups, weight = self.geometry(call), call.attr("group"), call.shape(1)
        batch, channels, rows = call.shape(0)[0], weight[1] * groups, channels_last(x)
        spread = (by_channel if weight[0] == groups and groups > 1 else products)(
            rows, w, geometry, batch, weight, groups
        )
        y = geometry.put_back(spread, channels, batch)
        return y if b is None else y + reshape_to(b, (channels, *(1 for _ in geometry.sizes)))


def by_channel(rows: Blob, w: Blob, geometry: Geometry, batch: int, weight: Shape, groups: int) -> Blob:
    """Each element of [N, places, C] times the kernels of its channel, [N, *places, *kernel, O]."""
    times, taps, places = weight[1], prod(geometry.kernel), prod(geometry.places)
    factors = transpose(reshape_to(w, (groups, times, taps)), [2, 0, 1])
    product = reshape_to(rows, (batch, places, 1, groups, 1)) * factors
    return reshape_to(product, (batch, *geometry.places, *geometry.kernel, groups * times))


def products(rows: Blob, w: Blob, geometry: Geometry, batch: int, weight: Shape, groups: int) -> Blob:
    """Rows [N, places, C] times the weights, for each group: [N, *places, *kernel, O]."""
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
    """One group in plain NumPy: for each element of the kernel, what it adds to the places that it meets."""
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
    """A Conv over windows of a geometry, which may cut x, too."""
    pads = (*geometry.begins, *geometry.ends)
    attributes: dict[str, Any] = {"dilations": geometry.dilations, "strides": geometry.strides, "group": groups}
    if min(pads) >= 0:
        return x.net.append("Conv", [x, w], {**attributes, "pads": pads})[0]
    padded = pad(x, list(pads), axes=list(range(FIRST_AXIS, FIRST_AXIS + len(geometry.sizes))))
    return x.net.append("Conv", [padded, w], attributes)[0]


def transposed_convolution(x: Blob, w: Blob, geometry: Geometry, groups: int) -> Blob:
    """A ConvTranspose that adds up where the windows of a geometry lie."""
    reached = reach(geometry.places, geometry.strides, geometry.spans)
    more = tuple(size - used for size, used in zip(geometry.covered, reached, strict=True))
    attributes = {"dilations": geometry.dilations, "strides": geometry.strides, "group": groups}
    lists = {"pads": (*geometry.begins, *geometry.ends), "output_padding": more}
    return x.net.append("ConvTranspose", [x, w], {**attributes, **lists})[0]


conv_transpose = register(ConvTranspose())
