"""What runs recurrences that a byte budget cuts into parts, on either device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnops.checkpoints.slot_schedule import slots
from rnnops.compiler.execute.backward import compile_backward
from rnnops.compiler.execute.compiled import Compiled, Runner
from rnnops.compiler.execute.compiled_scan import Carry, Options
from rnnops.compiler.execute.forward import compile_forward
from rnnops.compiler.execute.once import Once
from rnnops.compiler.execute.stepped_kernels import CompileStep, Stepped, compile_steps, interpreted_steps
from rnnops.compiler.ir.lowered import NothingToDoError, UnsupportedError
from rnnops.recurrent.parted import Parted, Segments
from rnnops.recurrent.parts import Part, PartCalls, Parts
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call, RunContext
from rnnops.types import Array


@dataclass
class SteppedSegments:
    """Runs parts step by step.

    Args:
        kernels: of a part, by its number of steps.
    """

    kernels: Mapping[int, PartRunners]
    sums: dict[str, Array] = field(default_factory=dict)

    def run(self, what: str, part: Part, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        """Run one op; sums over steps go on from part to part."""
        stepped: Stepped = getattr(self.kernels[part.steps], what)
        if what != "backward":
            return stepped(arrays, context)
        results = stepped(arrays, context, self.sums)
        recurrence = Recurrence(stepped.call.op, stepped.call.net)
        found = dict(zip(recurrence.ports(), results, strict=True))
        self.sums = {name: grad for name in recurrence.references if (grad := found[name]) is not None}
        return results

    def end(self) -> None:
        """Nothing to give back."""


@dataclass(frozen=True)
class PartRunners:
    """What runs the ops of a part."""

    advance: Runner
    keep: Runner
    backward: Runner


@dataclass
class CompiledSegments:
    """Runs parts by compiled scans.

    Args:
        kernels: of a part, by its number of steps.
    """

    kernels: Mapping[int, PartRunners]
    forward: Carry
    backward: Carry

    def run(self, what: str, part: Part, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        """Run one op; only the last `backward` gives sums over steps."""
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
        run: all parts.
        last: what runs the last part; None in the interpreter.
    """

    run: Callable[..., tuple[Any, ...]]
    last: Runner | None
    compiled: None = None

    def __call__(self, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        return self.run(arrays, context)

    def demand(self) -> None:
        """None: parts ask for memory as they run."""

    def beside(self) -> dict[str, Once]:
        """None: scans of parts share no block with others."""
        return {}


def runner_shown(runner: Runner | None) -> Runner | None:
    """What a plan says of an op: what runs it, or the last of its parts."""
    return runner.last if isinstance(runner, InParts) else runner


def compile_parts(
    call: Call, backward_call: Call, options: Options, compile_step: CompileStep, found: Compiled
) -> None:
    """Add what runs a recurrence that has a schedule, and its gradient, and what there is to know of its parts.

    Args:
        compile_step: compiles the steps of recurrences that are no scans.
    """
    unit, m, kind, cost = call.op.attributes["schedule"]
    parts = Parts(call, _given(call, backward_call), unit)
    calls = {part.steps: parts.calls(part.steps) for part in map(parts.part, range(parts.count))}
    runners = {steps: _part_runners(one, options, compile_step) for steps, one in calls.items()}
    parted = Parted(parts, slots(parts.count, m, kind, cost), _segment_runs(runners, options), options.target.memory)
    last = runners[parts.part(parts.count - 1).steps]
    ahead, behind = (None, None) if options.interpreted else (last.keep, last.backward)
    found.forward[call.op.key] = InParts(parted.forward, ahead)
    found.backward[backward_call.op.key] = InParts(parted.backward, behind)
    if isinstance(ahead, Stepped):
        found.interpreted.update(ahead.interpreted)


def _segment_runs(runners: Mapping[int, PartRunners], options: Options) -> Callable[[], Segments]:
    """What begins a pass; all parts are scans, or none is."""
    if any(one.keep.compiled is None for one in runners.values()):
        return lambda: SteppedSegments(runners)
    pool, memory = options.pool, options.target.memory
    return lambda: CompiledSegments(runners, Carry(pool, memory), Carry(pool, memory))


def _part_runners(calls: PartCalls, options: Options, compile_step: CompileStep) -> PartRunners:
    if options.interpreted:
        return _interpreted(calls)
    try:
        backward = compile_backward(calls.backward, options)
        advance, keep = (compile_forward(call, options, None) for call in (calls.advance, calls.keep))
        return PartRunners(advance, keep, backward)
    except NothingToDoError:  # as without a schedule
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
    """For each output, whether gradients of `_all` and of `_last` come from outside."""
    first = len(backward_call.output_types) + 1
    there = [bool(name) for name in backward_call.op.inputs[first:]]
    count = len(call.output_types[:-1])
    there += [False] * (count - len(there))
    return tuple(zip(there[::2], there[1::2], strict=True))
