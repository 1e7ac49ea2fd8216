"""Padding that reaches no gradient: what only masked results follow from reads zeros in rows that are over.

Past a row's end masked results get a gradient of zeros. But zero times NaN is NaN, and sums over rows hand it on to
every row: what padding holds, or what overflows or divides by zero because of it, would be in all gradients. So
operands are masked too, before the net is differentiated: where rows come in, and around ops without a value or a
slope at zero, which read ones. Devices that leave finished rows out of their work drop these masks again.

Limits: operands that are the same at every step are no padding; what mixes rows reads what is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rnnops.interpreter import Program
from rnnops.net import Net
from rnnops.op import Op
from rnnops.recurrent.op import cell_program
from rnnops.recurrent.recurrence import Recurrence
from rnnops.recurrent.row_axes import OF_ALL_AXES_ON, Axes, row_axes
from rnnops.schema import Call
from rnnops.scopes import free_name
from rnnops.types import is_float

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
    writer = _Writer(program)
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


class _Writer:
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
    """Whether an op, or its slope, may have no finite value where its operands are zero."""
    return call.op.type in UNDEFINED_AT_ZERO or (call.op.type in OF_ALL_AXES_ON and not call.attr("epsilon"))
