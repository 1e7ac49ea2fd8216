"""Compiles the ops of a plan: the result has a runner for each op that the interpreter does not run.

`compile_programs` at the end is the entry. Before it come recycled memory, stepped recurrences, and recurrences in
parts.

**Recycling**: one block of memory holds the scratch of compiled ops and the results that die within their pass.

A plan says where in the block each buffer lies (`place_live_ranges`). A pass borrows a block from the run's pool when
an op first asks for memory, and gives it back at its end (`recycling`). Outputs, gradients that the caller gets, and
values kept for the backward pass are never in a block. A piece of a block may still be held at the end of a pass, for
example by the traceback of an error. Then the block stays with its holder and goes to no other pass.

Limit: no op writes over an operand. As a test, fused ops wrote over an operand of their result's size that dies there.
The blocks of language models, attention decoders and residual stacks were not smaller, because most memory is alive at
recurrences and products. The blocks of random nets were smaller by 1 in 7000. So kernels always get their own memory.

**Recurrences that are stepped from Python, with compiled steps**: a recurrence whose cell holds a recurrence, or an op
without a compiled form. Its step is compiled like an outer net. Recurrences in the step are scans, and the ops around
them are fused. On the reference device all ops of a step run in the interpreter. Limits: products run step by step, as
the cell wrote them. Each kernel of a step costs some tens of microseconds. So a step should take longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rnnops.checkpoints.slot_schedule import slots
from rnnops.compiler.lower.scan import NothingToDoError, Role, TensorName, UnsupportedError
from rnnops.compiler.memory.allocations import MOMENTS, Allocation, allocations_of, intervals_of, plan_arena
from rnnops.compiler.memory.memory import SCRATCH, SMALL, Block, Buffer, Demand, Memory, Pool, allocate, block_bytes
from rnnops.compiler.rewrite.fuse_ops import fuse_ops
from rnnops.compiler.run.compiled_scan import Carry, CompiledScan, Once, Options
from rnnops.compiler.run.forward import ForwardScan, compile_forward, compile_groups
from rnnops.compiler.schedule.rows import past_end_reads
from rnnops.compiler.targets.target import PROCESSOR, Target, wake_workers
from rnnops.interpreter import Program
from rnnops.net.schema import Call, RunContext
from rnnops.recurrent.recurrence import Recurrence, backward_program, cell_program, runs_in_parts
from rnnops.recurrent.stepping import HOST, run_backward, run_forward
from rnnops.types import Array, is_float
from rnnops.util import LazyModule, cached_property

if TYPE_CHECKING:
    from rnnops.compiler.run import backward as gradients, segments as in_segments
    from rnnops.compiler.run.segments import SegmentPlans
    from rnnops.recurrent import parts as in_parts
    from rnnops.recurrent.parts import Part, PartCalls, PassRunner
else:  # a forward pass does without
    gradients, in_segments = LazyModule("rnnops.compiler.run.backward"), LazyModule("rnnops.compiler.run.segments")
    in_parts = LazyModule("rnnops.recurrent.parts")

RECURRENT = ("RecurrentNetwork", "RecurrentNetworkGradient")
Kernels = Mapping[str, Any]
LiveRanges = tuple[Allocation, ...]


@dataclass(frozen=True)
class Recycled:
    """The block of a pass.

    Args:
        nbytes: size of the block in bytes, which may be more than this pass needs.
        placed: the buffers in the block.
    """

    nbytes: int = 0
    placed: tuple[Allocation, ...] = ()

    @cached_property
    def places(self) -> dict[str, dict[int, int]]:
        """Key of an op -> id of one of its buffers -> its offset in the block. Scratch comes first."""
        places: dict[str, dict[int, int]] = {}
        for one in self.placed:
            places.setdefault(one.of, {})[id(one.buffer)] = one.address or 0
        return places

    def at_least(self, nbytes: int) -> Recycled:
        """The same in a block of at least `nbytes`, so that other passes can use it too."""
        return replace(self, nbytes=max(self.nbytes, nbytes)) if self.placed else self


def ranges_of(program: Program, kernels: Kernels, keep: Collection[str] = ()) -> LiveRanges:
    """Arrays that may share a block within a pass: scratch of each compiled op, then buffers that die within the pass.

    Args:
        kernels: key of an op -> its runner. Runners that are not compiled have memory of their own.
        keep: blobs that stay after the pass; outputs stay in any case.
    """
    kernels = {key: kernel for key, kernel in kernels.items() if kernel.compiled is not None}
    demands = {key: kernel.demand() for key, kernel in kernels.items()}
    asked = {id(buffer) for demand in demands.values() for buffer in demand.asked_for()}
    found = allocations_of(program, demands, keep, lambda call: _held_by_results(call, kernels.get(call.op.key)))
    end = MOMENTS * len(program.calls)
    dying = [one for one in found if id(one.buffer) in asked and one.nbytes >= SMALL and one.last < end]
    compiled = [(n, call.op.key) for n, call in enumerate(program.calls) if call.op.key in kernels] if dying else []
    return (*(_scratch(n, key, kernels[key]) for n, key in compiled), *dying)


def _scratch(number: int, key: str, kernel: Any) -> Allocation:
    buffer = Buffer(SCRATCH, SCRATCH, "uint8", (block_bytes(kernel.compiled.lent.values()),))
    return Allocation(number, key, buffer, (), MOMENTS * number, MOMENTS * number)


def place_live_ranges(ranges: LiveRanges) -> Recycled:
    """The block of a pass, with an offset for each buffer. Sizes must be plain numbers, not symbols."""
    arena = plan_arena(intervals_of(ranges))
    placed = (replace(one, address=at) for one, at in zip(ranges, arena.offsets, strict=True))
    return Recycled(arena.nbytes, tuple(placed))


def _held_by_results(call: Call, kernel: Any) -> list[str]:
    """Inputs that an op's results may be views of, or may keep. Other results have memory of their own."""
    if kernel is None:
        return [name for name in call.op.inputs if name] if call.op.type in RECURRENT else []
    if not isinstance(kernel, ForwardScan) or not kernel.recurrence.keeps_workspaces:
        return []
    kinds = zip(call.op.inputs, call.types, strict=True)  # inputs that are not floats: residuals keep the lengths
    return [name for name, kind in kinds if kind is not None and not is_float(kind.dtype)]


