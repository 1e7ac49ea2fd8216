"""Rewrites of a net before it is compiled: rounded products, channels as rows, groups of ops, states split in parts.

**Channels as rows**. A convolution makes rows [N, places, C], transposed to [N, C, *sizes] (`ChannelsFirst`), and the
next one transposes them back (`ChannelsLast`). Elementwise ops between the two move to the rows, so that both
transpositions are dropped.

**States that hold several layers become states of their own.** A stack of layers may carry one state `[N, L, H]`. Its
step reads `h[:, 0]`, `h[:, 1]` and so on, and joins the new layers again. That costs a copy at each step, and gradients
are padded and added. Every layer waits for the last one, so that no product of a layer runs for many steps at once. If
each layer has a state of its own, none of this is left.

Blobs that are joined from such parts are followed through the step. Slices within a part read the part. Elementwise
ops, and ops that only move axes, are done part by part; lengths (`SelectValid`) are elementwise. Any other reader keeps
the state whole. Around the recurrence the initial state is split, and the last state is joined. All steps of the state,
where something reads them, become an output of the step, which is joined there.

Limits: the parts are those in which the new state is joined; rows of the batch are never split.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import Any, ClassVar

from rnnops.compiler.lower.lower_ops import expand_ops
from rnnops.compiler.rewrite.fusion_groups import PRODUCT_SPEED, FusionGroup, group_alone, group_ops
from rnnops.interpreter import Program, Workspace, execute, fold_constants, prepare, prepare_again, prune, rewritten
from rnnops.net.loop_forms import MATMULS, Kernel, Pointwise, View
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, free_name
from rnnops.net.schema import REQUIRED, Call, OpSchema, RunContext, form_of, no_gradient, register
from rnnops.ops.base import sizes_of
from rnnops.ops.indexing import slice as slice_op
from rnnops.ops.linear_algebra import ROUNDED
from rnnops.ops.movement import transpose
from rnnops.recurrent.cell_rewrites import kept_inside
from rnnops.recurrent.recurrence import Features, Recurrence, State, cell_program, is_training_form
from rnnops.types import Array, Shape, Type
from rnnops.util import makers_before, topological_order


def round_products(net: Net, operands: str) -> Net:
    """Let products round their operands; the products of gradients follow from them.

    rewrite: `c = MatMul(a, b)`  -->  `c = RoundedMatMul(a, b, operands="bfloat16")`, and Gemm alike

    Args:
        operands: the dtype that they are rounded to.
    """
    return net.with_ops([_rounded(op, operands) for op in net.ops]).snapshot()


def _rounded(op: Op, operands: str) -> Op:
    nets = {name: round_products(value, operands) for name, value in op.attributes.items() if isinstance(value, Net)}
    if op.type in ROUNDED:
        return replace(op, type=ROUNDED[op.type], attributes={**op.attributes, "operands": operands})
    return replace(op, attributes={**op.attributes, **nets}) if nets else op


TURN, BACK = "ChannelsFirst", "ChannelsLast"


def sink_channels(program: Program, keep: Collection[str] = ()) -> Program:
    """The program with elementwise ops before `ChannelsFirst`, and without a `ChannelsLast` that undoes it.

    rewrite: `a = ChannelsFirst(x); b = Relu(a); y = ChannelsLast(b)`  -->  `y = Identity(Relu(x))`

    Args:
        keep: blobs that must be there besides the outputs.
    """
    if not any(call.op.type == TURN for call in program.calls):
        return program
    rows: dict[str, str] = {}  # blob [N, C, *sizes] -> the blob [N, places, C] of the same numbers
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
    """Reshapes of an elementwise op's other operands, then the op on rows. None if an operand cannot fit."""
    form = form_of(call)
    ops, inputs, shape = list[Op](), list[str](), call.output_types[0].shape
    whole = {n for n, kind in zip(op.inputs, call.types, strict=True) if n in rows and kind and kind.shape == shape}
    if not isinstance(form, Pointwise) or form.begins or len(op.outputs) != 1 or not whole:
        return None
    for name, kind in zip(op.inputs, call.types, strict=True):
        if kind is None or name in whole:
            inputs.append(rows[name] if kind is not None else name)
            continue
        fitting = _beside_rows(kind.shape, shape)
        if fitting is None:
            return None
        inputs.append(free_name(f"{name}/row", taken))
        ops.append(Op("Reshape", (name,), (inputs[-1],), {"shape": fitting}, op.layer))
    return [*ops, replace(op, inputs=tuple(inputs), outputs=(free_name(f"{op.outputs[0]}/rows", taken),))]


