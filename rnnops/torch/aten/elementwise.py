"""aten ops on single elements, and aten ops that reduce an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf, log, nan, pi, prod
from operator import mul
from typing import Any

import numpy as np
import torch

import rnnops as ro
from rnnops.net.blob import Blob
from rnnops.torch.aten.table import RULES, AtenNode, rule

LARGEST = {"float": inf, "int64": 2**63 - 1, "int32": 2**31 - 1}


def _of_one_kind(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a rule whose operands are first brought to the result's dtype."""

    def translate(node: AtenNode, *operands: Any) -> Any:
        if not any(isinstance(operand, Blob) for operand in operands):
            operands = (node.blob(operands[0]), *operands[1:])
        return function(*[node.number_or_blob(operand) for operand in operands])

    return translate


def _inside(x: Blob, low: float, high: float) -> Blob:
    """Bounded numbers. The bounds get no gradient, as in PyTorch's activations. The bounds of `clamp` get one."""
    return ro.where((x <= low) | (x >= high), ro.stop_gradient(ro.clip(x, low, high)), x)


def _is_signed(x: Any) -> Blob:
    """True for numbers below 0, and for -0."""
    return (x < 0.0) | (ro.equal(x, 0.0) & (ro.reciprocal(x) < 0.0))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(ro, name) for name in ("abs", "cos", "erf", "exp", "floor", "log", "neg", "reciprocal", "relu")},
    **{name: getattr(ro, name) for name in ("atan", "ceil", "cosh", "expm1", "log1p", "sinh", "tan")},
    **{name: getattr(ro, name) for name in ("selu", "sigmoid", "sign", "sin", "sqrt", "tanh")},
    "celu": lambda x, alpha=1.0: ro.elu(x * (1 / alpha)) * alpha,
    "exp2": lambda x: ro.pow(2.0, x),
    "fmax": lambda a, b: ro.where((a >= b) | ~ro.equal(b, b), a, b),  # equal numbers: a gets all of the gradient
    "fmin": lambda a, b: ro.where((a <= b) | ~ro.equal(b, b), a, b),
    "maximum": ro.max,
    "minimum": ro.min,
    "mul": lambda a, b: a & b if isinstance(a, Blob) and a.dtype == "bool" else a * b,
    "rsqrt": lambda x: ro.reciprocal(ro.sqrt(x)),
    "silu": lambda x: x * ro.sigmoid(x),
    "_neg_view": ro.neg,
    "sgn": ro.sign,
    "square": lambda x: x * x,
    "trunc": lambda x: ro.sign(x) * ro.floor(ro.abs(x)),
    "mish": lambda x: x * ro.tanh(ro.softplus(x)),
    "leaky_relu": lambda x, slope=0.01: ro.leaky_relu(x, slope),
    "lerp": lambda a, b, weight: a + (b - a) * weight,
    "hardsigmoid": lambda x: _inside(x, -3.0, 3.0) * (1 / 6) + 0.5,
    "hardswish": lambda x: x * (_inside(x, -3.0, 3.0) * (1 / 6) + 0.5),
    "hardtanh": lambda x, low=-1.0, high=1.0: _inside(x, low, high),
}
RULES.update({name: _of_one_kind(function) for name, function in FUNCTIONS.items()})


@rule("add", "sub", "rsub")
def _add(node: AtenNode, a: Any, b: Any, alpha: Any = 1) -> Blob:
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
def _div(node: AtenNode, a: Any, b: Any, rounding_mode: str | None = None) -> Blob:
    a, b = (node.number_or_blob(value) for value in (a, b))
    quotient: Blob = a / b  # integers are divided towards zero
    if rounding_mode == "floor":
        return _floor_of_quotient(node, node.blob(a), node.blob(b))
    if rounding_mode is None or node.out_kind != "float":
        return quotient
    return ro.sign(quotient) * ro.floor(ro.abs(quotient))


