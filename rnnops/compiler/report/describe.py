"""A plan for people: as text, and the blobs that it keeps for the backward pass, as a table and a picture."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from textwrap import wrap

import numpy as np

from rnnops.checkpoints.policy import Slots
from rnnops.checkpoints.slot_schedule import slots
from rnnops.compiler.lower.lower_ops import Hoisted
from rnnops.compiler.lower.movements import stays_there
from rnnops.compiler.lower.scan import Role, StepPlan
from rnnops.compiler.lower.statements import Contraction, Node, Stage, Statement, StepProduct
from rnnops.compiler.memory.allocations import buffers_of, part_bytes, results_of
from rnnops.compiler.memory.choose_saved import runs_again
from rnnops.compiler.memory.memory import KEPT, PACKED, Buffer, Demand
from rnnops.compiler.report.memory_timeline import PART
from rnnops.compiler.run.backward import BackwardScan
from rnnops.compiler.run.compile_programs import Runner, Runners, Stepped, runner_shown
from rnnops.compiler.run.compiled_scan import EXACT, CompiledScan, Options
from rnnops.compiler.run.forward import ForwardScan, RowPass
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.schedule.loop_nests import fuse_nests
from rnnops.compiler.schedule.plan_step import views_of
from rnnops.interpreter import Program
from rnnops.kernels.cpu.native import way_of
from rnnops.kernels.cpu.processor import PAIRS, vector_width
from rnnops.net.drawing import Drawing, Marks, draw_typed
from rnnops.net.loop_forms import View
from rnnops.net.schema import Call, form_of
from rnnops.recurrent.parts import Parts
from rnnops.recurrent.recurrence import Recurrence, cell_program, input_types, is_training_form, runs_in_parts
from rnnops.types import OPAQUE, Shape
from rnnops.util import aligned, counted, readable, spaced, table

INDENT = "  "


def describe_scan(compiled: CompiledScan, hoisted: Hoisted | None, demand: Demand) -> list[str]:
    """Lines about one pass of a recurrence. Without `hoisted`, about a pass over rows that has no steps."""
    plan = compiled.plan
    rows = "each row" if plan.batch_axes else "all rows at once"
    return [
        *facts_of(compiled, stepless=hoisted is None),
        *_once(hoisted, compiled),
        *(line for stage in plan.stages for line in _stage(stage, compiled, rows, hoisted is None)),
        *_past_end(compiled),
        *_sums(plan),
        *_axes(plan),
        *_views(compiled),
        *_scratch(compiled),
        *_memory(demand),
    ]


def facts_of(compiled: CompiledScan, stepless: bool) -> Iterator[str]:
    """Lines about steps, rows, tiles, and the shares of threads. For a pass without steps, only about rows."""
    return _rows(compiled) if stepless else _loops(compiled)


def _loops(compiled: CompiledScan) -> Iterator[str]:
    scan, plan = compiled.scan, compiled.plan
    rows = compiled.tile * scan.batch
    order = "from the last to the first" if scan.reverse else "from the first to the last"
    yield f"{counted(scan.steps, 'step')} (T) {order}, {counted(scan.batch, 'row')} (N)"
    tile = f"tiles of {counted(compiled.tile, 'step')}, {counted(rows, 'row')} of products"
    worker = compiled.options.target.worker
    yield f"{counted(compiled.threads, worker)}, {tile}"
    if plan.whole:
        yield f"rows are not shared out: {plan.whole}"
    else:
        yield f"rows are independent: {worker}s share them out"
    if plan.rows_outside:
        one = f"each of {plan.heads} heads of a row" if plan.heads > 1 else "each row"
        yield f"{one} goes through all steps of a tile before the next begins: states are most of the memory of a step"
    if compiled.team.by_columns:
        yield "few rows a thread: threads share out columns of products in loops, and wait for each other around them"
    if plan.lengths:
        yield f"rows end by '{plan.lengths}': past their end they are in no product that it masks"
    elif plan.uncompacted:
        yield f"rows cost as much past their end: {plan.uncompacted}"
    yield from compiled.notes


def _rows(compiled: CompiledScan) -> Iterator[str]:
    plan = compiled.plan
    worker = compiled.options.target.worker
    shared = f"{counted(compiled.scan.batch, 'row')}, shared out among {worker}s"
    yield f"{counted(compiled.threads, worker)}, {'rows are not shared out' if plan.whole else shared}"


def _once(hoisted: Hoisted | None, compiled: CompiledScan) -> Iterator[str]:
    """The work that is done once: ops that are the same at every step, and packing."""
    if hoisted is not None and hoisted.prologue is not None:
        yield "once, before the first step:"
        yield from (f"{INDENT}{call.op.label}({', '.join(call.op.inputs)})" for call in hoisted.prologue.calls)
    for when, buffers in (("packed once a run", compiled.lent), ("packed once, as it is bound", compiled.lasting)):
        packed = [buffer for buffer in buffers.values() if buffer.kind == PACKED]
        if packed:
            yield f"{when}: {', '.join(map(_sized, packed))}"


# -- stages ----------------------------------------------------------------------------------------------------------


def _stage(stage: Stage, compiled: CompiledScan, rows: str, stepless: bool = False) -> Iterator[str]:
    yield ("row by row:" if stage.loop else "all rows at once:") if stepless else f"{stage.head}:"
    for is_row, group in groupby(stage.nodes, key=lambda node: isinstance(node, Statement)):
        nodes = list(group)
        lines = [_row_program(nodes, rows, compiled)] if is_row else [_product(node, compiled) for node in nodes]
        yield from (f"{INDENT}{line}" for line in lines)


def _past_end(compiled: CompiledScan) -> Iterator[str]:
    """The stages of rows that are over."""
    if compiled.plan.past_end:
        yield "rows that are over:"
        lines = (line for stage in compiled.plan.past_end for line in _stage(stage, compiled, "each row"))
        yield from (f"{INDENT}{line}" for line in lines)


def _row_program(nodes: Sequence[Node], rows: str, compiled: CompiledScan) -> str:
    statements, apart = [node for node in nodes if isinstance(node, Statement)], compiled.plan.large_states
    dtype = compiled.float_dtype if compiled.options.target.calls and not apart else ""
    nests = fuse_nests(statements, large_apart=apart, products=dtype)
    calls = [f"{nest.call}" for nest in nests if nest.call]
    nests, blocks = [nest for nest in nests if not nest.call], f", and in blocks {', '.join(calls)}" if calls else ""
    extents = ", ".join(str(list(nest.extents)) for nest in nests)
    blobs = ", ".join(dict.fromkeys(statement.blob for statement in statements))
    ops = counted(len(statements), "elementwise op")
    return f"for {rows} {ops} in {counted(len(nests), 'loop nest')} over {extents}{blocks}: {blobs}"


def _product(node: Node, compiled: CompiledScan) -> str:
    assert isinstance(node, StepProduct | Contraction)
    return f"{node}, {2e-9 * compiled.scan.steps * node.rows * node.inner * node.columns:.3g} GFLOP"


# -- sums, axes, views -------------------------------------------------------------------------------------------------


def _sums(plan: StepPlan) -> Iterator[str]:
    """The ways in which sums over steps are made."""
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
    """Batch axes other than the first, and blobs that are the same for all rows."""
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
    """Blobs in scratch, by the extent for which they are needed."""
    types, found = compiled.plan.types, compiled.layouts.places.items()
    for extent in ("tile", "step", "row"):
        places = {owner: place for owner, place in found if place.extent == extent}
        sizes = {owner: place.size * np.dtype(types[owner].dtype).itemsize for owner, place in places.items()}
        total = readable(sum(sizes.values()))
        if sizes and extent == "row":
            yield f"in registers or scratch of a row, {total}: {counted(len(sizes), 'blob')}"
        elif sizes:
            names = ", ".join(f"{owner} {readable(size)}" for owner, size in sizes.items())
            yield f"in scratch of a {extent}, {total}: {names}"


def _memory(demand: Demand) -> Iterator[str]:
    """Buffers by kind."""
    kinds: dict[str, list[Buffer]] = {}
    for buffer in demand.buffers:
        kinds.setdefault(buffer.kind, []).append(buffer)
    for kind, buffers in kinds.items():
        yield f"{kind} {readable(sum(b.nbytes for b in buffers))}: {', '.join(map(_sized, buffers))}"


def _sized(buffer: Buffer) -> str:
    return f"{buffer.what} {readable(buffer.nbytes)}"


WIDTH = 120
RECURRENT = ("RecurrentNetwork", "RecurrentNetworkGradient")
FUSED = "FusedOps"
Plan = ForwardPlan | TrainingPlan


def describe_plan(plan: Plan, device: str, calls: str = "", budget: str = "") -> str:
    """All of a plan.

    Args:
        calls: the way in which calls are answered, if it is known.
        budget: a line about the memory budget, if there is one.
    """
    net = plan.program.net
    feeds = ", ".join(f"{name} {plan.program.types[name]}" for name in net.input_names)
    lines = [f"net '{net.name}' on device '{device}', floats are {plan.program.float_dtype}", f"feeds: {feeds}"]
    if calls:
        lines.append(f"calls with such feeds: {calls}")
    lines += [budget] if budget else []
    lines += _rounding(plan.options, device)
    if isinstance(plan, TrainingPlan):
        lines.append(f"gradients of: {', '.join(plan.backward.net.output_blobs) or 'nothing'}")
    if device != "cuda" and not any(runner for _, _, runner in compiled_ops(plan)):
        lines.append("everything runs in the interpreter, op by op")
    for title, program in programs_of(plan).items():
        for where, found in _around(others(program), device).items():
            lines.append(f"around recurrences, {where}, {title}: {', '.join(written(found)) or 'nothing'}")
    lines += [f"not compiled: {label}: {reason}" for label, reason in plan.compiled.interpreted.items()]
    for title, call, runner in compiled_ops(plan):
        what = _fused if call.op.type == FUSED else _recurrence
        lines += ["", f"{title}:", *(f"{INDENT}{line}" for line in what(call, runner))]
    return "\n".join(part for line in lines for part in _wrapped(line))


def _rounding(options: Options, device: str) -> Iterator[str]:
    """The format of rounded operands, how they are multiplied, and the format of bound weights."""
    if options.weights:
        yield f"weights: whole numbers of a byte ({options.weights}), a scale for each column; products are float32"
    if options.precision == EXACT:
        return
    way = "multiplied as float32"
    if device == "cuda":
        way = "multiplied on tensor cores"
    elif not options.interpreted:
        pairs = options.compiled and way_of(vector_width(options.width)) == PAIRS
        way = "multiplied in pairs by AVX512-BF16" if pairs else f"{way} at the speed of float32"
    yield f"products: operands rounded to {options.precision}, {way}, sums are float32"


def _around(calls: list[Call], device: str) -> dict[str, list[Call]]:
    """The way in which an op runs -> ops that are neither recurrences nor fused."""
    if device != "cuda":
        return {"in the interpreter": calls}
    there = [call for call in calls if stays_there(call)]
    return {"as views or copies": there, "through the host": [call for call in calls if not stays_there(call)]}


def others(program: Program) -> list[Call]:
    """Ops that are neither recurrences nor fused."""
    return [call for call in program.calls if call.op.type not in (*RECURRENT, FUSED)]


def written(calls: Iterable[Call]) -> tuple[str, ...]:
    """Ops as `Reshape -> y`."""
    return tuple(f"{call.op.type} -> {call.op.key}" for call in calls)


def _wrapped(line: str) -> list[str]:
    """A line in parts that are short enough to read."""
    indent = line[: len(line) - len(line.lstrip())]
    options = {"break_long_words": False, "break_on_hyphens": False}
    return wrap(line, WIDTH, subsequent_indent=f"{indent}{INDENT * 2}", **options) or [line]  # type: ignore[arg-type]


def compiled_ops(plan: Plan) -> Iterator[tuple[str, Call, Runner | None]]:
    """For each recurrence and fused op of each pass: title, op, runner. Steps that are called one by one may have such
    ops, too."""
    names: dict[str, str] = {}
    passes = (plan.compiled.forward, plan.compiled.backward)
    for (title, program), runners in zip(programs_of(plan).items(), passes, strict=False):
        yield from _ops_of(program, runners, title, names)


def _ops_of(
    program: Program, runners: Runners, title: str, names: dict[str, str]
) -> Iterator[tuple[str, Call, Runner | None]]:
    """The same for one program.

    Args:
        names: workspace of a recurrence -> its name, which its gradient gets as well.
    """
    for call in program.calls:
        runner = runner_shown(runners.get(call.op.key))
        if call.op.type in RECURRENT:
            forward = call.op.type == RECURRENT[0]
            name = call.op.key if forward else names.get(call.op.inputs[len(call.output_types)], call.op.key)
            names.update(dict.fromkeys(call.op.outputs, name))
            yield f"recurrence '{name}', {title}", call, runner
        elif call.op.type == FUSED:
            name = call.op.key
            yield f"fused ops '{name}', {title}", call, runner
        for when, once in runner.beside().items() if runner else ():
            yield from _ops_of(once.program, once.kernels, f"{when} of '{name}', {title}", names)


def programs_of(plan: Plan) -> dict[str, Program]:
    """The program of each pass, by its name."""
    programs = {"forward": plan.program}
    return {**programs, "backward": plan.backward} if isinstance(plan, TrainingPlan) else programs


def _fused(call: Call, runner: Runner | None) -> Iterator[str]:
    body = call.op.attributes["body"]
    yield f"{', '.join(call.op.inputs)} -> {', '.join(call.op.outputs)}: {', '.join(op.type for op in body.ops)}"
    if isinstance(runner, RowPass):
        yield from describe_scan(runner.compiled, None, runner.demand())
    else:
        yield "run in the interpreter, op by op"


def _recurrence(call: Call, runner: Runner | None) -> Iterator[str]:
    recurrence = Recurrence(call.op, call.net)
    if call.op.type == RECURRENT[0]:
        yield from _kept(recurrence)
    else:
        again = runs_again(recurrence.cell, call.op.attributes["backward"])
        yield f"computed again: {', '.join(again) or 'nothing'}"
    yield from variables_of(call)
    yield from said_of_parts(call)
    if isinstance(runner, Stepped):
        yield f"steps are called one by one, as {runner.reason}; what is compiled of each follows"
        yield f"in the interpreter, at each step: {', '.join(written(others(runner.program))) or 'nothing'}"
    elif isinstance(runner, ForwardScan | BackwardScan):
        yield from describe_scan(runner.compiled, runner.hoisted, runner.demand())
    else:
        yield "runs in the interpreter, step by step"


def variables_of(call: Call) -> Iterator[str]:
    """Variables of the cell's source, and the blobs that they held."""
    labels = call.op.attributes["cell"].labels.names if call.op.type in RECURRENT else {}
    if labels:
        yield f"variables: {', '.join(f'{label} is {name}' for name, label in labels.items())}"


