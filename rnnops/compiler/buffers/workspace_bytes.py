"""Bytes of the blobs of a net in training form, step workspaces of recurrences included."""

from __future__ import annotations

from rnnops.compiler.buffers.interpreted_memory import buffers_of
from rnnops.compiler.buffers.memory import KEPT
from rnnops.interpreter import Program
from rnnops.recurrent.recurrence import is_training_form
from rnnops.schema import Call
from rnnops.types import OPAQUE


def bytes_of_blobs(program: Program) -> dict[str, int]:
    """Bytes of every blob."""
    found = {name: 0 if kind.dtype == OPAQUE else kind.nbytes for name, kind in program.types.items()}
    for call in program.calls:
        if is_training_form(call.op):
            found[call.op.outputs[-1]] = workspace_bytes(call)
    return found


def workspace_bytes(call: Call) -> int:
    """Bytes that a recurrence keeps of all its steps."""
    return sum(buffer.nbytes for buffer in buffers_of(call).values() if buffer.kind == KEPT)
