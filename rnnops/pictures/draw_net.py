"""Nets as drawings: a box for each input, op and output, recurrences with their cells in them, sizes where known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rnnops.infer import known_types
from rnnops.pictures.drawing import Box, Drawing
from rnnops.text import format_value, is_net

if TYPE_CHECKING:
    from rnnops.net import Net
    from rnnops.op import Input, Op
    from rnnops.types import Shape

LONGEST = 28  # characters of an attribute's value that are shown


def draw_net(net: Net, shapes: Mapping[str, Shape], opened: bool = True) -> Drawing:
    """A drawing of a net.

    Args:
        shapes: input -> its shape, where that is not declared.
        opened: whether cells are drawn within recurrences.
    """
    types = {name: str(list(kind.shape)) for name, kind in known_types(net, shapes).items()}
    makers = {name: op for op in net.ops for name in op.outputs if name}
    boxes = {f"input {spec.name}": _input(spec, types.get(spec.name)) for spec in net.input_specs}
    edges: dict[tuple[str, str], list[str]] = {}
    for op in net.ops:
        boxes[op.key] = _op(net, op, types, opened)
    boxes |= {f"output {name}": Box((name,), "output") for name in net.output_blobs}
    read = [(name, op.key) for op in net.ops for name in dict.fromkeys(op.inputs) if name]
    for blob, target in (*read, *((blob, f"output {name}") for name, blob in net.output_blobs.items())):
        maker = makers.get(blob)
        several = maker is not None and sum(map(bool, maker.outputs)) > 1
        label = f"{blob} {types.get(blob, '')}".strip() if several else ""
        edges.setdefault((maker.key if maker else f"input {blob}", target), []).append(label)
    return Drawing(f"net {net.name}", boxes, {edge: ", ".join(filter(None, said)) for edge, said in edges.items()})


def _input(spec: Input, shape: str | None) -> Box:
    kind = "input" if spec.initializer is None else "parameter"
    return Box((spec.name, *([shape] if shape else [])), kind)


def _op(net: Net, op: Op, types: Mapping[str, str], opened: bool) -> Box:
    made = [name for name in op.outputs if name]
    shown = [name for name in made if net.is_capturable(name)] or made[:1]
    cell = op.attributes.get("cell")
    if is_net(cell):
        title = f"{op.type} of cell '{cell.name}'"  # type: ignore[union-attr]
        again = set(op.attributes.get("recompute", ()))
        inner = _recomputed(draw_net(cell, {}, opened), again) if opened else None  # type: ignore[arg-type]
        return Box((title, ", ".join(made)), "recurrence", inner)
    kind = "constant" if op.type == "Constant" else "checkpoint" if net.checkpoints & set(made) else "op"
    shape = types.get(made[0], "") if len(made) == 1 else ""
    return Box((op.type + _attributes(op), f"{', '.join(shown)} {shape}".rstrip()), kind)


def _attributes(op: Op) -> str:
    """What an op was told, shortened."""
    said = []
    for name, value in op.attributes.items():
        text = format_value(value)
        said.append(f"{name}={text if len(text) <= LONGEST else text[: LONGEST - 1] + '…'}")
    return f" {', '.join(said)}" if said else ""


def _recomputed(drawing: Drawing, blobs: set[str]) -> Drawing:
    """A cell's drawing with what is computed again on the backward pass in its colour."""

    def marked(box: Box) -> Box:
        made = set(box.lines[-1].split(", "))
        return Box(box.lines, "recomputed", box.inner) if blobs & made and box.kind == "op" else box

    return Drawing(drawing.title, {key: marked(box) for key, box in drawing.boxes.items()}, drawing.edges)
