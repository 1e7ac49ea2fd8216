"""Convolutions of whole numbers, and what ONNX Runtime's optimizer makes of convolutions, as Conv and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from rnnops.blob import Blob
from rnnops.onnx.activations import read_activations
from rnnops.onnx.import_microsoft import meant, quantised
from rnnops.onnx.import_ops import WINDOWS
from rnnops.onnx.import_quantised import checked_bytes, storable
from rnnops.onnx.node import Node, Rule
from rnnops.onnx.quantised import (
    EXACT,
    WIDTH,
    added,
    centred,
    exact_sizes,
    fixed_weight,
    numbers,
    quantised_dtype_of,
    results,
    rounded,
    scale_of,
    worst_sizes,
    zero_of,
)
from rnnops.ops.comparison import cast
from rnnops.ops.movement import reshape


def conv_integer(node: Node) -> Sequence[Blob]:
    """What is around x stands for 0, whatever the zero point is."""
    parts = integer_convolution(node, 0, 1, 2, 3)
    node.twins[0] = added(parts)
    return (added([cast(part, "int32") for part in parts]),)


def integer_convolution(node: Node, x: int, w: int, x_zero: int, w_zero: int) -> list[Blob]:
    """Summands of the convolution of two inputs without their zero points; each is exact in float32."""
    checked_bytes(node, x, w)
    whole = numbers(node, x)
    whole = centred(whole, zero_of(node, x_zero, whole, 1, node.input(x).dtype))
    fixed = fixed_weight(node, w, w_zero, 0)
    if fixed is not None and fixed.ndim > 1:
        weight: Blob = node.reader.parameter(w, fixed)
        sizes = exact_sizes(fixed.reshape(*fixed.shape[:2], -1).swapaxes(0, 1))
    else:
        given = numbers(node, w)
        weight = centred(given, zero_of(node, w_zero, given, 0, node.input(w).dtype))
        sizes = sizes_of_open_weight(node, weight)
    return convolutions(node, whole, weight, sizes)


def sizes_of_open_weight(node: Node, weight: Blob) -> list[int]:
    """How many channels a convolution may sum up at once, whatever the weight will be."""
    kind = node.known(weight)
    if kind is None or kind[0].shape[1:] != kind[1].shape[1:]:
        node.fail("how many products are summed up does not follow from the file")
    channels, kernel = kind[0].shape[1], prod(kind[0].shape[2:])
    if kernel * WIDTH * WIDTH >= EXACT:
        node.fail("a kernel of so many numbers is not summed up exactly", came=list(kind[0].shape[2:]))
    return worst_sizes(channels, kernel)


def convolutions(node: Node, x: Blob, w: Blob, sizes: list[int]) -> list[Blob]:
    """The convolution as a sum over pieces of the channels."""
    attributes = conv_attributes(node)
    if len(sizes) == 1:
        return [convolution(node, x, w, attributes)]
    if attributes.get("group", 1) != 1:
        node.fail("sums of groups are too long to be exact", wanted="one group, or fewer channels")
    left, right = (node.net.append("Split", [blob], {"axis": 1, "split": sizes}) for blob in (x, w))
    return [convolution(node, one, other, attributes) for one, other in zip(left, right, strict=True)]


def conv_attributes(node: Node) -> dict[str, Any]:
    """Those of Conv that the node has."""
    found = {name: node.attr(name, kind) for name, kind in {**WINDOWS, "group": "int"}.items()}
    return {name: value for name, value in found.items() if value is not None}


def convolution(node: Node, x: Blob, w: Blob, attributes: dict[str, Any], bias: Blob | None = None) -> Blob:
    return node.net.append("Conv", [x, w] if bias is None else [x, w, bias], attributes)[0]


def qlinear_conv(node: Node) -> Sequence[Blob]:
    """A convolution of quantised arrays with a bias of whole numbers, quantised; weights may have scales by channel."""
    y = added(integer_convolution(node, 0, 3, 2, 5))
    if node.has(8):
        y = y + reshape(numbers(node, 8), [-1 if axis == 1 else 1 for axis in range(node.rank(y))])
    y = y * scale_of(node, 4, y, 1) * storable(node, scale_of(node, 1, y, 1) / scale_of(node, 6, y, 1))
    dtype = quantised_dtype_of(node, node.input(7).dtype)
    return results(node, (rounded(y, zero_of(node, 7, y, 1, dtype), dtype), dtype))


def qlinear_average_pool(node: Node) -> Sequence[Blob]:
    """Means of windows of what is meant, quantised."""
    last_channels(node)
    options = {**WINDOWS, "ceil_mode": "int", "count_include_pad": "int"}
    found = {name: node.attr(name, kind) for name, kind in options.items()}
    given = {name: value for name, value in found.items() if value is not None}
    return quantised(node, node.net.append("AveragePool", [meant(node, 0)], given)[0], 3, 4, like=0)


def qlinear_global_average_pool(node: Node) -> Sequence[Blob]:
    """Means of all places of what is meant, quantised."""
    last_channels(node)
    return quantised(node, node.net.append("GlobalAveragePool", [meant(node, 0)])[0], 3, 4, like=0)


def last_channels(node: Node) -> None:
    """Raise OnnxError where channels are the last axis."""
    if node.attr("channels_last", "int", 0):
        node.fail("channels as the last axis are not supported", wanted="channels_last=0")


def fused_conv(node: Node) -> Sequence[Blob]:
    """A convolution, an array that is added where there is one, and an activation."""
    y = convolution(node, node.input(0), node.input(1), conv_attributes(node), node.optional(2))
    y = y + node.input(3) if node.has(3) else y
    name, numbers_of = node.attr("activation", "string", ""), node.attr("activation_params", "floats", ())
    if not name:
        return (y,)
    (activation,) = read_activations([name], numbers_of[:1], numbers_of[1:])
    return (activation(y),)


QUANTISED_CONV_RULES: dict[str, Rule] = {
    "ConvInteger": conv_integer,
    "QLinearConv": qlinear_conv,
    "com.microsoft::FusedConv": fused_conv,
    "com.microsoft::QLinearAveragePool": qlinear_average_pool,
    "com.microsoft::QLinearConv": qlinear_conv,
    "com.microsoft::QLinearGlobalAveragePool": qlinear_global_average_pool,
}
