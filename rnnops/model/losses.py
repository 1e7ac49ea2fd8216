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
    """The mean of `-log softmax(scores)[label]`.

    Args:
        scores: [..., C] float, before the softmax; labels: [...] int32 or int64.
        ignore_index: a label that counts nothing, as past the end of a row; any other outside 0 to C - 1 is an error.
    """
    *rows, C = sizes_of(scores, 1, "[..., C]")
    if tuple(rows) != sizes_of(labels, 0, "[...]"):
        came = f"{labels.type} for scores {scores.type}"
        raise ModelError("labels are scores' shape without the classes", blob=labels.name, wanted=rows, came=came)
    flat = reshape(scores, [-1, C]), reshape(labels, [-1])
    return softmax_cross_entropy_loss(*flat, ignore_index=ignore_index)


def mean_squared_error(y: Blob, target: Blob) -> Blob:
    """The mean of `(y - target)^2`; both of one shape, float."""
    _check_alike(y, target)
    error = y - target
    return reduce_mean(error * error, keepdims=0)


def mean_absolute_error(y: Blob, target: Blob) -> Blob:
    """The mean of `|y - target|`; both of one shape, float."""
    _check_alike(y, target)
    return reduce_mean(abs_(y - target), keepdims=0)


def sigmoid_cross_entropy(logits: Blob, target: Blob) -> Blob:
    """The mean of `-target log s(logits) - (1 - target) log(1 - s(logits))`; both of one shape, float.

    Written as `softplus(logits) - target logits`, which overflows nowhere.
    """
    _check_alike(logits, target)
    return reduce_mean(softplus(logits) - target * logits, keepdims=0)


def _check_alike(y: Blob, target: Blob) -> None:
    """Raise ModelError where a loss would broadcast."""
    if sizes_of(y, 0, "[...]") != sizes_of(target, 0, "[...]"):
        raise ModelError("a loss of two shapes", blob=target.name, wanted=y.type, came=target.type)
