"""Rewrites of a net before it is compiled: rounded products, channels as rows, groups of ops.

**Channels as rows**. A convolution makes rows [N, places, C], transposed to [N, C, *sizes] (`ChannelsFirst`), and the
next one transposes them back (`ChannelsLast`). Elementwise ops between the two move to the rows, so that both
transpositions are dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

from rnnops.compiler.lower.lower_ops import expand_ops
from rnnops.compiler.rewrite.fusion_groups import PRODUCT_SPEED, FusionGroup, group_alone, group_ops
from rnnops.interpreter import Program, Workspace, execute, fold_constants, prepare, prepare_again
from rnnops.net.loop_forms import MATMULS, Kernel, Pointwise, View
from rnnops.net.net import Net
from rnnops.net.op import Input, Op
from rnnops.net.schema import REQUIRED, Call, OpSchema, RunContext, form_of, no_gradient, register
from rnnops.net.text import free_name
from rnnops.ops.linear_algebra import ROUNDED
from rnnops.rewrites import prune
from rnnops.types import Array, Shape, Type
from rnnops.util import makers_before, topological_order


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


TURN, BACK = "ChannelsFirst", "ChannelsLast"


def sink_channels(program: Program, keep: Collection[str] = ()) -> Program:
    """The same with elementwise ops before `ChannelsFirst`, and without `ChannelsLast` of what it gives.

    rewrite: `a = ChannelsFirst(x); b = Relu(a); y = ChannelsLast(b)`  -->  `y = Identity(Relu(x))`

    Args:
        keep: blobs that must be there besides the outputs.
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
    needed = _without_unread(ops, {*keep, *program.net.output_blobs.values()})
    return prepare_again(program, program.net.with_ops(needed).snapshot())


def _without_unread(ops: Sequence[Op], wanted: set[str]) -> list[Op]:
    """Drops unused transposes."""
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


COPIES = ("Concat", "ConvMatrix", "Pad", "ScatterSlice", "Windows")  # which move elements, but to memory of their own


class FusedOps(OpSchema):
    """A net that works row by row, as one op. Its ports are the net's inputs and outputs."""

    inputs = ("bound*",)
    outputs = ("result",)
    attributes: ClassVar[dict[str, Any]] = {"body": REQUIRED}
    same_dtype = ()
    internal = True
    uses_context = True
    gradient = no_gradient
    loop = Kernel("pointwise kernel")

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        return len(attributes["body"].output_blobs)

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        body = attributes["body"]
        return tuple(body.dtype_of(blob) for blob in body.output_blobs.values())

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        program = body_program(call)
        return tuple(program.types[blob].shape for blob in program.net.output_blobs.values())

    def reference(self, call: Call, *arrays: Array, context: RunContext) -> tuple[Array, ...]:
        program, workspace = body_program(call), Workspace()
        workspace.local.update(zip(program.net.input_names, arrays, strict=True))
        execute(program, workspace, context)
        return tuple(workspace[blob] for blob in program.net.output_blobs.values())

    def types_within(self, call: Call) -> Mapping[str, Type]:
        return body_program(call).types


fused_ops = register(FusedOps())


def body_program(call: Call) -> Program:
    """The body with the types of its inputs; worked out at the first use of a call."""
    if "body" not in call.derived:
        body: Net = call.op.attributes["body"]
        types = {name: kind for name, kind in zip(body.input_names, call.types, strict=True) if kind is not None}
        call.derived["body"] = prepare(body, types, call.float_dtype)
    program: Program = call.derived["body"]
    return program


def fuse_ops(program: Program, keep: Iterable[str], all_ops: bool = False) -> Program:
    """Fuse what works row by row.

    rewrite: `a = MatMul(h, w); b = Add(a, c); y = Tanh(b)`  -->  `y = FusedOps(h, w, c)`

    Args:
        keep: blobs that must be there besides the outputs.
        all_ops: whether ops that do not work row by row are groups as well.

    Returns: the program itself where nothing works row by row.
    """
    keep = set(keep)
    expanded = sink_channels(_primitive(program), keep)
    grouping = group_ops(expanded, all_ops)
    groups = [group for group in grouping.groups if group.own]
    if not groups and not (all_ops and any(call.op.type in COPIES for call in expanded.calls)):
        return program
    wanted = {*keep, *program.net.output_blobs.values()}
    net = expanded.net.with_ops(_ops(expanded, groups, grouping.free, wanted, all_ops)).snapshot()
    return prepare_again(program, net)


def work_around(program: Program) -> float:
    """Elementwise results of all ops of a net but its recurrences, so many multiply-adds counted as one."""
    computed = (call for call in _primitive(program).calls if not call.op.holds_net and form_of(call) is not None)
    return sum(_work(call) for call in computed if not isinstance(form_of(call), View))


SLOW = {"Erf": 15}  # so many times what NumPy takes for an element of other ops


def _work(call: Call) -> float:
    if call.op.type in MATMULS:
        return call.output_types[0].size * call.shape(1)[0 if call.rank(1) == 1 else -2] / PRODUCT_SPEED
    return SLOW.get(call.op.type, 1) * max(k.size for k in (*call.types, *call.output_types) if k is not None)


def _primitive(program: Program) -> Program:
    """The net with constants folded and ops written out as simpler ones."""
    return expand_ops(prepare_again(program, fold_constants(program)))


def _ops(
    program: Program, groups: Sequence[FusionGroup], free: Sequence[Call], wanted: Collection[str], all_ops: bool
) -> list[Op]:
    """Ops and groups as ops, each after those that it reads, else by the place of their last op."""
    grouped = {id(call): number for number, group in enumerate(groups) for call in group.own}
    needed = {*wanted, *(name for group in groups for name in group.reads())}
    places: dict[int, int] = {}
    units: list[tuple[int, Op]] = []
    optional = {id(call) for call in free}
    for place, call in reversed(list(enumerate(program.calls))):
        if id(call) in grouped:
            places.setdefault(grouped[id(call)], place)
        elif id(call) not in optional or any(name in needed for name in call.op.outputs):
            group = group_alone(program, call) if all_ops and call.op.type in COPIES else None
            unit = fused_op(program, group, needed) if group else call.op
            units.append((place, unit))
            needed.update(filter(None, unit.inputs))
    fused = [
        (places[n], fused_op(program, group, needed)) for n, group in enumerate(groups) if group.results() & needed
    ]
    units += fused
    before = makers_before([(op.inputs, op.outputs) for _, op in units])
    return [units[i][1] for i in topological_order(before, lambda i: units[i][0])]


def fused_op(program: Program, group: FusionGroup, needed: Collection[str]) -> Op:
    """A group as one op; what others need is its results."""
    results = [name for call in group.own for name in call.op.outputs if name and name in needed]
    inputs = [Input(name, program.net.dtype_of(name), program.types[name].shape) for name in group.reads()]
    body = prune(program.net.with_ops([call.op for call in group.calls], {name: name for name in results}, inputs), ())
    return Op("FusedOps", body.input_names, tuple(results), {"body": body})
