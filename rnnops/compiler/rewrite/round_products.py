"""Products of a net, and of the cells in it, as products of rounded operands."""

from __future__ import annotations

from dataclasses import replace

from rnnops.net import Net
from rnnops.op import Op
from rnnops.ops.products import ROUNDED


def round_products(net: Net, operands: str) -> Net:
    """Let products round their operands; the products of gradients follow from them.

    rewrite: `c = MatMul(a, b)`  -->  `c = RoundedMatMul(a, b, operands="bfloat16")`, and Gemm alike

    Args:
        operands: what they are rounded to.
    """
    return net.with_ops([_rounded(op, operands) for op in net.ops]).snapshot()


def _rounded(op: Op, operands: str) -> Op:
    nets = {name: round_products(value, operands) for name, value in op.attributes.items() if isinstance(value, Net)}
    if op.type in ROUNDED:
        return replace(op, type=ROUNDED[op.type], attributes={**op.attributes, "operands": operands})
    return replace(op, attributes={**op.attributes, **nets}) if nets else op
