"""Optimal checkpointing of a chain of steps in a number of slots: which steps run when, and what is stored.

Three kinds of slot (Gruslys and others, Memory-efficient backpropagation through time, 2016; the first is Revolve,
Griewank and Walther 2000):

- `"state"`: a slot holds the state before a step. C(t, m) = min over y of y + C(t - y, m - 1) + C(y, m)
- `"step"`: a slot holds what backward reads of one step. C(t, m) = min over y of y + C(t - y, m - 1) + C(y - 1, m)
- `"mixed"`: a slot holds a state, and `cost` of them hold a step: the smaller of both, with m - cost in the second

C counts forward steps, C(t, 1) = t (t + 1) / 2. The state before step 0 is always at hand; slots of states count it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np

from rnnops.errors import CheckpointError
from rnnops.types import Array

KINDS = ("state", "step", "mixed")
LARGEST_TABLE = 2_000_000  # of the dynamic program for mixed slots: some seconds


@dataclass(frozen=True)
class Action:
    """One thing to do in a schedule of `slots`; `str()` of it says it in words.

    Args:
        what: `advance`: run steps from `first` to `last` (not included), from the state at hand, and keep nothing;
            `keep`: run step `first` and keep what backward reads of it; `backward`: use that and forget it;
            `store`: put the state at hand, before step `first`, in a slot; `restore`: take it from there, or from what
            is kept of the step before; `drop`: forget it.
        first: a step.
        last: of `advance`, the step after its last one.

    Raises:
        CheckpointError: by `slots`, which makes them.

    Example:
        >>> str(ro.checkpoints.Action("advance", 0, 5))
        'advance 0 to 5'
    """

    what: str
    first: int
    last: int = 0

    def __str__(self) -> str:
        return f"{self.what} {self.first}" + (f" to {self.last}" if self.what == "advance" else "")


def slots(T: int, m: int, kind: str = "state", cost: int = 1) -> tuple[Action, ...]:
    """The actions that take T steps backward with m slots in as few forward steps as can be.

    Gruslys and others 2016, "Memory-efficient backpropagation through time", arXiv 1606.03401; slots of states:
    Revolve, Griewank and Walther 2000. With C(t, m) the least forward steps for t steps, `C(t, 1) = t (t + 1) / 2`::

        state: a slot holds the state before a step
            C(t, m) = min over y of y + C(t - y, m - 1) + C(y, m)
        step: a slot holds what backward reads of one step
            C(t, m) = min over y of y + C(t - y, m - 1) + C(y - 1, m)
        mixed: a slot holds a state, and `cost` of them hold a step
            the smaller of both, with m - cost in the second

    The state before step 0 is always at hand; slots of states count it.

    Args:
        T: steps, 0 or more.
        m: slots, 1 or more.
        kind: of slots: `"state"`, `"step"` or `"mixed"`.
        cost: for `"mixed"`, slots that what backward reads of one step takes, 1 or more.

    Returns:
        A tuple of `Action`.

    Raises:
        CheckpointError: numbers or kinds that make no sense, or too many mixed slots for so many steps.

    Example:
        >>> print("; ".join(map(str, ro.checkpoints.slots(2, 2))))
        advance 0 to 1; store 1; keep 1; backward 1; drop 1; restore 0; keep 0; backward 0
    """
    return tuple(_planner(T, m, kind, cost).actions())


def forward_steps(T: int, m: int, kind: str = "state", cost: int = 1) -> int:
    """How many forward steps `slots` with these arguments takes: C(T, m).

    Args:
        T, m, kind, cost: as `slots`'.

    Raises:
        CheckpointError: as `slots`.

    Example:
        >>> [ro.checkpoints.forward_steps(100, m) for m in (1, 2, 5, 10)]
        [5050, 945, 416, 322]
    """
    planner = _planner(T, m, kind, cost)
    return int(planner.counts(planner.most)[T])


def check_slots(T: int, m: int, kind: str, cost: int) -> None:
    """Raise CheckpointError for numbers or kinds that make no sense."""
    for name, value, least in (("T", T, 0), ("m", m, 1), ("cost", cost, 1)):
        check_count(name, value, least)
    if kind not in KINDS:
        raise CheckpointError("no such kind of slot", wanted=f"one of {', '.join(KINDS)}", came=repr(kind))


def check_count(name: str, value: object, least: int) -> None:
    """Raise CheckpointError for what is not an integer of at least so much."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise CheckpointError(f"{name} is not a count", wanted=f"an integer from {least}", came=repr(value))


def _planner(T: int, m: int, kind: str, cost: int) -> _Planner:
    """Checked arguments; mixed slots of which none can hold a step are slots of states."""
    check_slots(T, m, kind, cost)
    planner = _Planner(T, m, "state" if kind == "mixed" and cost >= m else kind, cost)
    if planner.kind == "mixed" and planner.most * T > LARGEST_TABLE:
        raise CheckpointError(
            "too many mixed slots for so many steps",
            wanted=f"at most {LARGEST_TABLE} steps times slots",
            came=planner.most * T,
            hint="Use slots of kind 'state' or 'step', which need no table.",
        )
    return planner


