"""Quantised numbers as floats: zero points, scales and their axes, and sums of products that stay exact.

A quantised array holds whole numbers q of 8 or 16 bits, which stand for `(q - zero_point) * scale`. Whole numbers are
floats without an error up to 2^24, so all of it runs in the net's float. A float of the same value, its twin, is
remembered for each integer result that a rule here makes, and a Cast back to float takes it: no number goes through
integers and back, and gradients go where the file has integers in between. At a Round they stop.

Weights that the file fixes become float parameters while it is read, without their zero points: what depends on them
alone is not computed in a run.
"""

from __future__ import annotations

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.node import Node
from rnnops.ops.comparison import cast
from rnnops.ops.extrema import clip
from rnnops.ops.functions import round as round_
from rnnops.ops.movement import reshape, unsqueeze
from rnnops.ops.products import matmul
from rnnops.ops.repetition import tile
from rnnops.ops.shapes import shape
from rnnops.types import FLOAT, Array, Shape, is_float

EXACT = 2**24  # whole numbers up to here are float32 numbers
WIDTH = 255  # between the smallest and the largest number of 8 bits
BYTES = ("int8", "uint8")
NARROW = (*BYTES, "int16", "uint16")
FOLDED = {
    "ConvInteger": (1, 2, 3),
    "DequantizeLinear": (0, 1, 2),
    "MatMulInteger": (1, 2, 3),
    "QLinearConv": (2, 3, 4, 5, 7),
    "QLinearMatMul": (2, 3, 4, 5, 7),
    "QuantizeLinear": (2,),
    "com.microsoft::DequantizeLinear": (0, 1, 2),
    "com.microsoft::DynamicQuantizeLSTM": (1, 2, 8, 9, 10, 11),
    "com.microsoft::DynamicQuantizeMatMul": (1, 2, 3),
    "com.microsoft::MatMulIntegerToFloat": (1, 3, 4, 5),
    "com.microsoft::QLinearConv": (2, 3, 4, 5, 7),
    "com.microsoft::QuantizeLinear": (2,),
}  # inputs of each op that rules here take as values, where the file fixes them


def numbers(node: Node, i: int) -> Blob:
    """The i-th input as floats: the twin of whole numbers that were computed, a constant, else a Cast."""
    blob, value = node.input(i), node.value(i)
    if is_float(blob.dtype):
        return blob
    if value is not None and value.ndim < 2:
        return node.net.constant(value.astype(node.float_dtype), FLOAT)
    twin: Blob | None = node.reader.twin(blob)
    return cast(blob, FLOAT) if twin is None else twin


