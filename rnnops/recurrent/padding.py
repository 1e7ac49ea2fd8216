"""Rows past their end: which axis runs over the rows, and masks that keep padding out of gradients.

Along which axes of an op's operands the rows of its results run.

Limits: look-ups and what fills in elements (Pad) are said to mix rows.

Padding that reaches no gradient: what only masked results follow from reads zeros in rows that are over.

Past a row's end masked results get a gradient of zeros. But zero times NaN is NaN, and sums over rows hand it on to
every row: what padding holds, or what overflows or divides by zero because of it, would be in all gradients. So
operands are masked too, before the net is differentiated: where rows come in, and around ops without a value or a
slope at zero, which read ones. Devices that leave finished rows out of their work drop these masks again.

Limits: operands that are the same at every step are not a padding; what mixes rows reads what is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rnnops.fill import agreed
from rnnops.interpreter import Program
from rnnops.loops import MATMULS, Pointwise, Reduction, View
from rnnops.net import Net
from rnnops.op import Op
from rnnops.ops.reduction import Reduce
from rnnops.recurrent.op import cell_program
from rnnops.recurrent.recurrence import Recurrence
from rnnops.schema import Call, form_of, is_ours, schema_of
from rnnops.scopes import free_name
from rnnops.types import Array, Shape, is_float

Axes = Sequence[int | None]
OF_ALL_AXES_ON = ("LayerNormalization", "RMSNormalization")  # they mix all axes from `axis` on


def row_axes(call: Call, axis: int) -> Axes:
    """For each operand of an op the axis that rows run along, None where it is the same for all rows.

    Args:
        axis: of the results that rows run along.

    Returns: nothing for an op whose rows do not follow from the same rows of its operands alone.
    """
    form, schema = form_of(call), schema_of(call.op.type)
    if isinstance(form, Pointwise):
        begins = dict(form.begins)
        return [_aligned(call, i, axis, begins.get(i)) for i in range(len(call.op.inputs))]
    if call.op.type in ("Dropout", "RandomUniformLike"):
        return [_aligned(call, 0, axis)]
    if call.op.type in MATMULS:
        return _of_product(call, axis)
    if isinstance(form, Reduction) or isinstance(schema, Reduce):
        return _of_reduction(call, axis)
    if call.op.type in ("Softmax", "LogSoftmax", *OF_ALL_AXES_ON):
        first = call.axis(call.attr("axis"), call.rank(0))
        mixed = axis >= first if call.op.type in OF_ALL_AXES_ON else axis == first
        return [] if mixed else [_aligned(call, i, axis) for i in range(len(call.op.inputs))]
    if not isinstance(form, View):
        return []
    of_view = partial(_of_view, axis, form)
    return agreed(of_view, call) if is_ours(schema) else of_view(call)


def _aligned(call: Call, i: int, axis: int, begin: int | None = None) -> int | None:
    """The axis of operand `i` along an axis of the result: by broadcasting, unless its form says where it begins."""
    if not call.has(i):
        return None
    kind = call.output_types[0]
    own = axis - (kind.rank - call.rank(i) if begin is None else begin)
    return own if 0 <= own < call.rank(i) and call.shape(i)[own] == kind.shape[axis] else None


def _of_product(call: Call, axis: int) -> Axes:
    """Rows of the left operand, columns of the right one, or an axis over which both are stacked."""
    rank = call.output_types[0].rank
    if call.rank(0) == 1 or call.rank(1) == 1:
        return [axis, None] if call.rank(0) > 1 else []
    left, right = _aligned(call, 0, axis), _aligned(call, 1, axis)
    return [left if axis != rank - 1 else None, right if axis != rank - 2 else None]


def _of_reduction(call: Call, axis: int) -> Axes:
    folded = schema_of(call.op.type).reduced_axes(call)
    has_all_axes = call.output_types[0].rank == call.rank(0)
    kept = [a for a in range(call.rank(0)) if has_all_axes or a not in folded]
    return [] if kept[axis] in folded else [kept[axis], *(None for _ in call.op.inputs[1:])]


def _of_view(axis: int, form: View, call: Call) -> Axes:
    """As the op's reference says, run on arrays of which each element is the number of its row."""
    rows = call.output_types[0].shape[axis]
    moved = len(call.op.inputs) if form.all_inputs else 1
    if any(call.has(i) and call.values[i] is None for i in range(moved, len(call.op.inputs))):
        return []
    for own in [own for own, size in enumerate(call.shape(0)) if size == rows]:
        arrays = [_numbers(call.shape(i), own) for i in range(moved)] + list(call.values[moved:])
        found = schema_of(call.op.type).reference(call, *arrays)
        results = found if isinstance(found, tuple) else (found,)
        if all(np.array_equal(result, _numbers(result.shape, axis)) for result in results):
            return [own] * moved + [None] * (len(call.op.inputs) - moved)
    return []


def _numbers(shape: Shape, axis: int) -> Array:
    """For each element its position along an axis."""
    return np.broadcast_to(np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - axis - 1)), shape)


UNDEFINED_AT_ZERO = ("Div", "Log", "Pow", "Reciprocal", "Sqrt")


@dataclass(frozen=True)
class Rows:
    """How the rows of a blob are masked: the axis they run along, and the blobs that say where they end."""

    axis: int
    lengths: str = ""
    timestep: str = ""


