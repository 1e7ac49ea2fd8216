"""The backward pass of a compiled recurrence.

First come the gradients of states and their memory (`StateGradient`), then the runner (`BackwardScan`), then the
translation of a RecurrentNetworkGradient op into a scan (`scan_of_gradients`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rnnops.compiler.lower.lower_ops import Hoisted, expand_ops, hoist_invariants
from rnnops.compiler.lower.scan import Role, Scan, Slot, Tensor, TensorName
from rnnops.compiler.lower.statements import Layout
from rnnops.compiler.memory.memory import (
    GRADIENT,
    SCRATCH,
    Buffer,
    Demand,
    Memory,
    StateTensor,
    prologue_buffers,
    state_tensors,
)
from rnnops.compiler.run import forward
from rnnops.compiler.run.compiled_scan import (
    BEFORE,
    Carry,
    CompiledScan,
    Once,
    Options,
    compile_scan,
    with_whole_tensors,
)
from rnnops.compiler.targets.target import Target
from rnnops.interpreter import Program, prepare
from rnnops.net.op import Input, Op
from rnnops.net.schema import Call, RunContext
from rnnops.recurrent.recurrence import Recurrence, backward_program
from rnnops.types import Array, Type, is_float
from rnnops.util import cached_property

Places = tuple[int | None, int | None]  # numbers of the op's inputs with the gradients of `_all` and `_last`


@dataclass(frozen=True)
class StateGradient:
    """The gradient of a state, over time.

    Args:
        grad: the blob of the step that is the gradient of the state's output; `""` if there is none.
        rolls: True: memory for two steps is enough. False: memory has all steps, and outside gradients are stored in
            it first.
        every, last: numbers of the op's inputs with the gradients of `_all` and `_last`; None if there is none.
    """

    state: StateTensor
    grad: str
    rolls: bool
    every: int | None
    last: int | None

    @cached_property
    def name(self) -> TensorName:
        return Role.GRADIENT.of(self.state.state.input)

    def carried(self) -> str:
        return f"{self.grad}/carried"

    def given(self) -> str:
        return f"{self.grad}/given"

    def place(self, p: int) -> int:
        """The index in memory of position p, counted in order of execution."""
        state = self.state
        place = state.length - 1 - p if state.reverse else p
        return place % 2 if self.rolls else place

    def tensor(self) -> Tensor:
        return Tensor(self.state.dtype, self.state.shape, 2 if self.rolls else self.state.length, self.rolls)

    def fill(self, tensor: Array, arrays: Sequence[Array | None], target: Target) -> None:
        """Put the gradients from outside into memory, which must be zero."""
        state, last = self.state, None if self.last is None else arrays[self.last]
        end = self.place(state.length - 1)
        if not self.rolls and self.every is not None:
            state.every(tensor)[...] = arrays[self.every]
            if last is not None:
                target.add(tensor[end], last[0])
        elif last is not None:  # copied, not added: 0 + -0 is 0, and parts must hand on the same bits
            tensor[end] = last[0]

    def initial(self, tensor: Array, result: Array, target: Target) -> None:
        """Put the gradient of the initial state into `result`, which has the axes of the initial state."""
        head = tensor[self.place(0)][None] if self.rolls else self.state.head(tensor)
        extra = result.ndim - self.state.state.feature_rank
        if extra == 0:
            target.total(head[0], result)
        else:
            result[...] = head if extra == 2 else head[0]


def state_gradients(
    recurrence: Recurrence, call: Call, types: Mapping[str, Type], whole: frozenset[TensorName]
) -> list[StateGradient]:
    """The gradients of all float states; those in `whole` have memory for all steps."""
    grads, names = dict(call.op.attributes["output_grads"]), recurrence.output_names()
    result = []
    for tensor in state_tensors(recurrence, types):
        if is_float(tensor.dtype):
            every, last = _places(call, names.index(tensor.state.output))
            rolls = tensor.is_plain() and Role.GRADIENT.of(tensor.state.input) not in whole
            result.append(StateGradient(tensor, grads.get(tensor.state.output, ""), rolls, every, last))
    return result


def step_grads(recurrence: Recurrence, call: Call) -> dict[str, Places]:
    """Blob of the step that is the gradient of a step output -> the op's inputs for `_all` and `_last`."""
    names = recurrence.output_names()
    grads = dict(call.op.attributes["output_grads"])
    each = [name for name in recurrence.step_outputs if name in grads and name not in recurrence.sums]
    return {grads[name]: _places(call, names.index(name)) for name in each}


def sum_grads(recurrence: Recurrence, call: Call) -> dict[str, tuple[int | None, Type]]:
    """Blob of the step that is the gradient of a sum over steps -> the op's input for it, and its type."""
    names, types = recurrence.output_names(), backward_program(call).types
    grads = {name: grad for name, grad in call.op.attributes["output_grads"] if name in recurrence.sums}
    return {grad: (_places(call, names.index(name))[0], types[grad]) for name, grad in grads.items()}


