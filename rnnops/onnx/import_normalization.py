"""How ONNX's normalisations become ops of rnnops: two by their own names, the others as a few ops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.import_ops import append
from rnnops.onnx.node import Node, Rule
from rnnops.ops.arithmetic import abs as abs_, reciprocal, sqrt
from rnnops.ops.comparison import equal, where
from rnnops.ops.movement import reshape
from rnnops.ops.reduction import reduce_mean, reduce_sum
from rnnops.ops.shapes import shape

TINY = float(np.float32(1e-9))  # what MeanVarianceNormalization adds to the deviation, as a file can have it
EPSILON = float(np.float32(1e-5))  # the default of all of them


def batch(node: Node) -> Sequence[Blob | None]:
    """Statistics of the batch were asked for by naming five results before op set 14, which is not supported."""
    if node.opset < 9 and node.attr("spatial", "int", 1) != 1:
        node.fail("statistics of every element are not supported", wanted="spatial=1")
    training = node.attr("training_mode", "int", 0) if node.opset >= 14 else 0
    if any(node.wanted[1:]) and not training:
        hint = "Export the model for inference, or in op set 14 or later."
        node.fail("statistics of the batch are results of training alone", wanted="training_mode=1", hint=hint)
    epsilon, momentum = node.attr("epsilon", "float"), node.attr("momentum", "float")
    trained = {"training_mode": 1, "momentum": momentum} if training else {}
    return [*append(node, epsilon=epsilon, **trained), *[None] * (0 if training else 4)]


def instance(node: Node) -> Sequence[Blob]:
    """Each channel of each row by its own statistics."""
    x, rank = node.input(0), node.rank(node.input(0))
    if rank < 3:
        node.fail("there is nothing to normalise over", wanted="three axes or more", came=rank)
    unit = normal(x, list(range(2, rank)), node.attr("epsilon", "float", EPSILON))
    return (unit * per_channel(node.input(1), rank) + per_channel(node.input(2), rank),)


def group(node: Node) -> Sequence[Blob]:
    """Scale and bias are of groups before op set 21, of channels since; statistics are in the elements' own type."""
    x, rank, groups = node.input(0), node.rank(node.input(0)), node.required("num_groups", "int")
    if node.opset >= 21 and node.attr("stash_type", "int", 1) != 1:
        node.fail("statistics of this element type are not supported", wanted="stash_type=1")
    unit = normal(reshape(x, [0, groups, -1]), [2], node.attr("epsilon", "float", EPSILON))
    scale, bias = node.input(1), node.input(2)
    if node.opset < 21:
        return (reshape(unit * per_channel(scale, 3) + per_channel(bias, 3), shape(x), allowzero=1),)
    return (reshape(unit, shape(x), allowzero=1) * per_channel(scale, rank) + per_channel(bias, rank),)


def root_mean_square(node: Node) -> Sequence[Blob]:
    """`stash_type` is about half precision."""
    if node.attr("stash_type", "int", 1) != 1:
        node.fail("statistics of this element type are not supported", wanted="stash_type=1")
    return append(node, axis=node.attr("axis", "int"), epsilon=node.attr("epsilon", "float"))


def lengths(node: Node) -> Sequence[Blob]:
    """Divided by sums of absolute values, or by roots of sums of squares; 0 where these are, and its gradient too."""
    x, axis, p = node.input(0), node.attr("axis", "int", -1), node.attr("p", "int", 2)
    if p not in (1, 2):
        node.fail("a norm of this kind is not supported", wanted="p=1 or p=2", came=p)
    total = reduce_sum(abs_(x) if p == 1 else x * x, [axis])
    nothing = equal(total, 0.0)
    safe = where(nothing, 1.0, total)
    return (where(nothing, 0.0, x / (safe if p == 1 else sqrt(safe))),)


def mean_variance(node: Node) -> Sequence[Blob]:
    """To mean 0 and variance 1 over the axes."""
    x, axes = node.input(0), list(node.attr("axes", "ints", (0, 2, 3)))
    centred = x - reduce_mean(x, axes)
    return (centred / (sqrt(reduce_mean(centred * centred, axes)) + TINY),)


def normal(x: Blob, axes: list[int], epsilon: float) -> Blob:
    """`(x - mean) / sqrt(variance + epsilon)` over the axes."""
    centred = x - reduce_mean(x, axes)
    return centred * reciprocal(sqrt(reduce_mean(centred * centred, axes) + epsilon))


def per_channel(blob: Blob, rank: int) -> Blob:
    """One number for each channel, or group, of an array of so many axes."""
    return reshape(blob, [-1, *(1,) * (rank - 2)]) if rank > 2 else blob


NORMALIZATION_RULES: dict[str, Rule] = {
    "BatchNormalization": batch,
    "GroupNormalization": group,
    "InstanceNormalization": instance,
    "LpNormalization": lengths,
    "MeanVarianceNormalization": mean_variance,
    "RMSNormalization": root_mean_square,
}