def said_of_parts(call: Call) -> Iterator[str]:
    """A line about the parts of a recurrence, if it has any. The lines after it are about one part."""
    if runs_in_parts(call.op):
        steps, count, kind, cost = call.op.attributes["schedule"]
        yield f"in parts: {Slots(count, kind, steps, cost)}; each of them:"


def _kept(recurrence: Recurrence) -> Iterator[str]:
    """The residuals of each step."""
    if recurrence.keeps_workspaces:
        blobs, read = recurrence.cell.output_blobs, recurrence.backward_reads
        states = [f"state {s.input}" for s in recurrence.states if {s.input, blobs[s.output]} & read]
        outputs = [f"output {name}" for name in recurrence.step_outputs if blobs[name] in read]
        yield f"kept of each step: {', '.join([*states, *outputs, *recurrence.keep]) or 'nothing'}"


SAVED_HEAD = ("status", "blob", "of", "dtype", "shape", "bytes")


@dataclass(frozen=True)
class SavedBlob:
    """One line.

    Args:
        status: `kept`; `recomputed` on the backward pass; `boundary`: a state before a part of a recurrence; `alias`:
            kept, but it lies in an output, which is kept anyway.
        name: the name of a blob of the net or of a step. A recurrence within a step has one line, for its workspace.
        of: the recurrence, by its first result; `""` for blobs of the net.
        dtype: of its elements.
        shape: of all steps together.
    """

    status: str
    name: str
    of: str
    dtype: str
    shape: Shape

    @property
    def nbytes(self) -> int:
        """Bytes between the passes; 0 for a recomputed blob."""
        return 0 if self.status == "recomputed" else prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class SavedResiduals:
    """All lines; prints as a table.

    Args:
        blobs: a `SavedBlob` each.
    """

    blobs: tuple[SavedBlob, ...]

    @property
    def total(self) -> int:
        """Bytes kept between the passes, with aliases of outputs."""
        return sum(blob.nbytes for blob in self.blobs)

    def cells(self) -> list[tuple[str, ...]]:
        """The rows of the table, in the column order of `SAVED_HEAD`."""
        rows = [(b.status, b.name, b.of, b.dtype, str(list(b.shape)), spaced(b.nbytes)) for b in self.blobs]
        return [*rows, ("total", "", "", "", "", spaced(self.total))]

    def __str__(self) -> str:
        return "\n".join(aligned([SAVED_HEAD, *self.cells()]))

    def _repr_html_(self) -> str:
        return table(SAVED_HEAD, self.cells(), "what is kept for the backward pass, and what is computed again")


