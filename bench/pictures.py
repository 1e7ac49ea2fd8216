"""A run as pictures: how many times our time each peer takes, and bytes against time of policies and budgets.

The second is what `docs/memory_budget.md` shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.cases import BUDGET, LONG
from bench.contender import SAVING
from bench.goals import OURS
from bench.judge import CaseResult
from bench.problems import Problem
from bench.rnnops_engine import held_bytes

PEERS = {
    "nn.LSTM": "tab:orange",
    "nn.GRU": "tab:orange",
    "packed sequence": "tab:orange",
    "eager": "tab:red",
    "torch.compile": "tab:purple",
    "JAX": "tab:blue",
    "onnxruntime": "tab:green",
}
SIDES = [((x, y), side) for y in (4, -11, 18, -25, 32) for x, side in ((7, "left"), (-7, "right"))]  # of a point


def save_pictures(results: Sequence[CaseResult], machine: Mapping[str, str], folder: Path) -> list[str]:
    """Write what there is to see, `bench.png` and `budgets.png`; what was written, or why nothing was."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        return [f"no picture: wanted matplotlib, which does not import ({error}); it is in the extra 'bench'"]
    written = [folder / "bench.png"]
    plot_peers(pyplot, results, machine).savefig(written[0], dpi=150)
    budgets = plot_budgets(pyplot, results, Problem("lstm", LONG))
    if budgets:
        written.append(folder / "budgets.png")
        budgets.savefig(written[1], dpi=120)
    pyplot.close("all")
    return [f"wrote {path}" for path in written]


def plot_peers(pyplot: Any, results: Sequence[CaseResult], machine: Mapping[str, str]) -> Any:
    """A row for each case, a dot for each peer; right of 1 is slower than rnnops."""
    rows = [(result.name, times) for result in results if (times := times_ours(result))]
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.24 * len(rows)), layout="constrained")
    for peer, colour in PEERS.items():
        points = [(times[peer], row) for row, (_, times) in enumerate(rows) if peer in times]
        if points:
            axes.scatter(*zip(*points, strict=True), s=28, color=colour, label=peer, zorder=3)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel(f"time / time of rnnops on {machine['processor']}, {machine['threads']} threads")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", which="both", alpha=0.3)
    if rows:
        figure.legend(loc="outside upper center", ncols=len(PEERS), fontsize=8)
    return figure


def times_ours(result: CaseResult) -> dict[str, float]:
    """Seconds of each peer in those of rnnops."""
    seconds = {one.label: one.value for one in result.measured if one.unit == "s" and one.value}
    ours = seconds.get(OURS)
    return {peer: seconds[peer] / ours for peer in PEERS if peer in seconds} if ours else {}


def plot_budgets(pyplot: Any, results: Sequence[CaseResult], problem: Problem) -> Any:
    """Bytes held against time, where the case of budgets was measured."""
    cases = [result for result in results if (result.group, result.setting) == (BUDGET, str(problem.size))]
    seconds = {one.label: one.value for result in cases for one in result.measured}
    points = [(held_bytes(label, problem), value, label) for label in SAVING if (value := seconds.get(label))]
    if not points:
        return None
    whole = seconds["all"] or 1.0
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")  # texts are read where it is 400 pixels wide
    places = [(nbytes / 2**20, value / whole) for nbytes, value, _ in points]
    axes.scatter(*zip(*places, strict=True), s=36, color="tab:blue", zorder=3)
    axes.margins(x=0.1, y=0.1)
    axes.set_xscale("log")
    axes.set_xlabel("MiB held between the passes")
    axes.set_ylabel('time of a training step / that of "all"')
    axes.set_ylim(bottom=0.9)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.set_title(f"LSTM, T, N, H = {problem.size}")
    _label(figure, axes, places, [label for _, _, label in points])
    return figure


def _label(figure: Any, axes: Any, places: Sequence[tuple[float, float]], labels: Sequence[str]) -> None:
    """Texts at points, each on the first side on which it lies on no point and no other text, within the axes."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # only now is it known where points lie
    frame = axes.get_window_extent()
    taken = [Bbox.from_extents(x - 5, y - 5, x + 5, y + 5) for x, y in axes.transData.transform(places)]
    for place, label in zip(places, labels, strict=True):
        text = axes.annotate(label, place, SIDES[0][0], textcoords="offset points", fontsize=10)
        for offset, side in SIDES:
            text.xyann = offset
            text.set_horizontalalignment(side)
            area = text.get_window_extent().padded(2)
            if not area.count_overlaps(taken) and all(map(frame.contains, *zip(*area.corners(), strict=True))):
                break
        taken.append(area)