@contextmanager
def recycling(recycled: Recycled, kernels: Kernels, pool: Pool) -> Iterator[Kernels]:
    """For one pass: kernels that take their memory from one block, which is borrowed from a pool."""
    if not recycled.placed:
        yield kernels
        return
    lease = _BorrowedBlock(recycled, pool)
    try:
        yield {**kernels, **{key: partial(kernels[key], make=_SharedMemory(lease, key)) for key in recycled.places}}
    finally:
        lease.end()


class _BorrowedBlock:
    """A block that is borrowed when it is first needed."""

    def __init__(self, recycled: Recycled, pool: Pool) -> None:
        self.recycled, self.pool = recycled, pool
        self._block: Block | None = None

    @property
    def block(self) -> Block:
        if self._block is None:
            self._block = self.pool.take(self.recycled.nbytes)
        return self._block

    def end(self) -> None:
        if self._block is not None and not self._block.is_held():
            self.pool.give(self._block)
        self._block = None


class _SharedMemory(Memory):
    """The memory of one op, from the block of its pass."""

    def __init__(self, lease: _BorrowedBlock, key: str) -> None:
        self.lease, self.places = lease, lease.recycled.places[key]

    def __call__(self, buffer: Buffer, zeros: bool = False) -> Array:
        offset = self.places.get(id(buffer))
        if offset is None:
            return allocate(buffer, zeros)
        part = self.lease.block.part(buffer, offset)
        if zeros:
            part.fill(0)
        return part

    def borrow(self, pool: Pool, nbytes: int) -> tuple[Block, int]:
        return self.lease.block, next(iter(self.places.values()))

    def give_back(self, pool: Pool, block: Block) -> None:
        """Nothing to do: the pass gives the block back."""


class Runner(Protocol):
    """A function that runs an op in place of its reference."""

    @property
    def compiled(self) -> CompiledScan | None:
        """The scan that it calls; None if Python steps through the op."""

    def __call__(self, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]: ...

    def demand(self) -> Demand | None:
        """The memory that a run takes; None if the interpreter makes its results."""

    def beside(self) -> Mapping[str, Once]:
        """Nets that run within the op: time of the run, in words -> net."""