def mask_padding(program: Program, same: Collection[str] = ()) -> Net:
    """Mask the operands of ops from which only masked results follow; the net itself where there are none.

    rewrite: `s = Add(x, h); h_t = SelectValid(s, h, lengths, timestep)`  -->
        `x' = MaskRows(x, lengths, timestep); h' = MaskRows(h, ...); s = Add(x', h'); h_t = SelectValid(s, h, ...)`

    Args:
        same: inputs that are the same at every step.
    """
    read = _how_blobs_are_read(program, {})
    inside = {call.op.key: rows for call in program.calls if (rows := _rows_made(call, read))}
    if not inside:
        return program.net
    risky = {call.op.key for call in program.calls if call.op.key in inside and _is_undefined_at_zero(call)}
    made_inside = {name for call in program.calls if call.op.key in inside.keys() - risky for name in call.op.outputs}
    writer = _MaskWriter(program)
    for call in program.calls:
        if call.op.key in writer.written:
            continue
        names = list(call.op.inputs)
        for i, rows in enumerate(_operands(call, inside[call.op.key]) if call.op.key in inside else ()):
            is_zero = names[i] in made_inside and call.op.key not in risky
            if rows and is_float(call.dtype(i)) and names[i] not in same and not is_zero:
                names[i] = writer.masked(names[i], rows, call.op.key in risky, call.op.layer)
        writer.write(replace(call.op, inputs=tuple(names)))
    return program.net.with_ops(writer.ops).snapshot()


class _MaskWriter:
    """Ops with masks between them, one for all that read a blob alike."""

    def __init__(self, program: Program) -> None:
        self.taken = set(program.types)
        self.producers = {name: call.op for call in program.calls for name in call.op.outputs}
        self.ops: list[Op] = []
        self.written: set[str] = set()
        self.masks: dict[tuple[object, ...], str] = {}

    def masked(self, name: str, rows: Rows, gradient: bool, layer: str) -> str:
        """The blob that is another with its rows masked."""
        key = (name, rows, gradient, layer)
        if key not in self.masks:
            self.require(rows.lengths, rows.timestep)
            self.masks[key] = free_name(f"{name}/masked", self.taken)
            inputs, risky = (name, rows.lengths, rows.timestep), int(gradient)
            attributes = {"axis": rows.axis, "gradient": risky, "fill": risky}  # 1: where all have a value and a slope
            self.ops.append(Op("MaskRows", inputs, (self.masks[key],), attributes, layer))
        return self.masks[key]

    def require(self, *names: str) -> None:
        """Write what makes blobs, if it is not there yet: lengths and timesteps, whose ops have nothing to mask."""
        for op in (self.producers[name] for name in names if name in self.producers):
            if op.key not in self.written:
                self.require(*op.inputs)
                self.write(op)

    def write(self, op: Op) -> None:
        self.ops.append(op)
        self.written.add(op.key)


def _how_blobs_are_read(program: Program, outputs: Mapping[str, Rows]) -> dict[str, Rows | None]:
    """Blob that is read -> how all that follows from it is masked, None where something is not.

    Args:
        outputs: blobs that are masked outside of the net.
    """
    uses: dict[str, set[Rows | None]] = defaultdict(set)
    for name in program.net.output_blobs.values():
        uses[name].add(outputs.get(name))
    for call in reversed(program.calls):
        read = {name: _only(uses[name]) for name in call.op.outputs if name in uses}
        for name, rows in zip(call.op.inputs, _operands(call, _rows_made(call, read)), strict=True):
            uses[name].add(rows)
    return {name: _only(rows) for name, rows in uses.items()}


def _only(uses: Collection[Rows | None]) -> Rows | None:
    return next(iter(uses)) if len(uses) == 1 else None


def _rows_made(call: Call, read: Mapping[str, Rows | None]) -> Rows | None:
    """How all results of an op are masked where they are read, None where not alike, or where it mixes rows."""
    rows = _only({read[name] for name in call.op.outputs if name in read})
    return rows if rows is not None and _axes(call, rows.axis) else None


def _operands(call: Call, made: Rows | None) -> list[Rows | None]:
    """How the operands of an op are masked by what follows from them, given how its results are."""
    if made is not None:
        return [None if axis is None else replace(made, axis=axis) for axis in _axes(call, made.axis)]
    selects = call.op.type == "SelectValid"
    masked = 0 if not selects else 2 if call.attr("drop") else 1  # what it was is read past an end, unless dropped
    return [Rows(0, *call.op.inputs[2:]) if i < masked else None for i in range(len(call.op.inputs))]


def _axes(call: Call, axis: int) -> Axes:
    return _axes_of_recurrence(call, axis) if call.op.type == "RecurrentNetwork" else row_axes(call, axis)


def _axes_of_recurrence(call: Call, axis: int) -> Axes:
    """Rows of a recurrence inside a cell are those of its batch, unless its own cell mixes them."""
    recurrence = Recurrence(call.op, call.net)
    program = cell_program(recurrence, call)
    read = _how_blobs_are_read(program, dict.fromkeys(program.net.output_blobs.values(), Rows(0)))
    steps = dict.fromkeys(recurrence.sequences, 0)
    steps.update((state.input, int(state.window > 1)) for state in recurrence.states)
    if axis != 1 or any(name in read and read[name] != Rows(own) for name, own in steps.items()):
        return []
    ranks = {state.input: state.feature_rank for state in recurrence.states}
    references = [None if rows is None else rows.axis for rows in map(read.get, recurrence.references)]
    states = [call.rank(i) - ranks[name] - 1 for i, name in enumerate(recurrence.ports()) if name in ranks]
    return [*(1 for _ in recurrence.sequences), *(own if own >= 0 else None for own in states), *references]


def _is_undefined_at_zero(call: Call) -> bool:
    """True if an op, or its slope, may have no finite value where its operands are zero."""
    return call.op.type in UNDEFINED_AT_ZERO or (call.op.type in OF_ALL_AXES_ON and not call.attr("epsilon"))
