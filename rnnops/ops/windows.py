"""Windows that slide over the last axes of an array: their places, their elements, and pooling.

Convolutions and pooling share attributes that are read here: kernel sizes, strides, dilations, pads. Loop forms of
these ops have channels as the last axis, so that the elements of a window are neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from rnnops.errors import NetError
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion, View
from rnnops.net.net import common_net
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, register
from rnnops.ops.arithmetic import sign, sqrt
from rnnops.ops.base import MANY_OPERANDS, Unary, choice, flag, quiet, scatter_add
from rnnops.ops.comparison import equal, greater, where
from rnnops.ops.indexing import pad, slice as slice_
from rnnops.ops.movement import expand, reshape_to
from rnnops.ops.reduction import FIRST_AXIS, reduce_min, sizes_under
from rnnops.sizes import whole
from rnnops.types import ANY, FLOATS, NUMERIC, Array, Shape, limit

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
WINDOW_ATTRIBUTES: dict[str, Any] = {
    "auto_pad": "NOTSET", "dilations": None, "kernel_shape": None, "pads": None, "strides": None
}  # fmt: skip
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """The places of windows on axes of given sizes.

    Args:
        sizes: of the axes.
        kernel, strides, dilations: one number for each axis.
        begins, ends: padding before and after each axis. A last window that reaches beyond the end gets more padding
            there.
        places: number of windows along each axis.
    """

    sizes: Sizes
    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    begins: Sizes
    ends: Sizes
    places: Sizes

    @property
    def spans(self) -> Sizes:
        """The length of a window along each axis."""
        return spans_of(self.kernel, self.dilations)

    @property
    def covered(self) -> Sizes:
        """The sizes of the axes with their padding."""
        return tuple(map(sum, zip(self.sizes, self.begins, self.ends, strict=True)))

    def backwards(self) -> Geometry:
        """The geometry of the transposed convolution: windows of stride 1 over the places of this one."""
        begins = tuple(span - 1 - begin for span, begin in zip(self.spans, self.begins, strict=True))
        counted = zip(self.sizes, self.places, begins, self.spans, strict=True)
        ends = tuple(size - places - begin + span - 1 for size, places, begin, span in counted)
        return Geometry(self.places, self.kernel, self.strides, self.dilations, begins, ends, self.sizes)

    def last(self, x: Blob, channels: int, batch: int, value: float = 0.0) -> Blob:
        """An array [N, C, *sizes] as [N, *covered, C], padded with a value and with channels last."""
        pads, axes = (*self.begins, *self.ends), range(1, 1 + len(self.sizes))
        turned = reshape_to(channels_last(x), (batch, *self.sizes, channels))
        return pad(turned, list(pads), value, axes=list(axes)) if any(pads) else turned

    def first(self, y: Blob, channels: int, batch: int) -> Blob:
        """Results of all places, [N, *places, O], as [N, O, *places]."""
        return channels_first(reshape_to(y, (batch, prod(self.places), channels)), self.places)

    def windows(self, padded: Blob) -> Blob:
        """Windows over [N, *covered, C], as [N, *places, *kernel, C]."""
        return windows(padded, self.kernel, self.strides, self.dilations)

    def taps(self, padded: Blob) -> Iterator[Blob]:
        """For each kernel element, in order, the numbers of [N, *covered, C] that it meets: [N, *places, C]."""
        axes = list(range(1, 1 + len(self.sizes)))
        for tap in product(*map(range, self.kernel)):
            starts = [i * dilation for i, dilation in zip(tap, self.dilations, strict=True)]
            counted = zip(starts, self.places, self.strides, strict=True)
            ends = [start + (places - 1) * stride + 1 for start, places, stride in counted]
            yield slice_(padded, starts, ends, axes, list(self.strides))

    def put_back(self, windows: Blob, channels: int, batch: int) -> Blob:
        """Windows [N, *places, *kernel, C], added at the places that they were taken from: [N, C, *sizes]."""
        total = scatter_windows(windows, batch, channels, self.covered, self.kernel, self.strides, self.dilations)
        pads, axes = (*self.begins, *self.ends), range(1, 1 + len(self.sizes))
        if any(pads):
            total = pad(total, [-width for width in pads], axes=list(axes))
        return channels_first(reshape_to(total, (batch, prod(self.sizes), channels)), self.sizes)


def spans_of(kernel: Sequence[int], dilations: Sequence[int]) -> Sizes:
    """The length of a kernel with gaps along each axis."""
    return tuple((size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True))


def reach(places: Sequence[int], strides: Sequence[int], spans: Sequence[int]) -> Sizes:
    """The length that all windows cover together along each axis."""
    return tuple((n - 1) * stride + span for n, stride, span in zip(places, strides, spans, strict=True))


def scatter_windows(
    windows: Blob, batch: int, channels: int, sizes: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes
) -> Blob:
    """Windows [N, *places, *kernel, C], added at their places on axes of given sizes: [N, *sizes, C]."""
    numbers = np.arange(prod(sizes)).reshape((1, *sizes, 1))
    places = windows.net.constant(windows_of(numbers, kernel, strides, dilations)[0, ..., 0], "int64")
    return reshape_to(scatter_add(windows, places, 1, prod(sizes)), (batch, *sizes, channels))


class ChannelsLast(Unary):
    """An array [N, C, *sizes] as rows of channels, [N, places, C]."""

    accepts = ANY
    internal = True
    loop = View()

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        batch, channels, *sizes = call.shape(0)
        return ((batch, prod(sizes), channels),)

    def reference(self, call: Call, x: Array) -> Array:
        batch, channels = x.shape[:FIRST_AXIS]
        places = prod(x.shape[FIRST_AXIS:])
        return np.array(np.swapaxes(x.reshape(batch, channels, places), 1, 2), order="C")

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return channels_first(dy, call.shape(0)[FIRST_AXIS:])


class ChannelsFirst(OpSchema):
    """Rows of channels [N, places, C] as [N, C, *sizes]."""

    attributes: ClassVar[dict[str, Any]] = {"sizes": REQUIRED}
    internal = True
    loop = View()

    def __call__(self, x: Blob, sizes: Sequence[int]) -> Blob:
        return common_net([x]).append(self.name, [x], {"sizes": tuple(sizes)})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        batch, places, channels = call.shape(0)
        if prod(call.attr("sizes")) != places:
            call.fail("places do not fit the sizes", wanted=list(call.attr("sizes")), came=places)
        return ((batch, channels, *call.attr("sizes")),)

    def reference(self, call: Call, x: Array) -> Array:
        return np.array(np.swapaxes(x, 1, 2), order="C").reshape(call.output_types[0].shape)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return channels_last(dy)


class Windows(OpSchema):
    """Windows that slide over the middle axes: [N, *sizes, C] to [N, *places, *kernel, C]."""

    attributes: ClassVar[dict[str, Any]] = {"kernel": REQUIRED, "strides": REQUIRED, "dilations": REQUIRED}
    internal = True
    loop = View()

    def __call__(self, x: Blob, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Blob:
        attributes = {"kernel": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations)}
        return common_net([x]).append(self.name, [x], attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        (batch, *sizes, channels), kernel = call.shape(0), call.attr("kernel")
        spans = spans_of(kernel, call.attr("dilations"))
        if len(spans) != len(sizes) or any(span > size for span, size in zip(spans, sizes, strict=True)):
            call.fail("windows do not fit the axes that they slide over", wanted=list(spans), came=sizes)
        counted = zip(sizes, spans, call.attr("strides"), strict=True)
        places = tuple((size - span) // stride + 1 for size, span, stride in counted)
        return ((batch, *places, *kernel, channels),)

    def reference(self, call: Call, x: Array) -> Array:
        return np.array(windows_of(x, *(call.attr(name) for name in ("kernel", "strides", "dilations"))), order="C")

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        batch, *sizes, channels = call.shape(0)
        attributes = (call.attr(name) for name in ("kernel", "strides", "dilations"))
        return scatter_windows(dy, batch, channels, tuple(sizes), *attributes)


def windows_of(x: Array, kernel: Sizes, strides: Sizes, dilations: Sizes) -> Array:
    """A view of an array [N, *sizes, C] as its windows, [N, *places, *kernel, C]."""
    axes = tuple(range(1, 1 + len(kernel)))
    every = sliding_window_view(x, spans_of(kernel, dilations), axes)  # [N, *starts, C, *spans]
    steps = tuple(slice(None, None, step) for step in strides)
    within = tuple(slice(None, None, step) for step in dilations)
    return np.moveaxis(every[(slice(None),) + steps + (slice(None),) + within], 1 + len(kernel), -1)  # noqa: RUF005


# -- attributes ------------------------------------------------------------------------------------------------------


def append_windowed(
    schema: OpSchema, blobs: Sequence[Blob | None], auto_pad: object, numbers: dict[str, int], **lists: Any
) -> Blob:
    """Append an op on windows. Missing blobs at the end, and attributes with default values, are not stored.

    Raises NetError for attributes of wrong types.
    """
    if not isinstance(auto_pad, str):
        raise NetError("auto_pad is unknown", op=schema.name, wanted=", ".join(AUTO_PADS), came=repr(auto_pad))
    given = {"auto_pad": auto_pad, **numbers}
    plain = {name: value for name, value in given.items() if value != schema.attributes[name]}
    inputs = list(blobs)
    while len(inputs) > 1 and inputs[-1] is None:
        inputs.pop()
    return common_net(inputs).append(schema.name, inputs, {**plain, **integers_given(schema.name, **lists)})[0]


def integers_given(op: str, **values: Any) -> dict[str, Any]:
    """The given attributes that are lists of integers. Raises NetError for other values."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if value is None:
            continue
        try:
            found[name] = tuple(whole(item) for item in np.ravel(value).tolist())
        except TypeError:
            raise NetError(f"'{name}' must be a list of integers", op=op, came=repr(value)) from None
    return found


