"""`rnnops onnx`: its options, and its report of what a file holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnops.cli import readers
from rnnops.cli.train import show
from rnnops.types import Shape
from rnnops.util import LazyModule, counted

if TYPE_CHECKING:
    from rnnops import onnx as onnx_files
    from rnnops.cli import onnx_runs
    from rnnops.onnx import OnnxModel
    from rnnops.onnx.outline import Outline, OutlineLayer, TensorCounts, Value
else:  # other commands do without the package onnx
    onnx_files = LazyModule("rnnops.onnx")
    onnx_runs = LazyModule("rnnops.cli.onnx_runs")

LONGEST = 100  # characters of a name
MOST = 40  # lines of one kind, and ops in the list of ops
UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def print_outline(path: Path, outline: Outline) -> None:
    """Print what a file says of itself."""
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
    """Print what becomes of a file, or why nothing does."""
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
    """Print rows below a title, their cells below each other; nothing where there are no rows."""
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
    """Print times of calls, and the second one over the first where there are two."""
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
    """The first texts, and how many more there are."""
    return texts if len(texts) <= MOST else [*texts[:MOST], f"and {len(texts) - MOST:,} more"]


def plain(text: str | bytes, most: int = LONGEST) -> str:
    """A text of a file that is safe to print: control characters escaped, and no longer than a line or two.

    Args:
        text: as the protobuf has it, bytes where it is not a UTF-8.
    """
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    shown = text if len(text) <= most else f"{text[: most - 3]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


HELP = "say what an ONNX file holds, draw it, and run it beside ONNX Runtime"
RIGHT, DIFFERENT, NOT_READ = 0, 1, 3
EXIT_CODES = """\
exit codes: 0 the file can be read, and all that was asked for was right; 1 a difference is larger than the tolerance;
2 for an error, in one line; 3 it is an ONNX file that rnnops does not read: the report says why; 130 where Ctrl-C ended
it."""
TOLERANCE = 1e-4


@dataclass(frozen=True)
class OnnxOptions:
    """The command line of `rnnops onnx`.

    Args:
        constants: inputs with their values from now on.
        sizes: name of an open size and the size, or of an input without axes in the file, and its shape.
        ranges: inputs with the lowest and highest number that is fed.
        states: output=input, as they were given; steps: the open size that counts steps.
        draw: where a picture goes.
        rows: how many rows --rows feeds, and the open size that counts them, "" for the only one.
        plan, check, speed, stream: what is asked for.
        tolerance: of differences, over the largest value; seed: of feeds.
    """

    file: Path
    constants: Sequence[tuple[str, Any]]
    sizes: Sequence[tuple[str, Shape]]
    ranges: Sequence[tuple[str, tuple[float, float]]]
    states: Sequence[str]
    steps: str | None
    draw: Path | None
    rows: tuple[str, int] | None
    plan: bool
    check: bool
    speed: bool
    stream: bool
    tolerance: float
    seed: int


def add_onnx(commands: Any) -> None:
    """Add the command to a parser's commands."""
    parser = commands.add_parser("onnx", help=HELP, description=f"{HELP}.", epilog=EXIT_CODES)
    parser.add_argument("file", type=Path, metavar="FILE", help="an ONNX file")
    value = "value of an input that decides sizes or branches: numbers"
    readers.add_repeated(parser, "--constants", "NAME=1,2", readers.constant, value, "constants")
    size = "an open size, by its name, or INPUT.AXIS where it has none: the file is read as though it had it"
    readers.add_repeated(parser, "--sizes", "NAME=SIZE", readers.sizes, size, "sizes")
    bounds = "lowest and highest number that is fed; else floats are normal, integers 0 or 1"
    readers.add_repeated(parser, "--range", "INPUT=LOW,HIGH", readers.bounds, bounds, "ranges")
    fed = "of what is fed (default: %(default)s)"
    parser.add_argument("--seed", type=readers.count, default=0, metavar="N", help=fed)
    _add_work(parser.add_argument_group("what is done beside the report"))


def _add_work(group: Any) -> None:
    group.add_argument("--draw", type=Path, metavar="FILE.svg", help="draw the net")
    group.add_argument("--plan", action="store_true", help="print how the net is computed, with its sizes")
    group.add_argument("--check", action="store_true", help="compare outputs with those of ONNX Runtime")
    group.add_argument("--speed", action="store_true", help="time a call of both, one thread each")
    stream = "run it call by call, its states handed on, compare with other ways to do so, and time a call"
    group.add_argument("--stream", action="store_true", help=stream)
    state = "a state: what --stream feeds back; what recurrences begin and end with, if left out"
    readers.add_repeated(group, "--state", "OUTPUT=INPUT", str, state, "states")
    steps = "the size that counts steps, which stays open: --stream feeds one at a time, beside one call of them all"
    group.add_argument("--steps", metavar="NAME", help=steps)
    rows = "feed K rows at once and one by one, compare, and name the op that mixes rows; NAME is their open size"
    group.add_argument("--rows", type=readers.rows, metavar="[NAME=]K", help=rows)
    limit = "the largest difference that is right, over the largest value (default: %(default)g)"
    group.add_argument("--tolerance", type=readers.positive, default=TOLERANCE, metavar="X", help=limit)


def onnx(options: OnnxOptions) -> int:
    """Print the report, do what is asked for, and return the exit code."""
    file = onnx_runs.read_file(options)
    print_outline(options.file, file.outline)
    try:
        model = onnx_files.load_model(options.file, dict(options.constants), file.fixed)
    except onnx_files.OnnxError as error:
        print_reading(file.outline, None, readers.in_options(str(error)))
        return NOT_READ
    print_reading(file.outline, model, "")
    right = onnx_runs.OnnxRuns(options, file, model).all()
    if not (options.check or options.speed or options.stream or options.rows):
        show("not run: --check compares its outputs with those of ONNX Runtime")
    return RIGHT if right else DIFFERENT
