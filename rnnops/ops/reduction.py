"""Reductions over axes and of whole channels, and sums of several operands.

`axes` is a list or an int64 blob. Without axes all axes are reduced, or none with `noop_with_empty_axes`. Over no
elements a sum is 0, a product 1, a mean NaN, and a maximum the smallest number of its dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion, LoopForm, Reduction
from rnnops.net.net import common_net
from rnnops.net.schema import Call, Gradients, OpSchema, no_gradient, register
from rnnops.ops.arithmetic import exp, log
from rnnops.ops.base import (
    Sizes,
    Unary,
    Variadic,
    append_sized,
    axes_given,
    elementwise,
    flag,
    fold,
    quiet,
    sizes_of,
    sum_to,
    summed,
)
from rnnops.ops.comparison import cast, equal, where
from rnnops.ops.movement import expand, first_only, reshape_to
from rnnops.types import ANY, BOOL, FLOATS, NUMERIC, Array, Shape, limit


class Reduce(OpSchema):
    """Base of all reductions: the rule for shapes, and functions that put reduced axes back, with size 1.

    Args:
        data: [...] {dtypes}.
        axes: the axes to fold: numbers (negative ones count from the end), or an int64 blob that follows from shapes
            and constants. By default, or if empty, all.
        keepdims: True to keep folded axes with size 1, which is ONNX's default. 0 or False removes them.
        noop_with_empty_axes: 1 or True to fold no axis if `axes` is left out or empty.
        axis: NumPy's name for axes.

    Returns:
        The shape with 1 for each folded axis, or without these axes, data's dtype.

    Raises:
        NetError: data is not a blob, axes are given twice or are not integers, or a flag is neither on nor off.
        TypeRuleError: data is not {dtypes}. Once shapes are known: an axis is out of range or named twice.
    """

    inputs = ("data", "axes?")
    outputs = ("reduced",)
    static = ("axes",)
    attributes: ClassVar[dict[str, Any]] = {"axes": None, "keepdims": 1, "noop_with_empty_axes": 0}
    accepts: ClassVar[tuple[str, ...]] = FLOATS
    same_dtype = (0,)
    function: ClassVar[np.ufunc]

    def __call__(
        self,
        data: Blob,
        axes: Sizes | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
        axis: Sizes | None = None,
    ) -> Blob:
        attributes = {
            "keepdims": None if flag(keepdims, self.name) else 0,
            "noop_with_empty_axes": flag(noop_with_empty_axes, self.name) or None,
        }
        operands = {"data": data, "axes": axes_given(axes, axis, self.name)}
        return append_sized(self, common_net([data]), operands, attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axes = call.shape(0), self.reduced_axes(call)
        if call.attr("keepdims"):
            return (self.kept_shape(call),)
        return (tuple(size for axis, size in enumerate(shape) if axis not in axes),)

    @quiet
    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        return self.folded(call, x)

    def folded(self, call: Call, x: Array) -> Array:
        """Folds an array by the op's function."""
        keepdims = bool(call.attr("keepdims"))
        return np.asarray(self.function.reduce(x, axis=self.reduced_axes(call), dtype=x.dtype, keepdims=keepdims))

    def reduced_axes(self, call: Call) -> tuple[int, ...]:
        """The axes that are folded."""
        axes = sizes_of(call, "axes", 1)
        if not axes:
            return () if call.attr("noop_with_empty_axes") else tuple(range(call.rank(0)))
        return call.axes(axes, call.rank(0))

    def kept_shape(self, call: Call) -> Shape:
        """The operand's shape with 1 for each reduced axis."""
        axes = self.reduced_axes(call)
        return tuple(1 if axis in axes else size for axis, size in enumerate(call.shape(0)))

    def count(self, call: Call) -> int:
        """Number of elements that are folded into one."""
        return prod(call.shape(0)[axis] for axis in self.reduced_axes(call))

    def widened(self, call: Call, blob: Blob) -> Blob:
        """A result, or its gradient, with the reduced axes as size 1."""
        return blob if call.attr("keepdims") else reshape_to(blob, self.kept_shape(call))

    def repeated(self, call: Call, blob: Blob) -> Blob:
        """A result, or its gradient, broadcast to the operand's shape."""
        return expand(self.widened(call, blob), list(call.shape(0)))


