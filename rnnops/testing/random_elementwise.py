"""Makers of random elementwise ops. A maker appends ops to a builder's net and adds what comes out to its operands.

Arguments are guarded so that values and slopes stay moderate: exp of tanh, log of softplus, division by 1 + x^2.
"""

from __future__ import annotations

from collections.abc import Callable

from rnnops import ops
from rnnops.blob import Blob
from rnnops.testing.random_builder import Builder, Item

Bound = Callable[[float], float]
Maker = Callable[[Builder], None]


def _same(bound: float) -> float:
    return bound


def _one(bound: float) -> float:
    return 1.0


def _more(bound: float) -> float:
    return bound + 1.0


def _square_by_its_slope(x: Blob) -> Blob:
    """A square whose gradient is given, which is the one it has."""
    return ops.with_gradient(ops.stop_gradient(x * x), x, ops.stop_gradient(2.0 * x)) * 0.5


UNARY: tuple[tuple[Callable[[Blob], Blob], Bound], ...] = (
    (ops.neg, _same),
    (ops.abs, _same),
    (ops.identity, _same),
    (ops.relu, _same),
    (ops.elu, _same),
    (ops.gelu, _same),
    (ops.sigmoid, _one),
    (ops.tanh, _one),
    (ops.softsign, _one),
    (ops.hard_sigmoid, _one),
    (ops.erf, _one),
    (ops.sin, _one),
    (ops.cos, _one),
    (ops.softplus, _more),
    (ops.selu, lambda bound: 1.1 * bound + 1.8),
    (lambda x: ops.leaky_relu(x, alpha=0.3), _same),
    (lambda x: ops.elu(x, alpha=0.4), _same),
    (lambda x: ops.gelu(x, approximate="tanh"), _same),
    (lambda x: ops.hard_sigmoid(x, alpha=0.3, beta=0.4), _one),
    (lambda x: ops.exp(ops.tanh(x)), lambda bound: 2.8),
    (lambda x: ops.log(ops.softplus(x) + 0.4), _more),
    (lambda x: ops.sqrt(x * x + 0.3), _more),
    (lambda x: ops.reciprocal(x * x + 1.0), _one),
    (lambda x: x * 0.5 + ops.sign(x) * 0.2, _same),
    (lambda x: ops.floor(x) * 0.4 + x * 0.3, _more),
    (lambda x: ops.ceil(x) * 0.4 - x * 0.3, _more),
    (lambda x: ops.round(x * 1.7) * 0.2 + x * 0.5, _more),
    (lambda x: ops.atan(x * 2.0), lambda bound: 1.6),
    (lambda x: x * ops.random_uniform_like(x), _same),
    (lambda x: ops.log1p(ops.softplus(x)), _more),
    (lambda x: ops.expm1(ops.tanh(x)), lambda bound: 1.8),
    (lambda x: ops.sinh(ops.sin(x)), lambda bound: 1.2),
    (lambda x: ops.cosh(ops.softsign(x)), lambda bound: 1.6),
    (lambda x: ops.tan(ops.erf(x)), lambda bound: 1.6),
    (lambda x: _square_by_its_slope(ops.tanh(x)), _one),
    (lambda x: ops.clip(x, -0.7, 0.9), _one),
    (lambda x: ops.clip(x, min=-0.4), _same),
    (lambda x: ops.clip(x, max=0.6), _same),
    (lambda x: 2.0**x * 0.3, lambda bound: 2.5),
    (lambda x: ops.cast(ops.cast(x, "float"), "float"), _same),
)
BINARY: tuple[tuple[Callable[[Blob, Blob], Blob], Callable[[float, float], float]], ...] = (
    (ops.add, lambda a, b: a + b),
    (ops.sub, lambda a, b: a + b),
    (ops.mul, lambda a, b: a * b),
    (lambda a, b: a / (b * b + 1.0), lambda a, b: a),
    (lambda a, b: a * 0.6 + b * 0.4, max),
    (lambda a, b: (ops.softplus(a) + 0.3) ** ops.tanh(b), lambda a, b: a + 3.5),
    (lambda a, b: ops.mod(a, ops.exp(ops.tanh(b))) * 0.3 + a * 0.2, lambda a, b: a + 1.0),
    (ops.max, max),
    (ops.min, max),
    (ops.mean, max),
    (ops.sum, lambda a, b: a + b),
    (lambda a, b: ops.sum(a, b, a), lambda a, b: 2 * a + b),
    (lambda a, b: ops.max(a, b, 0.2), max),
    (lambda a, b: ops.min(a, 0.3, b), max),
    (lambda a, b: ops.mean(a, b, b, 1.0), max),
)
INTEGER: tuple[Callable[[Blob], Blob], ...] = (
    lambda i: i + 1,
    lambda i: i * 2 - 3,
    lambda i: i / 2,
    lambda i: ops.mod(i, 3),
    ops.abs,
    ops.neg,
    ops.sign,
    lambda i: ops.max(i, 1),
    lambda i: ops.clip(i, 0, 2),
)
LOGIC: tuple[Callable[[Blob, Blob], Blob], ...] = (ops.and_, ops.or_, ops.equal, lambda a, b: ops.not_(a))
COMPARISONS = (ops.greater, ops.greater_or_equal, ops.less, ops.less_or_equal)


