"""Quantised ops of ONNX and of the domain `com.microsoft`, computed in floats.

**Quantised numbers as floats**: a quantised array holds whole numbers q of 8 or 16 bits, which stand for `(q -
zero_point) * scale`. Floats hold whole numbers up to 2^24 exactly, so the net computes with its floats. For each
integer result that a rule here makes, floats of the same values are remembered: its twin. A Cast back to float takes
the twin. So no number goes through integers and back, and gradients flow where the file has integers in between. They
stop at a Round.

Weights that the file fixes become float parameters while it is read, without their zero points. So a run computes
nothing that depends only on weights. Bound runs multiply bytes instead where the result is the same
(`compiler/rewrite/bound_weights.py`).

**Results** are whole numbers of the dtype in the file. They equal integer arithmetic, except where a float lies almost
in the middle between two whole numbers. There the order of operations decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from rnnops.net.blob import Blob
from rnnops.onnx.import_groups import biased
from rnnops.onnx.import_ops import CONV, WINDOWS
from rnnops.onnx.import_rnn import recurrent_layer
from rnnops.onnx.node import Node, Rule, element_dtype
from rnnops.ops.activation import leaky_relu, sigmoid
from rnnops.ops.arithmetic import round as round_
from rnnops.ops.comparison import cast, clip, equal, max as max_, min as min_, where
from rnnops.ops.linear_algebra import matmul
from rnnops.ops.movement import concat, reshape, tile, transpose, unsqueeze
from rnnops.ops.reduction import reduce_max, reduce_min
from rnnops.ops.shapes import shape
from rnnops.types import FLOAT, Array, Shape, is_float

EXACT_UP_TO = 2**24  # float32 holds whole numbers up to here exactly
OPEN_TERMS = "the number of summed products does not follow from the file"
WIDTH = 255  # difference of the largest and the smallest number of 8 bits
BYTES = ("int8", "uint8")
NARROW = (*BYTES, "int16", "uint16")
VALUE_PORTS = {
    **dict.fromkeys(("ConvInteger", "MatMulInteger", "com.microsoft::DynamicQuantizeMatMul"), (1, 2, 3)),
    **dict.fromkeys(("DequantizeLinear", "com.microsoft::DequantizeLinear"), (0, 1, 2)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "com.microsoft::QLinearConv"), (2, 3, 4, 5, 7)),
    **dict.fromkeys(("QuantizeLinear", "com.microsoft::QuantizeLinear"), (2,)),
    "com.microsoft::DynamicQuantizeLSTM": (1, 2, 8, 9, 10, 11),
    "com.microsoft::MatMulIntegerToFloat": (1, 3, 4, 5),
}  # inputs by op: rules here take them as values if the file fixes them


def numbers(node: Node, i: int) -> Blob:
    """The i-th input as floats: the twin of computed whole numbers, or a constant, or else a Cast."""
    blob, value = node.input(i), node.value(i)
    if is_float(blob.dtype):
        return blob
    if value is not None and value.ndim < 2:
        return node.net.constant(value.astype(node.float_dtype), FLOAT)
    twin = node.twin(blob)
    return cast(blob, FLOAT) if twin is None else twin


def lie_along(node: Node, i: int, x: Blob, axis: int, block: int = 0) -> Blob | float | None:
    """A scale or zero point as floats that broadcast with x. None if it is left out or 0.

    Args:
        axis: the axis of x along which a list of numbers lies.
        block: number of elements of that axis that share a number; 0 if each has its own.
    """
    if not node.has(i):
        return None
    value = node.value(i)
    if value is not None and value.size == 1 and not block:
        return float(value.item()) or None
    if value is not None and not value.any() and value.dtype.kind in "iu":
        return None
    given = numbers(node, i) if value is None else node.net.constant(value.astype(node.float_dtype), FLOAT)
    rank = node.rank(given)
    if block:
        return in_blocks(given, x, axis % node.rank(x), node.rank(x), block)
    if rank != 1 or node.dims(given) == (1,):
        return reshape(given, []) if rank == 1 else given
    whole = node.rank(x)
    if not -whole <= axis < whole:
        node.fail("the axis is out of range", wanted=f"from {-whole} to {whole - 1}", came=axis)
    return reshape(given, [-1 if place == axis % whole else 1 for place in range(whole)])


def scale_of(node: Node, i: int, x: Blob, axis: int, block: int = 0) -> Blob | float:
    """A scale. It must be given, be a float, and not be 0."""
    check_scale(node, i)
    scale = lie_along(node, i, x, axis, block)
    return node.fail("a scale is missing or 0") if scale is None else scale


def check_scale(node: Node, i: int) -> None:
    """Raise OnnxError if a scale is given and is not a float."""
    if node.has(i) and not is_float(node.input(i).dtype):
        node.fail("a scale is not a float", wanted=FLOAT, came=node.input(i).dtype)


def zero_of(node: Node, i: int, x: Blob, axis: int, like: str, block: int = 0) -> Blob | float | None:
    """A zero point. None if it is left out or 0.

    Args:
        like: the dtype that it must have.
    """
    check_zero(node, i, like)
    return lie_along(node, i, x, axis, block)


def check_zero(node: Node, i: int, like: str) -> None:
    """Raise OnnxError if a zero point has another dtype than the numbers that it belongs to."""
    if node.has(i) and node.input(i).dtype != like:
        node.fail("a zero point has another dtype than its numbers", wanted=like, came=node.input(i).dtype)


def in_blocks(given: Blob, x: Blob, axis: int, rank: int, block: int) -> Blob:
    """Repeats each number for all elements of its block."""
    repeats = [block if place == axis + 1 else 1 for place in range(rank + 1)]
    return reshape(tile(unsqueeze(given, [axis + 1]), repeats), shape(x))


def whole(node: Node, i: int, zero_point: int, axis: int, block: int = 0) -> Blob:
    """The whole numbers of an input minus their zero points, as floats."""
    x = numbers(node, i)
    zero = zero_of(node, zero_point, x, axis, node.input(i).dtype, block)
    return x if zero is None else x - zero


def rounded(x: Blob, zero_point: Blob | float | None, dtype: str) -> Blob:
    """Rounds to the nearest whole numbers (ties to even), adds a zero point, and clips to a dtype's range.

    The result is floats.
    """
    bounds = np.iinfo(dtype)
    moved = round_(x) if zero_point is None else round_(x) + zero_point
    return clip(moved, float(bounds.min), float(bounds.max))


def quantised_dtype_of(node: Node, dtype: str) -> str:
    """A dtype of quantised numbers. Raises OnnxError for other dtypes."""
    if dtype not in NARROW:
        node.fail("quantised numbers cannot have this dtype", wanted=", ".join(NARROW), came=dtype)
    return dtype


def quantised_as(node: Node, y: Blob, zero_point: int, axis: int, dtype: str, block: int = 0) -> list[Blob]:
    """The result of a node: x in units of its scale, rounded to whole numbers of a dtype."""
    node.twins[0] = rounded(y, zero_of(node, zero_point, y, axis, dtype, block), dtype)
    return [cast(node.twins[0], dtype)]


def fixed_weight(node: Node, i: int, zero_point: int, axis: int, block: int = 0) -> Array | None:
    """A weight's whole numbers minus their zero points, as float32. None unless the file fixes both.

    Args:
        axis, block: as in `along`, for a list of zero points.
    """
    check_zero(node, zero_point, node.input(i).dtype)
    value, zero = node.value(i), node.value(zero_point)
    if value is None or (node.has(zero_point) and zero is None):
        return None
    shift = np.zeros((), "int64") if zero is None else along(node, zero.astype("int64"), value.shape, axis, block)
    return np.asarray((value.astype("int64") - shift).astype("float32"))


def along(node: Node, values: Array, shape: Shape, axis: int, block: int = 0) -> Array:
    """Scales or zero points of a weight, reshaped so that they broadcast to its shape.

    Args:
        values: one number, or one for each place of `axis`, or one for each `block` places of it.
        shape: the shape of the weight.
    """
    rank = len(shape)
    if values.size == 1 and not block:
        return values.reshape(())
    fits = -rank <= axis < rank and values.ndim in (1, rank)
    if fits and values.ndim == 1 != rank:
        values = values.reshape([-1 if place == axis % rank else 1 for place in range(rank)])
    if fits and block:
        count, size = values.shape[axis], shape[axis]
        fits = (count - 1) * block < size <= count * block
        values = np.take(values, np.arange(size) // block, axis) if fits else values
    if not fits or any(own not in (1, size) for own, size in zip(values.shape, shape, strict=True)):
        node.fail("scales or zero points do not lie along the axis", wanted=list(shape), came=list(values.shape))
    return values


def exact_product(node: Node, a: Blob, b: Blob, weight: Array | None) -> list[Blob]:
    """`a @ b` of whole numbers of 8 bits minus their zero points, as summands that float32 holds exactly.

    Args:
        weight: the numbers of b if the file fixes them.
    """
    if weight is not None:
        terms = weight[:, None] if weight.ndim < 2 else np.moveaxis(weight, -2, 0)
        sizes = exact_sizes(terms.reshape(len(terms), -1, 1))
    else:
        dims = node.dims(b)
        count = dims[-2:][0] if dims else None
        sizes = worst_sizes(count if isinstance(count, int) else node.fail(OPEN_TERMS))
    if len(sizes) == 1:
        return [matmul(a, b)]
    axis = -2 if node.rank(b) > 1 else -1
    left, right = (
        node.net.append("Split", [blob], {"axis": place, "split": sizes}) for blob, place in ((a, -1), (b, axis))
    )
    return [matmul(*pair) for pair in zip(left, right, strict=True)]


def exact_sizes(weight: Array) -> list[int]:
    """Sizes of pieces of the summed axis. In each piece, sums of products with 8-bit numbers stay exact.

    Args:
        weight: whole numbers `[summed axis, columns, other summed axes]`. The last axis is never cut (it is a kernel's
            places).
    """
    parts = [np.maximum(sign * weight, 0).sum(axis=2, dtype="float64") for sign in (1, -1)]
    sizes, first = [], 0
    for at in range(1, len(weight) + 1):
        if at < len(weight) and all(part[first : at + 1].sum(0).max(initial=0) * WIDTH < EXACT_UP_TO for part in parts):
            continue
        sizes.append(at - first)
        first = at
    return sizes or [0]


def worst_sizes(terms: int, each: int = 1) -> list[int]:
    """As `exact_sizes`, for weights that the file does not fix: the largest weights of 8 bits are assumed.

    Args:
        terms: length of the summed axis.
        each: number of products for each place of the summed axis.
    """
    most = max(EXACT_UP_TO // (WIDTH * WIDTH * max(each, 1)), 1)
    return [min(most, terms - first) for first in range(0, terms, most)] or [0]


def added(blobs: list[Blob]) -> Blob:
    """The sum of a few blobs."""
    return sum(blobs[1:], blobs[0])


def dynamic_quantize_linear(node: Node) -> Sequence[Blob]:
    """DynamicQuantizeLinear: unsigned numbers of 8 bits, for the range of the array with 0 included."""
    y, scale, zero = quantised_by_range(node.input(0))
    node.twins.update({0: y, 2: zero})
    return cast(y, "uint8"), scale, cast(zero, "uint8")


def quantised_by_range(x: Blob) -> tuple[Blob, Blob, Blob]:
    """Whole numbers from 0 to 255, with their scale and zero point, all as floats."""
    low, high = min_(reduce_min(x, keepdims=0), 0.0), max_(reduce_max(x, keepdims=0), 0.0)
    width = high - low
    scale = where(equal(width, 0.0), 1.0, width) / 255.0
    zero = round_(clip(-low / scale, 0.0, 255.0))
    return rounded(x / scale, zero, "uint8"), scale, zero


def quantize_linear(node: Node) -> Sequence[Blob]:
    """QuantizeLinear: one scale for all numbers, one for each place of an axis, or one for each block of an axis."""
    axis, block = node.attr("axis", "int", 1), node.attr("block_size", "int", 0)
    node.attr("saturate", "int")
    check_precision(node)
    if node.input(0).dtype not in (FLOAT, "int32"):
        node.fail("numbers of this dtype cannot be quantised", wanted=f"{FLOAT} or int32", came=node.input(0).dtype)
    x, dtype = numbers(node, 0), quantised_dtype(node)
    return quantised_as(node, x / scale_of(node, 1, x, axis, block), 2, axis, dtype, block)


def check_precision(node: Node) -> None:
    """Checks the precision of the division: that of the scale, or float32. Both are the net's float."""
    precision = node.attr("precision", "int", 0)
    if precision:
        element_dtype(precision, "the precision of a QuantizeLinear")


