"""Optimizers and gradient clipping.

**Optimizers** are SGD, Adam and AdamW. An optimizer is a value: it has settings only. Parameters, gradients and states
are dicts of arrays. Nothing is changed in place, because a run may still read the old arrays.

A state is a flat dict of arrays, so that it can be saved directly. `step` is the number of updates; schedules depend on
it. For each parameter there are arrays such as `mean/<name>`. Adam also counts updates of each parameter
(`updates/<name>`), because some may be frozen for a while. Counts are int64 without dimensions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.compiler.memory.memory import on_host
from rnnops.errors import Attributes, GradientNormError, OptimizerError, check_flags, named_settings
from rnnops.model.schedules import Schedule, is_number, is_real, rate_at, require
from rnnops.types import Array, Type, type_of

Arrays = dict[str, Array]


def global_norm(grads: Mapping[str, Array]) -> float:
    """The root of the sum of all squared elements of all gradients, summed in float64.

    Args:
        grads: arrays by name.

    Returns:
        A number. It is NaN if a gradient has a NaN, and infinite if one has an infinity.

    Raises:
        OptimizerError: grads are not arrays by name.

    Example:
        >>> ro.model.global_norm({"w": np.array([3.0, 0.0]), "b": np.array([4.0])})
        5.0
    """
    _check_arrays(grads)
    with np.errstate(over="ignore"):
        return math.sqrt(sum(float(np.square(grad, dtype=np.float64).sum()) for grad in grads.values()))


def clip_by_global_norm(grads: Mapping[str, Array], limit: float) -> tuple[Arrays, float]:
    """Gradients scaled so that their global norm is at most a limit; and the norm before scaling.

    Pascanu, Mikolov and Bengio 2013, "On the difficulty of training recurrent neural networks", algorithm 1: if the
    norm is above the limit, all gradients are multiplied by `limit / norm`; else they are returned unchanged.

    Args:
        grads: arrays by name.
        limit: limit of the norm, above 0.

    Returns:
        Arrays by name, and the norm of the given gradients.

    Raises:
        GradientNormError: the norm is not finite; the error names a gradient that causes it.
        OptimizerError: the limit is not a number above 0, or grads are not arrays by name.

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
    """Raise GradientNormError if a norm is not finite, with the name of a gradient that causes it."""
    if not math.isfinite(norm):
        culprit = next((name for name, grad in grads.items() if not np.isfinite(on_host(grad)).all()), None)
        hint = "Use a smaller learning rate or a smaller norm limit."
        raise GradientNormError("the gradient norm is not finite", blob=culprit, came=norm, hint=hint)


def clip_by_value(grads: Mapping[str, Array], limit: float) -> Arrays:
    """Gradients with each element clipped to the range from `-limit` to `limit`; NaN stays.

    Args:
        grads: arrays by name.
        limit: limit of each element, above 0.

    Returns:
        Arrays by name.

    Raises:
        OptimizerError: the limit is not a number above 0, or grads are not arrays by name.

    Example:
        >>> ro.model.clip_by_value({"w": np.array([-3.0, 0.5])}, 1.0)["w"]
        array([-1. ,  0.5])
    """
    require("the value limit", limit, is_real(limit) and limit > 0, "a number > 0")
    _check_arrays(grads)
    return {name: np.clip(grad, -limit, limit) for name, grad in grads.items()}


def _check_arrays(grads: object) -> None:
    """Raise OptimizerError for gradients that are not arrays by name."""
    if not isinstance(grads, Mapping):
        raise OptimizerError("gradients are not a dict", wanted="arrays by name", came=type(grads).__name__)
    for name, grad in grads.items():
        if not isinstance(grad, np.ndarray | np.generic) or grad.dtype.kind not in "biuf":
            raise OptimizerError("this gradient is not an array of numbers", blob=str(name), came=type(grad).__name__)


UPDATES = "updates"  # how often a parameter was updated


