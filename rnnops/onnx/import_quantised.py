"""ONNX's quantised ops as ops of rnnops that compute in float (`rnnops.onnx.quantised` says how).

Results are whole numbers of the dtype that the file has. They are those of integer arithmetic, except where a float
lies so near to the middle of two whole numbers that it depends on the order of operations which one it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.import_rnn import recurrent_layer
from rnnops.onnx.node import Node, Rule
from rnnops.onnx.quantised import (
    BYTES,
    NARROW,
    added,
    along,
    centred,
    check_zero,
    exact_product,
    fixed_weight,
    numbers,
    quantised_dtype_of,
    results,
    rounded,
    scale_of,
    zero_of,
)
from rnnops.onnx.tensors import element_dtype
from rnnops.ops.comparison import cast, equal, where
from rnnops.ops.extrema import clip, max as max_, min as min_
from rnnops.ops.functions import round as round_
from rnnops.ops.movement import transpose, unsqueeze
from rnnops.ops.reduction import reduce_max, reduce_min
from rnnops.types import FLOAT, Array, is_float


def dynamic_quantize_linear(node: Node) -> Sequence[Blob]:
    """Numbers of 8 bits without a sign whose range is that of the array, 0 included."""
    return results_of_range(node, *quantised_by_range(node.input(0)))


def quantised_by_range(x: Blob) -> tuple[Blob, Blob, Blob]:
    """Whole numbers from 0 to 255, their scale and their zero point, all as floats."""
    low, high = min_(reduce_min(x, keepdims=0), 0.0), max_(reduce_max(x, keepdims=0), 0.0)
    width = high - low
    scale = where(equal(width, 0.0), 1.0, width) / 255.0
    zero = round_(clip(-low / scale, 0.0, 255.0))
    return rounded(x / scale, zero, "uint8"), scale, zero


def results_of_range(node: Node, y: Blob, scale: Blob, zero: Blob) -> Sequence[Blob]:
    """The three results; the scale has no twin, as it is a float."""
    node.twins.update({0: y, 2: zero})
    return cast(y, "uint8"), scale, cast(zero, "uint8")


def quantize_linear(node: Node) -> Sequence[Blob]:
    """One scale for all, one for each place of an axis, or one for each block of an axis."""
    axis, block = node.attr("axis", "int", 1), node.attr("block_size", "int", 0)
    node.attr("saturate", "int")
    check_precision(node)
    if node.input(0).dtype not in (FLOAT, "int32"):
        node.fail("what is quantised is no float", wanted=f"{FLOAT} or int32", came=node.input(0).dtype)
    x, dtype = numbers(node, 0), quantised_dtype(node)
    scale = scale_of(node, 1, x, axis, block)
    return results(node, (rounded(x / scale, zero_of(node, 2, x, axis, dtype, block), dtype), dtype))


def check_precision(node: Node) -> None:
    """The division's precision may be that of the scale or float32, which is the net's float either way."""
    precision = node.attr("precision", "int", 0)
    if precision:
        element_dtype(precision, "the precision of a QuantizeLinear")


def quantised_dtype(node: Node) -> str:
    """The dtype of quantised results: that of the zero point, else the attribute, else uint8."""
    asked = node.attr("output_dtype", "int", 0)
    named = element_dtype(asked, "the result of a QuantizeLinear") if asked else "uint8"
    return quantised_dtype_of(node, node.input(2).dtype if node.has(2) else named)


def dequantize_linear(node: Node) -> Sequence[Blob]:
    """`(x - zero_point) * scale`; of weights that the file fixes, a parameter."""
    axis, block = node.attr("axis", "int", 1), node.attr("block_size", "int", 0)
    asked = node.attr("output_dtype", "int", 0)
    if asked:
        element_dtype(asked, "the result of a DequantizeLinear")
    check_whole(node, 0)
    fixed = dequantised(node, 0, 1, 2, axis, block)
    if fixed is not None:
        return (node.reader.parameter(0, fixed, meaning=True),)
    x = numbers(node, 0)
    zero = zero_of(node, 2, x, axis, node.input(0).dtype, block)
    return (centred(x, zero) * scale_of(node, 1, x, axis, block),)


def dequantised(node: Node, i: int, scale: int, zero_point: int, axis: int, block: int = 0) -> Array | None:
    """What a quantised weight stands for, where the file fixes all of it, as a runtime computes it: in float32."""
    check_parts(node, i, scale, zero_point)
    value, factor, zero = (node.value(place) for place in (i, scale, zero_point))
    if value is None or factor is None or (node.has(zero_point) and zero is None):
        return None
    by = along(node, factor.astype("float32"), value.shape, axis, block)
    shift = np.zeros((), "int64") if zero is None else along(node, zero.astype("int64"), value.shape, axis, block)
    return np.asarray((value.astype("int64") - shift).astype("float32") * by)


def check_whole(node: Node, i: int) -> None:
    """Raise OnnxError where an input holds no quantised numbers; a bias of 32 bits counts as such."""
    if node.input(i).dtype not in (*NARROW, "int32"):
        wanted, came = ", ".join((*NARROW, "int32")), node.input(i).dtype
        node.fail(f"input {i} is no array of quantised numbers", wanted=wanted, came=came)


def check_parts(node: Node, i: int, scale: int, zero_point: int) -> None:
    """Raise OnnxError where a weight, its scale and its zero point have no dtypes of such."""
    check_whole(node, i)
    check_zero(node, zero_point, node.input(i).dtype)
    if not is_float(node.input(scale).dtype):
        node.fail("a scale is no float", wanted=FLOAT, came=node.input(scale).dtype)


def matmul_integer(node: Node) -> Sequence[Blob]:
    """Zero points may differ from row to row of the left side, and from column to column of the right one."""
    parts = integer_product(node, 0, 1, 2, 3)
    node.twins[0] = added(parts)
    return (added([cast(part, "int32") for part in parts]),)


def integer_product(node: Node, a: int | Blob, b: int, a_zero: int | None, b_zero: int) -> list[Blob]:
    """Summands of the product of two inputs without their zero points, as floats.

    Args:
        a: an input, or whole numbers as floats.
        a_zero: None where a has lost its zero point already.
    """
    for i in (a, b):
        if not isinstance(i, Blob) and node.input(i).dtype not in BYTES:
            node.fail(
                f"input {i} is no array of numbers of 8 bits", wanted=" or ".join(BYTES), came=node.input(i).dtype
            )
    left = a if isinstance(a, Blob) else numbers(node, a)
    if not isinstance(a, Blob) and a_zero is not None:
        left = centred(left, zero_of(node, a_zero, left, -2, node.input(a).dtype))
    weight = fixed_weight(node, b, b_zero, -1)
    if weight is not None:
        return exact_product(node, left, node.reader.parameter(b, weight), weight)
    right = numbers(node, b)
    return exact_product(node, left, centred(right, zero_of(node, b_zero, right, -1, node.input(b).dtype)), None)


def checked_bytes(node: Node, *places: int) -> None:
    """Raise OnnxError where an input is no array of numbers of 8 bits."""
    for i in places:
        if node.input(i).dtype not in BYTES:
            wanted, came = " or ".join(BYTES), node.input(i).dtype
            node.fail(f"input {i} is no array of numbers of 8 bits", wanted=wanted, came=came)


def qlinear_matmul(node: Node) -> Sequence[Blob]:
    """The product of two quantised arrays, quantised."""
    product = added(integer_product(node, 0, 3, 2, 5))
    factor = scale_of(node, 1, product, -2) * scale_of(node, 4, product, -1) / scale_of(node, 6, product, -2)
    dtype = quantised_dtype_of(node, node.input(7).dtype)
    zero = zero_of(node, 7, product, -2, dtype)
    return results(node, (rounded(product * storable(node, factor), zero, dtype), dtype))


def storable(node: Node, number: Blob | float) -> Blob | float:
    """A number that was computed as a file can have it."""
    return number if isinstance(number, Blob) else float(np.dtype(node.float_dtype).type(number))


def dynamic_quantize_lstm(node: Node) -> Sequence[Blob | None]:
    """An LSTM with the weights that quantised ones stand for; what it reads, and its state, are not rounded."""
    w, r = lstm_weight(node, 1, 8, 9), lstm_weight(node, 2, 10, 11)
    node.op, node.inputs = "LSTM", [node.input(0), w, r, *node.inputs[3:8]]
    return recurrent_layer(node)


def lstm_weight(node: Node, i: int, scale: int, zero_point: int) -> Blob:
    """W or R of an LSTM [D, 4 H, E] from quantised numbers [D, E, 4 H]; scales are [D] or [D, 4 H]."""
    check_parts(node, i, scale, zero_point)
    value, factor, zero = (node.value(place) for place in (i, scale, zero_point))
    if value is None or factor is None or zero is None:
        by_run = [unsqueeze_to(node, numbers(node, place)) for place in (scale, zero_point)]
        return transpose((numbers(node, i) - by_run[1]) * by_run[0], perm=[0, 2, 1])
    if value.ndim != 3:
        node.fail(f"input {i} has a wrong number of axes", wanted=3, came=value.ndim)
    wide = [part.reshape(part.shape[:1] + (1,) + (part.shape[1:] or (1,))) for part in (factor, zero)]
    by, shift = (along(node, part, value.shape, 0) for part in wide)
    fixed = (value.astype("int64") - shift.astype("int64")).astype("float32") * by.astype("float32")
    made: Blob = node.reader.parameter(i, np.ascontiguousarray(fixed.transpose(0, 2, 1)), meaning=True)
    return made


def unsqueeze_to(node: Node, blob: Blob) -> Blob:
    """[D] or [D, 4 H] with axes for [D, E, 4 H]."""
    return unsqueeze(blob, [1, 2] if node.rank(blob) == 1 else [1])


QUANTISED_RULES: dict[str, Rule] = {
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize_linear,
    "com.microsoft::DequantizeLinear": dequantize_linear,
    "com.microsoft::DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "com.microsoft::QuantizeLinear": quantize_linear,
}