def quantised_dtype(node: Node) -> str:
    """The dtype of quantised results: the zero point's, else the attribute's, else uint8."""
    asked = node.attr("output_dtype", "int", 0)
    named = element_dtype(asked, "the result of a QuantizeLinear") if asked else "uint8"
    return quantised_dtype_of(node, node.input(2).dtype if node.has(2) else named)


def dequantize_linear(node: Node) -> Sequence[Blob]:
    """DequantizeLinear: `(x - zero_point) * scale`. For weights that the file fixes it is a parameter."""
    axis, block = node.attr("axis", "int", 1), node.attr("block_size", "int", 0)
    asked = node.attr("output_dtype", "int", 0)
    if asked:
        element_dtype(asked, "the result of a DequantizeLinear")
    check_whole(node, 0)
    fixed = dequantised(node, 0, 1, 2, axis, block)
    if fixed is not None:
        return (node.parameter(0, fixed, scaled=True),)
    x = whole(node, 0, 2, axis, block)
    return (x * scale_of(node, 1, x, axis, block),)


def dequantised(node: Node, i: int, scale: int, zero_point: int, axis: int, block: int = 0) -> Array | None:
    """The float values of a quantised weight in the dtype of its scale. None unless the file fixes all of it."""
    check_parts(node, i, scale, zero_point)
    value, factor = fixed_weight(node, i, zero_point, axis, block), node.value(scale)
    return None if value is None or factor is None else value * along(node, factor, value.shape, axis, block)