def _floor_of_quotient(node: AtenNode, a: Blob, b: Blob) -> Blob:
    """Computed from the remainder: 1 // 0.1 is 9, while the quotient is rounded to 10."""
    rest = ro.mod(a, b, 1)
    is_below = ~ro.equal(rest, 0) & ro.equal(ro.cast(rest < 0, "int32") + ro.cast(b < 0, "int32"), 1)
    whole = (a - rest) / b - ro.cast(is_below, node.out_kind)
    return whole if node.out_kind != "float" else ro.stop_gradient(ro.where(ro.equal(b, 0), a / b, ro.round(whole)))


@rule("atan2")
def _atan2(node: AtenNode, y: Any, x: Any) -> Blob:
    """The arc tangent of the quotient, plus or minus half a turn where x is below 0. Signs of zeros count."""
    y, x = node.spread(y), node.spread(x)
    still, flat = ro.equal(x, 0.0), ro.equal(y, 0.0)
    quotient = ro.atan(y / ro.where(still, 1.0, x))
    angle = ro.where(still & ~flat, ro.sign(y) * (0.5 * pi), quotient)
    behind = (x < 0.0) | (still & flat & _is_signed(x))
    value = ro.where(behind, angle + ro.where(_is_signed(y), node.blob(-pi), node.blob(pi)), angle)
    square, origin = x * x + y * y, still & flat
    share = ro.where(origin, 0.0, ro.reciprocal(ro.where(origin, 1.0, square)))  # PyTorch's choice at 0, 0
    return ro.with_gradient(_with_slope(value, y, x * share), x, -y * share)


@rule("asin", "acos")
def _arc(node: AtenNode, x: Blob) -> Blob:
    """Twice the arc tangent of half the angle, which is exact near both ends."""
    x = node.blob(x)
    root = ro.sqrt((1.0 - x) * (x + 1.0))
    if node.name == "asin":
        return _with_slope(ro.atan(x / (root + 1.0)) * 2.0, x, ro.reciprocal(root))
    return _with_slope(ro.atan(ro.sqrt((1.0 - x) / (x + 1.0))) * 2.0, x, ro.neg(ro.reciprocal(root)))


@rule("asinh")
def _asinh(node: AtenNode, x: Blob) -> Blob:
    """Avoids overflow of the square: numbers above 1 are divided by, numbers below 1 are multiplied."""
    x = node.blob(x)
    size, below = ro.abs(x), ro.abs(x) < 1.0
    large, small = ro.where(below, 1.0, size), ro.where(below, size, 1.0)
    part, root = ro.reciprocal(large), ro.sqrt(small * small + 1.0)
    far = ro.sqrt(part * part + 1.0)
    value = ro.where(below, ro.log1p(small + small * small / (root + 1.0)), ro.log(large) + ro.log(far + 1.0))
    return _with_slope(ro.sign(x) * value, x, ro.where(below, ro.reciprocal(root), part / far))


@rule("acosh")
def _acosh(node: AtenNode, x: Blob) -> Blob:
    x = node.blob(x)
    root = ro.sqrt(x - 1.0) * ro.sqrt(x + 1.0)
    return _with_slope(ro.log1p(x - 1.0 + root), x, ro.reciprocal(root))


@rule("atanh")
def _atanh(node: AtenNode, x: Blob) -> Blob:
    x = node.blob(x)
    value = (ro.log1p(x) - ro.log1p(ro.neg(x))) * 0.5
    return _with_slope(value, x, ro.reciprocal((1.0 - x) * (x + 1.0)))


def _with_slope(value: Blob, x: Blob, slope: Blob) -> Blob:
    """A value with an explicit derivative, for formulas whose derivative overflows or divides by 0."""
    return ro.with_gradient(ro.stop_gradient(value), x, slope)


def hypotenuse(a: Blob, b: Blob, root: Callable[[Blob], Blob] = ro.sqrt) -> Blob:
    """The length of the vector (a, b): the larger number times a root, so that no square overflows."""
    size = ro.max(ro.abs(a), ro.abs(b))
    scale = ro.stop_gradient(ro.where(ro.equal(size, 0.0) | ro.equal(size, inf), 1.0, size))
    one, other = a / scale, b / scale
    return root(one * one + other * other) * scale


@rule("round")
def _round(node: AtenNode, x: Blob, decimals: int = 0) -> Blob:
    if decimals == 0:
        return ro.round(node.blob(x))
    scale = 10.0 ** abs(decimals)
    return ro.round(x * scale) / scale if decimals > 0 else ro.round(x / scale) * scale


