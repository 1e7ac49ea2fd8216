"""ONNX's ops that are a few ops of rnnops: their gradients and loop forms are those of the parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.import_ops import sized
from rnnops.onnx.node import Node, Rule
from rnnops.ops.activation import elu, hard_sigmoid, sigmoid, softplus, tanh
from rnnops.ops.arithmetic import abs as abs_, log, sqrt
from rnnops.ops.comparison import and_, cast, equal, greater, greater_or_equal, less, less_or_equal, not_, or_, where
from rnnops.ops.indexing import gather
from rnnops.ops.movement import concat, reshape, squeeze, unsqueeze
from rnnops.ops.reduction import reduce_prod
from rnnops.ops.shapes import range as range_, shape
from rnnops.types import BOOL, is_float

INF = float("inf")
SIXTH = float(np.float32(1 / 6))  # as a file can have it


def by_element(function: Callable[..., Blob], **defaults: float) -> Rule:
    """A rule for a function of the inputs, whose keywords are attributes that are floats."""

    def rule(node: Node) -> Sequence[Blob]:
        given = {name: node.attr(name, "float", value) for name, value in defaults.items()}
        return (function(*(node.input(i) for i in range(len(node.inputs))), **given),)

    return rule


def shrink(x: Blob, bias: float, lambd: float) -> Blob:
    return where(less(x, -lambd), x + bias, where(greater(x, lambd), x - bias, 0.0))


def is_inf(node: Node) -> Sequence[Blob]:
    """Either sign may be left out."""
    x, signs = node.input(0), (("detect_negative", -INF), ("detect_positive", INF))
    found = [equal(x, value) for name, value in signs if node.attr(name, "int", 1)]
    return (or_(*found) if len(found) == 2 else found[0] if found else less(x, x),)


def size(node: Node) -> Sequence[Blob]:
    """The number of elements."""
    return (reduce_prod(shape(node.input(0)), keepdims=0),)


def reduction(of: Callable[[Blob], Blob], name: str, then: Callable[[Blob], Blob]) -> Rule:
    """A rule for a reduction `name` of what `of` makes of the elements, and `then` of its result."""

    def rule(node: Node) -> Sequence[Blob]:
        node.inputs[0], node.op = of(node.input(0)), name
        (reduced,) = sized("axes", 18, keepdims="int", noop_with_empty_axes="int")(node)
        return (then(reduced),) if reduced is not None else ()

    return rule


def same(blob: Blob) -> Blob:
    return blob


def root(squares: Blob) -> Blob:
    """The square root, with the gradient 0 at 0."""
    nothing = equal(squares, 0.0)
    return where(nothing, 0.0, sqrt(where(nothing, 1.0, squares)))


def trilu(node: Node) -> Sequence[Blob]:
    """The triangle of the last two axes on and above a diagonal, or on and below it; elsewhere 0."""
    x, upper = node.input(0), node.attr("upper", "int", 1)
    rows, columns = (extent(x, axis) for axis in (-2, -1))
    here, there = unsqueeze(range_(0, rows), [1]), range_(0, columns)
    diagonal = here + node.input(1) if node.has(1) else here
    kept = greater_or_equal(there, diagonal) if upper else less_or_equal(there, diagonal)
    return (and_(kept, x) if x.dtype == BOOL else where(kept, x, 0.0 if is_float(x.dtype) else 0),)


def gather_elements(node: Node) -> Sequence[Blob]:
    """Elements by their places in the flat array."""
    data, indices = node.input(0), node.input(1)
    rank, axis = node.rank(data), node.attr("axis", "int", 0)
    if node.rank(indices) != rank or not -rank <= axis < rank:
        node.fail("data and indices have one rank, and the axis is below it", came=[rank, node.rank(indices), axis])
    whole = cast(indices, "int64")
    along = [whole if i == axis % rank else numbers_along(whole, i, rank) for i in range(rank)]
    place = inside(along[0], data, 0)
    for i in range(1, rank):
        place = place * extent(data, i) + inside(along[i], data, i)
    return (gather(reshape(data, [-1]), place),)


def reverse_sequence(node: Node) -> Sequence[Blob]:
    """The first steps of each row backwards, the others as they are: rows and steps are looked up as one axis."""
    x, lengths = node.input(0), cast(node.input(1), "int64")
    batch, time = node.attr("batch_axis", "int", 1), node.attr("time_axis", "int", 0)
    if {batch, time} != {0, 1}:
        node.fail("time and batch are the first two axes", wanted="0 and 1", came=f"{time} and {batch}")
    steps, of_row = numbers_along(x, time, 2), unsqueeze(lengths, [time])
    source = inside(where(less(steps, of_row), of_row - 1 - steps, steps), x, time)
    rows = numbers_along(x, batch, 2)
    place = source * extent(x, 1) + rows if time == 0 else rows * extent(x, 1) + source
    flat = reshape(x, concat(unsqueeze(extent(x, 0) * extent(x, 1), [0]), shape(x, 2), axis=0), allowzero=1)
    return (gather(flat, place),)


def inside(index: Blob, data: Blob, axis: int) -> Blob:
    """Indices of an axis from 0 on; one out of range is beyond all elements of the array, where no lookup goes."""
    last = extent(data, axis)
    from_start = where(less(index, 0), index + last, index)
    wrong = or_(less(from_start, 0), greater_or_equal(from_start, last))
    return where(wrong, reduce_prod(shape(data), keepdims=0) + 1, from_start)


def extent(x: Blob, axis: int) -> Blob:
    """The size of an axis, without axes."""
    return squeeze(shape(x, axis, None if axis == -1 else axis + 1), [0])


def numbers_along(x: Blob, axis: int, rank: int) -> Blob:
    """0, 1, 2, ... for an axis of x, as that axis of `rank`."""
    numbers = range_(0, extent(x, axis))
    return reshape(numbers, [-1 if i == axis else 1 for i in range(rank)])


GROUP_RULES: dict[str, Rule] = {
    "Celu": by_element(lambda x, alpha: elu(x / alpha) * alpha, alpha=1.0),
    "GatherElements": gather_elements,
    "HardSwish": by_element(lambda x: x * hard_sigmoid(x, SIXTH, 0.5)),
    "IsInf": is_inf,
    "IsNaN": by_element(lambda x: not_(equal(x, x))),
    "Mish": by_element(lambda x: x * tanh(softplus(x))),
    "PRelu": by_element(lambda x, slope: where(less(x, 0.0), slope * x, x)),
    "ReduceL1": reduction(abs_, "ReduceSum", same),
    "ReduceL2": reduction(same, "ReduceSumSquare", root),
    "ReduceLogSum": reduction(same, "ReduceSum", log),
    "ReverseSequence": reverse_sequence,
    "Shrink": by_element(shrink, bias=0.0, lambd=0.5),
    "Size": size,
    "Swish": by_element(lambda x, alpha: x * sigmoid(x * alpha), alpha=1.0),
    "ThresholdedRelu": by_element(lambda x, alpha: where(greater(x, alpha), x, 0.0), alpha=1.0),
    "Trilu": trilu,
    "Xor": by_element(lambda a, b: not_(equal(a, b))),
}
