"""What a training plan saves: each blob with its bytes, and whether it is kept, made again, a boundary, or an alias."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from rnnops.checkpoints.slot_schedule import slots
from rnnops.compiler.choose_saved import runs_again
from rnnops.compiler.memory_table import aligned, spaced
from rnnops.compiler.plan import TrainingPlan
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.parts import Parts
from rnnops.recurrent.recurrence import Recurrence
from rnnops.recurrent.stepping import tensor_shape
from rnnops.schema import Call
from rnnops.types import OPAQUE, Shape, Type

HEAD = ("status", "blob", "of", "dtype", "shape", "bytes")


@dataclass(frozen=True)
class SavedBlob:
    """One line.

    Args:
        status: `kept`; `recomputed` on the backward pass; `boundary`: a state before a part of a recurrence; `alias`:
            kept, but it lies in an output that is there anyway.
        name: of a blob of the net, or of a step.
        of: the recurrence by its first result, `""` for blobs of the net.
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
    """All lines; prints as a table."""

    blobs: tuple[SavedBlob, ...]

    @property
    def total(self) -> int:
        """Bytes kept between the passes, aliases of outputs included."""
        return sum(blob.nbytes for blob in self.blobs)

    def __str__(self) -> str:
        rows = [(b.status, b.name, b.of, b.dtype, str(list(b.shape)), spaced(b.nbytes)) for b in self.blobs]
        return "\n".join(aligned([HEAD, *rows, ("total", "", "", "", "", spaced(self.total))]))


def saved_residuals(plan: TrainingPlan) -> SavedResiduals:
    """What a plan saves; nothing is computed for it."""
    return SavedResiduals((*_of_net(plan), *(line for call in _recurrences(plan) for line in _of_steps(plan, call))))


def _recurrences(plan: TrainingPlan) -> list[Call]:
    calls = [call for call in plan.program.calls if call.op.type == "RecurrentNetwork"]
    return [call for call in calls if "backward" in call.op.attributes]


def _of_net(plan: TrainingPlan) -> Iterator[SavedBlob]:
    types, outputs = plan.program.types, set(plan.program.net.output_blobs.values())
    for name in plan.residuals.kept:
        if types[name].dtype != OPAQUE:
            yield SavedBlob("alias" if name in outputs else "kept", name, "", types[name].dtype, types[name].shape)
    for op in plan.residuals.rerun:
        for name in (name for name in op.outputs if name):
            kind = plan.unfused.types[name]
            yield SavedBlob("recomputed", name, "", kind.dtype, kind.shape)


def _of_steps(plan: TrainingPlan, call: Call) -> Iterator[SavedBlob]:
    recurrence = Recurrence(call.op, call.net)
    types, step = input_types(recurrence, call), cell_program(recurrence, call).types
    steps, batch = recurrence.steps_and_batch(types)
    schedule = call.op.attributes.get("schedule")
    if schedule:
        yield from _boundaries(call, schedule)
    unit = min(schedule[0], steps) if schedule else steps
    outputs = set() if schedule else set(plan.program.net.output_blobs.values())
    yield from _states(call, outputs, types, unit, batch)
    for name in recurrence.keep:
        if step[name].dtype != OPAQUE:
            yield SavedBlob("kept", name, call.op.key, step[name].dtype, (unit, *step[name].shape))
    for name in runs_again(recurrence.cell, call.op.attributes["backward"]):
        yield SavedBlob("recomputed", name, call.op.key, step[name].dtype, (steps, *step[name].shape))


def _states(
    call: Call, outputs: Collection[str], types: Mapping[str, Type], steps: int, batch: int
) -> Iterator[SavedBlob]:
    """Tensors over time of states that backward reads; those that are outputs are there anyway."""
    recurrence = Recurrence(call.op, call.net)
    blobs = recurrence.cell.output_blobs
    for i, state in enumerate(recurrence.states):
        if {state.input, blobs[state.output]} & recurrence.backward_reads:
            kind = types[state.input]
            shape = tensor_shape(kind.shape, state.feature_rank, steps, batch)
            status = "alias" if call.op.outputs[2 * i] in outputs else "kept"
            yield SavedBlob(status, state.input, call.op.key, kind.dtype, shape)


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
