"""States of a stream and sizes of its inputs: as a user gives them, and the values of states row by row.

**States of a stream as values** (`States`): the states with which a call begins, row by row. Methods make new states
and never change old ones. Arrays are read-only, so that states can share them.

**Sizes** (`dims_of`, `programs_of`). A net is prepared for several numbers of frames. All values that differ between
them depend on the number of frames.

**Counters of a streamed net** (`position_to_set`), if a caller gives some of its states. A recurrence begins with the
initial state of the net while the state `stream/position` is 0. So a state that a caller gives is read only if the
position is above 0. If the position has no other use, it is set to 1. If windows with a look-ahead count frames by it,
the true number is needed, and the caller has to give it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnops.compiler.memory.memory import on_host, read_only
from rnnops.errors import RnnopsError, StreamError
from rnnops.interpreter import Program, prepare
from rnnops.net.net import Net
from rnnops.recurrent.recurrence import Recurrence
from rnnops.types import FLOAT, Array, Shape, TwinArray, Type, type_of
from rnnops.util import cached_property

Arrays = Mapping[str, Array]
Dims = tuple[int | str, ...]
FRAMES, ROWS = "T", "N"  # names of sizes


@dataclass(frozen=True)
class StreamState:
    """An output that feeds an input at the next call.

    Args:
        sizes: its shape; the size at `axis` has no meaning.
        axis: the axis of rows; None if it has none.
        fixed: the number of rows that the net declares; None if it declares none.
    """

    output: str
    input: str
    dtype: str
    sizes: Shape
    axis: int | None = None
    fixed: int | None = None

    def type(self, rows: int) -> Type:
        """Its type with `rows` rows."""
        axis = self.axis
        return Type(self.dtype, self.sizes if axis is None else (*self.sizes[:axis], rows, *self.sizes[axis + 1 :]))

    def chosen(self, mask: Array, new: Array, old: Array) -> Array:
        """The rows of a mask from `new`, the others from `old`; all of `new` if there is no axis of rows."""
        if self.axis is None:
            return new
        if isinstance(old, TwinArray):
            return self._chosen_there(mask, new, old)
        others = [i for i in range(len(self.sizes)) if i != self.axis]
        return np.where(np.expand_dims(mask, others), on_host(new), old)

    def _chosen_there(self, mask: Array, new: Array, old: Any) -> Any:
        """The same on the device of `old`, by one copy for each run of neighbouring rows."""
        made, before = old.copy(), (slice(None),) * (self.axis or 0)
        for first, end in np.flatnonzero(np.diff(mask, prepend=False, append=False)).reshape(-1, 2).tolist():
            rows = (*before, slice(first, end))
            made[rows] = new[rows]
        return made

    def taken(self, rows: Sequence[int], array: Array) -> Array:
        """These rows, in this order, of an array that broadcasts to the state; the array itself if it has no axis of
        rows."""
        axis = None if self.axis is None else self.axis - len(self.sizes)
        return array if axis is None or array.ndim < -axis or array.shape[axis] == 1 else array.take(rows, axis)

    def fitted(self, net: str, array: Array, rows: int) -> Array:
        """A value in the full shape of the state. Raises StreamError if its dtype differs, or it does not broadcast."""
        wanted = self.type(rows)
        if array.dtype != wanted.dtype or not _broadcasts(array.shape, wanted.shape):
            raise StreamError("a state does not fit", net=net, blob=self.input, wanted=wanted, came=type_of(array))
        full: Array = np.broadcast_to(array, wanted.shape).copy()
        return full


@dataclass(frozen=True)
class StreamPlaces:
    """The states and the rows of a stream, without values: these facts stay the same from call to call.

    Args:
        net: name of the net, for errors.
        links: the states.
        initial: input name -> initial value, if it is not zeros.
        present: bool[rows], true for places that are taken.
    """

    net: str
    links: tuple[StreamState, ...]
    initial: Arrays
    present: Array

    @property
    def rows(self) -> int:
        return self.present.size

    @cached_property
    def full(self) -> bool:
        """True if all places are taken."""
        return bool(self.present.all())

    @cached_property
    def dtypes_and_shapes(self) -> tuple[tuple[StreamState, np.dtype[Any], Shape], ...]:
        """Each state with its dtype and its shape."""
        return tuple((state, np.dtype(state.dtype), state.type(self.rows).shape) for state in self.links)

    def started(self) -> dict[str, Array]:
        """The initial values of all states."""
        return self.fitted({state.input: np.zeros((), state.dtype) for state in self.links} | dict(self.initial))

    def fitted(self, values: Arrays) -> dict[str, Array]:
        """Values of some states in their full shapes. Raises StreamError for unknown names, and values that do not
        fit."""
        inputs = {state.input: state for state in self.links}
        unknown = [str(name) for name in values if name not in inputs]
        if unknown:
            wanted = f"one of {', '.join(inputs)}"
            raise StreamError("the stream has no such states", net=self.net, blob=", ".join(unknown), wanted=wanted)
        return {name: inputs[name].fitted(self.net, array, self.rows) for name, array in values.items()}

    def with_present(self, present: Array) -> StreamPlaces:
        """The same with other taken places. Raises StreamError if the net declares another number of rows."""
        for state in self.links:
            if state.fixed not in (None, present.size):
                problem = "the net fixes the number of rows of this state"
                raise StreamError(problem, net=self.net, blob=state.input, wanted=state.fixed, came=present.size)
        return replace(self, present=fixed(present))


@dataclass(frozen=True)
class States:
    """All states between two calls: input name -> array."""

    places: StreamPlaces
    arrays: dict[str, Array]

    def put(self, new: Arrays, mask: Array | None = None, shared: bool = False) -> States:
        """The same with new values of some states.

        Args:
            mask: the rows that get new values; None for all.
            shared: with a mask, whether states without an axis of rows get new values too.
        """
        if mask is None:
            return States(self.places, read_only({**self.arrays, **new}))
        found = dict(self.arrays)
        for state in self.places.links:
            if state.input in new and (shared or state.axis is not None):
                found[state.input] = state.chosen(mask, new[state.input], found[state.input])
        return States(self.places, read_only(found))

    def with_present(self, present: Array) -> States:
        """The same with other taken places."""
        return States(self.places.with_present(present), self.arrays)

    def grown(self) -> States:
        """The same with one more place, which is free."""
        places = self.places.with_present(np.append(self.places.present, False))
        new, found = places.started(), dict(self.arrays)
        for state in places.links:
            if state.axis is not None:
                last = new[state.input].take([places.rows - 1], state.axis)
                found[state.input] = np.concatenate([on_host(found[state.input]), last], state.axis)
        return States(places, read_only(found))

    def taken(self, rows: Sequence[int]) -> States:
        """The same with only these rows, in this order."""
        inputs = {state.input: state for state in self.places.links}
        initial, arrays = (
            {name: inputs[name].taken(rows, on_host(array)) for name, array in values.items()}
            for values in (self.places.initial, self.arrays)
        )
        places = self.places.with_present(self.places.present[np.array(rows, int)])
        return States(replace(places, initial=initial), read_only(arrays))


def first_states(net: str, links: Sequence[StreamState], initial: Arrays, rows: int) -> States:
    """The initial states of a stream. Raises StreamError for initial states that do not fit."""
    places = StreamPlaces(net, tuple(links), dict(initial), fixed(np.ones(rows, bool)))
    return States(places, read_only(places.started()))


def fixed(array: Array) -> Array:
    """The array, made read-only."""
    array.flags.writeable = False
    return array


def _broadcasts(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """True if an array of one shape broadcasts to the other."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(came in (1, size) for came, size in pairs)


