"""Transposed gradients: products over tiles whose transposes alone are wanted are written the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rnnops.compiler.ir.nodes import Contraction, Node
from rnnops.compiler.schedule.step_plan import Step
from rnnops.schema import Call


def turn_contractions(step: Step) -> Step:
    """Write products over tiles the other way round where only their transposes are wanted.

    rewrite: `a += x^T @ y`, then once `b = Transpose(a)`  -->  `b += y^T @ x`
    """
    lowered, epilogue, accumulators = step.lowered.copy(), list(step.epilogue), dict(step.accumulators)
    nodes: list[Node] = []
    for node in step.nodes:
        call = _only_transpose(epilogue, node.target) if isinstance(node, Contraction) else None
        if call is None or not isinstance(node, Contraction) or node.target in step.sums.values():
            nodes.append(node)
        else:
            blob = call.op.outputs[0]
            epilogue.remove(call)
            lowered.types[blob] = call.output_types[0]
            accumulators[blob] = accumulators.pop(node.target)
            nodes.append(node.turned(blob))
    return replace(step, lowered=lowered, nodes=tuple(nodes), accumulators=accumulators, epilogue=tuple(epilogue))


def _only_transpose(epilogue: Sequence[Call], owner: str) -> Call | None:
    """The op that transposes a sum, where it is the only one that reads it and none reads on."""
    readers = [call for call in epilogue if owner in call.op.inputs]
    if len(readers) != 1 or readers[0].op.type != "Transpose" or tuple(readers[0].attr("perm") or (1, 0)) != (1, 0):
        return None
    read_on = any(readers[0].op.outputs[0] in call.op.inputs for call in epilogue)
    return None if read_on else readers[0]
