"""Results of recurrences that nobody reads are left out before a net is written."""

from __future__ import annotations

from dataclasses import replace

from rnnops.net import Net
from rnnops.op import Op
from rnnops.schema import schema_of


def leave_out_unread(net: Net) -> Net:
    """Blank the outputs that nobody reads, where an op can leave outputs out; in cells likewise.

    rewrite: `h_all, h_last = RecurrentNetwork(...); return h_all`  -->  `h_all, _ = RecurrentNetwork(...)`
    """
    read = {name for op in net.ops for name in op.inputs} | set(net.output_blobs.values())
    return net.with_ops([_without_unread(op, read) for op in net.ops]).snapshot()


def _without_unread(op: Op, read: set[str]) -> Op:
    if not schema_of(op.type).may_omit_outputs or "cell" not in op.attributes:
        return op
    outputs = tuple(name if name in read else "" for name in op.outputs)
    attributes = {**op.attributes, "cell": leave_out_unread(op.attributes["cell"])}
    return op if not any(outputs) else replace(op, outputs=outputs, attributes=attributes)