SEVERAL_AXES = "several axes may be that of rows"
SHAPE_HINT = "Give shapes={{'{0}': ...}}: numbers, and a name for the axis of rows, as in (1, 'N', 64)."

BOUND_HINT = "Leave it out of bind(...). In place of a parameter give the recurrence an initial state, net.input(name)."

FIXED_HINT = (
    "The net fixes this shape. Make the net for other rows, or leave them open: net.input(name) without shape=, "
    "an ONNX file exported with an open axis of rows."
)


def check_names(net: Net, links: Any, shapes: Any, initial: Any, bound: Collection[str], least: int = 1) -> None:
    """Raise StreamError for arguments that are not dicts, for names that are unknown or given twice, and for states
    that are bound.

    Args:
        least: the least number of states.
    """
    for what, given in (("states=", links), ("shapes=", shapes), ("initial=", initial)):
        if not isinstance(given, Mapping) or (given is links and len(given) < least):
            wanted = "output name -> input name" if given is links else "input name -> value"
            raise StreamError(f"{what} is not a dict of names", net=net.name, wanted=wanted, came=repr(given))
    fed = list(links.values())
    _check_known(net, "states= names no output", links, net.output_blobs)
    _check_known(net, "states= feeds no input of the net", fed, net.input_names)
    _check_known(net, "shapes= names no input", shapes, net.input_names)
    _check_known(net, "initial= names no state", initial, fed)
    for name in fed:
        if fed.count(name) > 1:
            raise StreamError("two outputs feed one input", net=net.name, blob=name)
        if name in bound:
            raise StreamError("the input of a state is bound", net=net.name, blob=name, hint=BOUND_HINT)
    check_direction(net, fed, StreamError)