def lie_along(node: Node, i: int, x: Blob, axis: int, block: int = 0) -> Blob | float | None:
    """A scale or zero point as floats that broadcast with x; None where it is left out or 0.

    Args:
        axis: of x, which a list of numbers lies along.
        block: how many elements of that axis share a number; 0 where each has its own.
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
    known = node.known(given)
    if rank == 0 or rank > 1 or (known is not None and known[0].shape == known[1].shape == (1,)):
        return reshape(given, []) if rank == 1 else given
    whole = node.rank(x)
    if not -whole <= axis < whole:
        node.fail("the axis is none of the operand", wanted=f"from {-whole} to {whole - 1}", came=axis)
    return reshape(given, [-1 if place == axis % whole else 1 for place in range(whole)])


def scale_of(node: Node, i: int, x: Blob, axis: int, block: int = 0) -> Blob | float:
    """A scale, which must be there, be float and not be 0."""
    if node.has(i) and not is_float(node.input(i).dtype):
        node.fail("a scale is no float", wanted=FLOAT, came=node.input(i).dtype)
    scale = lie_along(node, i, x, axis, block)
    return node.fail("a scale is missing, or 0") if scale is None else scale


def zero_of(node: Node, i: int, x: Blob, axis: int, like: str, block: int = 0) -> Blob | float | None:
    """A zero point; None where it is left out or 0.

    Args:
        like: the dtype that it has.
    """
    check_zero(node, i, like)
    return lie_along(node, i, x, axis, block)


def check_zero(node: Node, i: int, like: str) -> None:
    """Raise OnnxError where a zero point has another dtype than the numbers that it belongs to."""
    if node.has(i) and node.input(i).dtype != like:
        node.fail("a zero point has another dtype than its numbers", wanted=like, came=node.input(i).dtype)


def in_blocks(given: Blob, x: Blob, axis: int, rank: int, block: int) -> Blob:
    """Each number as often as its block is long."""
    repeats = [block if place == axis + 1 else 1 for place in range(rank + 1)]
    return reshape(tile(unsqueeze(given, [axis + 1]), repeats), shape(x))


def centred(x: Blob, zero_point: Blob | float | None) -> Blob:
    """Whole numbers without their zero point."""
    return x if zero_point is None else x - zero_point


def rounded(x: Blob, zero_point: Blob | float | None, dtype: str) -> Blob:
    """The nearest whole numbers, of two the even ones, moved by a zero point and held inside a dtype; as floats."""
    bounds = np.iinfo(dtype)
    moved = round_(x) if zero_point is None else round_(x) + zero_point
    return clip(moved, float(bounds.min), float(bounds.max))


def quantised_dtype_of(node: Node, dtype: str) -> str:
    """A dtype of quantised numbers. Raises OnnxError for another."""
    if dtype not in NARROW:
        node.fail("numbers of this dtype are no quantised ones", wanted=", ".join(NARROW), came=dtype)
    return dtype


def results(node: Node, *blobs: tuple[Blob, str]) -> list[Blob]:
    """Results of a node, each whole numbers as floats and their dtype."""
    found: list[Blob] = []
    for blob, dtype in blobs:
        node.twins[len(found)] = blob
        found.append(cast(blob, dtype))
    return found


def fixed_weight(node: Node, i: int, zero_point: int, axis: int) -> Array | None:
    """Whole numbers of a weight without their zero points as float32, where the file fixes both.

    Args:
        axis: of the weight, along which a list of zero points lies.
    """
    check_zero(node, zero_point, node.input(i).dtype)
    value, zero = node.value(i), node.value(zero_point)
    if value is None or (node.has(zero_point) and zero is None):
        return None
    shift = np.zeros((), "int64") if zero is None else along(node, zero.astype("int64"), value.shape, axis)
    return np.asarray((value.astype("int64") - shift).astype("float32"))


def along(node: Node, values: Array, shape: Shape, axis: int, block: int = 0) -> Array:
    """Numbers of a weight's axis, or of blocks of it, such that they broadcast to its shape and no further."""
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
    """`a @ b` of whole numbers of 8 bits without their zero points: summands, each of which is exact in float32.

    Args:
        weight: what b holds, where the file fixes it.
    """
    if weight is not None:
        terms = weight[:, None] if weight.ndim < 2 else np.moveaxis(weight, -2, 0)
        sizes = exact_sizes(terms.reshape(len(terms), -1, 1))
    else:
        sizes = worst_sizes(terms_of(node, b))
    if len(sizes) == 1:
        return [matmul(a, b)]
    axis = -2 if node.rank(b) > 1 else -1
    left, right = (
        node.net.append("Split", [blob], {"axis": place, "split": sizes}) for blob, place in ((a, -1), (b, axis))
    )
    return [matmul(*pair) for pair in zip(left, right, strict=True)]


def terms_of(node: Node, b: Blob) -> int:
    """How many products a product with b sums up. Raises OnnxError where that is open."""
    kind = node.known(b)
    axis = -2 if kind is not None and kind[0].rank > 1 else -1
    if kind is None or kind[0].shape[axis] != kind[1].shape[axis]:
        node.fail("how many products are summed up does not follow from the file")
    return kind[0].shape[axis]


def exact_sizes(weight: Array) -> list[int]:
    """Sizes of pieces of a weight's first axis, such that sums of products with numbers of 8 bits stay exact.

    Args:
        weight: whole numbers [pieces are made of, columns, what one column has of each].
    """
    parts = [np.maximum(sign * weight, 0).sum(axis=2, dtype="float64") for sign in (1, -1)]
    sizes, first = [], 0
    for at in range(1, len(weight) + 1):
        if at < len(weight) and all(part[first : at + 1].sum(0).max(initial=0) * WIDTH < EXACT for part in parts):
            continue
        sizes.append(at - first)
        first = at
    return sizes or [0]


def worst_sizes(terms: int, each: int = 1) -> list[int]:
    """The same where numbers are not known before a run: those of a first axis, each of which is so many terms."""
    most = max(EXACT // (WIDTH * WIDTH * max(each, 1)), 1)
    return [min(most, terms - first) for first in range(0, terms, most)] or [0]


def added(blobs: list[Blob]) -> Blob:
    """The sum of a few blobs."""
    total = blobs[0]
    for blob in blobs[1:]:
        total = total + blob
    return total
