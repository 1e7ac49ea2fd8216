"""The reference passes of a recurrence, forward and backward, step by step.

**Arrays** are NumPy's or a device's. Both have indexing, assignment, `+=` and `copy`, which is all that is used here.
`StepMemory` does all other work on arrays; each device has its own.

**The forward pass** has step workspaces, one shared workspace, and state tensors `[L + T, N, ...]`. A blob is looked up
in the step workspace, then in the shared workspace, then among the references. A step workspace holds the blobs of its
step that the backward pass reads. All other blobs are in the shared workspace, where the next step overwrites them. If
nothing reads earlier steps of a state, its tensor is `[L, N, ...]` and rolls: it holds the last L steps.

**The backward pass** runs the backward step net, from the last executed step to the first. The gradient of a state has
a tensor of the state's own shape. Gradients of windows are added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from rnnops.interpreter import Kernel, Program, Workspace, execute
from rnnops.net.op import Op
from rnnops.net.schema import RunContext
from rnnops.recurrent.recurrence import Recurrence, State
from rnnops.types import Array, Shape, Type, is_float, type_of


class StepMemory:
    """Makes arrays on the host. Devices have subclasses."""

    def empty(self, shape: Shape, dtype: str) -> Array:
        """A new array; its elements are not set."""
        return np.empty(shape, dtype)

    def zeros(self, shape: Shape, dtype: str) -> Array:
        """A new array of zeros."""
        return np.zeros(shape, dtype)

    def timesteps(self, first: int, count: int) -> Array:
        """`first`, `first + 1` and so on as int32. The caller must not write to it."""
        return np.arange(first, first + count, dtype=np.int32)

    def total(self, array: Array) -> Array:
        """The sum over the first axis."""
        made = self.empty(array.shape[1:], str(array.dtype))
        array.sum(axis=0, out=made)
        return made

    def last_steps(self, count: int, before: Array, after: Array) -> Array:
        """A copy of the last `count` steps of `before` followed by `after`."""
        made, new = self.empty((count, *before.shape[1:]), str(before.dtype)), min(count, len(after))
        made[count - new :] = after[len(after) - new :]
        if new < count:
            made[: count - new] = before[len(before) - (count - new) :]
        return made

    def stack(self, steps: list[Array]) -> Array:
        """One new array whose steps are copies of these arrays."""
        made = self.empty((len(steps), *steps[0].shape), str(steps[0].dtype))
        for t, step in enumerate(steps):
            made[t] = step
        return made


HOST = StepMemory()


@dataclass
class StepWorkspaces:
    """The residuals of a forward pass.

    Args:
        states: state input -> tensor `[L + T, N, ...]`, where backward reads the state.
        outputs: step output that is not a state -> `[T, N, ...]`, where backward reads it.
        steps: for each timestep the blobs that backward reads.
        context: of the run, so that random ops draw the same numbers again.
        memory: makes the arrays.
    """

    states: dict[str, Array]
    outputs: dict[str, Array]
    steps: list[Workspace]
    context: RunContext
    memory: StepMemory = HOST

    def arrays(self) -> list[Array]:
        """The held tensors that outputs of the forward pass may be views of."""
        return [*self.states.values(), *self.outputs.values()]

    def named_arrays(self) -> dict[str, Array]:
        """Every array that is held, by name, with the arrays of recurrences inside the cell."""
        found = {**self.states, **self.outputs}
        for t, workspace in enumerate(self.steps):
            kept: dict[str, Any] = workspace.local
            for name, value in kept.items():
                inner: dict[str, Array] = {"": value} if _is_array(value) else value.named_arrays()
                found.update((f"{name}[{t}]/{part}".rstrip("/"), array) for part, array in inner.items())
        return found

    def stacks(self, op: Op) -> dict[str, Callable[[], Array]]:
        """For each blob or output at hand on the backward pass, a function that gives all its steps `[T, ...]`."""
        recurrence, T = Recurrence(op, ""), len(self.steps)
        blobs = recurrence.cell.output_blobs
        result: dict[str, Callable[[], Array]] = {
            name: partial(self._stack, name)
            for name in recurrence.keep
            if self.steps and _is_array(self.steps[0].local.get(name))
        }
        for state in recurrence.states:
            if state.input in self.states:
                tensor = self.states[state.input]
                steps = in_time_order(tensor[len(tensor) - T :], recurrence)
                result.update((name, steps.copy) for name in (state.output, blobs[state.output]))
        for output, (state, place) in recurrence.before.items():
            if state.input in self.states:
                steps = steps_before(state, place, self.states[state.input], T, recurrence)
                result.update((name, steps.copy) for name in (output, blobs[output]))
        for output, array in self.outputs.items():
            result.update((name, array.copy) for name in (output, blobs[output]))
        return result

    def _stack(self, name: str) -> Array:
        return self.memory.stack([workspace[name] for workspace in self.steps])


def _is_array(value: Any) -> bool:
    """True if a kept blob is an array, and not the workspace of a recurrence inside the cell."""
    return hasattr(value, "dtype")


def run_forward(
    recurrence: Recurrence,
    program: Program,
    arrays: Sequence[Array],
    context: RunContext,
    kernels: Mapping[str, Kernel] | None = None,
    memory: StepMemory = HOST,
) -> tuple[object, ...]:
    """All outputs of the op. Outputs that are not read may be None.

    Args:
        program: one step.
        kernels: key of an op of the step -> the function that runs it instead of its reference.
        memory: makes the arrays.
    """
    bound = dict(zip(recurrence.ports(), arrays, strict=True))
    T, N = recurrence.steps_and_batch({name: type_of(array) for name, array in bound.items()})
    stepper = _Stepper(recurrence, program, bound, T, N, kernels, memory)
    steps = stepper.run(context)
    results: list[object] = []
    for state in recurrence.states:
        tensor = stepper.tensors[state.input]
        every = None if state.input in stepper.rolling else in_time_order(tensor[len(tensor) - T :], recurrence)
        results += [every, tensor[-1:]]
    for name in recurrence.step_outputs:
        if name in stepper.sums:
            results += [stepper.sums[name], None]
            continue
        collected = stepper.steps_of(name)
        last = slice(0, 1) if recurrence.reverse else slice(T - 1, T)
        results += [collected, None if collected is None else collected[last]]
    if recurrence.keeps_workspaces:
        results.append(stepper.workspaces(steps, context))
    return tuple(results)


class _Stepper:
    """State tensors and collected outputs of one run."""

    def __init__(
        self,
        recurrence: Recurrence,
        program: Program,
        bound: dict[str, Array],
        T: int,
        N: int,
        kernels: Mapping[str, Kernel] | None,
        memory: StepMemory,
    ) -> None:
        self.recurrence, self.program, self.bound, self.T, self.kernels = recurrence, program, bound, T, kernels
        self.memory = memory
        self.rolling = {state.input for state in recurrence.states if state.input not in recurrence.whole_states}
        self.tensors = {
            state.input: initial_tensor(
                bound[state.input], state.feature_rank, 0 if state.input in self.rolling else T, N, memory
            )
            for state in recurrence.states
        }
        self.collected = {
            name: memory.empty((T, *kind.shape), kind.dtype)
            for name, kind in self._kinds(recurrence.wanted_step_outputs).items()
        }
        self.sums = {name: memory.zeros(kind.shape, kind.dtype) for name, kind in self._kinds(recurrence.sums).items()}

    def run(self, context: RunContext) -> list[Workspace]:
        self.timesteps = timesteps(self.recurrence, self.memory, context.first, self.T)
        references = Workspace()
        for name in self.recurrence.references:
            references[name] = self.bound[name]
        shared = Workspace(references)
        keeps = self.recurrence.keeps_workspaces
        steps = [Workspace(shared) for _ in range(self.T)] if keeps else []
        for k in range(self.T):
            t = self.T - 1 - k if self.recurrence.reverse else k
            self._step(k, t, shared, steps[t] if keeps else None, context.at_step(t, self.T))
        for workspace in steps:
            workspace.parent = None
        return steps

    def workspaces(self, steps: list[Workspace], context: RunContext) -> StepWorkspaces:
        """The values for the backward pass: step workspaces, and the state tensors and outputs that it reads."""
        blobs, read = self.recurrence.cell.output_blobs, self.recurrence.backward_reads
        states = {state.input: self.tensors[state.input] for state in self.recurrence.states if self._reads(state)}
        outputs = {name: tensor for name, tensor in self.collected.items() if blobs[name] in read}
        return StepWorkspaces(states, outputs, steps, context, self.memory)

    def _step(self, k: int, t: int, shared: Workspace, step: Workspace | None, context: RunContext) -> None:
        """Run step k in order of execution, which is timestep t."""
        views = {
            state.input: state_view(state, self.tensors[state.input], 0 if state.input in self.rolling else k)
            for state in self.recurrence.states
        }
        for name, array in {**step_inputs(self.recurrence, self.bound, t, self.timesteps), **views}.items():
            shared[name] = array
        execute(self.program, shared, context, self.recurrence.keep, step, self.kernels)
        source = shared if step is None else step
        blobs = self.program.net.output_blobs
        for state in self.recurrence.states:
            self._store(state, k, source[blobs[state.output]])
        for name, tensor in self.collected.items():
            tensor[t] = source[blobs[name]]
        for name, total in self.sums.items():
            total += source[blobs[name]]

    def _store(self, state: State, k: int, value: Array) -> None:
        tensor = self.tensors[state.input]
        if state.input in self.rolling:
            self.tensors[state.input] = self.memory.last_steps(len(tensor), tensor, value[None])
        else:
            tensor[len(tensor) - self.T + k] = value

    def steps_of(self, name: str) -> Array | None:
        """All steps of a step output; None if they are not read."""
        if name in self.recurrence.before and name in self.recurrence.read_outputs:
            state, place = self.recurrence.before[name]
            return steps_before(state, place, self.tensors[state.input], self.T, self.recurrence)
        return self.collected.get(name)

    def _reads(self, state: State) -> bool:
        blob = self.recurrence.cell.output_blobs[state.output]
        return bool({state.input, blob} & self.recurrence.backward_reads)

    def _kinds(self, names: Sequence[str]) -> dict[str, Type]:
        """Types of step outputs."""
        return {name: self.program.types[self.program.net.output_blobs[name]] for name in names}


def in_time_order(steps: Array, recurrence: Recurrence) -> Array:
    """Steps in order of execution as a view in order of time, or the other way round."""
    return steps[::-1] if recurrence.reverse else steps


def steps_before(state: State, place: int, tensor: Array, T: int, recurrence: Recurrence) -> Array:
    """The value number `place` of a state input's window at each of T steps, in order of time: a view of `tensor`."""
    first = (state.offset or 0) + place
    return in_time_order(tensor[first : first + T], recurrence)


