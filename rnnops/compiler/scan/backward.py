"""The backward pass of a recurrence as a compiled scan, which runs the other way through the same tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rnnops.compiler.expand_ops import expand_ops
from rnnops.compiler.scan.compiled_scan import CompiledScan, Options, RingError, compile_scan
from rnnops.compiler.scan.forward import refuse_empty, run_before
from rnnops.compiler.scan.layouts import Layout
from rnnops.compiler.scan.prologue import Hoisted, hoist_invariants
from rnnops.compiler.scan.residuals import ScanResiduals
from rnnops.compiler.scan.scan import Scan, Slot, Tensor
from rnnops.compiler.scan.state_slots import StateTensor, state_tensors
from rnnops.interpreter import Program, Workspace, execute, prepare
from rnnops.op import Input, Op
from rnnops.recurrent.op import backward_program
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call, RunContext
from rnnops.types import Array, Type, is_float


@dataclass(frozen=True)
class StateGradient:
    """The gradient of a state, over time.

    Args:
        grad: blob of the step that stands for the gradient of the state's output, `""` where none does.
        rolls: whether two places serve it; else it is as long as the state, and gradients from outside lie in it.
        every, last: places of the op's inputs that hold gradients of `_all` and `_last`, None where there are none.
    """

    state: StateTensor
    grad: str
    rolls: bool
    every: int | None
    last: int | None

    @property
    def name(self) -> str:
        return f"grad {self.state.state.input}"

    def carried(self) -> str:
        return f"{self.grad}/carried"

    def given(self) -> str:
        return f"{self.grad}/given"

    def place(self, p: int) -> int:
        """Where position p, in order of execution, lies."""
        state = self.state
        place = state.length - 1 - p if state.reverse else p
        return place % 2 if self.rolls else place

    def tensor(self) -> Tensor:
        return Tensor(self.state.dtype, self.state.shape, 2 if self.rolls else self.state.length, self.rolls)

    def filled(self, arrays: Sequence[Array | None]) -> Array:
        """New memory with the gradients from outside in it."""
        state, last = self.state, None if self.last is None else arrays[self.last]
        tensor = np.zeros((self.tensor().length, *state.shape), state.dtype)
        if not self.rolls and self.every is not None:
            state.every(tensor)[...] += arrays[self.every]
        if last is not None:
            tensor[self.place(state.length - 1)] += last[0]
        return tensor

    def initial(self, tensor: Array, extra: int) -> Array:
        """The gradient of the initial state, of rank `extra` above the features'."""
        head = tensor[self.place(0)][None] if self.rolls else self.state.head(tensor)
        if extra == 0:
            return np.asarray(head[0].sum(axis=0))
        return np.array(head if extra == 2 else head[0])


@dataclass
class BackwardScan:
    """Runs a RecurrentNetworkGradient op."""

    recurrence: Recurrence
    types: Mapping[str, Type]
    states: list[StateGradient]
    step_grads: dict[str, tuple[int | None, int | None]]
    hoisted: Hoisted
    compiled: CompiledScan
    epilogue: Program | None

    def __call__(self, arrays: Sequence[Array | None], context: RunContext) -> tuple[Array | None, ...]:
        recurrence, tensors = self.recurrence, self.compiled.scan.tensors
        bound = {name: a for name, a in zip(recurrence.ports(), arrays, strict=False) if a is not None}
        residuals = arrays[len(recurrence.ports())]
        assert isinstance(residuals, ScanResiduals)
        memory = {f"tensor {name}": bound[name] for name in recurrence.sequences if name in tensors}
        memory.update(
            (f"tensor kept {name}", array) for name, array in residuals.kept.items() if f"kept {name}" in tensors
        )
        memory.update(
            (f"tensor state {name}", array) for name, array in residuals.states.items() if f"state {name}" in tensors
        )
        blobs = recurrence.cell.output_blobs
        memory.update(
            (f"tensor output {blobs[name]}", array)
            for name, array in residuals.outputs.items()
            if f"output {blobs[name]}" in tensors
        )
        for state in self.states:
            if state.name in tensors:
                memory[f"tensor {state.name}"] = state.filled(arrays)
            if f"given {state.grad}" in tensors and state.every is not None:
                memory[f"tensor given {state.grad}"] = arrays[state.every]
        for name, places in self.step_grads.items():
            if f"given {name}" in tensors:
                memory[f"tensor given {name}"] = self._step_grad(tensors[f"given {name}"], places, arrays)
        for name, tensor in tensors.items():
            if f"tensor {name}" not in memory:
                memory[f"tensor {name}"] = np.empty((tensor.length, *tensor.shape), tensor.dtype)
        memory.update(run_before(self.hoisted, bound))
        sums = self._sums(self.compiled.run(memory, residuals.context))
        return tuple(self._result(name, memory, sums) for name in recurrence.ports())

    def _step_grad(
        self, tensor: Tensor, places: tuple[int | None, int | None], arrays: Sequence[Array | None]
    ) -> Array:
        every, last = (None if place is None else arrays[place] for place in places)
        if every is not None and last is None:
            return every
        total = np.zeros((tensor.length, *tensor.shape), tensor.dtype) if every is None else every.copy()
        if last is not None:
            total[0 if self.recurrence.reverse else -1] += last[0]
        return total

    def _sums(self, totals: dict[str, Array]) -> dict[str, Array]:
        """Sums by result: rows are added up, then what is linear in them is computed once."""
        plan = self.compiled.plan
        added = {name: array.sum(axis=0) if plan.accumulators[name] else array for name, array in totals.items()}
        if self.epilogue is not None:
            workspace = Workspace()
            workspace.local.update((name, added[name]) for name in self.epilogue.net.input_names)
            execute(self.epilogue, workspace, RunContext())
            added.update((name, workspace[name]) for name in self.epilogue.net.output_blobs)
        return {result: added[blob] for result, blob in plan.sums.items()}

    def _result(self, name: str, memory: dict[str, Array], sums: dict[str, Array]) -> Array | None:
        for state in self.states:
            if state.state.state.input == name:
                kind = self.types[name]
                if f"tensor {state.name}" not in memory:
                    return np.zeros(kind.shape, kind.dtype)
                return state.initial(memory[f"tensor {state.name}"], kind.rank - state.state.state.feature_rank)
        if name in sums:
            return np.asarray(sums[name]).reshape(self.types[name].shape)
        return memory.get(f"tensor result {name}")