def check_direction(net: Net, fed: Iterable[str], error: type[RnnopsError]) -> None:
    """Raise an error for a state that is the initial state of a reversed recurrence.

    It would begin the last frame of a call with a value of the first frame of the call before.
    """
    follows = {name: name for name in fed if isinstance(name, str)}  # blob -> a state that it follows from
    for op in net.ops:
        came = [follows.get(blob) for blob in op.inputs]
        if op.type != "RecurrentNetwork":
            follows |= {blob: state for state in came if state for blob in op.outputs}
            continue
        recurrence = Recurrence(op, net.name)
        for state, (kind, _, _) in zip(came, recurrence.bindings(), strict=True):
            if state and kind == "initial" and recurrence.reverse:
                hint = "Such a recurrence needs all frames at once: leave it out of what is streamed."
                raise error(
                    "this is a state of a reversed recurrence", net=net.name, op=op.label, blob=state, hint=hint
                )


def _check_known(net: Net, problem: str, names: Iterable[Any], known: Collection[str]) -> None:
    unknown = [str(name) for name in names if not isinstance(name, str) or name not in known]
    if unknown:
        is_input = all(name in net.input_names for name in unknown) and "output" in problem
        hint = f"An output feeds an input: {{'{next(iter(known), 'y')}': '{unknown[0]}'}}." if is_input else None
        wanted = f"one of {', '.join(known) or 'none'}"
        raise StreamError(problem, net=net.name, blob=", ".join(unknown), wanted=wanted, hint=hint)