def timesteps(recurrence: Recurrence, memory: StepMemory, first: int, T: int) -> Array | None:
    """The timesteps of all steps; None if the cell has no timestep input.

    Args:
        first: timestep of the first step of the sequences.
    """
    return None if recurrence.timestep is None else memory.timesteps(first, T)


def step_inputs(recurrence: Recurrence, bound: dict[str, Array], t: int, timesteps: Array | None) -> dict[str, Array]:
    """The inputs of the cell at step t that are sequences or the timestep, as views.

    Args:
        timesteps: those of all steps.
    """
    inputs = {name: bound[name][t] for name in recurrence.sequences if name in bound}
    if recurrence.timestep is not None and timesteps is not None:
        inputs[recurrence.timestep] = timesteps[t : t + 1]
    return inputs


def state_view(state: State, tensor: Array, k: int) -> Array:
    """The part of a state tensor that step k reads: one step, or a window of steps."""
    first = k + (state.offset or 0)
    return tensor[first] if state.window == 1 else tensor[first : first + state.window]


def initial_tensor(initial: Array, feature_rank: int, T: int, N: int, memory: StepMemory) -> Array:
    """A new state tensor whose initial steps are filled in. Its steps are in order of execution."""
    tensor = memory.empty(tensor_shape(initial.shape, feature_rank, T, N), str(initial.dtype))
    tensor[: len(tensor) - T] = initial
    return tensor


