"""Which recurrences compute the steps of a segment again instead of keeping their states, as that moves fewer bytes.

Keeping takes a write and a read of all states of all steps, past the cache; computing again takes one more forward pass
over what lies in it. Products are not computed again: only cells without any come into question.

How many steps a segment has, or that a recurrence cannot run in any, says its plan (`execute/segments.py`).

Limits: the two speeds are those of one kind of server; on others the choice may be off by some, results never are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rnnops.autodiff import GradientNet
from rnnops.checkpoints.residuals import Residuals, backward_net
from rnnops.compiler.buffers.workspace_bytes import state_types
from rnnops.interpreter import Program, prepare
from rnnops.loops import PRODUCTS
from rnnops.merge_equal_ops import merged_within
from rnnops.op import Op
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call
from rnnops.types import OPAQUE, Type

Saved = tuple[Program, GradientNet, Residuals]
StepsOf = Callable[[Call, Call], int]  # a recurrence, its gradient -> steps of a segment, 0 where there can be none
CACHE = 4 * 1024 * 1024  # bytes that stay at hand from one pass to the other
BANDWIDTH, SPEED = 2e10, 4e10  # bytes of memory and elementwise results a second
FUNCTIONS = ("Exp", "Log", "Sigmoid", "Tanh", "Softplus", "Erf", "Gelu", "Sin", "Cos", "Tan", "Pow", "Softmax")
FUNCTION = 8  # sums and products take the time of a scalar function
HEAVY = (*PRODUCTS, "RecurrentNetwork")


def goes_in_segments(call: Call) -> bool:
    """Whether computing the steps of a recurrence again is predicted to take less time than keeping its states."""
    kept, again = seconds(call)
    return again < kept


def seconds(call: Call) -> tuple[float, float]:
    """What keeping all states of a recurrence takes, nothing where they stay in the cache, and computing them again."""
    recurrence = Recurrence(call.op, call.net)
    steps, _ = recurrence.steps_and_batch(input_types(recurrence, call))
    program = cell_program(recurrence, call)
    wanted = call.op.outputs[: 2 * len(recurrence.states) : 2]
    nbytes = steps * sum(kind.nbytes for kind in state_types(recurrence, call))
    if any(wanted) or nbytes <= CACHE or any(inner.op.type in HEAVY for inner in program.calls):
        return 0.0, 1.0
    return 2 * nbytes / BANDWIDTH, steps * sum(map(elementwise_results, program.calls)) / SPEED


def elementwise_results(call: Call) -> float:
    """Elementwise results of an op, each of a scalar function as many as take its time."""
    results = sum(kind.size for kind in call.output_types if kind.dtype != OPAQUE)
    return results * (FUNCTION if call.op.type in FUNCTIONS else 1)


def with_segments(saved: Saved, steps: StepsOf, longer: int = 1) -> tuple[Saved, frozenset[str]]:
    """What is saved, with the steps of a segment in ops that are to go in segments, and the keys of those that cannot.

    Args:
        saved: with recurrences that are marked by segments of one step.
        longer: how many times as long segments are.
    """
    program, gradient, residuals = saved
    marked = {call.op.outputs[-1]: call for call in program.calls if call.op.attributes.get("segments")}
    if not marked:
        return saved, frozenset()
    ops = [merged_within(op) if _workspace(op) in marked else op for op in gradient.net.ops]
    gradient = replace(gradient, net=gradient.net.with_ops(ops).snapshot())
    net, found = backward_net(program, gradient, residuals), dict.fromkeys(marked, 0)
    types = {spec.name: Type(spec.dtype, spec.shape or ()) for spec in net.input_specs}
    for call in prepare(net, types, program.float_dtype).calls:
        if _workspace(call.op) in marked:
            found[_workspace(call.op)] = longer * steps(marked[_workspace(call.op)], call)
    ahead = program.net.with_ops([_in_segments(op, found.get(op.outputs[-1], 0)) for op in program.net.ops])
    behind = gradient.net.with_ops([_in_segments(op, found.get(_workspace(op), 0)) for op in ops])
    types = {name: program.types[name] for name in program.net.input_names}
    chosen = prepare(ahead.snapshot(), types, program.float_dtype), replace(gradient, net=behind.snapshot()), residuals
    return chosen, frozenset(call.op.key for name, call in marked.items() if not found[name])


def _in_segments(op: Op, steps: int) -> Op:
    return replace(op, attributes={**op.attributes, "segments": steps}) if steps else op


def _workspace(op: Op) -> str:
    """What the gradient of a recurrence reads of its steps, `""` for other ops."""
    return op.inputs[len(op.outputs)] if op.type == "RecurrentNetworkGradient" else ""
