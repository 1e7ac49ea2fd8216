"""Elementwise aten ops: arithmetic, functions, comparisons, logic, choice, bounds, activations."""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import Any

import torch

import rnnops as ro
from rnnops.blob import Blob
from rnnops.torch.aten.table import RULES, Node, rule

LARGEST = {"float": float("inf"), "int64": 2**63 - 1, "int32": 2**31 - 1}


def _of_one_kind(function: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for operands that are brought to the result's dtype first."""

    def translate(node: Node, *operands: Any) -> Any:
        if not any(isinstance(operand, Blob) for operand in operands):
            operands = (node.blob(operands[0]), *operands[1:])
        return function(*[node.number_or_blob(operand) for operand in operands])

    return translate


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(ro, name) for name in ("abs", "cos", "erf", "exp", "floor", "log", "neg", "reciprocal", "relu")},
    **{name: getattr(ro, name) for name in ("atan", "ceil", "cosh", "expm1", "log1p", "round", "sinh", "tan")},
    **{name: getattr(ro, name) for name in ("selu", "sigmoid", "sign", "sin", "sqrt", "tanh")},
    "maximum": ro.max,
    "minimum": ro.min,
    "mul": lambda a, b: a & b if isinstance(a, Blob) and a.dtype == "bool" else a * b,
    "rsqrt": lambda x: ro.reciprocal(ro.sqrt(x)),
    "silu": lambda x: x * ro.sigmoid(x),
    "square": lambda x: x * x,
    "mish": lambda x: x * ro.tanh(ro.softplus(x)),
    "lerp": lambda a, b, weight: a + (b - a) * weight,
    "hardsigmoid": lambda x: ro.clip(x * (1 / 6) + 0.5, 0.0, 1.0),
    "hardswish": lambda x: x * ro.clip(x * (1 / 6) + 0.5, 0.0, 1.0),
}
RULES.update({name: _of_one_kind(function) for name, function in FUNCTIONS.items()})


@rule("add", "sub", "rsub")
def _add(node: Node, a: Any, b: Any, alpha: Any = 1) -> Blob:
    a, b = node.number_or_blob(a), node.number_or_blob(b)
    if node.name == "rsub":
        a, b = b, a
    if alpha != 1:
        if node.name == "rsub":
            a = a * alpha
        else:
            b = b * alpha
    if node.out_kind == "bool":
        return a | b
    return a + b if node.name == "add" else a - b


@rule("div")
def _div(node: Node, a: Any, b: Any, rounding_mode: str | None = None) -> Blob:
    a, b = (node.number_or_blob(value) for value in (a, b))
    if node.out_kind != "float":
        node.known("rounding_mode of integers", rounding_mode, "trunc")
        return a / b  # of integers, towards zero
    quotient: Blob = a / b
    if rounding_mode is None:
        return quotient
    return ro.floor(quotient) if rounding_mode == "floor" else ro.sign(quotient) * ro.floor(ro.abs(quotient))


@rule("fmod", "remainder")
def _mod(node: Node, a: Any, b: Any) -> Blob:
    return ro.mod(node.blob(a), node.blob(b), int(node.name == "fmod"))


@rule("atan2")
def _atan2(node: Node, y: Any, x: Any) -> Blob:
    """The arc tangent of the quotient, half a turn further where x is below 0; signs of zeros count."""
    y, x = (ro.expand(node.blob(value), node.out_shape) for value in (y, x))
    still, flat = ro.equal(x, 0.0), ro.equal(y, 0.0)
    quotient = ro.atan(y / ro.where(still, 1.0, x))
    angle = ro.where(still & ~flat, ro.sign(y) * (0.5 * pi), quotient)
    behind = (x < 0.0) | (still & flat & (ro.reciprocal(x) < 0.0))
    below = (y < 0.0) | (flat & (ro.reciprocal(y) < 0.0))
    value = ro.where(behind, angle + ro.where(below, node.blob(-pi), node.blob(pi)), angle)
    square = x * x + y * y
    share = ro.stop_gradient(ro.where(ro.equal(square, 0.0), 0.0, ro.reciprocal(square)))  # PyTorch's choice at 0, 0
    turned = ro.with_gradient(ro.stop_gradient(value), y, ro.stop_gradient(x) * share)
    return ro.with_gradient(turned, x, ro.stop_gradient(-y) * share)


@rule("log_sigmoid_forward")
def _log_sigmoid(node: Node, x: Blob) -> tuple[Blob, None]:
    return ro.neg(ro.softplus(ro.neg(x))), None


@rule("trunc")
def _trunc(node: Node, x: Blob) -> Blob:
    return ro.sign(x) * ro.floor(ro.abs(x))


