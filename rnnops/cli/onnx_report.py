"""What `rnnops onnx` prints of a file; names of a file are not trusted, so that none reaches a terminal as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnnops.cli.report import show

if TYPE_CHECKING:
    from rnnops.onnx import OnnxModel
    from rnnops.onnx.outline import Outline, Tensors, Value
    from rnnops.onnx.outline_layers import Layer

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
        parts = f"{len(model.net.ops)} ops, {recurrences} of them recurrences"
        show(f"read: a net of {parts}, with {len(model.params)} parameters of {numbers:,} numbers")
        return
    show(f"not read: {plain(' '.join(problem.split()), 10 * LONGEST)}")
    rows = []
    for one in outline.unsupported:
        nodes = "1 node" if one.count == 1 else f"{one.count} nodes"
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


def layer_row(layer: Layer) -> tuple[str, ...]:
    """A recurrence: layer, kind, direction, sizes, weights, node and branch."""
    weights = "" if layer.weights is None else f"{layer.weights:,} weights"
    where = " in ".join((f"'{layer.name}'", *reversed(layer.places)))
    cells = (layer.kind, layer.direction, layer.sizes, weights, plain(where, 4 * LONGEST))
    return (f"layer {layer.number}", *map(plain, cells[:3]), *cells[3:])


def tensors_row(tensors: Tensors) -> tuple[str, ...]:
    """Tensors of one dtype."""
    count = "1 tensor" if tensors.tensors == 1 else f"{tensors.tensors:,} tensors"
    return tensors.dtype, f"{tensors.numbers:,} numbers in {count}", in_bytes(tensors.nbytes)


def in_bytes(count: int) -> str:
    """`2.8 MB`."""
    for unit, size in UNITS:
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def cut(texts: list[str]) -> list[str]:
    """The first texts, and how many more there are."""
    return texts if len(texts) <= MOST else [*texts[:MOST], f"and {len(texts) - MOST:,} more"]


def plain(text: str | bytes, most: int = LONGEST) -> str:
    """A text of a file that is safe to print: control characters escaped, and no longer than a line or two.

    Args:
        text: as the protobuf has it, bytes where it is no UTF-8.
    """
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    shown = text if len(text) <= most else f"{text[: most - 3]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
