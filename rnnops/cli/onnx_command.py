"""`rnnops onnx`: its options, and its report of what a file holds.

Hints of the library say `load(path, sizes={'N': ...})`; on the command line that is an option.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnnops.cli.train import show
from rnnops.errors import ArgumentError
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


RIGHT, DIFFERENT, NOT_READ = 0, 1, 3
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


def onnx(options: OnnxOptions) -> int:
    """Print the report, do what is asked for, and return the exit code."""
    file = onnx_runs.read_file(options)
    print_outline(options.file, file.outline)
    try:
        model = onnx_files.load_model(options.file, dict(options.constants), file.fixed)
    except onnx_files.OnnxError as error:
        print_reading(file.outline, None, in_options(str(error)))
        return NOT_READ
    print_reading(file.outline, model, "")
    right = onnx_runs.OnnxRuns(options, file, model).all()
    if not (options.check or options.speed or options.stream or options.rows):
        show("not run: --check compares its outputs with those of ONNX Runtime")
    return RIGHT if right else DIFFERENT


CALL = re.compile(r"load\(path, (constants|sizes)=\{(.*?)\}\)")
NAME = re.compile(r"'(.*?)': ")


def in_options(text: str, command: str = "onnx") -> str:
    """A text with options of a command in place of calls."""

    def option(call: re.Match[str]) -> str:
        kind, names = call[1], NAME.findall(call[2])
        if kind == "sizes" and command == "export":
            return f"--shape INPUT=1,1,40 ({', '.join(names)})" if names else "--shape INPUT=1,1,40"
        return " ".join(f"--{kind} {name}=..." for name in names or ["NAME"])

    return CALL.sub(option, text)


def pair_of(text: str, net: str, outputs: Iterable[str], inputs: Iterable[str]) -> tuple[str, str]:
    """`OUTPUT=INPUT` as two names, which may have `=` in them. Raises ArgumentError for others."""
    pairs = [(output, name) for output in outputs for name in inputs if f"{output}={name}" == text]
    if len(pairs) != 1:
        wanted = f"OUTPUT=INPUT of outputs {', '.join(outputs)} and inputs {', '.join(inputs)}"
        raise ArgumentError("--state names no pair", net=net, wanted=wanted, came=text)
    return pairs[0]
