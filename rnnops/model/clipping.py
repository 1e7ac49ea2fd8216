"""Gradient clipping: by the norm of all gradients together, or element by element."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnops.compiler.buffers.memory import on_host
from rnnops.errors import GradientNormError, OptimizerError
from rnnops.model.schedules import is_real, require
from rnnops.types import Array

Arrays = dict[str, Array]


def global_norm(grads: Mapping[str, Array]) -> float:
    """The root of the sum of all squared elements of all gradients, summed in float64.

    Args:
        grads: arrays by name.

    Returns:
        A number, infinite where a gradient is, NaN where one has a NaN.

    Raises:
        OptimizerError: grads are no arrays by name.

    Example:
        >>> ro.model.global_norm({"w": np.array([3.0, 0.0]), "b": np.array([4.0])})
        5.0
    """
    _check_arrays(grads)
    with np.errstate(over="ignore"):
        return math.sqrt(sum(float(np.square(grad, dtype=np.float64).sum()) for grad in grads.values()))


def clip_by_global_norm(grads: Mapping[str, Array], limit: float) -> tuple[Arrays, float]:
    """Gradients scaled so that their global norm is at most a limit, and the norm before.

    Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent neural networks", algorithm 1: where the
    norm is above the limit, all gradients are multiplied by `limit / norm`; else they are given back as they are.

    Args:
        grads: arrays by name.
        limit: of the norm, above 0.

    Returns:
        Arrays by name, and the norm of those that were given.

    Raises:
        GradientNormError: the norm is not finite; it names a culprit.
        OptimizerError: the limit is no number above 0, or grads are no arrays by name.

    Example:
        >>> clipped, norm = ro.model.clip_by_global_norm({"w": np.array([3.0, 4.0])}, 1.0)
        >>> clipped["w"], norm
        (array([0.6, 0.8]), 5.0)
    """
    require("the norm limit", limit, is_real(limit) and limit > 0, "a number > 0")
    norm = global_norm(grads)
    check_norm(grads, norm)
    scale = float(limit) / norm if norm > limit else 1.0
    return {name: grad * scale if scale < 1 else grad for name, grad in grads.items()}, norm


def check_norm(grads: Mapping[str, Any], norm: float) -> None:
    """Raise GradientNormError where a norm is not finite, with a culprit among gradients, of any device."""
    if not math.isfinite(norm):
        culprit = next((name for name, grad in grads.items() if not np.isfinite(on_host(grad)).all()), None)
        hint = "Use a smaller learning rate or a smaller norm limit."
        raise GradientNormError("the gradient norm is not finite", blob=culprit, came=norm, hint=hint)


def clip_by_value(grads: Mapping[str, Array], limit: float) -> Arrays:
    """Gradients whose elements are at most a limit on either side of 0; NaN stays.

    Args:
        grads: arrays by name.
        limit: of each element, above 0.

    Returns:
        Arrays by name.

    Raises:
        OptimizerError: the limit is no number above 0, or grads are no arrays by name.

    Example:
        >>> ro.model.clip_by_value({"w": np.array([-3.0, 0.5])}, 1.0)["w"]
        array([-1. ,  0.5])
    """
    require("the value limit", limit, is_real(limit) and limit > 0, "a number > 0")
    _check_arrays(grads)
    return {name: np.clip(grad, -limit, limit) for name, grad in grads.items()}


def _check_arrays(grads: object) -> None:
    """Raise OptimizerError for gradients that are no arrays by name."""
    if not isinstance(grads, Mapping):
        raise OptimizerError("gradients are no dict", wanted="arrays by name", came=type(grads).__name__)
    for name, grad in grads.items():
        if not isinstance(grad, np.ndarray | np.generic) or grad.dtype.kind not in "biuf":
            raise OptimizerError("this gradient is no array of numbers", blob=str(name), came=type(grad).__name__)
