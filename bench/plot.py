"""The run as a picture: how many times our time each peer takes, for every case that has peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from bench.goals import OURS
from bench.measure import CaseResult

PEERS = {
    "nn.LSTM": "tab:orange",
    "nn.GRU": "tab:orange",
    "packed sequence": "tab:orange",
    "eager": "tab:red",
    "torch.compile": "tab:purple",
    "JAX": "tab:blue",
    "onnxruntime": "tab:green",
}


def plot(results: Sequence[CaseResult], machine: Mapping[str, str], path: Path) -> Path:
    """Write the picture: a row for each case, a dot for each peer, right of 1 is slower than rnnops."""
    rows = [(result.name, times) for result in results if (times := times_ours(result))]
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.24 * len(rows)), layout="constrained")
    for peer, colour in PEERS.items():
        points = [(times[peer], row) for row, (_, times) in enumerate(rows) if peer in times]
        if points:
            x, y = zip(*points, strict=True)
            axes.scatter(x, y, s=28, color=colour, label=peer, zorder=3)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel(f"time / time of rnnops on {machine['processor']}, {machine['threads']} threads")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", which="both", alpha=0.3)
    if rows:
        figure.legend(loc="outside upper center", ncols=len(PEERS), fontsize=8)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def times_ours(result: CaseResult) -> dict[str, float]:
    """Seconds of each peer in those of rnnops."""
    seconds = {one.label: one.value for one in result.measured if one.unit == "s" and one.value}
    ours = seconds.get(OURS)
    return {peer: seconds[peer] / ours for peer in PEERS if peer in seconds} if ours else {}