Runners = Mapping[str, Runner]


@dataclass(frozen=True)
class Compiled:
    """The runners of a plan, by key; the interpreter runs all other ops.

    Args:
        forward: ops of the forward pass.
        backward: ops of the backward pass, with forward ops that run again there.
        interpreted: label of an op that could not be compiled -> the reason.
        recycled: the block of the forward pass, and the block of the backward pass.
        pool: the pool from which passes borrow these blocks.
        threads: the largest number of our own threads that run one of the scans.
    """

    forward: dict[str, Runner] = field(default_factory=dict)
    backward: dict[str, Runner] = field(default_factory=dict)
    interpreted: dict[str, str] = field(default_factory=dict)
    recycled: tuple[Recycled, Recycled] = (Recycled(), Recycled())
    pool: Pool = field(default_factory=Pool, compare=False, repr=False)
    threads: int = 1

    def running_forward(self) -> AbstractContextManager[Mapping[str, Any]]:
        """The runners of one forward pass. They share a block of memory until the context ends."""
        return recycling(self.recycled[0], self.forward, self.pool)

    def running_backward(self) -> AbstractContextManager[Mapping[str, Any]]:
        """The runners of one backward pass, with a block like the forward pass."""
        return recycling(self.recycled[1], self.backward, self.pool)

    def sharing(self, pool: Pool, forward: LiveRanges, backward: LiveRanges = ()) -> Compiled:
        """The same with a block for each pass. Both blocks have one size, so that one block of the pool serves both."""
        recycled, kernels = (place_live_ranges(forward), place_live_ranges(backward)), self.kernels
        nbytes = max([one.nbytes for one in recycled] + [kernel.compiled.block for kernel in kernels])
        for kernel in kernels:
            kernel.compiled.reserve(nbytes)
        ahead, behind = (one.at_least(nbytes) for one in recycled)
        scans = (kernel.compiled for kernel in kernels)
        threads = max((scan.threads for scan in scans if scan.options.target == PROCESSOR), default=1)
        return replace(self, recycled=(ahead, behind), pool=pool, threads=threads)

    def wake(self) -> None:
        """Wake the threads that a pass will use."""
        if self.threads > 1:
            wake_workers(self.threads)

    @property
    def kernels(self) -> tuple[Any, ...]:
        """All compiled runners of both passes, with compiled runners inside of other ops."""
        return tuple(compiled_in((*self.forward.values(), *self.backward.values())))


def compiled_in(runners: Iterable[Runner]) -> Iterator[Any]:
    """The compiled runners among these, and inside of their nets."""
    for runner in runners:
        if runner.compiled is not None:
            yield runner
        yield from compiled_in(inner for once in runner.beside().values() for inner in once.kernels.values())


def demands_of(runners: Runners) -> dict[str, Demand]:
    """The memory that runners take, by key."""
    demands = {key: runner.demand() for key, runner in runners.items()}
    return {key: demand for key, demand in demands.items() if demand is not None}


CompileStep = Callable[[Options, Program, Program | None], Compiled]


@dataclass(frozen=True)
class Stepped:
    """Runs a RecurrentNetwork op, or a RecurrentNetworkGradient op, step by step.

    Args:
        program: one step.
        kernels: key of an op of the step -> its runner. The interpreter runs all other ops.
        interpreted: label of an op of the step that could not be compiled -> the reason.
        reason: why the recurrence is not a scan; empty on the reference device.
        target: makes arrays, and runs ops of the step that have no kernel. If left out, the interpreter does both.
    """

    call: Call
    program: Program
    kernels: Runners = field(default_factory=dict)
    interpreted: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    target: Target | None = None
    compiled: None = None

    def __call__(
        self, arrays: Sequence[Any], context: RunContext, start: Mapping[str, Array] | None = None
    ) -> tuple[Any, ...]:
        """All results of the op.

        Args:
            start: for a gradient, the sums over steps so far, to which this run adds.
        """
        recurrence, kernels, memory = Recurrence(self.call.op, self.call.net), self.kernels, HOST
        if self.target is not None:
            kernels, memory = {**self.target.references(self.program), **kernels}, self.target.memory
        if self.call.op.type == "RecurrentNetwork":
            return run_forward(recurrence, self.program, arrays, context, kernels, memory)
        types = self.call.output_types
        return run_backward(recurrence, self.program, types, arrays, start, kernels, memory)

    def demand(self) -> None:
        """None: the interpreter makes its results."""

    def beside(self) -> dict[str, Once]:
        """The net of a step."""
        return {"in each step": Once(self.program, self.kernels)}


