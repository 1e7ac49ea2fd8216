"""Bytes of the blobs of a net in training form, step workspaces of recurrences included."""

from __future__ import annotations

from rnnops.interpreter import Program
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence
from rnnops.recurrent.stepping import tensor_shape
from rnnops.schema import Call
from rnnops.types import OPAQUE, Type


def bytes_of_blobs(program: Program) -> dict[str, int]:
    """Bytes of every blob."""
    found = {name: kind.nbytes for name, kind in program.types.items() if kind.dtype != OPAQUE}
    for call in program.calls:
        if call.op.type == "RecurrentNetwork" and "backward" in call.op.attributes:
            found[call.op.outputs[-1]] = workspace_bytes(call)
    return {**dict.fromkeys(program.types, 0), **found}


def workspace_bytes(call: Call) -> int:
    """Bytes that a recurrence keeps of all its steps; those of a recurrence within its cell are not known here."""
    recurrence = Recurrence(call.op, call.net)
    types, program = input_types(recurrence, call), cell_program(recurrence, call)
    steps, batch = recurrence.steps_and_batch(types)
    blobs, read = recurrence.cell.output_blobs, recurrence.backward_reads
    step = [program.types[name] for name in recurrence.keep if program.types[name].dtype != OPAQUE]
    step += [program.types[blobs[name]] for name in recurrence.step_outputs if blobs[name] in read]
    total = steps * sum(kind.nbytes for kind in step)
    for state in recurrence.states:
        if {state.input, blobs[state.output]} & read:
            kind = types[state.input]
            total += Type(kind.dtype, tensor_shape(kind.shape, state.feature_rank, steps, batch)).nbytes
    return total
