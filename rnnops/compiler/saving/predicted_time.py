"""Predicted time of a training step, before any data exists.

The unit is a step that does nothing twice, taken for three forward passes: one forward, and two for the two products
that the gradient of each product needs. What is done again adds its share of the multiply-adds of products.
"""

from __future__ import annotations

from rnnops.autodiff import GradientNet
from rnnops.checkpoints.residuals import Residuals
from rnnops.interpreter import Program
from rnnops.loops import PRODUCTS
from rnnops.recurrent.op import backward_program, cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence, is_training_form, runs_in_parts
from rnnops.schema import Call


def predicted_time(saved: tuple[Program, GradientNet, Residuals], forward_steps: float = 1.0) -> float:
    """The time of what a policy saves.

    Args:
        forward_steps: how often each timestep of recurrences in parts runs forward.
    """
    program, _, residuals = saved
    forward = sum(_products(call) for call in program.calls)
    rerun = {op.key for op in residuals.rerun}
    again = sum(_products(call) for call in program.calls if call.op.key in rerun)
    again += sum(_again(call) for call in program.calls if is_training_form(call.op))
    again += (forward_steps - 1) * sum(_products(call) for call in program.calls if runs_in_parts(call.op))
    return 1 + again / max(3 * forward, 1)


def _products(call: Call) -> float:
    """Multiply-adds of the products of an op, in all steps of a recurrence."""
    if call.op.type == "RecurrentNetwork":
        recurrence = Recurrence(call.op, call.net)
        return _steps(recurrence, call) * sum(_products(inner) for inner in cell_program(recurrence, call).calls)
    if call.op.type in PRODUCTS:
        return float(call.output_types[0].size * call.shape(0)[-1])
    return 0.0


def _again(call: Call) -> float:
    """Multiply-adds of a recurrence that its backward pass does a second time."""
    recurrence = Recurrence(call.op, call.net)
    made = {name for op in recurrence.cell.ops for name in op.outputs if name}
    calls = backward_program(call).calls
    return _steps(recurrence, call) * sum(_products(inner) for inner in calls if set(inner.op.outputs) & made)


def _steps(recurrence: Recurrence, call: Call) -> int:
    return recurrence.steps_and_batch(input_types(recurrence, call))[0]
