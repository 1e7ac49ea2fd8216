"""OneHot and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Expansion, Kernel
from rnnops.net.net import common_net
from rnnops.net.schema import Call, Gradients, OpSchema, no_gradient, register
from rnnops.ops.arithmetic import exp
from rnnops.ops.base import INDEX_DTYPES, Unary, append_sized, choice, quiet, required_sizes, sum_to
from rnnops.ops.comparison import and_, cast, equal, not_, or_, where
from rnnops.ops.movement import concat, first_only, reshape_to, split, squeeze, unsqueeze
from rnnops.ops.normalization import log_softmax, log_softmax_array
from rnnops.ops.reduction import reduce_sum
from rnnops.ops.shapes import constant_of_shape
from rnnops.types import FLOATS, INTEGERS, Array, Shape, is_float


class OneHot(OpSchema):
    """A new axis of `depth` classes, with `values[1]` at the class of the index, and `values[0]` elsewhere.

    ONNX: OneHot, op set 11. Negative indices count from the end. An index outside of `[-depth, depth)` has no class. If
    `values` are float, they get the gradient.

    Args:
        indices: [...] integers.
        depth: the number of classes, or an int64 blob that follows from shapes and constants.
        values: [2] of any dtype: the value elsewhere, then the value at the class. A blob or numbers.
        axis: the place of the classes in the result. Negative numbers count from its end.

    Returns:
        The shape of indices with depth at the axis, the dtype of values.

    Raises:
        NetError: indices is not a blob, or depth is not an integer.
        TypeRuleError: once shapes are known, indices are not integers, values are not two, depth is negative, or the
            axis is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.one_hot(net.input("label", "int64"), 3))
        >>> ro.compile(net, device="reference")({"label": np.array([2, 0, 5])})["y"]
        array([[0., 0., 1.],
               [1., 0., 0.],
               [0., 0., 0.]], dtype=float32)
    """

    inputs = ("indices", "depth?", "values?")
    outputs = ("output",)
    static = ("depth",)
    attributes: ClassVar[dict[str, Any]] = {"depth": None, "axis": -1}
    same_dtype = (2,)
    keeps = ("indices",)
    loop = Expansion()

    def __call__(
        self, indices: Blob, depth: Blob | int, values: Blob | Sequence[float] | Array = (0.0, 1.0), axis: int = -1
    ) -> Blob:
        net = common_net([indices])
        if not isinstance(values, Blob):
            values = net.constant(np.asarray(values))
        operands = {"indices": indices, "depth": depth, "values": values}
        return append_sized(self, net, operands, {"axis": axis})[0]

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return ((dtypes[2] if len(dtypes) > 2 else None) or "",)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if call.dtype(0) not in INTEGERS:
            call.fail("indices must be integers", blob=call.op.inputs[0], came=call.dtype(0))
        if call.shape(2) != (2,):
            call.fail("values must be two numbers, off and on", blob=call.op.inputs[2], came=list(call.shape(2)))
        shape, axis = call.shape(0), self.axis(call)
        return ((*shape[:axis], self.depth(call), *shape[axis:]),)

    def reference(self, call: Call, indices: Array, depth: Array | None, values: Array) -> Array:
        if not indices.size:
            return np.empty(call.output_types[0].shape, values.dtype)
        return np.asarray(np.where(hot_array(indices, self.depth(call), self.axis(call)), values[1], values[0]))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        indices, dy = blobs[0], blobs[-1]
        if not is_float(call.dtype(2)):
            return None
        hot = self.hot(call, indices)
        off, on = sum_to(where(hot, 0.0, dy), ()), sum_to(where(hot, dy, 0.0), ())
        return None, None, concat([reshape_to(off, (1,)), reshape_to(on, (1,))], axis=0)

    def expand(self, call: Call, indices: Blob, depth: Blob | None, values: Blob) -> Blob:
        off, on = split(values, 2)
        return where(self.hot(call, indices), squeeze(on, [0]), squeeze(off, [0]))

    def hot(self, call: Call, indices: Blob) -> Blob:
        """True at the classes of the indices, as ops."""
        axis, depth = self.axis(call), self.depth(call)
        if 0 in call.shape(0):  # without indices, the classes need not fit in memory
            return constant_of_shape(indices.net, call.output_types[0].shape, False)
        classes = np.arange(depth).reshape(-1, *(1,) * (call.rank(0) - axis))
        places = cast(unsqueeze(indices, [axis]), "int64")
        return or_(equal(places, classes), equal(places + depth, classes))

    def axis(self, call: Call) -> int:
        return call.axis(call.attr("axis"), call.rank(0) + 1)

    def depth(self, call: Call) -> int:
        depth = required_sizes(call, "depth", 1)
        if len(depth) != 1 or depth[0] < 0:
            call.fail("depth must be a number of classes", came=list(depth))
        return depth[0]


class SoftmaxCrossEntropyLoss(OpSchema):
    """`-weights[label] * log_softmax(scores)[label]`, for each label, summed, or as a mean that `weights` weight.

    ONNX: SoftmaxCrossEntropyLoss, op set 13. The gradient of scores is `weights[label] * (softmax(scores) - one_hot)`
    times the gradient of the loss. For the mean it is divided by the sum of weights. A mean of nothing is NaN.

    Args:
        scores: [N, C, ...] float, logits of C classes.
        labels: [N, ...] int32 or int64, numbers of classes.
        weights: [C] float, one for each class. By default 1.
        reduction: `"mean"`, `"sum"` or `"none"`.
        ignore_index: a label that is ignored, in the sum and in the mean. By default none.

    Returns:
        [] of scores' dtype, or [N, ...] with `"none"`.

    Raises:
        NetError: an argument is not a blob, or they are of several nets.
        TypeRuleError: scores or weights are not float. Once shapes are known: shapes do not fit, labels are not int32
            or int64, the reduction is unknown, or ignore_index is not an integer. In a run: a label is neither in `[0,
            C)` nor `ignore_index`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(loss=ro.softmax_cross_entropy_loss(net.input("scores"), net.input("labels", "int64")))
        >>> feeds = {"scores": np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), "labels": np.array([0, 2])}
        >>> ro.compile(net, device="reference")(feeds)["loss"]
        array(0.6691)
    """

    inputs = ("scores", "labels", "weights?")
    outputs = ("output", "log_prob")
    attributes: ClassVar[dict[str, Any]] = {"reduction": "mean", "ignore_index": None}
    accepts = FLOATS
    same_dtype = (0, 2)
    keeps = ("labels", "weights", "output", "log_prob")
    optional_grads = True
    loop = Expansion()

    def __call__(
        self,
        scores: Blob,
        labels: Blob,
        weights: Blob | None = None,
        reduction: str = "mean",
        ignore_index: int | None = None,
    ) -> Blob:
        inputs = [scores, labels] if weights is None else [scores, labels, weights]
        attributes = {"reduction": reduction, "ignore_index": ignore_index}
        return common_net([scores]).append(self.name, inputs, attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        scores, labels = call.shape(0), call.shape(1)
        if len(scores) < 2 or labels != (scores[0], *scores[2:]) or call.dtype(1) not in INDEX_DTYPES:
            came = f"{call.dtype(1)}{list(labels)} for scores {list(scores)}"
            call.fail("labels need scores' shape without the classes", wanted=" or ".join(INDEX_DTYPES), came=came)
        if call.has(2) and call.shape(2) != (scores[1],):
            call.fail("not one weight a class", blob=call.op.inputs[2], wanted=[scores[1]], came=list(call.shape(2)))
        if not isinstance(call.attr("ignore_index"), int | None):
            call.fail("ignore_index is not an integer", came=repr(call.attr("ignore_index")))
        reduction = choice(call, "reduction", "mean", "sum", "none")
        return (labels if reduction == "none" else (), scores)

    @quiet
    def reference(self, call: Call, scores: Array, labels: Array, weights: Array | None = None) -> tuple[Array, Array]:
        log_prob = log_softmax_array(scores, 1)
        valid = check_labels(call, labels, scores.shape[1])
        hot = hot_array(np.where(valid, labels, scores.shape[1]), scores.shape[1], 1)
        weight = np.where(hot, scores.dtype.type(1) if weights is None else along_classes(weights, scores.ndim), 0)
        losses = -np.where(hot, log_prob * weight, scores.dtype.type(0)).sum(axis=1, dtype=scores.dtype)
        if call.attr("reduction") == "none":
            return np.asarray(losses), log_prob
        total = losses.sum(dtype=scores.dtype)
        mean = call.attr("reduction") == "mean"
        return np.asarray(total / weight.sum(dtype=scores.dtype) if mean else total), log_prob

    def gradient(self, call: Call, *blobs: Any) -> Gradients:
        labels, weights, (loss, log_prob, dloss, dlog_prob) = blobs[1], blobs[2] if call.has(2) else None, blobs[-4:]
        if dloss is None:
            return None if dlog_prob is None else first_only(call, through_log_softmax(log_prob, dlog_prob))
        hot = self.hot(call, labels)
        weight = self.weight(call, hot, weights, dloss)
        share = self.share(call, weight, dloss)
        from_loss = -(weight * share)
        dlog_prob = from_loss if dlog_prob is None else from_loss + dlog_prob
        dscores = through_log_softmax(log_prob, dlog_prob)
        if weights is None:
            return first_only(call, dscores)
        excess = log_prob + loss if call.attr("reduction") == "mean" else log_prob
        per_class = sum_to(where(hot, -(excess * share), 0.0), class_shape(call.shape(0)))
        return dscores, None, reshape_to(per_class, call.shape(2))

    def expand(self, call: Call, scores: Blob, labels: Blob, weights: Blob | None = None) -> tuple[Blob, Blob]:
        log_prob = log_softmax(scores, axis=1)
        limits = {"classes": call.shape(0)[1], "ignore_index": call.attr("ignore_index")}
        hot = self.hot(call, labels.net.append("CheckLabels", [labels], limits)[0])
        weight = self.weight(call, hot, weights, scores)
        losses = -reduce_sum(where(hot, log_prob * weight, 0.0), [1], keepdims=0)
        if call.attr("reduction") == "none":
            return losses, log_prob
        total = reduce_sum(losses, keepdims=0)
        return total / reduce_sum(weight, keepdims=0) if call.attr("reduction") == "mean" else total, log_prob

    def hot(self, call: Call, labels: Blob) -> Blob:
        """True at the class of each label that counts: bool, in the scores' shape."""
        classes = np.arange(call.shape(0)[1]).reshape(-1, *(1,) * (call.rank(0) - 2))
        places = cast(unsqueeze(labels, [1]), "int64")
        hot, ignored = equal(places, classes), call.attr("ignore_index")
        return hot if ignored is None else and_(hot, not_(equal(places, ignored)))

    def weight(self, call: Call, hot: Blob, weights: Blob | None, like: Blob) -> Blob:
        """The weight of each label at its class, 0 elsewhere."""
        if weights is None:
            return cast(hot, like.dtype)
        return where(hot, reshape_to(weights, class_shape(call.shape(0))), 0.0)

    def share(self, call: Call, weight: Blob, dloss: Blob) -> Blob:
        """The gradient of each weighted loss, with an axis of size 1 for the classes."""
        if call.attr("reduction") == "none":
            return unsqueeze(dloss, [1])
        return dloss if call.attr("reduction") == "sum" else dloss / sum_to(weight, ())