def saved_residuals(plan: TrainingPlan) -> SavedResiduals:
    """The blobs that a plan saves. No op runs for this."""
    return SavedResiduals((*_of_net(plan), *(line for call in _recurrences(plan) for line in _of_steps(plan, call))))


def _recurrences(plan: TrainingPlan) -> list[Call]:
    return [call for call in plan.program.calls if is_training_form(call.op)]


def _of_net(plan: TrainingPlan) -> Iterator[SavedBlob]:
    types, outputs = plan.program.types, set(plan.program.net.output_blobs.values())
    within = {name for call in _recurrences(plan) for name in _within_kept(call)}
    for name in plan.residuals.kept:
        if types[name].dtype != OPAQUE and name not in within:
            yield SavedBlob("alias" if name in outputs else "kept", name, "", types[name].dtype, types[name].shape)
    for op in plan.residuals.rerun:
        for name in (name for name in op.outputs if name):
            kind = plan.unfused.types[name]
            yield SavedBlob("recomputed", name, "", kind.dtype, kind.shape)


def _within_kept(call: Call) -> Iterator[str]:
    """Results of a recurrence that lie in the memory that it keeps for backward."""
    if not runs_in_parts(call.op) and not call.op.attributes.get("segments"):
        for name, kind, lies_in in zip(
            call.op.outputs[:-1], call.output_types, results_of(call, buffers_of(call)), strict=False
        ):
            if len(lies_in) == 1 and lies_in[0].kind == KEPT and kind.nbytes >= PART * lies_in[0].nbytes:
                yield name


