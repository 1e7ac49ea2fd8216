"""Makers of random ops that move, reduce, normalize or multiply; any axis, the batch's too."""

from __future__ import annotations

from collections.abc import Callable
from math import log, prod

from rnnops import ops
from rnnops.blob import Blob
from rnnops.testing.random_builder import LARGEST, Builder, fit


def split(builder: Builder) -> None:
    """Pieces along an axis; some of them may stay unused."""
    item = builder.of_rank(1)
    axis, draw = builder.axis(item), builder.draw
    size = item.shape[axis]
    first = draw.integer(0, size)
    pieces = ops.split(item.blob, [first, size - first] if draw.chance(0.5) else min(2, size), axis=axis)
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
    builder.add(ops.concat([item.blob, blob], axis=axis), max(item.bound, other.bound))
    return None


def sliced(builder: Builder) -> None:
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    size = item.shape[axis]
    forward = draw.chance(0.6)
    start = draw.integer(0, size - 1)
    ends, step = (99, draw.integer(1, 2)) if forward else (-99, -draw.integer(1, 2))
    builder.add(ops.slice(item.blob, [start - (size if draw.chance(0.5) else 0)], [ends], [axis], [step]), item.bound)


def reshaped(builder: Builder) -> None:
    item, draw = builder.operand(), builder.draw
    count = prod(item.shape)
    rows = draw.pick([k for k in range(1, count + 1) if count % k == 0])
    functions: list[Callable[[Blob], Blob]] = [
        lambda x: ops.reshape(x, [rows, -1]),
        lambda x: ops.reshape(x, [-1]),
        ops.squeeze,
        ops.transpose,
        lambda x: ops.unsqueeze(x, [draw.pick([0, -1])]),
        lambda x: ops.flatten(x, axis=draw.integer(0, item.rank)),
    ]
    builder.add(draw.pick(functions)(item.blob), item.bound)


def transposed(builder: Builder) -> None:
    item, perm = builder.of_rank(2), list[int]()
    while len(perm) < item.rank:
        perm.append(builder.draw.pick([axis for axis in range(item.rank) if axis not in perm]))
    builder.add(ops.transpose(item.blob, perm=perm), item.bound)


def widened(builder: Builder) -> None:
    """Copies: tile, expand, pad."""
    item, draw = builder.of_rank(1), builder.draw
    if prod(item.shape) * 2 > LARGEST:
        return sliced(builder)
    axis = draw.integer(0, item.rank - 1)
    choice = draw.integer(0, 3)
    if choice == 0:
        builder.add(ops.tile(item.blob, [2 if k == axis else 1 for k in range(item.rank)]), item.bound)
    elif choice == 1:
        builder.add(ops.expand(item.blob, [2, *(1,) * item.rank]), item.bound)
    elif choice == 2:
        other = builder.operand(lambda i: i.rank <= item.rank and i.shape == item.shape[item.rank - i.rank :])
        small = other if other.shape == item.shape[item.rank - other.rank :] else item
        builder.add(ops.expand(small.blob, ops.shape(item.blob)), small.bound)
    else:
        mode = draw.pick(["constant", "edge", "reflect", "wrap"])
        pads = [draw.integer(0, 1), draw.integer(-1, 1) if item.shape[axis] > 1 else 1]
        value = builder.parameter(()).blob if draw.chance(0.3) else draw.number()
        builder.add(ops.pad(item.blob, pads, value, mode=mode, axes=[axis]), max(item.bound, 1.0))
    return None


