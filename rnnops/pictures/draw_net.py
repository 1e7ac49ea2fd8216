"""Nets as drawings: a box for each input, op and output, nets that ops hold within their boxes, sizes where known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rnnops.infer import infer_call, known_types
from rnnops.pictures.drawing import Box, Drawing
from rnnops.pictures.svg import cut
from rnnops.schema import schema_of
from rnnops.text import format_value, is_net
from rnnops.types import FLOAT, OPAQUE, Type

if TYPE_CHECKING:
    from rnnops.net import Net
    from rnnops.op import Input, Op
    from rnnops.types import Shape

WIDTH = 72  # letters of a line of results of a recurrence
WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
LONGEST = 28  # characters of an attribute's value that are shown
HIDDEN = ("cell", "backward", "keep", "output_grads", "types")  # what the box of a recurrence shows by other means
ORDER = ("kept", "boundary", "recomputed", "checkpoint")  # the first of these that one of an op's results has
Types = Mapping[str, Type]


@dataclass(frozen=True)
class Marks:
    """The meaning of colours of a net's blobs.

    Args:
        blobs: name -> `kept`, `boundary` or `recomputed`.
        notes: name -> what is told of it where somebody points at it.
        within: key of a recurrence -> marks of its cell.
    """

    blobs: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    within: Mapping[str, Marks] = field(default_factory=dict)

    def beside(self, others: Marks) -> Marks:
        """These, and others, which win."""
        return Marks({**self.blobs, **others.blobs}, {**self.notes, **others.notes}, {**self.within, **others.within})

    def first_of(self, names: list[str]) -> str:
        """The mark of an op with such results."""
        found = {self.blobs[name] for name in names if name in self.blobs}
        return next((mark for mark in ORDER if mark in found), "")

    def note_of(self, names: list[str]) -> str:
        return "; ".join(self.notes[name] for name in names if name in self.notes)


def draw_net(net: Net, shapes: Mapping[str, Shape], opened: bool = True) -> Drawing:
    """A drawing of a net.

    Args:
        shapes: input -> its shape, where that is not declared.
        opened: whether cells are drawn within recurrences.
    """
    return draw_typed(net, known_types(net, shapes), opened)


def draw_typed(
    net: Net,
    types: Types,
    opened: bool = True,
    marks: Marks | None = None,
    title: str = "",
    float_dtype: str = "float32",
) -> Drawing:
    """A drawing of a net the types of whose blobs are known, or of some.

    Args:
        marks: what colours tell.
        title: `net` and its name, if left out.
        float_dtype: what `"float"` stands for in these types.
    """
    drawer = _Drawer(net, types, opened, marks or Marks(), float_dtype)
    return Drawing(title or f"net {net.name}", dict(drawer.boxes()), drawer.edges(), opened)


@dataclass(frozen=True)
class _Drawer:
    """Boxes and edges of one net."""

    net: Net
    types: Types
    opened: bool
    marks: Marks
    float_dtype: str

    def boxes(self) -> Iterator[tuple[str, Box]]:
        """Inputs, ops and outputs, by key."""
        for spec in self.net.input_specs:
            yield f"input {spec.name}", self._input(spec)
        for op in self.net.ops:
            yield op.key, self._op(op)
        for name in self.net.output_blobs:
            yield f"output {name}", Box((name,), "output")

    def edges(self) -> dict[tuple[str, str], str]:
        """Who reads whom; where several blobs come from one op, which."""
        makers = {name: op for op in self.net.ops for name in op.outputs if name}
        read = [(name, op.key) for op in self.net.ops for name in dict.fromkeys(op.inputs) if name]
        out = [(blob, f"output {name}") for name, blob in self.net.output_blobs.items()]
        edges: dict[tuple[str, str], list[str]] = {}
        for blob, target in (*read, *out):
            maker = makers.get(blob)
            several = maker is not None and sum(map(bool, maker.outputs)) > 1
            edge = maker.key if maker else f"input {blob}", target
            edges.setdefault(edge, []).append(self._called(blob) if several else "")
        return {edge: ", ".join(filter(None, said)) for edge, said in edges.items()}

    def _called(self, blob: str) -> str:
        """Its name, after the variable that held it where one did, and its sizes."""
        label = self.net.labels.names.get(blob)
        return f"{f'{label}: ' if label else ''}{blob} {self._shape(blob)}".rstrip()

    def _shape(self, blob: str) -> str:
        """Its sizes, and its dtype where it holds no floats."""
        kind = self.types.get(blob)
        if kind is None or kind.dtype == OPAQUE:
            return ""
        return f"{'' if 'float' in kind.dtype else kind.dtype}{list(kind.shape)}"

    def _input(self, spec: Input) -> Box:
        kind = "input" if spec.initializer is None else "parameter"
        dtype = "" if spec.dtype == FLOAT else spec.dtype
        shape = self._shape(spec.name) or dtype
        lines = (spec.name, *([shape] if shape else []))
        return Box(lines, kind, None, self.marks.first_of([spec.name]), self.marks.note_of([spec.name]))

    def _op(self, op: Op) -> Box:
        made = [name for name in op.outputs if name]
        shown = [name for name in made if self.net.is_capturable(name)] or made[:1]
        mark = self.marks.first_of(made) or ("checkpoint" if self.net.checkpoints & set(made) else "")
        inner = _net_within(op)
        if inner is not None:
            title = f"{op.type} of cell '{inner.name}'" if "cell" in op.attributes else op.type
            results = [name for name in made if name not in self.types or self.types[name].dtype != OPAQUE]
            lines = (title, *wrap(", ".join(results), WIDTH, **WHOLE))
            return Box(
                lines, "recurrence" if "cell" in op.attributes else "fused", self._inner(op, inner), mark, _told(op)
            )
        kind = "constant" if op.type == "Constant" else "op"
        lines = (op.type + _shortened(op), self._called(made[0]) if len(made) == 1 else ", ".join(shown))
        return Box(lines, kind, None, mark, self.marks.note_of(made))

    def _inner(self, op: Op, net: Net) -> Drawing:
        """The net that an op holds, with the sizes of one step."""
        again = Marks(dict.fromkeys(op.attributes.get("recompute", ()), "recomputed"))
        marks = again.beside(self.marks.within.get(op.key, Marks()))
        return draw_typed(net, self._types_within(op, net), self.opened, marks, float_dtype=self.float_dtype)

    def _types_within(self, op: Op, net: Net) -> Types:
        """Types of one step; of its inputs that declare them where those of the sequences are not known."""
        given = [self.types.get(name) for name in op.inputs]
        if any(name and kind is None for name, kind in zip(op.inputs, given, strict=True)):
            return known_types(net, {})
        call, _ = infer_call(op, given, [None] * len(given), self.net.name, self.float_dtype)
        return schema_of(op.type).types_within(call)


def _shortened(op: Op) -> str:
    """The attributes of an op, shortened."""
    said = [f"{name}={cut(format_value(value), LONGEST)}" for name, value in op.attributes.items()]
    return f" {', '.join(said)}" if said else ""


def _told(op: Op) -> str:
    """The attributes of an op that holds a net, except those that its box shows."""
    told = {name: value for name, value in op.attributes.items() if name not in HIDDEN and not is_net(value)}
    return ", ".join(f"{name}={cut(format_value(value), LONGEST)}" for name, value in told.items())


def _net_within(op: Op) -> Net | None:
    """The cell of a recurrence, or the ops that are fused."""
    found: Any = op.attributes.get("cell", op.attributes.get("body"))
    return found if is_net(found) else None
