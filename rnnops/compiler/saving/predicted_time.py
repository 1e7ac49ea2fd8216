"""Predicted time of a training step, before any data exists.

The unit is a step that does nothing twice, taken for three forward passes: one forward, and two for the two products
that the gradient of each product needs. What is done again adds its share of the multiply-adds of products. Steps
without products, whose states may be large, count by elementwise results and by the bytes kept of them past the cache.
"""

from __future__ import annotations

from rnnops.autodiff import GradientNet
from rnnops.checkpoints.residuals import Residuals
from rnnops.compiler.buffers.workspace_bytes import workspace_bytes
from rnnops.compiler.saving.choose_segments import BANDWIDTH, CACHE, HEAVY, SPEED, elementwise_results
from rnnops.interpreter import Program
from rnnops.loops import PRODUCTS
from rnnops.recurrent.op import backward_program, cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence, is_training_form, runs_in_parts
from rnnops.schema import Call

MULTIPLY_ADDS = 8e10  # a second


def predicted_time(saved: tuple[Program, GradientNet, Residuals], forward_steps: float = 1.0) -> float:
    """The time of what a policy saves.

    Args:
        forward_steps: how often each timestep of recurrences in parts runs forward.
    """
    program, _, residuals = saved
    forward = sum(_work(call) for call in program.calls)
    rerun = {op.key for op in residuals.rerun}
    again = sum(_work(call) for call in program.calls if call.op.key in rerun)
    again += sum(_again(call) + _moved(call) for call in program.calls if is_training_form(call.op))
    again += (forward_steps - 1) * sum(_work(call) for call in program.calls if runs_in_parts(call.op))
    return 1 + again / max(3 * forward, 1)


def _work(call: Call) -> float:
    """What takes time of an op, in multiply-adds of products."""
    if call.op.type == "RecurrentNetwork":
        recurrence = Recurrence(call.op, call.net)
        inner = cell_program(recurrence, call).calls
        return _steps(recurrence, call) * sum(map(_work if _has_products(call) else _elementwise, inner))
    if call.op.type in PRODUCTS:
        return float(call.output_types[0].size * call.shape(0)[-1])
    return 0.0


def _elementwise(call: Call) -> float:
    return elementwise_results(call) * MULTIPLY_ADDS / SPEED


def _has_products(call: Call) -> bool:
    """Whether a step of a recurrence has any."""
    return any(inner.op.type in HEAVY for inner in cell_program(Recurrence(call.op, call.net), call).calls)


def _again(call: Call) -> float:
    """What the backward pass of a recurrence does a second time."""
    if call.op.attributes.get("segments"):
        return _work(call)
    recurrence = Recurrence(call.op, call.net)
    made = {name for op in recurrence.cell.ops for name in op.outputs if name}
    calls = [inner for inner in backward_program(call).calls if set(inner.op.outputs) & made]
    return _steps(recurrence, call) * sum(map(_work if _has_products(call) else _elementwise, calls))


def _moved(call: Call) -> float:
    """What it takes to write and read what is kept of steps without products, nothing where that stays in the cache.

    Of states at borders of segments there are few.
    """
    nbytes = workspace_bytes(call)
    is_little = nbytes <= CACHE or _has_products(call) or call.op.attributes.get("segments")
    return 0.0 if is_little else 2 * nbytes / BANDWIDTH * MULTIPLY_ADDS


def _steps(recurrence: Recurrence, call: Call) -> int:
    return recurrence.steps_and_batch(input_types(recurrence, call))[0]
