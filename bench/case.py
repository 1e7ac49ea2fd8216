"""A case of the benchmark: who is measured beside whom, on which devices, and what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.goals import Goal
from bench.problems import Problem
from bench.published import Published

HOST, CUDA = ("cpu", "reference"), ("cuda",)
GATES = "rnnops [gates]"  # backward computes the gates again


@dataclass(frozen=True)
class Precision:
    """What floats are, and whether products of float32 may use TF32."""

    dtype: str
    tf32: bool = False
    itemsize: int = 4

    @property
    def flag(self) -> str:
        """TF32 as tables show it: off or on, and nothing where there are no products of float32."""
        return ("on" if self.tf32 else "off") if self.dtype == "float32" else "-"


PRECISIONS = {
    "fp32": Precision("float32"),
    "tf32": Precision("float32", tf32=True),
    "bf16": Precision("bfloat16", itemsize=2),
    "fp16": Precision("float16", itemsize=2),
    "int8": Precision("float32"),  # of all but bound weights
}


@dataclass(frozen=True)
class Entry:
    """One contender of a case.

    Args:
        engine: a key of `contender.ENGINES`.
        timed: False for one that is only compared with.
        precision: a key of `PRECISIONS`.
        algorithm: what cuDNN does; empty for others.
    """

    label: str
    engine: str
    problem: Problem
    mode: str = "training"
    timed: bool = True
    precision: str = "fp32"
    algorithm: str = ""

    @property
    def floats(self) -> Precision:
        return PRECISIONS[self.precision]

    @property
    def is_training(self) -> bool:
        return self.mode == "training"


@dataclass(frozen=True)
class Case:
    """Contenders that are measured in turn.

    Args:
        group: the table it is shown in; `setting`: its row there.
        measure: a key of `measure.MEASURES`.
        apart: whether it runs in a process of its own, which no environment variable tells a number of threads.
        warm_up: what engines compute before anything is measured, where that counts.
        devices: of rnnops, on which it is measured.
        published: by others, to stand beside.
    """

    group: str
    setting: str
    entries: tuple[Entry, ...]
    goals: tuple[Goal, ...] = ()
    measure: str = "time"
    apart: bool = False
    warm_up: Problem | None = None
    devices: tuple[str, ...] = HOST
    published: tuple[Published, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.group} {self.setting}"


def entries(problem: Problem, mode: str, *engines: str) -> tuple[Entry, ...]:
    """One entry for each engine, named like it."""
    recomputed = replace(problem, recompute=("gates",))
    return tuple(
        Entry(GATES, "rnnops", recomputed, mode) if engine == GATES else Entry(engine, engine, problem, mode)
        for engine in engines
    )