class CheckLabels(Unary):
    """Returns labels. In a run, a label that is neither a class nor `ignore_index` raises the error `wrong`."""

    inputs = ("labels",)
    outputs = ("checked",)
    attributes: ClassVar[dict[str, Any]] = {"classes": 0, "ignore_index": None, "wrong": "a label is not a class"}
    accepts = INDEX_DTYPES
    internal = True
    gradient = no_gradient
    loop = Kernel("check_labels")

    def reference(self, call: Call, labels: Array) -> Array:
        check_labels(call, labels, call.attr("classes"), call.attr("wrong"), call.op.inputs[0])
        return np.array(labels)

    def greatest(self, call: Call) -> int:
        """The number of the last class."""
        return int(call.attr("classes")) - 1


class CheckCount(OpSchema):
    """Returns counts. A run raises the error `wrong` for a count that is not from 0 to the size of `like`'s axis."""

    inputs = ("counts", "like")
    outputs = ("checked",)
    attributes: ClassVar[dict[str, Any]] = {"axis": 0, "wrong": "a count is out of range"}
    accepts = INDEX_DTYPES
    same_dtype = (0,)
    internal = True
    gradient = no_gradient
    loop = Expansion()

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.shape(0),)

    def expand(self, call: Call, counts: Blob, like: Blob) -> Blob:
        limits = {"classes": self.greatest(call) + 1, "wrong": call.attr("wrong")}
        return counts.net.append("CheckLabels", [counts], limits)[0]

    def reference(self, call: Call, counts: Array, like: Array) -> Array:
        check_labels(call, counts, self.greatest(call) + 1, call.attr("wrong"), call.op.inputs[0])
        return np.array(counts)

    def greatest(self, call: Call) -> int:
        """The size of the axis, which is the largest count."""
        return int(call.shape(1)[call.attr("axis")])


