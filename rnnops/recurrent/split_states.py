"""States that hold several layers become states of their own.

A stack of layers may carry one state `[N, L, H]`. Its step reads `h[:, 0]`, `h[:, 1]` and so on, and joins the new
layers again. That costs a copy at each step, and gradients are padded and added. Every layer waits for the last one, so
that no product of a layer runs for many steps at once. Nothing of that is left where each layer has a state.

**Parts.** Blobs that are joined from such parts are followed through the step. Slices within a part read the part.
Elementwise ops, and ops that only move axes, are done part by part; lengths (`SelectValid`) are elementwise. Any other
reader keeps the state whole.

**Around the recurrence** the initial state is split, and the last state is joined. All steps of the state, where
something reads them, become an output of the step, which is joined there.

Limits: the parts are those in which the new state is joined; rows of the batch are never split.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from rnnops.interpreter import Program, prepare
from rnnops.net.loop_forms import Pointwise
from rnnops.net.net import Net
from rnnops.net.op import Input, Op
from rnnops.net.schema import Call, form_of
from rnnops.net.text import free_name
from rnnops.ops.base import sizes_of
from rnnops.ops.indexing import slice as slice_op
from rnnops.ops.movement import transpose
from rnnops.recurrent.cell_rewrites import kept_inside
from rnnops.recurrent.recurrence import Features, Recurrence, State, cell_program, is_training_form
from rnnops.rewrites import prune, rewritten
from rnnops.types import Type

MOST = 64  # parts of a state


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
    """A recurrence between the ops that split what it begins with and join what it ends with."""
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
        """The part that some places along the axis lie in, and where they begin in it; None for places in several."""
        begins = accumulate(self.sizes, initial=0)
        for number, (begin, size) in enumerate(zip(begins, self.sizes, strict=False)):
            if begin <= first and first + count <= begin + size:
                return number, first - begin
        return None


def _parts_of(step: Program, state: State, references: Collection[str]) -> _Parts | None:
    """The parts that a cell joins a state from; None where it does not, or where they are rows of the batch.

    Weights that are joined are not parts of a state.
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
    """The axis of the results along which an axis of operand `i` lies; None where places along it are not apart."""
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
    """The axis of operand `i` that goes to an axis of the results; None where the operand is the same along it."""
    if not call.has(i) or call.types[i] is None:
        return None
    return next((own for own in range(call.rank(i)) if _axis_after(call, i, own) == axis), None)


class _StepWriter:
    """Writes the step with a state for each part.

    Args:
        ops: of the step.
        inputs, outputs: of the step, those of the new states by part.
        parts: blob -> the axis along which it is joined from parts, and these.
        same: blob -> the one that it is now.
        gone: blobs that have been replaced by their parts.
        sliced: blob and axis -> slices of it that go with parts.
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
        """The step; None where something reads the state as a whole."""
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
        """Blobs that somebody may ask for by name."""
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
        """The blob, or a copy where it is an input or an output already: each state has a blob of its own."""
        if blob not in (*self.step.net.input_names, *self.inputs, *outputs.values()):
            return blob
        copy = free_name(f"{blob}/copy", self.taken)
        self.ops.append(Op("Identity", (blob,), (copy,)))
        return copy

    def _take(self, call: Call) -> bool:
        """Write what becomes of an op. False where it needs the state as a whole."""
        op = replace(call.op, inputs=tuple(self.same.get(name, name) for name in call.op.inputs))
        if not self.parts.keys().isdisjoint(op.inputs):
            if self._narrowed(call, op):
                return True
            by_parts, whole = self._by_parts(call, op), self.gone.isdisjoint(op.inputs)
            if not whole:
                self.gone.update(op.outputs if by_parts else ())
                return by_parts
        self.ops.append(op)  # which is dropped where only its parts are read
        if op.type == "Concat":
            axis = call.axis(call.attr("axis"), call.rank(0))
            if tuple(call.shape(i)[axis] for i in range(len(op.inputs))) == self.division.sizes:
                self.parts[op.key] = axis, [*op.inputs]
        return True

    def _narrowed(self, call: Call, op: Op) -> bool:
        """True for places within parts, which are read of these."""
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
        """An operand for each part; nothing where it is needed as a whole, and there are only its parts."""
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
    """First place and number of places along an axis that each result of a Slice or Split takes; none for others."""
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
    """Feature sizes of a part, as far as those of the state are given."""
    given, place = state.features, len(state.features or ()) + axis
    return given and tuple(size if n == place and own is not None else own for n, own in enumerate(given))
