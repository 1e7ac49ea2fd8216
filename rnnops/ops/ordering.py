"""ArgMax, TopK, CumSum and CumProd: ops for which the order along an axis matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion, LoopForm
from rnnops.net.net import common_net
from rnnops.net.schema import Call, Gradients, OpSchema, register
from rnnops.ops.base import flag, quiet
from rnnops.ops.comparison import and_, equal, greater, identity, less, not_, or_, where
from rnnops.ops.indexing import pad
from rnnops.ops.movement import concat, first_only, squeeze, unsqueeze
from rnnops.ops.reduction import reduce_max, reduce_min, reduce_sum
from rnnops.types import NUMERIC, Array, Shape, is_float, limit

FEW = 8  # up to this k, compiled code finds elements one after another; above, it counts the larger ones before each
LONG = 512  # up to this size, counting pairs is faster than the reference's sort


class ArgMax(OpSchema):
    """The index of the largest element along an axis. If several are equal, the first one.

    If there is a NaN, its index.

    ONNX: ArgMax, op set 13. Gradients stop here.

    Args:
        x: [...] float or integer.
        axis: the axis. Negative numbers count from the end.
        keepdims: True to keep the axis with size 1, which is ONNX's default. 0 or False removes it.

    Returns:
        int64, in x's shape with 1 for the axis, or without the axis.

    Raises:
        NetError: x is not a blob, or keepdims is neither on nor off.
        TypeRuleError: x is bool. Once shapes are known: the axis is out of range or empty.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.argmax(net.input("x"), axis=-1, keepdims=0))
        >>> ro.compile(net, device="reference")({"x": np.array([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])})["y"]
        array([1, 0])
    """

    inputs = ("data",)
    outputs = ("reduced",)
    attributes: ClassVar[dict[str, Any]] = {"axis": 0, "keepdims": 1}
    accepts = NUMERIC
    differentiable = False
    loop = Expansion()

    def __call__(self, x: Blob, axis: int = 0, keepdims: int = 1) -> Blob:
        return common_net([x]).append(self.name, [x], {"axis": axis, "keepdims": int(flag(keepdims, self.name))})[0]

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return ("int64",)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.axis(call.attr("axis"), call.rank(0))
        if shape[axis] == 0:
            call.fail("argmax of an empty axis", blob=call.op.inputs[0], came=list(shape))
        return ((*shape[:axis], *([1] if call.attr("keepdims") else []), *shape[axis + 1 :]),)

    def reference(self, call: Call, x: Array) -> Array:
        axis = call.axis(call.attr("axis"), x.ndim)
        return np.asarray(np.argmax(x, axis, keepdims=bool(call.attr("keepdims"))), np.int64)

    def expand(self, call: Call, x: Blob) -> Blob:
        axis = call.axis(call.attr("axis"), call.rank(0))
        index = first_largest(call, x, axis)
        return index if call.attr("keepdims") else squeeze(index, [axis])


class TopK(OpSchema):
    """The k largest elements along an axis and their indices, the largest first.

    Of equal elements the first comes first.

    ONNX: TopK, op set 11, with sorted results and the largest elements. NaN counts as the largest. The gradient of a
    value goes to its place. Up to k = 8, compiled code finds elements one after another. Above, it counts the elements
    before each. The reference sorts axes of more than 512 elements.

    Args:
        x: [...] float or integer.
        k: the number of elements, or an int64 blob of one number that follows from shapes and constants.
        axis: the axis. Negative numbers count from the end.

    Returns:
        Two blobs of x's shape with k along the axis, values of x's dtype and int64 indices.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is bool. Once shapes are known: k is not from 0 to the size of the axis, or the axis is out of
            range.

    Example:
        >>> net = ro.Net("n")
        >>> values, indices = ro.topk(net.input("x"), 2)
        >>> net.outputs(values=values, indices=indices)
        >>> ro.compile(net, device="reference")({"x": np.array([3.0, 1.0, 4.0, 4.0])})
        {'values': array([4., 4.]), 'indices': array([2, 3])}
    """

    inputs = ("X", "k?")
    outputs = ("Values", "Indices")
    static = ("k",)
    attributes: ClassVar[dict[str, Any]] = {"k": None, "axis": -1}
    accepts = NUMERIC
    same_dtype = (0,)
    keeps = ("Indices",)

    def __call__(self, x: Blob, k: Blob | int, axis: int = -1) -> tuple[Blob, Blob]:
        inputs, given = ([x, k], {}) if isinstance(k, Blob) else ([x], {"k": k})
        values, indices = common_net([x]).append(self.name, inputs, {**given, "axis": axis})
        return values, indices

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return dtypes[0] or "", "int64"

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis, k = call.shape(0), call.axis(call.attr("axis"), call.rank(0)), self.count(call)
        if not isinstance(k, int) or not 0 <= k <= shape[axis]:
            call.fail("k is out of range", wanted=f"k from 0 to {shape[axis]}", came=k)
        return ((*shape[:axis], k, *shape[axis + 1 :]),) * 2

    def count(self, call: Call) -> Any:
        """The number k, given as an attribute or as an input."""
        value = call.static("k", 1)
        return value[0] if isinstance(value, list) and len(value) == 1 else value

    def reference(self, call: Call, x: Array, *k_as_array: Array) -> tuple[Array, Array]:
        axis, k = call.axis(call.attr("axis"), x.ndim), self.count(call)
        # a stable sort of the reversed axis puts equal elements in their order after it is reversed again
        backwards = np.flip(x, axis)
        order = x.shape[axis] - 1 - np.flip(np.argsort(backwards, axis, kind="stable"), axis)
        indices = np.take(order, np.arange(k), axis)
        return np.take_along_axis(x, indices, axis), indices.astype(np.int64)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        """The gradient of each value goes to its place."""
        axis, first = call.axis(call.attr("axis"), call.rank(0)), len(call.op.inputs)
        indices, dvalues = blobs[first + 1], blobs[first + 2]
        indices, dvalues = (unsqueeze(one, [axis + 1]) for one in (indices, dvalues))
        here = equal(indices, numbered(dvalues, call.shape(0)[axis], axis + 1, call.rank(0) + 1))
        return first_only(call, reduce_sum(where(here, dvalues, 0.0), [axis], keepdims=0))

    def loop_form(self, call: Call) -> LoopForm | None:
        size = call.shape(0)[call.axis(call.attr("axis"), call.rank(0))]
        return Expansion() if 0 < self.count(call) <= (size if size <= LONG else FEW) else None

    def expand(self, call: Call, x: Blob, *k_as_blob: Blob) -> tuple[Blob, Blob]:
        axis, count = call.axis(call.attr("axis"), call.rank(0)), self.count(call)
        return one_after_another(call, x, axis, count) if count <= FEW else by_ranks(call, x, axis, count)


def one_after_another(call: Call, x: Blob, axis: int, count: int) -> tuple[Blob, Blob]:
    """Finds the largest, then the largest of the others. Found elements count as the smallest number."""
    places = numbered(x, call.shape(0)[axis], axis, call.rank(0))
    values, indices, taken = list[Blob](), list[Blob](), None
    for _ in range(count):
        indices.append(first_largest(call, x, axis, taken))
        here = equal(places, indices[-1])
        values.append(reduce_sum(where(here, x, 0), [axis]))
        taken = here if taken is None else or_(taken, here)
    return concat(*values, axis=axis), concat(*indices, axis=axis)


def by_ranks(call: Call, x: Blob, axis: int, count: int) -> tuple[Blob, Blob]:
    """Puts each element at the place that is the number of elements before it."""
    size, rank = call.shape(0)[axis], call.rank(0) + 1
    key, place = x, numbered(x, size, axis, rank - 1, "int32")
    if is_float(call.dtype(0)):  # NaN counts as infinity, at a place before those of all numbers
        known = equal(x, x)
        key = where(known, x, limit(call.dtype(0), 1))
        place = where(known, place, numbered(x, size, axis, rank - 1, "int32", -size))
    my_key, my_place = unsqueeze(key, [axis + 1]), unsqueeze(place, [axis + 1])
    other_key, other_place = unsqueeze(key, [axis]), unsqueeze(place, [axis])
    before = or_(greater(other_key, my_key), and_(equal(other_key, my_key), less(other_place, my_place)))
    ranks = reduce_sum(where(before, x.net.constant(1, "int32"), 0), [axis + 1], keepdims=0)
    here = equal(unsqueeze(ranks, [axis]), numbered(x, count, axis, rank, "int32"))
    chosen = (where(here, one, 0) for one in (unsqueeze(x, [axis]), numbered(x, size, axis + 1, rank)))
    values, indices = (reduce_sum(one, [axis + 1], keepdims=0) for one in chosen)
    return values, indices


def numbered(blob: Blob, size: int, axis: int, rank: int, dtype: str = "int64", first: int = 0) -> Blob:
    """The numbers `first`, `first + 1`, ... along an axis. They broadcast over other axes."""
    shape = [size if place == axis else 1 for place in range(rank)]
    return blob.net.constant(first + np.arange(size).reshape(shape), dtype)


def first_largest(call: Call, x: Blob, axis: int, taken: Blob | None = None) -> Blob:
    """The smallest index of a NaN, or else of the largest element, among elements that are not taken."""
    dtype, size = call.dtype(0), call.shape(0)[axis]
    left = x if taken is None else where(taken, limit(dtype, -1), x)
    largest = equal(x, reduce_max(left, [axis]))
    if is_float(dtype):
        largest = or_(largest, not_(equal(x, x)))
    if taken is not None:
        largest = and_(largest, not_(taken))
    return reduce_min(where(largest, numbered(x, size, axis, call.rank(0)), size), [axis])


argmax, topk = register(ArgMax()), register(TopK())


class Cumulative(OpSchema):
    """Joins elements one after another along an axis. The result has all intermediate results.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is not a blob, or a flag is neither on nor off.
        TypeRuleError: x is not {dtypes}; once shapes are known, the axis is out of range.
    """

    inputs = ("x",)
    outputs = ("y",)
    attributes: ClassVar[dict[str, Any]] = {"axis": -1, "exclusive": 0, "reverse": 0}
    accepts = NUMERIC
    loop = Expansion()
    function: ClassVar[np.ufunc]  # function that joins two elements

    def __call__(self, x: Blob, axis: int = -1, exclusive: int = 0, reverse: int = 0) -> Blob:
        flags = {
            name: flag(value, self.name) or None for name, value in (("exclusive", exclusive), ("reverse", reverse))
        }
        return common_net([x]).append(self.name, [x], {"axis": axis, **flags})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        call.axis(call.attr("axis"), call.rank(0))
        return (call.shape(0),)

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        axis = call.axis(call.attr("axis"), x.ndim)
        turned = np.flip(x, axis) if call.attr("reverse") else x
        if call.attr("exclusive"):
            turned = np.roll(turned, 1, axis)
            turned[(slice(None),) * axis + (slice(0, 1),)] = self.function.identity
        total = self.function.accumulate(turned, axis, x.dtype)
        return np.array(np.flip(total, axis) if call.attr("reverse") else total)

    def expand(self, call: Call, x: Blob) -> Blob:
        axis, reverse = call.axis(call.attr("axis"), call.rank(0)), bool(call.attr("reverse"))
        if not call.shape(0)[axis]:
            return identity(x)
        neutral: Any = self.function.identity
        total, distance = (shifted(x, axis, 1, reverse, neutral) if call.attr("exclusive") else x), 1
        while distance < call.shape(0)[axis]:
            total = self.function(total, shifted(total, axis, distance, reverse, neutral))
            distance *= 2
        return total


def shifted(x: Blob, axis: int, distance: int, back: bool, fill: float) -> Blob:
    """Elements moved by a distance along an axis, forward or back. Free places get `fill`."""
    return pad(x, [-distance, distance] if back else [distance, -distance], fill, axes=[axis])


class CumSum(Cumulative):
    """The sum of all elements up to each one along an axis.

    ONNX: CumSum, op set 14. Integers wrap around. The gradient is the sum from the other end. Compiled code adds in
    log2(n) passes, each over twice the distance (Hillis and Steele, CACM 29(12), 1986). So results differ by rounding
    from sums one after another.

    Args:
        x: [...] float or integer.
        axis: the axis. Negative numbers count from the end.
        exclusive: 1 or True to leave each element out of its own sum.
        reverse: 1 or True to sum from the end.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.cumsum(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([1.0, 2.0, 3.0])})["y"]
        array([1., 3., 6.])
    """

    function = np.add

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        """Each element is in the sums from its own place on."""
        return self(dy, call.attr("axis"), call.attr("exclusive"), not call.attr("reverse"))


cumsum = register(CumSum())


class CumProd(Cumulative):
    """The product of all elements up to each one along an axis.

    ONNX: CumProd, op set 26. Integers wrap around. Gradients use no division, so they are right where elements are
    zero. Compiled code multiplies in log2(n) passes, like `ro.cumsum`.

    Args:
        x: [...] float or integer.
        axis: the axis. Negative numbers count from the end.
        exclusive: 1 or True to leave each element out of its own product.
        reverse: 1 or True to multiply from the end.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.cumprod(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([1.0, 2.0, 3.0])})["y"]
        array([1., 2., 6.])
    """

    keeps = ("x",)
    function = np.multiply

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        """The product before each element, times the rest: `s[i] = dy[i] + x[i + 1] * s[i + 1]`."""
        axis, reverse = call.axis(call.attr("axis"), call.rank(0)), call.attr("reverse")
        if not call.shape(0)[axis]:
            return dy
        total = shifted(dy, axis, 1, not reverse, 0.0) if call.attr("exclusive") else dy
        factor, distance = shifted(x, axis, 1, not reverse, 0.0), 1
        while distance < call.shape(0)[axis]:
            total = total + factor * shifted(total, axis, distance, not reverse, 0.0)
            factor = factor * shifted(factor, axis, distance, not reverse, 0.0)
            distance *= 2
        return self(x, call.attr("axis"), True, reverse) * total


cumprod = register(CumProd())
