"""The table of presets: every cell of docs/cells.md beside the same by hand in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.case import Case, Entry
from bench.goals import of_peak, speedup
from bench.preset_engine import PREFIX
from bench.problems import Problem, Size
from rnnops.cells import CELLS

SIZES = (Size(100, 32, 128), Size(100, 32, 256))
OF_JAX = 1.5  # in training


def preset_cases(scale: Callable[[Size], Size]) -> Iterator[Case]:
    """Forward for information, and a training step, at two sizes."""
    for size in map(scale, SIZES):
        for mode, goal in (("forward", None), ("training", OF_JAX)):
            yield from (preset(name, size, mode, goal) for name in CELLS)


def preset(name: str, size: Size, mode: str, goal: float | None) -> Case:
    problem = Problem(f"{PREFIX}{name}", size)
    contenders = (
        Entry("rnnops", "preset", problem, mode),
        Entry("JAX", "preset in JAX", problem, mode),
        Entry("peak", "peak", problem, mode),
    )
    return Case(f"presets {mode} {size}", name, contenders, (speedup(("JAX",), goal), of_peak(None)))
