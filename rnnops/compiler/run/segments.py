"""Recurrences that keep their states only at borders of segments, and run each segment again on the backward pass.

If a state is a matrix, to keep all steps takes longer than to compute them again, because memory beyond the cache is
written and read. The backward pass goes row by row, and segment by segment within a row. It runs the steps of a segment
forward, then backward; all their values stay in the cache (`scan_module.py`). Gradients have the same bits as if all
steps were kept.

Limits: steps must be elementwise, rows independent, and a state must be read only at the next step. All other
recurrences keep all steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from rnnops.compiler.lower.lower_ops import Hoisted
from rnnops.compiler.lower.scan import Role, Scan, StepPlan, Tensor, TensorName, UnsupportedError
from rnnops.compiler.memory.choose_saved import StepsOf
from rnnops.compiler.memory.memory import state_tensors
from rnnops.compiler.run.backward import BackwardScan, GradientSteps, backward_scan, scan_of_gradients
from rnnops.compiler.run.compiled_scan import Options, written_scan
from rnnops.compiler.run.forward import ForwardScan, compile_once, fixed_references, scan_of_steps, totals_of
from rnnops.compiler.schedule.batch_axis import is_row_loop
from rnnops.compiler.schedule.plan_step import RingError, plan_step
from rnnops.compiler.schedule.rows import past_end_reads
from rnnops.net.op import Op
from rnnops.net.schema import Call
from rnnops.recurrent.recurrence import Recurrence, input_types
from rnnops.types import Array

CACHE = 512 * 1024  # bytes that a segment of a row may take: half of a small second-level cache
LEAST_STEPS = 8  # the least number of steps of a segment
WHY = "to write and read all of them takes longer than to compute them again"
STORED = (Role.STATE, Role.OUTPUT, Role.KEPT)  # roles of the values of forward steps that backward reads


@dataclass(frozen=True)
class Steps:
    """The steps of one pass, and their plan.

    Args:
        hoisted: the step without the ops that run once, and these ops.
    """

    hoisted: Hoisted
    scan: Scan
    plan: StepPlan


@dataclass(frozen=True)
class SegmentPlan:
    """The three passes of a recurrence that runs in segments.

    Args:
        segment: steps of a segment.
        forward: the forward pass, which keeps states only at borders.
        again: the forward steps as the backward pass runs them again; they store the values of one segment.
        down: the backward steps.
        gradients: the backward steps as they are without segments.
    """

    segment: int
    forward: Steps
    again: Steps
    down: Steps
    gradients: GradientSteps

    def of(self, segment: int) -> SegmentPlan:
        """The plan with segments of `segment` steps."""
        forward, again, down = (_with_segment(one, segment) for one in (self.forward, self.again, self.down))
        return SegmentPlan(segment, forward, again, down, self.gradients)


def _with_segment(steps: Steps, segment: int) -> Steps:
    count = -(-steps.scan.steps // segment)
    tensors = {
        name: replace(tensor, length=count) if name.role is Role.BORDER else tensor
        for name, tensor in steps.scan.tensors.items()
    }
    return replace(steps, scan=replace(steps.scan, tensors=tensors))


@dataclass
class SegmentPlans:
    """The plans of recurrences in segments. Each is made when residuals are chosen, and is compiled later."""

    options: Options
    known: dict[str, tuple[tuple[object, ...], SegmentPlan | None]] = field(default_factory=dict)

    @property
    def steps(self) -> StepsOf | None:
        """A function that returns the segment length (0: not possible). None if the device has no segments."""
        return self._steps if self.options.target.compacts and not self.options.interpreted else None

    def of(self, call: Call, backward_call: Call) -> SegmentPlan | None:
        """The plan of a RecurrentNetwork op and its gradient; None if they cannot run in segments."""
        what = _decides(call.op, backward_call.op)
        known, plan = self.known.get(call.op.key, (None, None))
        if known is None or not _same(known, what):
            plan = self._planned(call, backward_call)
            self.known[call.op.key] = what, plan
        return plan

    def _steps(self, call: Call, backward_call: Call) -> int:
        plan = self.of(call, backward_call)
        return plan.segment if plan else 0

    def _planned(self, call: Call, backward_call: Call) -> SegmentPlan | None:
        try:
            return plan_segments(call, backward_call, self.options)
        except UnsupportedError:
            return None


def _decides(*ops: Op) -> tuple[object, ...]:
    """The key of a plan: the nets of the ops, and which inputs and outputs they have."""
    nets = (op.attributes[name] for op in ops for name in ("cell", "backward"))
    return (*nets, *(tuple(map(bool, names)) for op in ops for names in (op.inputs, op.outputs)))


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return all(a is b or (isinstance(a, tuple) and a == b) for a, b in zip(one, other, strict=True))


def compile_in_segments(
    call: Call, backward_call: Call, options: Options, plan: SegmentPlan
) -> tuple[ForwardScan, BackwardScan]:
    """Compile a RecurrentNetwork op and its gradient by their plan."""
    forward = _forward(call, options, plan)
    again, down = plan.again, plan.down
    notes = (f"segments of {plan.segment} steps run again from their borders, within the cache: {WHY}",)
    compiled = written_scan(
        down.scan, down.plan, call.float_dtype, options, plan.segment, again=(again.scan, again.plan), notes=notes
    )
    parts = replace(plan.gradients, scan=down.scan)
    return forward, backward_scan(backward_call, options, parts, compiled, again.hoisted)


def plan_segments(call: Call, backward_call: Call, options: Options) -> SegmentPlan:
    """Plan a RecurrentNetwork op and its gradient in segments. Raises UnsupportedError if this is not possible."""
    if call.op.attributes.get("sums"):
        raise UnsupportedError("sums over steps")
    parts = scan_of_gradients(backward_call, frozenset())
    read = [name for name in parts.scan.tensors if name.role in STORED]
    hoisted, ahead = _steps_again(call, read)
    plan = _in_row_loop(_with_segments(parts.scan, ahead), options)
    kept = {name for name in read if name.role is Role.KEPT}
    ahead = replace(ahead, unseen=frozenset(kept - past_end_reads(plan)))
    again = _in_row_loop(ahead, options)
    segment = segment_steps(ahead, again)
    forward = _steps_forward(call, options, again, segment)
    ahead = _with_borders(ahead, forward.scan, parts.scan)
    down, plan = _with_segments(parts.scan, ahead), _with_givens(plan, again)
    return SegmentPlan(segment, forward, Steps(hoisted, ahead, again), Steps(parts.hoisted, down, plan), parts)


def segment_steps(scan: Scan, plan: StepPlan) -> int:
    """Steps of a segment: the largest power of two such that one row's values for backward fit into `CACHE`."""
    rows = scan.batch * plan.heads
    tensors = [tensor for tensor in scan.tensors.values() if tensor.segment]
    row = sum(prod(tensor.shape) * np.dtype(tensor.dtype).itemsize for tensor in tensors) // rows
    steps = LEAST_STEPS
    while 2 * steps <= scan.steps and (2 * steps + 1) * row <= CACHE:
        steps *= 2
    return steps