def compile_backward(call: Call, options: Options) -> BackwardScan:
    """Compile a RecurrentNetworkGradient op. Raises UnsupportedError where an op of the step has no compiled form."""
    try:
        return _compile(call, options, frozenset())
    except RingError as error:
        return _compile(call, options, error.tensors)


def _compile(call: Call, options: Options, whole: frozenset[str]) -> BackwardScan:
    """Compile with all steps of the tensors in `whole`."""
    recurrence = Recurrence(call.op, call.net)
    types = dict(zip(recurrence.ports(), call.output_types, strict=True))
    steps, batch = recurrence.steps_and_batch(types)
    refuse_empty(call, steps, backward_program(call))
    states = _state_gradients(recurrence, call, types, whole)
    step_grads = _step_grads(recurrence, call)
    program = _with_given(expand_ops(backward_program(call)), [s for s in states if s.rolls and s.grad])
    results = program.net.output_blobs
    hoisted = hoist_invariants(program, [n for n in recurrence.references if n in program.types], results.values())
    tensors, reads, writes, additions = _bindings(recurrence, types, states, step_grads, hoisted, results, steps)
    slots = [*reads.values(), *(slot for _, slot in writes), *(slot for _, slot, _ in additions)]
    used = {slot.tensor for slot in slots}
    scan = Scan(
        hoisted.step,
        steps,
        batch,
        not recurrence.reverse,
        reads,
        hoisted.references,
        recurrence.timestep if recurrence.timestep in hoisted.step.types else None,
        tuple(writes),
        tuple(additions),
        {name: results[name] for name in recurrence.references if name in results},
        {name: tensor for name, tensor in tensors.items() if name in used},
        tuple(s.state.name for s in states),
        _batch_axes(recurrence, states),
        {s.state.state.input: s.state.access() for s in states if s.state.state.input in reads},
        frozenset([*(f"result {name}" for name in recurrence.sequences), *(s.name for s in states)]),
    )
    compiled = compile_scan(scan, call.float_dtype, options)
    return BackwardScan(recurrence, types, states, step_grads, hoisted, compiled, _epilogue(compiled, hoisted.step))


def _batch_axes(recurrence: Recurrence, states: Sequence[StateGradient]) -> dict[str, int]:
    blobs, axes = recurrence.cell.output_blobs, dict.fromkeys(recurrence.sequences, 0)
    for state in states:
        axes[state.state.state.input] = state.state.batch_axis
        of_outputs = (blobs[state.state.state.output], state.grad, state.carried(), state.given())
        axes.update(dict.fromkeys(of_outputs, 0))
    return axes


def _state_gradients(
    recurrence: Recurrence, call: Call, types: Mapping[str, Type], whole: frozenset[str]
) -> list[StateGradient]:
    grads, names = dict(call.op.attributes["output_grads"]), recurrence.output_names()
    result = []
    for tensor in state_tensors(recurrence, types):
        if is_float(tensor.dtype):
            every, last = _places(call, names.index(tensor.state.output))
            rolls = tensor.is_plain() and f"grad {tensor.state.input}" not in whole
            result.append(StateGradient(tensor, grads.get(tensor.state.output, ""), rolls, every, last))
    return result


