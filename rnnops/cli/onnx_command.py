"""`rnnops onnx`: prints the contents of a file, and, if it can be read, runs it: checks, timings, streams, rows.

**Rows** (`compare_rows`): one call of several rows is compared with calls of one row each, in float64. If all results
agree, rows do not mix. Rows may be an axis of a result, or a part of an axis, as after a Reshape that joins steps and
rows. The first float result that differs names the op that mixes rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rnnops.cli.language_model import in_options
from rnnops.cli.train import show
from rnnops.compiler import Run, compile as compile_net
from rnnops.compiler.api.stream_parts import open_axes, single_frames
from rnnops.errors import MissingPackageError, OnnxError, RnnopsError, SaveError
from rnnops.net.drawing import draw_net
from rnnops.net.infer import ancestors
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.onnx.compare import (
    THEIRS,
    ChosenSizes,
    HandedOn,
    Session,
    call_times,
    check_names,
    choose_sizes,
    distance_of,
    distances_of_steps,
    one_size,
    random_feeds,
    split_steps,
    state_pairs,
    step_times,
)
from rnnops.onnx.load import OnnxModel, fixed_inputs, load_model
from rnnops.onnx.node import about, read_proto
from rnnops.onnx.open_sizes import (
    Dims,
    dims_of_inputs,
    fix_sizes,
    names_of_open_sizes,
    open_sizes,
    sizes_of_weights,
    with_sizes,
)
from rnnops.onnx.outline import Outline, OutlineLayer, ProductNode, TensorCounts, Value, outline, products_of_file
from rnnops.types import FLOAT, Array, Shape, type_of
from rnnops.util import cached_property, counted

if TYPE_CHECKING:
    import onnx

    from rnnops.cli.main import OnnxOptions

RIGHT, DIFFERENT, NOT_READ = 0, 1, 3


def report(options: OnnxOptions) -> int:
    """Print the report, do what is asked for, and return the exit code."""
    file = read_file(options)
    print_outline(options.file, file.outline)
    try:
        model = load_model(options.file, dict(options.constants), file.fixed)
    except OnnxError as error:
        print_reading(file.outline, None, in_options(str(error)))
        return NOT_READ
    print_reading(file.outline, model, "")
    right = OnnxRuns(options, file, model).all()
    if not (options.check or options.speed or options.stream or options.rows):
        show("not run: --check compares its outputs with those of ONNX Runtime")
    return RIGHT if right else DIFFERENT


LONGEST = 100  # the most characters of a printed name
MOST = 40  # the most lines of one kind, and the most ops in the list of ops
UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def print_outline(path: Path, outline: Outline) -> None:
    """Print the contents of a file."""
    show(f"file: {plain(str(path))}, {outline.nbytes:,} bytes")
    show(f"ONNX: IR version {outline.ir_version}, made by {plain(outline.producer) or 'nobody named'}")
    show("op sets: " + (", ".join(f"{plain(domain)} {version}" for domain, version in outline.opsets) or "none"))
    if outline.functions:
        show("functions of its own: " + ", ".join(cut(list(map(plain, outline.functions)))))
    print_table("inputs", [value_row(value) for value in outline.inputs])
    print_table("outputs", [value_row(value) for value in outline.outputs])
    print_table("recurrences", [layer_row(layer) for layer in outline.layers])
    print_table("parameters", list(map(tensors_row, outline.parameters)))
    print_table("other tensors", list(map(tensors_row, outline.others)))
    counts = [f"{plain(op)} {count}" for op, count in outline.ops.most_common()]
    show(f"ops: {outline.ops.total():,} nodes\n  {', '.join(cut(counts)) or 'none'}")


def print_reading(outline: Outline, model: OnnxModel | None, problem: str) -> None:
    """Print a summary of the net that a file was read as; or why it cannot be read."""
    if model is not None:
        recurrences = sum(op.type == "RecurrentNetwork" for op in model.net.ops)
        numbers = sum(array.size for array in model.params.values())
        parts = f"{counted(len(model.net.ops), 'op')}, {recurrences} of them recurrences"
        params = f"{counted(len(model.params), 'parameter')} of {numbers:,} numbers"
        show(f"read: a net of {parts}, with {params}")
        return
    show(f"not read: {plain(' '.join(problem.split()), 10 * LONGEST)}")
    rows = []
    for one in outline.unsupported:
        nodes = counted(one.count, "node")
        more = ", ..." if one.count > len(one.first) else ""
        rows.append((plain(one.op), f"of {plain(one.domain)}", nodes, ", ".join(map(plain, one.first)) + more))
    print_table("not supported", rows)


def print_table(title: str, rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns below a title; nothing if there are no rows."""
    if rows:
        show(f"{title}:")
        for line in aligned(rows[:MOST]):
            show(f"  {line}")
        if len(rows) > MOST:
            show(f"  ... and {len(rows) - MOST:,} more")


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def print_times(what: str, seconds: Mapping[str, float]) -> None:
    """Print times of calls; if there are two, also the second divided by the first."""
    texts = [f"{name} {1e3 * time:.4g} ms" for name, time in seconds.items()]
    if len(seconds) == 2:
        ours, theirs = seconds.values()
        texts.append(f"ratio {theirs / ours:.2f}")
    show(f"time of {what}, one thread: {', '.join(texts)}")


