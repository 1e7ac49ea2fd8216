"""Drawings of boxes and edges, and drawings of nets.

A net has a box for each input, op and output. Nets that ops hold are drawn in the ops' boxes. Sizes are shown if they
are known. The shape of a box shows its kind, its border how the backward pass treats it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import copysign
from textwrap import wrap
from typing import Any

from rnnops import svg
from rnnops.net.infer import infer_call, known_types
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, format_value, is_net
from rnnops.net.schema import schema_of
from rnnops.net.text import format_subscript
from rnnops.svg import DrawingLayout, Edge, Point, Size
from rnnops.types import FLOAT, OPAQUE, Shape, Type
from rnnops.util import cached_property, folded, scrolled

LINE, MARGIN, ABOVE = 15.0, 10.0, 8.0  # height of a line, margin around texts, space above the first text
OPS = ("constant", "op", "recurrence", "fused")
ASIDE = 8.0  # distance at which edges turn off from a box, and come back to it
HEAD = "\nhead"  # key of the texts of a surrounding box
# elements, width, height, and for each key the distance from the left at which its edge enters
Drawn = tuple[list[str], float, float, dict[str, float]]


@dataclass(frozen=True)
class Box:
    """A box with lines of text and an optional inner drawing.

    Args:
        kind: shown by shape and colour: `input`, `sequence`, `state`, `parameter`, `constant`, `op`, `recurrence`,
            `fused` or `output`.
        mark: shown by the border: `checkpoint`, `kept`, `boundary` or `recomputed`; `""` for none.
        note: text that is shown under the pointer.
        joined: inner box -> outer box to which it is bound, by key.
        bound: inner box -> name of the outer blob to which it is bound.
    """

    lines: tuple[str, ...]
    kind: str
    inner: Drawing | None = None
    mark: str = ""
    note: str = ""
    joined: Mapping[str, str] = field(default_factory=dict)
    bound: Mapping[str, str] = field(default_factory=dict)

    @property
    def told(self) -> tuple[str, ...]:
        """The meaning of its border and of its shape, in words."""
        return tuple(filter(None, (self.mark, "" if self.mark and self.kind == "op" else self.kind)))

    @property
    def named(self) -> str:
        """Its name in texts of other boxes: the last line of an op, the first line of inputs and outputs."""
        return self.lines[-1 if self.kind in OPS else 0]


@dataclass(frozen=True)
class Drawing(svg.Picture):
    """Boxes and edges between them.

    Args:
        title: the subject of the drawing.
        boxes: by key. Each box comes after the boxes that it reads.
        edges: (source, target) -> label.
        opened: True to draw nets inside of the boxes that hold them. Otherwise a notebook shows them below the picture.
        turns: state -> the output that is its value in the next step, by key.
    """

    title: str
    boxes: Mapping[str, Box]
    edges: Mapping[Edge, str] = field(default_factory=dict)
    opened: bool = True
    turns: Mapping[str, str] = field(default_factory=dict)

    @property
    def svg(self) -> str:
        """The picture as an SVG document."""
        shown, width, height, _ = self._drawn(self.title)
        colours = [*dict.fromkeys(self._colours())]
        wide, high = svg.legend_size(colours, width)
        below = [svg.legend(colours, MARGIN, height, width)] if high else []
        return svg.document(max(width, wide), height + high, self.title, [*shown, *below])

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self._said())])

    def _below(self) -> str:
        """The contents of closed boxes, which a reader can open there."""
        shut = [(box, box.inner) for box in self.boxes.values() if box.inner is not None and not self.opened]
        return "".join(folded(": ".join(box.lines), scrolled(one.svg) + one._below()) for box, one in shut)

    def _said(self, joined: Mapping[str, str] | None = None) -> Iterator[str]:
        """A line for each box, which names the boxes that it reads.

        Args:
            joined: box -> name of the outer blob to which it is bound.
        """
        reads = {key: [name] for key, name in (joined or {}).items()}
        for state, output in self.turns.items():
            reads.setdefault(state, []).append(f"next step {self.boxes[output].named}")
        for (source, target), label in self.edges.items():
            reads.setdefault(target, []).append(label or self.boxes[source].named)
        for key, box in self.boxes.items():
            said = f"{' '.join(box.told)} {': '.join(box.lines)}"
            yield said + (f" <- {', '.join(reads[key])}" if key in reads else "")
            if box.inner is not None and self.opened:
                said_within = (f"  {line}" for line in box.inner._said(box.bound))
                yield from (f"  {line}" for line in (box.inner.title, *said_within))

    def _colours(self) -> Iterator[tuple[str, str]]:
        """Classes of the style sheet, and their meanings."""
        for box in self.boxes.values():
            for word in box.told:
                yield f"box {'op ' if word == box.mark else ''}{word}", word
            if box.inner is not None and self.opened:
                yield from box.inner._colours()
        if self.turns:
            yield "way next", "next step"

    def _drawn(self, title: str = "", around: Box | None = None) -> Drawn:
        """The elements, with the upper left corner at 0, and the size.

        Args:
            around: the surrounding box, whose texts are at the top.
        """
        inner = {k: b.inner._drawn(around=b) for k, b in self.boxes.items() if b.inner and self.opened}
        labels = {edge: "\n".join((*edge, "label")) for edge, label in self.edges.items() if label}
        sizes = {key: _size(box, inner.get(key)) for key, box in self.boxes.items()}
        ports = self._ports(inner, labels)
        entries = {key: f"{key}\nentry" for key in around.joined} if around else {}
        head = {HEAD: _size(around), **dict.fromkeys(entries.values(), (svg.WAY, 0.0))} if around else {}
        layout = self._layout(sizes, labels, ports, head)
        top = 0.0 if around else 2 * LINE if title else LINE / 2
        shown = list[str]()
        for edge, way in layout.ways.items():
            ends = [layout.boxes[edge[1]][0] + x for x in ports.get(edge, ())]
            shown += self._edge(edge, way, ends)
        for key, box in self.boxes.items():
            shown.append(_box(box, layout.boxes[key], sizes[key], inner.get(key)))
        for edge, key in labels.items():
            (x, y), said = layout.boxes[key], self.edges[edge]
            shown.append(svg.text(x + svg.text_width(said, svg.SMALL) / 2, y + LINE - 4, said, "small soft", "middle"))
        width = max(layout.width, svg.text_width(title, svg.TITLE)) + 2 * MARGIN
        left = (width - layout.width) / 2
        above = [svg.text(MARGIN, LINE + 2, title, "title")] if title else []
        enter = {key: left + layout.boxes[entry][0] + svg.WAY / 2 for key, entry in entries.items()}
        return [*above, svg.group(shown, x=left, y=top)], width, layout.height + top + MARGIN, enter

    def _ports(self, inner: Mapping[str, Drawn], labels: Mapping[Edge, str]) -> dict[Edge, list[float]]:
        """Distances from the left at which edges enter boxes to go on inside. A labelled edge comes from its label."""
        found: dict[Edge, list[float]] = {}
        for target, (_, _, _, enter) in inner.items():
            for key, x in enter.items():
                edge = self.boxes[target].joined[key], target
                found.setdefault((labels.get(edge, edge[0]), target), []).append(x)
        return found

    def _layout(
        self,
        sizes: Mapping[str, Size],
        labels: Mapping[Edge, str],
        ports: Mapping[Edge, Sequence[float]],
        top: Mapping[str, Size],
    ) -> DrawingLayout:
        """Places of boxes and labels. A label counts as a box without a border on its edge, so that nothing covers it.

        Args:
            top: sizes of what lies above all boxes: texts, and the places where edges enter.
        """
        before: dict[str, dict[str, Size]] = {}
        for edge, key in labels.items():
            before.setdefault(edge[1], {})[key] = svg.text_width(self.edges[edge], svg.SMALL), LINE
        whole = {**top}
        for key, size in sizes.items():  # each box comes after those that it reads
            whole |= {**before.get(key, {}), key: size}
        edges = [(key, key.removesuffix("\nentry")) for key in top if key != HEAD]
        edges += [edge for edge, label in self.edges.items() if not label]
        edges += [pair for (source, target), key in labels.items() for pair in ((source, key), (key, target))]
        aims = {edge: sum(at) / len(at) / sizes[edge[1]][0] - 0.5 for edge, at in ports.items()}
        return svg.lay_out(whole, [*edges, *self.turns.items()], top, aims)

    def _edge(self, edge: Edge, way: list[Point], ends: Sequence[float]) -> Iterator[str]:
        """Lines of an edge: back to a state, to each place where it goes on inside a box, or with an arrow to a box."""
        if edge in self.turns.items():
            yield svg.way(_aside(way)[::-1], "way next")
        if edge in self.turns.items() and edge not in self.edges:
            return
        for x in ends:
            yield svg.way([*way[:-1], (x, way[-1][1])], arrow=False)
        if not ends:
            yield svg.way(way, arrow=edge[1] in self.boxes)


def _aside(way: list[Point]) -> list[Point]:
    """A way whose ends keep a distance from other edges, on the side to which it goes."""
    (x, _), (a, _) = way[0], way[-1]
    count = 2 if way[1][0] == x else 1
    begin, end = x + copysign(ASIDE, way[count][0] - x), a + copysign(ASIDE, way[-2][0] - a)
    return [*((begin, y) for _, y in way[:count]), *way[count:-1], (end, way[-1][1])]


def _size(box: Box, inner: Drawn | None = None) -> Size:
    if inner is not None:
        return inner[1:3]
    return max(map(svg.text_width, box.lines)) + 2 * MARGIN, LINE * len(box.lines) + ABOVE


def _box(box: Box, corner: Point, size: Size, inner: Drawn | None) -> str:
    (x, y), (width, height) = corner, size
    parts = [svg.box(x, y, width, height, box.kind, box.mark)]
    for i, said in enumerate(box.lines):
        kind = "bold" if i == (0 if box.kind in OPS else -1) else ""
        if inner is None:
            parts.append(svg.text(x + width / 2, y + LINE * (i + 1), said, kind, "middle"))
        else:
            parts.append(svg.text(x + MARGIN, y + LINE * (i + 1), said, kind))
    if inner is not None:
        parts.append(svg.group(inner[0], x=x, y=y))
    return svg.group(parts, box.note)


WIDTH = 72  # most letters of a line with the results of a recurrence
WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
LONGEST = 28  # most characters of an attribute's value that are shown
# attributes of a recurrence that its box shows in other ways
HIDDEN = ("cell", "backward", "keep", "output_grads", "types")
# Transpose is drawn, because it changes sizes
VIEWS = ("Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
# an op gets the first of these marks that one of its results has
ORDER = ("kept", "boundary", "recomputed", "checkpoint")
Types = Mapping[str, Type]


@dataclass(frozen=True)
class Marks:
    """The meaning of the borders of a net's blobs.

    Args:
        blobs: name -> `kept`, `boundary` or `recomputed`.
        notes: name -> text that is shown under the pointer.
        within: key of a recurrence -> marks of its cell.
    """

    blobs: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    within: Mapping[str, Marks] = field(default_factory=dict)

    def beside(self, others: Marks) -> Marks:
        """These marks and others. The others win."""
        return Marks({**self.blobs, **others.blobs}, {**self.notes, **others.notes}, {**self.within, **others.within})

    def first_of(self, names: list[str]) -> str:
        """The mark of an op with these results."""
        found = {self.blobs[name] for name in names if name in self.blobs}
        return next((mark for mark in ORDER if mark in found), "")

    def note_of(self, names: list[str]) -> str:
        return "; ".join(self.notes[name] for name in names if name in self.notes)


def draw_net(net: Net, shapes: Mapping[str, Shape], opened: bool = True, views: bool = False) -> Drawing:
    """A drawing of a net.

    Args:
        shapes: input -> its shape, for inputs that do not declare one.
        opened: True to draw cells inside of recurrences.
        views: True to draw ops that only change the shape.
    """
    return draw_typed(net, known_types(net, shapes), opened, views)


def draw_typed(
    net: Net,
    types: Types,
    opened: bool = True,
    views: bool = False,
    marks: Marks | None = None,
    title: str = "",
    float_dtype: str = "float32",
) -> Drawing:
    """A drawing of a net whose types are known, or some of them.

    Args:
        marks: meanings of the borders.
        title: by default `net` and its name.
        float_dtype: the dtype for `"float"` in these types.
    """
    return _Drawer(net, types, opened, views, marks or Marks(), float_dtype).drawing(title or f"net {net.name}")


@dataclass(frozen=True)
class _Drawer:
    """Boxes and edges of one net.

    Args:
        around: the recurrence whose cell this net is.
    """

    net: Net
    types: Types
    opened: bool
    views: bool
    marks: Marks
    float_dtype: str
    around: Op | None = None

    def drawing(self, title: str) -> Drawing:
        """The whole drawing."""
        told = self.around.attributes if self.around else {}
        turns = {f"input {row[0]}": f"output {row[1]}" for row in told.get("states", ())}
        return Drawing(title, dict(self.boxes()), self.edges(), self.opened, turns)

    @cached_property
    def makers(self) -> dict[str, Op]:
        """Blob -> the op that makes it."""
        return {name: op for op in self.net.ops for name in op.outputs if name}

    @cached_property
    def hidden(self) -> dict[str, str]:
        """Blob that is not drawn because it is a view -> the blob of which it is a view. That may be a view too."""
        ops = () if self.views else self.net.ops
        return {op.key: op.inputs[0] for op in ops if op.type in VIEWS and len([*filter(None, op.inputs)]) == 1}

    def _shown(self, blob: str) -> str:
        """The blob that is drawn for a blob that is read."""
        while blob in self.hidden:
            blob = self.hidden[blob]
        return blob

    def _box_of(self, blob: str) -> str:
        """The key of the box from which edges of a blob start."""
        blob = self._shown(blob)
        return self.makers[blob].key if blob in self.makers else f"input {blob}"

    def _with_views(self, names: Sequence[str]) -> list[str]:
        """Blobs, and their views that the backward pass keeps unchanged."""
        kept = [view for view in self.hidden if self.marks.blobs.get(view) != "recomputed"]
        return [*names, *(view for view in kept if self._shown(view) in names)]

    def boxes(self) -> Iterator[tuple[str, Box]]:
        """Inputs, ops and outputs, by key."""
        for spec in self.net.input_specs:
            yield f"input {spec.name}", self._input(spec)
        for op in self.net.ops:
            if op.key not in self.hidden:
                yield op.key, self._op(op)
        for name in self.net.output_blobs:
            yield f"output {name}", Box((name,), "output")

    def edges(self) -> dict[Edge, str]:
        """Pairs of boxes, and the blob's name if several blobs come from one op."""
        ops = [op for op in self.net.ops if op.key not in self.hidden]
        read = [(name, op.key) for op in ops for name in dict.fromkeys(map(self._shown, filter(None, op.inputs)))]
        out = [(self._shown(blob), f"output {name}") for name, blob in self.net.output_blobs.items()]
        edges: dict[Edge, list[str]] = {}
        for blob, target in (*read, *out):
            several = blob in self.makers and sum(map(bool, self.makers[blob].outputs)) > 1
            edges.setdefault((self._box_of(blob), target), []).append(self._called(blob) if several else "")
        return {edge: ", ".join(filter(None, said)) for edge, said in edges.items()}

    def _told_outside(self, blob: str) -> str:
        return self._called(blob) if blob in self.makers else blob

    def _called(self, blob: str) -> str:
        """The blob's name, after the variable that held it (if one did), and its sizes."""
        label = self.net.labels.names.get(blob)
        return f"{f'{label}: ' if label else ''}{blob} {self._shape(blob)}".rstrip()

    def _shape(self, blob: str) -> str:
        """The blob's sizes, and its dtype unless it holds floats."""
        kind = self.types.get(blob)
        if kind is None or kind.dtype == OPAQUE:
            return ""
        return f"{'' if 'float' in kind.dtype else kind.dtype}{list(kind.shape)}"

    def _input(self, spec: Input) -> Box:
        plain = "input" if spec.initializer is None else "parameter"
        kind = _roles(self.around).get(spec.name, plain) if self.around else plain
        dtype = "" if spec.dtype == FLOAT else spec.dtype
        shape = self._shape(spec.name) or dtype
        lines = (spec.name, *([shape] if shape else []))
        names = self._with_views([spec.name])
        return Box(lines, kind, None, self.marks.first_of(names), self.marks.note_of(names))

    def _op(self, op: Op) -> Box:
        made = [name for name in op.outputs if name]
        shown = [name for name in made if self.net.is_capturable(name)] or made[:1]
        names = self._with_views(made)
        mark = self.marks.first_of(names) or ("checkpoint" if self.net.checkpoints.intersection(names) else "")
        inner = _net_within(op)
        if inner is not None:
            title = f"{op.type} of cell '{inner.name}'" if "cell" in op.attributes else op.type
            results = [name for name in made if name not in self.types or self.types[name].dtype != OPAQUE]
            lines = (title, *wrap(", ".join(results), WIDTH, **WHOLE))
            kind = "recurrence" if "cell" in op.attributes else "fused"
            bound = {f"input {one}": blob for one, blob in _bound(op, inner) if blob}
            joined = {one: self._box_of(blob) for one, blob in bound.items()}
            bound = {one: self._told_outside(self._shown(blob)) for one, blob in bound.items()}
            return Box(lines, kind, self._inner(op, inner), mark, _told(op), joined, bound)
        kind = "constant" if op.type == "Constant" else "op"
        said, blob = self._slice(op) if op.type == "Slice" else (_shortened(op), made[0])
        lines = (op.type + said, self._called(blob) if len(made) == 1 else ", ".join(shown))
        return Box(lines, kind, None, mark, self.marks.note_of(names))

    def _slice(self, op: Op) -> tuple[str, str]:
        """A slice in Python's form, and the blob that it gives. An axis that is dropped next shows only its index."""
        if len([*filter(None, op.inputs)]) > 1:
            return _shortened(op), op.key
        first, *more = [one for one in self.net.ops if op.key in one.inputs] or [op]
        drops = first.type == "Squeeze" and first.key in self.hidden and op.key not in self.net.output_blobs.values()
        dropped = first.attributes.get("axes", ()) if drops and not more else ()
        return f" {format_subscript(op.attributes, dropped)}", first.key if dropped else op.key

    def _inner(self, op: Op, net: Net) -> Drawing:
        """The net that an op holds, with the sizes of one step."""
        again = Marks(dict.fromkeys(op.attributes.get("recompute", ()), "recomputed"))
        marks = again.beside(self.marks.within.get(op.key, Marks()))
        around = op if op.type == "RecurrentNetwork" else None
        types = self._types_within(op, net)
        drawer = _Drawer(net, types, self.opened, self.views, marks, self.float_dtype, around)
        return drawer.drawing(f"net {net.name}")

    def _types_within(self, op: Op, net: Net) -> Types:
        """Types of one step. If those of sequences are not known, types of the inputs that declare them."""
        given = [self.types.get(name) for name in op.inputs]
        if any(name and kind is None for name, kind in zip(op.inputs, given, strict=True)):
            return known_types(net, {})
        call, _ = infer_call(op, given, [None] * len(given), self.net.name, self.float_dtype)
        return schema_of(op.type).types_within(call)


