"""Drawings of boxes and edges, and nets as such drawings.

A net has a box for each input, op and output, nets that ops hold within their boxes, and sizes where these are known.
Shapes tell what a box stands for, borders what the backward pass does with it.
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

LINE, MARGIN, ABOVE = 15.0, 10.0, 8.0  # from line to line, around texts, and above the first one
OPS = ("constant", "op", "recurrence", "fused")
ASIDE = 8.0  # from where edges go down from a box to where one comes back
HEAD = "\nhead"  # key of the texts of a box around a drawing
Drawn = tuple[list[str], float, float, dict[str, float]]  # elements, width, height, where edges enter: key -> from left


@dataclass(frozen=True)
class Box:
    """A box with lines of text, and what is drawn within it.

    Args:
        kind: what its shape and colour tell: `input`, `sequence`, `state`, `parameter`, `constant`, `op`, `recurrence`,
            `fused` or `output`.
        mark: what its border tells besides: `checkpoint`, `kept`, `boundary` or `recomputed`; `""` for nothing.
        note: what is shown of it besides, where somebody points at it.
        joined: box within -> box outside that it is bound to, by key.
        bound: box within -> the blob outside that it is bound to, in words.
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
        """Its name for others: the last line of an op, the first of inputs and outputs."""
        return self.lines[-1 if self.kind in OPS else 0]


@dataclass(frozen=True)
class Drawing(svg.Picture):
    """Boxes and edges between them.

    Args:
        title: what is drawn.
        boxes: by key, each after those that it reads.
        edges: (source, target) -> what is said of it.
        opened: whether nets that boxes hold are drawn inside of them; else a notebook shows them below the picture.
        turns: state -> the output that is its value at the next step, by key.
    """

    title: str
    boxes: Mapping[str, Box]
    edges: Mapping[Edge, str] = field(default_factory=dict)
    opened: bool = True
    turns: Mapping[str, str] = field(default_factory=dict)

    @property
    def svg(self) -> str:
        """The picture, as a document of its own."""
        shown, width, height, _ = self._drawn(self.title)
        colours = [*dict.fromkeys(self._colours())]
        wide, high = svg.legend_size(colours, width)
        below = [svg.legend(colours, MARGIN, height, width)] if high else []
        return svg.document(max(width, wide), height + high, self.title, [*shown, *below])

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self._said())])

    def _below(self) -> str:
        """The contents of closed boxes, to be opened there."""
        shut = [(box, box.inner) for box in self.boxes.values() if box.inner is not None and not self.opened]
        return "".join(folded(": ".join(box.lines), scrolled(one.svg) + one._below()) for box, one in shut)

    def _said(self, joined: Mapping[str, str] | None = None) -> Iterator[str]:
        """A line for each box, with what it reads.

        Args:
            joined: box -> the name of what it is bound to outside.
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
        """Classes of the style sheet, and what they mean."""
        for box in self.boxes.values():
            for word in box.told:
                yield f"box {'op ' if word == box.mark else ''}{word}", word
            if box.inner is not None and self.opened:
                yield from box.inner._colours()
        if self.turns:
            yield "way next", "next step"

    def _drawn(self, title: str = "", around: Box | None = None) -> Drawn:
        """Elements with the upper left corner at 0, and the size.

        Args:
            around: the box in which they lie; its texts are at the top.
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
        """Where edges enter boxes to go on within them, from the left; an edge with a label comes from that."""
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
        """Places; a label is a box without a border on the way of its edge, so that nothing lies over it.

        Args:
            top: what lies above all boxes: texts, and the places at which edges enter.
        """
        before: dict[str, dict[str, Size]] = {}
        for edge, key in labels.items():
            before.setdefault(edge[1], {})[key] = svg.text_width(self.edges[edge], svg.SMALL), LINE
        whole = {**top}
        for key, size in sizes.items():  # each after what it reads
            whole |= {**before.get(key, {}), key: size}
        edges = [(key, key.removesuffix("\nentry")) for key in top if key != HEAD]
        edges += [edge for edge, label in self.edges.items() if not label]
        edges += [pair for (source, target), key in labels.items() for pair in ((source, key), (key, target))]
        aims = {edge: sum(at) / len(at) / sizes[edge[1]][0] - 0.5 for edge, at in ports.items()}
        return svg.lay_out(whole, [*edges, *self.turns.items()], top, aims)

    def _edge(self, edge: Edge, way: list[Point], ends: Sequence[float]) -> Iterator[str]:
        """Lines: back to a state, to each place where it goes on within a box, or with an arrow to a box."""
        if edge in self.turns.items():
            yield svg.way(_aside(way)[::-1], "way next")
        if edge in self.turns.items() and edge not in self.edges:
            return
        for x in ends:
            yield svg.way([*way[:-1], (x, way[-1][1])], arrow=False)
        if not ends:
            yield svg.way(way, arrow=edge[1] in self.boxes)


def _aside(way: list[Point]) -> list[Point]:
    """A way whose ends keep a distance from those of other edges, on the side to which it goes."""
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