def _beside_rows(shape: Shape, full: Shape) -> Shape | None:
    """The shape in which an operand broadcasts to rows: one number, or one for each channel; None for any other."""
    if prod(shape) == 1:
        return ()
    wide = (*(1,) * (len(full) - len(shape)), *shape)
    return (full[1],) if wide == (1, full[1], *(1,) * (len(full) - 2)) else None


COPIES = ("Concat", "ConvMatrix", "Pad", "ScatterSlice", "Windows")  # ops that move elements to memory of their own


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
    """The body with the types of its inputs. It is prepared at the first use of a call."""
    if "body" not in call.derived:
        body: Net = call.op.attributes["body"]
        types = {name: kind for name, kind in zip(body.input_names, call.types, strict=True) if kind is not None}
        call.derived["body"] = prepare(body, types, call.float_dtype)
    program: Program = call.derived["body"]
    return program


def fuse_ops(program: Program, keep: Iterable[str], all_ops: bool = False) -> Program:
    """Fuse ops that work row by row.

    rewrite: `a = MatMul(h, w); b = Add(a, c); y = Tanh(b)`  -->  `y = FusedOps(h, w, c)`

    Args:
        keep: blobs that must be there besides the outputs.
        all_ops: whether ops that do not work row by row are groups as well.

    Returns: the program itself if nothing works row by row.
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
    """The work of a net's ops without its recurrences, in elementwise results (`PRODUCT_SPEED`)."""
    computed = (call for call in _primitive(program).calls if not call.op.holds_net and form_of(call) is not None)
    return sum(_work(call) for call in computed if not isinstance(form_of(call), View))


SLOW = {"Erf": 15}  # the time of NumPy for an element, in that of other ops


def _work(call: Call) -> float:
    if call.op.type in MATMULS:
        return call.output_types[0].size * call.shape(1)[0 if call.rank(1) == 1 else -2] / PRODUCT_SPEED
    return SLOW.get(call.op.type, 1) * max(k.size for k in (*call.types, *call.output_types) if k is not None)


def _primitive(program: Program) -> Program:
    """The net with constants folded and ops expanded to primitive ones."""
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
    """A group as one op. Its results are the blobs that other ops need."""
    results = [name for call in group.own for name in call.op.outputs if name and name in needed]
    inputs = [Input(name, program.net.dtype_of(name), program.types[name].shape) for name in group.reads()]
    body = prune(program.net.with_ops([call.op for call in group.calls], {name: name for name in results}, inputs), ())
    return Op("FusedOps", body.input_names, tuple(results), {"body": body})


MOST = 64  # the most parts of a state


def split_states(program: Program) -> Net:
    """Split the states that cells join from parts.

    rewrite: `RecurrentNetwork(h0) { a, b = Split(h, axis=1); h_t = Concat(Tanh(a), Exp(b), axis=1) }`  -->
        `a0, b0 = Split(h0, axis=-1); RecurrentNetwork(a0, b0) { a_t = Tanh(a); b_t = Exp(b) }`
    """
    taken, ops = set(program.types), list[Op]()
    for call in program.calls:
        ops += _with_split_states(call, taken)
    return rewritten(program.net, ops)


def _with_split_states(call: Call, taken: set[str]) -> list[Op]:
    """A recurrence with split states, between ops that split its initial states and join its last ones."""
    attributes = call.op.attributes
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op) or "outputs_with_grads" in attributes:
        return [call.op]
    recurrence, before, after = Recurrence(call.op, call.net), list[Op](), list[Op]()
    step = cell_program(recurrence, call)
    for state in recurrence.states if any(op.type == "Concat" for op in step.net.ops) else ():
        parts = _parts_of(step, state, recurrence.references)
        writer = None if parts is None else _StepWriter(recurrence, step, state, parts)
        cell = None if writer is None else writer.written()
        if writer is not None and cell is not None:
            ahead, op, behind = _around(recurrence, writer, cell, taken)
            before, recurrence, after = [*before, ahead], Recurrence(op, call.net), [*after, *behind]
            step = prepare(cell, writer.input_types(), step.float_dtype)
    return [*before, recurrence.op, *after]


