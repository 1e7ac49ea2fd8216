"""Dead code elimination: keep the ops that outputs need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rnnops.net import Net
from rnnops.op import Op
from rnnops.rewritten import rewritten
from rnnops.schema import schema_of


def prune(net: Net, keep_inputs: Iterable[str] | None = None, outputs: Mapping[str, str] | None = None) -> Net:
    """Drop ops that no output needs; where an op can leave outputs out, blank those that nobody reads.

    rewrite: `a = Exp(x); b = Tanh(x); return b`  -->  `b = Tanh(x); return b`

    Args:
        keep_inputs: inputs that stay though unused; all of them if left out.
        outputs: output name -> blob; those of the net if left out.
    """
    needed = set((net.output_blobs if outputs is None else outputs).values())
    ops = []
    for op in reversed(net.ops):
        if any(name in needed for name in op.outputs):
            needed.update(op.inputs)
            ops.append(_without_unread(op, needed) if schema_of(op.type).may_omit_outputs else op)
    stay = set(net.input_names) if keep_inputs is None else {*keep_inputs, *needed}
    inputs = [spec for spec in net.input_specs if spec.name in stay]
    return rewritten(net, ops[::-1], outputs, inputs)


def prune_cells(net: Net) -> Net:
    """Prune a net and the cells of its recurrences, cells inside cells included."""
    pruned = prune(net)
    return rewritten(pruned, [_with_pruned_cell(op) for op in pruned.ops])


def _with_pruned_cell(op: Op) -> Op:
    if not isinstance(op.attributes.get("cell"), Net):
        return op
    cell = prune_cells(op.attributes["cell"])
    recompute = tuple(name for name in op.attributes.get("recompute", ()) if name in cell)
    if cell is op.attributes["cell"] and recompute == op.attributes.get("recompute", ()):
        return op
    return replace(op, attributes={**op.attributes, "cell": cell, "recompute": recompute})


def _without_unread(op: Op, needed: set[str]) -> Op:
    outputs = tuple(name if name in needed else "" for name in op.outputs)
    return op if outputs == op.outputs else replace(op, outputs=outputs)