def numbers_of(call: Call, name: str, count: int, default: int, least: int = 1) -> Sizes:
    """An attribute with one number for each axis."""
    value = call.attr(name)
    numbers = (default,) * count if value is None else value
    is_list = isinstance(numbers, list | tuple) and all(
        isinstance(item, int) and not isinstance(item, bool) for item in numbers
    )
    if not is_list or len(numbers) != count or min(numbers) < least:
        call.fail(f"'{name}' must have {count} integers of {least} or more", came=value)
    return tuple(numbers)


def geometry_of(call: Call, kernel: Sizes, ceil_mode: bool = False) -> Geometry:
    """The windows of a call on the axes of its first input. Raises TypeRuleError if they do not fit."""
    sizes, count = sizes_under(call), len(kernel)
    strides, dilations = (numbers_of(call, name, count, 1) for name in ("strides", "dilations"))
    spans = spans_of(kernel, dilations)
    begins, ends = pads_of(call, sizes, spans, strides)
    covered = [sum(item) for item in zip(sizes, begins, ends, strict=True)]
    if any(span > size for span, size in zip(spans, covered, strict=True)):
        call.fail("the kernel is larger than the padded axes", wanted=f"{list(spans)} or more", came=covered)
    places = tuple((size - span) // stride + 1 for size, span, stride in zip(covered, spans, strides, strict=True))
    if ceil_mode:
        counted = zip(places, sizes, begins, covered, spans, strides, strict=True)
        places = tuple(_with_last(*item) for item in counted)
        reached = reach(places, strides, spans)
        ends = tuple(end + max(r - size, 0) for end, r, size in zip(ends, reached, covered, strict=True))
    return Geometry(sizes, kernel, strides, dilations, begins, ends, places)


def _with_last(places: int, size: int, begin: int, covered: int, span: int, stride: int) -> int:
    """The number of windows with a last one that reaches over the end, if it starts before the padding at the end."""
    more = (covered - span) % stride != 0 and places * stride < size + begin
    return places + 1 if more else places


def pads_of(call: Call, sizes: Sizes, spans: Sizes, strides: Sizes) -> tuple[Sizes, Sizes]:
    """The padding before and after each axis."""
    count, auto = len(sizes), choice(call, "auto_pad", *AUTO_PADS)
    pads = numbers_of(call, "pads", 2 * count, 0, 0)
    if auto == "NOTSET":
        return pads[:count], pads[count:]
    if any(pads):
        call.fail("pads are given together with auto_pad", wanted="auto_pad='NOTSET' or no pads", came=auto)
    if auto == "VALID":
        return (0,) * count, (0,) * count
    counted = zip(sizes, spans, strides, strict=True)
    totals = [max((-(-size // stride) - 1) * stride + span - size, 0) for size, span, stride in counted]
    return halves(totals, auto)


def halves(totals: Sequence[int], auto_pad: str) -> tuple[Sizes, Sizes]:
    """Splits totals into both sides. An odd one goes to the end for `SAME_UPPER`, else to the begin."""
    less, more = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


windows, channels_last, channels_first = register(Windows()), register(ChannelsLast()), register(ChannelsFirst())


class Pooling(OpSchema):
    """The result of each window of x [N, C, *sizes]: [N, C, *places].

    Returns:
        [N, C, *places] of the same dtype.
    """

    attributes: ClassVar[dict[str, Any]] = {**WINDOW_ATTRIBUTES, "kernel_shape": REQUIRED, "ceil_mode": 0}
    accepts: ClassVar[tuple[str, ...]] = FLOATS
    keeps: ClassVar[tuple[str, ...]] = ("X",)
    loop = Expansion()

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return ((*call.shape(0)[:FIRST_AXIS], *self.geometry(call).places),)

    def around(self, dtype: str) -> float:
        """The value of the padding around x."""
        return 0

    def geometry(self, call: Call) -> Geometry:
        """The places of the windows."""
        kernel = numbers_of(call, "kernel_shape", len(sizes_under(call)), 1)
        return geometry_of(call, kernel, bool(call.attr("ceil_mode")))

    def windows(self, call: Call, x: Array) -> Array:
        """The windows, for the reference: [N, C, *places, elements]."""
        geometry = self.geometry(call)
        around = [(0, 0), (0, 0), *zip(geometry.begins, geometry.ends, strict=True)]
        padded = np.moveaxis(np.pad(x, around, constant_values=self.around(x.dtype.name)), 1, -1)
        every = windows_of(padded, geometry.kernel, geometry.strides, geometry.dilations)  # [N, *places, *kernel, C]
        by_channel = np.moveaxis(every, -1, 1)
        return by_channel.reshape(*by_channel.shape[: FIRST_AXIS + len(geometry.sizes)], prod(geometry.kernel))

    def folded(self, call: Call, name: str, x: Blob) -> Blob:
        """Each window joined by `Max` or `Sum`, [N, O, *places]. Small windows are joined element by element."""
        geometry, (batch, channels) = self.geometry(call), call.shape(0)[:FIRST_AXIS]
        padded, count = geometry.last(x, channels, batch, self.around(call.dtype(0))), len(geometry.sizes)
        if 1 < prod(geometry.kernel) <= MANY_OPERANDS:
            return geometry.first(x.net.apply(name, list(geometry.taps(padded))), channels, batch)
        attributes = {"axes": tuple(range(1 + count, 1 + 2 * count)), "keepdims": 0}
        (y,) = x.net.append(f"Reduce{name}", [geometry.windows(padded)], attributes)
        return geometry.first(y, channels, batch)

    def spread(self, call: Call, shares: Blob) -> Blob:
        """Adds the gradient of each place to all elements of its window."""
        geometry, (batch, channels) = self.geometry(call), call.shape(0)[:FIRST_AXIS]
        wide = reshape_to(channels_last(shares), (batch, *geometry.places, *(1 for _ in geometry.sizes), channels))
        every = expand(wide, [batch, *geometry.places, *geometry.kernel, channels])
        return geometry.put_back(every, channels, batch)


class MaxPool(Pooling):
    """The largest element of each window, or NaN if the window has one.

    ONNX: MaxPool, op set 12, without its second result. The padding is the smallest number of the dtype, -inf for
    floats. If several elements are largest, the first one gets the gradient, as in PyTorch and JAX. With a NaN no
    element gets it.

    Args:
        x: [N, C, *sizes] float or integer, with one axis or more to slide over.
        kernel_shape: one size for each of these axes.
        auto_pad, dilations, pads, strides: as for `ro.conv`.
        ceil_mode: 1 or True for one more window that reaches over the end, if it starts before the padding there.

    Raises:
        NetError: x is not a blob, a list has values that are not integers, or ceil_mode is not a flag.
        TypeRuleError: x is bool. Once shapes are known: lists do not fit, or the kernel is larger than the padded axes.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.max_pool(net.input("x"), [2], strides=[2]))
        >>> ro.compile(net, device="reference")({"x": np.array([[[1.0, 3.0, 2.0, 0.0]]])})["y"]
        array([[[3., 2.]]])
    """

    accepts = NUMERIC
    keeps = ("X", "Y")

    def __call__(
        self,
        x: Blob,
        kernel_shape: Sequence[int],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Blob:
        lists = {"kernel_shape": kernel_shape, "dilations": dilations, "pads": pads, "strides": strides}
        return append_windowed(self, [x], auto_pad, {"ceil_mode": flag(ceil_mode, self.name)}, **lists)

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(self.windows(call, x).max(axis=-1))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        geometry, (batch, channels) = self.geometry(call), call.shape(0)[:FIRST_AXIS]
        count = len(geometry.sizes)
        held = geometry.windows(geometry.last(x, channels, batch, float("-inf")))
        wide = (batch, *geometry.places, *(1 for _ in geometry.sizes), channels)
        here = equal(held, reshape_to(channels_last(y), wide))
        size = prod(geometry.kernel)
        order = x.net.constant(np.arange(size, dtype=np.int32).reshape(*geometry.kernel, 1))
        first = reduce_min(where(here, order, size), list(range(1 + count, 1 + 2 * count)))
        share = where(equal(order, first), reshape_to(channels_last(dy), wide), 0.0)
        return geometry.put_back(share, channels, batch)

    def expand(self, call: Call, x: Blob) -> Blob:
        return self.folded(call, "Max", x)

    def around(self, dtype: str) -> float:
        return limit(dtype, -1)


class AveragePool(Pooling):
    """The mean of each window.

    ONNX: AveragePool, op set 19. Each element of a window gets its share of the gradient.

    Args:
        x: [N, C, *sizes] float, with one axis or more to slide over.
        kernel_shape: one size for each of these axes.
        auto_pad, dilations, pads, strides: as for `ro.conv`.
        ceil_mode: as for `ro.max_pool`. Elements of such a window beyond the pads are not counted.
        count_include_pad: 1 or True to count the zeros of the padding. By default means are over elements of x only.

    Raises:
        NetError: x is not a blob, a list has values that are not integers, or a flag is neither on nor off.
        TypeRuleError: x is not float. Once shapes are known: lists do not fit, or the kernel is larger than the padded
            axes.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.average_pool(net.input("x"), [2], pads=[1, 0]))
        >>> ro.compile(net, device="reference")({"x": np.array([[[1.0, 3.0, 2.0]]])})["y"]
        array([[[1. , 2. , 2.5]]])
    """

    attributes: ClassVar[dict[str, Any]] = {**Pooling.attributes, "count_include_pad": 0}
    keeps = ()

    def __call__(
        self,
        x: Blob,
        kernel_shape: Sequence[int],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        count_include_pad: int = 0,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Blob:
        lists = {"kernel_shape": kernel_shape, "dilations": dilations, "pads": pads, "strides": strides}
        flags = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        numbers = {name: flag(value, self.name) for name, value in flags.items()}
        return append_windowed(self, [x], auto_pad, numbers, **lists)

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        total = self.windows(call, x).sum(axis=-1, dtype=x.dtype)
        return np.asarray(total / self.counts(call).astype(x.dtype))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return self.spread(call, self.divided(call, dy))

    def expand(self, call: Call, x: Blob) -> Blob:
        return self.divided(call, self.folded(call, "Sum", x))

    def divided(self, call: Call, total: Blob) -> Blob:
        """Divides by the number of elements that count at each place."""
        counts = self.counts(call)
        first = float(counts.flat[0])
        return total / (first if (counts == first).all() else total.net.constant(counts.astype(float), total.dtype))

    def counts(self, call: Call) -> Array:
        """The number of elements that count at each place, [*places]; 1 for an empty window."""
        geometry, counts = self.geometry(call), np.ones((), np.int64)
        axes = zip(geometry.sizes, *self.counted(call, geometry), geometry.places, strict=True)
        for axis, (size, begin, end, places) in enumerate(axes):
            step, stride = geometry.dilations[axis], geometry.strides[axis]
            met = np.arange(places)[:, None] * stride + np.arange(geometry.kernel[axis]) * step - geometry.begins[axis]
            counts = np.multiply.outer(counts, ((met >= -begin) & (met < size + end)).sum(1))
        return np.maximum(counts, 1)

    def counted(self, call: Call, geometry: Geometry) -> tuple[Sequence[int], Sequence[int]]:
        """The pads that count: none or all."""
        if not call.attr("count_include_pad"):
            return (0,) * len(geometry.sizes), (0,) * len(geometry.sizes)
        return geometry.begins, geometry_of(call, geometry.kernel).ends


class LpPool(Pooling):
    """The norm of each window, `(sum of |x|^p)^(1/p)`.

    ONNX: LpPool, op set 18. The gradient is 0 where the norm is 0.

    Args:
        x: [N, C, *sizes] float, with one axis or more to slide over.
        kernel_shape: one size for each of these axes.
        p: 1 or more.
        auto_pad, dilations, pads, strides: as for `ro.conv`.
        ceil_mode: as for `ro.max_pool`.

    Raises:
        NetError: x is not a blob, a list has values that are not integers, or ceil_mode is not a flag.
        TypeRuleError: x is not float. Once shapes are known: p is not an integer of 1 or more, lists do not fit, or the
            kernel is larger than the padded axes.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.lp_pool(net.input("x"), [2]))
        >>> ro.compile(net, device="reference")({"x": np.array([[[3.0, -4.0, 0.0]]])})["y"]
        array([[[5., 4.]]])
    """

    attributes: ClassVar[dict[str, Any]] = {**Pooling.attributes, "p": 2}
    keeps = ("X", "Y")

    def __call__(
        self,
        x: Blob,
        kernel_shape: Sequence[int],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: Sequence[int] | None = None,
        p: int = 2,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Blob:
        lists = {"kernel_shape": kernel_shape, "dilations": dilations, "pads": pads, "strides": strides}
        if isinstance(p, bool) or not isinstance(p, int | np.integer):
            raise NetError("p must be an integer", op=self.name, came=repr(p))
        return append_windowed(self, [x], auto_pad, {"ceil_mode": flag(ceil_mode, self.name), "p": int(p)}, **lists)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if not isinstance(call.attr("p"), int) or call.attr("p") < 1:
            call.fail("p must be an integer of 1 or more", came=repr(call.attr("p")))
        return super().shapes(call)

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        p = call.attr("p")
        total = (np.abs(self.windows(call, x)) ** p).sum(axis=-1, dtype=x.dtype)
        return np.asarray(total ** x.dtype.type(1 / p), x.dtype)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        p = call.attr("p")
        share = where(greater(y, 0.0), dy / y ** float(p - 1), 0.0)
        return self.spread(call, share) * sign(x) * abs(x) ** float(p - 1)

    def expand(self, call: Call, x: Blob) -> Blob:
        p = call.attr("p")
        powers = x * x if p == 2 else abs(x) ** float(p)
        total = self.folded(call, "Sum", powers)
        return sqrt(total) if p == 2 else total ** (1 / p)


max_pool, average_pool, lp_pool = register(MaxPool()), register(AveragePool()), register(LpPool())
