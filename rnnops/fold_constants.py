"""Constant folding: what is known before a run is written down."""

from __future__ import annotations

from rnnops.interpreter import Program
from rnnops.net import Net
from rnnops.op import Op
from rnnops.rewritten import rewritten
from rnnops.schema import Call
from rnnops.types import is_float


def fold_constants(program: Program) -> Net:
    """Replace ops whose results are known once shapes are, so that backward need not keep what they were computed from.

    rewrite: `n = Shape(x); m = Gather(n, i)`  -->  `n = Constant([4, 3]); m = Constant(4)`
    """
    return rewritten(program.net, [_folded(call) for call in program.calls])


def _folded(call: Call) -> Op:
    if len(call.op.outputs) != 1 or call.output_values[0] is None or call.op.type == "Constant":
        return call.op
    value, dtype = call.output_values[0], call.output_types[0].dtype
    if is_float(dtype):  # a cast number: the net says "float" where this call has the run's own dtype
        return call.op
    return Op(
        "Constant",
        (),
        call.op.outputs,
        {"value": value.item() if value.ndim == 0 else value, "dtype": dtype},
        call.op.layer,
    )
