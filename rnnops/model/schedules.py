"""Learning-rate schedules: values that give the rate of update 0, 1, ...; any function of an integer does as well."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnops.errors import OptimizerError

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class StepDecay:
    """`rate * factor^(step // every)`."""

    rate: float
    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        require("every", self.every, self.every >= 1, "1 or more")

    def __call__(self, step: int) -> float:
        return self.rate * self.factor ** (step // self.every)


@dataclass(frozen=True)
class ExponentialDecay:
    """`rate * factor^step`."""

    rate: float
    factor: float

    def __call__(self, step: int) -> float:
        return float(self.rate * self.factor**step)


@dataclass(frozen=True)
class InverseRoot:
    """`rate / sqrt(1 + step / scale)`, which needs no end."""

    rate: float
    scale: float

    def __post_init__(self) -> None:
        require("scale", self.scale, self.scale > 0, "more than 0")

    def __call__(self, step: int) -> float:
        return self.rate / math.sqrt(1 + step / self.scale)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from `rate` down to `last` in so many steps, then `last` (Loshchilov and Hutter 2016)."""

    rate: float
    steps: int
    last: float = 0.0

    def __post_init__(self) -> None:
        require("steps", self.steps, self.steps >= 1, "1 or more")

    def __call__(self, step: int) -> float:
        turn = math.pi * min(step / self.steps, 1.0)
        return self.last + (self.rate - self.last) * (1 + math.cos(turn)) / 2


@dataclass(frozen=True)
class WarmUp:
    """Up to a rate linearly in so many steps, then another schedule from its beginning, or that rate."""

    steps: int
    then: Schedule | float

    def __post_init__(self) -> None:
        require("steps", self.steps, self.steps >= 1, "1 or more")

    def __call__(self, step: int) -> float:
        if step < self.steps:
            return (step + 1) / self.steps * rate_at(self.then, 0)
        return rate_at(self.then, step - self.steps)


def rate_at(rate: Schedule | float, step: int) -> float:
    """The learning rate of an update. Raises OptimizerError where it is no finite number of 0 or more."""
    value = rate(step) if callable(rate) else rate
    require(f"the learning_rate of step {step}", value, is_number(value) and value >= 0, "a finite number >= 0")
    return float(value)


def require(name: str, value: object, fits: bool, wanted: str) -> None:
    """Raise OptimizerError for a setting that is out of range."""
    if not fits:
        raise OptimizerError(f"{name} is out of range", wanted=wanted, came=repr(value))


def is_number(value: object) -> bool:
    """Whether a setting is a finite Python or NumPy number."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool) and _finite(value)


def _finite(value: Any) -> bool:
    return math.isfinite(value)