def value_row(value: Value) -> tuple[str, str]:
    """An input or output: `x`, `float32 [batch, ?, 96]`."""
    if value.dims is None:
        return plain(value.name), f"{value.dtype} of unknown sizes"
    sizes = ", ".join("?" if size is None else plain(str(size)) for size in value.dims)
    return plain(value.name), f"{value.dtype} [{sizes}]"


def layer_row(layer: OutlineLayer) -> tuple[str, ...]:
    """A recurrence: layer, kind, direction, sizes, weights, node and branch."""
    weights = "" if layer.weights is None else f"{layer.weights:,} weights"
    where = " in ".join((f"'{layer.name}'", *reversed(layer.places)))
    cells = (layer.kind, layer.direction, layer.sizes, weights, plain(where, 4 * LONGEST))
    return (f"layer {layer.number}", *map(plain, cells[:3]), *cells[3:])


def tensors_row(tensors: TensorCounts) -> tuple[str, ...]:
    """Tensors of one dtype."""
    count = "1 tensor" if tensors.tensors == 1 else f"{tensors.tensors:,} tensors"
    return tensors.dtype, f"{tensors.numbers:,} numbers in {count}", in_bytes(tensors.nbytes)


def in_bytes(count: int) -> str:
    """`2.8 MB`."""
    for unit, size in UNITS:
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return counted(count, "byte")


def cut(texts: list[str]) -> list[str]:
    """The first texts, and the number of further ones."""
    return texts if len(texts) <= MOST else [*texts[:MOST], f"and {len(texts) - MOST:,} more"]


def plain(text: str | bytes, most: int = LONGEST) -> str:
    """A text of a file that is safe to print: control characters are escaped, and it is cut after `most` characters.

    Args:
        text: the text of the protobuf; bytes if it is not valid UTF-8.
    """
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    shown = text if len(text) <= most else f"{text[: most - 3]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


QUANTISED = f"""\
the file is quantised: {THEIRS} rounds what its LSTMs read, by the range of all rows, and rnnops does not;
some hundredths need be no error (--tolerance 0.05)"""
SATURATED = f"""\
{THEIRS} adds pairs of products in 16 bits on processors without VNNI; sums beyond 16 bits stop at the ends.
Where the exact result is that of rnnops, the difference is that of {THEIRS}."""


@dataclass(frozen=True)
class OnnxFile:
    """A file with the sizes that the user gave.

    Args:
        graph, outline: the graph of the file and its outline, with fixed sizes filled in.
        shapes: shapes of the inputs as the file has them.
        fixed: open size -> the number with which the file is read.
        given: the sizes of `fixed`, of inputs without a shape in the file, and of the sizes that count steps and rows.
        rows: the size that counts rows; empty without `--rows`.
    """

    graph: onnx.GraphProto
    outline: Outline
    shapes: dict[str, Dims | None]
    fixed: dict[str, int]
    given: dict[str, Shape]
    rows: str


def read_file(options: OnnxOptions) -> OnnxFile:
    """Read a file's protobuf. Raises OnnxError if it is not one, and for sizes that are not open in it."""
    with about(str(options.file)):  # names the file in all errors, also of texts that are not UTF-8
        model, nbytes = read_proto(options.file)
        shapes, given = dims_of_inputs(model.graph), once(options.sizes)
        rows = size_of_rows(options, shapes, given)
        check_names(shapes, given)
        named = [name for name in names_of_open_sizes(shapes) if name in given and name not in (options.steps, rows)]
        fixed = fix_sizes(model.graph, {name: one_size(name, given[name]) for name in named}, dict(options.constants))
        return OnnxFile(model.graph, outline(model, nbytes), shapes, fixed, given, rows)


