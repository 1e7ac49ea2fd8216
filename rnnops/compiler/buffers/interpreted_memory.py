"""What a recurrence that the interpreter runs leaves: state tensors, step outputs, the kept blobs of all steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rnnops.compiler.buffers.memory import KEPT, OUTPUT, Buffer
from rnnops.interpreter import Program
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence, State
from rnnops.recurrent.stepping import tensor_shape
from rnnops.schema import Call
from rnnops.types import OPAQUE, Type


def buffers_of(call: Call) -> list[Buffer]:
    """The memory that lasts longer than a RecurrentNetwork op."""
    recurrence = Recurrence(call.op, call.net)
    types, program = input_types(recurrence, call), cell_program(recurrence, call)
    steps, batch = recurrence.steps_and_batch(types)
    kept = [Buffer(f"kept {name}", KEPT, *_over(steps, kind)) for name, kind in _kept(recurrence, program)]
    states = [_state(recurrence, state, types[state.input], steps, batch) for state in recurrence.states]
    blobs = program.net.output_blobs
    kinds = {name: KEPT if blobs[name] in recurrence.backward_reads else OUTPUT for name in recurrence.step_outputs}
    outputs = [
        Buffer(f"output {name}", kinds[name], *_over(steps, program.types[blobs[name]]))
        for name in recurrence.wanted_step_outputs
    ]
    return [*states, *outputs, *kept]


def results_of(call: Call, buffers: Iterable[Buffer]) -> list[tuple[Buffer, ...]]:
    """For each output of the op the buffers that it lies in."""
    recurrence = Recurrence(call.op, call.net)
    found = {buffer.what: buffer for buffer in buffers}
    names = [*(f"state {s.input}" for s in recurrence.states), *(f"output {name}" for name in recurrence.step_outputs)]
    results: list[tuple[Buffer, ...]] = []
    for name in names:
        results += [(found[name],) if name in found else ()] * 2
    if recurrence.keeps_workspaces:
        results.append(tuple(buffer for buffer in found.values() if buffer.kind == KEPT))
    return results


def _kept(recurrence: Recurrence, program: Program) -> Iterator[tuple[str, Type]]:
    """Kept blobs; of the steps of a recurrence within the cell their bytes."""
    makers = {name: call for call in program.calls for name in call.op.outputs}
    for name in recurrence.keep:
        kind = program.types[name]
        if kind.dtype == OPAQUE:
            inner = sum(buffer.nbytes for buffer in buffers_of(makers[name]) if buffer.kind == KEPT)
            kind = Type("uint8", (inner,))
        yield name, kind


def _over(steps: int, kind: Type) -> tuple[str, tuple[int, ...]]:
    return kind.dtype, (steps, *kind.shape)


def _state(recurrence: Recurrence, state: State, initial: Type, steps: int, batch: int) -> Buffer:
    """A state's tensor, which is read by backward, by others, or as short as the initial state."""
    read = {state.input, recurrence.cell.output_blobs[state.output]} & recurrence.backward_reads
    place = 2 * [one.input for one in recurrence.states].index(state.input)
    whole = read or recurrence.op.outputs[place]
    shape = tensor_shape(initial.shape, state.feature_rank, steps if whole else 0, batch)
    return Buffer(f"state {state.input}", KEPT if read else OUTPUT, initial.dtype, shape)
