"""Learning-rate schedules: functions from the number 0, 1, ... of an update to its rate. Any other function works
too."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.errors import OptimizerError, named_settings

Schedule = Callable[[int], float]


@named_settings
@dataclass(frozen=True)
class StepDecay:
    """A rate that falls by a factor every so many steps: `rate * factor ** (step // every)`.

    Args:
        rate: of step 0.
        every: steps of one rate, 1 or more.
        factor: from one rate to the next.

    Raises:
        OptimizerError: a setting is out of range.
        ArgumentError: a setting that it does not have, or lacks.

    Example:
        >>> schedule = ro.model.StepDecay(0.1, every=10, factor=0.5)
        >>> schedule(0), schedule(9), schedule(10)
        (0.1, 0.1, 0.05)
    """

    rate: float
    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        _check_rates(rate=self.rate, factor=self.factor)
        require("every", self.every, is_number(self.every) and self.every >= 1, "1 or more")

    def __call__(self, step: int) -> float:
        """The rate of a step.

        Args:
            step: counted from 0.
        """
        return self.rate * self.factor ** (step // self.every)


@named_settings
@dataclass(frozen=True)
class ExponentialDecay:
    """A rate that falls by a factor at every step: `rate * factor ** step`.

    Args:
        rate: of step 0.
        factor: from one step to the next.

    Raises:
        OptimizerError: a setting is out of range.
        ArgumentError: a setting that it does not have, or lacks.

    Example:
        >>> schedule = ro.model.ExponentialDecay(0.1, 0.5)
        >>> schedule(0), schedule(1), schedule(2)
        (0.1, 0.05, 0.025)
    """

    rate: float
    factor: float

    def __post_init__(self) -> None:
        _check_rates(rate=self.rate, factor=self.factor)

    def __call__(self, step: int) -> float:
        """The rate of a step.

        Args:
            step: counted from 0.
        """
        return float(self.rate * self.factor**step)


@named_settings
@dataclass(frozen=True)
class InverseRoot:
    """A rate that falls as one over a root, which needs no end: `rate / sqrt(1 + step / scale)`.

    Args:
        rate: of step 0.
        scale: steps after which the rate is `rate / sqrt(2)`, above 0.

    Raises:
        OptimizerError: a setting is out of range.
        ArgumentError: a setting that it does not have, or lacks.

    Example:
        >>> schedule = ro.model.InverseRoot(0.1, scale=100)
        >>> schedule(0), schedule(300)
        (0.1, 0.05)
    """

    rate: float
    scale: float

    def __post_init__(self) -> None:
        _check_rates(rate=self.rate)
        require("scale", self.scale, is_number(self.scale) and self.scale > 0, "more than 0")

    def __call__(self, step: int) -> float:
        """The rate of a step.

        Args:
            step: counted from 0.
        """
        return self.rate / math.sqrt(1 + step / self.scale)


@named_settings
@dataclass(frozen=True)
class Cosine:
    """A rate that falls along half a cosine from `rate` to `last` in `steps` steps, and then stays at `last`.

    `last + (rate - last) * (1 + cos(pi * step / steps)) / 2` up to `steps` (Loshchilov and Hutter 2016, "SGDR",
    arXiv 1608.03983, equation 5, without restarts).

    Args:
        rate: of step 0.
        steps: after which the rate stays, 1 or more.
        last: the rate from there on.

    Raises:
        OptimizerError: a setting is out of range.
        ArgumentError: a setting that it does not have, or lacks.

    Example:
        >>> schedule = ro.model.Cosine(0.1, steps=100)
        >>> [round(schedule(step), 4) for step in (0, 50, 100, 500)]
        [0.1, 0.05, 0.0, 0.0]
    """

    rate: float
    steps: int
    last: float = 0.0

    def __post_init__(self) -> None:
        _check_rates(rate=self.rate, last=self.last)
        require("steps", self.steps, is_number(self.steps) and self.steps >= 1, "1 or more")

    def __call__(self, step: int) -> float:
        """The rate of a step.

        Args:
            step: counted from 0.
        """
        turn = math.pi * min(step / self.steps, 1.0)
        return self.last + (self.rate - self.last) * (1 + math.cos(turn)) / 2


@named_settings
@dataclass(frozen=True)
class WarmUp:
    """A rate that rises linearly for some steps, and then follows another schedule from its beginning, or stays.

    Step k of the first `steps` has the rate `(k + 1) / steps` times the first rate of the next schedule.

    Args:
        steps: 1 or more.
        then: a schedule, or a rate.

    Raises:
        OptimizerError: a setting is out of range.
        ArgumentError: a setting that it does not have, or lacks.

    Example:
        >>> schedule = ro.model.WarmUp(4, ro.model.ExponentialDecay(0.1, 0.5))
        >>> schedule(0), schedule(3), schedule(4), schedule(5)
        (0.025, 0.1, 0.1, 0.05)
    """

    steps: int
    then: Schedule | float

    def __post_init__(self) -> None:
        require("steps", self.steps, is_number(self.steps) and self.steps >= 1, "1 or more")
        rate_at(self.then, 0)

    def __call__(self, step: int) -> float:
        """The rate of a step.

        Args:
            step: counted from 0.
        """
        if step < self.steps:
            return (step + 1) / self.steps * rate_at(self.then, 0)
        return rate_at(self.then, step - self.steps)


def rate_at(rate: Schedule | float, step: int) -> float:
    """The learning rate of an update. Raises OptimizerError if it is not a finite number of 0 or more."""
    value = rate(step) if callable(rate) else rate
    require(f"the learning_rate of step {step}", value, is_number(value) and value >= 0, "a finite number >= 0")
    return float(value)


def require(name: str, value: object, fits: bool, wanted: str) -> None:
    """Raise OptimizerError for a setting that is out of range."""
    if not fits:
        raise OptimizerError(f"{name} is out of range", wanted=wanted, came=repr(value))


def _check_rates(**settings: object) -> None:
    """Raise OptimizerError for a setting that is not a finite number of 0 or more."""
    for name, value in settings.items():
        require(name, value, is_number(value) and value >= 0, "a finite number >= 0")  # type: ignore[operator]


def is_number(value: Any) -> bool:
    """True if a setting is a finite Python or NumPy number."""
    return is_real(value) and math.isfinite(value)


def is_real(value: object) -> bool:
    """True if a setting is a Python or NumPy number, finite or not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
