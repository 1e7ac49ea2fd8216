"""Sums over rows and steps: products over whole tiles where they are products, else a sum for each row."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

from rnnops.compiler.ir.lowered import Lowered
from rnnops.compiler.ir.nodes import Contraction, Node
from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.schedule.products import as_contraction
from rnnops.compiler.schedule.step_plan import Step, rows_of_sum
from rnnops.types import Type


def contract_sums(step: Step) -> Step:
    """Turn products that are summed into products over a whole tile of steps, and other sums over rows into parts.

    rewrite: `dw[i, j] += x[n, i] * dy[n, j]`  -->  `dw += x^T @ dy`; where rows are independent and it is none,
        `db[j] += dy[n, j]`  -->  `db[part of n, j] += dy[n, j]`
    """
    lowered, axes, accumulators = step.lowered.copy(), dict(step.batch_axes), dict(step.accumulators)
    writers, sizes = Counter(s.target.owner for s in step.statements), step.sizes()
    nodes: list[Node] = []
    contractions: list[Contraction] = []
    for statement in step.statements:
        owner = statement.target.owner
        if owner not in accumulators or not _is_summed(statement, step, writers):
            nodes.append(statement)
        elif found := as_contraction(statement, sizes, step.invariant, bool(step.whole)):
            contractions.append(found)
        elif step.whole:
            nodes.append(statement)
        else:
            accumulators[owner], axes[owner] = True, 0
            nodes.append(_in_parts(statement, lowered, step.scan.batch))
    return replace(step, lowered=lowered, nodes=(*nodes, *contractions), batch_axes=axes, accumulators=accumulators)


def _is_summed(statement: Statement, step: Step, writers: Counter[str]) -> bool:
    """Whether it alone writes a sum, over rows where they are independent."""
    if step.whole:
        return writers[statement.target.owner] == 1
    return statement.row_axis in statement.folded_axes()


def _in_parts(statement: Statement, lowered: Lowered, batch: int) -> Statement:
    """A sum over rows as sums over some rows each, so that threads add to rows of their own."""
    owner, layout = statement.target.owner, statement.target.layout
    kind = lowered.types[owner]
    lowered.types[owner] = Type(kind.dtype, (-(-batch // rows_of_sum(batch)), *kind.shape))
    strides = [prod(kind.shape) if a == statement.row_axis else s for a, s in enumerate(layout.strides)]
    target = replace(statement.target, layout=replace(layout, strides=tuple(strides)))
    return replace(statement, target=target, start=None)
