"""Adam (Kingma and Ba 2014, algorithm 1) and clipping by the global gradient norm, on dicts of arrays.

Nothing is changed in place: arrays that a net still borrows stay as they are. The state is a flat dict of arrays, so
that it goes into a checkpoint as it is: `step` (an int64 without dimensions), and `mean/<name>` and `square/<name>`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rnnops.errors import RnnopsError

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]


class OptimizerError(RnnopsError):
    """Settings, parameters, gradients or state of an optimizer do not fit."""


class GradientNormError(OptimizerError):
    """The global gradient norm is not finite."""


@dataclass(frozen=True)
class Adam:
    """Adam's settings; `epsilon` is added to the root of the bias-corrected mean square."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        _check_setting("learning_rate", self.learning_rate, 0 <= self.learning_rate < math.inf, "a finite number >= 0")
        _check_setting("beta1", self.beta1, 0 <= self.beta1 < 1, "0 <= beta1 < 1")
        _check_setting("beta2", self.beta2, 0 <= self.beta2 < 1, "0 <= beta2 < 1")
        _check_setting("epsilon", self.epsilon, 0 < self.epsilon < math.inf, "a finite number > 0")

    def start(self, params: Mapping[str, Array]) -> Arrays:
        """Return the state before the first update."""
        state: Arrays = {"step": np.zeros((), np.int64)}
        for name, value in params.items():
            state[f"mean/{name}"], state[f"square/{name}"] = np.zeros_like(value), np.zeros_like(value)
        return state

    def update(
        self,
        params: Mapping[str, Array],
        grads: Mapping[str, Array],
        state: Mapping[str, Array],
        learning_rate: float | None = None,
    ) -> tuple[Arrays, Arrays]:
        """Return new parameters and a new state; `learning_rate` overrides the setting for this update."""
        _check_arrays(params, grads, state)
        step = int(state["step"]) + 1
        rate = float(self.learning_rate if learning_rate is None else learning_rate)
        beta1, beta2, epsilon = float(self.beta1), float(self.beta2), float(self.epsilon)  # NumPy's would widen float32
        correction1, correction2 = 1 - beta1**step, 1 - beta2**step
        new_params: Arrays = {}
        new_state: Arrays = {"step": np.array(step, np.int64)}
        for name, value in params.items():
            mean = beta1 * state[f"mean/{name}"] + (1 - beta1) * grads[name]
            square = beta2 * state[f"square/{name}"] + (1 - beta2) * np.square(grads[name])
            change = rate / correction1 * mean / (np.sqrt(square / correction2) + epsilon)
            new_params[name] = np.asarray(value - change)  # arithmetic on arrays without dimensions gives scalars
            new_state[f"mean/{name}"], new_state[f"square/{name}"] = np.asarray(mean), np.asarray(square)
        return new_params, new_state


def global_norm(grads: Mapping[str, Array]) -> float:
    """Return the root of the sum of all squared elements, summed in float64."""
    with np.errstate(over="ignore"):
        return math.sqrt(sum(float(np.square(grad, dtype=np.float64).sum()) for grad in grads.values()))


def clip_by_global_norm(grads: Mapping[str, Array], limit: float) -> tuple[Arrays, float]:
    """Return gradients scaled so that their global norm is at most `limit`, and the norm before."""
    _check_setting("the norm limit", limit, limit > 0, "a number > 0")
    norm = global_norm(grads)
    if not math.isfinite(norm):
        culprit = next((name for name, grad in grads.items() if not np.isfinite(grad).all()), None)
        hint = "Use a smaller learning rate or a smaller norm limit."
        raise GradientNormError("the gradient norm is not finite", blob=culprit, came=norm, hint=hint)
    scale = float(limit) / norm if norm > limit else 1.0
    return {name: grad * scale if scale < 1 else grad for name, grad in grads.items()}, norm


def _check_setting(name: str, value: float, fits: bool, wanted: str) -> None:
    if not fits:
        raise OptimizerError(f"{name} is out of range", wanted=wanted, came=value)


def _check_arrays(params: Mapping[str, Array], grads: Mapping[str, Array], state: Mapping[str, Array]) -> None:
    """Refuse what NumPy would broadcast or leave out."""
    kinds = {"mean/", "square/"}
    _check_names("gradients", set(grads), set(params))
    _check_names("state", set(state), {"step"} | {kind + name for kind in kinds for name in params})
    for name, value in params.items():
        for array in (grads[name], *(state[kind + name] for kind in kinds)):
            if array.shape != value.shape or array.dtype != value.dtype:
                wanted, came = (f"{like.dtype} {like.shape}" for like in (value, array))
                raise OptimizerError("gradient or state is not like its parameter", blob=name, wanted=wanted, came=came)


def _check_names(what: str, came: set[str], wanted: set[str]) -> None:
    if came != wanted:
        missing, unknown = sorted(wanted - came), sorted(came - wanted)
        raise OptimizerError(f"the {what} do not fit the parameters; missing: {missing}, unknown: {unknown}")