class ReduceSum(Reduce):
    """The sum over axes. Also written `x.sum(axis=-1)`, which removes the axes.

    ONNX: ReduceSum, op set 13. A sum of no elements is 0, and integers wrap around. Each element gets the gradient of
    its sum.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.reduce_sum(net.input("x"), axis=-1, keepdims=0))
        >>> ro.compile(net, device="reference")({"x": np.array([[1.0, 2.0], [3.0, 4.0]])})["y"]
        array([3., 7.])
    """

    accepts = NUMERIC
    loop = Reduction("{a} + {b}", 0)
    function = np.add

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        return first_only(call, self.repeated(call, blobs[-1]))


class ReduceMean(Reduce):
    """The mean over axes. Also written `x.mean(axis=-1)`, which removes the axes.

    ONNX: ReduceMean, op set 18. A mean of no elements is NaN. Each of n elements gets the gradient of its mean, divided
    by n.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.reduce_mean(net.input("x"), axis=-1, keepdims=0))
        >>> ro.compile(net, device="reference")({"x": np.array([[1.0, 2.0], [3.0, 4.0]])})["y"]
        array([1.5, 3.5])
    """

    loop = Reduction("{a} + {b}", 0, finish="{acc} / {count}")
    function = np.add

    @quiet
    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        return np.asarray(self.folded(call, x) / x.dtype.type(self.count(call)))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        return first_only(call, self.repeated(call, blobs[-1] * (1.0 / max(self.count(call), 1))))


class Extremum(Reduce):
    """The largest or smallest element. Elements that tie share the gradient equally.

    The gradient computes the extremum again from `data`, because recomputed data may differ from the kept y in the last
    bit.

    Raises:
        NetError: data is not a blob, axes are given twice or are not integers, or a flag is neither on nor off.
        TypeRuleError: once shapes are known, an axis is out of range or named twice.
    """

    accepts = ANY
    keeps = ("data",)
    side: ClassVar[int]  # -1 for a fold that starts at the smallest number, 1 at the largest

    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        start = np.array(self.start(call), x.dtype)
        keepdims = bool(call.attr("keepdims"))
        return np.asarray(self.function.reduce(x, axis=self.reduced_axes(call), keepdims=keepdims, initial=start))

    def gradient(self, call: Call, data: Blob, *rest: Blob) -> Gradients:
        dy, again = rest[-1], self(data, list(self.reduced_axes(call)), noop_with_empty_axes=1)
        tied = data.net.apply("Equal", [data, again])
        share = self.widened(call, dy) / sum_to(cast(tied, dy.dtype), self.kept_shape(call))
        return first_only(call, where(tied, share, 0.0))

    def loop_form(self, call: Call) -> LoopForm:
        if call.dtype(0) == BOOL:
            return Reduction("{a} or {b}" if self.side < 0 else "{a} and {b}", self.start(call))
        return Reduction(f"{self.function.__name__}({{a}}, {{b}})", self.start(call))

    def start(self, call: Call) -> bool | int | float:
        """The result for no elements."""
        dtype = call.dtype(0)
        if dtype == BOOL:
            return self.side > 0
        return limit(dtype, self.side)


class ReduceMax(Extremum):
    """The largest element along axes, or NaN if there is one. Also written `x.max(axis=-1)`, which removes the axes.

    ONNX: ReduceMax, op set 20. Over no elements it is the smallest number of the dtype, -inf for floats. Elements that
    tie share the gradient equally. With a NaN no element gets any.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.reduce_max(net.input("x"), axis=-1, keepdims=0))
        >>> ro.compile(net, device="reference")({"x": np.array([[1.0, 2.0], [4.0, 3.0]])})["y"]
        array([2., 4.])
    """

    function, side = np.maximum, -1