def hot_array(indices: Array, depth: int, axis: int) -> Array:
    """True at the class of each index, along the new axis."""
    places = np.expand_dims(indices.astype(np.int64), axis)
    classes = np.arange(depth).reshape(-1, *(1,) * (indices.ndim - axis))
    return np.asarray((places == classes) | (places + depth == classes))


def check_labels(
    call: Call, labels: Array, classes: int, message: str = "a label is not a class", blob: str | None = None
) -> Array:
    """True for labels that count.

    Raises TypeRuleError with the message for a label that is neither a class nor ignored.
    """
    ignored = call.op.attributes.get("ignore_index")
    valid = np.ones(labels.shape, bool) if ignored is None else np.asarray(labels != ignored)
    wrong = labels[valid & ((labels < 0) | (labels >= classes))]
    if wrong.size:
        call.fail(message, blob=blob, wanted=f"0 to {classes - 1}", came=int(wrong.flat[0]))
    return valid


def along_classes(weights: Array, rank: int) -> Array:
    return np.asarray(weights.reshape(-1, *(1,) * (rank - 2)))


def class_shape(shape: Shape) -> Shape:
    """A shape that has one number for each class, and broadcasts to the scores."""
    return (1, shape[1], *(1,) * (len(shape) - 2))


def through_log_softmax(log_prob: Blob, grad: Blob) -> Blob:
    """The gradient of the scores, from the gradient of log_softmax."""
    return grad - exp(log_prob) * reduce_sum(grad, [1])


one_hot, softmax_cross_entropy_loss = register(OneHot()), register(SoftmaxCrossEntropyLoss())
register(CheckLabels()), register(CheckCount())
