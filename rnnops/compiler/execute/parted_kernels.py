"""What runs recurrences that a byte budget cuts into parts, on either device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnops.checkpoints.slot_schedule import slots
from rnnops.compiler.execute.backward import BackwardScan, compile_backward
from rnnops.compiler.execute.compiled_scan import Going, Options
from rnnops.compiler.execute.forward import ForwardScan, compile_forward
from rnnops.compiler.execute.stepped_kernels import CompileStep, Stepped, compile_steps, interpreted_steps
from rnnops.compiler.ir.lowered import UnsupportedError
from rnnops.interpreter import Program
from rnnops.recurrent.parted import Journey, Parted
from rnnops.recurrent.parts import Part, PartCalls, Parts
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call, RunContext
from rnnops.types import Array

Kernels = dict[str, Callable[..., tuple[Any, ...]]]


@dataclass
class SteppedJourney:
    """Runs parts step by step.

    Args:
        kernels: of a part, by its number of steps.
    """

    kernels: Mapping[int, PartSteps]
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
class PartSteps:
    """What runs the ops of a part step by step."""

    advance: Stepped
    keep: Stepped
    backward: Stepped


@dataclass(frozen=True)
class PartKernels:
    """What runs the ops of a part."""

    advance: ForwardScan
    keep: ForwardScan
    backward: BackwardScan


@dataclass
class CompiledJourney:
    """Runs parts by compiled scans.

    Args:
        kernels: of a part, by its number of steps.
    """

    kernels: Mapping[int, PartKernels]
    forward: Going
    backward: Going

    def run(self, what: str, part: Part, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        """Run one op; only the last `backward` gives sums over steps."""
        kernel = getattr(self.kernels[part.steps], what)
        going = self.backward if what == "backward" else self.forward
        going.last = what == "backward" and part.first == 0
        results: tuple[Any, ...] = kernel(arrays, context, going)
        return results

    def end(self) -> None:
        """Give scratch back."""
        self.forward.end()
        self.backward.end()


@dataclass(frozen=True)
class PartedKernels:
    """Kernels by the key of an op, for both passes.

    Args:
        interpreted: label of an op within a step -> why it is not compiled.
        scans, stepped: key of an op -> what runs the last part, on the CPU device: a scan, or steps one by one.
    """

    forward: Kernels = field(default_factory=dict)
    backward: Kernels = field(default_factory=dict)
    interpreted: dict[str, str] = field(default_factory=dict)
    scans: dict[str, ForwardScan | BackwardScan] = field(default_factory=dict)
    stepped: dict[str, Stepped] = field(default_factory=dict)


def parted_kernels(
    options: Options | None, forward: Program, backward: Program, compile_step: CompileStep | None = None
) -> PartedKernels:
    """Kernels of the recurrences that have a schedule.

    Args:
        options: those of the CPU device, None for the interpreter.
        compile_step: compiles the steps of recurrences that are no scans.
    """
    gradients = {call.op.inputs[len(call.output_types)]: call for call in backward.calls if _is_gradient(call)}
    found = PartedKernels()
    for call in forward.calls:
        twin = gradients.get(call.op.outputs[-1])
        if twin is not None and call.op.attributes.get("schedule"):
            _add_parted(found, options, call, twin, compile_step)
    return found


def _is_gradient(call: Call) -> bool:
    return call.op.type == "RecurrentNetworkGradient"


def _add_parted(
    found: PartedKernels, options: Options | None, call: Call, twin: Call, compile_step: CompileStep | None
) -> None:
    """Add what runs a recurrence and its gradient, and what there is to know of its parts."""
    unit, m, kind, cost = call.op.attributes["schedule"]
    parts = Parts(call, _given(call, twin), unit)
    calls = {part.steps: parts.calls(part.steps) for part in map(parts.part, range(parts.count))}
    kernels = {steps: _part_kernels(one, options, compile_step) for steps, one in calls.items()}
    parted = Parted(parts, slots(parts.count, m, kind, cost), _journeys(kernels, options))
    found.forward[call.op.key], found.backward[twin.op.key] = parted.forward, parted.backward
    last = kernels[parts.part(parts.count - 1).steps]
    if isinstance(last, PartKernels):
        found.scans.update({call.op.key: last.keep, twin.op.key: last.backward})
    elif options is not None:
        found.stepped.update({call.op.key: last.keep, twin.op.key: last.backward})
        found.interpreted.update(last.keep.interpreted)


def _journeys(kernels: Mapping[int, PartKernels | PartSteps], options: Options | None) -> Callable[[], Journey]:
    """What begins a pass; all parts are scans, or none is."""
    scans = {steps: one for steps, one in kernels.items() if isinstance(one, PartKernels)}
    stepped = {steps: one for steps, one in kernels.items() if isinstance(one, PartSteps)}
    if options is None or stepped:
        return lambda: SteppedJourney(stepped)
    return lambda: CompiledJourney(scans, Going(options.pool), Going(options.pool))


def _part_kernels(
    calls: PartCalls, options: Options | None, compile_step: CompileStep | None
) -> PartKernels | PartSteps:
    if options is None or compile_step is None:
        return PartSteps(*map(interpreted_steps, (calls.advance, calls.keep, calls.backward)))
    try:
        backward = compile_backward(calls.backward, options)
        advance, keep = (compile_forward(call, options, None) for call in (calls.advance, calls.keep))
        return PartKernels(advance, keep, backward)
    except UnsupportedError as reason:
        why = str(reason)
    advancing, _ = compile_steps(calls.advance, None, options, compile_step, why)
    keeping, gradient = compile_steps(calls.keep, calls.backward, options, compile_step, why)
    assert gradient is not None
    return PartSteps(advancing, keeping, gradient)


def _given(call: Call, twin: Call) -> tuple[tuple[bool, bool], ...]:
    """For each output, whether gradients of `_all` and of `_last` come from outside."""
    first = len(twin.output_types) + 1
    there = [bool(name) for name in twin.op.inputs[first:]]
    count = len(call.output_types[:-1])
    there += [False] * (count - len(there))
    return tuple(zip(there[::2], there[1::2], strict=True))