def _of_steps(plan: TrainingPlan, call: Call) -> Iterator[SavedBlob]:
    """The residuals of a recurrence. For one in parts: those of a whole part, and the states in slots."""
    recurrence = Recurrence(call.op, call.net)
    types, step = input_types(recurrence, call), cell_program(recurrence, call).types
    steps, _ = recurrence.steps_and_batch(types)
    borders = _borders(plan, call)
    if borders:
        yield from borders
    elif runs_in_parts(call.op):
        schedule = call.op.attributes["schedule"]
        yield from _boundaries(call, schedule)
        yield from _kept_of(part_bytes(call).keep(schedule[0]), ())
    else:
        yield from _kept_of(call, set(plan.program.net.output_blobs.values()))
    for name in runs_again(recurrence.cell, call.op.attributes["backward"]):
        yield SavedBlob("recomputed", name, call.op.key, step[name].dtype, (steps, *step[name].shape))


def _borders(plan: TrainingPlan, call: Call) -> list[SavedBlob]:
    """States at borders of segments, if a recurrence has segments. It keeps nothing else then."""
    runner = plan.compiled.forward.get(call.op.key)
    tensors = runner.compiled.scan.tensors if runner is not None and runner.compiled is not None else {}
    return [
        SavedBlob("boundary", name.blob, call.op.key, tensor.dtype, (tensor.length, *tensor.shape))
        for name, tensor in tensors.items()
        if name.role is Role.BORDER
    ]


