"""A model compared with ONNX Runtime: random feeds, runs step by step, differences, times.

Feeds are random numbers by dtype, with made-up sizes for those that a file leaves open unless they are given. Times are
of a bound run and of ONNX Runtime, one thread each, in turns, round by round, so that both see the same machine: of
calls, and of steps whose states are handed on. They are the process's processor time: calls here run on one thread, and
other work on the machine takes nothing of it.

**Which outputs of a graph are states that its next call takes as inputs, as far as the protobuf tells**. An input is a
state where it is what a recurrence begins with, an output where it is what the same recurrence ends with, both perhaps
laid out anew on the way (reshaped, cut, stacked). So are the last steps that a convolution has seen: an output that is
cut out of what begins with an input, as `concat([cache, x])[-4:]`. Other states are not found.
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
    """The largest difference of two sets of outputs, over each one's largest value; infinite where they do not fit."""
    if set(out) != set(expected):
        return float("inf")
    return max((distance_of(out[name], expected[name]) for name in expected), default=0.0)


def distance_of(one: Array, other: Array) -> float:
    """The same of one output; of integers and bools, 0 or infinite."""
    if one.shape != other.shape or one.dtype != other.dtype or not np.isfinite(one.astype("float64")).all():
        return float("inf")
    if one.dtype.kind != "f":
        return 0.0 if np.array_equal(one, other) else float("inf")
    largest = np.abs(other).max(initial=np.finfo(one.dtype).tiny)
    return float(np.abs(one.astype("float64") - other).max(initial=0.0) / largest)


BLOCK, ROUNDS, WARM = 0.1, 5, 3  # seconds of a turn, turns of each, calls before the first
Clock = Callable[[], float]


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], block: float = BLOCK, rounds: int = ROUNDS, clock: Clock = process_time
) -> dict[str, float]:
    """Seconds of a call of each: the median over rounds of the mean over a turn of at least `block` seconds."""
    times: dict[str, list[float]] = {label: [] for label in calls}
    for call in calls.values():
        for _ in range(WARM):
            call()
    for _ in range(rounds):
        for label, call in calls.items():
            times[label].append(time_turn(call, block, clock))
    return {label: median(found) for label, found in times.items()}