def gathered(builder: Builder) -> None:
    """A look-up by constant indices, or by an integer operand brought into range."""
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    size = item.shape[axis]
    indices = [i for i in builder.integers if prod(i.shape) * prod(item.shape) // size <= LARGEST]
    if indices and draw.chance(0.6):
        place = ops.clip(builder.choose(indices).blob, -size, size - 1)
        builder.add(ops.gather(item.blob, place, axis=axis), item.bound)
    else:
        chosen = [draw.integer(-size, size - 1) for _ in range(draw.integer(1, 2))]
        builder.add(ops.gather(item.blob, chosen if draw.chance(0.8) else chosen[0], axis=axis), item.bound)


def scattered(builder: Builder) -> None:
    """Elements put among others, by constant indices or by an integer operand brought into range."""
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    size, reduction = item.shape[axis], draw.pick(["none", "add", "mul", "max", "min"])
    bound = item.bound * max(item.bound, 1.0) if reduction == "mul" else 2.0 * item.bound
    fitting = [i for i in builder.integers if i.shape == item.shape]
    if fitting and draw.chance(0.6):
        place = ops.clip(builder.choose(fitting).blob, -size, size - 1)
        place = place if place.dtype == "int64" else ops.cast(place, "int64")
    else:  # each element of the axis once, in another order
        turn = [(k + draw.integer(0, 1)) % size for k in range(size)]
        along = [size if k == axis % item.rank else 1 for k in range(item.rank)]
        place = ops.expand(ops.reshape(builder.net.constant(turn, "int64"), along), list(item.shape))
    if draw.chance(0.6):
        blob = ops.scatter_elements(item.blob, place, ops.tanh(item.blob) * 0.9, axis, reduction)
    else:
        rows = builder.net.constant([[draw.integer(0, item.shape[0] - 1)] for _ in range(2)], "int64")
        updates = ops.gather(ops.sin(item.blob), [0, -1])
        blob = ops.scatter_nd(item.blob, rows, updates, reduction)
    builder.add(blob, max(bound * max(item.bound, 1.0), 1.0))


REDUCTIONS: tuple[tuple[Callable[..., Blob], Callable[[float, int], float]], ...] = (
    (ops.reduce_sum, lambda bound, count: bound * count),
    (ops.reduce_mean, lambda bound, count: bound),
    (ops.reduce_max, lambda bound, count: bound),
    (ops.reduce_min, lambda bound, count: bound),
    (ops.reduce_sum_square, lambda bound, count: bound * bound * count),
    (ops.reduce_log_sum_exp, lambda bound, count: bound + log(count)),
    (ops.reduce_prod, lambda bound, count: max(bound, 1.0) ** count),
)
STEEP = 1e3  # a product of more than this has slopes that differences do not see


def reduced(builder: Builder) -> None:
    item, draw = builder.of_rank(1), builder.draw
    axes = draw.subset(range(item.rank), 0.5) or [builder.axis(item)]
    axes = [] if draw.chance(0.1) else axes
    count = prod(item.shape[axis] for axis in axes or range(item.rank))
    bounds = [(function, bound(item.bound, count)) for function, bound in REDUCTIONS]
    function, largest = draw.pick([one for one in bounds if one[1] <= STEEP])
    builder.add(function(item.blob, axes or None, keepdims=draw.integer(0, 1)), largest)


def ordered(builder: Builder) -> None:
    """Sums up to each element, the largest ones, or where they are."""
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    choice = draw.integer(0, 4)
    if choice == 4:
        blob = ops.cumprod(ops.tanh(item.blob) * 1.2, axis, draw.integer(0, 1), draw.integer(0, 1))
        builder.add(blob, 1.2 ** item.shape[axis])
    elif choice == 0:
        blob = ops.cumsum(item.blob, axis, draw.integer(0, 1), draw.integer(0, 1))
        builder.add(blob, item.bound * item.shape[axis])
    elif choice == 1:
        builder.add(ops.argmax(item.blob, axis, draw.integer(0, 1)), float(item.shape[axis]))
    else:
        values, indices = ops.topk(item.blob, draw.integer(1, item.shape[axis]), axis)
        builder.add(values, item.bound)
        builder.add(indices, float(item.shape[axis]))


def normalized(builder: Builder) -> None:
    item, draw = builder.of_rank(1), builder.draw
    axis = builder.axis(item)
    choice = draw.integer(0, 4)
    if choice == 0:
        builder.add(ops.softmax(item.blob, axis=axis), 1.0)
    elif choice == 1:
        builder.add(ops.log_softmax(item.blob, axis=axis), 2.0 * item.bound + log(item.shape[axis]))
    elif choice == 2:
        scale = builder.parameter(item.shape[axis:] if draw.chance(0.7) else item.shape[-1:]).blob
        blob = ops.rms_normalization(item.blob, scale, axis, epsilon=0.2)
        builder.add(blob, prod(item.shape[axis:]) ** 0.5)
    elif choice == 3:
        by_channels(builder)
    else:
        shape = item.shape[axis:] if draw.chance(0.7) else item.shape[-1:]
        scale = builder.parameter(shape).blob
        bias = builder.parameter(shape).blob if draw.chance(0.6) else None
        blob = ops.layer_normalization(item.blob, scale, bias, axis=axis, epsilon=0.2)
        builder.add(blob, prod(item.shape[axis:]) ** 0.5 + 1.0)


def by_channels(builder: Builder) -> None:
    """A batch normalized by statistics that are parameters, or by its own."""
    item, draw = builder.of_rank(1), builder.draw
    channels = item.shape[1:2] or (1,)
    scale, bias, mean, var = (builder.parameter(channels).blob for _ in range(4))
    results = ops.batch_normalization(
        item.blob, scale, bias, mean, ops.softplus(var), 0.2, draw.integer(0, 1), momentum=0.6
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
        builder.add(ops.einsum(equation, item.blob, blob), 3.0 * item.bound * max(item.bound, other.bound))
        return None
    turned = ops.transpose(blob, perm=[*range(item.rank - 2), item.rank - 1, item.rank - 2])
    pair = (item.blob, turned) if builder.draw.chance(0.5) else (turned, item.blob)
    builder.add(pair[0] @ pair[1], 3.0 * item.bound * max(item.bound, other.bound))
    return None


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
    blob = ops.gemm(item.blob, weight.blob, bias, **options)  # type: ignore[arg-type]
    builder.add(blob, k * item.bound + 1.0)
    return None


def classified(builder: Builder) -> None:
    """One-hot classes, or a cross entropy over labels."""
    item, draw = builder.of_rank(2), builder.draw
    labels = (item.shape[0], *item.shape[2:])
    fitting = [i for i in builder.integers if i.shape == labels]
    if fitting and draw.chance(0.7):
        classes = ops.clip(builder.choose(fitting).blob, 0, item.shape[1] - 1)
    else:
        classes = builder.net.constant(draw.integers(labels, 0, item.shape[1] - 1))
    if draw.chance(0.4):
        values = builder.parameter((2,)).blob if draw.chance(0.7) else (-0.5, 0.5)
        builder.add(ops.one_hot(classes, item.shape[1], values, axis=draw.pick([0, -1])), 1.0)
        return
    weights = ops.sigmoid(builder.parameter(item.shape[1:2]).blob) + 0.2 if draw.chance(0.4) else None
    loss = ops.softmax_cross_entropy_loss(item.blob, classes, weights, reduction=draw.pick(["mean", "sum", "none"]))
    builder.add(loss, 2.0 * item.bound * prod(labels) + 2.0)
