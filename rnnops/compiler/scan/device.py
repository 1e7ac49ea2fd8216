"""The CPU device: which ops of a net run as compiled scans, and which in the interpreter, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rnnops.compiler.scan.backward import BackwardScan, compile_backward
from rnnops.compiler.scan.compiled_scan import Options
from rnnops.compiler.scan.forward import ForwardScan, compile_forward
from rnnops.compiler.scan.lowered import UnsupportedError
from rnnops.compiler.scan.shrink import past_end_reads
from rnnops.interpreter import Program
from rnnops.schema import Call


@dataclass(frozen=True)
class Compiled:
    """What runs the ops of a plan.

    Args:
        kernels: key of an op -> what runs it in place of its reference.
        interpreted: label of a recurrence that the interpreter runs -> why.
    """

    kernels: Mapping[str, ForwardScan | BackwardScan] = field(default_factory=dict)
    interpreted: Mapping[str, str] = field(default_factory=dict)


def compile_programs(options: Options, forward: Program, backward: Program | None = None) -> Compiled:
    """Compile the recurrences of a plan; a forward pass is compiled only if its backward pass is."""
    kernels: dict[str, ForwardScan | BackwardScan] = {}
    interpreted: dict[str, str] = {}
    gradients = _gradients(backward)
    for call in forward.calls:
        if call.op.type == "RecurrentNetwork":
            twin = gradients.get(call.op.outputs[-1])
            try:
                made: dict[str, ForwardScan | BackwardScan] = {}
                if twin is not None:
                    made[twin.op.key] = compile_backward(twin, options)
                read = past_end_reads(made[twin.op.key].compiled.plan) if twin is not None else None
                kernels.update({call.op.key: compile_forward(call, options, read), **made})
            except UnsupportedError as reason:
                interpreted[call.op.label] = str(reason)
    largest = max((kernel.compiled.block for kernel in kernels.values()), default=0)
    for kernel in kernels.values():
        kernel.compiled.reserve(largest)
    return Compiled(kernels, interpreted)


def _gradients(backward: Program | None) -> dict[str, Call]:
    """RecurrentNetworkGradient calls by the step workspaces that they read."""
    if backward is None:
        return {}
    calls = [call for call in backward.calls if call.op.type == "RecurrentNetworkGradient"]
    return {call.op.inputs[len(call.output_types)]: call for call in calls}