def time_turn(call: Callable[[], object], block: float, clock: Clock) -> float:
    """Mean seconds of calls that take at least `block` seconds together, one call at least.

    The clock is read after 1, 3, 7, ... calls, as reading it takes as long as a part of a small one.
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
LONGEST = 400  # characters of what it says, which ends with what is wrong


class Session:
    """A file in ONNX Runtime, on one thread.

    Args:
        path: the file; model: what is run in its place, with all numbers inside.

    Raises:
        MissingPackageError: there is no ONNX Runtime.
        OnnxError: it does not take the file; calls: it does not run it.
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
        """Outputs by name; feeds that are not inputs of the file are left out."""
        try:
            return dict(zip(self._outputs, self._session.run(None, self._given(feeds)), strict=True))
        except Exception as error:  # whatever it raises
            told = " ".join(PREAMBLE.sub("", str(error)).split())
            raise OnnxError(f"{self._where}: it fails", came=told[:LONGEST]) from error

    def repeated(self, feeds: Mapping[str, Array]) -> Callable[[], object]:
        """A call that is as short as Python allows, to be timed."""
        return partial(self._session.run, None, self._given(feeds))

    def stepped(self, feeds: Mapping[str, Array], links: Mapping[str, str]) -> Callable[[], object]:
        """The same, which hands states on to the next call.

        Args:
            feeds: with what states begin with; links: output -> the input that it feeds.
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
    """Seconds of a call of each.

    Args:
        constants: what the file is fed besides what the run is fed; options: of `time_in_turns`.
    """
    theirs = session.repeated({**feeds, **constants})
    return time_in_turns({OURS: lambda: run(feeds), THEIRS: theirs}, **options)


def step_times(
    stream: Stream, session: Session | None, feeds: Arrays, links: Mapping[str, str], constants: Arrays, **options: Any
) -> dict[str, float]:
    """Seconds of a step of each; only of ours without a session.

    Args:
        feeds: of a step, without states; links: output -> the state that it is; constants, options: as above.
    """
    calls: dict[str, Callable[[], object]] = {OURS: lambda: stream(feeds)}
    if session is not None:
        calls[THEIRS] = session.stepped({**feeds, **constants, **stream.states}, links)
    return time_in_turns(calls, **options)


MADE_UP = (2, 7, 5, 3)  # the first open size, the second and so on; the last of these is that of all others
MOST = 2**27  # numbers of a feed


@dataclass(frozen=True)
class ChosenSizes:
    """The values chosen for open sizes.

    Args:
        shapes: of each input; open: the sizes by their names; made_up: those that were not given.
    """

    shapes: dict[str, Shape]
    open: dict[str, int]
    made_up: tuple[str, ...]

    def text(self) -> str:
        """`batch=2 (made up), time=9`."""
        return ", ".join(f"{name}={size}{' (made up)' * (name in self.made_up)}" for name, size in self.open.items())


def choose_sizes(inputs: Mapping[str, Dims | None], given: Mapping[str, Sequence[int]]) -> ChosenSizes:
    """Shapes of all inputs.

    Args:
        inputs: input -> what the file says of its sizes, None for nothing.
        given: name of an open size -> one number; name of an input without a shape in the file -> all its sizes.

    Raises OnnxError for other names and numbers, and for an input without a declared shape.
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
        wanted = ", ".join(names) or "none: the file says them all"
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
        hint = f"Say them all: {name}=1,16 or the like."
        raise OnnxError("the file says nothing of the sizes of an input", blob=name, hint=hint)
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
        ranges: input -> lowest and highest number; without it floats are normal and integers 0 or 1.

    Raises OnnxError for a range of what is not an input, and for feeds that are too large.
    """
    if unknown := sorted(set(ranges) - set(types)):
        raise OnnxError("ranges of what is not an input", wanted=", ".join(types) or "none", came=", ".join(unknown))
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
        links: output -> the input that it feeds; initial: what these inputs begin with.
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
        """The states so far, by the outputs that they are."""
        return {output: self.states[name] for output, name in self._links.items()}


def split_steps(feeds: Arrays, axes: Mapping[str, int], steps: int = 1) -> list[dict[str, Array]]:
    """Feeds of so many steps each; what has no axis of steps is fed at each of them.

    Args:
        axes: input -> its axis of steps.

    Raises OnnxError where inputs have other numbers of steps.
    """
    counts = {feeds[name].shape[axis] for name, axis in axes.items()}
    if len(counts) != 1:
        raise OnnxError("inputs have other numbers of steps", wanted="one number", came=sorted(counts))
    ends = range(steps, counts.pop(), steps)
    parts = {name: np.split(feeds[name], ends, axis) for name, axis in axes.items()}
    return [{**feeds, **{name: part[i] for name, part in parts.items()}} for i in range(len(ends) + 1)]


def join_steps(steps: Sequence[Array], whole: Array) -> Array:
    """The results of steps, joined along the axis in which a step differs from the whole (the last if none does)."""
    last = steps[-1]
    differing = [axis for axis, size in enumerate(whole.shape) if last.ndim != whole.ndim or size != last.shape[axis]]
    if last.ndim != whole.ndim or len(differing) != 1:
        return last
    return np.concatenate(steps, differing[0])


def distances_of_steps(steps: Sequence[Arrays], whole: Arrays) -> dict[str, float]:
    """How far what steps made is from what one call makes of all of them, by output; some may be the last step's."""
    made = {name: [step[name] for step in steps if name in step] for name in whole}
    return {name: distance_of(join_steps(made[name], wanted), wanted) for name, wanted in whole.items()}


LAYOUT = {"Cast", "Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose"}
LAYOUT |= {"Unsqueeze"}
CUTS = ("Slice", "Split", "Gather")
INITIAL, LAST = 5, 1  # places of h and c: where a cell's inputs begin with them, and its results end with them
STATES = 2  # h, c
Slot: TypeAlias = tuple[int, int]  # a recurrence, and which of its states
Scope: TypeAlias = "ChainMap[str, frozenset[Any]]"
NOTHING: frozenset[Any] = frozenset()