@dataclass(frozen=True)
class Optimizer(Attributes, ABC):
    """Base of all optimizers: values that make new parameters and a new state from parameters, gradients and a state.

    Gradients are clipped first, by value, then by norm. Then the rule of a subclass computes the new parameter from the
    old one, its gradient and the rate of this update. Optimizers with equal settings are equal.

    Args:
        learning_rate: a number of 0 or more, or a schedule: a function of the number 0, 1, ... of an update.
        weight_decay: the part of a parameter by which it shrinks; the rule is that of the subclass.
        max_norm: limit of the global norm of the gradients (`clip_by_global_norm`); None for no limit.
        max_value: limit of each element of the gradients (`clip_by_value`), applied first; None for no limit.

    Raises:
        OptimizerError: a setting is out of range.
        ArgumentError: a setting is unknown or missing.

    Example:
        >>> issubclass(ro.model.Adam, ro.model.Optimizer), ro.model.SGD(0.1) == ro.model.SGD(0.1)
        (True, True)
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
        """Names of the arrays that the optimizer keeps for each parameter."""
        return ()

    def state_types(self, params: Mapping[str, Array]) -> dict[str, Type]:
        """The arrays of a state, by name: dtypes and shapes.

        Args:
            params: arrays by name.
        """
        count = Type("int64", ())
        found = {"step": count}
        for name, value in params.items():
            own = {moment: count if moment == UPDATES else type_of(value) for moment in self.moments}
            found.update({f"{moment}/{name}": kind for moment, kind in own.items()})
        return found

    def start(self, params: Mapping[str, Array]) -> Arrays:
        """The state before the first update: zeros.

        Args:
            params: arrays by name.

        Returns:
            Arrays by name, namely `step` and the arrays of each parameter, such as `velocity/<name>`.
        """
        return {name: np.zeros(kind.shape, kind.dtype) for name, kind in self.state_types(params).items()}

    def update(
        self, params: Mapping[str, Array], grads: Mapping[str, Array], state: Mapping[str, Array]
    ) -> tuple[Arrays, Arrays]:
        """New parameters and a new state; nothing is changed in place.

        Args:
            params: arrays by name.
            grads: gradients by the names of parameters. Parameters without a gradient do not change, nor does their
                state.
            state: the state from `start`, or from the update before.

        Returns:
            Parameters and state, arrays by name.

        Raises:
            OptimizerError: gradients or state are not like the parameters.
            GradientNormError: gradients are clipped by norm, and the norm is not finite.
        """
        self._check(params, grads, state)
        numbers, new_params, new_state = self._numbers_of(grads, state), dict(params), self._counted(grads, state)
        for name, grad in self._clipped(grads).items():
            keys = self._kept(name)
            value, moments = self._updated(params[name], grad, [state[key] for key in keys], *numbers[name])
            new_params[name] = np.asarray(value, params[name].dtype)  # arithmetic without dimensions gives scalars
            new_state.update({key: np.asarray(new, state[key].dtype) for key, new in zip(keys, moments, strict=True)})
        return new_params, new_state

    @abstractmethod
    def _updated(self, value: Any, grad: Any, moments: list[Any], *numbers: Any) -> tuple[Any, list[Any]]:
        """A parameter and its moments after an update. They are arrays, or blobs, which a device compiles.

        Args:
            moments: the kept arrays of the parameter, without counts.
            numbers: the numbers of `_numbers`.
        """

    def _numbers(self, rate: float, count: int) -> tuple[float, ...]:
        """The numbers that change from update to update.

        Args:
            rate: learning rate of this update.
            count: number of updates of the parameter, this one included.
        """
        return (rate,)

    def _numbers_of(self, grads: Mapping[str, Array], state: Mapping[str, Array]) -> dict[str, tuple[float, ...]]:
        """`_numbers` for each parameter that has a gradient."""
        step = int(state["step"])
        rate = rate_at(self.learning_rate, step)
        return {name: self._numbers(rate, int(state.get(f"{UPDATES}/{name}", step)) + 1) for name in grads}

    def _kept(self, name: str) -> list[str]:
        """Names in a state of the kept arrays of a parameter, without counts."""
        return [f"{moment}/{name}" for moment in self.moments if moment != UPDATES]

    def _counted(self, grads: Mapping[str, Array], state: Mapping[str, Array]) -> Arrays:
        """A state with its counts after an update."""
        counts = ["step", *(f"{UPDATES}/{name}" for name in grads if UPDATES in self.moments)]
        return {**state, **{key: np.array(int(state[key]) + 1, np.int64) for key in counts}}

    def _check(self, params: Mapping[str, Array], grads: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """Raise OptimizerError for arrays that do not fit, which NumPy might broadcast."""
        types = self.state_types(params)
        _check_names("gradients", set(grads), set(params), complete=False)
        _check_names("state", set(state), set(types))
        _check_types(grads, {name: type_of(array) for name, array in params.items()})
        _check_types(state, types)
        _check_counts(state)

    def _clipped(self, grads: Mapping[str, Array]) -> Mapping[str, Array]:
        if self.max_value is not None:
            grads = clip_by_value(grads, self.max_value)
        return grads if self.max_norm is None else clip_by_global_norm(grads, self.max_norm)[0]


@named_settings
@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent, with momentum as PyTorch and SINGA write it.

    For a gradient g of a parameter p, with v zeros before the first update::

        g = g + weight_decay * p
        v = momentum * v + g
        p = p - rate * v                      # or, with nesterov, p - rate * (g + momentum * v)

    Nesterov's: Sutskever and others 2013, "On the importance of initialization and momentum in deep learning".

    Args:
        learning_rate, max_norm, max_value: as `Optimizer`'s.
        weight_decay: this much of the parameter is added to its gradient.
        momentum: from 0, for none, up to but not 1.
        nesterov: whether a step looks ahead; it needs a momentum above 0.

    Raises:
        OptimizerError: a setting is out of range.
        ArgumentError: a setting that it does not have, or lacks.

    Example:
        >>> sgd = ro.model.SGD(0.1, momentum=0.5)
        >>> params, grads = {"w": np.ones(2)}, {"w": np.array([1.0, -1.0])}
        >>> params, state = sgd.update(params, grads, sgd.start(params))
        >>> params, state = sgd.update(params, grads, state)
        >>> params["w"], int(state["step"])
        (array([0.75, 1.25]), 2)
    """

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require("momentum", self.momentum, is_number(self.momentum) and 0 <= self.momentum < 1, "0 <= momentum < 1")
        check_flags("SGD", nesterov=self.nesterov)
        require("nesterov", self.nesterov, not self.nesterov or self.momentum > 0, "a momentum above 0 beside it")

    @property
    def moments(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def _updated(self, value: Any, grad: Any, moments: list[Any], *numbers: Any) -> tuple[Any, list[Any]]:
        (rate,) = numbers
        grad = grad + self.weight_decay * value if self.weight_decay else grad
        if not self.momentum:
            return value - rate * grad, []
        velocity = self.momentum * moments[0] + grad
        change = grad + self.momentum * velocity if self.nesterov else velocity
        return value - rate * change, [velocity]


@named_settings
@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam, with moments corrected for their bias.

    For the gradient g of a parameter p in its update t, counted from 1, with m and s zeros before the first::

        g = g + weight_decay * p
        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * g ** 2
        p = p - rate * (m / (1 - beta1 ** t)) / (sqrt(s / (1 - beta2 ** t)) + epsilon)

    Kingma and Ba 2014, "Adam: a method for stochastic optimization", arXiv 1412.6980, algorithm 1. Updates are counted
    for each parameter, as some may be frozen for a while.

    Args:
        learning_rate, max_norm, max_value: as `Optimizer`'s.
        weight_decay: this much of the parameter is added to its gradient.
        beta1: of the mean, from 0 up to but not 1.
        beta2: of the mean square, from 0 up to but not 1.
        epsilon: added to the root of the corrected mean square, above 0.

    Raises:
        OptimizerError: a setting is out of range.
        ArgumentError: a setting that it does not have, or lacks.

    Example:
        >>> adam = ro.model.Adam(0.1)
        >>> params, grads = {"w": np.ones(2)}, {"w": np.array([5.0, -2.0])}
        >>> params, state = adam.update(params, grads, adam.start(params))
        >>> params["w"], sorted(state)
        (array([0.9, 1.1]), ['mean/w', 'square/w', 'step', 'updates/w'])
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

    def _numbers(self, rate: float, count: int) -> tuple[float, ...]:
        """The rate, and what corrects the mean and the mean square for their bias."""
        return rate, 1 - float(self.beta1) ** count, 1 - float(self.beta2) ** count

    def _updated(self, value: Any, grad: Any, moments: list[Any], *numbers: Any) -> tuple[Any, list[Any]]:
        grad = grad + self.weight_decay * value if self.weight_decay else grad
        change, moments = self._change(grad, moments, *numbers[1:])
        return value - numbers[0] * change, moments

    def _change(self, grad: Any, moments: list[Any], of_mean: Any, of_square: Any) -> tuple[Any, list[Any]]:
        beta1, beta2 = float(self.beta1), float(self.beta2)  # NumPy's would widen float32
        mean = beta1 * moments[0] + (1 - beta1) * grad
        square = beta2 * moments[1] + (1 - beta2) * np.square(grad)
        root = np.sqrt(square / of_square) + float(self.epsilon)
        return mean / of_mean / root, [mean, square]


@named_settings
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay that is not part of the gradient.

    With m, s and t as in `Adam`, for the gradient without decay::

        change = (m / (1 - beta1 ** t)) / (sqrt(s / (1 - beta2 ** t)) + epsilon)
        p = p - rate * (change + weight_decay * p)

    Loshchilov and Hutter 2017, "Decoupled weight decay regularization", arXiv 1711.05101; the decay goes with the rate,
    as PyTorch has it.

    Args:
        learning_rate, max_norm, max_value: as `Optimizer`'s.
        weight_decay: this much of the parameter, times the rate, is taken off it.
        beta1, beta2, epsilon: as `Adam`'s.

    Raises:
        OptimizerError: a setting is out of range.
        ArgumentError: a setting that it does not have, or lacks.

    Example:
        >>> adam = ro.model.AdamW(0.1, weight_decay=0.5)
        >>> params, grads = {"w": np.ones(2)}, {"w": np.array([5.0, -2.0])}
        >>> params, state = adam.update(params, grads, adam.start(params))
        >>> params["w"]
        array([0.85, 1.05])
    """

    weight_decay: float = 0.01

    def _updated(self, value: Any, grad: Any, moments: list[Any], *numbers: Any) -> tuple[Any, list[Any]]:
        change, moments = self._change(grad, moments, *numbers[1:])
        return value - numbers[0] * (change + self.weight_decay * value), moments


def _check_names(what: str, came: set[str], wanted: set[str], complete: bool = True) -> None:
    missing, unknown = sorted(wanted - came) if complete else [], sorted(came - wanted)
    if missing or unknown:
        raise OptimizerError(f"the {what} do not fit the parameters; missing: {missing}, unknown: {unknown}")


def _check_counts(state: Mapping[str, Array]) -> None:
    """Raise OptimizerError for a negative count."""
    counts = [name for name, array in state.items() if type_of(array) == Type("int64", ())]
    negative = next((name for name in counts if state[name] < 0), None)
    require(f"{negative} of the state", negative and state[negative], negative is None, "0 or more")


def _check_types(came: Mapping[str, Array], wanted: Mapping[str, Type]) -> None:
    for name, array in came.items():
        if not isinstance(array, np.ndarray | np.generic):
            raise OptimizerError("this is not an array", blob=name, wanted=wanted[name], came=type(array).__name__)
        if type_of(array) != wanted[name]:
            problem = "gradient or state is not like its parameter"
            raise OptimizerError(problem, blob=name, wanted=wanted[name], came=type_of(array))
