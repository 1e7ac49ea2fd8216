"""The table as text: who took how long, how that compares with rnnops, and which figures are met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from bench.check import busy, describe, errors, misses, missing_peers, show_value
from bench.goals import OURS, PEAK, Measured
from bench.measure import CaseResult

SHOWN = 6  # of the longest preparations
WIDE = 9  # more contenders than this go down the page instead of across
Cells = list[list[str]]


def report(results: Sequence[CaseResult], machine: Mapping[str, str]) -> str:
    """Machine, one table for each group of cases, all figures, what is missing and what went wrong."""
    lines = [", ".join(f"{name} {value}" for name, value in machine.items()), ""]
    for group, cases in groupby((result for result in results if not result.error), lambda result: result.group):
        lines += [*group_table(group, list(cases)), ""]
    lines += [*preparation_lines(results), ""]
    lines += [figure_line(result.name, figure.met, describe(figure)) for result in results for figure in result.figures]
    lines += [f"missing  {reason}" for reason in missing_peers(results)]
    lines += [f"BUSY     {line}" for line in busy(results)]
    lines += [f"ERROR    {error}" for error in errors(results)]
    missed, total = len(misses(results)), sum(f.goal is not None for result in results for f in result.figures)
    return "\n".join([*lines, "", f"{total - missed} of {total} goals met"])


def preparation_lines(results: Sequence[CaseResult]) -> list[str]:
    """Seconds until first results, summed over all cases: compilers and loading, which times above leave out."""
    seconds: Counter[str] = Counter()
    for one in (one for result in results for one in result.measured):
        seconds[one.label] += one.prepare_seconds
    longest = [f"{label} {show_value(total, 's')}" for label, total in seconds.most_common(SHOWN) if total >= 1.0]
    return [f"until first results, in all: {', '.join(longest)}"] if longest else []


def group_table(group: str, results: list[CaseResult]) -> list[str]:
    """Cases across their contenders; contenders down the page where there are many."""
    labels = list(dict.fromkeys(one.label for result in results for one in result.measured))
    rows = [[group, *labels]]
    for result in results:
        measured = {one.label: one for one in result.measured}
        rows.append([result.setting, *(cell(measured.get(label), measured.get(OURS)) for label in labels)])
    return aligned(rows if len(labels) <= WIDE else [list(column) for column in zip(*rows, strict=True)])


def cell(measured: Measured | None, ours: Measured | None) -> str:
    """`2.20 ms (1.45)`: a value, and how many times ours it is."""
    if measured is None:
        return ""
    if measured.value is None:
        return "missing"
    shown = show_value(measured.value, measured.unit)
    if measured.label == PEAK and measured.work:
        return f"{measured.work.flops / measured.value / 1e9:.0f} GFLOP/s"
    if measured.label == OURS or ours is None or not ours.value:
        return shown
    return f"{shown} ({measured.value / ours.value:.2f})"


def aligned(rows: Cells) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def figure_line(case: str, met: bool, text: str) -> str:
    mark = "        " if "wanted" not in text else "ok      " if met else "MISSED  "
    return f"{mark} {case}: {text}"


def progress_line(result: CaseResult, seconds: float) -> str:
    """One line when a case is done."""
    state = f"ERROR {result.error}" if result.error else "; ".join(missed_of(result)) or "ok"
    return f"{result.name} ({seconds:.0f} s): {state}"


def missed_of(result: CaseResult) -> Iterable[str]:
    return (f"MISSED {describe(figure)}" for figure in result.figures if not figure.met)
