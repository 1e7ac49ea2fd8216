"""Elementwise ops between convolutions work on rows of channels, as products give them, and nothing is turned round.

What a convolution gives is rows [N, places, C] seen as [N, C, *sizes] (`ChannelsFirst`), and what the next one reads is
rows again (`ChannelsLast`). Elementwise ops move to the rows; what is turned there and back is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from rnnops.interpreter import Program, prepare
from rnnops.loops import Pointwise
from rnnops.op import Op
from rnnops.schema import Call, form_of
from rnnops.scopes import free_name
from rnnops.types import Shape

TURN, BACK = "ChannelsFirst", "ChannelsLast"


def sink_channels(program: Program, keep: Collection[str] = ()) -> Program:
    """The same with elementwise ops before `ChannelsFirst`, and without `ChannelsLast` of what it gives.

    rewrite: `a = ChannelsFirst(x); b = Relu(a); y = ChannelsLast(b)`  -->  `y = Identity(Relu(x))`

    Args:
        keep: blobs that must be there beside the outputs.
    """
    if not any(call.op.type == TURN for call in program.calls):
        return program
    rows: dict[str, str] = {}  # blob [N, C, *sizes] -> blob [N, places, C] that it is, turned
    taken, same, ops = set(program.types), dict[str, str](), list[Op]()
    for call in program.calls:
        op = replace(call.op, inputs=tuple(same.get(name, name) for name in call.op.inputs))
        if op.type == TURN:
            rows[op.outputs[0]] = op.inputs[0]
        elif op.type == BACK and op.inputs[0] in rows:
            same[op.outputs[0]] = rows[op.inputs[0]]
            op = Op("Identity", (rows[op.inputs[0]],), op.outputs, {}, op.layer)
        elif (moved := _moved(call, op, rows, taken)) is not None:
            rows[op.outputs[0]] = moved[-1].outputs[0]
            ops += moved
            op = Op(TURN, (moved[-1].outputs[0],), op.outputs, {"sizes": call.output_types[0].shape[2:]}, op.layer)
        ops.append(op)
    net = program.net.with_ops(_without_unread(ops, {*keep, *program.net.output_blobs.values()})).snapshot()
    return prepare(net, {name: program.types[name] for name in net.input_names}, program.float_dtype)


def _without_unread(ops: Sequence[Op], wanted: set[str]) -> list[Op]:
    """Without ops that turn what nobody reads."""
    needed, kept = set(wanted), list[Op]()
    for op in reversed(ops):
        if op.type not in (TURN, "Identity") or op.outputs[0] in needed:
            needed.update(op.inputs)
            kept.append(op)
    return kept[::-1]


def _moved(call: Call, op: Op, rows: dict[str, str], taken: set[str]) -> list[Op] | None:
    """An elementwise op on rows, and what makes its other operands fit; None where that is not to be had."""
    form = form_of(call)
    if not isinstance(form, Pointwise) or form.begins or len(op.outputs) != 1 or not any(n in rows for n in op.inputs):
        return None
    ops, inputs, shape = list[Op](), list[str](), call.output_types[0].shape
    for name, kind in zip(op.inputs, call.types, strict=True):
        if kind is None or (name in rows and kind.shape == shape):
            inputs.append(rows[name] if kind is not None else name)
            continue
        fitting = _beside_rows(kind.shape, shape)
        if fitting is None:
            return None
        inputs.append(free_name(f"{name}/row", taken))
        ops.append(Op("Reshape", (name,), (inputs[-1],), {"shape": fitting}, op.layer))
    result = free_name(f"{op.outputs[0]}/rows", taken)
    return [*ops, replace(op, inputs=tuple(inputs), outputs=(result,))]


def _beside_rows(shape: Shape, full: Shape) -> Shape | None:
    """The shape in which an operand broadcasts to rows: one number, or one for each channel; None for any other."""
    if prod(shape) == 1:
        return ()
    wide = (*(1,) * (len(full) - len(shape)), *shape)
    return (full[1],) if wide == (1, full[1], *(1,) * (len(full) - 2)) else None