def interpreted_steps(call: Call) -> Stepped:
    """The runner of a recurrence, or of its gradient, in the interpreter."""
    if call.op.type == "RecurrentNetwork":
        return Stepped(call, cell_program(Recurrence(call.op, call.net), call))
    return Stepped(call, backward_program(call))


def compile_steps(
    call: Call, backward_call: Call | None, options: Options, compile_step: CompileStep, reason: str
) -> tuple[Stepped, Stepped | None]:
    """The runners of a recurrence and of its gradient, step by step. All ops of a step that can be compiled are.

    Args:
        backward_call: the gradient op, which reads the values that the forward pass keeps.
        compile_step: compiles the programs of a step and of a backward step.
        reason: why the recurrence is not a scan.
    """
    options = replace(options, fixed=frozenset())
    forward = interpreted_steps(call)
    ahead, behind = fuse_ops(forward.program, call.op.attributes.get("keep", ()), all_ops=True), None
    if backward_call is not None:
        behind = fuse_ops(interpreted_steps(backward_call).program, (), all_ops=True)
    found = compile_step(options, ahead, behind)
    within = {f"{call.op.label}: {label}": why for label, why in found.interpreted.items()}
    forward = Stepped(call, ahead, found.forward, within, reason, options.target)
    if backward_call is None or behind is None:
        return forward, None
    return forward, Stepped(backward_call, behind, found.backward, reason=reason, target=options.target)


