"""What is wanted of the numbers of a case: a goal turns measured values into a figure that is met or missed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from bench.counting import Work

OURS = "rnnops"
PEAK = "peak"
SHARE_OF_PEAK, SECONDS_AN_ELEMENT = 0.8, 1e-9  # what a cell nobody has seen before is estimated at


@dataclass(frozen=True)
class Measured:
    """What was measured of one contender.

    Args:
        value: median of `rounds`; None where the contender is missing, and `missing` says why.
        prepare_seconds: until the first result, compilers included.
        memory: bytes that a call on a CUDA device needs beside its feeds.
        grown: by how many bytes the device's free memory shrank at the first call, compiled code and pools included.
        floor: seconds of a step at least; `floor_of` says what for.
        error: the largest norm of a difference / norm, over outputs and gradients; None for the first one.
        source: of a number that others have published; empty for what was measured here.
    """

    label: str
    value: float | None
    unit: str = "s"
    rounds: tuple[float, ...] = ()
    prepare_seconds: float = 0.0
    work: Work | None = None
    missing: str = ""
    precision: str = "fp32"
    tf32: str = "off"
    algorithm: str = ""
    memory: int | None = None
    grown: int | None = None
    floor: float | None = None
    floor_of: str = ""
    error: float | None = None
    source: str = ""


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
Goal = Callable[[Table], Figure]


def known(table: Table, *labels: str) -> list[float] | None:
    """Values of contenders; None where one of them has none."""
    values = [table[label].value if label in table else None for label in labels]
    return None if None in values else [value for value in values if value is not None]


def goal_of(
    name: str,
    labels: tuple[str, ...],
    compute: Callable[..., float],
    goal: float | None,
    at_least: bool,
    unit: str = "",
) -> Goal:
    """A goal for what is computed from the values of contenders."""

    def figure(table: Table) -> Figure:
        values = known(table, *labels)
        return Figure(name, compute(*values) if values else None, goal, at_least, unit)

    return figure


def speedup(peers: tuple[str, ...], goal: float | None, ours: str = OURS) -> Goal:
    """The time of the fastest of some peers / our time, at least `goal`."""
    name = f"{' or '.join(peers)} / {ours}"
    return goal_of(name, (ours, *peers), lambda own, *others: min(others) / own, goal, True)


def ratio(label: str, other: str, goal: float | None) -> Goal:
    """The value of one contender / that of another, at most `goal`."""
    return goal_of(f"{label} / {other}", (label, other), lambda one, two: one / two, goal, False)


def extra(label: str, other: str, allowance: str, goal: float) -> Goal:
    """How much longer one contender takes than another, in the time of a third."""
    name = f"({label} - {other}) / {allowance}"
    return goal_of(name, (label, other, allowance), lambda one, two, allowed: (one - two) / allowed, goal, False)


def of_sum(label: str, parts: tuple[str, ...], goal: float) -> Goal:
    """The value of one contender / the sum of others, at most `goal`."""
    name = f"{label} / ({' + '.join(parts)})"
    return goal_of(name, (label, *parts), lambda one, *others: one / sum(others), goal, False)


def added(label: str, other: str, goal: float | None) -> Goal:
    """How much longer one contender takes than another, in seconds."""
    return goal_of(f"{label} - {other}", (label, other), lambda one, two: one - two, goal, False, "s")


def linear(steps: Mapping[str, int], goal: float) -> Goal:
    """Time a step with the most steps / the median over all numbers of steps.

    Args:
        steps: label -> T, fewest first.
    """

    def compute(*values: float) -> float:
        a_step = [value / T for value, T in zip(values, steps.values(), strict=True)]
        return a_step[-1] / median(a_step)

    return goal_of("time a step, most steps / median", tuple(steps), compute, goal, False)


def at_most(label: str, goal: float | None) -> Goal:
    """The value itself."""

    def figure(table: Table) -> Figure:
        return Figure(label, table[label].value, goal, False, table[label].unit)

    return figure


def of_peak(goal: float | None, label: str = OURS) -> Goal:
    """Multiply-adds a second of the products alone / the machine's peak."""

    def figure(table: Table) -> Figure:
        ours, peak = flops_a_second(table, label), flops_a_second(table, PEAK)
        return Figure(f"{label}, share of peak", ours / peak if ours and peak else None, goal)

    return figure


def of_estimate(label: str, goal: float) -> Goal:
    """Time / (products at 0.8 of the peak + 1 ns for each elementwise result)."""

    def figure(table: Table) -> Figure:
        values, rate, work = known(table, label), flops_a_second(table, PEAK), table[label].work
        value = None
        if values and rate and work:
            value = values[0] / (work.flops / (SHARE_OF_PEAK * rate) + work.elements * SECONDS_AN_ELEMENT)
        return Figure(f"{label} / estimate", value, goal, at_least=False)

    return figure


def beyond_products(label: str = OURS) -> Goal:
    """Time beyond that of the products at the peak, for each elementwise result, some of which are exponentials.

    Two cores with AVX-512 need about 0.1 ns for one: what is more is packing, calls, waiting, matrices from far.
    """

    def figure(table: Table) -> Figure:
        values, rate, work = known(table, label), flops_a_second(table, PEAK), table[label].work
        value = (values[0] - work.flops / rate) / work.elements * 1e9 if values and rate and work else None
        return Figure(f"{label}, ns beyond products at the peak for each elementwise result", value)

    return figure


def where_there(goal: Goal, peer: str) -> Goal:
    """A goal beside a peer that few have: without it the figure is for information."""

    def figure(table: Table) -> Figure:
        found = goal(table)
        return found if known(table, peer) else replace(found, goal=None)

    return figure


def either(goal: Goal, other: Goal) -> Goal:
    """The first of two figures, or the other one where that alone meets its goal."""

    def figure(table: Table) -> Figure:
        first, second = goal(table), other(table)
        return second if second.met and not first.met else first

    return figure


def over_pairs(pairs: tuple[tuple[str, str], ...], goal: float, least: bool = False) -> Goal:
    """The time of a peer / ours over several pairs that are there: the median of them, or the least.

    Args:
        pairs: (ours, peer).
    """

    def figure(table: Table) -> Figure:
        found = [values[1] / values[0] for pair in pairs if (values := known(table, *pair))]
        value = (min if least else median)(found) if found else None
        return Figure(f"{'least' if least else 'median'} of {len(found)} ratios", value, goal)

    return figure


def flops_a_second(table: Table, label: str) -> float | None:
    values = known(table, label)
    work = table[label].work if label in table else None
    return work.flops / values[0] if values and work else None
