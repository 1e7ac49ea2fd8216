"""Optimizers: SGD, Adam and AdamW, as values; parameters, gradients and state are dicts of arrays.

Nothing is changed in place: arrays that a run still borrows stay as they are. A state is a flat dict of arrays, so that
it can be saved as it is: `step`, how many updates there were, which schedules go by, and for each parameter what the
optimizer keeps of it, as `mean/<name>`; Adam also counts updates by parameter (`updates/<name>`), as some may be frozen
for a while. Counts are int64 without dimensions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rnnops.errors import OptimizerError
from rnnops.model.clipping import Arrays, clip_by_global_norm, clip_by_value
from rnnops.model.schedules import Schedule, is_number, rate_at, require
from rnnops.types import Array, Type, type_of

UPDATES = "updates"  # how often a parameter was updated


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

    def state_types(self, params: Mapping[str, Array]) -> dict[str, Type]:
        """The arrays of a state."""
        count = Type("int64", ())
        found = {"step": count}
        for name, value in params.items():
            own = {moment: count if moment == UPDATES else type_of(value) for moment in self.moments}
            found.update({f"{moment}/{name}": kind for moment, kind in own.items()})
        return found

    def start(self, params: Mapping[str, Array]) -> Arrays:
        """The state before the first update."""
        return {name: np.zeros(kind.shape, kind.dtype) for name, kind in self.state_types(params).items()}

    def update(
        self, params: Mapping[str, Array], grads: Mapping[str, Array], state: Mapping[str, Array]
    ) -> tuple[Arrays, Arrays]:
        """New parameters and a new state.

        Args:
            grads: of parameters, by name; those without one stay as they are, and what is kept of them.

        Raises OptimizerError where gradients or state are not like the parameters, GradientNormError where gradients
        are to be clipped by a norm that is not finite.
        """
        self._check(params, grads, state)
        step = int(state["step"])
        rate = rate_at(self.learning_rate, step)
        new_params, new_state = dict(params), {**state, "step": np.array(step + 1, np.int64)}
        for name, grad in self._clipped(grads).items():
            keys = [f"{moment}/{name}" for moment in self.moments]
            value, moments = self._updated(params[name], grad, [state[key] for key in keys], rate)
            new_params[name] = np.asarray(value, params[name].dtype)  # arithmetic without dimensions gives scalars
            new_state.update({key: np.asarray(new, state[key].dtype) for key, new in zip(keys, moments, strict=True)})
        return new_params, new_state

    @abstractmethod
    def _updated(self, value: Array, grad: Array, moments: list[Array], rate: float) -> tuple[Array, list[Array]]:
        """A parameter and its moments after an update."""

    def _check(self, params: Mapping[str, Array], grads: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """Refuse what NumPy would broadcast or leave out."""
        types = self.state_types(params)
        _check_names("gradients", set(grads), set(params), complete=False)
        _check_names("state", set(state), set(types))
        _check_types(grads, {name: type_of(array) for name, array in params.items()})
        _check_types(state, types)
        counts = [name for name, kind in types.items() if kind == Type("int64", ())]
        negative = next((name for name in counts if state[name] < 0), None)
        require(f"{negative} of the state", negative and state[negative], negative is None, "0 or more")

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
        require("momentum", self.momentum, is_number(self.momentum) and 0 <= self.momentum < 1, "0 <= momentum < 1")
        require("nesterov", self.nesterov, not self.nesterov or self.momentum > 0, "a momentum above 0 beside it")

    @property
    def moments(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def _updated(self, value: Array, grad: Array, moments: list[Array], rate: float) -> tuple[Array, list[Array]]:
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
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            require(name, value, is_number(value) and 0 <= value < 1, f"0 <= {name} < 1")
        require("epsilon", self.epsilon, is_number(self.epsilon) and self.epsilon > 0, "a finite number > 0")

    @property
    def moments(self) -> tuple[str, ...]:
        return ("mean", "square", UPDATES)

    def _updated(self, value: Array, grad: Array, moments: list[Array], rate: float) -> tuple[Array, list[Array]]:
        grad = grad + self.weight_decay * value if self.weight_decay else grad
        change, moments = self._change(grad, moments)
        return value - rate * change, moments

    def _change(self, grad: Array, moments: list[Array]) -> tuple[Array, list[Array]]:
        beta1, beta2 = float(self.beta1), float(self.beta2)  # NumPy's would widen float32
        count = int(moments[2]) + 1
        mean = beta1 * moments[0] + (1 - beta1) * grad
        square = beta2 * moments[1] + (1 - beta2) * np.square(grad)
        root = np.sqrt(square / (1 - beta2**count)) + float(self.epsilon)
        return mean / (1 - beta1**count) / root, [mean, square, np.array(count)]


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decay apart from the gradient: `p = p - rate (change + weight_decay p)` (arXiv 1711.05101)."""

    weight_decay: float = 0.01

    def _updated(self, value: Array, grad: Array, moments: list[Array], rate: float) -> tuple[Array, list[Array]]:
        change, moments = self._change(grad, moments)
        return value - rate * (change + self.weight_decay * value), moments


def _check_names(what: str, came: set[str], wanted: set[str], complete: bool = True) -> None:
    missing, unknown = sorted(wanted - came) if complete else [], sorted(came - wanted)
    if missing or unknown:
        raise OptimizerError(f"the {what} do not fit the parameters; missing: {missing}, unknown: {unknown}")


def _check_types(came: Mapping[str, Array], wanted: Mapping[str, Type]) -> None:
    for name, array in came.items():
        if type_of(array) != wanted[name]:
            problem = "gradient or state is not like its parameter"
            raise OptimizerError(problem, blob=name, wanted=wanted[name], came=type_of(array))
