"""A case of the benchmark: who is measured beside whom, and what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass

from bench.goals import Goal
from bench.problems import Problem


@dataclass(frozen=True)
class Entry:
    """One contender of a case.

    Args:
        timed: False for one that is only compared with.
    """

    label: str
    engine: str
    problem: Problem
    mode: str = "training"
    timed: bool = True


@dataclass(frozen=True)
class Case:
    """Contenders that are measured in turn.

    Args:
        group: the table it is shown in; `setting`: its row there.
        measure: a key of `measure.MEASURES`.
        apart: whether it runs in a process of its own, which no environment variable tells a number of threads.
        warm_up: what engines compute before anything is measured, where that counts.
    """

    group: str
    setting: str
    entries: tuple[Entry, ...]
    goals: tuple[Goal, ...] = ()
    measure: str = "time"
    apart: bool = False
    warm_up: Problem | None = None

    @property
    def name(self) -> str:
        return f"{self.group} {self.setting}"


def entries(problem: Problem, mode: str, *engines: str) -> tuple[Entry, ...]:
    """One entry for each engine, named like it."""
    return tuple(Entry(engine, engine, problem, mode) for engine in engines)