def unary(builder: Builder) -> None:
    item = builder.operand()
    function, bound = builder.draw.pick(UNARY)
    builder.add(function(item.blob), bound(item.bound))


def binary(builder: Builder) -> None:
    first = builder.operand()
    second = builder.partner(first.shape)
    pair = (first, second) if builder.draw.chance(0.5) else (second, first)
    function, bound = builder.draw.pick(BINARY)
    builder.add(function(pair[0].blob, pair[1].blob), bound(pair[0].bound, pair[1].bound))


def scaled(builder: Builder) -> None:
    """With a parameter that broadcasts, or with numbers."""
    item = builder.operand()
    shape = item.shape[builder.draw.integer(0, item.rank) :]
    if builder.draw.chance(0.3):
        builder.add(item.blob * builder.draw.array(shape).round(3) + builder.draw.number(), item.bound + 1.0)
    elif builder.draw.chance(0.5):
        builder.add(item.blob + builder.parameter(shape).blob, item.bound + 1.0)
    else:
        builder.add(item.blob * builder.parameter(shape).blob, item.bound)


def compared(builder: Builder) -> None:
    item = builder.operand()
    compare = builder.draw.pick(COMPARISONS)
    with_number = builder.draw.chance(0.4)
    builder.add(compare(item.blob, builder.draw.number() if with_number else builder.partner(item.shape).blob), 1.0)


def truncated(builder: Builder) -> None:
    """A float as an integer: what follows has no gradient."""
    item = builder.operand()
    builder.add(ops.cast(item.blob * 2.0, builder.draw.pick(["int32", "int64"])), 2.0 * item.bound)


def counted(builder: Builder) -> None:
    """Integer arithmetic."""
    if not builder.integers:
        return truncated(builder)
    item = builder.choose(builder.integers)
    function = builder.draw.pick(INTEGER)
    builder.add(function(item.blob), 2 * item.bound + 3)
    return None


def decided(builder: Builder) -> None:
    """Logic, and comparisons of integers; then a choice, most likely by them."""
    if builder.integers and builder.draw.chance(0.4):
        item = builder.choose(builder.integers)
        compare = builder.draw.pick([ops.equal, *COMPARISONS])
        builder.add(compare(item.blob, builder.draw.integer(0, 2)), 1.0)
    else:
        if not builder.bools:
            compared(builder)
        item = builder.choose(builder.bools)
        other = builder.draw.pick([i for i in builder.bools if i.shape == item.shape])
        builder.add(builder.draw.pick(LOGIC)(item.blob, other.blob), 1.0)
    chosen(builder)


def chosen(builder: Builder) -> None:
    """Where, on a bool operand that broadcasts or on a comparison made for it."""
    item = builder.operand()
    other = builder.partner(item.shape).blob if builder.draw.chance(0.7) else builder.draw.number()
    fitting = [i for i in builder.bools if _is_suffix(i, item)]
    if fitting and builder.draw.chance(0.6):
        condition = builder.choose(fitting).blob
    else:
        condition = ops.less(item.blob, builder.draw.number())
    pair = (item.blob, other) if builder.draw.chance(0.5) else (other, item.blob)
    builder.add(ops.where(condition, *pair), max(item.bound, 3.0))


def as_float(builder: Builder) -> None:
    """An integer or bool operand among floats."""
    items = [*builder.integers, *builder.bools]
    if not items:
        return compared(builder)
    item = builder.choose(items)
    weight = round(1.0 / max(item.bound, 1.0), 3)
    blob = ops.cast(item.blob, "float") * weight
    partner = builder.partner(item.shape)
    builder.add(blob * partner.blob if builder.draw.chance(0.6) else blob + partner.blob, partner.bound + 1.0)
    return None


def clipped(builder: Builder) -> None:
    """Clip with bounds that are blobs."""
    item, bounds = builder.operand(), builder.operand()
    low = ops.reduce_mean(bounds.blob, keepdims=0) - 0.6
    high = builder.parameter(()).blob + 0.7 if builder.draw.chance(0.5) else None
    builder.add(ops.clip(item.blob, low, high), max(item.bound, bounds.bound) + 0.6)


def dropped(builder: Builder) -> None:
    item = builder.operand()
    builder.add(ops.dropout(item.blob, builder.draw.pick([0.0, 0.25, 0.5])), 2.0 * item.bound)


def constant(builder: Builder) -> None:
    """Numbers made from a shape."""
    item = builder.operand()
    if builder.draw.chance(0.5):
        filled = ops.constant_of_shape(builder.net, ops.shape(item.blob), builder.draw.number())
        builder.add(filled - item.blob, item.bound + 1.0)
    else:
        count = ops.squeeze(ops.shape(item.blob, start=-1), [0]) if item.rank else 1
        places = ops.cast(ops.range(0, count, 1, net=builder.net), "float")
        builder.add(item.blob * (places * 0.3 - 0.5), 2.0 * item.bound)


def _is_suffix(small: Item, big: Item) -> bool:
    pairs = zip(small.shape[::-1], big.shape[::-1], strict=False)
    return small.rank <= big.rank and all(a in (1, b) for a, b in pairs)
