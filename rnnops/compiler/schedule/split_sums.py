"""Sums over time of a step whose rows are independent: over rows first, then what is linear in them, once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.schedule.linear_sums import LateCalls, late_calls
from rnnops.compiler.schedule.step_plan import MixedError, Step
from rnnops.compiler.schedule.sum_over_steps import accumulator, added


def split_sums(step: Step) -> Step:
    """Sum what folds rows over rows and steps; what is linear in that waits for the last step, the rest goes by rows.

    rewrite: `s = ReduceSum(x, rows); y = Mul(s, w)`, y summed over steps  -->  `s += x`, then once `y = Mul(s, w)`

    Raises MixedError where a sum over rows is used in its step.
    """
    frontier = _frontier(step)
    late = late_calls(step.scan.program.calls, frontier, step.lowered, step.scan.references)
    _check_unused(step, frontier, late)
    scan, lowered, nodes = step.scan, step.lowered.copy(), step.statements
    sums: dict[str, str] = {}
    accumulators: dict[str, bool] = {}
    for result, blob in scan.sums.items():
        if blob in late.summed:
            sums[result] = blob
            continue
        zero = lowered.numbers.get(blob) == 0
        if not zero and (blob not in lowered.views or lowered.views[blob].owner not in step.batch_axes):
            raise MixedError(f"'{blob}' is the same for all rows, and summed")
        sums[result] = accumulator(scan, lowered, blob)
        accumulators[sums[result]] = False
        if not zero:
            nodes.append(added(scan, lowered, blob, sums[result]))
    needed = {blob for blob in sums.values() if blob in late.summed}
    epilogue = tuple(late.needed(needed))
    wanted = needed | {name for call in epilogue for name in call.op.inputs}
    left = _left(step, nodes, late, frontier, {*step.slots, *accumulators}, wanted)
    accumulators.update((s.target.owner, False) for s in left if s.target.owner in frontier)
    return replace(step, lowered=lowered, nodes=tuple(left), sums=sums, accumulators=accumulators, epilogue=epilogue)


def _frontier(step: Step) -> set[str]:
    """Owners that are sums over rows. Raises MixedError for other folds over rows."""
    for statement in step.statements:
        if statement.row_axis is None and statement.fold and statement.target.owner in step.slots:
            # it is computed with each row, which is no way to add to what is there
            raise MixedError(f"'{statement.blob}' is the same for all rows, and a fold that is stored")
    frontier = {s.target.owner for s in step.statements if s.row_axis in s.folded_axes()}
    writers = [s for s in step.statements if s.target.owner in frontier]
    if any(s.row_axis not in s.folded_axes() or s.fold != "add" for s in writers):
        raise MixedError("a fold over rows is written in parts, or is no sum")
    return frontier


def _check_unused(step: Step, frontier: Collection[str], late: LateCalls) -> None:
    """Raise MixedError where a sum over rows is used in its step, or stored."""
    if any((s.blob in frontier) != (s.target.owner in frontier) for s in step.statements):
        raise MixedError("a sum over rows is used in its step")
    if any(blob in late.summed for blob, *_ in (*step.scan.writes, *step.scan.additions)):
        raise MixedError("a sum over rows is stored at every step")


def _left(
    step: Step,
    nodes: list[Statement],
    late: LateCalls,
    frontier: Collection[str],
    stored: Collection[str],
    wanted: Collection[str],
) -> list[Statement]:
    """What is left of a step: neither what waits, nor sums over rows that nobody wants."""
    waits = {name for call in late.calls for name in call.op.outputs}
    left = [s for s in nodes if s.blob not in waits or s.target.owner in stored]
    if any(access.owner in frontier for s in left for access in s.reads()):
        raise MixedError("a sum over rows is used in its step")
    return [s for s in left if s.target.owner not in frontier or s.target.owner in wanted]
