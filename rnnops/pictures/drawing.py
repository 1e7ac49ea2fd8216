"""Drawings of boxes and edges, laid out in layers, and nets as such drawings.

A layered layout of a directed graph without cycles (Sugiyama, Tagawa and Toda, IEEE Trans. SMC 11(2), 1981). Boxes lie
in layers, each below those that it reads; an edge over several layers has a place in each. The order within layers is
found by means of neighbours' places, in sweeps down and up; then boxes move towards their neighbours.

A net has a box for each input, op and output, nets that ops hold within their boxes, and sizes where these are known.

Limits: a few hundred boxes; crossings are few, not fewest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rnnops.net.infer import infer_call, known_types
from rnnops.net.schema import schema_of
from rnnops.net.text import format_value, is_net
from rnnops.pictures import svg
from rnnops.types import FLOAT, OPAQUE, Type
from rnnops.util import folded, scrolled

SWEEPS = 8  # down and up in turn; pictures change little after
GAP, LAYER_GAP, WAY = 16.0, 34.0, 8.0  # between boxes, between layers, and the width of a place of an edge
NEAR = 12  # places of an edge that are looked at for where it may go straight
CORNER = 40.0  # from the sides of a box, where edges neither begin nor end

Size = tuple[float, float]
Point = tuple[float, float]


@dataclass(frozen=True)
class DrawingLayout:
    """Where boxes and edges lie.

    Args:
        boxes: key -> upper left corner.
        ways: (source, target) -> points from the lower side of one box to the upper side of the other.
    """

    boxes: dict[str, Point]
    ways: dict[tuple[str, str], list[Point]]
    width: float
    height: float


def lay_out(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]]) -> DrawingLayout:
    """Places of boxes of certain sizes.

    Args:
        sizes: key -> width and height, each key after those that it reads.
        edges: (source, target) by key.
    """
    moved = _Layered(sizes, edges)
    moved.order()
    moved.center()
    moved.straighten()
    return moved.placed()


def _layers(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The layer of each box: one below the lowest box that it reads.

    A box that reads nothing lies one above its first reader. So does a box that reads only such boxes, where no other
    box reads these.
    """
    reads = _neighbours(edges, 1)
    layers: dict[str, int] = {}
    for key in sizes:
        layers[key] = 1 + max((layers[source] for source in reads.get(key, ())), default=-1)
    read_by, loose = _neighbours(edges, 0), set[str]()
    for key in sizes:
        if all(source in loose and len(read_by[source]) == 1 for source in reads.get(key, ())):
            loose.add(key)
    for key in reversed([*sizes]):
        if key in loose and key in read_by:
            layers[key] = min(layers[reader] for reader in read_by[key]) - 1
    return layers


def _neighbours(pairs: Sequence[tuple[str, str]], side: int) -> dict[str, list[str]]:
    """For each key on one side of pairs, those on the other."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(pair[side], []).append(pair[1 - side])
    return found


def _chain(edge: tuple[str, str], layer_of: Mapping[str, int]) -> list[str]:
    """An edge as places, one in each layer that it passes."""
    source, target = edge
    passed = range(layer_of[source] + 1, layer_of[target])
    return [source, *(f"{source}\n{target}\n{layer}" for layer in passed), target]


def _filled(layer_of: Mapping[str, int], chains: Mapping[tuple[str, str], list[str]]) -> list[list[str]]:
    """Boxes and places of edges by layer."""
    layers: list[list[str]] = [[] for _ in range(1 + max(layer_of.values(), default=-1))]
    for key, layer in layer_of.items():
        layers[layer].append(key)
    for (source, _), chain in chains.items():
        for offset, place in enumerate(chain[1:-1], layer_of[source] + 1):
            layers[offset].append(place)
    return layers


def _mean(places: Mapping[str, float], keys: Sequence[str]) -> float:
    return sum(places[key] for key in keys) / len(keys)


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Centers near those wanted, in the same order and without overlap: the mean of pushing right and pushing left."""

    def pushed(centers: Sequence[float], sizes: Sequence[float]) -> list[float]:
        found: list[float] = []
        for i, center in enumerate(centers):
            least = found[-1] + (sizes[i - 1] + sizes[i]) / 2 + GAP if found else center
            found.append(max(center, least))
        return found

    right = pushed(wanted, widths)
    left = [-center for center in pushed([-center for center in wanted[::-1]], widths[::-1])][::-1]
    return [(a + b) / 2 for a, b in zip(right, left, strict=True)]


