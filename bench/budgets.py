"""rnnops under policies and byte budgets, and the picture of bytes against time that `docs/memory_budget.md` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rnnops as ro
from bench.contender import Contender, Settings
from bench.nets import build_net, make_feeds
from bench.problems import Problem
from bench.rnnops_engine import contender_of

if TYPE_CHECKING:
    from bench.measure import CaseResult

GROUP = "budget"
SAVING: Mapping[str, dict[str, Any]] = {
    "all": {"checkpoints": "all"},
    "default": {},
    "memory": {"checkpoints": "memory"},
    "budget 20 %": {"memory_budget": 0.20},
    "budget 10 %": {"memory_budget": 0.10},
    "budget 5 %": {"memory_budget": 0.05},
    "budget 2 %": {"memory_budget": 0.02},
}


def _made(label: str, problem: Problem, mode: str, settings: Settings) -> Contender:
    return contender_of(problem, mode, _run(label, problem, settings.device, settings.threads), bind=False)


def _run(label: str, problem: Problem, device: str, threads: int) -> ro.Run:
    return ro.compile(build_net(problem), device=device, threads=threads, **SAVING[label])


def held(label: str, problem: Problem) -> int:
    """Bytes that a pullback holds beside the feeds."""
    feeds, _ = make_feeds(problem)
    return _run(label, problem, "cpu", 1).saved_residuals(feeds).total


saving_all, saving_default, saving_memory, within_20, within_10, within_5, within_2 = (
    partial(_made, label) for label in SAVING
)


def plot_budgets(results: Sequence[CaseResult], problem: Problem, path: Path) -> Path | None:
    """Write the picture of the case of budgets; None where it was not measured."""
    cases = [result for result in results if (result.group, result.setting) == (GROUP, str(problem.size))]
    seconds = {one.label: one.value for result in cases for one in result.measured}
    points = [(held(label, problem), value, label) for label, value in seconds.items() if value and label in SAVING]
    if not points:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    whole = seconds["all"] or 1.0
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for nbytes, value, label in points:
        axes.scatter(nbytes / 2**20, value / whole, s=36, color="tab:blue", zorder=3)
        axes.annotate(label, (nbytes / 2**20, value / whole), xytext=(6, 4), textcoords="offset points", fontsize=9)
    axes.set_xscale("log")
    axes.set_xlabel("MiB held between the passes")
    axes.set_ylabel('time of a training step / that of "all"')
    axes.set_ylim(bottom=0.9)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.set_title(f"LSTM, T, N, H = {problem.size}")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
