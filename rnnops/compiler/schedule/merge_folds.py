"""Folds of folds: what is folded in two steps is folded at once, so that products over rows and steps are one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from rnnops.compiler.ir.layouts import dense
from rnnops.compiler.ir.nodes import read_counts
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.schedule.step_plan import Step


def merge_folds(step: Step) -> Step:
    """Fold at once what a step folds in two steps; see `merged`."""
    return replace(step, nodes=tuple(merged(step.statements, step.stored)))


def merged(statements: Sequence[Statement], stored: Collection[str]) -> list[Statement]:
    """Fold at once what is folded in two steps.

    rewrite: `x[n, i, j] += a[n, k, i] * b[n, k, j]; y[i, j] += x[n, i, j]`
        -->  `y[i, j] += a[n, k, i] * b[n, k, j]`
    """
    reads = read_counts(statements)
    makers = {s.target.owner: s for s in statements if s.fold == "add" and s.start is not None}
    writes = Counter(s.target.owner for s in statements)
    merged: list[Statement] = []
    gone: set[int] = set()
    for statement in statements:
        source = statement.operands[0] if statement.operands else None
        first = makers.get(source.owner) if isinstance(source, Access) else None
        if (
            first is None
            or statement.fold != "add"
            or statement.form != "copy"
            or statement.target.index is not None
            or first.form != "product"
            or not isinstance(source, Access)
            or source.owner in stored
            or reads[source.owner] != 1
            or writes[source.owner] != 1
            or (places := _places_of_axes(source, first)) is None
        ):
            merged.append(statement)
            continue
        folded = first.folded_axes() or (len(first.extents) - 1,)
        if len(folded) > 1:
            merged.append(statement)
            continue
        order = (*places, None)
        target = replace(statement.target, layout=statement.target.layout.with_axes(order, first.extents))
        merged.append(replace(first, blob=statement.blob, target=target, start=statement.start))
        gone.add(id(first))
    return [statement for statement in merged if id(statement) not in gone]


def _places_of_axes(source: Access, maker: Statement) -> tuple[int, ...] | None:
    """For each axis that a product keeps, the axis of `source` that runs along it; None where one is missing."""
    kept = maker.extents[:-1]
    if source.layout.offset or source.layout.size != prod(kept):
        return None
    places = []
    for size, stride in zip(kept, dense(kept).strides, strict=True):
        found = [
            axis
            for axis, (own, step) in enumerate(zip(source.layout.shape, source.layout.strides, strict=True))
            if own == size and (step == stride or size == 1) and axis not in places
        ]
        if not found:
            return None
        places.append(found[0])
    return tuple(places) if len(places) == len(source.layout.shape) else None
