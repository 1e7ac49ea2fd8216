"""Gradient clipping: by the norm of all gradients together, or element by element."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rnnops.errors import GradientNormError
from rnnops.model.schedules import require
from rnnops.types import Array

Arrays = dict[str, Array]


def global_norm(grads: Mapping[str, Array]) -> float:
    """The root of the sum of all squared elements, summed in float64."""
    with np.errstate(over="ignore"):
        return math.sqrt(sum(float(np.square(grad, dtype=np.float64).sum()) for grad in grads.values()))


def clip_by_global_norm(grads: Mapping[str, Array], limit: float) -> tuple[Arrays, float]:
    """Gradients scaled so that their global norm is at most `limit`, and the norm before (Pascanu and others 2013).

    Raises GradientNormError, with the name of a culprit, where the norm is not finite.
    """
    require("the norm limit", limit, limit > 0, "a number > 0")
    norm = global_norm(grads)
    if not math.isfinite(norm):
        culprit = next((name for name, grad in grads.items() if not np.isfinite(grad).all()), None)
        hint = "Use a smaller learning rate or a smaller norm limit."
        raise GradientNormError("the gradient norm is not finite", blob=culprit, came=norm, hint=hint)
    scale = float(limit) / norm if norm > limit else 1.0
    return {name: grad * scale if scale < 1 else grad for name, grad in grads.items()}, norm


def clip_by_value(grads: Mapping[str, Array], limit: float) -> Arrays:
    """Gradients whose elements are at most `limit` on either side of 0; NaN stays."""
    require("the value limit", limit, limit > 0, "a number > 0")
    return {name: np.clip(grad, -limit, limit) for name, grad in grads.items()}
