"""Losses: functions of a model's output and of what it should be, each one number, the mean over all that counts."""

from __future__ import annotations

from rnnops.blob import Blob
from rnnops.errors import ModelError
from rnnops.model.layer import sizes_of
from rnnops.ops.activation import softplus
from rnnops.ops.arithmetic import abs as abs_
from rnnops.ops.loss import softmax_cross_entropy_loss
from rnnops.ops.movement import reshape
from rnnops.ops.reduction import reduce_mean


def softmax_cross_entropy(scores: Blob, labels: Blob, ignore_index: int | None = None) -> Blob:
    """The mean of `-log(softmax(scores)[label])` over all labels that count.

    Args:
        scores: [..., C] float, before the softmax, of known sizes.
        labels: [...] int32 or int64.
        ignore_index: a label that counts nothing, as past the end of a row; any other outside 0 to C - 1 is an error of
            the run.

    Returns:
        A blob of one number.

    Raises:
        ModelError: labels of another shape, or sizes that are not known.
        TypeRuleError: labels are no integers, or scores no floats.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> scores, labels = net.input("scores", shape=(2, 4)), net.input("labels", "int32", shape=(2,))
        >>> net.outputs(loss=ro.model.softmax_cross_entropy(scores, labels, ignore_index=-1))
        >>> run = ro.compile(net, device="reference")
        >>> round(float(np.exp(run(scores=np.zeros((2, 4)), labels=np.array([3, -1], "int32"))["loss"])), 6)
        4.0
    """
    *rows, C = sizes_of(scores, 1, "[..., C]")
    if tuple(rows) != sizes_of(labels, 0, "[...]"):
        came = f"{labels.type} for scores {scores.type}"
        raise ModelError("labels are scores' shape without the classes", blob=labels.name, wanted=rows, came=came)
    flat = reshape(scores, [-1, C]), reshape(labels, [-1])
    return softmax_cross_entropy_loss(*flat, ignore_index=ignore_index)


def mean_squared_error(y: Blob, target: Blob) -> Blob:
    """The mean of `(y - target) ** 2`.

    Args:
        y: any shape, float, of known sizes.
        target: of the same shape.

    Returns:
        A blob of one number.

    Raises:
        ModelError: two shapes, or sizes that are not known.
        TypeRuleError: y and target are not of one float dtype.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> net.outputs(loss=ro.model.mean_squared_error(net.input("y", shape=(2,)), net.input("target", shape=(2,))))
        >>> run = ro.compile(net, device="reference")
        >>> float(run(y=np.array([0.0, 3.0]), target=np.array([1.0, 0.0]))["loss"])
        5.0
    """
    _check_alike(y, target)
    error = y - target
    return reduce_mean(error * error, keepdims=0)


def mean_absolute_error(y: Blob, target: Blob) -> Blob:
    """The mean of `|y - target|`.

    Args:
        y: any shape, float, of known sizes.
        target: of the same shape.

    Returns:
        A blob of one number.

    Raises:
        ModelError: two shapes, or sizes that are not known.
        TypeRuleError: y and target are not of one float dtype.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> net.outputs(loss=ro.model.mean_absolute_error(net.input("y", shape=(2,)), net.input("target", shape=(2,))))
        >>> run = ro.compile(net, device="reference")
        >>> float(run(y=np.array([0.0, 3.0]), target=np.array([1.0, 0.0]))["loss"])
        2.0
    """
    _check_alike(y, target)
    return reduce_mean(abs_(y - target), keepdims=0)


def sigmoid_cross_entropy(logits: Blob, target: Blob) -> Blob:
    """The mean of `-target * log(sigmoid(logits)) - (1 - target) * log(1 - sigmoid(logits))`.

    Written as `softplus(logits) - target * logits`, which overflows nowhere.

    Args:
        logits: any shape, float, before the sigmoid, of known sizes.
        target: of the same shape, probabilities from 0 to 1.

    Returns:
        A blob of one number.

    Raises:
        ModelError: two shapes, or sizes that are not known.
        TypeRuleError: logits and target are not of one float dtype.

    Example:
        >>> net = ro.Net("net", sizes_for="float64")
        >>> logits, target = net.input("logits", shape=(2,)), net.input("target", shape=(2,))
        >>> net.outputs(loss=ro.model.sigmoid_cross_entropy(logits, target))
        >>> run = ro.compile(net, device="reference")
        >>> round(float(np.exp(run(logits=np.zeros(2), target=np.array([0.0, 1.0]))["loss"])), 6)
        2.0
    """
    _check_alike(logits, target)
    return reduce_mean(softplus(logits) - target * logits, keepdims=0)


def _check_alike(y: Blob, target: Blob) -> None:
    """Raise ModelError where a loss would broadcast."""
    if sizes_of(y, 0, "[...]") != sizes_of(target, 0, "[...]"):
        raise ModelError("a loss of two shapes", blob=target.name, wanted=y.type, came=target.type)