def size_of_rows(options: OnnxOptions, shapes: Mapping[str, Dims | None], given: dict[str, Shape]) -> str:
    """The name of the open size that counts rows; its number is put into `given`. Empty without `--rows`.

    Raises OnnxError if it is not named and there are several, or if `--sizes` gives it another number.
    """
    if options.rows is None:
        return ""
    name, count = options.rows
    left = [size for size in names_of_open_sizes(shapes) if size not in (*given, options.steps)]
    if not name and len(left) != 1:
        came = ", ".join(left) or "no open size"
        raise OnnxError("--rows needs the size that counts rows", came=came, hint=f"Say --rows NAME={count}.")
    given.update(once([*given.items(), (name or left[0], (count,))]))
    return name or left[0]


def once(sizes: Sequence[tuple[str, Shape]]) -> dict[str, Shape]:
    """Sizes by name. Raises OnnxError if a size is given two numbers."""
    found: dict[str, Shape] = {}
    for name, shape in sizes:
        if found.setdefault(name, shape) != shape:
            raise OnnxError(f"'{name}' is one size", wanted="one number", came=f"{list(found[name])} and {list(shape)}")
    return found


def shapes_of_feeds(file: OnnxFile, names: Mapping[str, object]) -> tuple[dict[str, Dims | None], dict[str, Shape]]:
    """The shapes of the inputs in the file, with the given sizes filled in."""
    shapes = {name: file.shapes.get(name) for name in names}
    theirs = {*names_of_open_sizes(shapes), *names}
    return shapes, {name: shape for name, shape in file.given.items() if name in theirs}


