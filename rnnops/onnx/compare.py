"""Compares a model with ONNX Runtime: random feeds, runs step by step, differences, times.

Feeds are random numbers by dtype. Sizes that a file leaves open are made up unless they are given. Times are of a bound
run and of ONNX Runtime, with one thread each. Both run in turns, round by round, so that they see the same machine.
Times are of calls, and of steps that hand states on. They are processor time of this process, so other work on the
machine does not count.

**Outputs that are states**: outputs that the next call takes as inputs, as far as the protobuf shows them. Such an
input is the first value of a recurrence, and the output is the last value of the same recurrence. Either may be laid
out anew on the way (reshaped, cut, stacked). The last steps that a convolution has seen are states too: an output that
is cut out of an array which begins with an input, as in `concat([cache, x])[-4:]`. Other states are not found.
"""

from __future__ import annotations

import os
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from statistics import median
from time import process_time
from typing import Any, TypeAlias

import numpy as np
import onnx

from rnnops.compiler.api.run import Run
from rnnops.compiler.api.stream import Stream
from rnnops.errors import MissingPackageError, OnnxError
from rnnops.onnx.node import MAX_DEPTH, about, graphs_of
from rnnops.onnx.open_sizes import Dims, names_of_open_sizes, open_sizes
from rnnops.onnx.outline import CELLS, LOOPS
from rnnops.types import BOOL, FLOATS, Array, Shape