@rule("log2", "log10")
def _log_of_base(node: Node, x: Blob) -> Blob:
    return ro.log(node.blob(x)) * (1 / log(2.0 if node.name == "log2" else 10.0))


@rule("exp2")
def _exp2(node: Node, x: Blob) -> Blob:
    return ro.pow(2.0, node.blob(x))


@rule("isnan")
def _isnan(node: Node, x: Blob) -> Blob:
    return ~ro.equal(x, x)


@rule("isinf")
def _isinf(node: Node, x: Blob) -> Blob:
    return ro.equal(ro.abs(x), float("inf"))


@rule("pow")
def _pow(node: Node, a: Any, b: Any) -> Blob:
    return ro.pow(node.blob(a), node.number_or_blob(b))


@rule("addcmul")
def _addcmul(node: Node, x: Blob, a: Blob, b: Blob, value: Any = 1) -> Blob:
    return x + (a * b if value == 1 else a * b * value)


@rule("addcdiv")
def _addcdiv(node: Node, x: Blob, a: Blob, b: Blob, value: Any = 1) -> Blob:
    return x + (a / b if value == 1 else a / b * value)


COMPARISONS: dict[str, Callable[..., Blob]] = {
    "gt": ro.greater, "ge": ro.greater_or_equal, "lt": ro.less, "le": ro.less_or_equal, "eq": ro.equal,
    "ne": lambda a, b: ~ro.equal(a, b),
}  # fmt: skip


@rule(*COMPARISONS)
def _compare(node: Node, a: Any, b: Any) -> Blob:
    kind = node.kind(torch.result_type(node.operand(0), node.operand(1)))
    if kind == "bool":  # ONNX compares no bools by order
        kind = "int32"
    return COMPARISONS[node.name](node.blob(a, kind), node.blob(b, kind))


@rule("logical_not", "bitwise_not")
def _not(node: Node, a: Blob) -> Blob:
    _only_bools(node, a)
    return ~node.blob(a, "bool")


@rule("logical_and", "bitwise_and")
def _and(node: Node, a: Blob, b: Blob) -> Blob:
    _only_bools(node, a, b)
    return node.blob(a, "bool") & node.blob(b, "bool")


@rule("logical_or", "bitwise_or")
def _or(node: Node, a: Blob, b: Blob) -> Blob:
    _only_bools(node, a, b)
    return node.blob(a, "bool") | node.blob(b, "bool")


@rule("logical_xor", "bitwise_xor")
def _xor(node: Node, a: Blob, b: Blob) -> Blob:
    _only_bools(node, a, b)
    a, b = node.blob(a, "bool"), node.blob(b, "bool")
    return (a | b) & ~(a & b)


def _only_bools(node: Node, *values: Any) -> None:
    """Bits of integers have no op here; of other numbers only whether they are zero counts."""
    kinds = [value.dtype if isinstance(value, Blob) else "bool" for value in values]
    if node.name.startswith("bitwise") and set(kinds) != {"bool"}:
        node.fail("bits of integers are not translated", wanted="bools", came=", ".join(kinds))


@rule("where")
def _where(node: Node, condition: Blob, a: Any, b: Any) -> Blob:
    return ro.where(condition, node.blob(a), node.blob(b))


@rule("masked_fill")
def _masked_fill(node: Node, x: Blob, mask: Blob, value: Any) -> Blob:
    return ro.where(mask, node.blob(value), x)


@rule("clamp", "clamp_min", "clamp_max", "hardtanh")
def _clamp(node: Node, x: Blob, first: Any = None, second: Any = None, **bounds: Any) -> Blob:
    if node.name == "hardtanh":
        first, second = (-1.0 if first is None else first), (1.0 if second is None else second)
    low, high = bounds.get("min", first), bounds.get("max", second)
    if node.name == "clamp_max":
        low, high = None, first
    return ro.clip(node.blob(x), node.number_or_blob(low), node.number_or_blob(high))


@rule("leaky_relu")
def _leaky_relu(node: Node, x: Blob, slope: float = 0.01) -> Blob:
    return ro.leaky_relu(x, slope)


@rule("elu")
def _elu(node: Node, x: Blob, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Blob:
    y = ro.elu(x if input_scale == 1 else x * input_scale, alpha)
    return y if scale == 1 else y * scale


@rule("gelu")
def _gelu(node: Node, x: Blob, approximate: str = "none") -> Blob:
    return ro.gelu(x, approximate)


@rule("softplus")
def _softplus(node: Node, x: Blob, beta: float = 1.0, threshold: float = 20.0) -> Blob:
    """Beyond its threshold PyTorch gives x itself, to which the function is equal within e^-20."""
    node.known("threshold below 20", threshold >= 20, True)
    return ro.softplus(x) if beta == 1 else ro.softplus(x * beta) * (1 / beta)
