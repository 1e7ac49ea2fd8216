"""What came of a case, and whether a run is good enough: goals met, nothing missing, nobody disagreed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.goals import Figure, Measured
from bench.load import NOTICEABLE


@dataclass(frozen=True)
class CaseResult:
    """What came of a case.

    Args:
        error: where contenders disagree or fail, or why there are no numbers.
        others: processors that other processes kept busy meanwhile.
        steps: T, where times are shown as those of a step.
        when, how: it was measured, in words; what was measured in another way is measured again by a run that goes on.
    """

    group: str
    setting: str
    measured: tuple[Measured, ...] = ()
    figures: tuple[Figure, ...] = ()
    error: str = ""
    others: float = 0.0
    steps: int = 0
    when: str = ""
    how: str = ""

    @property
    def name(self) -> str:
        return f"{self.group} {self.setting}"


def errors(results: Iterable[CaseResult]) -> list[str]:
    """Cases in which something went wrong, each with its reason."""
    return [f"{result.name}: {result.error}" for result in results if result.error]


def misses(results: Iterable[CaseResult]) -> list[str]:
    """Figures that miss their goals, one line each; one that could not be computed is missed too."""
    return [f"{result.name}: {describe(figure)}" for result in results for figure in result.figures if not figure.met]


def busy(results: Iterable[CaseResult]) -> list[str]:
    """Cases whose times are not to be trusted, where a goal hangs on them."""
    return [
        f"{result.name}: other processes used {result.others:.1f} processors meanwhile, measure it again"
        for result in results
        if result.others > NOTICEABLE and any(figure.goal is not None for figure in result.figures)
    ]


def missing_peers(results: Iterable[CaseResult]) -> list[str]:
    """Label and reason of contenders that are missing, each once, with the cases it holds for."""
    where: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for one in result.measured:
            if one.missing:
                where.setdefault((one.label, one.missing), []).append(result.name)
    return [
        f"{label}: {reason} ({names[0] if len(names) == 1 else f'{len(names)} cases'})"
        for (label, reason), names in where.items()
    ]


def describe(figure: Figure) -> str:
    """`nn.LSTM / rnnops 1.420, wanted at least 1.300`."""
    came = f"{figure.name} {show_figure(figure.value, figure.unit)}"
    if figure.goal is None:
        return came
    return f"{came}, wanted at {'least' if figure.at_least else 'most'} {show_figure(figure.goal, figure.unit)}"


def show_figure(value: float | None, unit: str) -> str:
    """As `show_value`, ratios with a digit more, so that 1.046 does not read like the 1.05 that it misses."""
    return show_value(value, unit) if unit or value is None else f"{value:.3f}"


def show_value(value: float | None, unit: str = "") -> str:
    """A number with three digits, in a unit that fits it; a ratio where there is no unit."""
    if value is None:
        return "is not measured"
    if unit == "s":
        return show_seconds(value)
    if unit == "bytes":
        return f"{value / 2**20:.1f} MiB"
    return f"{value:.2f}{' ' if unit else ''}{unit}"


def show_seconds(seconds: float) -> str:
    unit, name = next((pair for pair in ((1.0, "s"), (1e-3, "ms")) if seconds >= pair[0]), (1e-6, "us"))
    number = seconds / unit
    return f"{number:.{max(0, 2 - len(str(int(number))) + 1)}f} {name}"