class OnnxRuns:
    """A file that was read, with feeds."""

    def __init__(self, options: OnnxOptions, file: OnnxFile, model: OnnxModel) -> None:
        self.options, self.file, self.graph, self.model = options, file, file.graph, model
        self.random = np.random.default_rng(options.seed)
        self.constants = fixed_inputs(file.graph, dict(options.constants), model.dtype)

    # -- what is fed -----------------------------------------------------------------------------------------------

    @cached_property
    def types(self) -> dict[str, str]:
        """Input that is fed -> dtype."""
        specs = [spec for spec in self.model.net.input_specs if spec.name not in self.model.params]
        return {spec.name: self.model.dtype if spec.dtype == FLOAT else spec.dtype for spec in specs}

    @cached_property
    def sizes(self) -> ChosenSizes:
        """The shapes of inputs, which are printed once."""
        shapes, given = shapes_of_feeds(self.file, self.types)
        known = {name: array.shape for name, array in self.model.params.items()}
        known |= {name: dims for name in shapes if (dims := given.get(name, shapes[name])) is not None}
        known = with_sizes(known, {name: size[0] for name, size in given.items()})
        fixed = sizes_of_weights(self.model.net, known, self.model.dtype)
        sizes = choose_sizes(shapes, {**{name: (size,) for name, size in fixed.items()}, **given})
        if sizes.open:
            show(f"sizes: {plain(sizes.text(), 400)}")
        return sizes

    @cached_property
    def feeds(self) -> dict[str, Array]:
        """Random arrays for all inputs."""
        return self.more_feeds()

    def more_feeds(self) -> dict[str, Array]:
        """Other random arrays."""
        return random_feeds(self.types, self.sizes.shapes, dict(self.options.ranges), self.random)

    @cached_property
    def run(self) -> Run:
        """The net on one thread, with bound parameters."""
        return self.of(self.model.net)

    def of(self, net: Net) -> Run:
        """A net that has the file's parameters, on one thread."""
        return compile_net(net, threads=1).bind(**self.model.params)

    @cached_property
    def theirs(self) -> Session:
        """The file in ONNX Runtime."""
        return Session(self.options.file)

    # -- what is asked for -----------------------------------------------------------------------------------------

    def all(self) -> bool:
        """Do all that is asked for. Returns True if all was right. The hint of an RnnopsError names made-up sizes."""
        options = self.options
        works: dict[str, Callable[[], bool]] = {"plan": self.plan, "check": self.check, "speed": self.speed}
        works |= {"rows": self.rows, "stream": partial(stream, self)}
        try:
            if options.draw is not None:
                self.draw(options.draw)
            right = [work() for name, work in works.items() if getattr(options, name)]
            return all(right)
        except RnnopsError as error:
            if error.hint or not self.sizes.made_up or isinstance(error, SaveError):
                raise
            told = error.again()
            told.hint = (
                f"Sizes are made up: say --sizes {' --sizes '.join(f'{one}=...' for one in self.sizes.made_up)}."
            )
            raise told.again() from error

    def draw(self, path: Path) -> None:
        """Save a picture of the net, with sizes where they are known."""
        shapes = self.model.shapes.items()
        known = {name: self.sizes.shapes[name] for name, dims in shapes if not open_sizes(name, dims)}
        if self.options.sizes:
            known = self.sizes.shapes
        try:
            draw_net(self.model.net, known).save(path)
        except OSError as error:
            raise SaveError(f"{path} cannot be written ({error})") from error
        show(f"picture: {path}")

    def plan(self) -> bool:
        """Print the plan of a call."""
        show(f"\nplan:\n{self.run.plan(self.feeds, backward=False)}")
        return True

    def check(self) -> bool:
        """Compare outputs with ONNX Runtime's."""
        theirs, ours = self.theirs({**self.feeds, **self.constants}), self.run(self.feeds)
        right = self.compare(f"beside {THEIRS}", {name: distance_of(ours[name], theirs[name]) for name in theirs})
        if not right and self.is_quantised:
            self.compare_products()
        return right

    @cached_property
    def is_quantised(self) -> bool:
        """True if the file has ops of quantised numbers."""
        return any("Quantize" in op or "Integer" in op or "QLinear" in op for op in self.file.outline.ops)

    def compare_products(self) -> None:
        """Print which products of quantised numbers are exact in ONNX Runtime, and which are not."""
        feeds, path = {**self.feeds, **self.constants}, self.options.file
        try:
            found = list(products_of_file(path, feeds, lambda model, fed: Session(path, model)(fed)))
        except RnnopsError as error:
            show(f"products are not compared one by one: {error}")
            return
        title = f"products of quantised numbers, each by itself on what {THEIRS} gives it"
        print_table(title, [product_row(one) for one in found])
        if any(one.saturates(self.options.tolerance) for one in found):
            show(SATURATED)

    def rows(self) -> bool:
        """Compare one call of several rows with calls of one row each."""
        return compare_rows(self, axes_of(self, self.file.rows, "--rows"))

    def speed(self) -> bool:
        """Time both."""
        print_times("a call", call_times(self.run, self.theirs, self.feeds, self.constants))
        return True

    # -- parts -----------------------------------------------------------------------------------------------------

    def compare(self, title: str, distances: Mapping[str, float], limit: float | None = None) -> bool:
        """Print differences. Returns True if all are within the limit, by default the tolerance."""
        limit = self.options.tolerance if limit is None else limit
        more = {name: "" if found <= limit else f"more than {limit:g}" for name, found in distances.items()}
        rows = [(plain(name), f"{found:.1e}", more[name]) for name, found in distances.items()]
        print_table(f"differences, {title}, over the largest value", rows)
        right = not any(more.values())
        if not right and self.is_quantised:
            show(QUANTISED)
        return right


def product_row(one: ProductNode) -> tuple[str, ...]:
    """A line for a node."""
    off = f"off by {one.theirs:.1e}, rnnops by {one.ours:.1e}"
    beyond = f"{one.beyond:,} of {one.pairs:,} pairs beyond 16 bits" if one.pairs else ""
    return plain(f"'{one.name}' ({one.op})"), off, beyond


CALLS = 8  # calls of a stream if no number of steps is given
Arrays = Mapping[str, Array]


def stream(runs: OnnxRuns) -> bool:
    """Run a file call by call. Prints differences from other ways to run it, and the time of a step. Returns True if
    differences are small enough."""
    links, name = links_of(runs), runs.options.steps
    axes = {} if name is None else axes_of(runs, name)
    lost = lost_frames(runs, links, axes)
    if not links or (axes and lost):
        return with_states_inside(runs, links, axes)
    if lost:
        show(f"warning: {lost}")
    return with_states_of_file(runs, links, axes)


