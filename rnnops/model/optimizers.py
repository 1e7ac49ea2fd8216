"""Optimizers: SGD, Adam and AdamW, as values; parameters, gradients and state are dicts of arrays.

Nothing is changed in place: arrays that a run still borrows stay as they are. A state is a flat dict of arrays, so that
it can be saved as it is: `step` (an int64 without dimensions) and one array like each parameter for each of the
optimizer's `moments`, as `mean/<name>`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rnnops.errors import OptimizerError
from rnnops.model.clipping import Arrays, clip_by_global_norm, clip_by_value
from rnnops.model.schedules import Schedule, is_number, rate_at, require
from rnnops.types import Array


@dataclass(frozen=True)
class Optimizer(ABC):
    """Base of all optimizers.

    Args:
        learning_rate: a number, or a schedule: a function of the update's number 0, 1, ...
        weight_decay: how much of a parameter is taken off it; subclasses say how.
        max_norm: limit of the global norm of the gradients, None for none.
        max_value: limit of each element of the gradients, None for none; it is kept first.
    """

    learning_rate: Schedule | float
    weight_decay: float = 0.0
    max_norm: float | None = None
    max_value: float | None = None

    def __post_init__(self) -> None:
        rate_at(self.learning_rate, 0)
        require("weight_decay", self.weight_decay, is_number(self.weight_decay) and self.weight_decay >= 0, "0 or more")
        for name in ("max_norm", "max_value"):
            limit = getattr(self, name)
            require(name, limit, limit is None or (is_number(limit) and limit > 0), "a number > 0, or None")

    @property
    def moments(self) -> tuple[str, ...]:
        """What is kept of each parameter from update to update."""
        return ()

    def start(self, params: Mapping[str, Array]) -> Arrays:
        """The state before the first update."""
        state: Arrays = {"step": np.zeros((), np.int64)}
        for name, value in params.items():
            state.update({f"{moment}/{name}": np.zeros_like(value) for moment in self.moments})
        return state

    def update(
        self, params: Mapping[str, Array], grads: Mapping[str, Array], state: Mapping[str, Array]
    ) -> tuple[Arrays, Arrays]:
        """New parameters and a new state.

        Raises OptimizerError where gradients or state are not like the parameters, GradientNormError where gradients
        are to be clipped by a norm that is not finite.
        """
        _check_arrays(self.moments, params, grads, state)
        step = int(state["step"])
        rate = rate_at(self.learning_rate, step)
        new_params: Arrays = {}
        new_state: Arrays = {"step": np.array(step + 1, np.int64)}
        for name, grad in self._clipped(grads).items():
            moments = [state[f"{moment}/{name}"] for moment in self.moments]
            value, moments = self._updated(params[name], grad, moments, rate, step)
            dtype = params[name].dtype
            new_params[name] = np.asarray(value, dtype)  # arithmetic on arrays without dimensions gives scalars
            for moment, array in zip(self.moments, moments, strict=True):
                new_state[f"{moment}/{name}"] = np.asarray(array, dtype)
        return new_params, new_state

    @abstractmethod
    def _updated(
        self, value: Array, grad: Array, moments: list[Array], rate: float, step: int
    ) -> tuple[Array, list[Array]]:
        """A parameter and its moments after update number `step`."""

    def _clipped(self, grads: Mapping[str, Array]) -> Mapping[str, Array]:
        if self.max_value is not None:
            grads = clip_by_value(grads, self.max_value)
        return grads if self.max_norm is None else clip_by_global_norm(grads, self.max_norm)[0]


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent, with momentum as PyTorch and SINGA write it: `v = momentum v + g`, `p = p - rate v`.

    Args:
        weight_decay: this much of the parameter is added to its gradient.
        momentum: 0 for none; nesterov: `p = p - rate (g + momentum v)` (Sutskever and others 2013).
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require("momentum", self.momentum, 0 <= self.momentum < 1, "0 <= momentum < 1")
        require("nesterov", self.nesterov, not self.nesterov or self.momentum > 0, "a momentum above 0 beside it")

    @property
    def moments(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def _updated(
        self, value: Array, grad: Array, moments: list[Array], rate: float, step: int
    ) -> tuple[Array, list[Array]]:
        grad = grad + self.weight_decay * value if self.weight_decay else grad
        if not self.momentum:
            return value - rate * grad, []
        velocity = self.momentum * moments[0] + grad
        change = grad + self.momentum * velocity if self.nesterov else velocity
        return value - rate * change, [velocity]


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2014, algorithm 1).

    Args:
        weight_decay: this much of the parameter is added to its gradient.
        epsilon: added to the root of the bias-corrected mean square.
    """

    learning_rate: Schedule | float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        require("beta1", self.beta1, 0 <= self.beta1 < 1, "0 <= beta1 < 1")
        require("beta2", self.beta2, 0 <= self.beta2 < 1, "0 <= beta2 < 1")
        require("epsilon", self.epsilon, self.epsilon > 0, "more than 0")

    @property
    def moments(self) -> tuple[str, ...]:
        return ("mean", "square")

    def _updated(
        self, value: Array, grad: Array, moments: list[Array], rate: float, step: int
    ) -> tuple[Array, list[Array]]:
        grad = grad + self.weight_decay * value if self.weight_decay else grad
        change, moments = self._change(grad, moments, step)
        return value - rate * change, moments

    def _change(self, grad: Array, moments: list[Array], step: int) -> tuple[Array, list[Array]]:
        beta1, beta2 = float(self.beta1), float(self.beta2)  # NumPy's would widen float32
        mean = beta1 * moments[0] + (1 - beta1) * grad
        square = beta2 * moments[1] + (1 - beta2) * np.square(grad)
        root = np.sqrt(square / (1 - beta2 ** (step + 1))) + float(self.epsilon)
        return mean / (1 - beta1 ** (step + 1)) / root, [mean, square]


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decay apart from the gradient: `p = p - rate (change + weight_decay p)` (arXiv 1711.05101)."""

    weight_decay: float = 0.01

    def _updated(
        self, value: Array, grad: Array, moments: list[Array], rate: float, step: int
    ) -> tuple[Array, list[Array]]:
        change, moments = self._change(grad, moments, step)
        return value - rate * (change + self.weight_decay * value), moments


def _check_arrays(
    moments: tuple[str, ...], params: Mapping[str, Array], grads: Mapping[str, Array], state: Mapping[str, Array]
) -> None:
    """Refuse what NumPy would broadcast or leave out."""
    _check_names("gradients", set(grads), set(params))
    _check_names("state", set(state), {"step"} | {f"{moment}/{name}" for moment in moments for name in params})
    for name, value in params.items():
        for array in (grads[name], *(state[f"{moment}/{name}"] for moment in moments)):
            if array.shape != value.shape or array.dtype != value.dtype:
                wanted, came = (f"{like.dtype} {like.shape}" for like in (value, array))
                raise OptimizerError("gradient or state is not like its parameter", blob=name, wanted=wanted, came=came)


def _check_names(what: str, came: set[str], wanted: set[str]) -> None:
    if came != wanted:
        missing, unknown = sorted(wanted - came), sorted(came - wanted)
        raise OptimizerError(f"the {what} do not fit the parameters; missing: {missing}, unknown: {unknown}")