def tensor_shape(initial: Shape, feature_rank: int, T: int, N: int) -> Shape:
    """The shape `[L + T, N, ...]` of a state tensor, from the shape of the initial state."""
    extra = len(initial) - feature_rank
    return ((initial[0] if extra == 2 else 1) + T, N, *initial[extra:])


def run_backward(
    recurrence: Recurrence,
    program: Program,
    types: Sequence[Type],
    arrays: Sequence[Array | None],
    start: Mapping[str, Array] | None = None,
    kernels: Mapping[str, Kernel] | None = None,
    memory: StepMemory = HOST,
) -> tuple[Array | None, ...]:
    """Gradients of the op's inputs, None for those that are not wanted.

    Args:
        program: the backward step net.
        types: types of the forward op's inputs.
        arrays: inputs that backward reads, the step workspaces, gradients of the outputs.
        start: gradients of references so far, to which this pass adds; zeros if left out.
        kernels: key of an op of a step -> the function that runs it instead of its reference.
        memory: makes the arrays.
    """
    backward = _Backward(recurrence, program, types, arrays, kernels, memory)
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
        memory: StepMemory,
    ) -> None:
        self.recurrence, self.program, self.net, self.kernels = recurrence, program, program.net, kernels
        self.memory = memory
        self.types = dict(zip(recurrence.ports(), types, strict=True))
        self.bound = {name: a for name, a in zip(recurrence.ports(), arrays, strict=False) if a is not None}
        self.workspaces = cast(StepWorkspaces, arrays[len(types)])
        self.T, N = recurrence.steps_and_batch(self.types)
        self.output_grads = dict(recurrence.op.attributes["output_grads"])
        given = dict(zip(_result_names(recurrence), arrays[len(types) + 1 :], strict=True))
        self.given = {name: array for name, array in given.items() if array is not None}
        self.state_grads = {
            state.input: memory.zeros(tensor_shape(kind.shape, state.feature_rank, self.T, N), kind.dtype)
            for state in recurrence.states
            if state.output in self.output_grads and is_float((kind := self.types[state.input]).dtype)
        }
        wanted = [name for name in (*recurrence.sequences, *recurrence.references) if name in self.net.output_blobs]
        self.grads = {name: memory.zeros(self.types[name].shape, self.types[name].dtype) for name in wanted}

    def run(self) -> tuple[Array | None, ...]:
        self._take_output_grads()
        self.timesteps = timesteps(self.recurrence, self.memory, self.workspaces.context.first, self.T)
        for k in reversed(range(self.T)):
            t = self.T - 1 - k if self.recurrence.reverse else k
            workspace = self._backward_inputs(k, t)
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

    def _backward_inputs(self, k: int, t: int) -> Workspace:
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
        if name in self.recurrence.sums and (name, "all") in self.given:
            return self.given[name, "all"]
        kind = self.program.types[self.output_grads[name]]
        total = self.memory.zeros(kind.shape, kind.dtype)
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
            if state.input in self.state_grads and state.input in blobs:
                state_view(state, self.state_grads[state.input], k)[...] += workspace[blobs[state.input]]
        for name in self.recurrence.references:
            if name in self.grads:
                self.grads[name] += workspace[blobs[name]]

    def _result(self, name: str) -> Array | None:
        state = next((state for state in self.recurrence.states if state.input == name), None)
        if state is None or name not in self.net.output_blobs:
            return self.grads.get(name)
        extra = self.types[name].rank - state.feature_rank  # 0: [D], 1: [N, D], 2: [L, N, D]
        head: Array = self.state_grads[name][: len(self.state_grads[name]) - self.T]
        if extra == 0:
            return self.memory.total(head[0])
        found: Array = (head if extra == 2 else head[0]).copy()
        return found


def _result_names(recurrence: Recurrence) -> list[tuple[str, str]]:
    return [(name, part) for name in recurrence.output_names() for part in ("all", "last")]
