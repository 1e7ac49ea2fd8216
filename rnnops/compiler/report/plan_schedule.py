"""The schedule of a plan as values: what runs in which order, over tiles and steps, on which threads, in what memory.

Names, sizes and orders are those of the plan; nothing is measured, and no lane says how long it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rnnops.compiler.buffers.memory import KINDS, PACKED, Buffer
from rnnops.compiler.codegen.scan_module import COLUMNS
from rnnops.compiler.execute.backward import BackwardScan
from rnnops.compiler.execute.compiled import Runner
from rnnops.compiler.execute.compiled_scan import CompiledScan
from rnnops.compiler.execute.forward import ForwardScan
from rnnops.compiler.execute.row_pass import RowPass
from rnnops.compiler.execute.stepped_kernels import Stepped
from rnnops.compiler.ir.nodes import Contraction, Node, Product, Stage
from rnnops.compiler.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.report.describe import FUSED, RECURRENT, compiled_ops, programs_of, said_of_parts
from rnnops.compiler.report.describe_scan import count, facts_of
from rnnops.compiler.report.schedule_parts import (
    ONCE,
    STEP,
    TILE,
    Lane,
    OpsSchedule,
    Part,
    PassSchedule,
    ScanSchedule,
    Share,
)
from rnnops.compiler.report.schedule_picture import picture_of
from rnnops.compiler.schedule.step_plan import SUM_PARTS, rows_of_sum
from rnnops.interpreter import Program
from rnnops.pictures.picture import Picture
from rnnops.schema import Call

OVER = "rows that are over, "
Entry = tuple[str, Call, Runner | None]  # of `compiled_ops`


@dataclass(frozen=True)
class Schedule(Picture):
    """The schedule of a plan.

    Args:
        title: what is shown.
        passes: in order.
    """

    title: str
    passes: tuple[PassSchedule, ...]

    @property
    def svg(self) -> str:
        """The picture, as a document of its own."""
        return picture_of(self)

    def __str__(self) -> str:
        lines = [self.title]
        for one in self.passes:
            lines += ["", f"{one.name}:"]
            lines += [f"  {line}" for part in one.parts for line in part.lines()]
        return "\n".join(lines)


def plan_schedule(plan: ForwardPlan | TrainingPlan, device: str) -> Schedule:
    """The schedule of a plan for a device."""
    around = "in the interpreter" if device != "cuda" else "as views, copies or through the host"
    programs = programs_of(plan)
    compiled = _by_call(plan, programs.values())
    passes = [PassSchedule(name, tuple(_parts(one.calls, compiled, around, name))) for name, one in programs.items()]
    return Schedule(f"net {plan.program.net.name} on device '{device}': what runs when", tuple(passes))


def _by_call(plan: ForwardPlan | TrainingPlan, programs: Iterable[Program]) -> dict[int, list[Entry]]:
    """Id of a call of a pass -> itself, if it is compiled, and what runs within it."""
    outer, key = {id(call) for program in programs for call in program.calls}, 0
    found: dict[int, list[Entry]] = {}
    for entry in compiled_ops(plan):  # what runs within an op comes right behind it
        key = id(entry[1]) if id(entry[1]) in outer else key
        found.setdefault(key, []).append(entry)
    return found


def share_out(count: int, threads: int, block: int = 1) -> tuple[Share, ...]:
    """What each thread takes of things that go in blocks, as drivers share them out (`share_of` of the kernel IR)."""
    blocks = -(-count // block)
    bounds = [min(count, blocks * rank // threads * block) for rank in range(threads + 1)]
    return tuple(pairwise(bounds))


def _parts(calls: Sequence[Call], compiled: Mapping[int, list[Entry]], around: str, name: str) -> Iterator[Part]:
    """Parts of a pass; neighbours that are not compiled are one."""
    for is_compiled, group in groupby(calls, key=lambda call: id(call) in compiled):
        if not is_compiled:
            yield OpsSchedule(around, _listed(group))
            continue
        for title, call, runner in (entry for one in group for entry in compiled[id(one)]):
            yield _part(title.removesuffix(f", {name}"), call, runner)


def _part(title: str, call: Call, runner: Runner | None) -> Part:
    if isinstance(runner, ForwardScan | BackwardScan):
        before = runner.hoisted.before.calls if runner.hoisted.before is not None else ()
        return _scan(title, runner.compiled, runner, before, stepless=False, facts=[*said_of_parts(call)])
    if isinstance(runner, RowPass):
        return _scan(title, runner.compiled, runner, (), stepless=True)
    if isinstance(runner, Stepped) and runner.reason:
        ops = _listed(one for one in runner.program.calls if one.op.type not in (*RECURRENT, FUSED))
        return OpsSchedule(f"{title}, steps one by one, as {runner.reason}; in the interpreter at each step", ops)
    inner = call.op.attributes.get("body") or call.op.attributes.get("cell")
    return OpsSchedule(f"{title}, in the interpreter", tuple(op.type for op in inner.ops) if inner is not None else ())


def _listed(calls: Iterable[Call]) -> tuple[str, ...]:
    return tuple(f"{call.op.type} -> {call.op.key}" for call in calls)


def _scan(
    title: str,
    compiled: CompiledScan,
    runner: Runner,
    before: Sequence[Call],
    stepless: bool,
    facts: Sequence[str] = (),
) -> ScanSchedule:
    plan, steps = compiled.plan, compiled.scan.steps
    stages = [_lane(stage, steps, stepless) for stage in plan.stages]
    over = [_lane(stage, steps, stepless, OVER) for stage in plan.past_end]
    lanes = [*_first(compiled, before), *(over + stages if compiled.scan.reverse else stages + over), *_last(compiled)]
    facts = (*facts, *facts_of(compiled, stepless))
    known = (0, 0, False) if stepless else (steps, compiled.tile, compiled.scan.reverse)
    return ScanSchedule(title, facts, *known, tuple(lanes), _shares(compiled), _nbytes(runner))


def _lane(stage: Stage, steps: int, stepless: bool, whose: str = "") -> Lane:
    head = ("row by row" if stage.loop else "all rows at once") if stepless else stage.head
    when = ONCE if stepless else STEP if stage.loop else TILE
    products = [node for node in stage.nodes if isinstance(node, Product | Contraction)]
    gflop = sum(2e-9 * steps * node.rows * node.inner * node.columns for node in products)
    groups = groupby(stage.nodes, key=lambda node: isinstance(node, Product | Contraction))
    work = [line for large, nodes in groups for line in (map(str, nodes) if large else [_elementwise([*nodes])])]
    return Lane(when, whose + head, tuple(work), gflop)


def _elementwise(nodes: Sequence[Node]) -> str:
    return f"{count(len(nodes), 'elementwise op')}: {', '.join(dict.fromkeys(node.blob for node in nodes))}"


def _first(compiled: CompiledScan, before: Sequence[Call]) -> Iterator[Lane]:
    """What runs once, before the first step."""
    packed = [buffer.what for buffer in compiled.lent.values() if buffer.kind == PACKED]
    work = [*(call.op.label for call in before), *([f"pack {', '.join(packed)}"] if packed else [])]
    if work:
        yield Lane(ONCE, "once, before all", tuple(work))


def _last(compiled: CompiledScan) -> Iterator[Lane]:
    """What runs once, after the last step."""
    plan = compiled.plan
    by_row = [owner for owner, in_parts in plan.accumulators.items() if in_parts]
    work = [*([f"add up rows of {', '.join(by_row)}"] if by_row else []), *(call.op.label for call in plan.epilogue)]
    if work:
        yield Lane(ONCE, "once, after all", tuple(work), after=True)


def _shares(compiled: CompiledScan) -> dict[str, tuple[Share, ...]]:
    """Who takes what, where there are several threads."""
    scan, plan, threads = compiled.scan, compiled.plan, compiled.threads
    if threads < 2 or compiled.options.device is not None:
        return {}
    rows = scan.batch * plan.heads if plan.batch_axes else 1
    together = rows_of_sum(scan.batch) if scan.batch > SUM_PARTS else 1
    what = "places of rows by length" if plan.lengths else "heads of rows" if plan.heads > 1 else "rows"
    shares = {what: share_out(rows, threads, together)}
    if compiled.team.by_columns:
        loops = [node for stage in plan.stages if stage.loop for node in stage.nodes if isinstance(node, Product)]
        shares |= {f"{node.columns} columns": share_out(node.columns, threads, COLUMNS) for node in loops}
    return shares if rows > 1 or compiled.team.by_columns else {}


def _nbytes(runner: Runner) -> dict[str, int]:
    """Bytes by kind of memory."""
    demand = runner.demand()
    if demand is None:
        return {}
    buffers: list[Buffer] = [*demand.made, *demand.sums, *demand.late, *demand.lent, *demand.lasting]
    found = {kind: sum(buffer.nbytes for buffer in buffers if buffer.kind == kind) for kind in KINDS}
    return {kind: nbytes for kind, nbytes in found.items() if nbytes}