@dataclass(frozen=True)
class _Parts:
    """How a state is divided: along an axis of the state in the cell, into parts of these sizes."""

    axis: int
    sizes: tuple[int, ...]

    def place_of(self, first: int, count: int) -> tuple[int, int] | None:
        """The part that contains some places along the axis, and the first of them in it. None if no part has all."""
        begins = accumulate(self.sizes, initial=0)
        for number, (begin, size) in enumerate(zip(begins, self.sizes, strict=False)):
            if begin <= first and first + count <= begin + size:
                return number, first - begin
        return None


def _parts_of(step: Program, state: State, references: Collection[str]) -> _Parts | None:
    """The parts from which a cell joins a state. None if it does not join the state, or along the batch axis.

    Joined weights are not parts of a state.
    """
    if state.window != 1 or state.offset:
        return None
    joined, fixed = dict[str, _Parts](), set(references)
    for call in step.calls:
        if fixed.issuperset(filter(None, call.op.inputs)):
            fixed.update(call.op.outputs)
        elif call.op.type == "Concat":
            axis = call.axis(call.attr("axis"), call.rank(0))
            joined[call.op.key] = _Parts(axis, tuple(call.shape(i)[axis] for i in range(len(call.op.inputs))))
        elif not joined.keys().isdisjoint(call.op.inputs):
            i = next(i for i, name in enumerate(call.op.inputs) if name in joined)
            own = joined[call.op.inputs[i]]
            moved = _axis_after(call, i, own.axis)
            joined.update((name, replace(own, axis=moved)) for name in call.op.outputs if moved is not None)
    found = joined.get(step.net.output_blobs[state.output])
    return found if found and found.axis and 1 < len(found.sizes) <= MOST and 0 not in found.sizes else None


def _axis_after(call: Call, i: int, axis: int) -> int | None:
    """The axis of the results that an axis of operand `i` becomes; None if the op mixes or drops places along it."""
    form, kind, rank, result = form_of(call), call.op.type, call.rank(i), call.output_types[0]
    if isinstance(form, Pointwise):
        moved = axis + dict(form.begins).get(i, result.rank - rank)
        return moved if result.shape[moved] == call.shape(i)[axis] else None
    if kind == "Concat" or (kind == "Split" and i == 0):
        return None if call.axis(call.attr("axis"), rank) == axis else axis
    if i != 0 or kind not in ("Slice", "Squeeze", "Transpose", "Unsqueeze"):
        return None
    if kind == "Slice":
        return None if axis in slice_op.cuts(call) else axis
    if kind == "Transpose":
        return transpose.order(call).index(axis)
    named = sizes_of(call, "axes", 1)
    most = max(rank, result.rank)
    gone = {n for n in range(rank) if call.shape(0)[n] == 1} if named is None else {n % most for n in named}
    rest = [n for n in range(most) if n not in gone]
    return rest[axis] if kind == "Unsqueeze" else rest.index(axis) if axis in rest else None


def _axis_before(call: Call, i: int, axis: int) -> int | None:
    """The axis of operand `i` that becomes an axis of the results; None if the operand has no such axis."""
    if not call.has(i) or call.types[i] is None:
        return None
    return next((own for own in range(call.rank(i)) if _axis_after(call, i, own) == axis), None)


