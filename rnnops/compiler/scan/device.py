"""The CPU device: which ops of a net run compiled, and which in the interpreter, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rnnops.compiler.fuse_ops import body_program
from rnnops.compiler.parted_kernels import PartedKernels, parted_kernels
from rnnops.compiler.recycle import Recycled, recycling
from rnnops.compiler.row_groups import group_of
from rnnops.compiler.scan.backward import BackwardScan, compile_backward
from rnnops.compiler.scan.compiled_scan import Options
from rnnops.compiler.scan.forward import ForwardScan, compile_forward
from rnnops.compiler.scan.lowered import UnsupportedError
from rnnops.compiler.scan.memory import Pool
from rnnops.compiler.scan.row_pass import RowPass, compile_fused
from rnnops.compiler.scan.shrink import past_end_reads
from rnnops.interpreter import Program
from rnnops.schema import Call

Kernel = ForwardScan | BackwardScan | RowPass


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
    """

    forward: Mapping[str, Kernel] = field(default_factory=dict)
    backward: Mapping[str, Kernel] = field(default_factory=dict)
    interpreted: Mapping[str, str] = field(default_factory=dict)
    recycled: tuple[Recycled, Recycled] = (Recycled(), Recycled())
    pool: Pool = field(default_factory=Pool, compare=False, repr=False)
    parted: PartedKernels = field(default_factory=PartedKernels)

    @contextmanager
    def running_forward(self) -> Iterator[Mapping[str, Any]]:
        """The kernels of one forward pass, which share memory as long as this is open."""
        with recycling(self.recycled[0], self.forward, self.pool) as kernels:
            yield {**kernels, **self.parted.forward}

    @contextmanager
    def running_backward(self) -> Iterator[Mapping[str, Any]]:
        """Those of one backward pass."""
        with recycling(self.recycled[1], self.backward, self.pool) as kernels:
            yield {**kernels, **self.parted.backward}

    def sharing(self, pool: Pool, forward: Recycled, backward: Recycled | None = None) -> Compiled:
        """With memory shared within both passes; blocks are as large in both, so that they use the same one."""
        recycled = (forward, backward or Recycled())
        nbytes = max([one.nbytes for one in recycled] + [kernel.compiled.block for kernel in self.kernels])
        ahead, behind = (one.at_least(nbytes) for one in recycled)
        for kernel in self.kernels:
            kernel.compiled.reserve(nbytes)
        return replace(self, recycled=(ahead, behind), pool=pool)

    @property
    def by_layers(self) -> Mapping[str, Any]:
        """What runs ops of a backward pass that is cut into layers, by key."""
        return {**self.backward, **self.parted.backward}

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All that is compiled, of both passes."""
        return (*self.forward.values(), *self.backward.values())


def compile_programs(options: Options, forward: Program, backward: Program | None = None) -> Compiled:
    """Compile what a plan can; a forward pass of a recurrence is compiled only if its backward pass is."""
    interpreted: dict[str, str] = {}
    ahead = compile_groups(forward, options, interpreted)
    behind = {} if backward is None else compile_groups(backward, options, interpreted)
    gradients = _gradients(backward)
    for program, kernels in ((forward, ahead), *([] if backward is None else [(backward, behind)])):
        for call in program.calls:
            if call.op.type == "RecurrentNetwork" and not call.op.attributes.get("schedule"):
                twin = gradients.get(call.op.outputs[-1])
                try:
                    gradient = None if twin is None else compile_backward(twin, options)
                    read = None if gradient is None else past_end_reads(gradient.compiled.plan)
                    kernels[call.op.key] = compile_forward(call, options, read)
                    if twin is not None and gradient is not None:
                        behind[twin.op.key] = gradient
                except UnsupportedError as reason:
                    interpreted[call.op.label] = str(reason)
    parted = PartedKernels() if backward is None else parted_kernels(options, forward, backward)
    compiled = Compiled(ahead, behind, {**interpreted, **parted.interpreted}, parted=parted)
    largest = max((kernel.compiled.block for kernel in compiled.kernels), default=0)
    for kernel in compiled.kernels:
        kernel.compiled.reserve(largest)
    return compiled


def compile_groups(program: Program, options: Options, interpreted: dict[str, str]) -> dict[str, Kernel]:
    """What runs the FusedOps of a net; the reason goes into `interpreted` where the interpreter has to."""
    kernels: dict[str, Kernel] = {}
    for call in program.calls:
        if call.op.type == "FusedOps":
            body = body_program(call)
            try:
                kernels[call.op.key] = compile_fused(call, body, group_of(body), options)
            except UnsupportedError as reason:
                interpreted[call.op.label] = str(reason)
    return kernels


def _gradients(backward: Program | None) -> dict[str, Call]:
    """RecurrentNetworkGradient calls by the step workspaces that they read."""
    if backward is None:
        return {}
    calls = [call for call in backward.calls if call.op.type == "RecurrentNetworkGradient"]
    return {call.op.inputs[len(call.output_types)]: call for call in calls}
