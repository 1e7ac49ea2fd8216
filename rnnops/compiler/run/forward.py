"""The forward pass of a compiled recurrence, and groups of fused ops, which are scans of one step.

First come totals of sums (`Totals`), then fused ops (`RowPass`), then recurrences: the values that they leave for the
backward pass (`ScanResiduals`), the runner (`ForwardScan`) and the translation into a scan (`scan_of_steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from rnnops.compiler.lower.lower_ops import Hoisted, expand_ops, hoist_invariants
from rnnops.compiler.lower.scan import (
    NothingToDoError,
    Role,
    Scan,
    Slot,
    StepPlan,
    Tensor,
    TensorName,
    UnsupportedError,
)
from rnnops.compiler.memory.allocations import results_of
from rnnops.compiler.memory.memory import (
    KEPT,
    OUTPUT,
    SUMS,
    Buffer,
    Demand,
    Memory,
    StateTensor,
    contiguous,
    on_host,
    prologue_buffers,
    read_by_backward,
    state_tensors,
)
from rnnops.compiler.rewrite.fuse_ops import body_program, fuse_ops
from rnnops.compiler.rewrite.fusion_groups import FusionGroup, group_of
from rnnops.compiler.run.compiled_scan import (
    BEFORE,
    ON_SUMS,
    Carry,
    CompiledScan,
    Once,
    Options,
    compile_scan,
    result_of_sum,
    with_whole_tensors,
)
from rnnops.compiler.targets.target import Target
from rnnops.errors import TypeRuleError
from rnnops.interpreter import Program, prepare
from rnnops.net.op import Input, Op
from rnnops.net.schema import Call, RunContext, schema_of
from rnnops.recurrent.recurrence import Recurrence, cell_program, input_types
from rnnops.types import OPAQUE, Array, Type
from rnnops.util import cached_property


@dataclass
class Totals:
    """Turns sums over steps into results.

    Args:
        epilogue: the ops that run on sums; None if there are none.
        are: kind of the sums, as `Scan.sums_are`.
    """

    plan: StepPlan
    float_dtype: str
    epilogue: Once | None
    are: str

    def results(
        self, sums: dict[str, Array], references: Mapping[str, Array], make: Memory, target: Target
    ) -> dict[str, Array]:
        """Result -> its total.

        Args:
            sums: sums over steps, by owner.
            references: the references of the step.
        """
        added = dict(sums)
        for owner, buffer in self.over_rows.items():
            added[owner] = target.total(sums[owner], make(buffer))
        if self.epilogue is not None:
            workspace = self.epilogue({**references, **added}, target)
            added.update((name, workspace[name]) for name in self.epilogue.program.net.output_blobs)
        return {result: added[blob] for result, blob in self.plan.sums.items()}

    @cached_property
    def over_rows(self) -> dict[str, Buffer]:
        """Memory for sums over rows, by owner. It is needed if the sum over steps was computed row by row."""
        plan = self.plan
        summed = {o: plan.types[o] for o, by_row in plan.accumulators.items() if by_row}
        return {o: self._buffer(o, Type(kind.dtype, kind.shape[1:])) for o, kind in summed.items()}

    @cached_property
    def interpreted(self) -> dict[str, Buffer]:
        """Memory for the results of the epilogue, by name."""
        if self.epilogue is None:
            return {}
        types = self.epilogue.program.types
        return {name: self._buffer(name, types[name]) for name in self.epilogue.program.net.output_blobs}

    def made(self) -> dict[str, Buffer]:
        """All memory that totals need, by owner."""
        return {**self.over_rows, **self.interpreted}

    def beside(self) -> dict[str, Once]:
        """The ops that run on sums: time of the run, in words -> net."""
        return {ON_SUMS: self.epilogue} if self.epilogue else {}

    def _buffer(self, owner: str, kind: Type) -> Buffer:
        results = {blob: result for result, blob in self.plan.sums.items()}
        if owner not in results:
            return Buffer(owner, SUMS, kind.dtype, kind.shape)
        return result_of_sum(self.are, results[owner], kind)


def totals_of(compiled: CompiledScan, once: Callable[[Program], Once]) -> Totals:
    """The totals of a scan. The ops on sums become a net.

    Args:
        once: makes this net ready to run.
    """
    plan, step, are = compiled.plan, compiled.scan.program, compiled.scan.sums_are
    if not plan.epilogue:
        return Totals(plan, step.float_dtype, None, are)
    made = {name for call in plan.epilogue for name in call.op.outputs}
    read = list(dict.fromkeys(name for call in plan.epilogue for name in call.op.inputs if name and name not in made))
    inputs = [Input(name, step.net.dtype_of(name), step.types[name].shape) for name in read]
    outputs = {blob: blob for blob in plan.sums.values() if blob in made}
    net = step.net.with_ops([call.op for call in plan.epilogue], outputs=outputs, inputs=inputs)
    epilogue = prepare(net, {name: step.types[name] for name in read}, step.float_dtype)
    return Totals(plan, step.float_dtype, once(epilogue), are)


@dataclass
class RowPass:
    """Runs a FusedOps op."""

    call: Call
    program: Program
    compiled: CompiledScan
    totals: Totals

    def __call__(self, arrays: Sequence[Array], context: RunContext, make: Memory | None = None) -> tuple[Array, ...]:
        target = self.compiled.options.target
        make = make or target.memory
        given = dict(zip(self.program.net.input_names, arrays, strict=True))
        references = {name: given[name] for name in self.compiled.scan.references}
        made = {name: make(buffer) for name, buffer in self.tensors.items()}
        read = {slot.tensor: given[name] for name, slot in self.compiled.scan.reads.items()}
        try:
            sums = self.compiled.run({**read, **made}, references, context, make=make)
        except TypeRuleError:  # the reference raises a better error, with the op and the value
            schema_of(self.call.op.type).reference(self.call, *map(on_host, arrays), context=context)
            raise
        totals = self.totals.results(sums, references, make, target)
        results = {name.blob: array for name, array in made.items()}
        results.update((name, total.reshape(self.program.types[name].shape)) for name, total in totals.items())
        return tuple(results[name] for name in self.program.net.output_blobs)

    @cached_property
    def tensors(self) -> dict[TensorName, Buffer]:
        """Memory for results that have an axis of rows."""
        tensors = self.compiled.scan.tensors
        names = [slot.tensor for _, slot in self.compiled.scan.writes]
        return {name: Buffer(name.blob, OUTPUT, tensors[name].dtype, tensors[name].shape) for name in names}

    def demand(self) -> Demand:
        """The memory that a run takes."""
        totals = self.totals.made()
        sums = {**self.compiled.accumulators, **totals}
        results = tuple(self._lies_in(name, sums) for name in self.program.net.output_blobs)
        return Demand(
            made=tuple(self.tensors.values()),
            results=results,
            sums=(*self.compiled.accumulators.values(), *totals.values()),
            lent=tuple(self.compiled.lent.values()),
            lasting=tuple(self.compiled.lasting.values()),
            interpreted=tuple(self.totals.interpreted.values()),
        )

    def beside(self) -> dict[str, Once]:
        """Nets that run once: time of the run, in words -> net."""
        return self.totals.beside()

    def _lies_in(self, name: str, sums: dict[str, Buffer]) -> tuple[Buffer, ...]:
        found = self.tensors.get(Role.RESULT.of(name)) or sums.get(self.compiled.plan.sums.get(name, ""))
        return () if found is None else (found,)


def compile_fused(call: Call, program: Program, rows: FusionGroup, options: Options) -> RowPass:
    """Compile a FusedOps op. Raises UnsupportedError if an op has no compiled form.

    Args:
        program: the body of the op.
        rows: the group of these ops, which says which axes are rows.
    """
    names, results = program.net.input_names, program.net.output_blobs.values()
    reads = {name: Slot(Role.INPUT.of(name)) for name in names if name in rows.axes}
    writes = tuple((name, Slot(Role.RESULT.of(name))) for name in results if name not in rows.sums)
    kinds = {slot.tensor: program.types[name] for name, slot in (*reads.items(), *writes)}
    scan = Scan(
        program,
        steps=1,
        batch=rows.rows,
        reverse=False,
        reads=reads,
        references=tuple(name for name in names if name not in reads),
        timestep=None,
        writes=writes,
        additions=(),
        sums={name: name for name in results if name in rows.sums},
        tensors={name: Tensor(kind.dtype, kind.shape, 1) for name, kind in kinds.items()},
        batch_axes={name: rows.axes[name] for name in reads},
    )
    fixed = frozenset(name for name in names if name in options.fixed)
    compiled = compile_scan(scan, call.float_dtype, replace(options, tile=1), fixed)
    totals = totals_of(compiled, lambda epilogue: compile_once(epilogue, options))
    return RowPass(call, program, compiled, totals)


def compile_groups(program: Program, options: Options, interpreted: dict[str, str]) -> dict[str, RowPass]:
    """Key -> runner of the FusedOps of a net. If one cannot be compiled, the reason is put into `interpreted`."""
    kernels: dict[str, RowPass] = {}
    for call in program.calls:
        if call.op.type == "FusedOps":
            body = body_program(call)
            try:
                kernels[call.op.key] = compile_fused(call, body, group_of(body), options)
            except UnsupportedError as reason:
                interpreted[call.op.label] = str(reason)
    return kernels


def compile_once(program: Program, options: Options) -> Once:
    """A net that runs once for all steps of a loop. It is compiled only if options say that all ops are."""
    if options.around != "all":
        return Once(program)
    fused = fuse_ops(program, (), all_ops=True)
    return Once(fused, compile_groups(fused, options, {}))


@dataclass(frozen=True)
class PastEnd:
    """Steps past the ends of rows, which are not computed.

    Args:
        lengths: number of steps of each row.
        batch_axes: blob whose finished rows are not computed -> its batch axis; None if it has none.
    """

    lengths: Array
    batch_axes: Mapping[str, int | None]

    def clear(self, stack: Array, batch_axis: int | None) -> None:
        """Set a blob to zero in finished rows. `stack` has all steps of the blob."""
        steps = np.arange(len(stack))
        if batch_axis is None:
            stack[steps >= self.lengths.max()] = 0
        else:
            np.moveaxis(stack, batch_axis + 1, 1)[steps[:, None] >= self.lengths] = 0


@dataclass
class ScanResiduals:
    """The residuals of a forward pass: tensors over time that backward reads.

    Args:
        states: state input -> its tensor.
        outputs: step output that is not a state -> `[T, N, ...]`.
        kept: blob -> `[T, ...]`.
        layouts: how tensors of states are laid out.
        past_end: blobs of `kept` that are not computed in finished rows.
        borders: with segments: state input -> its values before each segment. The other tables are empty then.
    """

    states: dict[str, Array]
    outputs: dict[str, Array]
    kept: dict[str, Array]
    context: RunContext
    layouts: tuple[StateTensor, ...]
    past_end: PastEnd | None = None
    borders: dict[str, Array] = field(default_factory=dict)

    def arrays(self) -> list[Array]:
        """The held tensors that outputs of the forward pass may be views of."""
        return [*self.states.values(), *self.outputs.values()]

    def named_arrays(self) -> dict[str, Array]:
        """Every array that is held, by name."""
        return {**self.states, **self.outputs, **self.kept, **self.borders}

    def stacks(self, op: Op) -> dict[str, Callable[[], Array]]:
        """For each blob or output at hand on the backward pass, a function that gives all its steps `[T, ...]`."""
        recurrence, layouts = Recurrence(op, ""), {state.state.input: state for state in self.layouts}
        blobs = recurrence.cell.output_blobs
        result: dict[str, Callable[[], Array]] = {name: partial(self._stack, name) for name in self.kept}
        at_hand = {name: layouts[name] for name in self.states}
        found = {state.state.output: state.every(self.states[name]) for name, state in at_hand.items()}
        for output, (state, place) in recurrence.before.items():
            if state.input in at_hand:
                found[output] = at_hand[state.input].before(self.states[state.input], place)
        for output, steps in found.items():
            result.update((name, steps.copy) for name in (output, blobs[output]))
        for output, array in self.outputs.items():
            result.update((name, array.copy) for name in (output, blobs[output]))
        return result

    def _stack(self, name: str) -> Array:
        stack: Array = self.kept[name].copy()
        if self.past_end is not None and name in self.past_end.batch_axes:
            self.past_end.clear(stack, self.past_end.batch_axes[name])
        return stack


@dataclass
class ForwardScan:
    """Runs a RecurrentNetwork op."""

    call: Call
    recurrence: Recurrence
    states: list[StateTensor]
    hoisted: Hoisted
    prologue: Once | None
    compiled: CompiledScan
    totals: Totals

    def __call__(
        self, arrays: Sequence[Array], context: RunContext, carry: Carry | None = None, make: Memory | None = None
    ) -> tuple[object, ...]:
        """All outputs of the op. Outputs that are not read may be None."""
        target = self.compiled.options.target
        make = make or target.memory
        bound = dict(zip(self._ports, arrays, strict=True))
        memory = {name: make(buffer) for name, buffer in self.tensors.items()}
        for name in self._sequences:
            memory[name] = bound[name.blob]
        for name, state, _ in self._states:
            state.fill(memory[name], bound[name.blob])
        references = run_prologue(self.hoisted, self.prologue, bound, target)
        try:
            sums = self.compiled.run(memory, references, context, carry, make)
        except TypeRuleError:  # the reference raises a better error, with the op and the value
            schema_of(self.call.op.type).reference(self.call, *map(on_host, arrays), context=context)
            raise
        results = self.totals.results(sums, references, make, target) if self.recurrence.sums else {}
        return self._results(memory, results, references, context)

    @cached_property
    def _ports(self) -> list[str]:
        return self.recurrence.ports()

    @cached_property
    def _sequences(self) -> list[TensorName]:
        return [name for name in self.compiled.scan.tensors if name.role is Role.SEQUENCE]

    @cached_property
    def _states(self) -> list[tuple[TensorName, StateTensor, bool]]:
        """(tensor name, state, True if its tensor holds only the last steps)."""
        tensors = self.compiled.scan.tensors
        return [(state.name, state, tensors[state.name].ring) for state in self.states]

    @cached_property
    def _outputs(self) -> list[TensorName]:
        return [Role.OUTPUT.of(name) for name in self.recurrence.step_outputs]

    @cached_property
    def _before(self) -> dict[str, tuple[StateTensor, int]]:
        """Step outputs that are read, and are a value that a state input sees -> the state, and the place in its
        window."""
        states, before = {state.state.input: state for state in self.states}, self.recurrence.before.items()
        return {name: (states[s.input], place) for name, (s, place) in before if name in self.recurrence.read_outputs}

    @cached_property
    def _read_by_backward(self) -> list[TensorName]:
        borders = [name for name in self.compiled.scan.tensors if name.role is Role.BORDER]
        return borders or read_by_backward(self.recurrence)

    @cached_property
    def tensors(self) -> dict[TensorName, Buffer]:
        """Memory for tensors of states, kept blobs and step outputs."""
        read, found = self._read_by_backward, {}
        for name, tensor in self.compiled.scan.tensors.items():
            if name.role is not Role.SEQUENCE:
                what = name.blob if name.role is Role.KEPT else str(name)
                shape = tensor.length, *tensor.shape
                found[name] = Buffer(what, KEPT if name in read else OUTPUT, tensor.dtype, shape)
        return found

    def demand(self) -> Demand:
        """The memory that a run takes."""
        compiled, tensors, totals = self.compiled, self.tensors, self.totals.made()
        prologue, sums = prologue_buffers(self.hoisted), {**compiled.accumulators, **totals}
        summed = {Role.OUTPUT.of(name): sums[owner] for name, owner in compiled.plan.sums.items()}
        return Demand(
            made=(*tensors.values(), *prologue),
            results=tuple(results_of(self.call, {**tensors, **summed})),
            sums=(*compiled.accumulators.values(), *totals.values()),
            lent=tuple(compiled.lent.values()),
            lasting=tuple(compiled.lasting.values()),
            interpreted=(*self.totals.interpreted.values(), *prologue),
        )

    def beside(self) -> dict[str, Once]:
        """Nets that run once: time of the run, in words -> net."""
        return {**({BEFORE: self.prologue} if self.prologue else {}), **self.totals.beside()}

    def _results(
        self,
        memory: Mapping[TensorName, Array],
        sums: Mapping[str, Array],
        references: Mapping[str, Array],
        context: RunContext,
    ) -> tuple[object, ...]:
        results: list[object] = []
        for name, state, rolls in self._states:
            tensor = memory[name]
            results += [None if rolls else state.every(tensor), state.last(tensor)]
        last = slice(0, 1) if self.recurrence.reverse else slice(self.compiled.scan.steps - 1, None)
        for name in self._outputs:
            if name.blob in sums:
                results += [sums[name.blob].reshape(self.call.output_types[len(results)].shape), None]
                continue
            collected = memory.get(name)
            if collected is None and name.blob in self._before:
                state, place = self._before[name.blob]
                collected = state.before(memory[state.name], place)
            results += [collected, None if collected is None else collected[last]]
        if self.recurrence.keeps_workspaces:
            held: dict[Role, dict[str, Array]] = {Role.STATE: {}, Role.OUTPUT: {}, Role.KEPT: {}, Role.BORDER: {}}
            for name in self._read_by_backward:
                held[name.role][name.blob] = memory[name]
            kept = held[Role.STATE], held[Role.OUTPUT], held[Role.KEPT]
            past_end = self._past_end(references)
            results.append(ScanResiduals(*kept, context, tuple(self.states), past_end, held[Role.BORDER]))
        return tuple(results)

    def _past_end(self, references: Mapping[str, Array]) -> PastEnd | None:
        plan, unseen = self.compiled.plan, self.compiled.scan.unseen
        if not plan.lengths:
            return None
        slots = [(owner, slot.tensor) for owner, slot in plan.slots.items() if slot.tensor in unseen]
        axes = {tensor.blob: plan.batch_axes.get(owner) for owner, tensor in slots}
        return PastEnd(references[plan.lengths], axes)


def run_prologue(hoisted: Hoisted, prologue: Once | None, bound: dict[str, Array], target: Target) -> dict[str, Array]:
    """The references of a step: those that are given, and those that the prologue computes from them."""
    if prologue is None:
        return {name: bound[name] for name in hoisted.references}
    workspace = prologue(bound, target)
    return {name: bound[name] if name in bound else contiguous(workspace[name]) for name in hoisted.references}


def compile_forward(call: Call, options: Options, unseen: frozenset[TensorName] = frozenset()) -> ForwardScan:
    """Compile a RecurrentNetwork op. Raises UnsupportedError if an op of the cell has no compiled form.

    Args:
        unseen: tensors that are not read in finished rows.
    """
    return with_whole_tensors(lambda whole: _compile(call, options, unseen, whole))


def _compile(call: Call, options: Options, unseen: frozenset[TensorName], whole: frozenset[TensorName]) -> ForwardScan:
    """Compile; tensors in `whole` hold all steps."""
    recurrence = Recurrence(call.op, call.net)
    states = state_tensors(recurrence, input_types(recurrence, call))
    blobs = recurrence.cell.output_blobs
    stored = {Role.OUTPUT.of(name): blobs[name] for name in recurrence.wanted_step_outputs}
    stored.update((Role.KEPT.of(blob), blob) for blob in recurrence.keep)
    hoisted, scan = scan_of_steps(call, stored, _rings(recurrence, states) - whole)
    scan = replace(scan, unseen=unseen)
    compiled = compile_scan(scan, call.float_dtype, options, fixed_references(recurrence, options))
    prologue = compile_once(hoisted.prologue, options) if hoisted.prologue else None
    totals = totals_of(compiled, lambda epilogue: compile_once(epilogue, options))
    return ForwardScan(call, recurrence, states, hoisted, prologue, compiled, totals)


def scan_of_steps(call: Call, stored: Mapping[TensorName, str], rings: Collection[TensorName]) -> tuple[Hoisted, Scan]:
    """The steps of a RecurrentNetwork op as a scan.

    Args:
        stored: tensor that is not a state -> the blob whose steps it holds.
        rings: states whose tensors hold only the last steps.
    """
    recurrence = Recurrence(call.op, call.net)
    types = input_types(recurrence, call)
    steps, batch = recurrence.steps_and_batch(types)
    refuse_empty(call, steps, cell_program(recurrence, call))
    states = state_tensors(recurrence, types)
    program = expand_ops(cell_program(recurrence, call))
    blobs = program.net.output_blobs
    sums = {name: blobs[name] for name in recurrence.sums}
    outputs = [*(blobs[s.state.output] for s in states), *stored.values(), *sums.values()]
    hoisted = hoist_invariants(program, recurrence.references, outputs)
    tensors: dict[TensorName, Tensor] = {}
    reads: dict[str, Slot] = {}
    for blob in recurrence.sequences:
        if blob in hoisted.step.types:
            name = Role.SEQUENCE.of(blob)
            tensors[name] = Tensor(types[blob].dtype, types[blob].shape[1:], steps)
            reads[blob] = Slot(name)
    writes: list[tuple[str, Slot]] = []
    for state in states:
        tensors[state.name] = state.tensor(state.name in rings)
        if state.state.input in hoisted.step.types:
            reads[state.state.input] = state.read()
        writes.append((blobs[state.state.output], state.write()))
    for name, blob in stored.items():
        kind = program.types[blob]
        tensors[name] = Tensor(kind.dtype, kind.shape, steps)
        writes.append((blob, Slot(name)))
    scan = Scan(
        hoisted.step,
        steps,
        batch,
        reverse=recurrence.reverse,
        reads=reads,
        references=hoisted.references,
        timestep=recurrence.timestep if recurrence.timestep in hoisted.step.types else None,
        writes=tuple(writes),
        additions=(),
        sums=sums,
        tensors=tensors,
        states=tuple(state.name for state in states),
        batch_axes={**dict.fromkeys(recurrence.row_sequences, 0), **{s.state.input: s.batch_axis for s in states}},
        accesses={state.state.input: state.access() for state in states if state.state.input in reads},
        row_tensors=frozenset([*map(Role.SEQUENCE.of, recurrence.row_sequences), *(state.name for state in states)]),
        sums_are="sum",
    )
    return hoisted, scan


def fixed_references(recurrence: Recurrence, options: Options) -> frozenset[str]:
    """References that are inputs of the net with the same value at every call."""
    return frozenset(
        name for kind, name, outer in recurrence.bindings() if kind == "reference" and outer in options.fixed
    )


def refuse_empty(call: Call, steps: int, step: Program) -> None:
    """Raise NothingToDoError if there is no step, or a blob has no elements. Kernels need at least one of each."""
    if steps == 0 or any(kind.size == 0 for kind in step.types.values() if kind.dtype != OPAQUE):
        raise NothingToDoError(f"{call.op.label}: no steps, or a blob without elements")


def _rings(recurrence: Recurrence, states: Sequence[StateTensor]) -> set[TensorName]:
    """States whose tensors need to hold only the last steps, because no other steps are read."""
    whole = recurrence.whole_states
    return {state.name for state in states if state.state.input not in whole and state.can_roll()}
