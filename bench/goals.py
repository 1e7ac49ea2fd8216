"""What is wanted of the numbers of a case: a goal turns measured values into a figure that is met or missed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from bench.counting import Work

OURS = "rnnops"
PEAK = "peak"
SHARE_OF_PEAK, SECONDS_AN_ELEMENT = 0.8, 1e-9  # what a cell nobody has seen before is estimated at


@dataclass(frozen=True)
class Measured:
    """A number of one contender.

    Args:
        value: median of `rounds`; None where the contender is missing, and `missing` says why.
        prepare_seconds: until the first result, compilers included.
    """

    label: str
    value: float | None
    unit: str = "s"
    rounds: tuple[float, ...] = ()
    prepare_seconds: float = 0.0
    work: Work | None = None
    missing: str = ""


@dataclass(frozen=True)
class Figure:
    """A number made of measured ones, and what it should be.

    Args:
        value: None where something it is made of is missing.
        goal: None where the figure is for information.
    """

    name: str
    value: float | None
    goal: float | None = None
    at_least: bool = True
    unit: str = ""

    @property
    def met(self) -> bool:
        if self.goal is None:
            return True
        if self.value is None:
            return False
        return self.value >= self.goal if self.at_least else self.value <= self.goal


Table = Mapping[str, Measured]


class Goal(Protocol):
    def figure(self, table: Table) -> Figure: ...


def known(table: Table, *labels: str) -> list[float] | None:
    """Values of contenders; None where one of them has none."""
    values = [table[label].value if label in table else None for label in labels]
    return None if None in values else [value for value in values if value is not None]


@dataclass(frozen=True)
class Speedup:
    """The time of the fastest of some peers / our time, at least `goal`."""

    peers: tuple[str, ...]
    goal: float | None
    ours: str = OURS

    def figure(self, table: Table) -> Figure:
        values = known(table, self.ours, *self.peers)
        value = min(values[1:]) / values[0] if values else None
        peers = " or ".join(self.peers)
        return Figure(f"{peers} / {self.ours}", value, self.goal)


@dataclass(frozen=True)
class Ratio:
    """The value of one contender / that of another, at most `goal`."""

    label: str
    other: str
    goal: float | None

    def figure(self, table: Table) -> Figure:
        values = known(table, self.label, self.other)
        value = values[0] / values[1] if values else None
        return Figure(f"{self.label} / {self.other}", value, self.goal, at_least=False)


@dataclass(frozen=True)
class AtMost:
    """The value itself."""

    label: str
    goal: float | None

    def figure(self, table: Table) -> Figure:
        values = known(table, self.label)
        return Figure(self.label, values[0] if values else None, self.goal, False, table[self.label].unit)


@dataclass(frozen=True)
class Extra:
    """How much longer one contender takes than another, in the time of a third."""

    label: str
    other: str
    allowance: str
    goal: float

    def figure(self, table: Table) -> Figure:
        values = known(table, self.label, self.other, self.allowance)
        value = (values[0] - values[1]) / values[2] if values else None
        return Figure(f"({self.label} - {self.other}) / {self.allowance}", value, self.goal, at_least=False)


@dataclass(frozen=True)
class OfPeak:
    """Multiply-adds a second of the products alone / the machine's peak."""

    goal: float | None
    label: str = OURS

    def figure(self, table: Table) -> Figure:
        values, rate = known(table, self.label), flops_a_second(table, PEAK)
        ours = table[self.label].work
        value = ours.flops / values[0] / rate if values and rate and ours else None
        return Figure(f"{self.label}, share of peak", value, self.goal)


@dataclass(frozen=True)
class OfEstimate:
    """Time / (products at 0.8 of the peak + 1 ns for each elementwise result)."""

    label: str
    goal: float

    def figure(self, table: Table) -> Figure:
        values, rate, work = known(table, self.label), flops_a_second(table, PEAK), table[self.label].work
        value = None
        if values and rate and work:
            value = values[0] / (work.flops / (SHARE_OF_PEAK * rate) + work.elements * SECONDS_AN_ELEMENT)
        return Figure(f"{self.label} / estimate", value, self.goal, at_least=False)


@dataclass(frozen=True)
class OverPairs:
    """The time of a peer / ours over several pairs that are there: the median of them, or the least.

    Args:
        pairs: (ours, peer).
    """

    pairs: tuple[tuple[str, str], ...]
    goal: float
    least: bool = False

    def figure(self, table: Table) -> Figure:
        found = [values[1] / values[0] for pair in self.pairs if (values := known(table, *pair))]
        value = (min if self.least else median)(found) if found else None
        return Figure(f"{'least' if self.least else 'median'} of {len(found)} ratios", value, self.goal)


@dataclass(frozen=True)
class OfSum:
    """The value of one contender / the sum of others, at most `goal`."""

    label: str
    parts: tuple[str, ...]
    goal: float

    def figure(self, table: Table) -> Figure:
        values = known(table, self.label, *self.parts)
        value = values[0] / sum(values[1:]) if values else None
        return Figure(f"{self.label} / ({' + '.join(self.parts)})", value, self.goal, at_least=False)


@dataclass(frozen=True)
class Added:
    """How much longer one contender takes than another, in seconds."""

    label: str
    other: str
    goal: float | None

    def figure(self, table: Table) -> Figure:
        values = known(table, self.label, self.other)
        value = values[0] - values[1] if values else None
        return Figure(f"{self.label} - {self.other}", value, self.goal, False, "s")


@dataclass(frozen=True)
class Linear:
    """Time a step with the most steps / the median over all numbers of steps.

    Args:
        steps: label -> T, fewest first.
    """

    steps: Mapping[str, int]
    goal: float

    def figure(self, table: Table) -> Figure:
        values = known(table, *self.steps)
        a_step = [value / T for value, T in zip(values or (), self.steps.values(), strict=False)]
        value = a_step[-1] / median(a_step) if a_step else None
        return Figure("time a step, most steps / median", value, self.goal, at_least=False)


def flops_a_second(table: Table, label: str) -> float | None:
    values = known(table, label)
    work = table[label].work if label in table else None
    return work.flops / values[0] if values and work else None