def lost_frames(runs: OnnxRuns, links: Mapping[str, str], steps: Mapping[str, int]) -> str:
    """A text on ops that see nothing of earlier calls.

    Args:
        steps: input -> its axis of steps; if empty, all open axes may be that of steps.
    """
    kinds = {name: type_of(array) for name, array in {**runs.model.params, **runs.feeds}.items()}
    axes = [steps] if steps else open_axes({name: runs.file.shapes.get(name) for name in runs.types}, links.values())
    return single_frames(runs.model.net, kinds, runs.feeds, axes, runs.model.dtype)


def with_states_of_file(runs: OnnxRuns, links: Mapping[str, str], axes: Mapping[str, int]) -> bool:
    """Stream a file whose states are inputs and outputs.

    Args:
        links: output -> the input that it feeds at the next call.
    """
    calls = split_steps(runs.feeds, axes) if axes else [runs.feeds, *(runs.more_feeds() for _ in range(CALLS - 1))]
    steps, initial = without_states(calls, links), {name: runs.feeds[name] for name in links.values()}
    show_states([f"{plain(output)} -> {plain(name)}" for output, name in links.items()], steps[0])
    shapes = {name: array.shape for name, array in initial.items()}
    opened, session = runs.run.stream(links, shapes=shapes, initial=initial), None
    try:
        session = runs.theirs
    except MissingPackageError as error:
        show(f"{THEIRS} is left out: {error}")
    made = [opened(feeds) for feeds in steps]
    made[-1] |= {output: np.asarray(opened.states[name]) for output, name in links.items()}
    if axes:
        found = distances_of_steps(made, runs.run(runs.feeds))
        right = runs.compare(f"{len(steps)} steps beside one call of them all", found)
    else:
        other, call = other_of(runs, session)
        found = distances_of_calls(made, steps, HandedOn(call, links, initial))
        right = runs.compare(f"{len(steps)} calls beside {other}", found)
    print_times("a step", step_times(opened, session, steps[0], links, runs.constants))
    return right


def with_states_inside(runs: OnnxRuns, links: Mapping[str, str], axes: Mapping[str, int]) -> bool:
    """Stream a file for whole sequences: recurrences and windows over steps get states, in addition to those of the
    file."""
    name = runs.options.steps
    if name is None:
        hint = "Say --steps NAME, the open size that counts steps, or --state OUTPUT=INPUT for each state."
        raise OnnxError("none of its outputs is a state that an input takes", hint=hint)
    shapes = {
        one: tuple(name if axis == axes.get(one) else size for axis, size in enumerate(runs.sizes.shapes[one]))
        for one in runs.types
    }
    initial = {one: runs.feeds[one] for one in links.values()}
    opened = runs.run.stream(dict(links), shapes=shapes, initial=initial, steps=name, dtype=runs.model.dtype)
    steps = without_states(split_steps(runs.feeds, axes, opened.chunk), links)
    show_states([*map(plain, opened.states)], steps[0])
    if any(opened.delay.values()):
        show("delay: " + ", ".join(f"{plain(output)} {delay}" for output, delay in opened.delay.items()))
    made, whole = opened.joined([*map(opened, steps[:-1]), opened.finish(steps[-1])]), runs.run(runs.feeds)
    found = {output: distance_of(made[output], array) for output, array in whole.items() if output not in links}
    right = runs.compare(f"{len(steps)} steps beside one call of them all", found)
    if len(steps) > 1:
        print_times("a step", step_times(opened, None, steps[0], {}, runs.constants))
    return right


def without_states(calls: Sequence[Arrays], links: Mapping[str, str]) -> list[dict[str, Array]]:
    """Feeds of calls without states, which the stream keeps."""
    return [{name: array for name, array in feeds.items() if name not in links.values()} for feeds in calls]


def show_states(states: Sequence[str], fed: Arrays) -> None:
    """Print the states, and the inputs of a call."""
    show(f"states: {', '.join(states) or 'none'}")
    show(f"fed at each step: {plain(', '.join(fed), 400)}")


def links_of(runs: OnnxRuns) -> dict[str, str]:
    """Output -> the state that it feeds: as the user gives them, else as found in the file; may be empty."""
    if not runs.options.states:
        return {output: name for output, name in state_pairs(runs.graph).items() if name in runs.types}
    net = runs.model.net
    return runs.options.links(net.name, net.output_blobs, runs.types)


