"""A compiled scan as text: its loops over time, tiles, products, elementwise work, sums, views and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from rnnops.compiler.buffers.demand import Demand
from rnnops.compiler.buffers.memory import PACKED, Buffer
from rnnops.compiler.execute.compiled_scan import CompiledScan
from rnnops.compiler.ir.nodes import Contraction, Node, Product, Stage
from rnnops.compiler.ir.statements import Statement
from rnnops.compiler.lower.hoist_invariants import Hoisted
from rnnops.compiler.report.memory_table import readable
from rnnops.compiler.schedule.loop_nests import fuse_nests
from rnnops.compiler.schedule.plan_step import views_of
from rnnops.compiler.schedule.step_plan import StepPlan

INDENT = "  "


def describe_scan(compiled: CompiledScan, hoisted: Hoisted | None, demand: Demand) -> list[str]:
    """Lines on one pass of a recurrence; without `hoisted`, on a pass over rows that has no steps."""
    plan = compiled.plan
    rows = "each row" if plan.batch_axes else "all rows at once"
    return [
        *facts_of(compiled, stepless=hoisted is None),
        *_once(hoisted, compiled),
        *(
            line
            for stage in plan.stages
            for line in _stage(stage, compiled.scan.steps, rows, hoisted is None, plan.large_states)
        ),
        *_past_end(compiled),
        *_sums(plan),
        *_axes(plan),
        *_views(compiled),
        *_scratch(compiled),
        *_memory(demand),
    ]


def facts_of(compiled: CompiledScan, stepless: bool) -> Iterator[str]:
    """Steps, rows, tiles, and who takes what; of a pass over rows that has no steps its rows alone."""
    return _rows(compiled) if stepless else _loops(compiled)


def _loops(compiled: CompiledScan) -> Iterator[str]:
    scan, plan = compiled.scan, compiled.plan
    rows = compiled.tile * scan.batch
    order = "from the last to the first" if scan.reverse else "from the first to the last"
    yield f"{count(scan.steps, 'step')} (T) {order}, {count(scan.batch, 'row')} (N)"
    tile = f"tiles of {count(compiled.tile, 'step')}, {count(rows, 'row')} of products"
    worker = compiled.options.target.worker
    yield f"{count(compiled.threads, worker)}, {tile}"
    if plan.whole:
        yield f"all rows are one: {plan.whole}"
    else:
        yield f"rows are independent: {worker}s share them out"
    if plan.rows_outside:
        heads = f", as has each of {plan.heads} heads," if plan.heads > 1 else ""
        yield f"each row{heads} all steps of a tile before the next one begins, as states are most of what steps touch"
    if compiled.team.by_columns:
        yield "few rows a thread: threads share out columns of products in loops, and wait for each other around these"
    if plan.lengths:
        yield f"rows end by '{plan.lengths}': past their end they are in no product that it masks"
    elif plan.uncompacted:
        yield f"rows cost as much past their end: {plan.uncompacted}"
    yield from compiled.notes


def _rows(compiled: CompiledScan) -> Iterator[str]:
    plan = compiled.plan
    worker = compiled.options.target.worker
    rows = "all rows are one" if plan.whole else f"{count(compiled.scan.batch, 'row')}, shared out among {worker}s"
    yield f"{count(compiled.threads, worker)}, {rows}"


def _once(hoisted: Hoisted | None, compiled: CompiledScan) -> Iterator[str]:
    """What is the same at every step."""
    if hoisted is not None and hoisted.before is not None:
        yield "once, before the first step:"
        yield from (f"{INDENT}{call.op.label}({', '.join(call.op.inputs)})" for call in hoisted.before.calls)
    for when, buffers in (("packed once a run", compiled.lent), ("packed once, as it is bound", compiled.lasting)):
        packed = [buffer for buffer in buffers.values() if buffer.kind == PACKED]
        if packed:
            yield f"{when}: {', '.join(map(_sized, packed))}"


# -- stages ----------------------------------------------------------------------------------------------------------


def _stage(stage: Stage, steps: int, rows: str, stepless: bool = False, apart: bool = False) -> Iterator[str]:
    yield ("row by row:" if stage.loop else "all rows at once:") if stepless else f"{stage.head}:"
    for is_row, group in groupby(stage.nodes, key=lambda node: isinstance(node, Statement)):
        nodes = list(group)
        lines = [_row_program(nodes, rows, apart)] if is_row else [_product(node, steps) for node in nodes]
        yield from (f"{INDENT}{line}" for line in lines)


def _past_end(compiled: CompiledScan) -> Iterator[str]:
    """The stages of rows that are over."""
    if compiled.plan.past_end:
        yield "rows that are over:"
        lines = (line for stage in compiled.plan.past_end for line in _stage(stage, compiled.scan.steps, "each row"))
        yield from (f"{INDENT}{line}" for line in lines)


def _row_program(nodes: Sequence[Node], rows: str, apart: bool = False) -> str:
    statements = [node for node in nodes if isinstance(node, Statement)]
    nests = fuse_nests(statements, large_apart=apart)
    extents = ", ".join(str(list(nest.extents)) for nest in nests)
    blobs = ", ".join(dict.fromkeys(statement.blob for statement in statements))
    ops = count(len(statements), "elementwise op")
    return f"for {rows} {ops} in {count(len(nests), 'loop nest')} over {extents}: {blobs}"


def _product(node: Node, steps: int) -> str:
    assert isinstance(node, Product | Contraction)
    return f"{node}, {2e-9 * steps * node.rows * node.inner * node.columns:.3g} GFLOP"


# -- sums, axes, views -------------------------------------------------------------------------------------------------


def _sums(plan: StepPlan) -> Iterator[str]:
    """How what is summed over steps is summed."""
    products = {n.target for stage in plan.stages for n in stage.nodes if isinstance(n, Contraction)}
    ways = {
        "summed over steps and rows by products of whole tiles": [o for o in plan.accumulators if o in products],
        "summed over steps row by row, rows at the end": [o for o, by_row in plan.accumulators.items() if by_row],
    }
    known = {owner for owners in ways.values() for owner in owners}
    ways["summed over steps"] = [owner for owner in plan.accumulators if owner not in known]
    yield from (f"{way}: {', '.join(owners)}" for way, owners in ways.items() if owners)
    if plan.epilogue:
        yield f"computed from sums, once: {', '.join(call.op.label for call in plan.epilogue)}"


def _axes(plan: StepPlan) -> Iterator[str]:
    """Batch axes; the first axis goes without saying."""
    others = {owner: axis for owner, axis in plan.batch_axes.items() if axis != 0 and owner in plan.types}
    if others:
        yield f"batch axis: {', '.join(f'{axis} of {owner}' for owner, axis in others.items())}; 0 of all others"
    written = {node.target.owner for stage in plan.stages for node in stage.nodes if isinstance(node, Statement)}
    same = [owner for owner in plan.types if owner in written and owner not in plan.batch_axes]
    if same and plan.batch_axes:
        yield f"the same for all rows: {', '.join(same)}"


def _views(compiled: CompiledScan) -> Iterator[str]:
    owners: dict[str, list[str]] = {}
    for blob, owner in views_of(compiled.scan).items():
        owners.setdefault(owner, []).append(blob)
    if owners:
        yield "views: " + "; ".join(f"{', '.join(blobs)} of {owner}" for owner, blobs in owners.items())


# -- memory ----------------------------------------------------------------------------------------------------------


def _scratch(compiled: CompiledScan) -> Iterator[str]:
    """Blobs in scratch, by how long they are needed."""
    types, found = compiled.plan.types, compiled.layouts.places.items()
    for extent in ("tile", "step", "row"):
        places = {owner: place for owner, place in found if place.extent == extent}
        sizes = {owner: place.size * np.dtype(types[owner].dtype).itemsize for owner, place in places.items()}
        total = readable(sum(sizes.values()))
        if sizes and extent == "row":
            yield f"in registers or scratch of a row, {total}: {count(len(sizes), 'blob')}"
        elif sizes:
            names = ", ".join(f"{owner} {readable(size)}" for owner, size in sizes.items())
            yield f"in scratch of a {extent}, {total}: {names}"


def _memory(demand: Demand) -> Iterator[str]:
    """Buffers by kind."""
    kinds: dict[str, list[Buffer]] = {}
    for buffer in (*demand.made, *demand.sums, *demand.late, *demand.lent, *demand.lasting):
        kinds.setdefault(buffer.kind, []).append(buffer)
    for kind, buffers in kinds.items():
        yield f"{kind} {readable(sum(b.nbytes for b in buffers))}: {', '.join(map(_sized, buffers))}"


def _sized(buffer: Buffer) -> str:
    return f"{buffer.what} {readable(buffer.nbytes)}"


def count(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
