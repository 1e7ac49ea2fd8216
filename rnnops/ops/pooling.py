"""Pooling: the largest, the mean or a norm of what a window holds, or of all that a channel has."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.errors import NetError
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, register
from rnnops.ops.arithmetic import sign, sqrt
from rnnops.ops.base import MANY_OPERANDS, Unary, flag, quiet
from rnnops.ops.comparison import cast, equal, greater, where
from rnnops.ops.movement import expand, reshape_to
from rnnops.ops.reduction import reduce_max, reduce_mean, reduce_min, reduce_sum
from rnnops.ops.windows import (
    FIRST_AXIS,
    WINDOW_ATTRIBUTES,
    Geometry,
    append_windowed,
    channels_last,
    geometry_of,
    numbers_of,
    sizes_under,
    windows_of,
)
from rnnops.types import FLOATS, NUMERIC, Array, Shape, limit


class Pooling(OpSchema):
    """The result of each window over x [N, C, *sizes]: [N, C, *places].

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
        """The padding around x."""
        return 0

    def geometry(self, call: Call) -> Geometry:
        """Where the windows lie."""
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
        """The windows, joined by `Max` or `Sum`, [N, O, *places]: element by element where these are few."""
        geometry, (batch, channels) = self.geometry(call), call.shape(0)[:FIRST_AXIS]
        padded, count = geometry.last(x, channels, batch, self.around(call.dtype(0))), len(geometry.sizes)
        if 1 < prod(geometry.kernel) <= MANY_OPERANDS:
            return geometry.first(x.net.apply(name, list(geometry.taps(padded))), channels, batch)
        attributes = {"axes": tuple(range(1 + count, 1 + 2 * count)), "keepdims": 0}
        (y,) = x.net.append(f"Reduce{name}", [geometry.windows(padded)], attributes)
        return geometry.first(y, channels, batch)

    def spread(self, call: Call, shares: Blob) -> Blob:
        """The gradient of each place, given to each element of its window and added up over x."""
        geometry, (batch, channels) = self.geometry(call), call.shape(0)[:FIRST_AXIS]
        wide = reshape_to(channels_last(shares), (batch, *geometry.places, *(1 for _ in geometry.sizes), channels))
        every = expand(wide, [batch, *geometry.places, *geometry.kernel, channels])
        return geometry.put_back(every, channels, batch)


class MaxPool(Pooling):
    """The largest element of each window; NaN if there is one.

    ONNX: MaxPool, op set 12, without its second result. What is put around is the least number of the dtype, -inf of
    floats. The first of elements that tie gets the gradient, as in PyTorch and JAX; with a NaN none gets any.

    Args:
        x: [N, C, *sizes] float or integer, with one axis or more to slide over.
        kernel_shape: one size for each of these axes.
        auto_pad, dilations, pads, strides: as for `ro.conv`.
        ceil_mode: 1 or True for one window more that reaches over the end, where it starts before what is put there.

    Raises:
        NetError: x is not a blob, a list has others than integers, or ceil_mode is neither on nor off.
        TypeRuleError: x is bool; once shapes are known, lists do not fit, or the kernel is larger than what it
            slides over.

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
        ceil_mode: as for `ro.max_pool`; what such a window has beyond the pads is not counted.
        count_include_pad: 1 or True counts the zeros that pads put around, else means are only of elements of x.

    Raises:
        NetError: x is not a blob, a list has others than integers, or a flag is neither on nor off.
        TypeRuleError: x is not float; once shapes are known, lists do not fit, or the kernel is larger than what it
            slides over.

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
        """Over the number of elements that each place counts."""
        counts = self.counts(call)
        first = float(counts.flat[0])
        return total / (first if (counts == first).all() else total.net.constant(counts.astype(float), total.dtype))

    def counts(self, call: Call) -> Array:
        """How many elements each place counts, [*places]; 1 where there is none."""
        geometry, counts = self.geometry(call), np.ones((), np.int64)
        axes = zip(geometry.sizes, *self.counted(call, geometry), geometry.places, strict=True)
        for axis, (size, begin, end, places) in enumerate(axes):
            step, stride = geometry.dilations[axis], geometry.strides[axis]
            met = np.arange(places)[:, None] * stride + np.arange(geometry.kernel[axis]) * step - geometry.begins[axis]
            counts = np.multiply.outer(counts, ((met >= -begin) & (met < size + end)).sum(1))
        return np.maximum(counts, 1)

    def counted(self, call: Call, geometry: Geometry) -> tuple[Sequence[int], Sequence[int]]:
        """The pads that count: none of them, or all."""
        if not call.attr("count_include_pad"):
            return (0,) * len(geometry.sizes), (0,) * len(geometry.sizes)
        return geometry.begins, geometry_of(call, geometry.kernel).ends


class LpPool(Pooling):
    """The norm of each window, `(sum of |x|^p)^(1/p)`.

    ONNX: LpPool, op set 18. Where the norm is 0, so is the gradient.

    Args:
        x: [N, C, *sizes] float, with one axis or more to slide over.
        kernel_shape: one size for each of these axes.
        p: 1 or more.
        auto_pad, dilations, pads, strides: as for `ro.conv`.
        ceil_mode: as for `ro.max_pool`.

    Raises:
        NetError: x is not a blob, a list has others than integers, or ceil_mode is neither on nor off.
        TypeRuleError: x is not float; once shapes are known, p is not an integer of 1 or more, lists do not fit, or the
            kernel is larger than what it slides over.

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
            raise NetError("p is an integer", op=self.name, came=repr(p))
        return append_windowed(self, [x], auto_pad, {"ceil_mode": flag(ceil_mode, self.name), "p": int(p)}, **lists)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if not isinstance(call.attr("p"), int) or call.attr("p") < 1:
            call.fail("p is an integer of 1 or more", came=repr(call.attr("p")))
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