def _steps_again(call: Call, read: list[TensorName]) -> tuple[Hoisted, Scan]:
    """The forward steps that run again: they begin with the states at a border, and store values of one segment."""
    _check_states(call)
    stored = {name: name.blob for name in read if name.role is not Role.STATE}
    hoisted, scan = scan_of_steps(call, stored, frozenset())
    tensors = {
        name: replace(tensor, segment=True) if name.role in STORED else tensor for name, tensor in scan.tensors.items()
    }
    return hoisted, replace(scan, tensors=tensors)


def _with_borders(ahead: Scan, forward: Scan, back: Scan) -> Scan:
    """The steps that run again, with the borders of the forward pass. Raises UnsupportedError if one is missing."""
    borders = {name: tensor for name, tensor in forward.tensors.items() if name.role is Role.BORDER}
    if any(blob in back.reads and Role.BORDER.of(blob) not in borders for blob in _state_inputs(back)):
        raise UnsupportedError("backward reads a state that no forward step reads")
    return replace(ahead, tensors={**ahead.tensors, **borders})


def _state_inputs(scan: Scan) -> list[str]:
    return [name.blob for name in scan.tensors if name.role is Role.STATE]


def _borders(scan: Scan, segment: int) -> dict[TensorName, Tensor]:
    """For each state that steps read, a tensor for its values before each segment."""
    read = {slot.tensor for slot in scan.reads.values() if slot.tensor.role is Role.STATE}
    count = -(-scan.steps // segment)
    return {
        Role.BORDER.of(name.blob): replace(tensor, length=count, ring=False, segment=False)
        for name, tensor in scan.tensors.items()
        if name in read
    }


def _check_states(call: Call) -> None:
    """Raise UnsupportedError if a state is read other than at the next step, or all its steps are a result."""
    recurrence = Recurrence(call.op, call.net)
    states = state_tensors(recurrence, input_types(recurrence, call))
    every = call.op.outputs[: 2 * len(states) : 2]
    if not states or any(every) or not all(state.is_plain() for state in states):
        raise UnsupportedError("all steps of a state are a result, or a step reads more than the state before it")


def _in_row_loop(scan: Scan, options: Options) -> StepPlan:
    """The plan of a scan as a loop over rows around a loop over steps. Raises UnsupportedError if it needs more."""
    target = options.target
    try:
        plan = plan_step(scan, target.compacts, target.in_place, target.calls)
    except RingError as error:
        raise UnsupportedError("a step sees more than the one before") from error
    if not plan.rows_outside or len(plan.stages) != 1 or not is_row_loop(plan.stages[0]):
        raise UnsupportedError("more than elementwise work over large states")
    return plan


def _with_segments(scan: Scan, ahead: Scan) -> Scan:
    """The backward steps, which read the values of forward steps from segments."""
    tensors = {
        name: replace(tensor, segment=True) if name.role in STORED else tensor for name, tensor in scan.tensors.items()
    }
    given = {name: tensor for name, tensor in ahead.tensors.items() if not tensor.segment}
    return replace(scan, tensors={**given, **tensors})


def _with_givens(plan: StepPlan, again: StepPlan) -> StepPlan:
    """The backward plan, with the constants and references of forward steps added. Raises UnsupportedError if rows or
    heads of both passes differ."""
    if plan.heads != again.heads:
        raise UnsupportedError("heads that are independent only in one direction")
    if again.lengths not in ("", plan.lengths):
        raise UnsupportedError("rows that end only in one direction")
    both = plan.constants.keys() & again.constants.keys()
    if any(not np.array_equal(plan.constants[name], again.constants[name]) for name in both):
        raise UnsupportedError("different constants with one name")
    constants: dict[str, Array] = {**again.constants, **plan.constants}
    types = {**{name: again.types[name] for name in again.invariant if name in again.types}, **plan.types}
    invariant = frozenset({*plan.invariant, *again.invariant})
    return replace(plan, constants=constants, types=types, invariant=invariant)


def _steps_forward(call: Call, options: Options, again: StepPlan, segment: int) -> Steps:
    """The steps of the forward pass, which keep states only at borders."""
    recurrence = Recurrence(call.op, call.net)
    states = state_tensors(recurrence, input_types(recurrence, call))
    blobs, wanted = recurrence.cell.output_blobs, enumerate(recurrence.step_outputs, len(states))
    stored = {Role.OUTPUT.of(n): blobs[n] for i, n in wanted if any(call.op.outputs[2 * i : 2 * i + 2])}
    hoisted, scan = scan_of_steps(call, stored, frozenset(state.name for state in states))
    scan = replace(scan, tensors={**scan.tensors, **_borders(scan, segment)})
    plan = _in_row_loop(scan, options)
    if plan.heads != again.heads:
        raise UnsupportedError("heads that are independent only in one direction")
    return Steps(hoisted, scan, plan)


def _forward(call: Call, options: Options, planned: SegmentPlan) -> ForwardScan:
    """The runner of the forward pass."""
    recurrence, steps, segment = Recurrence(call.op, call.net), planned.forward, planned.segment
    states, fixed = state_tensors(recurrence, input_types(recurrence, call)), fixed_references(recurrence, options)
    notes = (f"states are kept at borders of segments of {segment} steps alone: {WHY}",)
    compiled = written_scan(steps.scan, steps.plan, call.float_dtype, options, segment, fixed, notes=notes)
    prologue = compile_once(steps.hoisted.prologue, options) if steps.hoisted.prologue else None
    totals = totals_of(compiled, lambda epilogue: compile_once(epilogue, options))
    return ForwardScan(call, recurrence, states, steps.hoisted, prologue, compiled, totals)