def _shortened(op: Op) -> str:
    """The attributes of an op, shortened. A constant shows only its value, as its name has its dtype."""
    if op.type == "Constant":
        return f" {svg.cut(format_value(op.attributes['value']), LONGEST)}"
    said = [f"{name}={svg.cut(format_value(value), LONGEST)}" for name, value in op.attributes.items()]
    return f" {', '.join(said)}" if said else ""


def _told(op: Op) -> str:
    """The attributes of an op that holds a net, except for those that its box shows."""
    told = {name: value for name, value in op.attributes.items() if name not in HIDDEN and not is_net(value)}
    return ", ".join(f"{name}={svg.cut(format_value(value), LONGEST)}" for name, value in told.items())


def _roles(op: Op) -> dict[str, str]:
    """Inputs of a cell -> kind, in the order of the inputs of its recurrence."""
    told = op.attributes
    sequences, states = told.get("inputs", ()), [row[0] for row in told.get("states", ())]
    kinds = {"sequence": sequences, "state": states, "parameter": told.get("references", ())}
    return {name: kind for kind, names in kinds.items() for name in names}


def _bound(op: Op, net: Net) -> Iterable[tuple[str, str]]:
    """Inputs of the net that an op holds, with the outer blobs to which they are bound. Empty for gradients."""
    names = _roles(op) if op.type == "RecurrentNetwork" else net.input_names if "body" in op.attributes else ()
    return zip(names, op.inputs, strict=False)


def _net_within(op: Op) -> Net | None:
    """The cell of a recurrence, or the ops that are fused."""
    found: Any = op.attributes.get("cell", op.attributes.get("body"))
    return found if is_net(found) else None
