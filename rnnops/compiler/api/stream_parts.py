"""Where frames and rows are in the blobs of a net, and the parts of a streamed net that keep earlier frames.

**Places** (`AxisPlace`, `carried`). The elements of an axis, such as frames, are in order along an axis of a blob.
Other axes may be merged into this axis, as in `[N * T, F, C]`. For each op, a rule says where the elements of its
operands are in its results. For an op that moves elements, its reference is run on numbers of elements. For an op that
is made of simpler ops, these ops are followed; for a recurrence, its cell. Limits: an op that mixes elements of the
axis, or spreads them over two axes, is an error.

**Frames and positions** (`Frames`). Positions are counted through all chunks. A blob has a delay: position p holds
frame `p - delay`. A window needs frames before its chunk, which are kept as a state, and frames behind its own, so its
result comes later. A Pad along the axis moves no element: it gives frames other numbers. A window that reads such a
blob puts the fill where there is no frame.

**Positions without a frame**, before the first frame and behind the last one, hold numbers that mean nothing. If a
window can read them, they are replaced by the fill: counters of each row tell which positions hold frames. A net
without look-ahead needs no counters, because states begin with zeros. If the end of a blob is cut off, a frame is known
to stay only when later frames have come, so the result waits for these.

**Calls of one frame**: `single_frames` names the ops that see nothing of earlier frames. A net that is called frame by
frame should keep earlier frames in states. Windows over an axis of one element see only their fill. A recurrence of one
step has no past if its initial state is not fed. Such ops are found by comparing the net with a net of two frames.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, TypeAlias

import numpy as np

from rnnops.compiler.api.stream_states import FRAMES, ROWS, Dims
from rnnops.compiler.lower.lower_ops import expand_ops
from rnnops.compiler.lower.movements import moved_numbers
from rnnops.compiler.lower.scan import MixedError
from rnnops.errors import RnnopsError
from rnnops.interpreter import Program, prepare
from rnnops.net.loop_forms import Expansion, Kernel, Pointwise, ProductForm, Reduction, View
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, free_name
from rnnops.net.schema import Call, form_of, schema_of
from rnnops.ops.reduction import FIRST_AXIS
from rnnops.ops.windows import WINDOW_ATTRIBUTES
from rnnops.recurrent.recurrence import Recurrence, cell_program, input_types
from rnnops.types import Array, Shape, Type


@dataclass(frozen=True)
class AxisPlace:
    """Where the elements of an axis are in a blob.

    Args:
        axis: the axis of the blob.
        size: the number of elements.
        outer, inner: sizes of the axes that are merged into it, before and behind the elements.
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
    """Where the elements are in each result of a call. Raises MixedError if the op mixes them.

    Args:
        places: where the elements are in each operand; None for an operand without them.
    """
    if not any(places) or all(value is not None for value in call.output_values):
        return [None] * len(call.op.outputs)
    if is_windowed(call):
        return [_of_batch(places)]
    form: Any = form_of(call)
    rule = _RULES.get(form.name if isinstance(form, Kernel) else type(form))
    if rule is None:
        raise MixedError("it is not known how it treats frames and rows")
    return rule(call, places)


def carried_through(program: Program, places: Mapping[str, AxisPlace | None]) -> dict[str, AxisPlace | None]:
    """Where the elements are in each blob of a program. Raises MixedError like `carried`."""
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
            place = known  # this operand has the same value for all elements, such as expanded zeros
        tables.append(np.full(shape, -1).ravel() if place is None else place.numbers(shape).ravel())
    starts = np.cumsum([1, *map(len, tables[1:])])
    table = np.concatenate(tables)
    return [_found(table[numbers], known.size) for numbers in moved_numbers(call, moved, starts)]


def _found(numbers: Array, size: int) -> AxisPlace:
    """The place of elements, from an array with the number of an element at each of its positions, -1 for none."""
    for axis in range(numbers.ndim if numbers.size else 0):
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
        behind = (left, right)[i] - place.axis  # the axis, counted from the end; 1 is the last one
        if behind == (1 if i == 0 or right == 1 else 2):
            raise MixedError("it sums over frames")
        lost = (right if i == 0 else left) == 1  # the other operand is a vector, so that the result lacks an axis
        found.append(replace(place, axis=rank - behind + (lost and behind > 1)))
    return [_one(found)]