def check_whole(node: Node, i: int) -> None:
    """Raise OnnxError if an input does not hold quantised numbers. A bias of 32 bits is allowed."""
    if node.input(i).dtype not in (*NARROW, "int32"):
        wanted, came = ", ".join((*NARROW, "int32")), node.input(i).dtype
        node.fail(f"input {i} is not an array of quantised numbers", wanted=wanted, came=came)


def check_parts(node: Node, i: int, scale: int, zero_point: int) -> None:
    """Raise OnnxError if a weight, its scale or its zero point has a wrong dtype."""
    check_whole(node, i)
    check_zero(node, zero_point, node.input(i).dtype)
    check_scale(node, scale)


def integers(node: Node, parts: list[Blob]) -> Sequence[Blob]:
    """An int32 result: the sum of whole numbers that are floats."""
    node.twins[0] = added(parts)
    return (added([cast(part, "int32") for part in parts]),)


def integer_product(node: Node, a: int, b: int, a_zero: int, b_zero: int) -> list[Blob]:
    """Summands of the product of two inputs minus their zero points, as floats."""
    checked_bytes(node, a, b)
    return product_with(node, whole(node, a, a_zero, -2), b, b_zero)


def product_with(node: Node, left: Blob, b: int, b_zero: int) -> list[Blob]:
    """Summands of the product of whole numbers (as floats) and an input minus its zero point."""
    checked_bytes(node, b)
    weight = fixed_weight(node, b, b_zero, -1)
    right = whole(node, b, b_zero, -1) if weight is None else node.parameter(b, weight)
    return exact_product(node, left, right, weight)