def _places(call: Call, output: int) -> Places:
    first = len(call.output_types) + 1 + 2 * output
    return tuple(i if i < len(call.op.inputs) and call.op.inputs[i] else None for i in (first, first + 1))  # type: ignore[return-value]


MADE = {  # roles of tensors that get new memory, unless an array from outside is borrowed, and how plans name them
    Role.RESULT: "gradient of ",
    Role.GRADIENT: "gradient of state ",
    Role.GIVEN: "given ",
}


@dataclass
class BackwardScan:
    """Runs a RecurrentNetworkGradient op.

    Args:
        again: for segments: references that the forward steps read when they run again, and the net that computes them.
    """

    recurrence: Recurrence
    types: Mapping[str, Type]
    states: list[StateGradient]
    step_grads: dict[str, Places]
    sum_grads: dict[str, tuple[int | None, Type]]
    hoisted: Hoisted
    prologue: Once | None
    compiled: CompiledScan
    totals: forward.Totals
    again: tuple[Hoisted, Once | None] | None = None

    def __call__(
        self,
        arrays: Sequence[Array | None],
        context: RunContext,
        carry: Carry | None = None,
        make: Memory | None = None,
    ) -> tuple[Array | None, ...]:
        """Gradients of the op's inputs. If `carry` says that more parts follow, sums over steps are None."""
        target = self.compiled.options.target
        make = make or target.memory
        bound = {name: a for name, a in zip(self._ports, arrays, strict=False) if a is not None}
        bound.update(self._given_to_sums(arrays, target))
        residuals = arrays[len(self._ports)]
        assert isinstance(residuals, forward.ScanResiduals)
        memory = self._memory(bound, residuals, arrays, make)
        references = forward.run_prologue(self.hoisted, self.prologue, bound, target)
        if self.again is not None:
            references = {**forward.run_prologue(*self.again, bound, target), **references}
        sums = self.compiled.run(memory, references, residuals.context, carry, make)
        sums = self.totals.results(sums, references, make, target) if carry is None or carry.last else {}
        return tuple(self._result(name, memory, sums, make) for name in self._ports)

    def _given_to_sums(self, arrays: Sequence[Array | None], target: Target) -> dict[str, Array]:
        """The gradients of outputs that are sums over steps; zeros if not given. They are the same at every step."""
        found = {}
        for grad, (place, kind) in self.sum_grads.items():
            array = None if place is None else arrays[place]
            found[grad] = target.constant(np.zeros(kind.shape, kind.dtype)) if array is None else array
        return found

    def _memory(
        self, bound: dict[str, Array], residuals: forward.ScanResiduals, arrays: Sequence[Array | None], make: Memory
    ) -> dict[TensorName, Array]:
        """The arrays of all tensors: residuals of the forward pass, and gradients as they are before the first step."""
        tensors, blobs = self.compiled.scan.tensors, self.recurrence.cell.output_blobs
        outputs = {blobs[name]: array for name, array in residuals.outputs.items()}
        left = {Role.SEQUENCE: bound, Role.STATE: residuals.states, Role.OUTPUT: outputs, Role.KEPT: residuals.kept}
        left[Role.BORDER] = residuals.borders
        given = (name for name, tensor in tensors.items() if name.role in left and not tensor.segment)
        memory = {name: left[name.role][name.blob] for name in given}
        for name, buffer in self.tensors.items():
            memory[name] = make(buffer, zeros=buffer.kind != GRADIENT)
        for state in self.states:
            if state.name in tensors:
                state.fill(memory[state.name], arrays, self.compiled.options.target)
        for name, (every, last) in self.given.items():
            if name in self.tensors:
                self._add_given(memory[name], every, last, arrays)
            elif name in tensors and every is not None:
                memory[name] = arrays[every]  # type: ignore[assignment]
        return memory

    @cached_property
    def _ports(self) -> list[str]:
        return self.recurrence.ports()

    @cached_property
    def given(self) -> dict[TensorName, Places]:
        """Tensors of gradients from outside -> the op's inputs for `_all` and `_last`. `StateGradient.fill` adds the
        `_last` of states."""
        states = {state.grad: (state.every, None) for state in self.states}
        return {Role.GIVEN.of(grad): places for grad, places in {**states, **self.step_grads}.items()}

    @cached_property
    def tensors(self) -> dict[TensorName, Buffer]:
        """Memory for gradients of all steps. A gradient from outside needs none if one array holds all of it."""
        found = {}
        for name, tensor in self.compiled.scan.tensors.items():
            every, last = self.given.get(name, (None, None))
            borrowed = every is not None and last is None
            if name.role in MADE and not borrowed:
                kind = GRADIENT if name.role is Role.RESULT else SCRATCH
                shape = tensor.length, *tensor.shape
                found[name] = Buffer(MADE[name.role] + name.blob, kind, tensor.dtype, shape)
        return found

    @cached_property
    def initials(self) -> dict[str, Buffer]:
        """Memory for the wanted gradients of initial states, by state input."""
        read = dict(zip(self._ports, self.recurrence.op.outputs, strict=True))
        names = [state.state.state.input for state in self.states]
        types = {name: self.types[name] for name in names if read[name]}
        return {name: Buffer(f"gradient of {name}", GRADIENT, kind.dtype, kind.shape) for name, kind in types.items()}

    def demand(self) -> Demand:
        """The memory that a run takes."""
        compiled, totals, prologue = self.compiled, self.totals.made(), prologue_buffers(self.hoisted)
        sums = {**compiled.accumulators, **totals}
        return Demand(
            made=(*self.tensors.values(), *prologue),
            results=tuple(self._lies_in(name, sums) for name in self._ports),
            sums=(*compiled.accumulators.values(), *totals.values()),
            late=tuple(self.initials.values()),
            lent=tuple(compiled.lent.values()),
            lasting=tuple(compiled.lasting.values()),
            interpreted=(*self.totals.interpreted.values(), *prologue),
        )

    def beside(self) -> dict[str, Once]:
        """Nets that run once: time of the run, in words -> net."""
        return {**({BEFORE: self.prologue} if self.prologue else {}), **self.totals.beside()}

    def _lies_in(self, name: str, sums: Mapping[str, Buffer]) -> tuple[Buffer, ...]:
        found = self.initials.get(name) or sums.get(self.compiled.plan.sums.get(name, "")) or None
        found = found or self.tensors.get(Role.RESULT.of(name))
        return () if found is None else (found,)

    def _add_given(self, tensor: Array, every: int | None, last: int | None, arrays: Sequence[Array | None]) -> None:
        if every is not None:
            tensor[...] = arrays[every]
        if last is not None:  # a slice: one element of an output without axes would be a copy
            self.compiled.options.target.add(tensor[:1] if self.recurrence.reverse else tensor[-1:], arrays[last])

    def _result(self, name: str, memory: dict[TensorName, Array], sums: dict[str, Array], make: Memory) -> Array | None:
        for state in self.states:
            if state.state.state.input == name:
                if name not in self.initials:
                    return None
                there = state.name in memory
                result = make(self.initials[name], zeros=not there)
                if there:
                    state.initial(memory[state.name], result, self.compiled.options.target)
                return result
        if name in sums:
            return sums[name].reshape(self.types[name].shape)
        return memory.get(Role.RESULT.of(name))