class GlobalPooling(Unary):
    """One number for each channel: [N, C, *sizes] to [N, C, 1, ...].

    Args:
        x: [N, C, *sizes] {dtypes}.

    Returns:
        [N, C, 1, ...] of the same dtype.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is not {dtypes}; once shapes are known, there are no axes after N and C, or one is empty.
    """

    loop = Expansion()

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        sizes = sizes_under(call)
        if min(sizes) < 1:
            call.fail("a channel has no elements", came=list(call.shape(0)))
        return ((*call.shape(0)[:FIRST_AXIS], *(1 for _ in sizes)),)

    def axes(self, call: Call) -> list[int]:
        """The axes that are folded."""
        return list(range(FIRST_AXIS, call.rank(0)))


class GlobalAveragePool(GlobalPooling):
    """The mean of each channel.

    ONNX: GlobalAveragePool, op set 1. Each element gets its share of the gradient.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.global_average_pool(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([[[1.0, 3.0], [2.0, 5.0]]])})["y"]
        array([[[2. ],
                [3.5]]])
    """

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        axes = tuple(self.axes(call))
        count = x.dtype.type(prod(call.shape(0)[FIRST_AXIS:]))
        return np.asarray(x.sum(axis=axes, keepdims=True, dtype=x.dtype) / count)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return expand(dy * (1.0 / prod(call.shape(0)[FIRST_AXIS:])), list(call.shape(0)))

    def expand(self, call: Call, x: Blob) -> Blob:
        return reduce_mean(x, self.axes(call))


class GlobalMaxPool(GlobalPooling):
    """The largest element of each channel; NaN if there is one.

    ONNX: GlobalMaxPool, op set 1. Elements that tie share the gradient equally; with a NaN none gets any.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.global_max_pool(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([[[1.0, 3.0], [2.0, 5.0]]])})["y"]
        array([[[3.],
                [5.]]])
    """

    keeps = ("X", "Y")

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(x.max(axis=tuple(self.axes(call)), keepdims=True))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        here = equal(x, y)
        ties = reduce_sum(cast(here, dy.dtype), self.axes(call))
        return where(here, dy / ties, 0.0)

    def expand(self, call: Call, x: Blob) -> Blob:
        return reduce_max(x, self.axes(call))


max_pool, average_pool, lp_pool = register(MaxPool()), register(AveragePool()), register(LpPool())
global_average_pool, global_max_pool = register(GlobalAveragePool()), register(GlobalMaxPool())