class _Layered:
    """Boxes and places of edges in layers, while they are moved.

    Args:
        chains: edge -> its boxes and places, one in each layer that it passes.
        above, below: key -> its neighbours.
    """

    def __init__(self, sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]]) -> None:
        layer_of = _layers(sizes, edges)
        self.sizes, self.chains = sizes, {edge: _chain(edge, layer_of) for edge in dict.fromkeys(edges)}
        self.widths = {key: width for key, (width, _) in sizes.items()}
        self.widths |= {place: WAY for chain in self.chains.values() for place in chain[1:-1]}
        self.layers = _filled(layer_of, self.chains)
        links = [pair for chain in self.chains.values() for pair in pairwise(chain)]
        self.above, self.below = _neighbours(links, 1), _neighbours(links, 0)
        self.centers: dict[str, float] = {}

    def order(self) -> None:
        """Sort each layer by the mean place of neighbours above, then below, and so on."""
        places = {key: float(i) for layer in self.layers for i, key in enumerate(layer)}
        for sweep in range(SWEEPS):
            neighbours = self.below if sweep % 2 else self.above
            for layer in self.layers[::-1] if sweep % 2 else self.layers:
                layer.sort(key=lambda key, near=neighbours: _mean(places, near.get(key, [key])))  # type: ignore[misc]
                places.update((key, float(i)) for i, key in enumerate(layer))

    def center(self) -> None:
        """Horizontal centers: side by side at first, then towards neighbours as far as there is room."""
        for layer in self.layers:
            x = 0.0
            for key in layer:
                self.centers[key] = x + self.widths[key] / 2
                x += self.widths[key] + GAP
        for sweep in range(2 * SWEEPS):
            neighbours = self.below if sweep % 2 else self.above
            for layer in self.layers:
                wanted = [_mean(self.centers, neighbours.get(key, [key])) for key in layer]
                self.centers.update(zip(layer, _apart(wanted, [self.widths[key] for key in layer]), strict=True))

    def straighten(self) -> None:
        """Move the places of each long edge below each other, as many at a time as there is room for."""
        beside: dict[str, tuple[str | None, str | None]] = {}
        for layer in self.layers:
            beside.update(zip(layer, zip([None, *layer], [*layer[1:], None], strict=False), strict=True))

        def straight(x: float, keys: Sequence[str]) -> int:
            """How many places from the first on may lie there."""
            free = takewhile(lambda key: self._has_room(x, key, beside[key]), keys)
            return sum(1 for _ in free)

        for source, *between, target in self.chains.values():
            while between:
                near = [self.centers[key] for key in (source, target, *between[:NEAR])]
                count, _, x = max((straight(x, between), -abs(x - self.centers[between[0]]), x) for x in near)
                self.centers.update(dict.fromkeys(between[:count], x))
                source, between = between[max(count, 1) - 1], between[max(count, 1) :]

    def _has_room(self, x: float, key: str, beside: tuple[str | None, str | None]) -> bool:
        """True if a place may have its center there."""
        left, right = beside
        widths, centers = self.widths, self.centers
        far_left = left is None or x - centers[left] >= (widths[left] + widths[key]) / 2 + GAP
        return far_left and (right is None or centers[right] - x >= (widths[right] + widths[key]) / 2 + GAP)

    def placed(self) -> DrawingLayout:
        """Corners and ways, moved so that all is right of 0."""
        sizes, centers, widths = self.sizes, self.centers, self.widths
        left = min((centers[key] - widths[key] / 2 for key in centers), default=0.0)
        tops: dict[str, float] = {}
        heights: dict[str, float] = {}
        y = 0.0
        for layer in self.layers:
            height = max((sizes[key][1] for key in layer if key in sizes), default=0.0)
            tops.update((key, y) for key in layer)
            heights.update((key, height) for key in layer)
            y += height + LAYER_GAP
        boxes = {key: (centers[key] - widths[key] / 2 - left, tops[key]) for key in sizes}
        ways = {}
        for edge, chain in self.chains.items():
            source, *between, target = chain
            points = [(self._port(source, chain[1]) - left, tops[source] + sizes[source][1])]
            for place in between:
                points += [(centers[place] - left, tops[place]), (centers[place] - left, tops[place] + heights[place])]
            ways[edge] = [*points, (self._port(target, chain[-2]) - left, tops[target])]
        right = max((centers[key] + widths[key] / 2 for key in centers), default=0.0)
        return DrawingLayout(boxes, ways, right - left, max(y - LAYER_GAP, 0.0))

    def _port(self, box: str, other: str) -> float:
        """Where an edge begins or ends at a box: as near to its other end as may be."""
        reach = max(self.widths[box] / 2 - CORNER, 0.0)
        return min(max(self.centers[other], self.centers[box] - reach), self.centers[box] + reach)


