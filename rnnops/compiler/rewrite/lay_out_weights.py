"""Weights that are bound become the matrices that products read, by ops that run once, when they are bound."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rnnops.net import Net
from rnnops.op import Op
from rnnops.schema import schema_of
from rnnops.scopes import free_name


def lay_out_weights(net: Net, bound: Collection[str]) -> Net:
    """Write out what is made of weights that follow from bound inputs and constants alone.

    rewrite: `y = Gemm(x, w, transB=1)`  -->  `v = Transpose(w); y = Gemm(x, v)`, and
        `y = Conv(x, w, kernel_shape=...)`  -->  `m = ConvMatrix(w); y = MatrixConv(x, m, kernel_shape=...)`
    """
    fixed, ops = set(bound), list[Op]()
    taken = {*net.input_names, *(name for op in net.ops for name in op.outputs)}
    for op in net.ops:
        if {name for name in op.inputs if name} <= fixed and not schema_of(op.type).uses_context:
            fixed.update(op.outputs)
        elif op.type in ("Conv", "Gemm") and op.inputs[1] in fixed:
            ops += _laid_out(op, taken)
            continue
        ops.append(op)
    return net.with_ops(ops).snapshot() if len(ops) > len(net.ops) else net


def _laid_out(op: Op, taken: set[str]) -> list[Op]:
    """An op as one that makes a matrix of its weights and one that reads it; the op itself where sizes are not told."""
    x, w, *bias = op.inputs
    if op.type == "Gemm" and op.attributes.get("transB"):
        name = free_name(f"{w}/transposed", taken)
        attributes = {key: value for key, value in op.attributes.items() if key != "transB"}
        turned = Op("Transpose", (w,), (name,), {}, op.layer)
        return [turned, replace(op, inputs=(x, name, *bias), attributes=attributes)]
    if op.type == "Conv" and "kernel_shape" in op.attributes:
        name = free_name(f"{w}/matrix", taken)
        return [Op("ConvMatrix", (w,), (name,), {}, op.layer), replace(op, type="MatrixConv", inputs=(x, name, *bias))]
    return [op]