class _StepWriter:
    """Writes the step with a state for each part.

    Args:
        ops: of the new step.
        inputs, outputs: names of the new states' inputs and outputs, one for each part.
        parts: blob -> the axis along which it is joined from parts, and the parts.
        same: blob -> the blob that replaces it.
        gone: blobs that their parts have replaced.
        sliced: blob and axis -> a slice of it for each part.
    """

    def __init__(self, recurrence: Recurrence, step: Program, state: State, division: _Parts) -> None:
        self.recurrence, self.step, self.state, self.division = recurrence, step, state, division
        self.taken, self.ops = set(step.types), list[Op]()
        self.inputs = [free_name(f"{state.input}/{n}", self.taken) for n in range(len(division.sizes))]
        names = {*step.net.output_blobs}
        self.outputs = [free_name(f"{state.output}/{n}", names) for n in range(len(division.sizes))]
        self.parts = {state.input: (division.axis, self.inputs)}
        self.same: dict[str, str] = {}
        self.gone = {state.input}
        self.sliced: dict[tuple[str, int], list[str]] = {}

    def written(self) -> Net | None:
        """The new step; None if something reads the state as a whole."""
        if not all(map(self._take, self.step.calls)):
            return None
        outputs = {name: self.same.get(blob, blob) for name, blob in self.step.net.output_blobs.items()}
        axis, new = self.parts.get(outputs[self.state.output], (None, []))
        if axis != self.division.axis or not self._named().isdisjoint({*self.same, *self.gone}):
            return None
        if not self.recurrence.op.outputs[2 * self.recurrence.states.index(self.state)]:
            del outputs[self.state.output]
        for blob in self.gone.intersection(outputs.values()):
            own, parts = self.parts[blob]
            self.ops.append(Op("Concat", tuple(parts), (blob,), {"axis": own}))
        for name, blob in zip(self.outputs, new, strict=True):
            outputs[name] = self._own(blob, outputs)
        net = self.step.net
        inputs = [spec for spec in net.input_specs if spec.name != self.state.input]
        inputs += [Input(name, net.dtype_of(self.state.input)) for name in self.inputs]
        return prune(net.with_ops(self.ops, outputs, inputs))

    def _named(self) -> set[str]:
        """Blobs that may be asked for by name."""
        return {*kept_inside(self.recurrence), *self.recurrence.op.attributes.get("recompute", ())}

    def input_types(self) -> dict[str, Type]:
        """Types of the inputs of the written step."""
        types = {name: self.step.types[name] for name in self.step.net.input_names}
        whole = types.pop(self.state.input)
        axis = self.division.axis
        for name, size in zip(self.inputs, self.division.sizes, strict=True):
            types[name] = Type(whole.dtype, (*whole.shape[:axis], size, *whole.shape[axis + 1 :]))
        return types

    def _own(self, blob: str, outputs: Mapping[str, str]) -> str:
        """The blob, or a copy if it is an input or an output already. So each state has a blob of its own."""
        if blob not in (*self.step.net.input_names, *self.inputs, *outputs.values()):
            return blob
        copy = free_name(f"{blob}/copy", self.taken)
        self.ops.append(Op("Identity", (blob,), (copy,)))
        return copy

    def _take(self, call: Call) -> bool:
        """Write an op, as a whole or for each part. False if it needs the state as a whole."""
        op = replace(call.op, inputs=tuple(self.same.get(name, name) for name in call.op.inputs))
        if not self.parts.keys().isdisjoint(op.inputs):
            if self._narrowed(call, op):
                return True
            by_parts, whole = self._by_parts(call, op), self.gone.isdisjoint(op.inputs)
            if not whole:
                self.gone.update(op.outputs if by_parts else ())
                return by_parts
        self.ops.append(op)  # dropped later if only its parts are read
        if op.type == "Concat":
            axis = call.axis(call.attr("axis"), call.rank(0))
            if tuple(call.shape(i)[axis] for i in range(len(op.inputs))) == self.division.sizes:
                self.parts[op.key] = axis, [*op.inputs]
        return True

    def _narrowed(self, call: Call, op: Op) -> bool:
        """Replace slices that each lie within a part by these parts, or by slices of them. False if they do not."""
        axis, parts = self.parts.get(op.inputs[0], (0, []))
        spans = _spans(call, axis) if parts else []
        places = [self.division.place_of(first, count) for first, count in spans]
        if not places or None in places:
            return False
        for name, place, (_, count) in zip(op.outputs, places, spans, strict=True):
            assert place is not None
            number, first = place
            source, more = parts[number], _other_cuts(call, axis)
            if count != self.division.sizes[number]:
                source = self._slice(source, axis, first, count, op.layer)
            if more:
                self.ops.append(Op("Slice", (source,), (name,), more, op.layer))
            else:
                self.same[name] = source
        return True

    def _by_parts(self, call: Call, op: Op) -> bool:
        """Write an op for each part, if that is possible."""
        i = next(i for i, name in enumerate(op.inputs) if name in self.parts)
        axis = _axis_after(call, i, self.parts[op.inputs[i]][0])
        if axis is None:
            return False
        operands = [self._operand(name, _axis_before(call, i, axis), op.layer) for i, name in enumerate(op.inputs)]
        if not all(operands):
            return False
        made = [
            [free_name(f"{name}/{n}", self.taken) if name else "" for name in op.outputs]
            for n in range(len(self.inputs))
        ]
        for inputs, outputs in zip(zip(*operands, strict=True), made, strict=True):
            self.ops.append(replace(op, inputs=inputs, outputs=tuple(outputs)))
        self.parts.update(
            (name, (axis, [*parts])) for name, parts in zip(op.outputs, zip(*made, strict=True), strict=True) if name
        )
        return True

    def _operand(self, name: str, axis: int | None, layer: str) -> list[str]:
        """An operand for each part. Empty if the whole operand is needed, but only its parts are left."""
        own, parts = self.parts.get(name, (None, []))
        if axis is not None and own == axis:
            return parts
        if name in self.gone:
            return []
        if axis is None:
            return [name] * len(self.inputs)
        if (name, axis) not in self.sliced:
            sizes = self.division.sizes
            begins = accumulate(sizes[:-1], initial=0)
            self.sliced[name, axis] = [self._slice(name, axis, *one, layer) for one in zip(begins, sizes, strict=True)]
        return self.sliced[name, axis]

    def _slice(self, name: str, axis: int, first: int, count: int, layer: str) -> str:
        made = free_name(f"{name}/part", self.taken)
        self.ops.append(
            Op("Slice", (name,), (made,), {"starts": (first,), "ends": (first + count,), "axes": (axis,)}, layer)
        )
        return made


