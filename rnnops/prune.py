"""Dead code elimination: keep the ops that outputs need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rnnops.net import Net
from rnnops.op import Op
from rnnops.schema import schema_of


def prune(net: Net, keep_inputs: Iterable[str] | None = None) -> Net:
    """Drop ops that no output needs; where an op can leave outputs out, blank those that nobody reads.

    rewrite: `a = Exp(x); b = Tanh(x); return b`  -->  `b = Tanh(x); return b`

    Args:
        keep_inputs: inputs that stay though unused; all of them if left out.
    """
    needed = set(net.output_blobs.values())
    ops = []
    for op in reversed(net.ops):
        if any(name in needed for name in op.outputs):
            needed.update(op.inputs)
            ops.append(_without_unread(op, needed) if schema_of(op.type).may_omit_outputs else op)
    stay = set(net.input_names) if keep_inputs is None else {*keep_inputs, *needed}
    inputs = [spec for spec in net.input_specs if spec.name in stay]
    return net.with_ops(ops[::-1], inputs=inputs).snapshot()


def prune_cells(net: Net) -> Net:
    """Prune a net and the cells of its recurrences, cells inside cells included."""
    pruned = prune(net)
    return pruned.with_ops([_with_pruned_cell(op) for op in pruned.ops]).snapshot()


def _with_pruned_cell(op: Op) -> Op:
    if not isinstance(op.attributes.get("cell"), Net):
        return op
    cell = prune_cells(op.attributes["cell"])
    recompute = tuple(name for name in op.attributes.get("recompute", ()) if name in cell)
    return replace(op, attributes={**op.attributes, "cell": cell, "recompute": recompute})


def _without_unread(op: Op, needed: set[str]) -> Op:
    return replace(op, outputs=tuple(name if name in needed else "" for name in op.outputs))
