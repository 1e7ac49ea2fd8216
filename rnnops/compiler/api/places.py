"""Where the elements of one axis of the inputs lie in other blobs: frames, or rows of the batch.

**Places**. An axis of a blob holds the elements in order, or it is that axis with others merged into it, as the batch
of `[N * T, F, C]`. Each op is asked where the elements of its operands go. What moves elements is read off its
reference, run on element numbers. An op that is made of simpler ops carries what these carry, and a recurrence what
its cell does. Limits: an op that mixes elements of the axis, or spreads them over two axes, is an error.

**Calls of one frame**. A net that is called frame by frame should keep earlier frames in states. Windows over an axis
of one element see their fill. A recurrence of one step has no past if its initial state is not fed.
Such ops are found by a look at the net with a second frame.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from rnnops.compiler.lower.lower_ops import expand_ops
from rnnops.compiler.lower.movements import moved_numbers
from rnnops.compiler.lower.scan import MixedError
from rnnops.errors import RnnopsError
from rnnops.interpreter import Program, prepare
from rnnops.net.loop_forms import Expansion, Kernel, Pointwise, ProductForm, Reduction, View
from rnnops.net.net import Net
from rnnops.net.op import Input, Op
from rnnops.net.schema import Call, form_of, schema_of
from rnnops.ops.windows import FIRST_AXIS, WINDOW_ATTRIBUTES
from rnnops.recurrent.recurrence import Recurrence, cell_program, input_types
from rnnops.types import Array, Shape, Type


@dataclass(frozen=True)
class AxisPlace:
    """Where the elements of an axis lie in a blob.

    Args:
        axis: of the blob.
        size: how many elements there are.
        outer, inner: sizes of the axes that are merged into it, before and behind.
    """

    axis: int
    size: int
    outer: int = 1
    inner: int = 1

    @property
    def extent(self) -> int:
        """The size of the blob's axis."""
        return self.outer * self.size * self.inner

    @property
    def alone(self) -> bool:
        """True if nothing is merged into the axis."""
        return self.outer == self.inner == 1

    def numbers(self, shape: Shape) -> Array:
        """The number of the element that each element of a blob belongs to."""
        line = np.tile(np.repeat(np.arange(self.size), self.inner), self.outer)
        return np.broadcast_to(line.reshape([-1 if axis == self.axis else 1 for axis in range(len(shape))]), shape)


Places: TypeAlias = Sequence[AxisPlace | None]


def is_windowed(call: Call) -> bool:
    """True if an op slides windows over the axes behind N and channels."""
    return WINDOW_ATTRIBUTES.keys() <= schema_of(call.op.type).attributes.keys()


def carried(call: Call, places: Places) -> Places:
    """Where the elements lie in each result of a call. Raises MixedError where they are not kept apart.

    Args:
        places: where they lie in each operand; None for those without.
    """
    if not any(places) or all(value is not None for value in call.output_values):
        return [None] * len(call.op.outputs)
    if is_windowed(call):
        return [_of_batch(places)]
    form: Any = form_of(call)
    rule = _RULES.get(form.name if isinstance(form, Kernel) else type(form))
    if rule is None:
        raise MixedError("nothing is known of how it treats frames and rows")
    return rule(call, places)


def carried_through(program: Program, places: Mapping[str, AxisPlace | None]) -> dict[str, AxisPlace | None]:
    """Where the elements lie in each blob of a program. Raises MixedError as `carried`."""
    found = dict(places)
    for call in program.calls:
        found |= zip(call.op.outputs, carried(call, [found.get(name) for name in call.op.inputs]), strict=True)
    return found


def _one(places: Sequence[AxisPlace]) -> AxisPlace:
    """The place that all agree on."""
    if len(set(places)) != 1:
        raise MixedError("its operands have frames along different axes")
    return places[0]


def _of_batch(places: Places) -> AxisPlace:
    place = places[0]
    if place is None or place.axis != 0 or any(places[1:]):
        raise MixedError("it mixes frames as channels")
    return place


def _pointwise(call: Call, places: Places) -> Places:
    begins = dict(getattr(form_of(call), "begins", ()))
    rank = call.output_types[0].rank
    moved = [
        replace(place, axis=place.axis + begins.get(i, rank - call.rank(i)))
        for i, place in enumerate(places)
        if place is not None
    ]
    return [_one(moved)] * len(call.op.outputs)


