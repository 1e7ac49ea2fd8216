"""Bytes of the blobs of a net in training form, step workspaces of recurrences included."""

from __future__ import annotations

from rnnops.compiler.buffers.interpreted_memory import buffers_of
from rnnops.compiler.buffers.memory import KEPT
from rnnops.interpreter import Program
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence, is_training_form
from rnnops.schema import Call
from rnnops.types import OPAQUE, Type


def bytes_of_blobs(program: Program) -> dict[str, int]:
    """Bytes of every blob."""
    found = {name: 0 if kind.dtype == OPAQUE else kind.nbytes for name, kind in program.types.items()}
    for call in program.calls:
        if is_training_form(call.op):
            found[call.op.outputs[-1]] = workspace_bytes(call)
    return found


def workspace_bytes(call: Call) -> int:
    """Bytes that a recurrence keeps of all its steps; of one in segments, states at their borders."""
    if call.op.attributes.get("segments"):
        recurrence = Recurrence(call.op, call.net)
        steps, _ = recurrence.steps_and_batch(input_types(recurrence, call))
        borders: int = -(-steps // call.op.attributes["segments"])
        return borders * sum(kind.nbytes for kind in state_types(recurrence, call))
    return sum(buffer.nbytes for buffer in buffers_of(call).values() if buffer.kind == KEPT)


def state_types(recurrence: Recurrence, call: Call) -> list[Type]:
    """Types of the states of a recurrence at one step."""
    program = cell_program(recurrence, call)
    return [program.types[program.net.output_blobs[state.output]] for state in recurrence.states]
