"""The forward pass of a recurrence as a compiled scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rnnops.compiler.buffers.demand import Demand, made_before
from rnnops.compiler.buffers.memory import KEPT, OUTPUT, Buffer, Memory, contiguous, on_host
from rnnops.compiler.execute.compiled_scan import CompiledScan, Going, Options, compile_scan, with_whole_tensors
from rnnops.compiler.execute.once import BEFORE, Once
from rnnops.compiler.execute.residuals import PastEnd, ScanResiduals
from rnnops.compiler.execute.row_pass import compile_once
from rnnops.compiler.ir.lowered import NothingToDoError
from rnnops.compiler.ir.scan import Scan, Slot, Tensor
from rnnops.compiler.lower.expand_ops import expand_ops
from rnnops.compiler.lower.hoist_invariants import Hoisted, hoist_invariants
from rnnops.compiler.lower.state_slots import StateTensor, state_tensors
from rnnops.compiler.targets.target import Target
from rnnops.errors import TypeRuleError
from rnnops.interpreter import Program
from rnnops.lazy import cached_property
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call, RunContext, schema_of
from rnnops.types import OPAQUE, Array


@dataclass(frozen=True)
class Keys:
    """What each call looks up, written out once: names of inputs, and `tensor <name>` with what it holds."""

    ports: list[str]
    made: list[tuple[str, Buffer]]
    sequences: list[tuple[str, str]]
    states: list[tuple[str, str, StateTensor]]


@dataclass
class ForwardScan:
    """Runs a RecurrentNetwork op."""

    call: Call
    recurrence: Recurrence
    states: list[StateTensor]
    rings: set[str]
    hoisted: Hoisted
    before: Once | None
    compiled: CompiledScan

    def __call__(
        self, arrays: Sequence[Array], context: RunContext, going: Going | None = None, make: Memory | None = None
    ) -> tuple[object, ...]:
        """All outputs of the op; those that nobody reads are None."""
        keys, target = self._keys, self.compiled.options.target
        make = make or target.memory(arrays)
        bound = dict(zip(keys.ports, arrays, strict=True))
        memory = {key: make(buffer) for key, buffer in keys.made}
        for key, name in keys.sequences:
            memory[key] = bound[name]
        for key, name, state in keys.states:
            state.fill(memory[key], bound[name])
        memory.update(run_before(self.hoisted, self.before, bound, target))
        try:
            self.compiled.run(memory, context, going, make)
        except TypeRuleError:  # the reference says at which op, and what came
            schema_of(self.call.op.type).reference(self.call, *map(on_host, arrays), context=context)
            raise
        return self._results(memory, context)

    @cached_property
    def _keys(self) -> Keys:
        tensors = self.compiled.scan.tensors
        return Keys(
            self.recurrence.ports(),
            [(f"tensor {name}", buffer) for name, buffer in self.tensors.items()],
            [(f"tensor {name}", name) for name in self.recurrence.sequences if name in tensors],
            [(f"tensor {one.name}", one.state.input, one) for one in self.states if one.name in tensors],
        )

    @cached_property
    def tensors(self) -> dict[str, Buffer]:
        """Memory for all steps of states, of what is kept, and of step outputs."""
        tensors = self.compiled.scan.tensors
        names = [name for name in tensors if name not in self.recurrence.sequences]
        shapes = {name: (tensors[name].length, *tensors[name].shape) for name in names}
        labels = {name: name.removeprefix("kept ") for name in names}
        return {name: Buffer(labels[name], self._kind(name), tensors[name].dtype, shapes[name]) for name in names}

    def _kind(self, tensor: str) -> str:
        read, blobs = self.recurrence.backward_reads, self.recurrence.cell.output_blobs
        for state in self.states:
            if state.name == tensor:
                return KEPT if {state.state.input, blobs[state.state.output]} & read else OUTPUT
        name = tensor.removeprefix("output ")
        return KEPT if name == tensor or blobs[name] in read else OUTPUT

    def demand(self) -> Demand:
        """The memory that a run takes."""
        compiled, tensors = self.compiled, self.tensors
        results: list[tuple[Buffer, ...]] = []
        for name in (*(s.name for s in self.states), *(f"output {name}" for name in self.recurrence.step_outputs)):
            results += [(tensors[name],) if name in tensors else ()] * 2
        if self.recurrence.keeps_workspaces:
            results.append(tuple(buffer for buffer in tensors.values() if buffer.kind == KEPT))
        before = made_before(self.hoisted)
        return Demand(
            made=(*tensors.values(), *before),
            results=tuple(results),
            lent=tuple(compiled.lent.values()),
            lasting=tuple(compiled.lasting.values()),
            interpreted=before,
        )

    def beside(self) -> dict[str, Once]:
        """Nets that run once, by when."""
        return {BEFORE: self.before} if self.before else {}

    def _results(self, memory: dict[str, Array], context: RunContext) -> tuple[object, ...]:
        recurrence = self.recurrence
        results: list[object] = []
        for state in self.states:
            tensor = memory[f"tensor {state.name}"]
            ring = state.state.input in self.rings
            results += [None if ring else state.every(tensor), state.last(tensor)]
        last = slice(0, 1) if recurrence.reverse else slice(self.compiled.scan.steps - 1, None)
        for name in recurrence.step_outputs:
            collected = memory.get(f"tensor output {name}")
            results += [collected, None if collected is None else collected[last]]
        if recurrence.keeps_workspaces:
            results.append(self._residuals(memory, context))
        return tuple(results)

    def _residuals(self, memory: dict[str, Array], context: RunContext) -> ScanResiduals:
        recurrence = self.recurrence
        read, blobs = recurrence.backward_reads, recurrence.cell.output_blobs
        states = {
            state.state.input: memory[f"tensor {state.name}"]
            for state in self.states
            if {state.state.input, blobs[state.state.output]} & read
        }
        outputs = {
            name: memory[f"tensor output {name}"] for name in recurrence.wanted_step_outputs if blobs[name] in read
        }
        kept = {name: memory[f"tensor kept {name}"] for name in recurrence.keep}
        return ScanResiduals(states, outputs, kept, context, tuple(self.states), self._past_end(memory))

    def _past_end(self, memory: dict[str, Array]) -> PastEnd | None:
        plan, unseen = self.compiled.plan, self.compiled.unseen
        if not plan.lengths:
            return None
        axes = {slot.tensor: plan.batch_axes.get(owner) for owner, slot in plan.slots.items() if slot.tensor in unseen}
        return PastEnd(memory[plan.lengths], {tensor.removeprefix("kept "): axis for tensor, axis in axes.items()})


def run_before(hoisted: Hoisted, before: Once | None, bound: dict[str, Array], target: Target) -> dict[str, Array]:
    """The references of a step: given ones, and what is computed from them once."""
    if before is None:
        return {name: bound[name] for name in hoisted.references}
    workspace = before(bound, target)
    return {name: bound[name] if name in bound else contiguous(workspace[name]) for name in hoisted.references}


def compile_forward(call: Call, options: Options, read_past_end: frozenset[str] | None) -> ForwardScan:
    """Compile a RecurrentNetwork op. Raises UnsupportedError where an op of the cell has no compiled form.

    Args:
        read_past_end: tensors that the backward pass reads in rows that are over, None for all.
    """
    return with_whole_tensors(lambda whole: _compile(call, options, read_past_end, whole))


def _compile(call: Call, options: Options, read_past_end: frozenset[str] | None, whole: frozenset[str]) -> ForwardScan:
    """Compile with all steps of the tensors in `whole`."""
    recurrence = Recurrence(call.op, call.net)
    types = input_types(recurrence, call)
    steps, batch = recurrence.steps_and_batch(types)
    refuse_empty(call, steps, cell_program(recurrence, call))
    states = state_tensors(recurrence, types)
    program = expand_ops(cell_program(recurrence, call))
    blobs = program.net.output_blobs
    rings = {name for name in _rings(recurrence, states) if f"state {name}" not in whole}
    hoisted = hoist_invariants(
        program,
        recurrence.references,
        [
            *(blobs[s.state.output] for s in states),
            *(blobs[n] for n in recurrence.wanted_step_outputs),
            *recurrence.keep,
        ],
    )
    tensors: dict[str, Tensor] = {}
    reads: dict[str, Slot] = {}
    for name in recurrence.sequences:
        if name in hoisted.step.types:
            tensors[name] = Tensor(types[name].dtype, types[name].shape[1:], steps)
            reads[name] = Slot(name)
    writes: list[tuple[str, Slot]] = []
    for state in states:
        tensors[state.name] = state.tensor(state.state.input in rings)
        if state.state.input in hoisted.step.types:
            reads[state.state.input] = state.read()
        writes.append((blobs[state.state.output], state.write()))
    stored = {f"output {name}": blobs[name] for name in recurrence.wanted_step_outputs}
    stored.update((f"kept {name}", name) for name in recurrence.keep)
    for name, blob in stored.items():
        kind = program.types[blob]
        tensors[name] = Tensor(kind.dtype, kind.shape, steps)
        writes.append((blob, Slot(name)))
    scan = Scan(
        hoisted.step,
        steps,
        batch,
        recurrence.reverse,
        reads,
        hoisted.references,
        recurrence.timestep if recurrence.timestep in hoisted.step.types else None,
        tuple(writes),
        (),
        {},
        tensors,
        tuple(state.name for state in states),
        {**dict.fromkeys(recurrence.sequences, 0), **{s.state.input: s.batch_axis for s in states}},
        {state.state.input: state.access() for state in states if state.state.input in reads},
        frozenset([*recurrence.sequences, *(state.name for state in states)]),
    )
    kept = {f"kept {name}" for name in recurrence.keep}
    unseen = frozenset() if read_past_end is None else frozenset(kept - read_past_end)
    compiled = compile_scan(scan, call.float_dtype, options, fixed_references(recurrence, options), unseen)
    before = compile_once(hoisted.before, options) if hoisted.before else None
    return ForwardScan(call, recurrence, states, rings, hoisted, before, compiled)


def fixed_references(recurrence: Recurrence, options: Options) -> frozenset[str]:
    """References that are inputs of the net whose values never change."""
    return frozenset(
        name for kind, name, outer in recurrence.bindings() if kind == "reference" and outer in options.fixed
    )


def refuse_empty(call: Call, steps: int, step: Program) -> None:
    """Raise NothingToDoError where there is no step, or a blob without elements: kernels are made for what has some."""
    if steps == 0 or any(kind.size == 0 for kind in step.types.values() if kind.dtype != OPAQUE):
        raise NothingToDoError(f"{call.op.label}: no steps, or a blob without elements")


def _rings(recurrence: Recurrence, states: Sequence[StateTensor]) -> set[str]:
    """States of which nobody reads all steps."""
    blobs, read = recurrence.cell.output_blobs, recurrence.backward_reads
    names = recurrence.op.outputs[: 2 * len(states) : 2]
    return {
        state.state.input
        for state, every in zip(states, names, strict=True)
        if not every and not {state.state.input, blobs[state.state.output]} & read and state.can_roll()
    }
