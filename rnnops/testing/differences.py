"""Central differences along one direction, and how to tell a kink from a slope.

With `f` at x - h, x and x + h the slope is `(f+ - f-) / 2h` and the bend `|(f+ - f0) / h - (f0 - f-) / h|`. A kink or a
jump within h of x makes the slope wrong by half the bend, wherever it lies. A smooth function bends too, by `h |f''|`,
but that compacts with h while its slope stays; at an eighth of h a kink either still bends as much or is out of reach
and the slope has moved. So a second look at `h / 8` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rnnops.testing.objective import Objective
from rnnops.types import Array

SHRINK = 8.0  # of the step, for the second look
BENT = 1e-3  # a bend, relative to the slope, from which on the second look is taken whatever the analytic value
MOVED = 0.05  # how much of the bend the slope of a smooth function may move by


@dataclass(frozen=True, eq=False)
class Probe:
    """A direction in one input.

    Args:
        label: `[0, 2]` for an element, `direction 1` for a random direction.
        direction: of the input's shape; 1 at one element, or a random vector of length 1.
    """

    name: str
    label: str
    direction: Array

    def step(self, array: Array, step: float) -> float:
        """The step, relative to the largest value that it moves."""
        return step * max(1.0, float(np.abs(array[self.direction != 0]).max(initial=0.0)))

    def along(self, grad: Array) -> float:
        """The derivative in this direction that a gradient says."""
        return float(np.vdot(grad, self.direction))

    def resampled(self, feeds: Mapping[str, Array], generator: np.random.Generator) -> dict[str, Array]:
        """Feeds with the elements that this probe moves at other places nearby: 1 to 10 % off, of the same sign."""
        array = feeds[self.name].copy()
        moved = self.direction != 0
        sizes = np.maximum(np.abs(array[moved]), 0.1) * generator.uniform(0.01, 0.1, int(moved.sum()))
        signs = np.where(generator.random(sizes.shape) < 0.5, -1.0, 1.0)
        array[moved] += sizes * signs
        return {**feeds, self.name: array}


@dataclass(frozen=True)
class Difference:
    """What central differences say of a probe; see the module."""

    slope: float
    bend: float

    @property
    def is_bent(self) -> bool:
        return not self.bend <= BENT * max(1.0, abs(self.slope))

    def explains(self, error: float) -> bool:
        """Whether a kink could be the reason of an error: it would be half the bend."""
        return not self.bend < error


@dataclass(frozen=True)
class Differentiator:
    """Takes differences of an objective around fixed feeds."""

    objective: Objective
    feeds: Mapping[str, Array]
    centre: list[Array]
    step: float

    def difference(self, probe: Probe, shrink: float = 1.0) -> Difference:
        """Three values of the objective along the probe."""
        array = self.feeds[probe.name]
        h = probe.step(array, self.step) / shrink
        ahead, behind = np.asarray(array + h * probe.direction), np.asarray(array - h * probe.direction)
        after, before = self._values(probe.name, ahead), self._values(probe.name, behind)
        forth, back = _width(ahead, array, probe), _width(array, behind, probe)
        change = self.objective.change
        slope = change(after, before) / (forth + back)
        return Difference(slope, abs(change(after, self.centre) / forth - change(self.centre, before) / back))

    def is_kink(self, probe: Probe, first: Difference) -> bool:
        """Whether the objective has a kink or a jump within a step of the feeds."""
        second = self.difference(probe, SHRINK)
        return not (second.bend <= first.bend / 2 and abs(second.slope - first.slope) <= MOVED * first.bend)

    def at(self, feeds: Mapping[str, Array]) -> Differentiator:
        """The same around other feeds."""
        return replace(self, feeds=feeds, centre=self.objective.values(feeds))

    def _values(self, name: str, array: Array) -> list[Array]:
        return self.objective.values({**self.feeds, name: array})


def _width(ahead: Array, behind: Array, probe: Probe) -> float:
    """How far a probe really went, after rounding."""
    return float(np.vdot(ahead - behind, probe.direction) / np.vdot(probe.direction, probe.direction))