def _gather(call: Call, places: Places) -> Places:
    data, index = places[:2]
    axis, found = call.axis(call.attr("axis"), call.rank(0)), list[AxisPlace]()
    if data is not None:
        if data.axis == axis:
            raise MixedError("it looks up single frames")
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
    """A net of only this call. Operands with known values are constants."""
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
    """The places in the results of a recurrence whose steps are not these elements, found through its cell."""
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
            raise MixedError(f"a step moves the frames of state '{state.input}' to another axis")
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


EVERYTHING = 2**62  # the end of a Slice up to the last element
MERGED = "it needs earlier or later frames, but frames are merged with another axis"


@dataclass(frozen=True)
class Frames:
    """How the frames of a blob come in a stream.

    Args:
        place: where frames are in the blob.
        rate: the number of frames for each frame of the inputs.
        delay: position p holds frame `p - delay`.
        before, after: how many frames at the begin and at the end are only fill.
        fill: the number in these frames.
        sizes: the number of frames is computed from that of the inputs, op by op. For an op it is
            `(n + a) // b * c + d`, given by `(a, b, c, d, least)`; the op needs `least` frames or more.
    """

    place: AxisPlace
    rate: Fraction = Fraction(1)
    delay: int = 0
    before: int = 0
    after: int = 0
    fill: float = 0
    sizes: tuple[tuple[int, int, int, int, int], ...] = ()

    def count(self, frames: int) -> int:
        """The number of frames of the blob if the inputs have `frames` frames."""
        for add, by, times, more, _ in self.sizes:
            frames = (frames + add) // by * times + more
        return frames

    def fits(self, frames: int) -> bool:
        """True if a stream of `frames` frames has the results of one call: no window and no cut is longer."""
        count = frames
        for add, by, times, more, least in self.sizes:
            if count < least:
                return False
            count = max((count + add) // by * times + more, 0)  # a Slice may leave nothing
        return count == max(self.count(frames), 0)

    @property
    def certain(self) -> int:
        """The least delay such that, before the end of the stream, no position holds a frame that the end cuts off."""
        return max(self.delay, 0, -self.count(0))

    def longer(self, number: int) -> Frames:
        """The same with `number` more frames."""
        return replace(self, sizes=(*self.sizes, (number, 1, 1, 0, 0))) if number else self


class StreamParts:
    """A streamed net while it is built: base of the writer of streamed nets, with the ops for delays, states and fills.

    Args:
        program: the original net for some number of frames.
        dims: sizes of inputs.
        ends: whether positions behind the last frame must be told apart.

    Attributes:
        blobs: blob of the original net -> its blob in the streamed net, if the name differs.
        frames: blob -> how its frames come.
        rows: blob -> where its rows are.
        made: state -> the blob that is its next value.
        waiting: (blob, delay) -> the blob with this delay.
    """

    def __init__(self, program: Program, dims: Mapping[str, Dims], ends: bool) -> None:
        self.program, self.net, self.dims, self.ends = program, program.net, dict(dims), ends
        self.taken = {*self.net.blob_names, *self.net.output_blobs}
        self.ops, self.closing, self.inputs = list[Op](), list[Op](), list[Input]()
        self.blobs, self.made, self.counters = dict[str, str](), dict[str, str](), dict[str, str]()
        self.waiting = dict[tuple[str, int], str]()
        self.axes = {name: sizes.index(FRAMES) for name, sizes in dims.items() if FRAMES in sizes}
        self.frames = {name: Frames(self._place(name, axis)) for name, axis in self.axes.items()}
        places = {name: self._place(name, sizes.index(ROWS)) for name, sizes in dims.items() if ROWS in sizes}
        self.rows: dict[str, AxisPlace | None] = {**places}
        self.has_rows = bool(places)

    def _place(self, name: str, axis: int) -> AxisPlace:
        return AxisPlace(axis, self.program.types[name].shape[axis])

    def blob(self, name: str) -> str:
        """The blob of the streamed net for a blob of the original net."""
        return self.blobs.get(name, name)

    def op(self, kind: str, *inputs: str | int, **attributes: Any) -> str:
        """Append an op, and return its result. Numbers among its inputs become int64 constants."""
        names = tuple(self.constant(one, "int64") if isinstance(one, int) else one for one in inputs)
        made = free_name(f"stream/{kind.lower()}", self.taken)
        self.ops.append(Op(kind, names, (made,), attributes))
        return made

    def constant(self, value: Any, dtype: str) -> str:
        """A number as a blob."""
        return self.op("Constant", value=value, dtype=dtype)

    def padded(self, name: str, before: int, after: int, fill: Any, least: int = -EVERYTHING) -> tuple[str, Frames]:
        """A blob with fill at both ends of its frames. No element is moved, frames only get other numbers.

        Args:
            least: the least delay of the blob without the fill.
        """
        frames = self.frames[name]
        if after:  # the fill comes behind the last frame, so the end must be certain
            least = max(least, frames.after - frames.count(0))
        if frames.delay < least or ((frames.before or frames.after) and (before or after) and frames.fill != fill):
            delay = max(frames.delay, least, 0)
            blob, frames = self.late(name, delay), replace(frames, delay=delay, before=0, after=0)
        else:
            blob = self.blob(name)
        if not before and not after:
            return blob, frames
        starts, stops = frames.before + before, frames.after + after
        padded = replace(frames, delay=frames.delay - before, before=starts, after=stops, fill=fill)
        return blob, padded.longer(before + after)

    def window(self, name: str, blob: str, frames: Frames, span: int, stride: int) -> tuple[str, Frames]:
        """A chunk with the earlier frames that windows over it need, and how frames of the windows' results come."""
        late = max(ceil(max(frames.delay + span - stride, frames.delay) / stride), 0)
        more = late * stride - frames.delay
        blob = self.seen(name, blob, frames, more)
        if more >= span:
            blob = self.op("Slice", blob, starts=(0,), ends=(span - stride - more,), axes=(frames.place.axis,))
        sizes = (*frames.sizes, (stride - span, stride, 1, 0, span if span > 1 else 0))
        return blob, replace(frames, rate=frames.rate / stride, delay=late, before=0, after=0, sizes=sizes)

    def late(self, name: str, delay: int) -> str:
        """A blob with this delay, in which fill is written out."""
        frames = self.frames[name]
        if frames.delay == delay and not frames.before and not frames.after:
            return self.blob(name)
        if (name, delay) not in self.waiting:
            more, axes = delay - frames.delay, (frames.place.axis,)
            blob = self.seen(name, self.blob(name), frames, more)
            self.waiting[name, delay] = self.op("Slice", blob, starts=(0,), ends=(-more,), axes=axes) if more else blob
        return self.waiting[name, delay]

    def seen(self, name: str, blob: str, frames: Frames, more: int) -> str:
        """A chunk with `more` earlier frames before it, and with fill at positions without a frame."""
        axis, dtype, kind = frames.place.axis, self.net.dtype_of(name), self.program.types[name]
        starts = bool(frames.before and (frames.fill != 0 or frames.delay > -frames.before))
        ends = bool(frames.after and self.ends)
        if (more or starts or ends) and not frames.place.alone:
            raise MixedError(MERGED)
        if more:
            last, shape = free_name(f"{name}/last", self.taken), (*kind.shape[:axis], more, *kind.shape[axis + 1 :])
            before = self.kept(f"{name}/frames", last, dtype, shape, self.rows.get(name))
            blob = self.op("Concat", before, blob, axis=axis)
            self.ops.append(Op("Slice", (blob,), (last,), {"starts": (-more,), "ends": (EVERYTHING,), "axes": (axis,)}))
        if not starts and not ends:
            return blob
        there = self.between(blob, frames, more, kind.rank, self.rows.get(name), starts, ends)
        return self.op("Where", there, blob, self.constant(frames.fill, dtype))

    def kept(self, label: str, last: str, dtype: str, shape: Shape, rows: AxisPlace | None) -> str:
        """Add a state whose next value is `last`. Rows that are merged into an axis get an axis of their own in the
        state."""
        name = free_name(label, self.taken)
        self.check_rows(rows)
        parts = [size for size in (rows.outer, ROWS, rows.inner) if size != 1] if rows else []
        dims = (*shape[: rows.axis], *parts, *shape[rows.axis + 1 :]) if rows else shape
        self.inputs.append(Input(name, dtype))
        self.dims[name], self.made[name] = dims, last
        if rows is None or rows.alone:
            return name
        self.made[name] = free_name(f"{name}/next", self.taken)
        sizes = tuple(-1 if size == ROWS else size for size in dims)
        self.closing.append(Op("Reshape", (last,), (self.made[name],), {"shape": sizes}))
        return self.op("Reshape", name, shape=(*shape[: rows.axis], -1, *shape[rows.axis + 1 :]))

    def between(
        self, blob: str, frames: Frames, more: int, rank: int, rows: AxisPlace | None, starts: bool, ends: bool
    ) -> str:
        """Bools that are true at positions of a blob which hold frames. They broadcast to the blob.

        Args:
            more: how many positions the blob has before the chunk.
            rank: rank of the blob.
            rows: where its rows are.
            starts, ends: whether positions before the first frame, and behind the last frame, are false.
        """
        axis, rate, found = frames.place.axis, frames.rate, []
        position = self.op("Div", self.op("Mul", self.counter("position"), rate.numerator), rate.denominator)
        size = self.op("Squeeze", self.op("Shape", blob, start=axis, end=axis + 1), axes=(0,))
        line = self.op("Reshape", self.op("Range", 0, size, 1), shape=_line(axis, rank))
        number = self.op("Add", self.row_line(position, rows, rank), line)
        number = self.op("Sub", number, more + frames.delay)
        if starts:
            found.append(self.op("GreaterOrEqual", number, frames.before))
        if ends:
            count = self.counter("frames")
            for add, by, times, rest, _ in frames.sizes:
                count = self.op("Add", self.op("Mul", self.op("Div", self.op("Add", count, add), by), times), rest)
            count = self.op("Sub", count, frames.after)
            found.append(self.op("Less", number, self.row_line(count, rows, rank)))
        return found[0] if len(found) == 1 else self.op("And", *found)

    def row_line(self, blob: str, rows: AxisPlace | None, rank: int) -> str:
        """Numbers `[N]`, one for each row, in a shape that broadcasts along the axis of rows."""
        self.check_rows(rows)
        if rows is not None and not rows.alone:
            blob = self.op("Reshape", blob, shape=(1, -1, 1))
            blob = self.op("Expand", blob, shape=(rows.outer, 1, rows.inner))
        return self.op("Reshape", blob, shape=(1,) * rank if rows is None else _line(rows.axis, rank))

    def check_rows(self, rows: AxisPlace | None) -> None:
        """Raise MixedError if the net has rows, but it is not known where they are in a blob."""
        if rows is None and self.has_rows:
            raise MixedError("it needs a state for each row, but rows are mixed there")

    def counter(self, name: str) -> str:
        """A counter `[N]`. `position`: frames of earlier calls, whole chunks. `frames`: frames fed so far, with this
        call."""
        if name not in self.counters:
            dims: Dims = (ROWS,) if self.has_rows else (1,)
            source, axis = next(iter(self.axes.items()))
            if name == "frames":
                fed = self.counters["fed"] = self._counted("stream/fed", dims)
                more = self.op("CheckCount", fed, source, axis=axis, wrong="a call does not have so many frames")
            else:
                more = self.op("Shape", source, start=axis, end=axis + 1)
            state = self._counted(f"stream/{name}", dims)
            self.made[state] = self.op("Add", state, more)
            self.counters[name] = state if name == "position" else self.made[state]
        return self.counters[name]

    def _counted(self, label: str, dims: Dims) -> str:
        name = free_name(label, self.taken)
        self.inputs.append(Input(name, "int64"))
        self.dims[name] = dims
        return name


def _line(axis: int, rank: int) -> Shape:
    """The shape in which numbers lie along one axis."""
    return tuple(-1 if other == axis else 1 for other in range(rank))


def warn_of_single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], open_axes: Sequence[Mapping[str, int]], dtype: str
) -> None:
    """Warn of `single_frames`; the warning points at the user's call of `stream` or `export_native`."""
    if text := single_frames(net, types, given, open_axes, dtype):
        warnings.warn(text, UserWarning, stacklevel=6)


