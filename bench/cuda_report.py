"""The page of a run of the CUDA benchmark, in Markdown: machine, floors, goals, tables of steps, all details."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bench.check import describe
from bench.cuda_measure import TOLERANCE, CudaMeasured
from bench.goals import OURS, Figure, Measured
from bench.measure import CaseResult
from bench.problems import Problem, Size

Row = Sequence[str]
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
outputs and, in training, gradients; float32 with TF32 off must stay below {TOLERANCE:.0e}, others are reported only.
`torch.compile` (of the step) is measured at the first two sizes only."""


@dataclass(frozen=True)
class CudaResult(CaseResult):
    """What came of a case on a device; `measured` are `CudaMeasured`.

    Args:
        error: where contenders differ, or why there are no numbers.
    """

    problem: Problem = Problem("", Size(1, 1, 1))  # noqa: RUF009 - it is frozen


VERDICTS = ("**missed**", "not judged", "met")


def page(
    results: Sequence[CudaResult],
    machine: Mapping[str, str],
    rates: Mapping[str, Any],
    runs: Iterable[Mapping[str, str]],
    unreached: Sequence[str],
) -> str:
    """Everything that a reader should know, most wanted first."""
    wanted = [figure for result in results for figure in result.figures if figure.goal is not None]
    judged = [figure for figure in wanted if figure.value is not None]
    open_goals = f", {len(wanted) - len(judged)} not judged" if len(judged) < len(wanted) else ""
    met = sum(figure.met for figure in judged)
    blocks = [
        f"# CUDA benchmark: {machine.get('gpu', 'unknown')}",
        "\n".join(f"- {run['date']}: `{run['command']}`" for run in runs),
        ", ".join(f"{name} {value}" for name, value in machine.items()),
        rate_line(rates),
        f"## Goals: {met} of {len(judged)} met{open_goals}",
        *goal_blocks(results),
        *trouble(results, unreached),
        "## Microseconds a step",
        *(step_table(group, list(members)) for group, members in grouped(results)),
        "## All numbers",
        NOTES,
        *(detail_table(group, list(members)) for group, members in grouped(results)),
    ]
    return "\n\n".join(block for block in blocks if block)


def grouped(results: Sequence[CudaResult]) -> Iterable[tuple[str, Iterable[CudaResult]]]:
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
    if figure.value is None:
        return "not judged"
    return "met" if figure.met else "**missed**"


def goal_blocks(results: Iterable[CudaResult]) -> list[str]:
    """All figures that have a goal, missed ones first."""
    lines = [
        (VERDICTS.index(verdict(figure)), f"- {verdict(figure)}: {result.name}: {describe(figure)}")
        for result in results
        for figure in result.figures
        if figure.goal is not None
    ]
    ordered = [line for _, line in sorted(lines, key=lambda pair: pair[0])]
    return ["\n".join(ordered)] if ordered else []


def trouble(results: Sequence[CudaResult], unreached: Sequence[str]) -> list[str]:
    """Differences, contenders that could not run with their reasons, and cases that time did not reach."""
    wrong = [f"- {result.name}: {result.error}" for result in results if result.error]
    gone = reasons(results)
    late = [f"{len(unreached)} cases: {', '.join(unreached)}"] if unreached else []
    titled = (("Wrong", wrong), ("Not measured", gone), ("Not reached", late))
    return [text for title, lines in titled if lines for text in (f"## {title}", "\n".join(lines))]


def reasons(results: Iterable[CudaResult]) -> list[str]:
    """Label and reason, each once, with the cases it holds for."""
    where: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for one in result.measured:
            if one.missing:
                where.setdefault((one.label, one.missing), []).append(result.name)
    return [
        f"- {label}: {reason} ({names[0] if len(names) == 1 else f'{len(names)} cases'})"
        for (label, reason), names in where.items()
    ]


def step_table(group: str, results: list[CudaResult]) -> str:
    """Sizes down, contenders across; in brackets how many times ours a number is."""
    labels = list(dict.fromkeys(one.label for result in results for one in result.measured))
    rows = [[group, *labels]]
    for result in results:
        table = {one.label: one for one in result.measured}
        rows.append([result.setting, *(step_cell(table.get(label), table.get(OURS), result) for label in labels)])
    return table_of(rows)


def step_cell(one: Measured | None, ours: Measured | None, result: CudaResult) -> str:
    if one is None or one.value is None:
        return "" if one is None else "-"
    shown = micros(one.value / result.problem.size.T)
    return shown if one is ours or ours is None or not ours.value else f"{shown} ({one.value / ours.value:.2f})"


def detail_table(group: str, results: list[CudaResult]) -> str:
    rows = [
        detail_row(one, result)
        for result in results
        for one in result.measured
        if isinstance(one, CudaMeasured) and one.value is not None
    ]
    return f"### {group}\n\n{table_of([DETAILS, *rows])}" if rows else ""


def detail_row(one: CudaMeasured, result: CudaResult) -> Row:
    ours = next((other.value for other in result.measured if other.label == OURS), None)
    assert one.value
    step = one.value / result.problem.size.T
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
    """Rows as a table in Markdown, the first one its head."""
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])
