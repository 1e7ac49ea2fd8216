"""Makers of random ops: elementwise, structural, windows.

A maker appends ops to a builder's net and adds their results to its operands. Arguments of ops are such that values and
slopes stay moderate: exp of tanh, log of softplus, division by 1 + x^2.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, prod
from typing import Any

import rnnops as ro
from rnnops.net.blob import Blob
from rnnops.testing.random_builder import LARGEST, Builder, Draw, Item, fit

Bound = Callable[[float], float]
Maker = Callable[[Builder], None]


def _same(bound: float) -> float:
    return bound


def _one(bound: float) -> float:
    return 1.0


def _more(bound: float) -> float:
    return bound + 1.0


def _square_by_its_slope(x: Blob) -> Blob:
    """A square with a gradient that is given explicitly, and is right."""
    return ro.with_gradient(ro.stop_gradient(x * x), x, ro.stop_gradient(2.0 * x)) * 0.5


UNARY: tuple[tuple[Callable[[Blob], Blob], Bound], ...] = (
    *((function, _same) for function in (ro.neg, ro.abs, ro.identity, ro.relu, ro.elu, ro.gelu)),
    *((function, _one) for function in (ro.sigmoid, ro.tanh, ro.softsign, ro.hard_sigmoid, ro.erf, ro.sin, ro.cos)),
    (ro.softplus, _more),
    (ro.selu, lambda bound: 1.1 * bound + 1.8),
    (lambda x: ro.leaky_relu(x, alpha=0.3), _same),
    (lambda x: ro.elu(x, alpha=0.4), _same),
    (lambda x: ro.gelu(x, approximate="tanh"), _same),
    (lambda x: ro.hard_sigmoid(x, alpha=0.3, beta=0.4), _one),
    (lambda x: ro.exp(ro.tanh(x)), lambda bound: 2.8),
    (lambda x: ro.log(ro.softplus(x) + 0.4), _more),
    (lambda x: ro.sqrt(x * x + 0.3), _more),
    (lambda x: ro.reciprocal(x * x + 1.0), _one),
    (lambda x: x * 0.5 + ro.sign(x) * 0.2, _same),
    (lambda x: ro.floor(x) * 0.4 + x * 0.3, _more),
    (lambda x: ro.ceil(x) * 0.4 - x * 0.3, _more),
    (lambda x: ro.round(x * 1.7) * 0.2 + x * 0.5, _more),
    (lambda x: ro.atan(x * 2.0), lambda bound: 1.6),
    (lambda x: x * ro.random_uniform_like(x), _same),
    (lambda x: ro.log1p(ro.softplus(x)), _more),
    (lambda x: ro.expm1(ro.tanh(x)), lambda bound: 1.8),
    (lambda x: ro.sinh(ro.sin(x)), lambda bound: 1.2),
    (lambda x: ro.cosh(ro.softsign(x)), lambda bound: 1.6),
    (lambda x: ro.tan(ro.erf(x)), lambda bound: 1.6),
    (lambda x: _square_by_its_slope(ro.tanh(x)), _one),
    (lambda x: ro.clip(x, -0.7, 0.9), _one),
    (lambda x: ro.clip(x, min=-0.4), _same),
    (lambda x: ro.clip(x, max=0.6), _same),
    (lambda x: 2.0**x * 0.3, lambda bound: 2.5),
    (lambda x: ro.cast(ro.cast(x, "float"), "float"), _same),
)
BINARY: tuple[tuple[Callable[[Blob, Blob], Blob], Callable[[float, float], float]], ...] = (
    (ro.add, lambda a, b: a + b),
    (ro.sub, lambda a, b: a + b),
    (ro.mul, lambda a, b: a * b),
    (lambda a, b: a / (b * b + 1.0), lambda a, b: a),
    (lambda a, b: a * 0.6 + b * 0.4, max),
    (lambda a, b: (ro.softplus(a) + 0.3) ** ro.tanh(b), lambda a, b: a + 3.5),
    (lambda a, b: ro.mod(a, ro.exp(ro.tanh(b))) * 0.3 + a * 0.2, lambda a, b: a + 1.0),
    (ro.max, max),
    (ro.min, max),
    (ro.mean, max),
    (ro.sum, lambda a, b: a + b),
    (lambda a, b: ro.sum(a, b, a), lambda a, b: 2 * a + b),
    (lambda a, b: ro.max(a, b, 0.2), max),
    (lambda a, b: ro.min(a, 0.3, b), max),
    (lambda a, b: ro.mean(a, b, b, 1.0), max),
)
INTEGER: tuple[Callable[[Blob], Blob], ...] = (
    lambda i: i + 1,
    lambda i: i * 2 - 3,
    lambda i: i / 2,
    lambda i: ro.mod(i, 3),
    ro.abs,
    ro.neg,
    ro.sign,
    lambda i: ro.max(i, 1),
    lambda i: ro.clip(i, 0, 2),
)
LOGIC: tuple[Callable[[Blob, Blob], Blob], ...] = (ro.and_, ro.or_, ro.equal, lambda a, b: ro.not_(a))
COMPARISONS = (ro.greater, ro.greater_or_equal, ro.less, ro.less_or_equal)


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
    """A float as an integer, so that later results have no gradient."""
    item = builder.operand()
    builder.add(ro.cast(item.blob * 2.0, builder.draw.pick(["int32", "int64"])), 2.0 * item.bound)


def counted(builder: Builder) -> None:
    """Integer arithmetic."""
    if not builder.integers:
        return truncated(builder)
    item = builder.choose(builder.integers)
    function = builder.draw.pick(INTEGER)
    builder.add(function(item.blob), 2 * item.bound + 3)


def decided(builder: Builder) -> None:
    """Logic, and comparisons of integers; then a choice, most likely by them."""
    if builder.integers and builder.draw.chance(0.4):
        item = builder.choose(builder.integers)
        compare = builder.draw.pick([ro.equal, *COMPARISONS])
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
        condition = ro.less(item.blob, builder.draw.number())
    pair = (item.blob, other) if builder.draw.chance(0.5) else (other, item.blob)
    builder.add(ro.where(condition, *pair), max(item.bound, 3.0))


def as_float(builder: Builder) -> None:
    """An integer or bool operand among floats."""
    items = [*builder.integers, *builder.bools]
    if not items:
        return compared(builder)
    item = builder.choose(items)
    weight = round(1.0 / max(item.bound, 1.0), 3)
    blob = ro.cast(item.blob, "float") * weight
    partner = builder.partner(item.shape)
    builder.add(blob * partner.blob if builder.draw.chance(0.6) else blob + partner.blob, partner.bound + 1.0)


def clipped(builder: Builder) -> None:
    """Clip with bounds that are blobs."""
    item, bounds = builder.operand(), builder.operand()
    low = ro.reduce_mean(bounds.blob, keepdims=0) - 0.6
    high = builder.parameter(()).blob + 0.7 if builder.draw.chance(0.5) else None
    builder.add(ro.clip(item.blob, low, high), max(item.bound, bounds.bound) + 0.6)


def dropped(builder: Builder) -> None:
    item = builder.operand()
    builder.add(ro.dropout(item.blob, builder.draw.pick([0.0, 0.25, 0.5])), 2.0 * item.bound)


def constant(builder: Builder) -> None:
    """Numbers made from a shape."""
    item = builder.operand()
    if builder.draw.chance(0.5):
        filled = ro.constant_of_shape(builder.net, ro.shape(item.blob), builder.draw.number())
        builder.add(filled - item.blob, item.bound + 1.0)
    else:
        count = ro.squeeze(ro.shape(item.blob, start=-1), [0]) if item.rank else 1
        places = ro.cast(ro.range(0, count, 1, net=builder.net), "float")
        builder.add(item.blob * (places * 0.3 - 0.5), 2.0 * item.bound)


def _is_suffix(small: Item, big: Item) -> bool:
    pairs = zip(small.shape[::-1], big.shape[::-1], strict=False)
    return small.rank <= big.rank and all(a in (1, b) for a, b in pairs)


def split(builder: Builder) -> None:
    """Pieces along an axis; some of them may stay unused."""
    item = builder.of_rank(1)
    axis, draw = builder.axis(item), builder.draw
    size = item.shape[axis]
    first = draw.integer(0, size)
    pieces = ro.split(item.blob, [first, size - first] if draw.chance(0.5) else min(2, size), axis=axis)
    for piece in pieces:
        if prod(builder.shape(piece)) and draw.chance(0.7):
            builder.add(piece, item.bound)


def concat(builder: Builder) -> None:
    item = builder.of_rank(1)
    axis = builder.axis(item)
    if prod(item.shape) * 2 > LARGEST:
        return split(builder)
    other = builder.operand(lambda other: other.shape == item.shape)
    blob = other.blob if other.shape == item.shape else fit(builder, other, item.shape)
    builder.add(ro.concat([item.blob, blob], axis=axis), max(item.bound, other.bound))


def sliced(builder: Builder) -> None:
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    size = item.shape[axis]
    forward = draw.chance(0.6)
    start = draw.integer(0, size - 1)
    ends, step = (99, draw.integer(1, 2)) if forward else (-99, -draw.integer(1, 2))
    builder.add(ro.slice(item.blob, [start - (size if draw.chance(0.5) else 0)], [ends], [axis], [step]), item.bound)


def reshaped(builder: Builder) -> None:
    item, draw = builder.operand(), builder.draw
    count = prod(item.shape)
    rows = draw.pick([k for k in range(1, count + 1) if count % k == 0])
    functions: list[Callable[[Blob], Blob]] = [
        lambda x: ro.reshape(x, [rows, -1]),
        lambda x: ro.reshape(x, [-1]),
        ro.squeeze,
        ro.transpose,
        lambda x: ro.unsqueeze(x, [draw.pick([0, -1])]),
        lambda x: ro.flatten(x, axis=draw.integer(0, item.rank)),
    ]
    builder.add(draw.pick(functions)(item.blob), item.bound)


def transposed(builder: Builder) -> None:
    item, perm = builder.of_rank(2), list[int]()
    while len(perm) < item.rank:
        perm.append(builder.draw.pick([axis for axis in range(item.rank) if axis not in perm]))
    builder.add(ro.transpose(item.blob, perm=perm), item.bound)


def widened(builder: Builder) -> None:
    """Copies: tile, expand, pad."""
    item, draw = builder.of_rank(1), builder.draw
    if prod(item.shape) * 2 > LARGEST:
        return sliced(builder)
    axis = draw.integer(0, item.rank - 1)
    choice = draw.integer(0, 3)
    if choice == 0:
        builder.add(ro.tile(item.blob, [2 if k == axis else 1 for k in range(item.rank)]), item.bound)
    elif choice == 1:
        builder.add(ro.expand(item.blob, [2, *(1,) * item.rank]), item.bound)
    elif choice == 2:
        other = builder.operand(lambda i: i.rank <= item.rank and i.shape == item.shape[item.rank - i.rank :])
        small = other if other.shape == item.shape[item.rank - other.rank :] else item
        builder.add(ro.expand(small.blob, ro.shape(item.blob)), small.bound)
    else:
        mode = draw.pick(["constant", "edge", "reflect", "wrap"])
        pads = [draw.integer(0, 1), draw.integer(-1, 1) if item.shape[axis] > 1 else 1]
        value = builder.parameter(()).blob if draw.chance(0.3) else draw.number()
        builder.add(ro.pad(item.blob, pads, value, mode=mode, axes=[axis]), max(item.bound, 1.0))


def gathered(builder: Builder) -> None:
    """A look-up by constant indices, or by an integer operand brought into range."""
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    size = item.shape[axis]
    indices = [i for i in builder.integers if prod(i.shape) * prod(item.shape) // size <= LARGEST]
    if indices and draw.chance(0.6):
        place = ro.clip(builder.choose(indices).blob, -size, size - 1)
        builder.add(ro.gather(item.blob, place, axis=axis), item.bound)
    else:
        chosen = [draw.integer(-size, size - 1) for _ in range(draw.integer(1, 2))]
        builder.add(ro.gather(item.blob, chosen if draw.chance(0.8) else chosen[0], axis=axis), item.bound)


def scattered(builder: Builder) -> None:
    """Elements put among others, by constant indices or by an integer operand brought into range."""
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    size, reduction = item.shape[axis], draw.pick(["none", "add", "mul", "max", "min"])
    bound = item.bound * max(item.bound, 1.0) if reduction == "mul" else 2.0 * item.bound
    fitting = [i for i in builder.integers if i.shape == item.shape]
    if fitting and draw.chance(0.6):
        place = ro.clip(builder.choose(fitting).blob, -size, size - 1)
        place = place if place.dtype == "int64" else ro.cast(place, "int64")
    else:  # a permutation of the axis
        turn = [(k + draw.integer(0, 1)) % size for k in range(size)]
        along = [size if k == axis % item.rank else 1 for k in range(item.rank)]
        place = ro.expand(ro.reshape(builder.net.constant(turn, "int64"), along), list(item.shape))
    if draw.chance(0.6):
        blob = ro.scatter_elements(item.blob, place, ro.tanh(item.blob) * 0.9, axis, reduction)
    else:
        rows = builder.net.constant([[draw.integer(0, item.shape[0] - 1)] for _ in range(2)], "int64")
        updates = ro.gather(ro.sin(item.blob), [0, -1])
        blob = ro.scatter_nd(item.blob, rows, updates, reduction)
    builder.add(blob, max(bound * max(item.bound, 1.0), 1.0))


REDUCTIONS: tuple[tuple[Callable[..., Blob], Callable[[float, int], float]], ...] = (
    (ro.reduce_sum, lambda bound, count: bound * count),
    (ro.reduce_mean, lambda bound, count: bound),
    (ro.reduce_max, lambda bound, count: bound),
    (ro.reduce_min, lambda bound, count: bound),
    (ro.reduce_sum_square, lambda bound, count: bound * bound * count),
    (ro.reduce_log_sum_exp, lambda bound, count: bound + log(count)),
    (ro.reduce_prod, lambda bound, count: max(bound, 1.0) ** count),
)
STEEP = 1e3  # the slope of a larger product is too steep for differences


def reduced(builder: Builder) -> None:
    item, draw = builder.of_rank(1), builder.draw
    axes = draw.subset(range(item.rank), 0.5) or [builder.axis(item)]
    axes = [] if draw.chance(0.1) else axes
    count = prod(item.shape[axis] for axis in axes or range(item.rank))
    bounds = [(function, bound(item.bound, count)) for function, bound in REDUCTIONS]
    function, largest = draw.pick([one for one in bounds if one[1] <= STEEP])
    builder.add(function(item.blob, axes or None, keepdims=draw.integer(0, 1)), largest)


def ordered(builder: Builder) -> None:
    """Cumulative sums, the largest elements, or their places."""
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    choice = draw.integer(0, 4)
    if choice == 4:
        blob = ro.cumprod(ro.tanh(item.blob) * 1.2, axis, draw.integer(0, 1), draw.integer(0, 1))
        builder.add(blob, 1.2 ** item.shape[axis])
    elif choice == 0:
        blob = ro.cumsum(item.blob, axis, draw.integer(0, 1), draw.integer(0, 1))
        builder.add(blob, item.bound * item.shape[axis])
    elif choice == 1:
        builder.add(ro.argmax(item.blob, axis, draw.integer(0, 1)), float(item.shape[axis]))
    else:
        values, indices = ro.topk(item.blob, draw.integer(1, item.shape[axis]), axis)
        builder.add(values, item.bound)
        builder.add(indices, float(item.shape[axis]))


def normalized(builder: Builder) -> None:
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    choice = draw.integer(0, 4)
    if choice == 0:
        builder.add(ro.softmax(item.blob, axis=axis), 1.0)
    elif choice == 1:
        builder.add(ro.log_softmax(item.blob, axis=axis), 2.0 * item.bound + log(item.shape[axis]))
    elif choice == 2:
        scale = builder.parameter(item.shape[axis:] if draw.chance(0.7) else item.shape[-1:]).blob
        blob = ro.rms_normalization(item.blob, scale, axis, epsilon=0.2)
        builder.add(blob, prod(item.shape[axis:]) ** 0.5)
    elif choice == 3:
        by_channels(builder)
    else:
        shape = item.shape[axis:] if draw.chance(0.7) else item.shape[-1:]
        scale = builder.parameter(shape).blob
        bias = builder.parameter(shape).blob if draw.chance(0.6) else None
        blob = ro.layer_normalization(item.blob, scale, bias, axis=axis, epsilon=0.2)
        builder.add(blob, prod(item.shape[axis:]) ** 0.5 + 1.0)


def by_channels(builder: Builder) -> None:
    """A batch normalized by statistics that are parameters, or by its own."""
    item, draw = builder.of_rank(1), builder.draw
    channels = item.shape[1:2] or (1,)
    scale, bias, mean, var = (builder.parameter(channels).blob for _ in range(4))
    results = ro.batch_normalization(
        item.blob, scale, bias, mean, ro.softplus(var), 0.2, draw.integer(0, 1), momentum=0.6
    )
    if isinstance(results, tuple):
        builder.add(results[0], prod(item.shape) ** 0.5 + 1.0)
        builder.add(results[1], item.bound + 1.0)
        builder.add(results[2], item.bound**2 + 1.0)
    else:
        builder.add(results, 3.0 * (item.bound + 2.0))


def multiplied(builder: Builder) -> None:
    """A product with a parameter, on either side."""
    item, draw = builder.of_rank(1), builder.draw
    size = item.shape[-1] if item.rank == 1 or draw.chance(0.7) else 0
    if size:
        weight = builder.parameter((size, draw.integer(1, 3)) if draw.chance(0.8) else (size,))
        blob = item.blob @ weight.blob
    else:
        size = item.shape[-2]
        weight = builder.parameter((draw.integer(1, 3), size) if draw.chance(0.8) else (size,))
        blob = weight.blob @ item.blob
    if prod(builder.shape(blob)) <= LARGEST:
        builder.add(blob, size * item.bound)


def mixed(builder: Builder) -> None:
    """A product of two operands, over any axis."""
    item = builder.operand(lambda item: 2 <= item.rank <= 3)
    if not 2 <= item.rank <= 3:
        return multiplied(builder)
    other = builder.operand(lambda other: other.shape == item.shape)
    blob = other.blob if other.shape == item.shape else item.blob
    if builder.draw.chance(0.3):
        equation = builder.draw.pick(["...ij,...kj", "...ij,...ij->...j", "...ij,...kj->...ki"])
        builder.add(ro.einsum(equation, item.blob, blob), 3.0 * item.bound * max(item.bound, other.bound))
        return None
    turned = ro.transpose(blob, perm=[*range(item.rank - 2), item.rank - 1, item.rank - 2])
    pair = (item.blob, turned) if builder.draw.chance(0.5) else (turned, item.blob)
    builder.add(pair[0] @ pair[1], 3.0 * item.bound * max(item.bound, other.bound))


def general_product(builder: Builder) -> None:
    """Gemm, with transposes and all."""
    item, draw = builder.operand(lambda item: item.rank == 2), builder.draw
    if item.rank != 2:
        return multiplied(builder)
    trans_a, trans_b = draw.integer(0, 1), draw.integer(0, 1)
    (m, k), n = (item.shape[::-1] if trans_a else item.shape), draw.integer(1, 3)
    weight = builder.parameter((n, k) if trans_b else (k, n))
    bias = draw.pick([None, *(builder.parameter(shape).blob for shape in ((), (n,), (m, 1)))])
    options = {"transA": trans_a, "transB": trans_b, "alpha": draw.number(0.3, 0.9), "beta": draw.number()}
    blob = ro.gemm(item.blob, weight.blob, bias, **options)  # type: ignore[arg-type]
    builder.add(blob, k * item.bound + 1.0)


def classified(builder: Builder) -> None:
    """One-hot classes, or a cross entropy over labels."""
    item, draw = builder.of_rank(2), builder.draw
    labels = (item.shape[0], *item.shape[2:])
    fitting = [i for i in builder.integers if i.shape == labels]
    if fitting and draw.chance(0.7):
        classes = ro.clip(builder.choose(fitting).blob, 0, item.shape[1] - 1)
    else:
        classes = builder.net.constant(draw.integers(labels, 0, item.shape[1] - 1))
    if draw.chance(0.4):
        values = builder.parameter((2,)).blob if draw.chance(0.7) else (-0.5, 0.5)
        builder.add(ro.one_hot(classes, item.shape[1], values, axis=draw.pick([0, -1])), 1.0)
        return
    weights = ro.sigmoid(builder.parameter(item.shape[1:2]).blob) + 0.2 if draw.chance(0.4) else None
    loss = ro.softmax_cross_entropy_loss(item.blob, classes, weights, reduction=draw.pick(["mean", "sum", "none"]))
    builder.add(loss, 2.0 * item.bound * prod(labels) + 2.0)


def convolved(builder: Builder) -> None:
    """A convolution with a parameter, or a transposed one."""
    item, draw = builder.of_rank(3), builder.draw
    channels, sizes = item.shape[1], item.shape[2:]
    group = draw.pick([1, channels])
    kernel, strides, dilations, pads = _windows(draw, sizes)
    made = draw.integer(1, 2) * group
    options: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    bias = builder.parameter((made,)).blob if draw.chance(0.4) else None
    if draw.chance(0.6):
        weight = builder.parameter((made, channels // group, *kernel))
        blob = ro.conv(item.blob, weight.blob, bias, pads=pads, **options)
        met = channels // group * prod(kernel)
    else:
        weight = builder.parameter((channels, made // group, *kernel))
        more = [draw.integer(0, stride - 1) for stride in strides]
        blob = ro.conv_transpose(item.blob, weight.blob, bias, output_padding=more, **options)
        met = channels // group * prod(kernel)
    _add(builder, blob, met * item.bound + 1.0)


def pooled(builder: Builder) -> None:
    """The largest element, the mean or a norm of windows, or of whole channels."""
    item, draw = builder.of_rank(3), builder.draw
    kernel, strides, dilations, pads = _windows(draw, item.shape[2:])
    options: dict[str, Any] = {
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "ceil_mode": draw.integer(0, 1),
    }
    choice = draw.integer(0, 4)
    if choice == 0:
        blob = ro.max_pool(item.blob, kernel, **{**options, "pads": None})
    elif choice == 1:
        blob = ro.average_pool(item.blob, kernel, count_include_pad=draw.integer(0, 1), **options)
    elif choice == 2:
        blob = ro.lp_pool(ro.softplus(item.blob) + 0.4, kernel, p=draw.integer(1, 3), **{**options, "pads": None})
    else:
        blob = (ro.global_max_pool if choice == 3 else ro.global_average_pool)(item.blob)
    _add(builder, blob, item.bound if choice != 2 else (item.bound + 1.2) * prod(kernel))


def _windows(draw: Draw, sizes: tuple[int, ...]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, strides, dilations and pads of windows that fit axes of some sizes."""
    pads = [draw.integer(0, 1) for _ in range(2 * len(sizes))]
    covered = [size + pads[i] + pads[len(sizes) + i] for i, size in enumerate(sizes)]
    kernel = [draw.integer(1, min(size, whole, 2)) for size, whole in zip(sizes, covered, strict=True)]
    dilations = [
        draw.integer(1, 2) if size == 2 and whole >= 3 else 1 for size, whole in zip(kernel, sizes, strict=True)
    ]
    return kernel, [draw.integer(1, 2) for _ in sizes], dilations, pads


def _add(builder: Builder, blob: Blob, bound: float) -> Item | None:
    return builder.add(blob, bound) if prod(builder.shape(blob)) <= LARGEST else None
