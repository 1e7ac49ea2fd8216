"""Ops of the domain `com.microsoft` that ONNX Runtime's optimizer and quantiser write, as a few ops of rnnops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rnnops.blob import Blob
from rnnops.onnx.activations import read_activations
from rnnops.onnx.import_quantised import integer_product, quantised_by_range
from rnnops.onnx.node import Node, Rule
from rnnops.onnx.quantised import added, centred, numbers, quantised_dtype_of, results, rounded, scale_of, zero_of
from rnnops.ops.activation import gelu, leaky_relu, sigmoid
from rnnops.ops.movement import concat, transpose
from rnnops.ops.normalization import layer_normalization
from rnnops.ops.products import gemm, matmul


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
    """What a quantised input stands for; its scale and its zero point, which may be left out, come after it."""
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
