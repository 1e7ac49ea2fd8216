"""Recurrences that are stepped from Python, their steps compiled: those whose cells hold recurrences.

A step is planned as an outer net is: its recurrences are scans, what is around them is fused, and little is left to the
interpreter. On the reference device the same runs without kernels. Limits: products run step by step, as the cell wrote
them, and each kernel of a step costs some tens of microseconds, so that a step should be worth more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rnnops.compiler.execute.compiled import Compiled, Runners
from rnnops.compiler.execute.compiled_scan import Options
from rnnops.compiler.execute.once import Once
from rnnops.compiler.rewrite.fuse_ops import fuse_ops
from rnnops.compiler.targets.target import Target
from rnnops.interpreter import Program
from rnnops.recurrent.backward import run_backward
from rnnops.recurrent.op import backward_program, cell_program
from rnnops.recurrent.place import HOST
from rnnops.recurrent.recurrence import Recurrence
from rnnops.recurrent.stepping import run_forward
from rnnops.schema import Call, RunContext
from rnnops.types import Array

CompileStep = Callable[[Options, Program, Program | None], Compiled]


@dataclass(frozen=True)
class Stepped:
    """Runs a RecurrentNetwork op, or a RecurrentNetworkGradient op, step by step.

    Args:
        program: one step.
        kernels: what runs ops of the step, by key; the interpreter runs the others.
        interpreted: label of an op of the step that could not be compiled -> why.
        reason: why the recurrence is no scan; empty on the reference device.
        target: where arrays lie, and what runs ops of the step that have no kernel; the interpreter if left out.
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
            start: for a gradient, sums over steps that go on from here.
        """
        recurrence, kernels, place = Recurrence(self.call.op, self.call.net), self.kernels, HOST
        if self.target is not None:
            kernels, place = {**self.target.references(self.program), **kernels}, self.target.memory
        if self.call.op.type == "RecurrentNetwork":
            return run_forward(recurrence, self.program, arrays, context, kernels, place)
        types = self.call.output_types
        return run_backward(recurrence, self.program, types, arrays, context, start, kernels, place)

    def demand(self) -> None:
        """None: its results are the interpreter's."""

    def beside(self) -> dict[str, Once]:
        """Nets that run within it, by when."""
        return {"in each step": Once(self.program, self.kernels)}


def interpreted_steps(call: Call) -> Stepped:
    """What runs a recurrence, or the gradient of one, in the interpreter."""
    if call.op.type == "RecurrentNetwork":
        return Stepped(call, cell_program(Recurrence(call.op, call.net), call))
    return Stepped(call, backward_program(call))


def compile_steps(
    call: Call, backward_call: Call | None, options: Options, compile_step: CompileStep, reason: str
) -> tuple[Stepped, Stepped | None]:
    """What runs a recurrence, and its gradient, step by step, with all that can be compiled of a step.

    Args:
        backward_call: the gradient op that reads what the forward pass keeps.
        compile_step: compiles the program of a step, and that of a backward step.
    """
    options = replace(options, fixed=frozenset(), least_work=0)  # all of a step, however little work it is
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