def axes_of(runs: OnnxRuns, name: str, option: str = "--steps") -> dict[str, int]:
    """Input -> the axis that has this size. Raises OnnxError if there is none."""
    sizes = {one: open_sizes(one, dims) for one, dims in runs.model.shapes.items() if one in runs.types}
    axes = {one: axis for one, called in sizes.items() for axis, size in called.items() if size == name}
    if not axes:
        raise OnnxError(f"{option} names no open size", wanted=", ".join(runs.sizes.open) or "none", came=name)
    return axes


def other_of(runs: OnnxRuns, session: Session | None) -> tuple[str, Callable[[Arrays], Arrays]]:
    """Another program that runs the file, and its name: ONNX Runtime, else the reference device."""
    if session is not None:
        return THEIRS, lambda feeds: session({**feeds, **runs.constants})
    return "the reference device", compile_net(runs.model.net, device="reference").bind(**runs.model.params)


def distances_of_calls(
    made: list[dict[str, Array]], steps: list[dict[str, Array]], other: HandedOn
) -> dict[str, float]:
    """Output -> the difference of calls from those of another program; last states are included."""
    wanted = [other(feeds) for feeds in steps]
    wanted[-1] |= other.last()
    found: dict[str, float] = {}
    for one, two in zip(made, wanted, strict=True):
        found |= {name: max(found.get(name, 0.0), distance_of(one[name], two[name])) for name in two}
    return found


LIMIT = 1e-8  # the largest difference in float64 that counts as rounding, divided by the largest value


def compare_rows(runs: OnnxRuns, axes: Mapping[str, int]) -> bool:
    """Print how far one call of several rows is from calls of one row each, and the op that mixes rows. Returns True if
    no op does.

    Args:
        axes: input -> its axis of rows.
    """
    net, (count, *_) = runs.model.net, (runs.feeds[name].shape[axis] for name, axis in axes.items())
    found = distances_of_rows(runs, net, axes)
    if runs.compare(f"{count} rows at once beside {count} calls of one row each", found, LIMIT):
        show("rows do not mix")
        return True
    wrong = [net.output_blobs[name] for name, distance in found.items() if distance > LIMIT]
    op = first_that_mixes(runs, ancestors(net, wrong), axes)
    show(f"rows are mixed by op '{plain(op.label, 400)}'" if op else "rows are mixed by an op on integers")
    return False


def first_that_mixes(runs: OnnxRuns, ops: Sequence[Op], axes: Mapping[str, int]) -> Op | None:
    """The first of these ops whose float result differs between one call of all rows and calls of one row each."""
    net = runs.model.net
    made = {name: op for op in ops for name in op.outputs if name}
    floats = {name: op for name, op in made.items() if net.blob(name).dtype.startswith("float")}
    every = net.with_ops(net.ops, {name: name for name in floats}).snapshot()
    found = distances_of_rows(runs, every, axes)
    return next((op for name, op in floats.items() if found[name] > LIMIT), None)


def distances_of_rows(runs: OnnxRuns, net: Net, axes: Mapping[str, int]) -> dict[str, float]:
    """Output -> the difference between one call of all rows and calls of one row each."""
    run = compile_net(net, device="reference").bind(**wide(runs.model.params))
    feeds = wide(runs.feeds)
    whole, rows = run(feeds), [run(row) for row in split_steps(feeds, axes)]
    return {name: distance_from_rows([row[name] for row in rows], array) for name, array in whole.items()}


def wide(arrays: Arrays) -> dict[str, Array]:
    """Arrays with floats as float64."""
    return {name: array.astype("float64") if array.dtype.kind == "f" else array for name, array in arrays.items()}


def distance_from_rows(rows: Sequence[Array], whole: Array) -> float:
    """The difference of an array from rows that are put together along one of its axes, or a part of an axis; infinite
    if the shapes do not fit."""
    shape = rows[0].shape
    if shape == whole.shape:
        return max(distance_of(row, whole) for row in rows)
    differ = [axis for axis, sizes in enumerate(zip(shape, whole.shape, strict=False)) if sizes[0] != sizes[1]]
    if len(shape) != whole.ndim or len(differ) != 1 or whole.shape[differ[0]] != len(rows) * shape[differ[0]]:
        return float("inf")
    (axis,) = differ
    ways = [(outer, shape[axis] // outer) for outer in range(1, shape[axis] + 1) if shape[axis] % outer == 0]
    cut = [np.stack([row.reshape(*shape[:axis], *way, *shape[axis + 1 :]) for row in rows], axis + 1) for way in ways]
    return min(distance_of(one.reshape(whole.shape), whole) for one in cut)
