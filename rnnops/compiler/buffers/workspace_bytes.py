"""Bytes of the blobs of a net in training form, step workspaces of recurrences included."""

from __future__ import annotations

from rnnops.compiler.buffers.interpreted_memory import buffers_of
from rnnops.compiler.buffers.memory import KEPT
from rnnops.interpreter import Program
from rnnops.schema import Call
from rnnops.types import OPAQUE


def bytes_of_blobs(program: Program) -> dict[str, int]:
    """Bytes of every blob."""
    found = {name: 0 if kind.dtype == OPAQUE else kind.nbytes for name, kind in program.types.items()}
    for call in program.calls:
        if call.op.type == "RecurrentNetwork" and "backward" in call.op.attributes:
            found[call.op.outputs[-1]] = workspace_bytes(call)
    return found


def workspace_bytes(call: Call) -> int:
    """Bytes that a recurrence keeps of all its steps."""
    return sum(buffer.nbytes for buffer in buffers_of(call) if buffer.kind == KEPT)