def checked_bytes(node: Node, *places: int) -> None:
    """Raise OnnxError for an input that is not an array of 8-bit numbers."""
    for i in places:
        if node.input(i).dtype not in BYTES:
            wanted, came = " or ".join(BYTES), node.input(i).dtype
            node.fail(f"input {i} is not an array of numbers of 8 bits", wanted=wanted, came=came)


def qlinear_matmul(node: Node) -> Sequence[Blob]:
    """QLinearMatMul: the product of two quantised arrays, quantised."""
    product = added(integer_product(node, 0, 3, 2, 5))
    factor = scale_of(node, 1, product, -2) * scale_of(node, 4, product, -1) / scale_of(node, 6, product, -2)
    dtype = quantised_dtype_of(node, node.input(7).dtype)
    return quantised_as(node, product * storable(node, factor), 7, -2, dtype)


def storable(node: Node, number: Blob | float) -> Blob | float:
    """A computed number, rounded as a file could hold it."""
    return number if isinstance(number, Blob) else float(np.dtype(node.float_dtype).type(number))


def dynamic_quantize_lstm(node: Node) -> Sequence[Blob | None]:
    """DynamicQuantizeLSTM: an LSTM with dequantised weights. Its inputs and states are not rounded."""
    w, r = lstm_weight(node, 1, 8, 9), lstm_weight(node, 2, 10, 11)
    node.op, node.inputs = "LSTM", [node.input(0), w, r, *node.inputs[3:8]]
    return recurrent_layer(node)


