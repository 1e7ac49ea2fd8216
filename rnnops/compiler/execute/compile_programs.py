"""Devices: which ops of a net run compiled, and which in the interpreter, and why."""

from __future__ import annotations

from rnnops.compiler.execute.backward import compile_backward
from rnnops.compiler.execute.compiled import Compiled, Runner
from rnnops.compiler.execute.compiled_scan import Options
from rnnops.compiler.execute.forward import compile_forward
from rnnops.compiler.execute.parted_kernels import compile_parts
from rnnops.compiler.execute.row_pass import compile_groups
from rnnops.compiler.execute.segments import SegmentPlans, compile_in_segments
from rnnops.compiler.execute.stepped_kernels import compile_steps
from rnnops.compiler.ir.lowered import NothingToDoError, UnsupportedError
from rnnops.compiler.schedule.compaction import past_end_reads
from rnnops.interpreter import Program
from rnnops.recurrent.recurrence import runs_in_parts
from rnnops.schema import Call


def compile_programs(
    options: Options, forward: Program, backward: Program | None = None, segments: SegmentPlans | None = None
) -> Compiled:
    """Compile what a plan can; a forward pass of a recurrence is compiled only if its backward pass is.

    Args:
        segments: plans of recurrences that go in segments.
    """
    found, segments = Compiled(), segments or SegmentPlans(options)
    passes = [(forward, found.forward), *([(backward, found.backward)] if backward else [])]
    gradients = {
        call.op.inputs[len(call.output_types)]: call
        for call in (backward.calls if backward else ())
        if call.op.type == "RecurrentNetworkGradient"
    }
    for program, runners in passes:
        runners.update(compile_groups(program, options, found.interpreted))
        for call in program.calls:
            if call.op.type == "RecurrentNetwork" and not (options.interpreted or runs_in_parts(call.op)):
                backward_call = gradients.get(call.op.outputs[-1])
                _compile_recurrence(call, backward_call, options, found, runners, segments)
    for call in forward.calls:
        backward_call = gradients.get(call.op.outputs[-1])
        if backward_call is not None and runs_in_parts(call.op):
            compile_parts(call, backward_call, options, compile_programs, found)
    return found


def _compile_recurrence(
    call: Call,
    backward_call: Call | None,
    options: Options,
    found: Compiled,
    runners: dict[str, Runner],
    segments: SegmentPlans,
) -> None:
    """Compile a RecurrentNetwork op, and the gradient op that reads what it keeps."""
    if backward_call is not None and call.op.attributes.get("segments"):
        plan = segments.of(call, backward_call)
        assert plan is not None, "what goes in segments was asked for its plan"
        plan = plan.of(call.op.attributes["segments"])
        ahead, behind = compile_in_segments(call, backward_call, options, plan)
        runners[call.op.key], found.backward[backward_call.op.key] = ahead, behind
        return
    try:
        gradient = None if backward_call is None else compile_backward(backward_call, options)
        read = None if gradient is None else past_end_reads(gradient.compiled.plan)
        runners[call.op.key] = compile_forward(call, options, read)
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
