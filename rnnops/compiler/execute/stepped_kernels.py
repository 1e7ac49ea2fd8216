"""Recurrences that are stepped from Python, their steps compiled: those whose cells hold recurrences.

A step is planned as an outer net is: its recurrences are scans, what is around them is fused, and little is left to the
interpreter. On the reference device the same runs without kernels. Limits: products run step by step, as the cell wrote
them, and each kernel of a step costs some tens of microseconds, so that a step should be worth more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rnnops.compiler.execute.compiled_scan import Options
from rnnops.compiler.rewrite.fuse_ops import fuse_ops
from rnnops.interpreter import Program
from rnnops.recurrent.backward import run_backward
from rnnops.recurrent.op import backward_program, cell_program
from rnnops.recurrent.recurrence import Recurrence
from rnnops.recurrent.stepping import run_forward
from rnnops.schema import Call, RunContext
from rnnops.types import Array

Kernels = Mapping[str, Any]
CompiledStep = tuple[Kernels, Kernels, Mapping[str, str]]
CompileStep = Callable[[Options, Program, Program | None], CompiledStep]


@dataclass(frozen=True)
class Stepped:
    """Runs a RecurrentNetwork op, or a RecurrentNetworkGradient op, step by step.

    Args:
        program: one step.
        kernels: what runs ops of the step, by key; the interpreter runs the others.
        interpreted: label of an op of the step that could not be compiled -> why.
        reason: why the recurrence is no scan; empty on the reference device.
    """

    call: Call
    program: Program
    kernels: Kernels = field(default_factory=dict)
    interpreted: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    def __call__(
        self, arrays: Sequence[Any], context: RunContext, start: Mapping[str, Array] | None = None
    ) -> tuple[Any, ...]:
        """All results of the op.

        Args:
            start: for a gradient, sums over steps that go on from here.
        """
        recurrence = Recurrence(self.call.op, self.call.net)
        if self.call.op.type == "RecurrentNetwork":
            return run_forward(recurrence, self.program, arrays, context, self.kernels)
        types = self.call.output_types
        return run_backward(recurrence, self.program, types, arrays, context, start, self.kernels)

    def scans(self) -> Iterator[Any]:
        """All kernels inside that are scans, however deep."""
        for kernel in self.kernels.values():
            if isinstance(kernel, Stepped):
                yield from kernel.scans()
            else:
                yield kernel


def interpreted_steps(call: Call) -> Stepped:
    """What runs a recurrence, or the gradient of one, in the interpreter."""
    if call.op.type == "RecurrentNetwork":
        return Stepped(call, cell_program(Recurrence(call.op, call.net), call))
    return Stepped(call, backward_program(call))


def compile_steps(
    call: Call, twin: Call | None, options: Options, compile_step: CompileStep, reason: str
) -> tuple[Stepped, Stepped | None]:
    """What runs a recurrence, and its gradient, step by step, with all that can be compiled of a step.

    Args:
        twin: the gradient op that reads what the forward pass keeps.
        compile_step: compiles the program of a step, and that of a backward step: kernels of both by key, and the
            ops for which there is none, with the reason.
    """
    options = replace(options, fixed=frozenset(), least_work=0)  # all of a step, however little work it is
    forward = interpreted_steps(call)
    ahead, behind = fuse_ops(forward.program, call.op.attributes.get("keep", ()), 0, all_ops=True), None
    if twin is not None:
        behind = fuse_ops(interpreted_steps(twin).program, (), 0, all_ops=True)
    forward_kernels, backward_kernels, interpreted = compile_step(options, ahead, behind)
    within = {f"{call.op.label}: {label}": why for label, why in interpreted.items()}
    forward = Stepped(call, ahead, forward_kernels, within, reason)
    if twin is None or behind is None:
        return forward, None
    return forward, Stepped(twin, behind, backward_kernels, reason=reason)