class ReduceMin(Extremum):
    """The smallest element along axes, or NaN if there is one. Also written `x.min(axis=-1)`, which removes the axes.

    ONNX: ReduceMin, op set 20. Over no elements it is the largest number of the dtype, inf for floats. Elements that
    tie share the gradient equally. With a NaN no element gets any.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.reduce_min(net.input("x"), axis=-1, keepdims=0))
        >>> ro.compile(net, device="reference")({"x": np.array([[1.0, 2.0], [4.0, 3.0]])})["y"]
        array([1., 3.])
    """

    function, side = np.minimum, 1


class ReduceSumSquare(Reduce):
    """The sum of squares over axes.

    ONNX: ReduceSumSquare, op set 18. The sum of no elements is 0, and integers wrap around. The gradient is
    `2 * x * dy`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.reduce_sum_square(net.input("x"), axis=-1, keepdims=0))
        >>> ro.compile(net, device="reference")({"x": np.array([[1.0, 2.0], [3.0, 4.0]])})["y"]
        array([ 5., 25.])
    """

    accepts = NUMERIC
    keeps = ("data",)
    loop = Reduction("{a} + {b}", 0, "{0} * {0}")
    function = np.add

    @quiet
    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        return self.folded(call, np.asarray(x * x))

    def gradient(self, call: Call, data: Blob, *rest: Blob) -> Gradients:
        return first_only(call, 2.0 * data * self.widened(call, rest[-1]))


class ReduceProd(Reduce):
    """The product over axes.

    ONNX: ReduceProd, op set 18. The product of no elements is 1, and integers wrap around. The gradient of an element
    is the product of the others. If one element is 0, only that one has a gradient. If two are 0, none has.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.reduce_prod(net.input("x"), axis=-1, keepdims=0))
        >>> ro.compile(net, device="reference")({"x": np.array([[1.0, 2.0], [3.0, 4.0]])})["y"]
        array([ 2., 12.])
    """

    accepts = NUMERIC
    keeps = ("data",)
    loop = Reduction("{a} * {b}", 1)
    function = np.multiply

    def gradient(self, call: Call, data: Blob, *rest: Blob) -> Gradients:
        """Counts zeros, and uses the product of all other elements."""
        zero, dy = data.net.apply("Equal", [data, 0.0]), self.widened(call, rest[-1])
        others = where(zero, 1.0, data)
        count = sum_to(cast(zero, data.dtype), self.kept_shape(call))
        product = dy * self(others, list(self.reduced_axes(call)), noop_with_empty_axes=1)
        left = cast(count, "int32") - cast(zero, "int32")  # number of zeros among the other elements
        return first_only(call, where(data.net.apply("Equal", [left, 0]), product / others, 0.0))


class ReduceLogSumExp(Reduce):
    """`log(sum(exp(x)))` over axes. The largest element is subtracted first, so that nothing overflows.

    ONNX: ReduceLogSumExp, op set 18. -inf over no elements. The gradient is `softmax(x) * dy`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.reduce_log_sum_exp(net.input("x"), axis=-1, keepdims=0))
        >>> ro.compile(net, device="reference")({"x": np.array([[0.0, 0.0], [1000.0, 0.0]])})["y"]
        array([   0.6931, 1000.    ])
    """

    keeps = ("data", "reduced")
    loop = Expansion()

    @quiet
    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        axis = self.reduced_axes(call)
        top = x.max(axis=axis, keepdims=True, initial=-np.inf)
        shift = np.where(np.isinf(top), x.dtype.type(0), top)  # subtracting an infinite one would make NaN of inf - inf
        total = np.exp(x - shift).sum(axis=axis, keepdims=True, dtype=x.dtype)
        return np.asarray(np.log(total) + shift).reshape(call.output_types[0].shape)

    def gradient(self, call: Call, data: Blob, *rest: Blob) -> Gradients:
        y, dy = rest[-2:]
        return first_only(call, exp(data - self.widened(call, y)) * self.widened(call, dy))

    def expand(self, call: Call, x: Blob, axes: Blob | None = None) -> Blob:
        shape = self.kept_shape(call)
        top = reduce_max(x, list(self.reduced_axes(call)), noop_with_empty_axes=1)
        finite = x.net.apply("Less", [x.net.apply("Abs", [top]), float("inf")])
        shift = where(finite, top, 0.0)
        total = log(sum_to(exp(x - shift), shape)) + shift
        return total if call.attr("keepdims") else reshape_to(total, call.output_types[0].shape)