@dataclass
class SteppedParts:
    """Runs the parts of one pass step by step.

    Args:
        kernels: number of steps -> the runners of a part.
        sums: sums over the steps so far.
    """

    kernels: Mapping[int, PartRunners]
    sums: dict[str, Array] = field(default_factory=dict)

    def run(self, what: str, part: Part, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        """Run one op. Each `backward` adds to the sums of the parts before."""
        stepped: Stepped = getattr(self.kernels[part.steps], what)
        if what != "backward":
            return stepped(arrays, context)
        results = stepped(arrays, context, self.sums)
        recurrence = Recurrence(stepped.call.op, stepped.call.net)
        found = dict(zip(recurrence.ports(), results, strict=True))
        self.sums = {name: grad for name in recurrence.references if (grad := found[name]) is not None}
        return results

    def end(self) -> None:
        """Nothing to do: there is no scratch."""


@dataclass(frozen=True)
class PartRunners:
    """The runners of the ops of a part."""

    advance: Runner
    keep: Runner
    backward: Runner


@dataclass
class CompiledParts:
    """Runs the parts of one pass by compiled scans.

    Args:
        kernels: number of steps -> the runners of a part.
        forward, backward: values that scans of one direction hand from part to part.
    """

    kernels: Mapping[int, PartRunners]
    forward: Carry
    backward: Carry

    def run(self, what: str, part: Part, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        """Run one op. Only the last `backward` returns sums over steps."""
        kernel = getattr(self.kernels[part.steps], what)
        carry = self.backward if what == "backward" else self.forward
        carry.last = what == "backward" and part.first == 0
        results: tuple[Any, ...] = kernel(arrays, context, carry)
        return results

    def end(self) -> None:
        """Give scratch back."""
        self.forward.end()
        self.backward.end()


@dataclass(frozen=True)
class InParts:
    """Runs a recurrence in parts, or the gradient of one.

    Args:
        run: runs all parts.
        last: the runner of the last part, which plans show; None in the interpreter.
    """

    run: Callable[..., tuple[Any, ...]]
    last: Runner | None
    compiled: None = None

    def __call__(self, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        return self.run(arrays, context)

    def demand(self) -> None:
        """None: each part asks for memory when it runs."""

    def beside(self) -> dict[str, Once]:
        """Empty, so that `sharing` leaves the scans of parts out: they share no block with other ops."""
        return {}


def runner_shown(runner: Runner | None) -> Runner | None:
    """The runner that a plan shows for an op: its own runner, or the runner of its last part."""
    return runner.last if isinstance(runner, InParts) else runner


def compile_parts(
    call: Call, backward_call: Call, options: Options, compile_step: CompileStep, found: Compiled
) -> None:
    """Add the runners of a recurrence that has a schedule, and of its gradient.

    Args:
        compile_step: compiles the steps of recurrences that are not scans.
        found: the runners so far, to which this adds.
    """
    unit, m, kind, cost = call.op.attributes["schedule"]
    parts = in_parts.Parts(call, _given(call, backward_call), unit)
    calls = {part.steps: parts.calls(part.steps) for part in map(parts.part, range(parts.count))}
    runners = {steps: _part_runners(one, options, compile_step) for steps, one in calls.items()}
    order, runs = slots(parts.count, m, kind, cost), _pass_runners(runners, options)
    parted = in_parts.Parted(parts, order, runs, options.target.memory)
    last = runners[parts.part(parts.count - 1).steps]
    ahead, behind = (None, None) if options.interpreted else (last.keep, last.backward)
    found.forward[call.op.key] = InParts(parted.forward, ahead)
    found.backward[backward_call.op.key] = InParts(parted.backward, behind)
    if isinstance(ahead, Stepped):
        found.interpreted.update(ahead.interpreted)


def _pass_runners(runners: Mapping[int, PartRunners], options: Options) -> Callable[[], PassRunner]:
    """A function that returns the runner of a new pass. Either all parts are scans, or none is."""
    if any(one.keep.compiled is None for one in runners.values()):
        return lambda: SteppedParts(runners)
    pool, memory = options.pool, options.target.memory
    return lambda: CompiledParts(runners, Carry(pool, memory), Carry(pool, memory))


def _part_runners(calls: PartCalls, options: Options, compile_step: CompileStep) -> PartRunners:
    if options.interpreted:
        return _interpreted(calls)
    try:
        backward = gradients.compile_backward(calls.backward, options)
        advance, keep = (compile_forward(call, options) for call in (calls.advance, calls.keep))
        return PartRunners(advance, keep, backward)
    except NothingToDoError:  # the interpreter runs it, as it does without a schedule
        return _interpreted(calls)
    except UnsupportedError as reason:
        why = str(reason)
    advancing, _ = compile_steps(calls.advance, None, options, compile_step, why)
    keeping, gradient = compile_steps(calls.keep, calls.backward, options, compile_step, why)
    assert gradient is not None
    return PartRunners(advancing, keeping, gradient)


def _interpreted(calls: PartCalls) -> PartRunners:
    return PartRunners(*map(interpreted_steps, (calls.advance, calls.keep, calls.backward)))


def _given(call: Call, backward_call: Call) -> tuple[tuple[bool, bool], ...]:
    """For each output: (True if `_all` gets a gradient from outside, True if `_last` does)."""
    first = len(backward_call.output_types) + 1
    there = [bool(name) for name in backward_call.op.inputs[first:]]
    count = len(call.output_types[:-1])
    there += [False] * (count - len(there))
    return tuple(zip(there[::2], there[1::2], strict=True))


def compile_programs(
    options: Options, forward: Program, backward: Program | None = None, segments: SegmentPlans | None = None
) -> Compiled:
    """Compile all ops that can be compiled. A recurrence is compiled only if its gradient can be compiled too.

    Args:
        segments: plans of recurrences that run in segments. If left out, they are made when they are needed.
    """
    found = Compiled()
    passes = [(forward, found.forward), *([(backward, found.backward)] if backward else [])]
    backward_calls = {
        call.op.inputs[len(call.output_types)]: call
        for call in (backward.calls if backward else ())
        if call.op.type == "RecurrentNetworkGradient"
    }
    for program, runners in passes:
        runners.update(compile_groups(program, options, found.interpreted))
        for call in reversed(program.calls):  # readers before the recurrences that they read
            if call.op.type == "RecurrentNetwork" and not (options.interpreted or runs_in_parts(call.op)):
                backward_call = backward_calls.get(call.op.outputs[-1])
                unseen = frozenset[TensorName]() if backward else frozenset(_unseen(call, program, runners))
                _compile_recurrence(call, backward_call, options, found, runners, segments, unseen)
    for call in forward.calls:
        backward_call = backward_calls.get(call.op.outputs[-1])
        if backward_call is not None and runs_in_parts(call.op):
            compile_parts(call, backward_call, options, compile_programs, found)
    return found


def _unseen(call: Call, program: Program, runners: Runners) -> Iterator[TensorName]:
    """Step outputs of a recurrence that are not read in finished rows. Only compiled recurrences of equal lengths may
    read them.

    Args:
        runners: the runners of ops so far, readers included.
    """
    recurrence, inside = Recurrence(call.op, call.net), program.net.output_blobs.values()
    ends = {call.op.inputs[i] for i, kind in enumerate(call.types) if kind is not None and not is_float(kind.dtype)}
    pairs = zip(call.op.outputs[::2], call.op.outputs[1::2], strict=False)
    for name, (every, last) in zip(recurrence.output_names(), pairs, strict=False):
        if name in recurrence.wanted_step_outputs and every and not last and every not in inside:
            readers = [other for other in program.calls if every in other.op.inputs]
            if all(_looks_past_no_end(every, ends, runners.get(other.op.key)) for other in readers):
                yield Role.OUTPUT.of(name)


def _looks_past_no_end(blob: str, ends: set[str], runner: Runner | None) -> bool:
    """True if a recurrence reads a blob only as a sequence, and never in finished rows.

    Args:
        ends: the blobs that must say where rows end.
    """
    if not isinstance(runner, ForwardScan):
        return False
    ports = [(kind, name) for kind, name, outer in runner.recurrence.bindings() if outer == blob]
    read = {Role.SEQUENCE.of(name) for _, name in ports} & past_end_reads(runner.compiled.plan)
    return {kind for kind, _ in ports} == {"sequence"} and bool(ends) and _ends(runner) == ends and not read


def _ends(runner: ForwardScan) -> set[str]:
    """The blob that says where rows end; empty if the step computes it."""
    return {outer for _, name, outer in runner.recurrence.bindings() if name == runner.compiled.plan.lengths}


def _compile_recurrence(
    call: Call,
    backward_call: Call | None,
    options: Options,
    found: Compiled,
    runners: dict[str, Runner],
    segments: SegmentPlans | None,
    unseen: frozenset[TensorName],
) -> None:
    """Compile a RecurrentNetwork op, and the gradient op that reads its kept values.

    Args:
        unseen: tensors that are not read in finished rows. It is only used if there is no gradient op.
    """
    if backward_call is not None and call.op.attributes.get("segments"):
        plan = (segments or in_segments.SegmentPlans(options)).of(call, backward_call)
        assert plan is not None, "a recurrence in segments has a plan"
        plan = plan.of(call.op.attributes["segments"])
        ahead, behind = in_segments.compile_in_segments(call, backward_call, options, plan)
        runners[call.op.key], found.backward[backward_call.op.key] = ahead, behind
        return
    try:
        gradient = None if backward_call is None else gradients.compile_backward(backward_call, options)
        if gradient is not None:
            kept = frozenset(map(Role.KEPT.of, Recurrence(call.op, call.net).keep))
            unseen = kept - past_end_reads(gradient.compiled.plan)
        made = compile_forward(call, options, unseen)
        if gradient is None and unseen and made.compiled.plan.lengths and not _ends(made):
            made = compile_forward(call, options)
        runners[call.op.key] = made
        if backward_call is not None and gradient is not None:
            found.backward[backward_call.op.key] = gradient
    except NothingToDoError as reason:
        found.interpreted[call.op.label] = str(reason)
    except UnsupportedError as reason:
        forward, backward = compile_steps(call, backward_call, options, compile_programs, str(reason))
        runners[call.op.key] = forward
        found.interpreted.update(forward.interpreted)
        if backward_call is not None and backward is not None:
            found.backward[backward_call.op.key] = backward