@rule("sinc")
def _sinc(node: AtenNode, x: Blob) -> Blob:
    """`sin(pi x) / (pi x)`, without a division by 0."""
    still, angle = ro.equal(x, 0.0), x * pi
    angle = ro.where(still, 1.0, angle)
    return ro.where(still, 1.0, ro.sin(angle) / angle)


STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
SHIFT = 8.0  # the series is exact to the last bits of float64 from here on


def _in_doubles(function: Callable[[Blob], Blob]) -> Callable[..., Blob]:
    """Makes a rule that computes in float64, as the formula loses digits that float32 does not have.

    Integers become floats.
    """
    return lambda node, x: ro.cast(function(ro.cast(node.blob(x), "float64")), "float")


def _mirrored(x: Blob) -> tuple[Blob, Blob]:
    """A mask of x below 0, and the distance of x from an integer there (0.5 elsewhere)."""
    below = x < 0.0
    return below, ro.where(below, x - ro.round(x), 0.5)


def _shifted(x: Blob) -> tuple[Blob, Blob, Blob, Blob]:
    """A mask of x below SHIFT, x there (1 elsewhere), m = x moved to SHIFT or above, and 1 / m^2."""
    small = x < SHIFT
    far = ro.where(small, x + SHIFT, x)
    return small, ro.where(small, x, 1.0), far, ro.reciprocal(far * far)


def _polynomial(x: Blob, coefficients: Sequence[float]) -> Blob:
    value: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


def _log_gamma(x: Blob) -> Blob:
    """Stirling's series for x moved to SHIFT or above, corrected by the product of the numbers between.

    Mirrored below 0.

    It is infinite at 0, -1, -2, ..., and at minus infinity.
    """
    below, part = _mirrored(x)
    small, near, far, square = _shifted(ro.where(below, 1.0 - x, x))
    product = near + 1.0
    for k in range(2, int(SHIFT)):
        product = product * (near + float(k))
    value = (far - 0.5) * (ro.log(far) - 1.0) + (0.5 * log(2 * pi) - 0.5) + _polynomial(square, STIRLING) / far
    value = ro.where(small, value - ro.log(product) - ro.log(near), value)
    value = ro.where(below, log(pi) - ro.log(ro.abs(ro.sin(part * pi))) - value, value)
    return ro.where(ro.equal(x, -inf), inf, value)


def _digamma(x: Blob) -> Blob:
    """The derivative of `_log_gamma`. It is infinite at 0 and -0, with different signs, and NaN at -1, -2, ..."""
    below, part = _mirrored(x)
    small, near, far, square = _shifted(ro.where(below, 1.0 - x, x))
    between = ro.reciprocal(near)
    for k in range(1, int(SHIFT)):
        between = between + ro.reciprocal(near + float(k))
    series = _polynomial(square, [(2 * k + 1) * c for k, c in enumerate(STIRLING)]) * square
    value = ro.log(far) - 0.5 / far - series
    value = ro.where(small, value - between, value)
    turned = ro.where(ro.equal(part, 0.0), nan, ro.cos(part * pi) / ro.sin(part * pi))
    return ro.where(below, value - pi * turned, value)


RULES.update({"lgamma": _in_doubles(_log_gamma), "digamma": _in_doubles(_digamma)})


@rule("copysign")
def _copysign(node: AtenNode, x: Any, sign: Any) -> Blob:
    size = ro.abs(node.blob(x))
    return ro.where(_is_signed(node.blob(sign)), ro.neg(size), size)


