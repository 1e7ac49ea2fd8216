"""The CPU device: which ops of a net run compiled, and which in the interpreter, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rnnops.compiler.buffers.demand import Demand
from rnnops.compiler.buffers.memory import Pool
from rnnops.compiler.execute.backward import BackwardScan, compile_backward
from rnnops.compiler.execute.compiled_scan import Options
from rnnops.compiler.execute.forward import ForwardScan, compile_forward
from rnnops.compiler.execute.parted_kernels import PartedKernels, parted_kernels
from rnnops.compiler.execute.recycle import Recycled, recycling
from rnnops.compiler.execute.row_pass import RowPass, compile_groups
from rnnops.compiler.execute.stepped_kernels import CompiledStep, Stepped, compile_steps
from rnnops.compiler.ir.lowered import NothingToDoError, UnsupportedError
from rnnops.compiler.schedule.compaction import past_end_reads
from rnnops.interpreter import Program
from rnnops.schema import Call

Kernel = ForwardScan | BackwardScan | RowPass
Steps = Mapping[str, Stepped]


@dataclass(frozen=True)
class Compiled:
    """What runs the ops of a plan.

    Args:
        forward: key of an op of the forward pass -> what runs it in place of its reference.
        backward: likewise; the backward pass may run ops of the forward pass again.
        interpreted: label of an op that the interpreter runs -> why.
        recycled: what shares memory within the forward pass, and within the backward pass.
        pool: where passes borrow that memory.
        parted: what runs recurrences in parts, on either device.
        stepped: what runs recurrences step by step, within the forward pass, and within the backward pass.
    """

    forward: Mapping[str, Kernel] = field(default_factory=dict)
    backward: Mapping[str, Kernel] = field(default_factory=dict)
    interpreted: Mapping[str, str] = field(default_factory=dict)
    recycled: tuple[Recycled, Recycled] = (Recycled(), Recycled())
    pool: Pool = field(default_factory=Pool, compare=False, repr=False)
    parted: PartedKernels = field(default_factory=PartedKernels)
    stepped: tuple[Steps, Steps] = field(default_factory=lambda: ({}, {}))

    @contextmanager
    def running_forward(self) -> Iterator[Mapping[str, Any]]:
        """The kernels of one forward pass, which share memory as long as this is open."""
        with recycling(self.recycled[0], self.forward, self.pool) as kernels:
            yield {**kernels, **self.stepped[0], **self.parted.forward}

    @contextmanager
    def running_backward(self) -> Iterator[Mapping[str, Any]]:
        """Those of one backward pass."""
        with recycling(self.recycled[1], self.backward, self.pool) as kernels:
            yield {**kernels, **self.stepped[1], **self.parted.backward}

    def sharing(self, pool: Pool, forward: Recycled, backward: Recycled | None = None) -> Compiled:
        """With memory shared within both passes; blocks are as large in both, so that they use the same one."""
        recycled = (forward, backward or Recycled())
        kernels = self.kernels
        nbytes = max([one.nbytes for one in recycled] + [kernel.compiled.block for kernel in kernels])
        ahead, behind = (one.at_least(nbytes) for one in recycled)
        for kernel in kernels:
            kernel.compiled.reserve(nbytes)
        return replace(self, recycled=(ahead, behind), pool=pool)

    def with_one_block(self) -> Compiled:
        """With blocks of scratch that are as large for all kernels, so that they use the same one."""
        kernels = self.kernels
        largest = max((kernel.compiled.block for kernel in kernels), default=0)
        for kernel in kernels:
            kernel.compiled.reserve(largest)
        return self

    @property
    def by_layers(self) -> Mapping[str, Any]:
        """What runs ops of a backward pass that is cut into layers, by key."""
        return {**self.backward, **self.stepped[1], **self.parted.backward}

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All that is compiled, of both passes."""
        within = [scan for steps in self.stepped for one in steps.values() for scan in one.scans()]
        return tuple(_with_beside([*self.forward.values(), *self.backward.values(), *within]))


def _with_beside(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Kernels, each with those of the nets that run once beside it."""
    for kernel in kernels:
        yield kernel
        for once in kernel.beside().values():
            yield from _with_beside(once.kernels.values())


@dataclass(frozen=True)
class _Found:
    """What has been compiled so far; of pairs, the first is for the forward pass and the second for the backward pass.

    Args:
        kernels, stepped: by key of an op.
        interpreted: label of an op -> why it is not compiled.
    """

    kernels: tuple[dict[str, Kernel], dict[str, Kernel]] = field(default_factory=lambda: ({}, {}))
    stepped: tuple[dict[str, Stepped], dict[str, Stepped]] = field(default_factory=lambda: ({}, {}))
    interpreted: dict[str, str] = field(default_factory=dict)


def compile_programs(options: Options, forward: Program, backward: Program | None = None) -> Compiled:
    """Compile what a plan can; a forward pass of a recurrence is compiled only if its backward pass is."""
    found = _compile_ops(options, forward, backward)
    parted = PartedKernels() if backward is None else parted_kernels(options, forward, backward, compile_step)
    interpreted = {**found.interpreted, **parted.interpreted}
    return Compiled(*found.kernels, interpreted, parted=parted, stepped=found.stepped)


def demands_of(kernels: Mapping[str, Kernel]) -> dict[str, Demand]:
    """The memory that kernels take, by key."""
    return {key: kernel.demand() for key, kernel in kernels.items()}


def compile_step(options: Options, forward: Program, backward: Program | None) -> CompiledStep:
    """Compile a step of a recurrence, and its backward step."""
    found = _compile_ops(options, forward, backward)
    kernels = [{**found.kernels[number], **found.stepped[number]} for number in (0, 1)]
    return kernels[0], kernels[1], found.interpreted


def _compile_ops(options: Options, forward: Program, backward: Program | None) -> _Found:
    found, gradients = _Found(), _gradients(backward)
    for number, program in enumerate((forward, backward)):
        if program is None:
            continue
        found.kernels[number].update(compile_groups(program, options, found.interpreted))
        for call in program.calls:
            if call.op.type == "RecurrentNetwork" and not call.op.attributes.get("schedule"):
                _compile_recurrence(call, gradients.get(call.op.outputs[-1]), options, found, number)
    return found


def _compile_recurrence(call: Call, twin: Call | None, options: Options, found: _Found, number: int) -> None:
    """Compile a RecurrentNetwork op, and the gradient op that reads what it keeps."""
    try:
        gradient = None if twin is None else compile_backward(twin, options)
        read = None if gradient is None else past_end_reads(gradient.compiled.plan)
        found.kernels[number][call.op.key] = compile_forward(call, options, read)
        if twin is not None and gradient is not None:
            found.kernels[1][twin.op.key] = gradient
    except NothingToDoError as reason:
        found.interpreted[call.op.label] = str(reason)
    except UnsupportedError as reason:
        forward, backward = compile_steps(call, twin, options, compile_step, str(reason))
        found.stepped[number][call.op.key] = forward
        found.interpreted.update(forward.interpreted)
        if twin is not None and backward is not None:
            found.stepped[1][twin.op.key] = backward


def _gradients(backward: Program | None) -> dict[str, Call]:
    """RecurrentNetworkGradient calls by the step workspaces that they read."""
    if backward is None:
        return {}
    calls = [call for call in backward.calls if call.op.type == "RecurrentNetworkGradient"]
    return {call.op.inputs[len(call.output_types)]: call for call in calls}
