"""Ops of the domain `com.microsoft`, and quantised convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from rnnops.net.blob import Blob
from rnnops.onnx.import_ops import WINDOWS
from rnnops.onnx.import_quantised import (
    EXACT,
    WIDTH,
    added,
    centred,
    checked_bytes,
    exact_sizes,
    fixed_weight,
    integer_product,
    numbers,
    quantised_by_range,
    quantised_dtype_of,
    results,
    rounded,
    scale_of,
    storable,
    worst_sizes,
    zero_of,
)
from rnnops.onnx.import_rnn import read_activations
from rnnops.onnx.node import Node, Rule
from rnnops.ops.activation import gelu, leaky_relu, sigmoid
from rnnops.ops.comparison import cast
from rnnops.ops.movement import concat, reshape, transpose
from rnnops.ops.normalization import layer_normalization
from rnnops.ops.products import gemm, matmul


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


def biased_gelu(approximate: str) -> Rule:
    """A rule for Gelu of an input, plus a bias if there is one."""

    def rule(node: Node) -> Sequence[Blob]:
        return (gelu(biased(node, node.input(0), 1), approximate),)

    return rule


def biased(node: Node, x: Blob, i: int) -> Blob:
    """x and the i-th input, where that is given."""
    return x + node.input(i) if node.has(i) else x


def quick_gelu(node: Node) -> Sequence[Blob]:
    """`x sigmoid(alpha x)`."""
    x = node.input(0)
    return (x * sigmoid(x * node.attr("alpha", "float", 1.702)),)


def fused_matmul(node: Node) -> Sequence[Blob]:
    """A product, of operands whose last two axes may change places, times a number."""
    for name in ("transBatchA", "transBatchB"):
        if node.attr(name, "int", 0):
            node.fail(f"attribute '{name}' is not supported", wanted=0)
    product = matmul(*(turned(node, node.input(i), f"trans{side}") for i, side in enumerate("AB")))
    alpha = node.attr("alpha", "float", 1.0)
    return (product if alpha == 1.0 else product * alpha,)


def turned(node: Node, x: Blob, attribute: str) -> Blob:
    """x with its last two axes changed where an attribute says so; a list has but one."""
    if not node.attr(attribute, "int", 0) or node.rank(x) < 2:
        return x
    axes = list(range(node.rank(x)))
    return transpose(x, perm=[*axes[:-2], axes[-1], axes[-2]])


def fused_gemm(node: Node) -> Sequence[Blob]:
    """Gemm and one of the activations that recurrent ops have."""
    options = {name: node.attr(name, "float", 1.0) for name in ("alpha", "beta")}
    turns = {name: node.attr(name, "int", 0) for name in ("transA", "transB")}
    y = gemm(node.input(0), node.input(1), node.optional(2), **options, **turns)
    given = [node.attr(f"activation_{name}", "float") for name in ("alpha", "beta")]
    numbers_of = [[] if number is None else [number] for number in given]
    (activation,) = read_activations([node.required("activation", "string")], *numbers_of)
    return (activation(y),)


def skip_layer_normalization(node: Node) -> Sequence[Blob | None]:
    """LayerNormalization of a sum, and that sum."""
    total = biased(node, node.input(0) + node.input(1), 4)
    epsilon = node.attr("epsilon", "float", 1e-12)
    return layer_normalization(total, node.input(2), node.optional(3), axis=-1, epsilon=epsilon), None, None, total


def matmul_integer_to_float(node: Node) -> Sequence[Blob]:
    """A product of whole numbers, scaled; scales may differ from row to row and from column to column."""
    product = added(integer_product(node, 0, 1, 4, 5))
    return (biased(node, scaled(node, scaled(node, product, 2, -2), 3, -1), 6),)


def dynamic_quantize_matmul(node: Node) -> Sequence[Blob]:
    """A float operand, rounded to 8 bits by its own range, times a quantised one."""
    whole, scale, zero = quantised_by_range(node.input(0))
    product = added(integer_product(node, whole - zero, 1, None, 3)) * scale
    return (biased(node, scaled(node, product, 2, -1), 4),)


def scaled(node: Node, x: Blob, i: int, axis: int) -> Blob:
    """x times the scale that is the i-th input."""
    return x * scale_of(node, i, x, axis)


def meant(node: Node, i: int) -> Blob:
    """The float values of a quantised input; its scale and its zero point, which may be left out, come after it."""
    quantised_dtype_of(node, node.input(i).dtype)
    x = numbers(node, i)
    return scaled(node, centred(x, zero_of(node, i + 2, x, 0, node.input(i).dtype)), i + 1, 0)


def quantised(node: Node, y: Blob, scale: int, zero_point: int, like: int) -> list[Blob]:
    """A result with the scale and the zero point of two inputs, of the dtype of a third."""
    dtype = quantised_dtype_of(node, node.input(like).dtype)
    return results(
        node, (rounded(y / scale_of(node, scale, y, 0), zero_of(node, zero_point, y, 0, dtype), dtype), dtype)
    )


def quantised_binary(function: Callable[[Blob, Blob], Blob]) -> Rule:
    """A rule for a function of two quantised arrays."""

    def rule(node: Node) -> Sequence[Blob]:
        return quantised(node, function(meant(node, 0), meant(node, 3)), 6, 7, like=0)

    return rule


def quantised_sigmoid(node: Node) -> Sequence[Blob]:
    return quantised(node, sigmoid(meant(node, 0)), 3, 4, like=0)


def quantised_leaky_relu(node: Node) -> Sequence[Blob]:
    return quantised(node, leaky_relu(meant(node, 0), node.attr("alpha", "float", 0.01)), 3, 4, like=0)


def quantised_concat(node: Node) -> Sequence[Blob]:
    """Scale and zero point of the result come first, then each array with its own."""
    parts = [meant(node, i) for i in range(2, len(node.inputs), 3)]
    return quantised(node, concat(parts, axis=node.required("axis", "int")), 0, 1, like=1)


MICROSOFT_RULES: dict[str, Rule] = {
    "com.microsoft::BiasGelu": biased_gelu("none"),
    "com.microsoft::DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "com.microsoft::FastGelu": biased_gelu("tanh"),
    "com.microsoft::FusedGemm": fused_gemm,
    "com.microsoft::FusedMatMul": fused_matmul,
    "com.microsoft::Gelu": biased_gelu("none"),
    "com.microsoft::MatMulIntegerToFloat": matmul_integer_to_float,
    "com.microsoft::QLinearAdd": quantised_binary(lambda a, b: a + b),
    "com.microsoft::QLinearConcat": quantised_concat,
    "com.microsoft::QLinearLeakyRelu": quantised_leaky_relu,
    "com.microsoft::QLinearMul": quantised_binary(lambda a, b: a * b),
    "com.microsoft::QLinearSigmoid": quantised_sigmoid,
    "com.microsoft::QuickGelu": quick_gelu,
    "com.microsoft::SkipLayerNormalization": skip_layer_normalization,
}