RULES.update(
    {
        "addcmul": lambda node, x, a, b, value=1: x + (a * b if value == 1 else a * b * value),
        "addcdiv": lambda node, x, a, b, value=1: x + (a / b if value == 1 else a / b * value),
        "fmod": lambda node, a, b: ro.mod(node.blob(a), node.blob(b), 1),
        "gelu": lambda node, x, approximate="none": ro.gelu(x, approximate),
        "hypot": lambda node, a, b: hypotenuse(node.spread(a), node.spread(b)),
        "isinf": lambda node, x: ro.equal(ro.abs(x), inf),
        "isnan": lambda node, x: ~ro.equal(x, x),
        "log_sigmoid_forward": lambda node, x: (ro.neg(ro.softplus(ro.neg(x))), None),
        "log2": lambda node, x: ro.log(node.blob(x)) * (1 / log(2.0)),
        "log10": lambda node, x: ro.log(node.blob(x)) * (1 / log(10.0)),
        "masked_fill": lambda node, x, mask, value: ro.where(mask, node.blob(value), x),
        "pow": lambda node, a, b: ro.pow(node.blob(a), node.number_or_blob(b)),
        "remainder": lambda node, a, b: ro.mod(node.blob(a), node.blob(b)),
        "signbit": lambda node, x: _is_signed(x),
        "where": lambda node, condition, a, b: ro.where(condition, node.blob(a), node.blob(b)),
    }
)


COMPARISONS: dict[str, Callable[..., Blob]] = {
    "gt": ro.greater, "ge": ro.greater_or_equal, "lt": ro.less, "le": ro.less_or_equal, "eq": ro.equal,
    "ne": lambda a, b: ~ro.equal(a, b),
}  # fmt: skip


@rule(*COMPARISONS)
def _compare(node: AtenNode, a: Any, b: Any) -> Blob:
    kind = node.kind(torch.result_type(node.operand(0), node.operand(1)))
    if kind == "bool":  # ONNX does not compare bools by order
        kind = "int32"
    return COMPARISONS[node.name](node.blob(a, kind), node.blob(b, kind))


BITS: dict[str, Callable[..., Blob]] = {
    "not": lambda a: ~a, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: (a | b) & ~(a & b),
}  # fmt: skip


@rule(*(f"{kind}_{name}" for kind in ("logical", "bitwise") for name in BITS))
def _bits(node: AtenNode, *values: Any) -> Blob:
    """Logical ops take any numbers and ask only if they are 0.

    Bit ops take bools only: bits of integers are not translated.
    """
    kinds = [value.dtype if isinstance(value, Blob) else "bool" for value in values]
    kind, _, name = node.name.partition("_")
    if kind == "bitwise" and set(kinds) != {"bool"}:
        node.fail("bits of integers are not translated", wanted="bools", came=", ".join(kinds))
    return BITS[name](*(node.blob(value, "bool") for value in values))


@rule("clamp", "clamp_min", "clamp_max")
def _clamp(node: AtenNode, x: Blob, first: Any = None, second: Any = None, **bounds: Any) -> Blob:
    low, high = bounds.get("min", first), bounds.get("max", second)
    if node.name == "clamp_max":
        low, high = None, first
    if not isinstance(low, Blob) and not isinstance(high, Blob):
        return ro.clip(node.blob(x), low, high)
    x = node.blob(x)
    for bound, passes in ((low, ro.less), (high, ro.greater)):
        if bound is not None:
            bound = node.blob(bound)
            x = ro.where(passes(x, bound) | ~ro.equal(bound, bound), bound, x)  # NaN bounds give NaN, as in PyTorch
    return x