def warn_of_export(
    net: Net, types: Mapping[str, Type], every: Mapping[str, Type], states: Mapping[str, str], dtype: str
) -> None:
    """Warn of an export whose ops see one frame in each call. Any axis of size 1 of an input that is not a state may be
    the axis of frames.

    Args:
        types: types of the inputs that are not bound.
        every: types of all inputs.
    """
    others = {*states.values(), *(spec.name for spec in net.input_specs if spec.shape is not None)}
    shapes = {name: kind.shape for name, kind in types.items() if name not in others}
    ones = [(name, axis) for name, shape in shapes.items() for axis, size in enumerate(shape) if size == 1]
    together = [{name: axis for name, axis in ones if axis == one} for one in {axis for _, axis in ones}]
    warn_of_single_frames(net, every, types, [*({name: axis} for name, axis in ones), *together], dtype)


def single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], open_axes: Sequence[Mapping[str, int]], dtype: str
) -> str:
    """A text that names ops which see the frames of one call and nothing of earlier calls; empty if there are none.

    Args:
        types: types of the inputs.
        given: inputs that a call is given, states included.
        open_axes: guesses, each a table from input to the axis that may be that of frames.
        dtype: dtype of floats.
    """
    found = dict.fromkeys(label for axes in open_axes for label in _single_frames(net, types, given, axes, dtype))
    text = f"net '{net.name}': these ops see the frames of one call and nothing of earlier calls: {', '.join(found)}"
    return f"{text}. {KEEP}" if found else ""


