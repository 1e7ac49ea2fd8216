"""The blobs that a training plan saves, as a table and as a drawing.

What a training plan saves: each blob with its bytes, and whether it is kept, made again, a boundary, or an alias.

The net of a plan as a drawing: what the backward pass finds kept, and what it computes again, in colour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from rnnops.checkpoints.slot_schedule import slots
from rnnops.compiler.buffers.allocations import buffers_of, part_bytes, results_of
from rnnops.compiler.buffers.memory import KEPT
from rnnops.compiler.ir.scan import Role
from rnnops.compiler.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.report.memory_table import aligned, readable, spaced
from rnnops.compiler.report.memory_timeline import PART
from rnnops.compiler.saving.choose_saved import runs_again
from rnnops.interpreter import Program
from rnnops.loops import View
from rnnops.pictures.draw_net import Marks, draw_typed
from rnnops.pictures.drawing import Drawing
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.parts import Parts
from rnnops.recurrent.recurrence import Recurrence, is_training_form, runs_in_parts
from rnnops.schema import Call, form_of
from rnnops.terminal import table
from rnnops.types import OPAQUE, Shape

HEAD = ("status", "blob", "of", "dtype", "shape", "bytes")


@dataclass(frozen=True)
class SavedBlob:
    """One line.

    Args:
        status: `kept`; `recomputed` on the backward pass; `boundary`: a state before a part of a recurrence; `alias`:
            kept, but it lies in an output that is there anyway.
        name: of a blob of the net, or of a step; of steps of a recurrence within a step their workspace.
        of: the recurrence by its first result, `""` for blobs of the net.
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
        """Bytes between the passes; none for what is made again."""
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
        """Bytes kept between the passes, aliases of outputs included."""
        return sum(blob.nbytes for blob in self.blobs)

    def cells(self) -> list[tuple[str, ...]]:
        """What `HEAD` is above of."""
        rows = [(b.status, b.name, b.of, b.dtype, str(list(b.shape)), spaced(b.nbytes)) for b in self.blobs]
        return [*rows, ("total", "", "", "", "", spaced(self.total))]

    def __str__(self) -> str:
        return "\n".join(aligned([HEAD, *self.cells()]))

    def _repr_html_(self) -> str:
        return table(HEAD, self.cells(), "what is kept for the backward pass, and what is computed again")


def saved_residuals(plan: TrainingPlan) -> SavedResiduals:
    """What a plan saves; nothing is computed for it."""
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
    """Results of a recurrence that need no memory beside what it keeps of its steps."""
    if not runs_in_parts(call.op) and not call.op.attributes.get("segments"):
        for name, kind, lies_in in zip(
            call.op.outputs[:-1], call.output_types, results_of(call, buffers_of(call)), strict=False
        ):
            if len(lies_in) == 1 and lies_in[0].kind == KEPT and kind.nbytes >= PART * lies_in[0].nbytes:
                yield name


def _of_steps(plan: TrainingPlan, call: Call) -> Iterator[SavedBlob]:
    """What a recurrence keeps; of one in parts, that of a whole part and the states in slots."""
    recurrence = Recurrence(call.op, call.net)
    types, step = input_types(recurrence, call), cell_program(recurrence, call).types
    steps, _ = recurrence.steps_and_batch(types)
    borders = _borders(plan, call)
    if borders:
        yield from borders
    elif runs_in_parts(call.op):
        schedule = call.op.attributes["schedule"]
        yield from _boundaries(call, schedule)
        yield from _kept(part_bytes(call).keep(schedule[0]), ())
    else:
        yield from _kept(call, set(plan.program.net.output_blobs.values()))
    for name in runs_again(recurrence.cell, call.op.attributes["backward"]):
        yield SavedBlob("recomputed", name, call.op.key, step[name].dtype, (steps, *step[name].shape))


def _borders(plan: TrainingPlan, call: Call) -> list[SavedBlob]:
    """States at borders of segments, where a recurrence keeps nothing else."""
    runner = plan.compiled.forward.get(call.op.key)
    tensors = runner.compiled.scan.tensors if runner is not None and runner.compiled is not None else {}
    return [
        SavedBlob("boundary", name.blob, call.op.key, tensor.dtype, (tensor.length, *tensor.shape))
        for name, tensor in tensors.items()
        if name.role is Role.BORDER
    ]


def _kept(call: Call, outputs: Collection[str]) -> Iterator[SavedBlob]:
    """Memory of all steps that backward reads; what lies in outputs of the net is there anyway."""
    buffers = buffers_of(call)
    results = zip(call.op.outputs, results_of(call, buffers), strict=True)
    there = [buffer for name, lies_in in results if name in outputs for buffer in lies_in]
    for name, buffer in buffers.items():
        if buffer.kind == KEPT:
            status = "alias" if buffer in there else "kept"
            yield SavedBlob(status, name.blob, call.op.key, buffer.dtype, buffer.shape)


def _boundaries(call: Call, schedule: tuple[int, int, str, int]) -> Iterator[SavedBlob]:
    """States in slots when the forward pass ends, and those at the start and after the part that is kept."""
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


def draw_saved(plan: ForwardPlan | TrainingPlan, opened: bool = True) -> Drawing:
    """The net that a plan runs forward, less what it fuses; its blobs have the names that other reports say.

    Args:
        opened: whether cells are drawn within recurrences.
    """
    if isinstance(plan, ForwardPlan):
        program = plan.program
        return draw_typed(program.net, program.types, opened, None, "", program.float_dtype)
    saved, program = saved_residuals(plan), plan.unfused
    inner = {
        call.op.key: cell_program(Recurrence(call.op, call.net), call) for call in program.calls if _has_cell(call)
    }
    within = {key: _marks(saved.blobs, key, cell) for key, cell in inner.items()}
    outer = _marks(saved.blobs, "", program)
    title = f"net {program.net.name}: {readable(saved.total)} kept for the backward pass"
    marks = Marks(outer.blobs, outer.notes, within)
    return draw_typed(program.net, program.types, opened, marks, title, program.float_dtype)


def _has_cell(call: Call) -> bool:
    return call.op.type == "RecurrentNetwork"


def _is_computed(call: Call) -> bool:
    """Whether an op takes time."""
    return call.op.type != "Constant" and not isinstance(form_of(call), View)


def _marks(blobs: Iterable[SavedBlob], of: str, program: Program) -> Marks:
    """Colours and notes of the blobs of one net; views and constants are never computed, so not again."""
    made = {name for call in program.calls if _is_computed(call) for name in call.op.outputs}
    told = [one for one in blobs if one.of == of and (one.status != "recomputed" or one.name in made)]
    borders = [one for one in told if one.status == "boundary"]
    if borders:  # all steps run again from there, whatever is kept of a part meanwhile
        again = Marks(dict.fromkeys(made, "recomputed"), dict.fromkeys(made, SAID["recomputed"]))
        return again.beside(_told(borders))
    return _told(told)


def _told(blobs: Iterable[SavedBlob]) -> Marks:
    notes = {one.name: SAID[one.status].format(spaced(one.nbytes)) for one in blobs}
    return Marks({one.name: COLOURS[one.status] for one in blobs}, notes)