def state_pairs(graph: onnx.GraphProto) -> dict[str, str]:
    """Output -> the input that it feeds at the next call."""
    walk = _StateWalk()
    scope: Scope = ChainMap({value.name: frozenset([value.name]) for value in graph.input})
    ends = walk.walk(graph, scope, ChainMap(), 0)
    pairs: dict[str, str] = {}
    given = {value.name: value for value in graph.input}
    for name, slots in walk.begins.items():  # branches of an If may begin with zeros, so that there are more ends
        holding = [(len(end), value) for value, end in zip(graph.output, ends, strict=True) if slots <= end]
        fewest = [value for count, value in holding if count == min(count for count, _ in holding)]
        fitting = [value.name for value in fewest if may_feed(value, given[name])]
        if len(fitting) == 1 and fitting[0] not in pairs:
            pairs[fitting[0]] = name
    return pairs | (window_pairs(graph, walk, pairs) if pairs or not walk.count else {})


def window_pairs(graph: onnx.GraphProto, walk: _StateWalk, pairs: Mapping[str, str]) -> dict[str, str]:
    """The same for windows, where the other inputs leave one that is fed."""
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
    """True if an output may be fed to an input, by their sizes, as far as the file says them."""
    one, other = (each.type.tensor_type for each in (output, value))
    if not (one.HasField("shape") and other.HasField("shape")):
        return True
    sizes = [[dim.dim_value for dim in each.shape.dim] for each in (one, other)]
    return len(sizes[0]) == len(sizes[1]) and all(a == b or not (a and b) for a, b in zip(*sizes, strict=True))


@dataclass
class _StateWalk:
    """A walk over graphs.

    Args:
        begins: input of the main graph -> states that begin with it; count: of recurrences so far.
        windows: value of the main graph -> inputs that it begins with, and whether something was cut from it.
    """

    begins: dict[str, set[Slot]] = field(default_factory=dict)
    windows: dict[str, frozenset[tuple[str, bool]]] = field(default_factory=dict)
    count: int = 0

    def walk(self, graph: onnx.GraphProto, origins: Scope, ends: Scope, depth: int) -> list[frozenset[Slot]]:
        """The states that each output of a graph is the end of.

        Args:
            origins: value -> inputs of the main graph that it is a layout of; ends: value -> last states likewise.
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
        """Note the inputs with which the result of a node may begin."""
        found = NOTHING.union(*(self.windows.get(name, NOTHING) for name in node.input))
        if node.op_type == "Concat" and len(node.input) > 1:
            found |= {(name, False) for name in origins.get(node.input[0], NOTHING)}
        if node.op_type in CUTS:
            found = frozenset((name, True) for name, _ in found)
        self.windows.update(dict.fromkeys(node.output, found))

    def branches(self, node: onnx.NodeProto, origins: Scope, ends: Scope, depth: int) -> None:
        """Results of an If come from either branch."""
        for branch in graphs_of(node):
            inner = origins.new_child(), ends.new_child()
            found = self.walk(branch, *inner, depth + 1)
            for name, value, slots in zip(node.output, branch.output, found, strict=False):
                ends[name] = ends.get(name, NOTHING) | slots
                origins[name] = origins.get(name, NOTHING) | inner[0].get(value.name, NOTHING)

    def recurrence(self, node: onnx.NodeProto, origins: Scope, ends: Scope) -> None:
        """Note the initial values of a recurrence, and its last ones."""
        self.count += 1
        for state, (given, made) in enumerate(states_of(node)):
            for name in origins.get(given, NOTHING):
                self.begins.setdefault(name, set()).add((self.count, state))
            if made:
                ends[made] = frozenset([(self.count, state)])


def states_of(node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
    """For each state of a recurrence the value that it begins with and that of its end; empty where there is none."""
    if node.op_type in CELLS:
        return zip(named(node.input, INITIAL), named(node.output, LAST), strict=True)
    scanned = [one.i for one in node.attribute if one.name == "num_scan_inputs"] or [0]
    is_loop = node.op_type == "Loop"  # its first two inputs are the trip count and a condition
    given = node.input[2:] if is_loop else node.input[: max(0, len(node.input) - scanned[0])]
    return zip(given, node.output, strict=False)


def named(names: Sequence[str], first: int) -> list[str]:
    """The names of h and c from a place on."""
    return [names[place] if len(names) > place else "" for place in range(first, first + STATES)]