@rule("elu")
def _elu(node: AtenNode, x: Blob, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Blob:
    node.known("input_scale", input_scale, 1.0)  # only celu sets it, and celu has a rule of its own
    y = ro.elu(x, alpha)
    return y if scale == 1 else y * scale


@rule("softplus")
def _softplus(node: AtenNode, x: Blob, beta: float = 1.0, threshold: float = 20.0) -> Blob:
    """Above the threshold PyTorch returns x itself. From 20 on, the function differs from x by less than e^-20."""
    y = ro.softplus(x) if beta == 1 else ro.softplus(x * beta) * (1 / beta)
    return y if threshold >= 20 else ro.where(x * beta > threshold, x, y)


MOST_FACTORS, IN_ORDER = 64, 16  # most factors of a product; up to this number a cumulative product goes in order


def _axes(dim: Any) -> list[int] | None:
    """`dim` as a list. None, and `[]`, mean all axes, as in PyTorch."""
    return [dim] if isinstance(dim, int) else list(dim) if dim else None


def _reduction(function: Callable[..., Blob]) -> Callable[..., Blob]:
    def translate(node: AtenNode, x: Blob, dim: Any = None, keepdim: bool = False, **_: Any) -> Blob:
        x = node.blob(x)
        return function(x, _axes(dim), keepdims=int(keepdim)) if node.shape_of(0) else x

    return translate


RULES.update({
    "sum": _reduction(ro.reduce_sum),
    "mean": _reduction(ro.reduce_mean),
    "amax": _reduction(ro.reduce_max),
    "amin": _reduction(ro.reduce_min),
    "logsumexp": _reduction(ro.reduce_log_sum_exp),
})  # fmt: skip


@rule("any", "all")
def _any(node: AtenNode, x: Blob, dim: Any = None, keepdim: bool = False) -> Blob:
    """any and all: the largest or the smallest of the numbers 0 and 1."""
    holds = node.blob(x, "bool") if x.dtype == "bool" else ~ro.equal(x, node.blob(0, x.dtype))
    if not node.shape_of(0):
        return holds
    reduce = ro.reduce_max if node.name == "any" else ro.reduce_min
    return ro.greater(reduce(ro.cast(holds, "int32"), _axes(dim), keepdims=int(keepdim)), node.blob(0, "int32"))


@rule("prod")
def _prod(node: AtenNode, x: Blob, dim: int | None = None, keepdim: bool = False, **_: Any) -> Blob:
    """Multiplies one factor after another, so that gradients are right where factors are 0."""
    x = node.blob(x) if dim is not None else ro.reshape(node.blob(x), [-1])
    axis, count = (0, prod(node.shape_of(0))) if dim is None else (dim, node.shape_of(0)[dim])
    if not 0 < count <= MOST_FACTORS:
        node.fail("a product has no factor or too many", wanted=f"1 to {MOST_FACTORS}", came=count)
    total, *others = ro.split(x, [1] * count, axis=axis) if count > 1 else (x,)
    for factor in others:
        total = total * factor
    return total if keepdim else ro.squeeze(total, [axis])


@rule("var", "var_mean")
def _var(node: AtenNode, x: Blob, dim: Any = None, correction: Any = 1, keepdim: bool = False, **_: Any) -> Any:
    shape = node.shape_of(0)
    axes = _axes(dim) or list(range(len(shape)))
    count = prod(shape[axis] for axis in axes) - (1 if correction is None else correction)
    if count <= 0:
        node.fail("a variance of too few elements", came=f"{count} degrees of freedom")
    mean = ro.reduce_mean(x, axes)
    difference = x - mean
    var = ro.reduce_sum(difference * difference, axes, keepdims=int(keepdim)) * (1.0 / count)
    return (var, mean if keepdim else ro.squeeze(mean, axes)) if node.name == "var_mean" else var


RULES["std"] = lambda node, *given, **options: root_of(_var(node, *given, **options))


def root_of(square: Blob) -> Blob:
    """A square root whose gradient is 0 at 0, as PyTorch has it for deviations and norms."""
    none = ro.equal(square, 0.0)
    return ro.where(none, 0.0, ro.sqrt(ro.where(none, 1.0, square)))


@rule("linalg_vector_norm")
def _norm(node: AtenNode, x: Blob, order: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Blob:
    axes, keep = _axes(dim), int(keepdim)
    if order == 2:
        return root_of(ro.reduce_sum_square(x, axes, keepdims=keep))
    node.known("order of a norm", order, 1, 2, inf)
    return (
        ro.reduce_sum(ro.abs(x), axes, keepdims=keep) if order == 1 else ro.reduce_max(ro.abs(x), axes, keepdims=keep)
    )


@rule("_cdist_forward", "_pdist_forward")
def _distances(node: AtenNode, x: Blob, *more: Any) -> Blob:
    """Distances between each row of one matrix and each row of another, or between each two rows of one matrix."""
    order = more[1] if node.name == "_cdist_forward" else more[0] if more else 2
    node.known("order of a distance", order, 1, 2)
    if node.name == "_cdist_forward":
        return _norm(node, ro.unsqueeze(x, [-2]) - ro.unsqueeze(more[0], [-3]), order, -1)
    pairs = [node.net.constant(index, "int64") for index in np.triu_indices(node.shape_of(0)[0], 1)]
    return _norm(node, ro.gather(x, pairs[0]) - ro.gather(x, pairs[1]), order, -1)


@rule("_safe_softmax")
def _safe_softmax(node: AtenNode, x: Blob, dim: int, *_: Any) -> Blob:
    """Softmax that gives 0, without a gradient, where a mask leaves no element."""
    none = ro.equal(ro.reduce_max(x, [dim]), -inf)
    return ro.where(none, 0.0, ro.softmax(ro.where(none, 0.0, x), dim))


def _normalized(
    node: AtenNode, x: Blob, sizes: Sequence[int], scale: Blob | None, bias: Blob | None, epsilon: float
) -> Blob:
    ones = node.full(1.0, sizes, "float") if scale is None else scale
    return ro.layer_normalization(x, ones, bias, -len(sizes), float(epsilon))


RULES.update(
    {
        "_softmax": lambda node, x, dim, half_to_float: ro.softmax(x, dim),
        "_log_softmax": lambda node, x, dim, half_to_float: ro.log_softmax(x, dim),
        "native_layer_norm": lambda node, *given: (_normalized(node, *given), None, None),
    }
)


@rule("native_group_norm")
def _group_norm(
    node: AtenNode, x: Blob, scale: Blob | None,
    bias: Blob | None, N: int, C: int, area: int, groups: int, epsilon: float,
) -> tuple[Blob, None, None]:  # fmt: skip
    shape, width = node.shape_of(0), C // groups * area
    y = _normalized(node, ro.reshape(x, [N, groups, width], allowzero=1), [width], None, None, epsilon)
    return _scaled(ro.reshape(y, shape, allowzero=1), scale, bias, [C, *[1] * (len(shape) - 2)]), None, None


@rule("_native_batch_norm_legit_no_training")
def _batch_norm(
    node: AtenNode, x: Blob, scale: Blob | None,
    bias: Blob | None, mean: Blob, var: Blob, momentum: float, epsilon: float,
) -> tuple[Blob, None, None]:  # fmt: skip
    at = [node.shape_of(0)[1], *[1] * (len(node.shape_of(0)) - 2)]
    y = (x - ro.reshape(mean, at)) * ro.reciprocal(ro.sqrt(ro.reshape(var, at) + epsilon))
    return _scaled(y, scale, bias, at), None, None


@rule("_native_batch_norm_legit_functional", "_native_batch_norm_legit")
def _batch_norm_in_training(node: AtenNode, x: Blob, scale: Blob | None, bias: Blob | None, *rest: Any) -> Any:
    """Uses the batch's own statistics if there are no running ones, as in instance normalization."""
    if not isinstance(rest[0], bool):
        node.fail(
            "BatchNorm in training changes its running statistics at every step",
            hint="Call .eval() on it, or use LayerNorm in a recurrent cell.",
        )
    shape = node.shape_of(0)
    axes = [0, *range(2, len(shape))]
    difference = x - ro.reduce_mean(x, axes)
    var = ro.reduce_mean(difference * difference, axes)
    y = difference * ro.reciprocal(ro.sqrt(var + rest[2]))
    return _scaled(y, scale, bias, [shape[1], *[1] * (len(shape) - 2)]), None, None


def _scaled(y: Blob, scale: Blob | None, bias: Blob | None, shape: Sequence[int]) -> Blob:
    y = y if scale is None else y * ro.reshape(scale, shape)
    return y if bias is None else y + ro.reshape(bias, shape)


@rule("cumsum")
def _cumsum(node: AtenNode, x: Blob, dim: int, **_: Any) -> Blob:
    return ro.cumsum(node.blob(x), dim) if node.shape_of(0) else node.blob(x)


@rule("cumprod")
def _cumprod(node: AtenNode, x: Blob, dim: int, **_: Any) -> Blob:
    """Multiplies few factors in their order. Products in pairs could overflow where a 0 comes first."""
    shape, x = node.shape_of(0), node.blob(x)
    if not shape or shape[dim] <= 1:
        return x
    if shape[dim] > IN_ORDER:
        return ro.cumprod(x, dim)
    return ro.concat([*accumulate(ro.split(x, [1] * shape[dim], axis=dim), mul)], dim)