reduce_sum, reduce_mean = register(ReduceSum()), register(ReduceMean())
reduce_max, reduce_min = register(ReduceMax()), register(ReduceMin())
reduce_sum_square, reduce_prod = register(ReduceSumSquare()), register(ReduceProd())
reduce_log_sum_exp = register(ReduceLogSumExp())


class Sum(Variadic):
    """The sum of two or more operands, from left to right, with broadcasting.

    ONNX: Sum, op set 13. Each operand gets the gradient of the result. For axes of one blob use `ro.reduce_sum`.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.sum(a, b, 0.5))
        >>> feeds = {"a": np.array([1.0, 2.0]), "b": np.array([[10.0], [20.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[11.5, 12.5],
               [21.5, 22.5]])
    """

    accepts = FLOATS
    reference = elementwise(np.add)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        return (blobs[-1],) * len(call.op.inputs)

    def text(self, count: int) -> str:
        return summed(count)


class Mean(Variadic):
    """The mean of two or more operands, with broadcasting.

    ONNX: Mean, op set 13. Each of n operands gets the gradient of the result, divided by n. For axes of one blob use
    `ro.reduce_mean`.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.mean(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0]), "b": np.array([3.0, 6.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([2., 4.])
    """

    accepts = FLOATS

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        return np.asarray(fold(np.add, arrays) / arrays[0].dtype.type(len(arrays)))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        share = blobs[-1] * (1.0 / len(call.op.inputs))
        return (share,) * len(call.op.inputs)

    def text(self, count: int) -> str:
        return f"({summed(count)}) / {count}"


class SumOfProducts(Variadic):
    """The sum of `left[i] * right[i]`, from first to last.

    A convolution with one kernel for each channel is such a sum.

    It is one op, so that operands are read in place, however many there are, and the sum stays in a register.
    """

    accepts = FLOATS
    internal = True
    gradient = no_gradient

    def __call__(self, left: Sequence[Blob], right: Sequence[Blob]) -> Blob:  # type: ignore[override]
        return super().__call__(*left, *right)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if len(call.types) % 2:
            call.fail("each product needs two factors", wanted="as many left ones as right ones", came=len(call.types))
        return super().shapes(call)

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        pairs = zip(arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :], strict=True)
        return fold(np.add, [a * b for a, b in pairs])

    def text(self, count: int) -> str:
        return " + ".join(f"{{{i}}} * {{{count // 2 + i}}}" for i in range(count // 2))


sum, mean, sum_of_products = register(Sum()), register(Mean()), register(SumOfProducts())  # noqa: A001


FIRST_AXIS = 2  # first axis that windows slide over, after N and channels


def sizes_under(call: Call) -> tuple[int, ...]:
    """The sizes of the axes that windows slide over. There must be at least one."""
    if call.rank(0) <= FIRST_AXIS:
        call.fail("windows need axes after N and channels", wanted="rank 3 or more", came=call.rank(0))
    return call.shape(0)[FIRST_AXIS:]


class GlobalPooling(Unary):
    """One number for each channel: [N, C, *sizes] to [N, C, 1, ...].

    Args:
        x: [N, C, *sizes] {dtypes}.

    Returns:
        [N, C, 1, ...] of the same dtype.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is not {dtypes}. Once shapes are known: there are no axes after N and C, or one is empty.
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
    """The largest element of each channel, or NaN if there is one.

    ONNX: GlobalMaxPool, op set 1. Elements that tie share the gradient equally. With a NaN no element gets any.

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


global_average_pool, global_max_pool = register(GlobalAveragePool()), register(GlobalMaxPool())