def _spans(call: Call, axis: int) -> list[tuple[int, int]]:
    """First place and count of places along an axis, for each result of a Slice or Split. Empty for other ops."""
    size = call.shape(0)[axis]
    if call.op.type == "Slice" and axis in (cuts := slice_op.cuts(call)):
        span = range(*cuts[axis].indices(size))
        return [(span.start, len(span))] if span.step == 1 and span else []
    if call.op.type == "Split" and call.axis(call.attr("axis"), call.rank(0)) == axis:
        counts = [kind.shape[axis] for kind in call.output_types]
        return [*zip(accumulate(counts[:-1], initial=0), counts, strict=True)]
    return []


def _other_cuts(call: Call, axis: int) -> dict[str, tuple[int, ...]]:
    """Attributes of a Slice along the other axes that an op cuts."""
    cuts = {own: cut for own, cut in slice_op.cuts(call).items() if own != axis} if call.op.type == "Slice" else {}
    rows = {"starts": [c.start for c in cuts.values()], "ends": [c.stop for c in cuts.values()]}
    rows |= {"axes": [*cuts], "steps": [c.step for c in cuts.values()]}
    return {name: tuple(values) for name, values in rows.items()} if cuts else {}


def _around(recurrence: Recurrence, writer: _StepWriter, cell: Net, taken: set[str]) -> tuple[Op, Op, list[Op]]:
    """The op that splits the initial state, the recurrence, and the op that joins the last state."""
    op, state, sizes = recurrence.op, writer.state, writer.division.sizes
    axis = writer.division.axis - writer.step.types[state.input].rank
    number = recurrence.states.index(state)
    place, last = len(recurrence.sequences) + number, op.outputs[2 * number + 1]
    begins = tuple(free_name(f"{op.inputs[place]}/{n}", taken) for n in range(len(sizes)))
    ends = tuple(free_name(f"{last}/{n}", taken) if last else "" for n in range(len(sizes)))
    ahead = Op("Split", op.inputs[place : place + 1], begins, {"axis": axis, "split": sizes}, op.layer)
    behind = [Op("Concat", ends, (last,), {"axis": axis}, op.layer)] if last else []
    rows: list[tuple[Any, ...]] = [*op.attributes["states"]]
    rows[number : number + 1] = [
        (own, output, 1, state.offset, _features(state, axis, size))
        for own, output, size in zip(writer.inputs, writer.outputs, sizes, strict=True)
    ]
    results = dict(zip(recurrence.output_names(), zip(op.outputs[::2], op.outputs[1::2], strict=True), strict=True))
    results = {**results, state.output: (results[state.output][0], "")}
    results.update((output, ("", end)) for output, end in zip(writer.outputs, ends, strict=True))
    changed = replace(
        op,
        inputs=(*op.inputs[:place], *begins, *op.inputs[place + 1 :]),
        attributes={**op.attributes, "cell": cell, "states": tuple(rows)},
    )
    names = Recurrence(changed, recurrence.net).output_names()
    return ahead, replace(changed, outputs=tuple(one for name in names for one in results[name])), behind


def _features(state: State, axis: int, size: int) -> Features | None:
    """Feature sizes of a part; None in place of those that the state does not give."""
    given, place = state.features, len(state.features or ()) + axis
    return given and tuple(size if n == place and own is not None else own for n, own in enumerate(given))