def compile_backward(call: Call, options: Options) -> BackwardScan:
    """Compile a RecurrentNetworkGradient op. Raises UnsupportedError if an op of the step has no compiled form."""
    return with_whole_tensors(lambda whole: _compile(call, options, whole))


def _compile(call: Call, options: Options, whole: frozenset[TensorName]) -> BackwardScan:
    """Compile; tensors in `whole` hold all steps."""
    recurrence = Recurrence(call.op, call.net)
    parts = scan_of_gradients(call, whole)
    compiled = compile_scan(parts.scan, call.float_dtype, options, forward.fixed_references(recurrence, options))
    return backward_scan(call, options, parts, compiled)


@dataclass(frozen=True)
class GradientSteps:
    """The backward steps of a recurrence as a scan.

    Args:
        hoisted: the step without the ops that run once, and these ops.
        from_outside: gradients of step outputs that come from outside, as of `step_grads`.
    """

    scan: Scan
    hoisted: Hoisted
    states: list[StateGradient]
    from_outside: dict[str, Places]


def backward_scan(
    call: Call, options: Options, parts: GradientSteps, compiled: CompiledScan, again: Hoisted | None = None
) -> BackwardScan:
    """The runner of a RecurrentNetworkGradient op, from its compiled scan.

    Args:
        again: for segments, the forward steps that run again.
    """
    hoisted = parts.hoisted
    totals = forward.totals_of(compiled, lambda program: forward.compile_once(program, options))
    prologues = (one.prologue if one else None for one in (hoisted, again))
    prologue, prologue_again = (forward.compile_once(one, options) if one else None for one in prologues)
    recurrence = Recurrence(call.op, call.net)
    types = dict(zip(recurrence.ports(), call.output_types, strict=True))
    more = None if again is None else (again, prologue_again)
    given = parts.from_outside, sum_grads(recurrence, call)
    return BackwardScan(recurrence, types, parts.states, *given, hoisted, prologue, compiled, totals, more)


