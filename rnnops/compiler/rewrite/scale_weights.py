"""Scales convolutions: what a BatchNormalization does to their channels is done to weights, once, when these are bound.

The results are rounded elsewhere than where the two ops run one after the other. It is for statistics that are given
(not those of the batch) and that follow, with all that the convolution reads beside x, from what is bound.

Limit: a channel whose factor is infinite, as that of a variance of 0 without epsilon, is nan where it may be infinite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from rnnops.net import Net
from rnnops.op import Op
from rnnops.schema import schema_of
from rnnops.scopes import free_name
from rnnops.types import FLOAT


def scale_weights(net: Net, bound: Collection[str]) -> Net:
    """Let the matrix and the bias of a convolution do what follows it.

    rewrite: `a = MatrixConv(x, m, b); y = BatchNormalization(a, scale, shift, mean, var)`  -->
        `factor = Div(scale, Sqrt(Add(var, epsilon))); y = MatrixConv(x, Mul(m, factor), (b - mean) * factor + shift)`

    Args:
        bound: inputs that are there when weights are laid out.
    """
    scaled = _convolutions_to_scale(net, bound)
    if not scaled:
        return net
    replaced = {convolution.outputs[0] for convolution in scaled.values()}
    taken, ops = {*net.input_names, *(name for op in net.ops for name in op.outputs)}, list[Op]()
    for op in net.ops:
        if op.outputs[0] in scaled:
            ops += _scaled(scaled[op.outputs[0]], op, taken)
        elif op.outputs[0] not in replaced:
            ops.append(op)
    return net.with_ops(ops).snapshot()


def _convolutions_to_scale(net: Net, bound: Collection[str]) -> dict[str, Op]:
    """Result of a BatchNormalization -> the convolution that can do what it does."""
    reads = Counter([*(name for op in net.ops for name in op.inputs), *net.output_blobs.values()])
    fixed, convolutions, found = {"", *bound}, dict[str, Op](), dict[str, Op]()
    for op in net.ops:
        if fixed.issuperset(op.inputs) and not schema_of(op.type).uses_context:
            fixed.update(op.outputs)
        elif op.type == "MatrixConv" and reads[op.outputs[0]] == 1 and fixed.issuperset(op.inputs[1:]):
            convolutions[op.outputs[0]] = op
        elif _scales_channels(op) and op.inputs[0] in convolutions and fixed.issuperset(op.inputs[1:]):
            found[op.outputs[0]] = convolutions[op.inputs[0]]
    return found


def _scales_channels(op: Op) -> bool:
    return op.type == "BatchNormalization" and not op.attributes.get("training_mode")


def _scaled(convolution: Op, normalization: Op, taken: set[str]) -> Iterable[Op]:
    """The convolution with what gives its new weights and bias; `taken` are names of blobs."""
    x, matrix, *bias = convolution.inputs
    _, scale, shift, mean, variance = normalization.inputs
    ops = list[Op]()

    def made(op_type: str, *inputs: str, **attributes: object) -> str:
        name = free_name(f"{normalization.outputs[0]}/{op_type.lower()}", taken)
        ops.append(Op(op_type, inputs, (name,), attributes, normalization.layer))
        return name

    attributes = {**schema_of(normalization.type).attributes, **normalization.attributes}
    epsilon = made("Constant", value=attributes["epsilon"], dtype=FLOAT)
    factor = made("Div", scale, made("Sqrt", made("Add", variance, epsilon)))
    below = made("Sub", mean, bias[0]) if any(bias) else mean
    inputs = (x, made("Mul", matrix, factor), made("Sub", shift, made("Mul", below, factor)))
    return [*ops, replace(convolution, inputs=inputs, outputs=normalization.outputs, layer=normalization.layer)]
