"""The reference backward pass of a recurrence: the backward step net, from the last executed step to the first.

Gradients of a state live in a tensor like the state's own; overlapping windows add up in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rnnops.interpreter import Kernel, Program, Workspace, execute
from rnnops.recurrent.place import HOST, Place
from rnnops.recurrent.recurrence import Recurrence
from rnnops.recurrent.stepping import StepWorkspaces, in_time_order, state_view, step_inputs, tensor_shape, timesteps
from rnnops.schema import RunContext
from rnnops.types import Array, Type, is_float


def run_backward(
    recurrence: Recurrence,
    program: Program,
    types: Sequence[Type],
    arrays: Sequence[Array | None],
    context: RunContext,
    start: Mapping[str, Array] | None = None,
    kernels: Mapping[str, Kernel] | None = None,
    place: Place = HOST,
) -> tuple[Array | None, ...]:
    """Gradients of the op's inputs, None for those that are not wanted.

    Args:
        program: the backward step net.
        types: of the forward op's inputs.
        arrays: inputs that backward reads, the step workspaces, gradients of the outputs.
        start: gradients of references to add to, zeros if left out.
        kernels: what runs an op of a step in place of its reference, by the op's key.
        place: where arrays lie, and results.
    """
    backward = _Backward(recurrence, program, types, arrays, kernels, place)
    backward.grads.update({name: array.copy() for name, array in (start or {}).items()})
    return backward.run()


class _Backward:
    """Gradient accumulators of one backward pass."""

    def __init__(
        self,
        recurrence: Recurrence,
        program: Program,
        types: Sequence[Type],
        arrays: Sequence[Array | None],
        kernels: Mapping[str, Kernel] | None,
        place: Place,
    ) -> None:
        self.recurrence, self.program, self.net, self.kernels = recurrence, program, program.net, kernels
        self.place = place
        self.types = dict(zip(recurrence.ports(), types, strict=True))
        self.bound = {name: a for name, a in zip(recurrence.ports(), arrays, strict=False) if a is not None}
        self.workspaces = cast(StepWorkspaces, arrays[len(types)])
        self.T, N = recurrence.steps_and_batch(self.types)
        self.output_grads = dict(recurrence.op.attributes["output_grads"])
        given = dict(zip(_result_names(recurrence), arrays[len(types) + 1 :], strict=True))
        self.given = {name: array for name, array in given.items() if array is not None}
        self.state_grads = {
            state.input: place.zeros(tensor_shape(kind.shape, state.feature_rank, self.T, N), kind.dtype)
            for state in recurrence.states
            if state.input in self.net.output_blobs and is_float((kind := self.types[state.input]).dtype)
        }
        wanted = [name for name in (*recurrence.sequences, *recurrence.references) if name in self.net.output_blobs]
        self.grads = {name: place.zeros(self.types[name].shape, self.types[name].dtype) for name in wanted}

    def run(self) -> tuple[Array | None, ...]:
        self._take_output_grads()
        self.timesteps = timesteps(self.recurrence, self.place, self.workspaces.context.first, self.T)
        for k in reversed(range(self.T)):
            t = self.T - 1 - k if self.recurrence.reverse else k
            workspace = self._step_workspace(k, t)
            execute(self.program, workspace, self.workspaces.context.at_step(t, self.T), kernels=self.kernels)
            self._collect(workspace, k, t)
        return tuple(self._result(name) for name in self.recurrence.ports())

    def _take_output_grads(self) -> None:
        for state in self.recurrence.states:
            tensor = self.state_grads.get(state.input)
            every, last = self.given.get((state.output, "all")), self.given.get((state.output, "last"))
            if tensor is not None and every is not None:
                in_time_order(tensor[len(tensor) - self.T :], self.recurrence)[...] += every
            if tensor is not None and last is not None:
                tensor[-1:] += last

    def _step_workspace(self, k: int, t: int) -> Workspace:
        """Everything that the backward net reads in one step."""
        references = Workspace()
        references.local.update(self.bound)
        workspace = Workspace(references)
        workspace.local.update(step_inputs(self.recurrence, self.bound, t, self.timesteps))
        blobs = self.recurrence.cell.output_blobs
        for state in self.recurrence.states:
            tensor = self.workspaces.states.get(state.input)
            if tensor is not None:
                workspace[state.input] = state_view(state, tensor, k)
                workspace[blobs[state.output]] = tensor[len(tensor) - self.T + k]
            if state.input in self.state_grads:
                grads = self.state_grads[state.input]
                workspace[self.output_grads[state.output]] = grads[len(grads) - self.T + k]
        for name in self.recurrence.step_outputs:
            if name in self.workspaces.outputs:
                workspace[blobs[name]] = self.workspaces.outputs[name][t]
            if name in self.output_grads:
                workspace[self.output_grads[name]] = self._step_output_grad(name, k, t)
        workspace.local.update(self.workspaces.steps[t].local)
        return workspace

    def _step_output_grad(self, name: str, k: int, t: int) -> Array:
        kind = self.program.types[self.output_grads[name]]
        total = self.place.zeros(kind.shape, kind.dtype)
        if (name, "all") in self.given:
            total += self.given[name, "all"][t]
        if (name, "last") in self.given and k == self.T - 1:
            total += self.given[name, "last"][0]
        return total

    def _collect(self, workspace: Workspace, k: int, t: int) -> None:
        blobs = self.net.output_blobs
        for name in self.recurrence.sequences:
            if name in self.grads:
                self.grads[name][t] = workspace[blobs[name]]
        for state in self.recurrence.states:
            if state.input in self.state_grads:
                state_view(state, self.state_grads[state.input], k)[...] += workspace[blobs[state.input]]
        for name in self.recurrence.references:
            if name in self.grads:
                self.grads[name] += workspace[blobs[name]]

    def _result(self, name: str) -> Array | None:
        state = next((state for state in self.recurrence.states if state.input == name), None)
        if state is None or name not in self.state_grads:
            return self.grads.get(name)
        extra = self.types[name].rank - state.feature_rank  # 0: [D], 1: [N, D], 2: [L, N, D]
        head: Array = self.state_grads[name][: len(self.state_grads[name]) - self.T]
        if extra == 0:
            return self.place.total(head[0])
        found: Array = (head if extra == 2 else head[0]).copy()
        return found


def _result_names(recurrence: Recurrence) -> list[tuple[str, str]]:
    return [(name, part) for name in recurrence.output_names() for part in ("all", "last")]