def scan_of_gradients(call: Call, whole: frozenset[TensorName]) -> GradientSteps:
    """The steps of a RecurrentNetworkGradient op as a scan. Tensors in `whole` hold all steps."""
    recurrence = Recurrence(call.op, call.net)
    types = dict(zip(recurrence.ports(), call.output_types, strict=True))
    steps, batch = recurrence.steps_and_batch(types)
    forward.refuse_empty(call, steps, backward_program(call))
    states = state_gradients(recurrence, call, types, whole)
    from_outside = step_grads(recurrence, call)
    program = _with_given(expand_ops(backward_program(call)), [s for s in states if s.rolls and s.grad])
    results = program.net.output_blobs
    references = [n for n in (*recurrence.references, *sum_grads(recurrence, call)) if n in program.types]
    hoisted = hoist_invariants(program, references, results.values())
    tensors, reads, writes, additions = _bindings(recurrence, types, states, from_outside, hoisted, results, steps)
    slots = [*reads.values(), *(slot for _, slot in writes), *(slot for _, slot, _ in additions)]
    used = {slot.tensor for slot in slots}
    scan = Scan(
        hoisted.step,
        steps,
        batch,
        reverse=not recurrence.reverse,
        reads=reads,
        references=hoisted.references,
        timestep=recurrence.timestep if recurrence.timestep in hoisted.step.types else None,
        writes=tuple(writes),
        additions=tuple(additions),
        sums={name: results[name] for name in recurrence.references if name in results},
        tensors={name: tensor for name, tensor in tensors.items() if name in used},
        states=tuple(s.state.name for s in states),
        batch_axes=_batch_axes(recurrence, states),
        accesses={s.state.state.input: s.state.access() for s in states if s.state.state.input in reads},
        row_tensors=frozenset([*map(Role.RESULT.of, recurrence.row_sequences), *(s.name for s in states)]),
        gradients=frozenset(name for name in tensors if name.role in (Role.GRADIENT, Role.GIVEN)),
    )
    return GradientSteps(scan, hoisted, states, from_outside)


def _batch_axes(recurrence: Recurrence, states: Sequence[StateGradient]) -> dict[str, int]:
    blobs, axes = recurrence.cell.output_blobs, dict.fromkeys(recurrence.row_sequences, 0)
    for state in states:
        axes[state.state.state.input] = state.state.batch_axis
        of_outputs = (blobs[state.state.state.output], state.grad, state.carried(), state.given())
        axes.update(dict.fromkeys(of_outputs, 0))
    return axes


def _with_given(program: Program, states: Sequence[StateGradient]) -> Program:
    """A step that adds the carried gradient of a state to the one given from outside.

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
) -> tuple[dict[TensorName, Tensor], dict[str, Slot], list[tuple[str, Slot]], list[tuple[str, Slot, Layout]]]:
    blobs = recurrence.cell.output_blobs
    step = hoisted.step
    there = set(step.net.input_names) - {*hoisted.references, recurrence.timestep}
    tensors: dict[TensorName, Tensor] = {}
    reads: dict[str, Slot] = {}
    writes: list[tuple[str, Slot]] = []
    additions: list[tuple[str, Slot, Layout]] = []

    def read(blob: str, tensor: TensorName, slot: Slot | None = None, kind: Tensor | None = None) -> None:
        if blob in there and blob not in reads:  # a blob may be in several tensors: the first one is read
            step_type = step.types[blob]
            tensors[tensor] = kind or Tensor(step_type.dtype, step_type.shape, steps)
            reads[blob] = slot or Slot(tensor)

    for name in recurrence.sequences:
        read(name, Role.SEQUENCE.of(name))
        if name in results:
            result = Role.RESULT.of(name)
            tensors[result] = Tensor(types[name].dtype, types[name].shape[1:], steps)
            writes.append((results[name], Slot(result)))
    for tensor in state_tensors(recurrence, types):
        read(blobs[tensor.state.output], tensor.name, tensor.write(), tensor.tensor(False))
        read(tensor.state.input, tensor.name, tensor.read(), tensor.tensor(False))
    for name in recurrence.keep:
        read(name, Role.KEPT.of(name))
    for name in recurrence.step_outputs:
        read(blobs[name], Role.OUTPUT.of(blobs[name]))
    for state in states:
        output_slot = replace(state.state.write(), tensor=state.name)
        input_slot = replace(state.state.read(), tensor=state.name)
        read(state.carried() if state.rolls else state.grad, state.name, output_slot, state.tensor())
        read(state.given(), Role.GIVEN.of(state.grad))
        if state.state.state.input in results:
            tensors[state.name] = state.tensor()
            blob = results[state.state.state.input]
            if state.rolls:
                writes.append((blob, input_slot))
            else:
                additions.append((blob, input_slot, state.state.access().layout))
    for grad in step_grads:
        read(grad, Role.GIVEN.of(grad))
    return tensors, reads, writes, additions