@dataclass(frozen=True)
class _Planner:
    T: int
    m: int
    kind: str
    cost: int

    @property
    def most(self) -> int:
        """Slots that are of use."""
        return min(self.m, max(self.T, 1) * (self.cost if self.kind == "mixed" else 1))

    def actions(self) -> Iterator[Action]:
        """All actions, in order."""
        return self._span(0, self.T, self.most)

    def counts(self, m: int) -> Array:
        """C(t, m) for all t up to T."""
        if self.kind == "state":
            return _state_counts(self.T, m)
        return _step_counts(self.T, m) if self.kind == "step" else _mixed_table(self.T, self.most, self.cost)[m]

    def _span(self, a: int, t: int, m: int) -> Iterator[Action]:
        """The actions of t steps from step a on, the state before which is at hand and lasts."""
        waiting: list[Action | tuple[int, int, int]] = [(a, t, m)]
        while waiting:
            item = waiting.pop()
            if isinstance(item, Action):
                yield item
            elif item[1] == 1 or item[2] == 1:
                yield from self._one_by_one(*item[:2])
            elif item[1] > 0:
                waiting += reversed(self._cut(*item))

    def _cut(self, a: int, t: int, m: int) -> list[Action | tuple[int, int, int]]:
        """A span as actions and two shorter spans."""
        y, stores_step = self._split(t, m)
        if stores_step:
            price = self.cost if self.kind == "mixed" else 1
            head = [*_advance(a, a + y - 1), Action("keep", a + y - 1)]
            rest: list[Action | tuple[int, int, int]] = [Action("restore", a), (a, y - 1, m)] if y > 1 else []
            return [*head, (a + y, t - y, m - price), Action("backward", a + y - 1), *rest]
        inner = (a + y, t - y, m - 1)
        return [
            *_advance(a, a + y),
            Action("store", a + y),
            inner,
            Action("drop", a + y),
            Action("restore", a),
            (a, y, m),
        ]

    def _one_by_one(self, a: int, t: int) -> Iterator[Action]:
        for last in reversed(range(a, a + t)):
            yield from _advance(a, last)
            yield Action("keep", last)
            yield Action("backward", last)
            if last > a:
                yield Action("restore", a)

    def _split(self, t: int, m: int) -> tuple[int, bool]:
        """How many steps to run, and whether the last of them is what is stored."""
        ways: list[tuple[float, int, bool]] = []
        if self.kind != "step":
            y = np.arange(1, t)
            total = y + self.counts(m - 1)[t - y] + self.counts(m)[y]
            ways.append((total.min(), int(y[total.argmin()]), False))
        price = self.cost if self.kind == "mixed" else 1
        if self.kind != "state" and m - price >= 1:
            y = np.arange(1, t + 1)
            total = y + self.counts(m - price)[t - y] + self.counts(m)[y - 1]
            ways.append((total.min(), int(y[total.argmin()]), True))
        _, y_best, stores_step = min(ways)
        return y_best, stores_step


def _advance(a: int, b: int) -> Iterator[Action]:
    if b > a:
        yield Action("advance", a, b)


@lru_cache(maxsize=1024)
def _state_counts(T: int, m: int) -> Array:
    """(r + 1) t - binom(m + r, r - 1), r the least integer with binom(m + r, m) >= t."""
    counts = np.zeros(T + 1)
    r, done = 0, 0
    while done < T:
        until = min(T, comb(m + r, m))
        t = np.arange(done + 1, until + 1)
        counts[done + 1 : until + 1] = (r + 1) * t - (comb(m + r, r - 1) if r else 0)
        r, done = r + 1, until
    return counts


@lru_cache(maxsize=1024)
def _step_counts(T: int, m: int) -> Array:
    """Of t steps at most N(k) = binom(m + k, m) - 1 run no more than k times each."""
    t = np.arange(T + 1)
    counts = np.zeros(T + 1)
    k, before = 1, np.zeros(T + 1)
    while before[-1] < T:
        reached = np.minimum(t, comb(m + k, m) - 1)
        counts += k * (reached - before)
        k, before = k + 1, reached
    return counts


@lru_cache(maxsize=64)
def _mixed_table(T: int, m: int, cost: int) -> Array:
    """The dynamic program itself, for all numbers of slots: it has no closed form."""
    table = np.zeros((m + 1, T + 1))
    table[1] = np.arange(T + 1) * np.arange(1, T + 2) / 2
    for slots_left in range(2, m + 1):
        fewer, counts = table[slots_left - 1], table[slots_left]
        kept = table[slots_left - cost] if slots_left > cost else None
        counts[1:2] = 1
        for steps in range(2, T + 1):
            counts[steps] = (np.arange(1, steps) + fewer[steps - 1 : 0 : -1] + counts[1:steps]).min()
            if kept is not None:
                counts[steps] = min(
                    counts[steps], (np.arange(1, steps + 1) + kept[steps - 1 :: -1] + counts[:steps]).min()
                )
    return table