KEEP = (
    "steps= of run.stream, ro.streamed_net or --steps of `rnnops export` and `rnnops onnx --stream` keeps earlier "
    "frames in states."
)


def open_axes(shapes: Mapping[str, Any], others: Collection[str] = ()) -> list[dict[str, int]]:
    """The axes that have no number in `shapes`: a table from input to axis for each name. Inputs in `others` are left
    out."""
    found = dict[object, dict[str, int]]()
    for name, dims in shapes.items():
        for axis, size in enumerate(() if name in others or dims is None else dims):
            if size is None or isinstance(size, str):
                found.setdefault(size or (name, axis), {})[name] = axis
    return [*found.values()]


def _single_frames(
    net: Net, types: Mapping[str, Type], given: Collection[str], axes: Mapping[str, int], dtype: str
) -> list[str]:
    """Labels of ops that see one frame if these axes have one element, and two frames if they have two."""
    try:
        one, two = (prepare(net, _with_frames(types, axes, count), dtype) for count in (1, 2))
    except RnnopsError:  # the axis is not open, or the net needs more frames
        return []
    follows = set(given)
    for call in one.calls:
        if follows.intersection(call.op.inputs) and any(value is None for value in call.output_values):
            follows.update(call.op.outputs)  # its values depend on inputs, not only its sizes
    pairs = zip(one.calls, two.calls, strict=True)
    return [call.op.label for call, other in pairs if _has_no_past(call, other, follows)]