def is_number(value: Any) -> bool:
    """True if a value is an integer."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def dims_of(net: Net, steps: str, shapes: Mapping[str, Any]) -> dict[str, Dims]:
    """The sizes of each input: numbers, `FRAMES` or `ROWS`. Raises StreamError if they are not known."""
    found, names = dict[str, Dims](), dict[str, str]()
    for spec in net.input_specs:
        given = shapes.get(spec.name, spec.shape)
        if not isinstance(given, tuple | list):
            hint = f"Give shapes={{'{spec.name}': ...}}: numbers, and names for frames and rows: ('N', 3, '{steps}')."
            raise StreamError("the shape of an input is not known", net=net.name, blob=spec.name, hint=hint)
        names.update((str(size), spec.name) for size in given if not is_number(size))
        found[spec.name] = tuple(int(n) if is_number(n) else FRAMES if n == steps else ROWS for n in given)
    if names.pop(steps, None) is None:
        fed = {spec.name: shapes.get(spec.name, spec.shape) for spec in net.input_specs if spec.initializer is None}
        came = ", ".join(f"{name} [{', '.join(map(str, sizes))}]" for name, sizes in fed.items())
        hint = f"Name the axis of frames '{steps}' in shapes=. If a file fixes it, export the file with an open axis."
        problem, blobs = "no input has an axis of frames", ", ".join(fed)
        raise StreamError(problem, net=net.name, blob=blobs, wanted=repr(steps), came=came, hint=hint)
    if len(names) > 1:
        hint, came = "Give numbers for sizes that are neither frames nor rows.", ", ".join(sorted(names))
        inputs = ", ".join(dict.fromkeys(names.values()))
        raise StreamError("several names may be that of rows", net=net.name, blob=inputs, came=came, hint=hint)
    return found


EXAMPLE_ROWS, EXAMPLES = 2, (48, 480, 7680)  # numbers of rows and of frames; the first that fits the net is taken
# Other numbers of frames, with few factors. They reveal pads up to a multiple, and ends that shorter sequences miss.
UNEVEN = tuple(size * factor for size in (1_000_003, 97) for factor in (1, 2, 3, 4, 5, 6, 8, *EXAMPLES))


def types_of(net: Net, dims: Mapping[str, Dims], frames: int) -> dict[str, Type]:
    """Types of the inputs for a number of frames and `EXAMPLE_ROWS` rows."""
    named = {FRAMES: frames, ROWS: EXAMPLE_ROWS}
    return {
        spec.name: Type(
            "float32" if spec.dtype == FLOAT else spec.dtype,
            tuple(named[size] if isinstance(size, str) else size for size in dims[spec.name]),
        )
        for spec in net.input_specs
    }


def programs_of(net: Net, dims: Mapping[str, Dims]) -> list[Program]:
    """The net for some number of frames, for twice as many, and, if possible, for a number of `UNEVEN`.

    Raises StreamError if the net fits none of these numbers.
    """

    def program(frames: int) -> Program:
        return prepare(net, types_of(net, dims, frames), "float32")

    for frames in EXAMPLES:
        try:
            programs = [program(frames), program(2 * frames)]
        except RnnopsError as error:
            refused = error
            continue
        for uneven in UNEVEN:
            with suppress(RnnopsError):
                return [*programs, program(uneven)]
        return programs
    problem = f"it does not run with {EXAMPLES[-1]} and {2 * EXAMPLES[-1]} frames: {refused.problem}"
    raise StreamError(
        problem, net=net.name, op=refused.op, blob=refused.blob, wanted=refused.wanted, came=refused.came,
        hint="Does shapes= name the right axis? An unrolled loop fixes T: export one step with states.",
    ) from refused  # fmt: skip


@dataclass(frozen=True)
class StateReader:
    """Finds the shapes of a stream's states.

    Args:
        shapes: input name -> numbers, with a name or None for the axis of rows. Inputs that are not states are ignored.
        rows: batch size, if it is given.
        initial: input name -> initial state.
        float_dtype: dtype of floats.
    """

    net: Net
    shapes: Mapping[str, Any]
    rows: int | None
    initial: Arrays
    float_dtype: str

    def state(self, output: str, name: str) -> StreamState:
        """The state that goes from an output to an input.

        Raises StreamError if their dtypes differ; and if the shape is unknown, wrong, not as declared, or has several
        axes that may be that of rows.
        """
        dtypes = self.net.dtype_of(self.net.output_blobs[output]), self.net.dtype_of(name)
        given, wanted = (self.float_dtype if dtype == FLOAT else dtype for dtype in dtypes)
        if given != wanted:
            problem = f"output '{output}' and the input that it feeds have different dtypes"
            raise self._error(name, problem, wanted=wanted, came=given)
        declared = next(spec.shape for spec in self.net.input_specs if spec.name == name)
        state = StreamState(output, name, wanted, *self._sizes(name, declared))
        if declared is None:
            return state
        came = state.type(1 if self.rows is None else self.rows).shape
        if came != declared:
            raise self._error(name, "another shape is declared", wanted=declared, came=came, hint=FIXED_HINT)
        return replace(state, fixed=None if state.axis is None else declared[state.axis])

    def _sizes(self, name: str, declared: Shape | None) -> tuple[Shape, int | None]:
        """The sizes of a state and its axis of rows: from `shapes`, else as declared, else those of its initial
        array."""
        if name in self.shapes:
            return self._said(name, self.shapes[name])
        known = self.initial[name].shape if declared is None and name in self.initial else declared
        if known is None:
            raise self._error(name, "the shape of a state is not known", hint=SHAPE_HINT.format(name))
        return known, None if self.rows is None else self._axis(
            name, known, self.rows, FIXED_HINT if declared else SHAPE_HINT
        )

    def _said(self, name: str, shape: Any) -> tuple[Shape, int | None]:
        """Sizes and the axis of rows from a shape that a user gives, such as `(1, "N", 64)`."""
        entries = tuple(shape) if isinstance(shape, tuple | list) else (True,)
        free = [axis for axis, size in enumerate(entries) if size is None or isinstance(size, str)]
        numbers = [size for axis, size in enumerate(entries) if axis not in free]
        if not all(is_number(size) and size >= 0 for size in numbers):
            wanted = "numbers of 0 or more, and a name for the axis of rows"
            raise self._error(name, "this is not a shape", wanted=wanted, came=repr(shape))
        if len(free) > 1:
            wanted, hint = "one axis without a number", SHAPE_HINT.format(name)
            raise self._error(name, SEVERAL_AXES, wanted=wanted, came=repr(shape), hint=hint)
        return tuple(1 if axis in free else int(size) for axis, size in enumerate(entries)), free[0] if free else None

    def _axis(self, name: str, sizes: Shape, rows: int, hint: str) -> int:
        """The one axis that has as many elements as there are rows."""
        found = [axis for axis, size in enumerate(sizes) if size == rows]
        if len(found) != 1:
            problem, hint = (SEVERAL_AXES, SHAPE_HINT) if found else ("no axis is that of rows", hint)
            raise self._error(name, problem, wanted=f"one of {rows} elements", came=list(sizes), hint=hint.format(name))
        return found[0]

    def _error(self, name: str, problem: str, **details: Any) -> StreamError:
        return StreamError(problem, net=self.net.name, blob=name, **details)


COUNTER = re.compile(r"stream/(position|frames)(_\d+)?")
WINDOW = re.compile(r".+/frames(_\d+)?")  # states that hold the frames before a chunk


def position_of(states: Collection[str]) -> str | None:
    """The state that counts the frames of earlier calls; None if there is none."""
    return next((name for name in states if COUNTER.fullmatch(name) and name.startswith("stream/position")), None)


def position_to_set(net: Net, states: Collection[str], given: Collection[str], error: type[RnnopsError]) -> str | None:
    """The position, if it must be set above 0 so that the net reads the given states; else None.

    Args:
        states: inputs that are states.
        given: states that a caller gives.
        error: the error to raise if the right position cannot be known.
    """
    states = [name for name in states if isinstance(name, str)]  # others are refused later
    counters = [name for name in states if COUNTER.fullmatch(name)]
    others = [name for name in states if name not in counters]
    position = position_of(counters)
    if position is None or {*given} >= {*counters} or not {*given} & {*others}:
        return None
    counts, begun = _begun(net, position)
    read = [name for name in others if name in begun or (counts and WINDOW.fullmatch(name))]
    missing = [name for name in read if name not in given]
    if not {*given} & {*read}:
        return None  # recurrences read the given states whatever the position is
    if missing or counts:
        raise _position_error(net, counters, read, given, error)
    return position


def _begun(net: Net, position: str) -> tuple[bool, set[str]]:
    """True if windows count frames by the position; and the states that are read only if it is above 0."""
    readers = [op for op in net.ops if position in op.inputs]
    counts = any(op.type not in ("Add", "Greater") for op in readers)
    flags = {name for op in readers if op.type == "Greater" for name in op.outputs}
    came = dict[str, str]()  # blob -> the input that it is, reshaped
    found = set[str]()
    for op in net.ops:
        if op.type == "Reshape" and op.inputs[0] in flags:
            flags.update(op.outputs)
        elif op.type == "Reshape":
            came[op.outputs[0]] = came.get(op.inputs[0], op.inputs[0])
        elif op.type == "Expand" and op.inputs[0] in flags:
            flags.update(op.outputs)
        elif op.type == "Where" and op.inputs[0] in flags:
            found.add(came.get(op.inputs[1], op.inputs[1]))
    return counts, found


def _position_error(
    net: Net, counters: Collection[str], others: Collection[str], given: Any, error: type[RnnopsError]
) -> RnnopsError:
    missing = [name for name in (*others, *counters) if name not in given]
    return error(
        "states of a streamed net are given without its counters of frames",
        net=net.name,
        blob=", ".join(missing),
        wanted=", ".join([*others, *counters]),
        came=", ".join(map(str, given)),
        hint="Give all states of stream.states.",
    )