def _kept_of(call: Call, outputs: Collection[str]) -> Iterator[SavedBlob]:
    """The memory of all steps that backward reads. Memory in the net's outputs is there anyway, and is an `alias`."""
    buffers = buffers_of(call)
    results = zip(call.op.outputs, results_of(call, buffers), strict=True)
    there = [buffer for name, lies_in in results if name in outputs for buffer in lies_in]
    for name, buffer in buffers.items():
        if buffer.kind == KEPT:
            status = "alias" if buffer in there else "kept"
            yield SavedBlob(status, name.blob, call.op.key, buffer.dtype, buffer.shape)


def _boundaries(call: Call, schedule: tuple[int, int, str, int]) -> Iterator[SavedBlob]:
    """States in slots at the end of the forward pass, with those at the start and after the part that is kept."""
    unit, m, kind, cost = schedule
    parts = Parts(call, (), unit)
    stored = 0
    for action in slots(parts.count, m, kind, cost):
        if action.what == "backward":
            break
        stored += (action.what in ("store", "keep")) - (action.what == "drop")
    for name, initial in parts.initial.items():
        yield SavedBlob("boundary", name, call.op.key, initial.dtype, (stored + 1, *initial.shape))


COLOURS = {"kept": "kept", "alias": "kept", "boundary": "boundary", "recomputed": "recomputed"}
SAID = {
    "kept": "kept for the backward pass, {} bytes",
    "alias": "kept for the backward pass, {} bytes that lie in an output",
    "boundary": "kept before each part of the steps, {} bytes",
    "recomputed": "computed again on the backward pass",
}