def _view(call: Call, places: Places) -> Places:
    form = form_of(call)
    assert isinstance(form, View)
    moved = [i for i in range(len(places)) if call.has(i) and (i == 0 or form.all_inputs)]
    if any(place is not None and i not in moved for i, place in enumerate(places)):
        raise MixedError("frames decide which elements move")
    known = next(place for place in places if place is not None)
    tables = [np.full(1, -1)]
    for i in moved:
        place, shape = places[i], call.shape(i)
        if place is None and len(shape) == call.rank(places.index(known)) and shape[known.axis] == known.extent:
            place = known  # the same for all of them, as zeros that are expanded
        tables.append(np.full(shape, -1).ravel() if place is None else place.numbers(shape).ravel())
    starts = np.cumsum([1, *map(len, tables[1:])])
    table = np.concatenate(tables)
    return [_found(table[numbers], known.size) for numbers in moved_numbers(call, moved, starts)]


def _found(numbers: Array, size: int) -> AxisPlace:
    """The place of elements whose numbers these are, -1 for what belongs to none."""
    for axis in range(numbers.ndim):
        line = numbers.max(axis=tuple(other for other in range(numbers.ndim) if other != axis))
        wide = line.reshape([-1 if other == axis else 1 for other in range(numbers.ndim)])
        if (line == line[:1]).all() or not ((numbers == wide) | (numbers == -1)).all():
            continue
        inner = int(np.argmax(line != line[0]))
        outer, rest = divmod(len(line), size * inner)
        if not rest and np.array_equal(line, AxisPlace(0, size, outer, inner).numbers(line.shape)):
            return AxisPlace(axis, size, outer, inner)
    raise MixedError("it moves frames out of their order, leaves some out, or spreads them over several axes")


def _reduction(call: Call, places: Places) -> Places:
    rank = call.rank(0)
    place = _one([replace(p, axis=p.axis + rank - call.rank(i)) for i, p in enumerate(places) if p is not None])
    folded = schema_of(call.op.type).reduced_axes(call)
    if place.axis in folded:
        raise MixedError("it folds all frames")
    kept = call.output_types[0].rank == call.rank(0)
    return [place if kept else replace(place, axis=place.axis - sum(axis < place.axis for axis in folded))]


def _product(call: Call, places: Places) -> Places:
    left, right, rank = call.rank(0), call.rank(1), call.output_types[0].rank
    found = []
    for i, place in enumerate(places[:2]):
        if place is None:
            continue
        behind = (left, right)[i] - place.axis  # 1 for the last axis
        if behind == (1 if i == 0 or right == 1 else 2):
            raise MixedError("it sums over frames")
        lost = (right if i == 0 else left) == 1  # a vector, whose axis the result does not have
        found.append(replace(place, axis=rank - behind + (lost and behind > 1)))
    return [_one(found)]


def _gather(call: Call, places: Places) -> Places:
    data, index = places[:2]
    axis, found = call.axis(call.attr("axis"), call.rank(0)), list[AxisPlace]()
    if data is not None:
        if data.axis == axis:
            raise MixedError("it looks some frames up")
        found.append(data if data.axis < axis else replace(data, axis=data.axis - 1 + call.rank(1)))
    if index is not None:
        found.append(replace(index, axis=axis + index.axis))
    return [_one(found)]


def _expansion(call: Call, places: Places) -> Places:
    if "expanded" not in call.derived:
        call.derived["expanded"] = expand_ops(alone(call))
    found = carried_through(call.derived["expanded"], dict(zip(call.op.inputs, places, strict=True)))
    return [found.get(name) for name in call.op.outputs]


def alone(call: Call) -> Program:
    """A net of nothing but this call, with what is known of its operands."""
    kinds = {name: kind for name, kind in zip(call.op.inputs, call.types, strict=True) if kind is not None}
    values = {name: value for name, value in zip(call.op.inputs, call.values, strict=False) if value is not None}
    inputs = [Input(name, kind.dtype) for name, kind in kinds.items() if name not in values]
    known = [
        Op("Constant", (), (name,), {"value": value, "dtype": kinds[name].dtype}) for name, value in values.items()
    ]
    outputs = {name: name for name in call.op.outputs if name}
    net = Net(call.net).with_ops([*known, call.op], outputs, inputs)
    return prepare(net, {spec.name: kinds[spec.name] for spec in inputs}, call.float_dtype)