LINE, MARGIN, ABOVE = 15.0, 10.0, 8.0  # from line to line, around texts, and above the first one
OPS = ("constant", "op", "recurrence", "fused")
TIP = 3.5  # half of the width of an arrow's head
Drawn = tuple[list[str], float, float]  # elements, width, height


@dataclass(frozen=True)
class Box:
    """A box with lines of text, and what is drawn within it.

    Args:
        kind: what it stands for: `input`, `parameter`, `constant`, `op`, `recurrence`, `fused` or `output`.
        mark: what is told of it by its colour, `""` for its kind: `checkpoint`, `kept`, `boundary` or `recomputed`.
        note: what is shown of it besides, where somebody points at it.
    """

    lines: tuple[str, ...]
    kind: str
    inner: Drawing | None = None
    mark: str = ""
    note: str = ""

    @property
    def colour(self) -> str:
        return self.mark or self.kind

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
    """

    title: str
    boxes: Mapping[str, Box]
    edges: Mapping[tuple[str, str], str] = field(default_factory=dict)
    opened: bool = True

    @property
    def svg(self) -> str:
        """The picture, as a document of its own."""
        shown, width, height = self._drawn(self.title)
        colours = [(name, name) for name in dict.fromkeys(self._colours())]
        wide, high = svg.legend_size(colours, width)
        below = [svg.legend(colours, MARGIN, height, width)] if high else []
        return svg.document(max(width, wide), height + high, self.title, [*shown, *below])

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self._said())])

    def _below(self) -> str:
        """The contents of closed boxes, to be opened there."""
        shut = [(box, box.inner) for box in self.boxes.values() if box.inner is not None and not self.opened]
        return "".join(folded(": ".join(box.lines), scrolled(one.svg) + one._below()) for box, one in shut)

    def _said(self) -> Iterator[str]:
        reads: dict[str, list[str]] = {}
        for (source, target), label in self.edges.items():
            reads.setdefault(target, []).append(label or self.boxes[source].named)
        for key, box in self.boxes.items():
            yield f"{box.colour} {': '.join(box.lines)}" + (f" <- {', '.join(reads[key])}" if key in reads else "")
            if box.inner is not None and self.opened:
                yield from (f"  {line}" for line in str(box.inner).splitlines())

    def _colours(self) -> Iterator[str]:
        for box in self.boxes.values():
            yield box.colour
            if box.inner is not None and self.opened:
                yield from box.inner._colours()

    def _drawn(self, title: str = "") -> Drawn:
        """Elements with the upper left corner at 0, and the size."""
        inner = {k: b.inner._drawn() for k, b in self.boxes.items() if b.inner and self.opened}
        labels = {f"{a}\n{b}\nlabel": (a, b) for (a, b), label in self.edges.items() if label}
        sizes = {key: _size(box, inner.get(key)) for key, box in self.boxes.items()}
        layout = self._layout(sizes, labels)
        top = 2 * LINE if title else LINE / 2
        shown = [_way(points, arrow=target not in labels) for (_, target), points in layout.ways.items()]
        for key, (x, y) in layout.boxes.items():
            if key in labels:
                middle = x + svg.text_width(self.edges[labels[key]], svg.SMALL) / 2
                shown.append(svg.text(middle, y + LINE - 4, self.edges[labels[key]], "small soft", "middle"))
            else:
                shown.append(_box(self.boxes[key], (x, y), sizes[key], inner.get(key)))
        width = max(layout.width, svg.text_width(title, svg.TITLE)) + 2 * MARGIN
        above = [svg.text(MARGIN, LINE + 2, title, "title")] if title else []
        return [*above, svg.group(shown, x=(width - layout.width) / 2, y=top)], width, layout.height + top + MARGIN

    def _layout(self, sizes: Mapping[str, Size], labels: Mapping[str, tuple[str, str]]) -> DrawingLayout:
        """Places; a label is a box without a border on the way of its edge, so that nothing lies over it."""
        before: dict[str, list[str]] = {}
        for key, (_, target) in labels.items():
            before.setdefault(target, []).append(key)
        whole: dict[str, Size] = {}
        for key, size in sizes.items():  # each after what it reads
            whole.update(
                (one, (svg.text_width(self.edges[labels[one]], svg.SMALL), LINE)) for one in before.get(key, ())
            )
            whole[key] = size
        plain = [edge for edge, label in self.edges.items() if not label]
        split = [pair for key, (source, target) in labels.items() for pair in ((source, key), (key, target))]
        return lay_out(whole, [*plain, *split])


def _size(box: Box, inner: Drawn | None) -> Size:
    width = max(map(svg.text_width, box.lines)) + 2 * MARGIN
    height = LINE * len(box.lines) + ABOVE
    return (width, height) if inner is None else (max(width, inner[1] + MARGIN), height + inner[2])


def _box(box: Box, corner: Point, size: Size, inner: Drawn | None) -> str:
    (x, y), (width, height) = corner, size
    rounded = 4 if box.kind in OPS else 12
    parts = [svg.rect(x, y, width, height, box.colour, rounded)]
    for i, said in enumerate(box.lines):
        kind = "bold" if i == (0 if box.kind in OPS else -1) else ""
        if inner is None:
            parts.append(svg.text(x + width / 2, y + LINE * (i + 1), said, kind, "middle"))
        else:
            parts.append(svg.text(x + MARGIN, y + LINE * (i + 1), said, kind))
    if inner is not None:
        parts.append(svg.group(inner[0], x=x + (width - inner[1]) / 2, y=y + LINE * len(box.lines) + ABOVE / 2))
    return svg.group(parts, box.note)


def _way(points: Sequence[Point], arrow: bool) -> str:
    """A smooth line through points, straight where they lie below each other, with the head of an arrow at its end."""
    parts = [f"M {points[0][0]:.1f} {points[0][1]:.1f}"]
    for i, ((x, y), (a, b)) in enumerate(pairwise(points), 2):
        if x != a:
            middle = (y + b) / 2
            parts.append(f"C {x:.1f} {middle:.1f} {a:.1f} {middle:.1f} {a:.1f} {b:.1f}")
        elif i == len(points) or points[i][0] != a:
            parts.append(f"V {b:.1f}")
    a, b = points[-1]
    head = svg.path(f"M {a - TIP:.1f} {b - 2 * TIP:.1f} L {a:.1f} {b:.1f} L {a + TIP:.1f} {b - 2 * TIP:.1f} Z", "tip")
    return svg.path(" ".join(parts), "way") + (head if arrow else "")


if TYPE_CHECKING:
    from rnnops.net.net import Net
    from rnnops.net.op import Input, Op
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
            kind = "recurrence" if "cell" in op.attributes else "fused"
            return Box(lines, kind, self._inner(op, inner), mark, _told(op))
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
    said = [f"{name}={svg.cut(format_value(value), LONGEST)}" for name, value in op.attributes.items()]
    return f" {', '.join(said)}" if said else ""


def _told(op: Op) -> str:
    """The attributes of an op that holds a net, except those that its box shows."""
    told = {name: value for name, value in op.attributes.items() if name not in HIDDEN and not is_net(value)}
    return ", ".join(f"{name}={svg.cut(format_value(value), LONGEST)}" for name, value in told.items())


def _net_within(op: Op) -> Net | None:
    """The cell of a recurrence, or the ops that are fused."""
    found: Any = op.attributes.get("cell", op.attributes.get("body"))
    return found if is_net(found) else None