WIDTH = 72  # letters of a line of results of a recurrence
WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
LONGEST = 28  # characters of an attribute's value that are shown
HIDDEN = ("cell", "backward", "keep", "output_grads", "types")  # what the box of a recurrence shows by other means
VIEWS = ("Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")  # Transpose is drawn: sizes change
ORDER = ("kept", "boundary", "recomputed", "checkpoint")  # the first of these that one of an op's results has
Types = Mapping[str, Type]


@dataclass(frozen=True)
class Marks:
    """The meaning of borders of a net's blobs.

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


def draw_net(net: Net, shapes: Mapping[str, Shape], opened: bool = True, views: bool = False) -> Drawing:
    """A drawing of a net.

    Args:
        shapes: input -> its shape, where that is not declared.
        opened: whether cells are drawn within recurrences.
        views: whether ops that only give elements another shape are drawn.
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
    """A drawing of a net the types of whose blobs are known, or of some.

    Args:
        marks: what borders tell.
        title: `net` and its name, if left out.
        float_dtype: what `"float"` stands for in these types.
    """
    return _Drawer(net, types, opened, views, marks or Marks(), float_dtype).drawing(title or f"net {net.name}")


@dataclass(frozen=True)
class _Drawer:
    """Boxes and edges of one net.

    Args:
        around: the recurrence whose cell it is.
    """

    net: Net
    types: Types
    opened: bool
    views: bool
    marks: Marks
    float_dtype: str
    around: Op | None = None

    def drawing(self, title: str) -> Drawing:
        """All of it."""
        told = self.around.attributes if self.around else {}
        turns = {f"input {row[0]}": f"output {row[1]}" for row in told.get("states", ())}
        return Drawing(title, dict(self.boxes()), self.edges(), self.opened, turns)

    @cached_property
    def makers(self) -> dict[str, Op]:
        """Blob -> the op that makes it."""
        return {name: op for op in self.net.ops for name in op.outputs if name}

    @cached_property
    def hidden(self) -> dict[str, str]:
        """Blob that is not drawn, as it is a view -> the blob that it is a view of, which may be one, too."""
        ops = () if self.views else self.net.ops
        return {op.key: op.inputs[0] for op in ops if op.type in VIEWS and len([*filter(None, op.inputs)]) == 1}

    def _shown(self, blob: str) -> str:
        """The blob that is drawn where one is read."""
        while blob in self.hidden:
            blob = self.hidden[blob]
        return blob

    def _box_of(self, blob: str) -> str:
        """The key of the box from which edges of a blob come."""
        blob = self._shown(blob)
        return self.makers[blob].key if blob in self.makers else f"input {blob}"

    def _with_views(self, names: Sequence[str]) -> list[str]:
        """Blobs, and views of them that are in memory between the passes as they are."""
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
        """Who reads whom; where several blobs come from one op, which."""
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
        """A slice as Python writes it, and the blob that it gives: an axis that is dropped next has only an index."""
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
        """Types of one step; of its inputs that declare them where those of the sequences are not known."""
        given = [self.types.get(name) for name in op.inputs]
        if any(name and kind is None for name, kind in zip(op.inputs, given, strict=True)):
            return known_types(net, {})
        call, _ = infer_call(op, given, [None] * len(given), self.net.name, self.float_dtype)
        return schema_of(op.type).types_within(call)


def _shortened(op: Op) -> str:
    """The attributes of an op, shortened; of a constant only the value, as its name has its dtype."""
    if op.type == "Constant":
        return f" {svg.cut(format_value(op.attributes['value']), LONGEST)}"
    said = [f"{name}={svg.cut(format_value(value), LONGEST)}" for name, value in op.attributes.items()]
    return f" {', '.join(said)}" if said else ""


def _told(op: Op) -> str:
    """The attributes of an op that holds a net, except those that its box shows."""
    told = {name: value for name, value in op.attributes.items() if name not in HIDDEN and not is_net(value)}
    return ", ".join(f"{name}={svg.cut(format_value(value), LONGEST)}" for name, value in told.items())


def _roles(op: Op) -> dict[str, str]:
    """Inputs of a cell, in the order of the inputs of its recurrence -> kind."""
    told = op.attributes
    sequences, states = told.get("inputs", ()), [row[0] for row in told.get("states", ())]
    kinds = {"sequence": sequences, "state": states, "parameter": told.get("references", ())}
    return {name: kind for kind, names in kinds.items() for name in names}


def _bound(op: Op, net: Net) -> Iterable[tuple[str, str]]:
    """Inputs of the net that an op holds, with the blobs that they are bound to; of gradients none."""
    names = _roles(op) if op.type == "RecurrentNetwork" else net.input_names if "body" in op.attributes else ()
    return zip(names, op.inputs, strict=False)


def _net_within(op: Op) -> Net | None:
    """The cell of a recurrence, or the ops that are fused."""
    found: Any = op.attributes.get("cell", op.attributes.get("body"))
    return found if is_net(found) else None