def _recurrence(call: Call, places: Places) -> Places:
    """Through the cell of a recurrence whose steps are others than these elements."""
    recurrence, program = Recurrence(call.op, call.net), cell_program(Recurrence(call.op, call.net), call)
    step: dict[str, AxisPlace | None] = {}
    for name, i, place in zip(recurrence.ports(), range(len(places)), places, strict=True):
        if place is not None and name in recurrence.sequences and place.axis == 0:
            raise MixedError("frames are its steps")
        step[name] = place and replace(place, axis=place.axis + program.types[name].rank - call.rank(i))
    given = next(place for place in step.values() if place is not None)
    for state in recurrence.states:
        step[state.input] = step[state.input] or replace(given, axis=int(state.window > 1))
    found = carried_through(program, step)
    blobs = recurrence.cell.output_blobs
    for state in recurrence.states:
        if state.window == 1 and found[blobs[state.output]] != step[state.input]:
            raise MixedError(f"its state '{state.input}' has them along another axis than the step makes them")
    made = [found.get(blobs[name]) for name in recurrence.output_names()]
    return [
        place and (place if name in recurrence.sums and not last else replace(place, axis=place.axis + 1))
        for name, place in zip(recurrence.output_names(), made, strict=True)
        for last in (False, True)
    ]


_RULES: dict[Any, Callable[[Call, Places], Places]] = {
    Pointwise: _pointwise, View: _view, Reduction: _reduction, ProductForm: _product, Expansion: _expansion,
    "gather": _gather, "dropout": _pointwise, "recurrence": _recurrence,
}  # fmt: skip


# -- calls of one frame -------------------------------------------------------------------------------------------


def warn_of_single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], open_axes: Sequence[Mapping[str, int]], dtype: str
) -> None:
    """Warn of ops that see one frame in each call, and nothing of earlier calls.

    Args:
        types: of the inputs, for one frame.
        given: inputs that a call is given, states among them.
        open_axes: each time input -> the axis that may be that of frames.
        dtype: of floats.
    """
    found = dict.fromkeys(label for axes in open_axes for label in _single_frames(net, types, given, axes, dtype))
    if found:
        text = (
            f"net '{net.name}': these ops see one frame in each call and nothing of earlier calls: {', '.join(found)}"
        )
        hint = "steps= of run.stream, ro.streamed_net or `rnnops export --steps` keeps earlier frames in states."
        warnings.warn(f"{text}. {hint}", UserWarning, stacklevel=6)


def _single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], axes: Mapping[str, int], dtype: str
) -> list[str]:
    """Labels of the ops over one frame, which are ops over two where these axes have two elements."""
    longer = dict(types)
    for name, axis in axes.items():
        shape = types[name].shape
        longer[name] = Type(types[name].dtype, (*shape[:axis], 2, *shape[axis + 1 :]))
    try:
        one, two = prepare(net, types, dtype), prepare(net, longer, dtype)
    except RnnopsError:  # the axis is not open, or no frame is enough
        return []
    follows = set(given)
    for call in one.calls:
        if follows.intersection(call.op.inputs) and any(value is None for value in call.output_values):
            follows.update(call.op.outputs)  # not by its sizes only
    pairs = zip(one.calls, two.calls, strict=True)
    return [call.op.label for call, other in pairs if _has_no_past(call, other, follows)]


def _has_no_past(call: Call, longer: Call, follows: set[str]) -> bool:
    """True for windows over one element that may be two, and for one step from a state that no call feeds."""
    if call.op.type == "RecurrentNetwork":
        recurrence = Recurrence(call.op, call.net)
        steps = [recurrence.steps_and_batch(input_types(recurrence, one))[0] for one in (call, longer)]
        initial = [blob for kind, _, blob in recurrence.bindings() if kind == "initial"]
        return steps == [1, 2] and not follows.issuperset(initial)
    if not is_windowed(call):
        return False
    schema: Any = schema_of(call.op.type)
    sizes = zip(schema.geometry(call).spans, call.shape(0)[FIRST_AXIS:], longer.shape(0)[FIRST_AXIS:], strict=True)
    return any(span > 1 and (size, more) == (1, 2) for span, size, more in sizes)
