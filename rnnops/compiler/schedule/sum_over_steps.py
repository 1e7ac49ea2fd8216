"""Sums over time of a step whose rows are one: each has an accumulator, to which every step adds."""

from __future__ import annotations

from dataclasses import replace

from rnnops.compiler.ir.lowered import Lowered
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.schedule.step_plan import Step
from rnnops.compiler.schedule.store_results import copied


def sum_over_steps(step: Step) -> Step:
    """Add what is summed over steps to accumulators.

    rewrite: `dw = ...`, summed over steps  -->  `dw = ...; dw/total.0 += dw`
    """
    scan, lowered, nodes = step.scan, step.lowered.copy(), list(step.nodes)
    sums: dict[str, str] = {}
    for result, blob in scan.sums.items():
        sums[result] = accumulator(scan, lowered, blob)
        if lowered.numbers.get(blob) != 0:
            nodes.append(added(scan, lowered, blob, sums[result]))
    return replace(
        step, lowered=lowered, nodes=tuple(nodes), sums=sums, accumulators=dict.fromkeys(sums.values(), False)
    )


def accumulator(scan: Scan, lowered: Lowered, blob: str) -> str:
    """An owner that a blob is added to at every step."""
    owner = lowered.fresh(f"{blob}/total")
    lowered.own(owner, scan.program.types[blob])
    return owner


def added(scan: Scan, lowered: Lowered, blob: str, owner: str) -> Statement:
    """The statement that adds a blob to its accumulator."""
    return copied(scan, lowered, blob, lowered.views[owner], "add")
