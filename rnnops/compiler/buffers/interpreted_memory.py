"""What a recurrence that the interpreter runs leaves: state tensors, step outputs, the kept blobs of all steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rnnops.compiler.buffers.memory import KEPT, OUTPUT, Buffer
from rnnops.compiler.ir.tensor_name import Role, TensorName
from rnnops.compiler.lower.state_slots import read_by_backward
from rnnops.interpreter import Program
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence
from rnnops.recurrent.stepping import tensor_shape
from rnnops.schema import Call
from rnnops.types import OPAQUE, Type


def buffers_of(call: Call) -> dict[TensorName, Buffer]:
    """The memory that lasts longer than a RecurrentNetwork op."""
    recurrence = Recurrence(call.op, call.net)
    types, program = input_types(recurrence, call), cell_program(recurrence, call)
    steps, batch = recurrence.steps_and_batch(types)
    blobs, read = program.net.output_blobs, read_by_backward(recurrence)
    kinds: dict[TensorName, Type] = {}
    for state, every in zip(recurrence.states, recurrence.op.outputs[::2], strict=False):
        name, initial = Role.STATE.of(state.input), types[state.input]
        seen = steps if name in read or every else 0  # else it is as short as the initial state
        kinds[name] = Type(initial.dtype, tensor_shape(initial.shape, state.feature_rank, seen, batch))
    for output in recurrence.wanted_step_outputs:
        kinds[Role.OUTPUT.of(output)] = _over(steps, program.types[blobs[output]])
    kinds.update((Role.KEPT.of(blob), _over(steps, kind)) for blob, kind in _kept(recurrence, program))
    return {
        name: Buffer(str(name), KEPT if name in read else OUTPUT, kind.dtype, kind.shape)
        for name, kind in kinds.items()
    }


def results_of(call: Call, buffers: Mapping[TensorName, Buffer]) -> list[tuple[Buffer, ...]]:
    """For each output of the op the buffers that it lies in."""
    recurrence = Recurrence(call.op, call.net)
    states = [Role.STATE.of(state.input) for state in recurrence.states]
    results: list[tuple[Buffer, ...]] = []
    for name in (*states, *map(Role.OUTPUT.of, recurrence.step_outputs)):
        results += [(buffers[name],) if name in buffers else ()] * 2
    if recurrence.keeps_workspaces:
        results.append(tuple(buffer for buffer in buffers.values() if buffer.kind == KEPT))
    return results


def _kept(recurrence: Recurrence, program: Program) -> Iterator[tuple[str, Type]]:
    """Kept blobs; of the steps of a recurrence within the cell their bytes."""
    makers = {name: call for call in program.calls for name in call.op.outputs}
    for name in recurrence.keep:
        kind = program.types[name]
        if kind.dtype == OPAQUE:
            inner = sum(buffer.nbytes for buffer in buffers_of(makers[name]).values() if buffer.kind == KEPT)
            kind = Type("uint8", (inner,))
        yield name, kind


def _over(steps: int, kind: Type) -> Type:
    return Type(kind.dtype, (steps, *kind.shape))
