"""Streams: a run that is called frame by frame and keeps its states from call to call (`Stream`).

A stream is told by name which outputs are states, and which inputs they feed at the next call. All states together are
one value, which is replaced as a whole at the end of a call. So a call that fails changes nothing, and copies of a
stream share arrays.

Rows of the batch are places. `join` takes a place and `leave` gives it back. The batch never shrinks, so that plans can
be used again. Rows that take no part in a call keep their states. Rows must be independent of each other in the net.

Errors of calls come first (`of_stream`), then how a stream is opened (`open_stream`), then `Stream`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from rnnops.compiler.api.compile import on_device
from rnnops.compiler.api.feeds import asked_float_dtype, is_on_cuda, memory_named
from rnnops.compiler.api.run import Run
from rnnops.compiler.api.stream_parts import open_axes, warn_of_single_frames
from rnnops.compiler.api.stream_states import (
    Arrays,
    StateReader,
    States,
    check_names,
    first_states,
    is_number,
    position_of,
    position_to_set,
)
from rnnops.compiler.api.streamed_net import StreamedNet, streamed_net
from rnnops.compiler.memory.memory import on_host
from rnnops.errors import (
    Attributes,
    FeedError,
    RecurrentError,
    RnnopsError,
    StreamError,
    TypeRuleError,
    named_arguments,
)
from rnnops.net.net import Net
from rnnops.types import FLOAT, FLOATS, Array, Type, is_float, type_of
from rnnops.util import counted


def of_stream(error: RnnopsError, net: Net, now: States, fed: Mapping[str, Any]) -> RnnopsError:
    """An error that says which feed does not fit the states of a stream; else the error itself.

    Args:
        error: the error of the run.
        now: the states of the stream.
        fed: the feeds of the caller, by name.
    """
    arrays = {name: value for name, value in fed.items() if isinstance(value, np.ndarray) and name in net.input_names}
    if isinstance(error, FeedError):
        return _of_dtypes(net, now, arrays) or error
    if isinstance(error, RecurrentError | TypeRuleError) and any(state.axis is not None for state in now.places.links):
        return _of_rows(error, now.places.rows, arrays)
    return error


def _of_dtypes(net: Net, now: States, arrays: Mapping[str, np.ndarray]) -> FeedError | None:
    """The error for a float feed whose dtype is not that of the states; None if there is no such feed."""
    wanted = next((state.dtype for state in now.places.links if state.dtype in FLOATS), None)
    for name, array in arrays.items():
        came = str(array.dtype)
        if wanted is not None and is_float(net.dtype_of(name)) and came in FLOATS and came != wanted:
            problem = "a feed has another dtype than the states of the stream"
            short = name if name.isidentifier() else "array"
            hint = f"Convert it: {short}.astype('{wanted}'); dtype= of run.stream says which dtype states have."
            return FeedError(problem, net=net.name, blob=name, wanted=wanted, came=came, hint=hint)
    return None


def _of_rows(error: RnnopsError, rows: int, arrays: Mapping[str, np.ndarray]) -> RnnopsError:
    """The error with the batch size of the stream and the types of its feeds."""
    fed = ", ".join(f"{name} {type_of(array)}" for name, array in arrays.items())
    hint = f"This stream has {counted(rows, 'row')}"
    hint += f", so a sequence of one step is [1, {rows}, ...]" if isinstance(error, RecurrentError) else ""
    hint += f"; it was fed {fed}." if fed else "."
    if isinstance(error, TypeRuleError) and error.hint:
        hint = f"{error.hint} {hint}"  # the first hint says how to feed states
    return type(error)(
        error.problem, net=error.net, op=error.op, blob=error.blob, wanted=error.wanted, came=error.came, hint=hint
    )


Reader = Callable[[str, str, Any], Any]  # (net, input, given value) -> array
Feeds = Mapping[str, Any]


def open_stream(
    run: Run, bound: Feeds, read: Reader, states: Any, rows: int | None, shapes: Any, initial: Any, dtype: Any,
    steps: str | None, of: Callable[[Net], Run],
) -> Stream:  # fmt: skip
    """A stream of a run; arguments as of `Run.stream`.

    Args:
        bound: inputs that are fed already.
        read: how the run reads feeds.
        of: from another net to a run like this one.
    """
    if steps is None:
        opened = _opened(run, bound, read, states, rows, shapes, initial, dtype)
        _warn_of_single_frames(run.net, bound, opened, {} if shapes is None else shapes)
        return opened
    states, shapes = {} if states is None else states, {} if shapes is None else shapes
    check_names(run.net, states, shapes, {}, bound, least=0)
    known = {**shapes, **{name: array.shape for name, array in bound.items()}}
    frames = streamed_net(run.net, steps, known, states)
    kept = {name: frames.shapes[name] for name in frames.states.values()}
    return _opened(of(frames.net), bound, read, frames.states, rows, kept, initial, dtype, frames)


def _warn_of_single_frames(net: Net, bound: Feeds, opened: Stream, shapes: Mapping[str, Any]) -> None:
    """Warn of ops that see nothing of earlier calls, if `shapes` tell which axes of inputs are open."""
    states = {state.input: state.type(opened.rows) for state in opened._now.places.links}
    fed = {name: tuple(shapes[name]) for name in opened._others if shapes.get(name) is not None}
    axes = open_axes(fed)
    if not axes or len(fed) < len(opened._others):
        return
    floats = next((kind.dtype for kind in states.values() if kind.dtype in FLOATS), "float32")
    dtypes = {name: floats if net.dtype_of(name) == FLOAT else net.dtype_of(name) for name in fed}
    ones = {name: Type(dtypes[name], tuple(size if is_number(size) else 1 for size in fed[name])) for name in fed}
    given = {**states, **ones}
    every = {**{name: type_of(on_host(array)) for name, array in bound.items()}, **given}
    warn_of_single_frames(net, every, given, axes, floats)


def _opened(
    run: Run, bound: Feeds, read: Reader, states: Any, rows: int | None, shapes: Any, initial: Any, dtype: Any,
    frames: StreamedNet | None = None,
) -> Stream:  # fmt: skip
    """A stream of a run.

    Args:
        frames: the streamed net of the run, if the run has one.
    """
    net = run.net
    shapes, initial = {} if shapes is None else shapes, {} if initial is None else initial
    check_names(net, states, shapes, initial, bound, least=int(frames is None))
    if rows is not None and not (is_number(rows) and rows >= 0):
        raise StreamError("rows= is not a count", net=net.name, wanted="an integer of 0 or more", came=repr(rows))
    arrays = {name: on_host(read(net.name, name, value)).copy() for name, value in initial.items()}
    reader = StateReader(net, shapes, rows, arrays, asked_float_dtype(net, {**bound, **arrays}, dtype))
    links = [reader.state(output, name) for output, name in states.items()]
    if position := position_to_set(net, [*states.values()], arrays, StreamError):
        arrays[position] = np.ones((), np.int64)
    if rows is not None and links and all(state.axis is None for state in links):
        hint = "Leave rows= out, or name the axis of rows in shapes=; export an ONNX file again with this axis open."
        raise StreamError("rows= is given, but no state has an axis of rows", net=net.name, came=rows, hint=hint)
    counted = () if frames is None else (frames.fed,)
    others = tuple(name for name in net.input_names if name not in (*bound, *states.values(), *counted))
    now = first_states(net.name, links, arrays, 1 if rows is None else int(rows))
    return Stream(run, now, read, others, frames and replace(frames, dtype=reader.float_dtype))


class Stream(Attributes):
    """A run and its states between two calls; `run.stream` makes one. One thread at a time may use it.

    Args:
        run: the run that is called.
        now: the states, and which rows are present.
        read: how the run reads feeds.
        others: inputs that are not states.
        frames: the streamed net, if the net reads chunks of frames.

    Raises:
        StreamError: in calls, for feeds or rows that do not fit, and if two threads use it at once.

    Example:
        >>> net = ro.Net("n")
        >>> x, h = net.inputs("x", "h")
        >>> net.outputs(y=x + h, h_next=x + 0.5 * h)
        >>> stream = ro.compile(net).stream({"h_next": "h"}, rows=2, shapes={"h": ("N", 1)})
        >>> stream(x=np.ones((2, 1), "float32"))["y"].ravel()
        array([1., 1.], dtype=float32)
        >>> stream(x=np.ones((2, 1), "float32"), rows=1)["y"].ravel()
        array([2., 2.], dtype=float32)
        >>> stream.states["h"].ravel()
        array([1. , 1.5], dtype=float32)
    """

    def __init__(
        self, run: Run, now: States, read: Reader, others: Sequence[str], frames: StreamedNet | None = None
    ) -> None:
        self.run = run
        self._now, self._read, self._others, self._frames = now, read, tuple(others), frames
        self._alone = Alone(run.net.name)

    def __repr__(self) -> str:
        states = ", ".join(f"{state.input} {state.type(self.rows)}" for state in self._now.places.links)
        return f"<stream of net '{self.run.net.name}': {self.present.sum()} of {self.rows} rows; states {states}>"

    # -- what is in it ---------------------------------------------------------------------------------------------

    @property
    def states(self) -> Mapping[str, Array]:
        """Input name -> the state that the next call feeds it. These arrays never change: keep, save or load them."""
        return MappingProxyType(self._now.arrays)

    @property
    def rows(self) -> int:
        """Batch size, including free rows."""
        return self._now.places.rows

    @property
    def present(self) -> Array:
        """For each place, True if it is taken: bool[rows]."""
        return self._now.places.present

    @property
    def delay(self) -> dict[str, int]:
        """For a stream with `steps=`: output -> how many of its first frames mean nothing, which is its look-ahead."""
        return {} if self._frames is None else self._frames.delay

    @property
    def chunk(self) -> int:
        """The number of frames of a call must be a multiple of this. It is more than 1 if windows have strides."""
        return 1 if self._frames is None else self._frames.chunk

    def joined(self, parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Results of calls and of `finish` as one call of all frames returns them: joined, without the delay. Outputs
        without frames are those of the last part.

        Args:
            parts: results of all calls since the stream began, and of `finish`.
        """
        whole = dict(parts[-1])
        for name, one in ({} if self._frames is None else self._frames.outputs).items():
            axis = one.place.axis
            every = np.concatenate([part[name] for part in parts], axis)
            whole[name] = every[(slice(None),) * axis + (slice(one.delay, None),)]
        return whole

    # -- steps -----------------------------------------------------------------------------------------------------

    @memory_named(lambda stream: str(stream.run.net.name))
    def __call__(
        self, *feeds: Any, rows: Any = None, seed: int | None = None, stream: Any = None, **named: Any
    ) -> dict[str, Array]:
        """One call of the run, for the next step or steps.

        Args:
            feeds, named: as for the run: all inputs that are not states. If there is one such input, its array may be
                given without a name.
            rows: the rows that take part: a mask or one row; all present rows if left out. Other rows keep their
                states. They must be fed too; their part of outputs means nothing.
            seed: as for the run; give another one at each call.
            stream: a stream of a CUDA device, as for the run.

        Returns:
            Output name -> array, without outputs that are states.

        Raises:
            StreamError: a state is fed, or an output does not fit the input that it feeds; states do not change.
            FeedError: as for the run; states do not change.
        """
        with self._alone:
            now, given = self._now, (*map(self._by_name, feeds), named) if feeds else (named,)
            if rows is not None and "rows" in self._others and not any("rows" in feeds for feeds in given):
                problem = "rows= says which rows take part, and does not feed the input"
                raise self._error(problem, blob="rows", hint="Feed it in a dict: stream({'rows': array}).")
            active = self._active(rows)
            count = {}
            if self._frames is not None:
                frames = self._frames.chunk_in(given, self.rows)
                told = any(self._frames.fed in feeds for feeds in given)
                count = {} if told else self._frames.count_of(frames, self.rows)
            options = {} if stream is None else {"stream": stream}
            placed = self._placed(given, count)
            states = {name: placed[name] for name in now.arrays}
            try:
                out = self.run(placed, *given, seed=seed, **options)
            except RnnopsError as error:
                fed = {name: value for feeds in given for name, value in feeds.items()}
                raise of_stream(error, self.run.net, now, fed) from error
            self._now = replace(now, arrays=states).put(self._new_states(out), active, shared=True)
            return out

    def finish(self, *feeds: Any, rows: Any = None, **named: Any) -> dict[str, Array]:
        """For a stream with `steps=`: the last frames of outputs. The rows then begin anew.

        Join all results of an output along its axis of frames, and leave out the first `stream.delay` frames: this is
        the result of one call of all frames.

        Args:
            feeds, named: as for a call. They may have any number of frames, or be left out.
            rows: the rows that end: a mask or one row; all present rows if left out.

        Returns:
            Output name -> array of the frames that are left.

        Raises:
            StreamError: as for a call; and if the stream was opened without `steps=`, or has fewer frames than its
                windows and cuts need.
        """
        if self._frames is None:
            raise self._error("the stream was opened without steps=", hint="Use run.stream(steps=..., shapes=...).")
        given = (*map(self._by_name, feeds), named)
        tail = self._frames.frames_in(given, self.rows)
        if self._frames.position is not None:
            ended, before = self._active(rows), on_host(self._now.arrays[self._frames.position])
            self._frames.check_ending(before if ended is None or before.size == 1 else before[ended], tail)
        frames, left = self._frames.ending(tail)
        filled = self._frames.filled(given, frames - tail, self.rows)
        others = {name: value for feeds in given for name, value in feeds.items() if name not in filled}
        out = self({**others, **filled, **self._frames.count_of(tail, self.rows)}, rows=rows)
        self.reset(self._active(rows))
        for name, one in self._frames.outputs.items():
            out[name] = out[name][(slice(None),) * one.place.axis + (slice(left[name]),)]
        return out

    def _by_name(self, feed: Any) -> Feeds:
        """Feeds by name. An array without a name is for the only input that is not a state."""
        if not isinstance(feed, Mapping):
            if len(self._others) != 1:
                wanted = f"a dict of {', '.join(self._others) or 'nothing'}"
                raise self._error("an array without a name", wanted=wanted, came=type(feed).__name__)
            return {self._others[0]: feed}
        return feed

    def _active(self, rows: Any) -> Array | None:
        """A mask of the rows that take part in a call; None if all places do."""
        if rows is None:
            return None if self._now.places.full else self.present
        return self._mask(rows, present=True)

    def _placed(self, given: Sequence[Feeds], count: Arrays) -> dict[str, Array]:
        """States on the side of the feeds, the host or a CUDA device. Raises StreamError if a state is fed.

        Args:
            count: the input with the number of frames, if there is one; it is added to the states.
        """
        arrays = {**self._now.arrays, **count}
        for feeds in given:
            if not arrays.keys().isdisjoint(feeds):
                fed = ", ".join(name for name in arrays if name in feeds)
                raise self._error("a state of the stream is fed", blob=fed, hint="stream.load(...) sets states.")
        if self.run.device != "cuda" or not any(given):
            return arrays
        there = any(is_on_cuda(value) for feeds in given for value in feeds.values())
        return {name: on_device(array) if there else on_host(array) for name, array in arrays.items()}

    def _new_states(self, out: dict[str, Array]) -> dict[str, Array]:
        """Take the next states out of the outputs. Raises StreamError if one does not fit the input that it feeds."""
        wanted = self._now.places.dtypes_and_shapes
        new = [(state, out.pop(state.output)) for state, _, _ in wanted]
        for (state, dtype, shape), (_, array) in zip(wanted, new, strict=True):
            if array.shape != shape or array.dtype != dtype:
                raise self._error(
                    f"output '{state.output}' does not fit the input that it feeds",
                    blob=state.input,
                    wanted=state.type(self.rows),
                    came=type_of(array),
                    hint="Give rows= and shapes= that fit this output.",
                )
        return {state.input: array.copy() if _is_part(array, out) else array for state, array in new}

    # -- states ----------------------------------------------------------------------------------------------------

    def reset(self, rows: Any = None) -> None:
        """Set states to their initial values.

        Args:
            rows: a mask or one row. If left out, all rows, and states without an axis of rows too.

        Raises:
            StreamError: there are no such rows.
        """
        with self._alone:
            self._now = self._now.put(self._now.places.started(), None if rows is None else self._mask(rows))

    def load(self, states: Feeds, rows: Any = None) -> None:
        """Set states, for example to earlier `stream.states`, or to those of another stream.

        Args:
            states: input name -> array of the state's dtype that broadcasts to its shape. Other states do not change.
            rows: a mask or one row. If left out, all rows, and states without an axis of rows too.

        Raises:
            StreamError: a name is not a state, an array does not fit, or there are no such rows.
        """
        with self._alone:
            mask, new = None if rows is None else self._mask(rows), self._now.places.fitted(self._arrays(states))
            self._now = self._now.put(self._begun(new, self._now.arrays, mask), mask)

    def copy(self, rows: Any = None) -> Stream:
        """An independent stream with the same states.

        Args:
            rows: numbers of the rows that the copy has, in this order; a row may be given twice.

        Raises:
            StreamError: there are no such rows.
        """
        with self._alone:
            now = self._now if rows is None else self._now.taken(self._numbers(rows))
            return Stream(self.run, now, self._read, self._others, self._frames)

    def __copy__(self) -> Stream:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Stream:
        return self.copy()  # arrays of states never change

    def __reduce__(self) -> NoReturn:
        hint = "Pickle stream.run and dict(stream.states): run.stream(..., initial=states) goes on from there."
        raise self._error("a stream is not pickled", hint=hint)

    @named_arguments
    def join(self, states: Feeds | None = None) -> int:
        """Take a place for a new row: the first free one, or else an additional one. Returns its number.

        Args:
            states: the states of the new row, as for `load`; initial states if left out.

        Raises:
            StreamError: a new place would have no initial states, or the net declares the number of rows.
        """
        with self._alone:
            self._check_rows()
            now = self._now.grown() if self._now.places.full else self._now
            row = int(np.argmin(now.places.present))
            mask = np.arange(now.places.rows) == row
            first, given = now.places.started(), now.places.fitted(self._arrays(states or {}))
            self._now = now.put({**first, **self._begun(given, first, mask)}, mask).with_present(
                now.places.present | mask
            )
            return row

    def leave(self, rows: Any) -> None:
        """Give back the places of rows, so that new rows can take them.

        Args:
            rows: a mask or one row.

        Raises:
            StreamError: one of these places is not taken.
        """
        with self._alone:
            mask, now = self._mask(rows, present=True), self._now
            self._now = now.put(now.places.started(), mask).with_present(now.places.present & ~mask)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _arrays(self, states: Feeds) -> dict[str, Array]:
        """States that a user gives, as arrays on the host."""
        if not isinstance(states, Mapping):
            raise self._error("states are a dict of input name -> array", came=type(states).__name__)
        return {name: on_host(self._read(self.run.net.name, name, value)) for name, value in states.items()}

    def _begun(self, new: dict[str, Array], before: Arrays, mask: Array | None) -> dict[str, Array]:
        """New states, with the position that makes a streamed net read them. Raises StreamError if it cannot be
        known."""
        names = [state.input for state in self._now.places.links]
        counted = position_of(names)
        if counted is not None and counted not in new:
            old = on_host(before[counted])
            if old[slice(None) if mask is None or old.size != mask.size else mask].all():
                return new  # these rows have frames already
        position = position_to_set(self.run.net, names, new, StreamError)
        return new if position is None else {**new, position: np.maximum(on_host(before[position]), 1)}

    def _mask(self, rows: Any, present: bool = False) -> Array:
        """Rows as a mask. Raises StreamError for a value that is neither a mask nor a row, and, with `present`, for
        free places."""
        self._check_rows()
        truths = isinstance(rows, list | tuple) and all(isinstance(one, bool | np.bool_) for one in rows)
        mask = np.array(rows, bool) if truths else rows
        if is_number(rows) and 0 <= rows < self.rows:
            mask = np.arange(self.rows) == rows
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (self.rows,):
            wanted = f"a number from 0 to {self.rows - 1}, or a mask, bool[{self.rows}]"
            raise self._error("the stream has no such row", wanted=wanted, came=repr(rows))
        free = np.flatnonzero(mask & ~self.present)
        if present and free.size:
            raise self._error("this place is not taken", came=f"row {free[0]}", hint="stream.join() gives one.")
        return mask

    def _numbers(self, rows: Any) -> list[int]:
        """Numbers of rows as a list. Raises StreamError for numbers that are not rows."""
        self._check_rows()
        numbers = rows.tolist() if isinstance(rows, np.ndarray) else rows
        right = isinstance(numbers, list | tuple) and all(is_number(row) and 0 <= row < self.rows for row in numbers)
        if not right:
            raise self._error(
                "the stream has no such rows", wanted=f"a list of numbers from 0 to {self.rows - 1}", came=repr(rows)
            )
        return [int(row) for row in numbers]

    def _check_rows(self) -> None:
        if all(state.axis is None for state in self._now.places.links):
            hint = "Say rows=, or shapes= with a name for the axis of rows."
            raise self._error("no state of this stream has an axis of rows", hint=hint)

    def _error(self, problem: str, **named: Any) -> StreamError:
        return StreamError(problem, net=self.run.net.name, **named)


class Alone:
    """A lock for one thread. It raises StreamError if another thread has it."""

    def __init__(self, net: str) -> None:
        self._net, self._lock = net, Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            hint = "Give each thread a stream of its own: stream.copy()."
            raise StreamError("two threads use one stream at once", net=self._net, hint=hint)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _is_part(array: Array, others: Mapping[str, Array]) -> bool:
    """True if an array shares memory with one that the caller gets."""
    return any(np.may_share_memory(array, other) for other in others.values())