def draw_saved(plan: ForwardPlan | TrainingPlan, opened: bool = True, views: bool = False) -> Drawing:
    """The net of a plan's forward pass, before ops are fused. Blobs have the names that other reports use.

    Args:
        opened: whether cells are drawn within recurrences.
        views: whether ops that give elements another shape or order are drawn.
    """
    if isinstance(plan, ForwardPlan):
        program = plan.program
        return draw_typed(program.net, program.types, opened, views, None, "", program.float_dtype)
    saved, program = saved_residuals(plan), plan.unfused
    recurrent = [call for call in program.calls if call.op.type == "RecurrentNetwork"]
    inner = {call.op.key: cell_program(Recurrence(call.op, call.net), call) for call in recurrent}
    within = {key: _marks(saved.blobs, key, cell) for key, cell in inner.items()}
    outer = _marks(saved.blobs, "", program)
    title = f"net {program.net.name}: {readable(saved.total)} kept for the backward pass"
    marks = Marks(outer.blobs, outer.notes, within)
    return draw_typed(program.net, program.types, opened, views, marks, title, program.float_dtype)


def _is_computed(call: Call) -> bool:
    """True if an op takes time."""
    return call.op.type != "Constant" and not isinstance(form_of(call), View)


def _marks(blobs: Iterable[SavedBlob], of: str, program: Program) -> Marks:
    """Colours and notes for the blobs of one net. Views and constants are never marked as recomputed."""
    made = {name for call in program.calls if _is_computed(call) for name in call.op.outputs}
    told = [one for one in blobs if one.of == of and (one.status != "recomputed" or one.name in made)]
    borders = [one for one in told if one.status == "boundary"]
    if borders:  # all steps run again from there, even if a part is kept for a time
        again = Marks(dict.fromkeys(made, "recomputed"), dict.fromkeys(made, SAID["recomputed"]))
        return again.beside(_told(borders))
    return _told(told)


def _told(blobs: Iterable[SavedBlob]) -> Marks:
    notes = {one.name: SAID[one.status].format(spaced(one.nbytes)) for one in blobs}
    return Marks({one.name: COLOURS[one.status] for one in blobs}, notes)
