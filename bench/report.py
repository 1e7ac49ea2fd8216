"""The page of a run, in Markdown: machine, goals, what went wrong, who took how long, and on a GPU all details."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from bench.agreement import NORM_TOLERANCE
from bench.goals import OURS, PEAK, Figure, Measured
from bench.judge import CaseResult, busy, describe, errors, missing_peers, show_value

Row = Sequence[str]
SHOWN = 6  # of the longest preparations
WIDE = 9  # more contenders than this go down the page instead of across
VERDICTS = ("**missed**", "not judged", "met", "for information")
DETAILS = (
    "T,N,H", "contender", "precision", "TF32", "cuDNN", "us a step", "of rnnops", "floor us", "floor of",
    "time / floor", "MiB of a call", "MiB grown", "s to first", "error",
)  # fmt: skip
NOTES = f"""\
Times are medians over rounds of blocks of calls, of a whole sequence from inputs to outputs, input products included;
training is a forward pass and the gradients of all inputs and parameters. Every number stands beside its precision and
TF32 flag. `cuDNN`: the algorithm that PyTorch asks of it. `floor`: the largest of waiting (one empty grid
synchronisation a step and pass), moving what is fed and put out once (and its gradients), and multiplying at the rate
of cuBLAS in the same precision. `MiB of a call`: beside its feeds; counted by PyTorch's
allocator for PyTorch, planned by the library itself for rnnops and JAX. `MiB grown`: by which free memory of the device
shrank at the first call. `error`: the largest norm of a difference / norm against the first contender of a case, over
outputs and, in training, gradients; float32 with TF32 off must stay below {NORM_TOLERANCE:.0e}, others are reported
only. `torch.compile` (of the step) is measured at the first two sizes only."""


def page(
    results: Sequence[CaseResult],
    machine: Mapping[str, str],
    rates: Mapping[str, Any],
    runs: Iterable[Mapping[str, str]],
    unreached: Sequence[str],
) -> str:
    """Everything that a reader should know, most wanted first."""
    wanted = [figure for result in results for figure in result.figures if figure.goal is not None]
    judged = [figure for figure in wanted if figure.value is not None]
    open_goals = f", {len(wanted) - len(judged)} not judged" if len(judged) < len(wanted) else ""
    detailed = [result for result in results if result.steps]
    blocks = [
        f"# Benchmark: {machine.get('gpu') or machine.get('processor', 'unknown')}",
        "\n".join(f"- {run['date']}: `{run['command']}`" for run in runs),
        ", ".join(f"{name} {value}" for name, value in machine.items()),
        rate_line(rates),
        f"## Goals: {sum(figure.met for figure in judged)} of {len(judged)} met{open_goals}",
        "\n".join(figure_lines(results)),
        *trouble(results, unreached),
        f"## {'Microseconds a step' if detailed else 'Times'}",
        *(group_table(group, list(members)) for group, members in grouped(results)),
        *published_lines(results),
        preparation_line(results),
        *(["## All numbers", NOTES] if detailed else []),
        *(detail_table(group, list(members)) for group, members in grouped(detailed)),
    ]
    return "\n\n".join(block for block in blocks if block)


def grouped(results: Sequence[CaseResult]) -> Iterable[tuple[str, Iterable[CaseResult]]]:
    """Results with numbers by group, groups in the order in which they first come."""
    order = list(dict.fromkeys(result.group for result in results))
    there = sorted((result for result in results if result.measured), key=lambda result: order.index(result.group))
    return groupby(there, lambda result: result.group)


def rate_line(rates: Mapping[str, Any]) -> str:
    """What the device can do, and what could not be measured."""
    parts = []
    if rates.get("sync_seconds"):
        parts.append(f"one grid synchronisation {rates['sync_seconds'] * 1e6:.2f} us")
    if rates.get("bytes_a_second"):
        parts.append(f"copies {rates['bytes_a_second'] / 1e9:.0f} GB/s")
    parts += [f"{name} products {rate / 1e12:.1f} TFLOP/s" for name, rate in rates.get("flops", {}).items()]
    parts += [f"not measured: {reason}" for reason in rates.get("missing", ())]
    return f"Measured on the device: {'; '.join(parts)}." if parts else ""


def verdict(figure: Figure) -> str:
    """Whether a goal is met, where both sides of it were measured."""
    if figure.goal is None:
        return "for information"
    if figure.value is None:
        return "not judged"
    return "met" if figure.met else "**missed**"


def figure_lines(results: Iterable[CaseResult]) -> list[str]:
    """All figures, missed ones first."""
    pairs = [(verdict(figure), f"{result.name}: {describe(figure)}") for result in results for figure in result.figures]
    return [f"- {word}: {text}" for word, text in sorted(pairs, key=lambda pair: VERDICTS.index(pair[0]))]


def trouble(results: Sequence[CaseResult], unreached: Sequence[str]) -> list[str]:
    """Differences, contenders that could not run with their reasons, and cases that time did not reach."""
    late = [f"{len(unreached)} cases: {', '.join(unreached)}"] if unreached else []
    titled = (
        ("Wrong", errors(results)), ("Not measured", missing_peers(results)), ("Not reached", late),
        ("Disturbed", busy(results)),
    )  # fmt: skip
    return [
        text for title, lines in titled if lines for text in (f"## {title}", "\n".join(f"- {line}" for line in lines))
    ]


def published_lines(results: Sequence[CaseResult]) -> Iterable[str]:
    """Where numbers come from that were not measured here."""
    sources: dict[str, list[str]] = {}
    for one in (one for result in results for one in result.measured if one.source):
        labels = sources.setdefault(one.source, [])
        labels += [one.label] if one.label not in labels else []
    return (f"{'; '.join(labels)}: {source}." for source, labels in sources.items())


def preparation_line(results: Sequence[CaseResult]) -> str:
    """Seconds until first results, summed over all cases: compilers and loading, which times above leave out."""
    seconds: dict[str, float] = {}
    for one in (one for result in results for one in result.measured):
        seconds[one.label] = seconds.get(one.label, 0.0) + one.prepare_seconds
    ordered = sorted(seconds.items(), key=lambda pair: -pair[1])[:SHOWN]
    longest = [f"{label} {show_value(total, 's')}" for label, total in ordered if total >= 1.0]
    return f"Until first results, in all: {', '.join(longest)}" if longest else ""


def group_table(group: str, results: list[CaseResult]) -> str:
    """Cases down, contenders across; in brackets how many times ours a number is. Many contenders go down the page."""
    labels = list(dict.fromkeys(one.label for result in results for one in result.measured))
    dated = any(result.when for result in results)
    rows = [[group, *labels, *(["measured"] if dated else [])]]
    for result in results:
        table = {one.label: one for one in result.measured}
        shown = [cell(table.get(label), table.get(OURS), result.steps) for label in labels]
        rows.append([result.setting, *shown, *([result.when or "-"] if dated else [])])
    return table_of(rows if len(labels) <= WIDE else [list(column) for column in zip(*rows, strict=True)])


def cell(one: Measured | None, ours: Measured | None, steps: int) -> str:
    """`2.20 ms (1.45)`: a value, and how many times ours it is."""
    if one is None or one.value is None:
        return "" if one is None else "-"
    if one.label == PEAK and one.work:
        return f"{one.work.flops / one.value / 1e9:.0f} GFLOP/s"
    shown = micros(one.value / steps) if steps else show_value(one.value, one.unit)
    return shown if one is ours or ours is None or not ours.value else f"{shown} ({one.value / ours.value:.2f})"


def detail_table(group: str, results: list[CaseResult]) -> str:
    rows = [detail_row(one, result) for result in results for one in result.measured if one.value is not None]
    return f"### {group}\n\n{table_of([DETAILS, *rows])}" if rows else ""


def detail_row(one: Measured, result: CaseResult) -> Row:
    ours = next((other.value for other in result.measured if other.label == OURS), None)
    assert one.value
    step = one.value / result.steps
    return (
        result.setting, one.label, one.precision, one.tf32, one.algorithm or "-", micros(step),
        f"{one.value / ours:.2f}" if ours else "-",
        micros(one.floor) if one.floor else "-", one.floor_of or "-", f"{step / one.floor:.1f}" if one.floor else "-",
        mebibytes(one.memory), mebibytes(one.grown), f"{one.prepare_seconds:.1f}",
        "-" if one.error is None else f"{one.error:.1e}",
    )  # fmt: skip


def micros(seconds: float) -> str:
    """Microseconds with three digits."""
    value = seconds * 1e6
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def mebibytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 2**20:.1f}"


def table_of(rows: Sequence[Row]) -> str:
    """Rows as a table in Markdown, the first one its head, columns aligned for those who read the text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(text.ljust(width) for text, width in zip(row, widths, strict=True))} |" for row in rows]
    return "\n".join([lines[0], f"|{'|'.join('-' * (width + 2) for width in widths)}|", *lines[1:]])