def lstm_weight(node: Node, i: int, scale: int, zero_point: int) -> Blob:
    """W or R of an LSTM [D, 4 H, E], from quantised numbers [D, E, 4 H]. Scales are [D] or [D, 4 H]."""
    check_parts(node, i, scale, zero_point)
    value, factor, zero = (node.value(place) for place in (i, scale, zero_point))
    if value is None or factor is None or zero is None:
        parts = [numbers(node, place) for place in (scale, zero_point)]
        by, shift = (unsqueeze(part, [1, 2] if node.rank(part) == 1 else [1]) for part in parts)
        return transpose((numbers(node, i) - shift) * by, perm=[0, 2, 1])
    if value.ndim != 3:
        node.fail(f"input {i} has a wrong number of axes", wanted=3, came=value.ndim)
    wide = [part.reshape(part.shape[:1] + (1,) + (part.shape[1:] or (1,))) for part in (factor, zero)]
    factors, zeros = (along(node, part, value.shape, 0) for part in wide)
    fixed = (value.astype("int64") - zeros.astype("int64")).astype("float32") * factors.astype("float32")
    return node.parameter(i, np.ascontiguousarray(fixed.transpose(0, 2, 1)), scaled=True)


def integer_convolution(node: Node, x: int, w: int, x_zero: int, w_zero: int) -> list[Blob]:
    """Summands of the convolution of two inputs minus their zero points. Float32 holds each exactly."""
    checked_bytes(node, x, w)
    left = whole(node, x, x_zero, 1)
    fixed = fixed_weight(node, w, w_zero, 0)
    if fixed is not None and fixed.ndim > 1:
        weight = node.parameter(w, fixed)
        sizes = exact_sizes(fixed.reshape(*fixed.shape[:2], -1).swapaxes(0, 1))
    else:
        weight = whole(node, w, w_zero, 0)
        sizes = sizes_of_open_weight(node, weight)
    return convolutions(node, left, weight, sizes)


def sizes_of_open_weight(node: Node, weight: Blob) -> list[int]:
    """Number of channels that a convolution may sum at once, for any weight."""
    dims = node.dims(weight)
    sizes = [size for size in dims[1:] if isinstance(size, int)]
    if not sizes or len(sizes) < len(dims) - 1:
        node.fail(OPEN_TERMS)
    channels, *kernel = sizes
    if prod(kernel) * WIDTH * WIDTH >= EXACT_UP_TO:
        node.fail("a kernel has too many numbers to be summed exactly", came=kernel)
    return worst_sizes(channels, prod(kernel))


def convolutions(node: Node, x: Blob, w: Blob, sizes: list[int]) -> list[Blob]:
    """A convolution as a sum over pieces of the channels."""
    attributes = node.given(CONV)
    if len(sizes) == 1:
        return list(node.net.append("Conv", [x, w], attributes))
    if attributes.get("group", 1) != 1:
        node.fail("sums of groups are too long to be exact", wanted="one group, or fewer channels")
    left, right = (node.net.append("Split", [blob], {"axis": 1, "split": sizes}) for blob in (x, w))
    return [node.net.append("Conv", pair, attributes)[0] for pair in zip(left, right, strict=True)]


def qlinear_conv(node: Node) -> Sequence[Blob]:
    """QLinearConv: a convolution of quantised arrays with a bias of whole numbers, quantised.

    Scales may differ by channel.
    """
    y = added(integer_convolution(node, 0, 3, 2, 5))
    if node.has(8):
        y = y + reshape(numbers(node, 8), [-1 if axis == 1 else 1 for axis in range(node.rank(y))])
    y = y * scale_of(node, 4, y, 1) * storable(node, scale_of(node, 1, y, 1) / scale_of(node, 6, y, 1))
    return quantised_as(node, y, 7, 1, quantised_dtype_of(node, node.input(7).dtype))