def distance(out: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The largest difference of two sets of outputs, relative to each output's largest value.

    Infinite if they do not fit.
    """
    if set(out) != set(expected):
        return float("inf")
    return max((distance_of(out[name], expected[name]) for name in expected), default=0.0)


def distance_of(one: Array, other: Array) -> float:
    """The largest difference of one output. For integers and bools it is 0 or infinite."""
    if one.shape != other.shape or one.dtype != other.dtype or not np.isfinite(one.astype("float64")).all():
        return float("inf")
    if one.dtype.kind != "f":
        return 0.0 if np.array_equal(one, other) else float("inf")
    largest = np.abs(other).max(initial=np.finfo(one.dtype).tiny)
    return float(np.abs(one.astype("float64") - other).max(initial=0.0) / largest)


BLOCK, ROUNDS, WARM = 0.1, 5, 3  # seconds of a turn, turns of each call, calls before the first turn
Clock = Callable[[], float]


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], block: float = BLOCK, rounds: int = ROUNDS, clock: Clock = process_time
) -> dict[str, float]:
    """Seconds of each call: the median over rounds of the mean over a turn of `block` seconds or more."""
    times: dict[str, list[float]] = {label: [] for label in calls}
    for call in calls.values():
        for _ in range(WARM):
            call()
    for _ in range(rounds):
        for label, call in calls.items():
            times[label].append(time_turn(call, block, clock))
    return {label: median(found) for label, found in times.items()}


def time_turn(call: Callable[[], object], block: float, clock: Clock) -> float:
    """Mean seconds of a call. One or more calls are made, until they take `block` seconds.

    The clock is read after 1, 3, 7, ... calls only, because reading it takes a part of a short call's time.
    """
    start, count, chunk = clock(), 0, 1
    while True:
        for _ in range(chunk):
            call()
        count, chunk = count + chunk, 2 * chunk
        now = clock()
        if now - start >= block:
            return (now - start) / count


PREAMBLE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : (Non-zero status code returned while )?|\S*/onnxruntime/\S+ "
)
LONGEST = 400  # characters of an error text that are shown; the fault stands at its end


class Session:
    """A file in ONNX Runtime, on one thread.

    Args:
        path: the file; model: runs instead of the file, with all numbers inside.

    Raises:
        MissingPackageError: there is no ONNX Runtime.
        OnnxError: ONNX Runtime does not take the file, or (in a call) fails to run it.
    """

    def __init__(self, path: str | os.PathLike[str], model: onnx.ModelProto | None = None) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            hint = f"Install it by {sys.executable} -m pip install onnxruntime"
            raise MissingPackageError("the package onnxruntime is missing", hint=f"{hint}.") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._where = f"ONNX Runtime, {os.fspath(path)}"
        with about(self._where):
            given = os.fspath(path) if model is None else model.SerializeToString()
            self._session = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name. Feeds that are not inputs of the file are ignored."""
        try:
            return dict(zip(self._outputs, self._session.run(None, self._given(feeds)), strict=True))
        except Exception as error:  # ONNX Runtime may raise any error
            told = " ".join(PREAMBLE.sub("", str(error)).split())
            raise OnnxError(f"{self._where}: the run fails", came=told[:LONGEST]) from error

    def repeated(self, feeds: Mapping[str, Array]) -> Callable[[], object]:
        """A call with as little Python as possible, for timing."""
        return partial(self._session.run, None, self._given(feeds))

    def stepped(self, feeds: Mapping[str, Array], links: Mapping[str, str]) -> Callable[[], object]:
        """A timed call that hands states on to the next call.

        Args:
            feeds: with the first values of states; links: output -> the input that it feeds.
        """
        given, run = self._given(feeds), self._session.run
        places = [(self._outputs.index(output), name) for output, name in links.items()]

        def step() -> object:
            out = run(None, given)
            for place, name in places:
                given[name] = out[place]
            return out

        return step

    def _given(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {name: feeds[name] for name in self._inputs if name in feeds}


OURS, THEIRS = "rnnops", "ONNX Runtime"
Arrays = Mapping[str, Array]


def call_times(run: Run, session: Session, feeds: Arrays, constants: Arrays, **options: Any) -> dict[str, float]:
    """Seconds of a call: of the run, and of ONNX Runtime.

    Args:
        constants: feeds of the file that the run does not need; options: of `time_in_turns`.
    """
    theirs = session.repeated({**feeds, **constants})
    return time_in_turns({OURS: lambda: run(feeds), THEIRS: theirs}, **options)


def step_times(
    stream: Stream, session: Session | None, feeds: Arrays, links: Mapping[str, str], constants: Arrays, **options: Any
) -> dict[str, float]:
    """Seconds of a step: of the stream, and of ONNX Runtime if there is a session.

    Args:
        feeds: of a step, without states; links: output -> the state that it becomes; constants, options: as in
            `call_times`.
    """
    calls: dict[str, Callable[[], object]] = {OURS: lambda: stream(feeds)}
    if session is not None:
        calls[THEIRS] = session.stepped({**feeds, **constants, **stream.states}, links)
    return time_in_turns(calls, **options)


MADE_UP = (2, 7, 5, 3)  # sizes of the first open size, the second, the third, and of all others
MOST = 2**27  # most numbers of a feed


@dataclass(frozen=True)
class ChosenSizes:
    """The values chosen for open sizes.

    Args:
        shapes: of each input; open: open sizes by name; made_up: names of the sizes that were not given.
    """

    shapes: dict[str, Shape]
    open: dict[str, int]
    made_up: tuple[str, ...]

    def text(self) -> str:
        """As text: `batch=2 (made up), time=9`."""
        return ", ".join(f"{name}={size}{' (made up)' * (name in self.made_up)}" for name, size in self.open.items())


def choose_sizes(inputs: Mapping[str, Dims | None], given: Mapping[str, Sequence[int]]) -> ChosenSizes:
    """Shapes of all inputs.

    Args:
        inputs: input -> its sizes in the file; None if the file does not give them.
        given: name of an open size -> one number; name of an input whose sizes the file does not give -> all its sizes.

    Raises OnnxError for other names or numbers, and for an input without sizes.
    """
    check_names(inputs, given)
    names = names_of_open_sizes(inputs)
    made_up = tuple(name for name in names if name not in given)
    numbers = dict(zip(made_up, chain(MADE_UP, repeat(MADE_UP[-1])), strict=False))
    sizes = {name: numbers[name] if name in numbers else one_size(name, given[name]) for name in names}
    shapes = {name: shape_of(name, dims, sizes, given) for name, dims in inputs.items()}
    return ChosenSizes(shapes, sizes, made_up)


def check_names(inputs: Mapping[str, Dims | None], given: Collection[str]) -> None:
    """Raise OnnxError for names that are neither open sizes nor inputs without a shape in the file."""
    names = [*names_of_open_sizes(inputs), *(name for name, dims in inputs.items() if dims is None)]
    if unknown := sorted(set(given) - set(names)):
        wanted = ", ".join(names) or "none: the file gives them all"
        raise OnnxError("these are not open sizes", wanted=wanted, came=", ".join(unknown))


def one_size(name: str, sizes: Sequence[int]) -> int:
    """The size of that name. Raises OnnxError for several numbers."""
    if len(sizes) != 1:
        raise OnnxError(f"'{name}' is one size", wanted="one number", came=list(sizes))
    return sizes[0]


def shape_of(name: str, dims: Dims | None, sizes: Mapping[str, int], given: Mapping[str, Sequence[int]]) -> Shape:
    """The shape of one input."""
    if dims is not None:
        called = open_sizes(name, dims)
        return tuple(sizes[called[axis]] if axis in called else int(dim or 0) for axis, dim in enumerate(dims))
    if name not in given:
        hint = f"Give them all: {name}=1,16 or the like."
        raise OnnxError("the file does not give the sizes of an input", blob=name, hint=hint)
    return tuple(given[name])


def random_feeds(
    types: Mapping[str, str],
    shapes: Mapping[str, Shape],
    ranges: Mapping[str, tuple[float, float]],
    random: np.random.Generator,
) -> dict[str, Array]:
    """Arrays for inputs.

    Args:
        types: input -> dtype.
        ranges: input -> lowest and highest number. Without a range, floats are normal and integers are 0 or 1.

    Raises OnnxError for a range of a name that is not an input, and for feeds that are too large.
    """
    if unknown := sorted(set(ranges) - set(types)):
        raise OnnxError("ranges of unknown inputs", wanted=", ".join(types) or "none", came=", ".join(unknown))
    return {name: random_feed(name, dtype, shapes[name], ranges.get(name), random) for name, dtype in types.items()}


def random_feed(
    name: str, dtype: str, shape: Shape, bounds: tuple[float, float] | None, random: np.random.Generator
) -> Array:
    """An array for one input."""
    if np.prod(shape, dtype=float) > MOST:
        raise OnnxError("a feed would be too large", blob=name, wanted=f"at most {MOST} numbers", came=list(shape))
    if dtype in FLOATS:
        floats = random.normal(size=shape) if bounds is None else random.uniform(*bounds, shape)
        return np.asarray(floats).astype(dtype)
    low, high = (0, 1) if bounds is None or dtype == BOOL else (int(bounds[0]), int(bounds[1]))
    return np.asarray(random.integers(low, high, shape, endpoint=True)).astype(dtype)


class HandedOn:
    """A call whose outputs feed its inputs at the next call.

    Args:
        call: feeds -> outputs.
        links: output -> the input that it feeds; initial: first values of these inputs.
    """

    def __init__(self, call: Callable[[Arrays], Arrays], links: Mapping[str, str], initial: Arrays) -> None:
        self._call, self._links = call, links
        self.states = {name: initial[name] for name in links.values()}

    def __call__(self, feeds: Arrays) -> dict[str, Array]:
        """The outputs that are not states."""
        out = dict(self._call({**feeds, **self.states}))
        self.states = {name: out.pop(output) for output, name in self._links.items()}
        return out

    def last(self) -> dict[str, Array]:
        """The present states, by the names of the outputs."""
        return {output: self.states[name] for output, name in self._links.items()}


def split_steps(feeds: Arrays, axes: Mapping[str, int], steps: int = 1) -> list[dict[str, Array]]:
    """Feeds of `steps` steps each. A feed without an axis of steps is repeated.

    Args:
        axes: input -> its axis of steps.

    Raises OnnxError if inputs differ in their numbers of steps.
    """
    counts = {feeds[name].shape[axis] for name, axis in axes.items()}
    if len(counts) != 1:
        raise OnnxError("inputs have different numbers of steps", wanted="one number", came=sorted(counts))
    ends = range(steps, counts.pop(), steps)
    parts = {name: np.split(feeds[name], ends, axis) for name, axis in axes.items()}
    return [{**feeds, **{name: part[i] for name, part in parts.items()}} for i in range(len(ends) + 1)]


def join_steps(steps: Sequence[Array], whole: Array) -> Array:
    """Results of steps, joined along the axis in which a step differs from the whole (the last if none does)."""
    last = steps[-1]
    differing = [axis for axis, size in enumerate(whole.shape) if last.ndim != whole.ndim or size != last.shape[axis]]
    if last.ndim != whole.ndim or len(differing) != 1:
        return last
    return np.concatenate(steps, differing[0])


def distances_of_steps(steps: Sequence[Arrays], whole: Arrays) -> dict[str, float]:
    """For each output, the distance of steps from one call for all. Some outputs are those of the last step."""
    made = {name: [step[name] for step in steps if name in step] for name in whole}
    return {name: distance_of(join_steps(made[name], wanted), wanted) for name, wanted in whole.items()}


LAYOUT = {"Cast", "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose"}
LAYOUT |= {"Unsqueeze"}
CUTS = ("Slice", "Split", "Gather")
INITIAL, LAST = 5, 1  # first places of h and c among a cell's inputs and among its results
STATES = 2  # states of a cell: h, c
Slot: TypeAlias = tuple[int, int]  # number of a recurrence, number of its state
Scope: TypeAlias = "ChainMap[str, frozenset[Any]]"
NOTHING: frozenset[Any] = frozenset()


def state_pairs(graph: onnx.GraphProto) -> dict[str, str]:
    """Output -> the input that it feeds at the next call."""
    walk = _StateWalk()
    scope: Scope = ChainMap({value.name: frozenset([value.name]) for value in graph.input})
    ends = walk.walk(graph, scope, ChainMap(), 0)
    pairs: dict[str, str] = {}
    given = {value.name: value for value in graph.input}
    # branches of an If may begin with zeros, so there may be more ends than beginnings
    for name, slots in walk.begins.items():
        holding = [(len(end), value) for value, end in zip(graph.output, ends, strict=True) if slots <= end]
        fewest = [value for count, value in holding if count == min(count for count, _ in holding)]
        fitting = [value.name for value in fewest if may_feed(value, given[name])]
        if len(fitting) == 1 and fitting[0] not in pairs:
            pairs[fitting[0]] = name
    return pairs | (window_pairs(graph, walk, pairs) if pairs or not walk.count else {})


def window_pairs(graph: onnx.GraphProto, walk: _StateWalk, pairs: Mapping[str, str]) -> dict[str, str]:
    """Window outputs -> the inputs that they feed. Empty unless another input remains for the caller to feed."""
    given = {value.name: value for value in graph.input if value.name not in pairs.values()}
    valued = {tensor.name for tensor in graph.initializer}
    found: dict[str, list[str]] = {}
    for value in graph.output:
        cut = {name for name, is_cut in walk.windows.get(value.name, NOTHING) if is_cut and name in given}
        fitting = [name for name in cut if may_feed(value, given[name])]
        if len(fitting) == 1 and value.name not in pairs:
            found.setdefault(fitting[0], []).append(value.name)
    windows = {outputs[0]: name for name, outputs in found.items() if len(outputs) == 1}
    return windows if given.keys() - valued - set(windows.values()) else {}


def may_feed(output: onnx.ValueInfoProto, value: onnx.ValueInfoProto) -> bool:
    """True if an output may feed an input, judged by the sizes that the file gives."""
    one, other = (each.type.tensor_type for each in (output, value))
    if not (one.HasField("shape") and other.HasField("shape")):
        return True
    sizes = [[dim.dim_value for dim in each.shape.dim] for each in (one, other)]
    return len(sizes[0]) == len(sizes[1]) and all(a == b or not (a and b) for a, b in zip(*sizes, strict=True))


@dataclass
class _StateWalk:
    """A walk over graphs that finds states.

    Args:
        begins: input of the main graph -> states that begin with it; count: number of recurrences so far.
        windows: value of the main graph -> pairs: an input that the value begins with, and True if a part was cut off.
    """

    begins: dict[str, set[Slot]] = field(default_factory=dict)
    windows: dict[str, frozenset[tuple[str, bool]]] = field(default_factory=dict)
    count: int = 0

    def walk(self, graph: onnx.GraphProto, origins: Scope, ends: Scope, depth: int) -> list[frozenset[Slot]]:
        """For each output of a graph, the states whose last value it is.

        Args:
            origins: value -> inputs of the main graph whose numbers it holds; ends: value -> states whose last values
                it holds.
        """
        if depth > MAX_DEPTH:
            raise OnnxError("its graphs lie too deep inside each other", wanted=f"at most {MAX_DEPTH} levels")
        for node in graph.node:
            if node.op_type in (*CELLS, *LOOPS):
                self.recurrence(node, origins, ends)
            elif node.op_type == "If":
                self.branches(node, origins, ends, depth)
            elif node.op_type in LAYOUT:
                for scope in (origins, ends):
                    made = NOTHING.union(*(scope.get(name, NOTHING) for name in node.input))
                    scope.update(dict.fromkeys(node.output, made) if made else {})
                if depth == 0:
                    self.window(node, origins)
        return [ends.get(value.name, NOTHING) for value in graph.output]

    def window(self, node: onnx.NodeProto, origins: Scope) -> None:
        """Notes the inputs with which the result of a node may begin."""
        found = NOTHING.union(*(self.windows.get(name, NOTHING) for name in node.input))
        if node.op_type == "Concat" and len(node.input) > 1:
            found |= {(name, False) for name in origins.get(node.input[0], NOTHING)}
        if node.op_type in CUTS:
            found = frozenset((name, True) for name, _ in found)
        self.windows.update(dict.fromkeys(node.output, found))

    def branches(self, node: onnx.NodeProto, origins: Scope, ends: Scope, depth: int) -> None:
        """Notes that results of an If come from either branch."""
        for branch in graphs_of(node):
            inner = origins.new_child(), ends.new_child()
            found = self.walk(branch, *inner, depth + 1)
            for name, value, slots in zip(node.output, branch.output, found, strict=False):
                ends[name] = ends.get(name, NOTHING) | slots
                origins[name] = origins.get(name, NOTHING) | inner[0].get(value.name, NOTHING)

    def recurrence(self, node: onnx.NodeProto, origins: Scope, ends: Scope) -> None:
        """Notes the first and the last values of a recurrence."""
        self.count += 1
        for state, (given, made) in enumerate(states_of(node)):
            for name in origins.get(given, NOTHING):
                self.begins.setdefault(name, set()).add((self.count, state))
            if made:
                ends[made] = frozenset([(self.count, state)])


def states_of(node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
    """For each state of a recurrence: its first and its last value, empty if the node does not name it."""
    if node.op_type in CELLS:
        return zip(named(node.input, INITIAL), named(node.output, LAST), strict=True)
    scanned = [one.i for one in node.attribute if one.name == "num_scan_inputs"] or [0]
    is_loop = node.op_type == "Loop"  # the first two inputs of a Loop are the trip count and a condition
    given = node.input[2:] if is_loop else node.input[: max(0, len(node.input) - scanned[0])]
    return zip(given, node.output, strict=False)


def named(names: Sequence[str], first: int) -> list[str]:
    """The names of h and c, from a place in a list on."""
    return [names[place] if len(names) > place else "" for place in range(first, first + STATES)]
