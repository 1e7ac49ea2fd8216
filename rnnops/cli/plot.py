"""The learning curve of a training run as a PNG; it needs matplotlib, which comes with the extra `demo`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rnnops.errors import RnnopsError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve: TypeAlias = Sequence[Sequence[float]]  # pairs of characters seen and bits per character
BASELINE_COLORS = ("tab:green", "tab:purple", "tab:brown", "tab:cyan", "tab:olive", "tab:gray")


class PlotError(RnnopsError):
    """A plot cannot be drawn or written."""


def check_plot(path: Path) -> None:
    """Raise PlotError, before the work is done, where a plot could not be drawn or has no directory to go to."""
    if importlib.util.find_spec("matplotlib") is None:
        raise _missing()
    if not path.resolve().parent.is_dir():
        raise PlotError(f"the plot {path} cannot be written: its directory does not exist")


def save_learning_curve(
    path: Path | str, training: Curve, held_out: Curve, baselines: Mapping[str, float], title: str = ""
) -> None:
    """Draw bits per character against characters seen, with a horizontal line for each baseline."""
    if not training and not held_out:
        raise PlotError("there is nothing to plot", wanted="at least one point of training or held-out text")
    figure, axes = _figure()
    _draw(axes, training, held_out, baselines)
    axes.set_title(title)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise PlotError(f"the plot {path} cannot be written ({error})") from error


def _figure() -> tuple[Figure, Axes]:
    """Return a figure of the Agg backend, without pyplot and its global state."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError as error:
        raise _missing() from error
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.xaxis.set_major_formatter(EngFormatter())
    return figure, axes


def _missing() -> PlotError:
    hint = "Install it with: pip install 'rnnops[demo]'"
    return PlotError("drawing needs matplotlib, which the extra `demo` installs", hint=hint)


def _draw(axes: Axes, training: Curve, held_out: Curve, baselines: Mapping[str, float]) -> None:
    if training:
        axes.plot(*_columns(training), color="tab:blue", alpha=0.5, linewidth=1, label="training")
    if held_out:
        label = f"held out: {held_out[-1][1]:.3f}"
        axes.plot(*_columns(held_out), color="tab:red", marker=".", linewidth=1.5, label=label)
    ranked = sorted(baselines.items(), key=lambda item: -item[1])
    for place, (name, bits) in enumerate(ranked):
        color = BASELINE_COLORS[place % len(BASELINE_COLORS)]
        axes.axhline(bits, color=color, linestyle="--", linewidth=1, label=f"{name}: {bits:.3f}")
    axes.set_xlabel("characters seen")
    axes.set_ylabel("bits per character")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize="small")


def _columns(curve: Curve) -> tuple[list[float], list[float]]:
    return [point[0] for point in curve], [point[1] for point in curve]