def matmul_integer_to_float(node: Node) -> Sequence[Blob]:
    """A product of whole numbers, scaled. Scales may differ by row and by column."""
    product = added(integer_product(node, 0, 1, 4, 5))
    return (biased(node, scaled(node, scaled(node, product, 2, -2), 3, -1), 6),)


def dynamic_quantize_matmul(node: Node) -> Sequence[Blob]:
    """A float operand, rounded to 8 bits by its own range, times a quantised operand."""
    rounded_x, scale, zero = quantised_by_range(node.input(0))
    product = added(product_with(node, rounded_x - zero, 1, 3)) * scale
    return (biased(node, scaled(node, product, 2, -1), 4),)


def scaled(node: Node, x: Blob, i: int, axis: int) -> Blob:
    """x times the scale that is the i-th input."""
    return x * scale_of(node, i, x, axis)


def meant(node: Node, i: int) -> Blob:
    """The float values of a quantised input. The next two inputs are its scale and (optional) zero point."""
    quantised_dtype_of(node, node.input(i).dtype)
    return scaled(node, whole(node, i, i + 2, 0), i + 1, 0)


def quantised(node: Node, y: Blob, scale: int, zero_point: int, like: int) -> list[Blob]:
    """A quantised result. Two inputs give its scale and zero point, a third its dtype."""
    dtype = quantised_dtype_of(node, node.input(like).dtype)
    return quantised_as(node, y / scale_of(node, scale, y, 0), zero_point, 0, dtype)


def of_meant(function: Callable[..., Blob], *places: int) -> Rule:
    """A rule for a function of the node and of the float values of these inputs. The result is quantised."""

    def rule(node: Node) -> Sequence[Blob]:
        y = function(node, *(meant(node, i) for i in places))
        return quantised(node, y, places[-1] + 3, places[-1] + 4, like=0)

    return rule


def pooled(op: str, **kinds: str) -> Callable[[Node, Blob], Blob]:
    """An op on windows with attributes of these kinds. Channels are the second axis."""

    def function(node: Node, x: Blob) -> Blob:
        if node.attr("channels_last", "int", 0):
            node.fail("channels as the last axis are not supported", wanted="channels_last=0")
        return node.net.append(op, [x], node.given(kinds))[0]

    return function


def quantised_concat(node: Node) -> Sequence[Blob]:
    """QLinearConcat. Scale and zero point of the result come first, then each array with its own."""
    parts = [meant(node, i) for i in range(2, len(node.inputs), 3)]
    return quantised(node, concat(parts, axis=node.required("axis", "int")), 0, 1, like=1)


QUANTISED_RULES: dict[str, Rule] = {
    "ConvInteger": lambda node: integers(node, integer_convolution(node, 0, 1, 2, 3)),  # 0 surrounds x
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    # zero points may be lists by row or column
    "MatMulInteger": lambda node: integers(node, integer_product(node, 0, 1, 2, 3)),
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize_linear,
    "com.microsoft::DequantizeLinear": dequantize_linear,
    "com.microsoft::DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "com.microsoft::DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "com.microsoft::MatMulIntegerToFloat": matmul_integer_to_float,
    "com.microsoft::QLinearAdd": of_meant(lambda node, a, b: a + b, 0, 3),
    "com.microsoft::QLinearAveragePool": of_meant(
        pooled("AveragePool", **WINDOWS, ceil_mode="int", count_include_pad="int"), 0
    ),
    "com.microsoft::QLinearConcat": quantised_concat,
    "com.microsoft::QLinearConv": qlinear_conv,
    "com.microsoft::QLinearGlobalAveragePool": of_meant(pooled("GlobalAveragePool"), 0),
    "com.microsoft::QLinearLeakyRelu": of_meant(lambda node, x: leaky_relu(x, node.attr("alpha", "float", 0.01)), 0),
    "com.microsoft::QLinearMul": of_meant(lambda node, a, b: a * b, 0, 3),
    "com.microsoft::QLinearSigmoid": of_meant(lambda node, x: sigmoid(x), 0),
    "com.microsoft::QuantizeLinear": quantize_linear,
}
