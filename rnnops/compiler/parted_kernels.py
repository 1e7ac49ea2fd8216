"""What runs recurrences that a byte budget cuts into parts, on either device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnops.checkpoints.slot_schedule import slots
from rnnops.compiler.scan.backward import BackwardScan, compile_backward
from rnnops.compiler.scan.compiled_scan import Going, Options
from rnnops.compiler.scan.forward import ForwardScan, compile_forward
from rnnops.compiler.scan.lowered import UnsupportedError
from rnnops.interpreter import Program
from rnnops.recurrent.backward import run_backward
from rnnops.recurrent.op import backward_program
from rnnops.recurrent.parted import Journey, Parted
from rnnops.recurrent.parts import Part, PartCalls, Parts
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call, RunContext, schema_of
from rnnops.types import Array

Kernels = dict[str, Callable[..., tuple[Any, ...]]]


@dataclass
class ReferenceJourney:
    """Runs parts by the references of their ops.

    Args:
        calls: of a part, by its number of steps.
    """

    calls: Mapping[int, PartCalls]
    sums: dict[str, Array] = field(default_factory=dict)

    def run(self, what: str, part: Part, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        """Run one op; sums over steps go on from part to part."""
        call: Call = getattr(self.calls[part.steps], what)
        if what == "backward":
            return self._backward(call, arrays, context)
        results: Any = schema_of(call.op.type).reference(call, *arrays, context=context)
        return tuple(results)

    def end(self) -> None:
        """Nothing to give back."""

    def _backward(self, call: Call, arrays: Sequence[Any], context: RunContext) -> tuple[Any, ...]:
        recurrence = Recurrence(call.op, call.net)
        results = run_backward(recurrence, backward_program(call), call.output_types, arrays, context, self.sums)
        found = dict(zip(recurrence.ports(), results, strict=True))
        self.sums = {name: grad for name in recurrence.references if (grad := found[name]) is not None}
        return results


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
        interpreted: label of an op -> why its parts are not compiled.
        scans: key of an op -> what runs the last part, where that is compiled.
    """

    forward: Kernels = field(default_factory=dict)
    backward: Kernels = field(default_factory=dict)
    interpreted: dict[str, str] = field(default_factory=dict)
    scans: dict[str, ForwardScan | BackwardScan] = field(default_factory=dict)


def parted_kernels(options: Options | None, forward: Program, backward: Program) -> PartedKernels:
    """Kernels of the recurrences that have a schedule; `options` are those of the CPU device."""
    gradients = {call.op.inputs[len(call.output_types)]: call for call in backward.calls if _is_gradient(call)}
    found = PartedKernels()
    for call in forward.calls:
        twin = gradients.get(call.op.outputs[-1])
        if twin is not None and call.op.attributes.get("schedule"):
            parted = _parted(options, call, twin, found.interpreted)
            found.forward[call.op.key], found.backward[twin.op.key] = parted.forward, parted.backward
            journey = parted.begin()
            if isinstance(journey, CompiledJourney):
                kernels = journey.kernels[parted.parts.part(parted.parts.count - 1).steps]
                found.scans.update({call.op.key: kernels.keep, twin.op.key: kernels.backward})
    return found


def _is_gradient(call: Call) -> bool:
    return call.op.type == "RecurrentNetworkGradient"


def _parted(options: Options | None, call: Call, twin: Call, interpreted: dict[str, str]) -> Parted:
    unit, m, kind, cost = call.op.attributes["schedule"]
    parts = Parts(call, _given(call, twin), unit)
    calls = {part.steps: parts.calls(part.steps) for part in map(parts.part, range(parts.count))}
    actions = slots(parts.count, m, kind, cost)
    return Parted(parts, actions, _journeys(options, call, calls, interpreted))


def _journeys(
    options: Options | None, call: Call, calls: Mapping[int, PartCalls], interpreted: dict[str, str]
) -> Callable[[], Journey]:
    """What begins a pass; the reason goes into `interpreted` where parts run in the interpreter on the CPU device."""
    if options is None:
        return lambda: ReferenceJourney(calls)
    try:
        kernels = {steps: _compiled(one, options) for steps, one in calls.items()}
    except UnsupportedError as reason:
        interpreted[call.op.label] = str(reason)
        return lambda: ReferenceJourney(calls)
    return lambda: CompiledJourney(kernels, Going(options.pool), Going(options.pool))


def _compiled(calls: PartCalls, options: Options) -> PartKernels:
    backward = compile_backward(calls.backward, options)
    return PartKernels(
        compile_forward(calls.advance, options, None), compile_forward(calls.keep, options, None), backward
    )


def _given(call: Call, twin: Call) -> tuple[tuple[bool, bool], ...]:
    """For each output, whether gradients of `_all` and of `_last` come from outside."""
    first = len(twin.output_types) + 1
    there = [bool(name) for name in twin.op.inputs[first:]]
    count = len(call.output_types[:-1])
    there += [False] * (count - len(there))
    return tuple(zip(there[::2], there[1::2], strict=True))
