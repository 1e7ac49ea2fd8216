"""A streamed net: a net that reads its sequence in chunks, and keeps the earlier frames that ops need as states.

Each op of a net for whole sequences is translated into ops for a chunk of frames. An op that does not mix frames stays
unchanged. Windows over frames also get frames before the chunk. A recurrence begins with its last states. If a window
looks ahead, its result comes later. An op with several operands waits for the latest one. `stream_parts.py` finds where
frames and rows are in each blob.

Limits: these are errors: an op that needs all frames, such as a sum over them, attention, or a sequence that is read
backwards; an op that computes with the number of frames; and a fill that is not a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import ceil, lcm
from typing import Any

import numpy as np

from rnnops.compiler.api.stream_parts import (
    EVERYTHING,
    MERGED,
    AxisPlace,
    Frames,
    Places,
    StreamParts,
    carried,
    is_windowed,
)
from rnnops.compiler.api.stream_states import FRAMES, ROWS, Dims, check_names, dims_of, programs_of, types_of
from rnnops.compiler.lower.scan import MixedError
from rnnops.compiler.memory.memory import on_host
from rnnops.errors import RnnopsError, StreamError, named_arguments
from rnnops.interpreter import Program, merge_equal_ops, prepare, prune
from rnnops.net.loop_forms import Pointwise, View
from rnnops.net.net import Net, require_net
from rnnops.net.op import Input, Op, free_name
from rnnops.net.schema import Call, form_of, schema_of
from rnnops.ops.reduction import FIRST_AXIS
from rnnops.recurrent.recurrence import Recurrence, cell_program, input_types
from rnnops.types import FLOAT, Array

Feeds = Mapping[str, Any]
NOT_STREAMED = "Nothing streams it frame by frame: call it for whole sequences, or for parts of them."


@dataclass(frozen=True)
class StreamedNet:
    """A net for a chunk of frames, with states.

    Attributes:
        net: for streams, C and ONNX.
        states: output -> the input that it feeds at the next call; all begin with zeros.
        shapes: input -> numbers, `"N"` for the rows and `"T"` for the frames.
        axes: input with frames -> their axis.
        outputs: output with frames -> how its frames come.
        inside: how frames come in recurrences whose last state is read.
        fed: an int64 input `[rows]` with the number of frames of a call; None if the net does not need it.
        least: the least number of frames of a stream; its windows and cuts need them.
        position: the state `[rows]` with the number of frames of earlier calls; None if the net does not need it.
        chunk: the number of frames of a call is a multiple of this.
        dtype: dtype of floats if no array decides it.
    """

    net: Net
    states: Mapping[str, str]
    shapes: Mapping[str, Dims]
    axes: Mapping[str, int]
    outputs: Mapping[str, Frames]
    inside: Sequence[Frames]
    fed: str | None
    least: int
    position: str | None
    chunk: int
    dtype: str = "float32"

    def __str__(self) -> str:
        return str(self.net)

    @property
    def delay(self) -> dict[str, int]:
        """Output -> how many of its first frames mean nothing."""
        return {name: frames.delay for name, frames in self.outputs.items()}

    def facts(self) -> dict[str, dict[str, Any]]:
        """Input or output -> facts for headers and manifests: the delay of an output, the meaning of an input."""
        told: dict[str, dict[str, Any]] = {name: {"delay": delay} for name, delay in self.delay.items()}
        return told if self.fed is None else {self.fed: {"meaning": "frames of this call, 0 behind the last"}, **told}

    def ending(self, frames: int) -> tuple[int, dict[str, int]]:
        """For an end with `frames` more frames: the number of frames of the last call, in whole chunks; and output ->
        the number of frames that it still returns."""
        left = {name: max(one.count(frames) + one.delay, 0) for name, one in self.outputs.items()}
        every = (*self.outputs.values(), *self.inside)
        needed = max([1, frames, *(ceil((one.count(frames) + one.delay) / one.rate) for one in every)])
        return -(-needed // self.chunk) * self.chunk, left

    def check_ending(self, before: Array, frames: int) -> None:
        """Raise StreamError if a stream ends before it has as many frames as windows and cuts need.

        Args:
            before: the number of frames of earlier calls, for each row that ends.
            frames: the number of frames of the last call.
        """
        total = int(before.min(initial=self.least)) + frames
        if total < self.least:
            problem = "the stream is shorter than a window or a cut: its results would differ from those of one call"
            hint = "Feed more frames before stream.finish(...), or begin anew: stream.reset(...)."
            raise self._error(problem, wanted=f"{self.least} frames or more", came=total, hint=hint)

    def chunk_in(self, given: Sequence[Feeds], rows: int) -> int:
        """The number of frames of a call. Raises StreamError if it is not a multiple of `chunk`."""
        frames, named = self.frames_in(given, rows), any(name in feeds for name in self.axes for feeds in given)
        if named and (frames % self.chunk or not frames):
            hint = "stream.finish(...) takes the last frames, any number of them."
            raise self._error("wrong number of frames", wanted=f"a multiple of {self.chunk}", came=frames, hint=hint)
        return frames

    def frames_in(self, given: Sequence[Feeds], rows: int) -> int:
        """The number of frames that are fed, 0 if none are. Raises StreamError for sizes that do not fit."""
        shapes = {name: np.shape(value) for feeds in given for name, value in feeds.items() if name in self.shapes}
        for name, shape in shapes.items():
            wanted = [rows if size == ROWS else size for size in self.shapes[name]]
            if len(shape) != len(wanted) or any(size not in (FRAMES, shape[i]) for i, size in enumerate(wanted)):
                told = f"[{', '.join(map(str, wanted))}]{', of T frames' * (FRAMES in wanted)}"
                raise StreamError("a feed has another shape", net=self.net.name, blob=name, wanted=told, came=[*shape])
        sizes = [shapes[name][axis] if name in shapes else 0 for name, axis in self.axes.items()]
        if len({*sizes}) > 1:
            came = ", ".join(f"{size} of '{name}'" for name, size in zip(self.axes, sizes, strict=True))
            raise self._error("inputs have different numbers of frames", came=came)
        return sizes[0]

    def count_of(self, frames: int, rows: int) -> dict[str, Array]:
        """The input that tells the net how many frames a call feeds."""
        return {} if self.fed is None else {self.fed: np.full(self._sizes(self.fed, rows), frames, np.int64)}

    def filled(self, given: Sequence[Feeds], more: int, rows: int) -> dict[str, Array]:
        """The feeds of inputs with frames, with `more` frames of zeros behind them."""
        fed = {name: on_host(value) for feeds in given for name, value in feeds.items() if name in self.axes}
        for name, axis in self.axes.items():
            dtype = self.net.dtype_of(name)
            array = fed.setdefault(name, np.zeros(self._sizes(name, rows), self.dtype if dtype == FLOAT else dtype))
            zeros = np.zeros((*array.shape[:axis], more, *array.shape[axis + 1 :]), array.dtype)
            fed[name] = np.concatenate([array, zeros], axis)
        return fed

    def _sizes(self, name: str, rows: int) -> list[int]:
        """The sizes of an input, with 0 for frames."""
        return [rows if size == ROWS else 0 if isinstance(size, str) else size for size in self.shapes[name]]

    def _error(self, problem: str, **details: Any) -> StreamError:
        return StreamError(problem, net=self.net.name, blob=", ".join(self.axes), **details)


@named_arguments
def streamed_net(
    net: Net, steps: str, shapes: Mapping[str, Any], states: Mapping[str, str] | None = None
) -> StreamedNet:
    """The net for a chunk of frames: windows over frames and recurrences continue where the last call stopped.

    Args:
        net: for whole sequences of any length.
        steps: the name of the size that counts frames.
        shapes: input -> numbers, `steps` for the axis of frames, another name for the axis of rows, as
            `(1, "N", "T", 64)`; inputs with declared shapes may be left out.
        states: output -> the input that it feeds at the next call, for states that the net has already.

    Returns:
        A `StreamedNet`. `Run.stream(steps=...)` makes one and calls it.

    Raises:
        StreamError: names or shapes do not fit, or an op needs all frames; the error names it.

    Example:
        >>> net = ro.Net("mean")
        >>> net.outputs(y=ro.average_pool(net.input("x"), [3], pads=[2, 0], count_include_pad=1))
        >>> streamed = ro.streamed_net(net, "T", {"x": ("N", 1, "T")})
        >>> dict(streamed.states), streamed.shapes["x/frames"], streamed.delay
        ({'x/frames_next': 'x/frames'}, ('N', 1, 2), {'y': 0})
    """
    require_net(net)
    check_names(net, {} if states is None else states, shapes, {}, (), least=0)
    links, net = dict(states or {}), prune(net)
    dims = dims_of(net, steps, shapes)
    programs = programs_of(net, dims)
    writer = _StreamWriter(programs, links, dims, ends=False)
    found = writer.written()
    if found.chunk > 1 or found.inside or any(found.ending(0)[1].values()):
        writer = _StreamWriter(programs, links, dims, ends=True)
        found = writer.written()
    writer.check(found)
    return found


class _StreamWriter(StreamParts):
    """Writes the streamed net, op by op.

    Args:
        programs: the net for several numbers of frames.
        links: states that the net has already: output -> input.
        dims, ends: as of `StreamParts`.

    Attributes:
        counts: blobs whose values depend on the number of frames.
        grown: blobs whose sizes depend on the number of frames, but which only repeat values.
        uniform: blob with one known number in all elements -> this number.
        given: blobs that depend on states of `links`.
        so_far: blobs that depend on last states of recurrences.
        inside: how frames come in recurrences whose last state is read.
        row_places: where rows are in the results of the current call.
    """

    def __init__(
        self, programs: Sequence[Program], links: Mapping[str, str], dims: Mapping[str, Dims], ends: bool
    ) -> None:
        super().__init__(programs[0], dims, ends)
        self.links = links
        self.calls = [{call.op.key: call for call in program.calls} for program in programs]
        self.inputs += [
            replace(s, shape=None, fixed={}) if {FRAMES, ROWS} & {*dims[s.name]} else s for s in self.net.input_specs
        ]
        self.counts, self.grown, self.given = set[str](), set[str](), {*links.values()}
        self.uniform, self.so_far, self.inside = dict[str, Any](), set[str](), list[Frames]()
        self.row_places: Places = ()

    def written(self) -> StreamedNet:
        """The net. Raises StreamError for an op that cannot be streamed."""
        for call in self.program.calls:
            try:
                self._add(call)
            except MixedError as reason:
                blob = next((name for name in call.op.inputs if name in self.frames), None)
                problem = f"this op cannot be streamed: {reason}"
                raise StreamError(problem, net=self.net.name, op=call.op.label, blob=blob, hint=NOT_STREAMED) from None
        outputs, blobs = {}, {}
        for name, blob in self.net.output_blobs.items():
            blobs[name] = self.blob(blob)
            if blob in self.counts | self.grown or (blob in self.frames and not self.frames[blob].place.alone):
                wrong = "an output depends on the number of frames, or has frames merged with another axis"
                raise StreamError(wrong, net=self.net.name, blob=blob, hint="Give frames an axis of their own.")
            if blob in self.frames:
                outputs[name] = replace(self.frames[blob], delay=self.frames[blob].certain)
                blobs[name] = self.late(blob, outputs[name].delay)
        lying = {frames.sizes: frames for frames in self.frames.values()}.values()
        least = next(number for number in count(1) if all(frames.fits(number) for frames in lying))
        position = self.counter("position") if least > 1 else None
        ends = {free_name(f"{name}_next", self.taken): name for name in self.made}
        made = {**blobs, **{end: self.made[name] for end, name in ends.items()}}
        net = merge_equal_ops(prune(self.net.with_ops([*self.ops, *self.closing], made, self.inputs)))
        chunk, fed = lcm(*(frames.rate.denominator for frames in lying)), self.counters.get("fed")
        states = {**self.links, **ends}
        return StreamedNet(net, states, self.dims, self.axes, outputs, self.inside, fed, least, position, chunk)

    def check(self, found: StreamedNet) -> None:
        """Raise StreamError if blobs of a chunk do not have the sizes that they have in a whole sequence."""
        for frames in (found.chunk, 3 * found.chunk):
            types = types_of(found.net, self.dims, frames)
            try:
                types = dict(prepare(found.net, types, "float32").types)
            except RnnopsError as error:
                problem = f"the net does not run with one chunk: {error.problem}"
                raise StreamError(problem, net=self.net.name, op=error.op, blob=error.blob) from error
            for name, one in self.frames.items():
                place, came = one.place, types.get(self.blob(name))
                size = int(frames * one.rate) * place.outer * place.inner
                shape = self.program.types[name].shape
                wanted = (*shape[: place.axis], size, *shape[place.axis + 1 :])
                if came is not None and came.shape != wanted and not (one.before or one.after):
                    problem = "a blob of a chunk does not have the sizes that it has in a whole sequence"
                    raise StreamError(problem, net=self.net.name, blob=name, wanted=list(wanted), came=came)

    # -- ops -------------------------------------------------------------------------------------------------------

    def _add(self, call: Call) -> None:
        """Add the ops of the streamed net for one op. Raises MixedError if the op cannot be streamed."""
        op, is_late = call.op, not self.so_far.isdisjoint(call.op.inputs)
        self._note(call)
        first = self.frames.get(op.inputs[0]) if op.inputs else None
        if all(value is not None for value in call.output_values) or not any(name in self.frames for name in op.inputs):
            self.ops.append(self._renamed(op))
            self.so_far.update(op.outputs if is_late else ())
        elif is_late:
            raise MixedError("it reads the last state of a recurrence, which is known only at the end")
        elif op.type in ("Slice", "Pad", "Concat") and (ends := self._ends(call)) is not None:
            self._cut(call, *ends)
        elif first is not None and is_windowed(call) and first.place.axis >= FIRST_AXIS:
            (self._spread if op.type == "ConvTranspose" else self._slide)(call, first)
        elif op.type == "RecurrentNetwork" and self._steps_are_frames(call):
            self._step(call)
        else:
            self._local(call)

    def _note(self, call: Call) -> None:
        """Note where rows are, which blobs depend on the number of frames, and which have one known number."""
        op = call.op
        try:
            self.row_places = carried(call, [self.rows.get(name) for name in op.inputs])
        except MixedError:
            self.row_places = [None] * len(op.outputs)
        self.rows.update(zip(op.outputs, self.row_places, strict=True))
        self.given.update(() if self.given.isdisjoint(op.inputs) else op.outputs)
        value = self._uniform(call)
        self.uniform.update({} if value is None else dict.fromkeys(op.outputs, value))
        self._note_counts(call)

    def _uniform(self, call: Call) -> Any:
        """The number in all elements of a result; None if it is not known, or they differ."""
        form = form_of(call)
        if call.op.type == "ConstantOfShape":
            return call.attr("value")
        if isinstance(form, View) and call.op.type != "Pad":
            found = {self.uniform.get(name) for name in (call.op.inputs if form.all_inputs else call.op.inputs[:1])}
        else:
            values = [value for some in self._values(call) for value in some]
            found = {item for value in values for item in ([None] if value is None else value.ravel().tolist())}
        return found.pop() if len(found) == 1 else None

    def _elsewhere(self, call: Call) -> list[Call]:
        """The call in the nets for other numbers of frames."""
        return [calls[call.op.key] for calls in self.calls[1:]]

    def _values(self, call: Call) -> list[tuple[Array | None, ...]]:
        """The values of its results in each net. The third net is left out if its values are too large to be known."""
        some = [one.output_values for one in (call, *self._elsewhere(call))]
        return some[:2] if any(value is None for value in some[-1]) else some

    def _note_counts(self, call: Call) -> None:
        """Note which results depend on the number of frames. Raises MixedError for an op that computes with it."""
        op, other, schema = call.op, self._elsewhere(call)[0], schema_of(call.op.type)
        ports = [port.rstrip("?*") for port in schema.inputs]
        read = {ports[min(i, len(ports) - 1)] for i, name in enumerate(op.inputs) if name in self.counts}
        values = self._values(call)
        known = [value is not None for some in values for value in some]
        if not read <= {*schema.static} and not all(known):
            raise MixedError("it computes with the number of frames")
        grown = call.output_types != other.output_types
        if op.outputs[0] in self.uniform:
            self.grown.update(op.outputs if grown else ())
        elif all(known):
            same = all(np.array_equal(a, b) for some in values[1:] for a, b in zip(values[0], some, strict=True))  # type: ignore[arg-type]
            self.counts.update(() if same else op.outputs)
        elif not any(name in self.frames for name in op.inputs):
            if isinstance(form_of(call), Pointwise) or op.type in ("Expand", "Reshape"):
                self.grown.update(op.outputs if grown else ())
            elif read or grown or any(known) or not self.grown.isdisjoint(op.inputs):
                self.counts.update(op.outputs)

    def _local(self, call: Call) -> None:
        """Add an op that does not mix frames. Its operands wait for the latest one."""
        framed = {name: self.frames[name] for name in call.op.inputs if name in self.frames}
        if len({frames.rate for frames in framed.values()}) > 1:
            raise MixedError("its operands have different numbers of frames")
        delay = max(0, *(frames.delay for frames in framed.values()))
        places = carried(call, [framed[name].place if name in framed else None for name in call.op.inputs])
        waiting = {name: self.late(name, delay) for name in framed}
        self.ops.append(self._renamed(call.op, waiting))
        like = replace(next(iter(framed.values())), delay=delay, before=0, after=0)
        made = zip(call.op.outputs, places, strict=True)
        self.frames |= {name: replace(like, place=place) for name, place in made if name and place}

    def _ends(self, call: Call) -> tuple[str, int, int, int, Any] | None:
        """For an op that changes the ends of the axis of frames: (operand, frames added at the begin, frames added at
        the end, step, fill); None for any other op."""
        if call.op.type == "Concat":
            return self._joined(call)
        name, is_pad = call.op.inputs[0], call.op.type == "Pad"
        ends, *others = (self._ends_of(one, self.frames[name].place.axis) for one in (call, *self._elsewhere(call)))
        if any(other != ends for other in others) or ends[2] < 1:
            raise MixedError("it takes frames by their total number, or in reverse order")
        if ends == (0, 0, 1):
            return None
        if is_pad and call.attr("mode") != "constant" and max(ends[:2]) > 0:
            raise MixedError(f"mode '{call.attr('mode')}' repeats frames")
        fill = 0 if not is_pad else self.uniform.get(call.op.inputs[2]) if call.has(2) else call.attr("constant_value")
        if fill is None:
            raise MixedError("its fill around the frames is not a constant")
        return (name, *ends, fill)

    def _ends_of(self, call: Call, axis: int) -> tuple[int, int, int]:
        """For a Slice or Pad: how many frames are added at the begin and at the end, and the step."""
        schema: Any = schema_of(call.op.type)
        if call.op.type == "Pad":
            return (*schema.widths(call).get(axis, (0, 0)), 1)
        size = call.shape(0)[axis]
        cut = range(*schema.cuts(call).get(axis, slice(None)).indices(size))
        return (-cut.start, cut.stop - size, cut.step)

    def _joined(self, call: Call) -> tuple[str, int, int, int, Any] | None:
        """The same for a Concat of frames with blobs of one number."""
        axis, elsewhere = call.axis(call.attr("axis"), call.output_types[0].rank), self._elsewhere(call)
        place, *more = (i for i, name in enumerate(call.op.inputs) if name in self.frames)
        if self.frames[call.op.inputs[place]].place.axis != axis:
            return None
        others = [i for i in range(len(call.op.inputs)) if i != place]
        fills = {self.uniform.get(call.op.inputs[i]) for i in others}
        sizes = [kind.shape[axis] for kind in call.types if kind]
        if (
            more
            or len(fills) > 1
            or None in fills
            or any(one.shape(i)[axis] != sizes[i] for i in others for one in elsewhere)
        ):
            raise MixedError("it joins frames with blobs that are not a fixed number of equal constants")
        return call.op.inputs[place], sum(sizes[:place]), sum(sizes[place + 1 :]), 1, next(iter(fills), 0)

    def _cut(self, call: Call, name: str, before: int, after: int, step: int, fill: Any) -> None:
        """Add an op that changes the ends of the axis of frames: frames get other numbers. On other axes it works as
        before."""
        made, axis = call.op.outputs[0], self.frames[name].place.axis
        if not self.frames[name].place.alone:
            raise MixedError(MERGED)
        blob, frames = self.padded(name, max(before, 0), max(after, 0), fill)
        blob = self._other_axes(call, blob, axis, fill)
        cut, end = max(-before, 0), max(-after, 0)
        starts, stops = max(frames.before - cut, 0), max(frames.after - end, 0)
        frames = replace(frames, delay=frames.delay + cut, before=starts, after=stops).longer(-cut - end)
        if step > 1:
            self._set(made, blob, frames, call)
            blob, frames = self.window(made, blob, frames, 1, step)
            blob = self.op("Slice", blob, starts=(0,), ends=(EVERYTHING,), axes=(axis,), steps=(step,))
        self._set(made, blob, frames, call)

    def _other_axes(self, call: Call, blob: str, axis: int, fill: Any) -> str:
        """Add the part of a Slice or Pad that is on other axes than that of frames."""
        schema: Any = schema_of(call.op.type)
        if call.op.type == "Slice" and (cuts := {i: cut for i, cut in schema.cuts(call).items() if i != axis}):
            starts, ends, steps = zip(*((cut.start, cut.stop, cut.step) for cut in cuts.values()), strict=True)
            return self.op("Slice", blob, axes=(*cuts,), starts=starts, ends=ends, steps=steps)
        if call.op.type == "Pad" and (
            pads := {i: pad for i, pad in schema.widths(call).items() if i != axis and any(pad)}
        ):
            around = (*(begin for begin, _ in pads.values()), *(end for _, end in pads.values()))
            return self.op("Pad", blob, axes=(*pads,), pads=around, mode=call.attr("mode"), constant_value=fill)
        return blob

    def _set(self, name: str, blob: str, frames: Frames, call: Call) -> None:
        """Note the blob for a result of a call, and how its frames come."""
        place = frames.place
        size = call.output_types[0].shape[place.axis] // (place.outer * place.inner)
        self.blobs[name], self.frames[name] = blob, replace(frames, place=replace(place, size=size))

    def _slide(self, call: Call, frames: Frames) -> None:
        """Add a Conv or a pooling over frames; earlier frames that its windows need are put before the chunk."""
        op, schema, axis = call.op, schema_of(call.op.type), frames.place.axis
        geometry, (begin, end, stride, span) = self._geometry(call, axis)
        if begin + end and op.type == "AveragePool" and not call.attr("count_include_pad"):
            raise MixedError("its means at the ends are over fewer frames; with count_include_pad=1 they are not")
        fill = schema.around(call.dtype(0)) if hasattr(schema, "around") else 0
        name = op.inputs[0]
        blob, frames = self.window(name, *self.padded(name, begin, end, fill), span, stride)
        self._add_windowed(call, blob, geometry, axis - FIRST_AXIS, (0, 0))
        self._set(op.outputs[0], op.outputs[0], frames, call)

    def _spread(self, call: Call, frames: Frames) -> None:
        """Add a ConvTranspose over frames. A frame of its result depends on earlier frames within its kernel."""
        op, axis, name = call.op, frames.place.axis, call.op.inputs[0]
        geometry, (begin, end, stride, span) = self._geometry(call, axis)
        more = -(-(span - 1) // stride)
        blob, padded = self.padded(name, more, more, 0, least=-(begin // stride))
        delay = (padded.delay + more) * stride + begin
        blob = self.seen(name, blob, padded, more)
        self._add_windowed(call, blob, geometry, axis - FIRST_AXIS, (more * stride, span - stride))
        sizes = (*frames.sizes, (-1, 1, stride, span - begin - end, 1))
        made = replace(frames, rate=frames.rate * stride, delay=delay, before=0, after=0, sizes=sizes)
        self._set(op.outputs[0], op.outputs[0], made, call)

    def _geometry(self, call: Call, axis: int) -> tuple[Any, tuple[int, ...]]:
        """The geometry of windows; and, along the axis of frames, (pad before, pad after, stride, span of a window)."""
        schema: Any = schema_of(call.op.type)
        if any(name in self.frames for name in call.op.inputs[1:]):
            raise MixedError("its weights have frames")
        if call.op.attributes.get("ceil_mode"):
            raise MixedError("with ceil_mode its last window depends on the number of frames")
        geometry, *elsewhere = map(schema.geometry, (call, *self._elsewhere(call)))
        along, *others = (
            (g.begins[i], g.ends[i], g.strides[i], g.spans[i])
            for g in (geometry, *elsewhere)
            for i in [axis - FIRST_AXIS]
        )
        if any(other != along for other in others):
            raise MixedError("its pads depend on the number of frames")
        if not self.frames[call.op.inputs[0]].place.alone and along != (0, 0, 1, 1):
            raise MixedError(MERGED)
        return geometry, along

    def _add_windowed(self, call: Call, blob: str, geometry: Any, place: int, pads: tuple[int, int]) -> None:
        """Append an op over windows with other pads along one axis. A negative end is `output_padding`."""
        begins, ends = list(geometry.begins), list(geometry.ends)
        begins[place], ends[place] = pads
        attributes = {n: v for n, v in call.op.attributes.items() if n not in ("auto_pad", "output_shape")}
        attributes["pads"] = (*begins, *(max(end, 0) for end in ends))
        if call.op.type == "ConvTranspose":
            attributes["output_padding"] = tuple(max(-end, 0) for end in ends)
        self.ops.append(replace(self._renamed(call.op, {call.op.inputs[0]: blob}), attributes=attributes))

    def _renamed(self, op: Op, others: Mapping[str, str] | None = None) -> Op:
        names = {**self.blobs, **(others or {})}
        return replace(op, inputs=tuple(names.get(name, name) for name in op.inputs))

    # -- recurrences -----------------------------------------------------------------------------------------------

    def _steps_are_frames(self, call: Call) -> bool:
        """True if a recurrence steps over frames."""
        first = [self.frames.get(name) for name in call.op.inputs[: len(Recurrence(call.op, "").sequences)]]
        return any(frames is not None and frames.place.axis == 0 for frames in first)

    def _step(self, call: Call) -> None:
        """Add a recurrence over frames. It begins with its last states, and keeps them in steps without a frame."""
        op, recurrence = call.op, Recurrence(call.op, self.net.name)
        count = len(recurrence.sequences)
        framed = [self.frames[name] for name in op.inputs[:count] if name in self.frames]
        self._check_recurrence(recurrence, call, framed)
        lasts = self._lasts(call)
        delay = max(0, *(frames.certain if lasts else frames.delay for frames in framed))
        inputs = [self.late(name, delay) if name in self.frames else name for name in op.inputs[:count]]
        attributes, outputs, hold = dict(op.attributes), list(op.outputs), self._valid(call, delay, bool(lasts))
        places = range(count, count + len(recurrence.states))
        inputs += [self._state(call, i, outputs) for i in places] + [*op.inputs[count + len(places) :]]
        if hold:
            inputs.insert(count, hold)
            cell, flag = _holding(recurrence, cell_program(recurrence, call))
            attributes |= {"cell": cell, "inputs": (*recurrence.sequences, flag)}
        self.so_far.update(lasts)
        names = tuple(self.blob(name) for name in inputs)
        self.ops.append(replace(op, inputs=names, outputs=tuple(outputs), attributes=attributes))
        like = replace(framed[0], delay=delay, before=0, after=0)
        self.frames |= {n: replace(like, place=AxisPlace(0, like.place.size)) for n in op.outputs[::2] if n}

    def _check_recurrence(self, recurrence: Recurrence, call: Call, framed: Sequence[Frames]) -> None:
        """Raise MixedError for a recurrence that needs more than the steps so far."""
        lying = {(frames.place, frames.rate) for frames in framed}
        bound, initial = {*recurrence.op.inputs[len(recurrence.sequences) :]}, input_types(recurrence, call)
        initial_steps = (initial[s.input].shape[: -s.feature_rank - 1] for s in recurrence.states)  # () or (L,)
        for problem, found in {
            "it reads its sequence backwards, so that its first step needs the last": recurrence.reverse,
            "its cell reads the number of the step, as with lengths= and truncate=": recurrence.timestep,
            "it adds up all steps": recurrence.sums,
            "it reads steps of a state before the last one": any(axes > (1,) for axes in initial_steps),
            "one of its states or references has frames": bound & self.frames.keys(),
            "its sequences have frames along other axes": len(lying) > 1 or not framed[0].place.alone,
        }.items():
            if found:
                raise MixedError(problem)

    def _lasts(self, call: Call) -> list[str]:
        """Last states of a recurrence that are read. Raises MixedError if the last step of another output is read."""
        count = 2 * len(Recurrence(call.op, self.net.name).states)
        used = {*self.net.output_blobs.values(), *(name for op in self.net.ops for name in op.inputs)}
        if used.intersection(filter(None, call.op.outputs[count + 1 :: 2])):
            raise MixedError("the last step of an output that is not a state is read")
        return [name for name in call.op.outputs[1:count:2] if name in used]

    def _valid(self, call: Call, delay: int, lasts: bool) -> str | None:
        """A sequence of bools `[T, N]`, true in steps with a frame; None if all steps have one."""
        recurrence = Recurrence(call.op, self.net.name)
        name = next(name for name in call.op.inputs if name in self.frames)
        like = replace(self.frames[name], delay=delay, before=0, after=0)
        self.inside += [like] * lasts
        if not delay and not (self.ends and lasts):
            return None
        rows, batch = self.rows.get(name), recurrence.steps_and_batch(input_types(recurrence, call))[1]
        valid = self.between(self.late(name, delay), like, 0, 2, rows, delay > 0, self.ends and lasts)
        return valid if rows else self.op("Expand", valid, shape=(1, batch))

    def _state(self, call: Call, place: int, outputs: list[str]) -> str:
        """The initial state of a recurrence: its last state, or, at the first call, the initial state of the net."""
        recurrence, initial = Recurrence(call.op, self.net.name), call.op.inputs[place]
        if initial in self.given:
            return initial
        number = place - len(recurrence.sequences)
        state, last = recurrence.states[number], 2 * number + 1
        kind, rows = call.output_types[last], self.row_places[last]
        name = outputs[last] = outputs[last] or free_name(f"{call.op.key}/{state.output}_last", self.taken)
        dtype = self.net.dtype_of(initial)
        blob = self.kept(f"{call.op.key}/{state.input}", name, dtype, kind.shape, rows)
        if self.uniform.get(initial) == 0:
            return blob
        begun = self.row_line(self.op("Greater", self.counter("position"), 0), rows, kind.rank)
        return self.op("Where", begun, blob, self.blob(initial))


def _holding(recurrence: Recurrence, program: Program) -> tuple[Net, str]:
    """A cell that keeps its states in steps without a frame; and its new input, which is true in steps with a frame.

    rewrite: `h = f(x, h_prev)`  -->  `h = Where(valid, f(x, h_prev), h_prev)`
    """
    cell = recurrence.cell
    taken = {*cell.blob_names}
    flag, ops, outputs = free_name("valid", taken), list(cell.ops), dict(cell.output_blobs)
    for state in recurrence.states:
        axes = tuple(range(1, program.types[state.input].rank))
        wide, kept = free_name("valid/wide", taken), free_name(f"{state.output}/kept", taken)
        ops.append(Op("Unsqueeze", (flag,), (wide,), {"axes": axes}))
        ops.append(Op("Where", (wide, outputs[state.output], state.input), (kept,)))
        outputs[state.output] = kept
    return cell.with_ops(ops, outputs, [*cell.input_specs, Input(flag, "bool")]).snapshot(), flag
