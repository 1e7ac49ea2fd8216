"""The net of a plan as a drawing: what the backward pass finds kept, and what it computes again, in colour."""

from __future__ import annotations

from collections.abc import Iterable

from rnnops.compiler.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.report.memory_table import readable, spaced
from rnnops.compiler.report.saved_residuals import SavedBlob, saved_residuals
from rnnops.interpreter import Program
from rnnops.loops import View
from rnnops.pictures.draw_net import Marks, draw_typed
from rnnops.pictures.drawing import Drawing
from rnnops.recurrent.op import cell_program
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call, form_of

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