def _step_grads(recurrence: Recurrence, call: Call) -> dict[str, tuple[int | None, int | None]]:
    """Blob that stands for the gradient of a step output -> the op's inputs for `_all` and `_last`."""
    names = recurrence.output_names()
    grads = dict(call.op.attributes["output_grads"])
    return {grads[name]: _places(call, names.index(name)) for name in recurrence.step_outputs if name in grads}


def _places(call: Call, output: int) -> tuple[int | None, int | None]:
    first = len(call.output_types) + 1 + 2 * output
    return tuple(i if i < len(call.op.inputs) and call.op.inputs[i] else None for i in (first, first + 1))  # type: ignore[return-value]


def _with_given(program: Program, states: Sequence[StateGradient]) -> Program:
    """A step in which the gradient of a state is what is carried plus what is given from outside.

    rewrite: `net(grad)`  -->  `net(carried, given): grad = Add(carried, given)`
    """
    inputs, ops = [], []
    renamed = {state.grad: state for state in states if state.grad in program.net.input_names}
    for spec in program.net.input_specs:
        state = renamed.get(spec.name)
        if state is None:
            inputs.append(spec)
        else:
            names = [state.carried(), *([state.given()] if state.every is not None else [])]
            inputs += [Input(name, spec.dtype, spec.shape) for name in names]
            ops.append(Op("Add" if len(names) == 2 else "Identity", tuple(names), (spec.name,), {}))
    net = program.net.with_ops([*ops, *program.net.ops], inputs=inputs)
    types = {spec.name: Type(spec.dtype, spec.shape or ()) for spec in inputs}
    return prepare(
        net, {name: replace_float(kind, program.float_dtype) for name, kind in types.items()}, program.float_dtype
    )


def replace_float(kind: Type, float_dtype: str) -> Type:
    return replace(kind, dtype=float_dtype) if kind.dtype == "float" else kind


def _bindings(
    recurrence: Recurrence,
    types: Mapping[str, Type],
    states: Sequence[StateGradient],
    step_grads: Mapping[str, object],
    hoisted: Hoisted,
    results: Mapping[str, str],
    steps: int,
) -> tuple[dict[str, Tensor], dict[str, Slot], list[tuple[str, Slot]], list[tuple[str, Slot, Layout]]]:
    blobs = recurrence.cell.output_blobs
    step = hoisted.step
    there = set(step.net.input_names) - {*hoisted.references, recurrence.timestep}
    tensors: dict[str, Tensor] = {}
    reads: dict[str, Slot] = {}
    writes: list[tuple[str, Slot]] = []
    additions: list[tuple[str, Slot, Layout]] = []

    def read(blob: str, tensor: str, slot: Slot | None = None, kind: Tensor | None = None) -> None:
        if blob in there and blob not in reads:  # some blobs lie in several places
            step_type = step.types[blob]
            tensors[tensor] = kind or Tensor(step_type.dtype, step_type.shape, steps)
            reads[blob] = slot or Slot(tensor)

    for name in recurrence.sequences:
        read(name, name)
        if name in results:
            tensors[f"result {name}"] = Tensor(types[name].dtype, types[name].shape[1:], steps)
            writes.append((results[name], Slot(f"result {name}")))
    for tensor in state_tensors(recurrence, types):
        read(blobs[tensor.state.output], tensor.name, tensor.write(), tensor.tensor(False))
        read(tensor.state.input, tensor.name, tensor.read(), tensor.tensor(False))
    for name in recurrence.keep:
        read(name, f"kept {name}")
    for name in recurrence.step_outputs:
        read(blobs[name], f"output {blobs[name]}")
    for state in states:
        ahead = replace(state.state.write(), tensor=state.name)
        behind = replace(state.state.read(), tensor=state.name)
        read(state.carried() if state.rolls else state.grad, state.name, ahead, state.tensor())
        read(state.given(), f"given {state.grad}")
        if state.state.state.input in results:
            tensors[state.name] = state.tensor()
            result = results[state.state.state.input]
            if state.rolls:
                writes.append((result, behind))
            else:
                additions.append((result, behind, state.state.access().layout))
    for grad in step_grads:
        read(grad, f"given {grad}")
    return tensors, reads, writes, additions


def _epilogue(compiled: CompiledScan, step: Program) -> Program | None:
    """The ops that run on sums, as a net of their own."""
    plan = compiled.plan
    if not plan.epilogue:
        return None
    made = {name for call in plan.epilogue for name in call.op.outputs}
    read = list(dict.fromkeys(name for call in plan.epilogue for name in call.op.inputs if name and name not in made))
    inputs = [Input(name, step.types[name].dtype, step.types[name].shape) for name in read]
    outputs = {blob: blob for blob in plan.sums.values() if blob in made}
    net = step.net.with_ops([call.op for call in plan.epilogue], outputs=outputs, inputs=inputs)
    return prepare(net, {name: step.types[name] for name in read}, step.float_dtype)
