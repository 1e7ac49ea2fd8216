"""What a training plan saves: each blob with its bytes, and whether it is kept, made again, a boundary, or an alias."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from rnnops.checkpoints.slot_schedule import slots
from rnnops.compiler.buffers.interpreted_memory import buffers_of, results_of
from rnnops.compiler.buffers.memory import KEPT
from rnnops.compiler.buffers.part_bytes import part_bytes
from rnnops.compiler.ir.tensor_name import Role
from rnnops.compiler.pipeline import TrainingPlan
from rnnops.compiler.report.memory_table import aligned, spaced
from rnnops.compiler.report.memory_timeline import PART
from rnnops.compiler.saving.choose_saved import runs_again
from rnnops.html import table
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.parts import Parts
from rnnops.recurrent.recurrence import Recurrence, is_training_form, runs_in_parts
from rnnops.schema import Call
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