def _with_frames(types: Mapping[str, Type], axes: Mapping[str, int], count: int) -> dict[str, Type]:
    """The types with `count` elements along these axes."""
    found = dict(types)
    for name, axis in axes.items():
        shape = types[name].shape
        found[name] = Type(types[name].dtype, (*shape[:axis], count, *shape[axis + 1 :]))
    return found


def _has_no_past(call: Call, longer: Call, follows: set[str]) -> bool:
    """True for windows or a fill around one frame, and for a step whose initial state is not fed.

    Args:
        longer: the same call in the net of two frames.
        follows: blobs that depend on given inputs.
    """
    if call.op.type == "RecurrentNetwork":
        recurrence = Recurrence(call.op, call.net)
        steps = [recurrence.steps_and_batch(input_types(recurrence, one))[0] for one in (call, longer)]
        initial = [blob for kind, _, blob in recurrence.bindings() if kind == "initial"]
        return steps == [1, 2] and not follows.issuperset(initial)
    schema: Any = schema_of(call.op.type)
    if call.op.type == "Pad":
        widths = schema.widths(call).items()
        return any(max(more) > 0 and (call.shape(0)[i], longer.shape(0)[i]) == (1, 2) for i, more in widths)
    if not is_windowed(call):
        return False
    sizes = zip(schema.geometry(call).spans, call.shape(0)[FIRST_AXIS:], longer.shape(0)[FIRST_AXIS:], strict=True)
    return any(span > 1 and (size, more) == (1, 2) for span, size, more in sizes)
