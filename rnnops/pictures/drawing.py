"""Drawings: boxes and edges as SVG, and as text, which says the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rnnops.html import folded, scrolled
from rnnops.pictures.layered import Layout, Point, Size, lay_out
from rnnops.pictures.legend import legend, legend_size
from rnnops.pictures.picture import Picture
from rnnops.pictures.svg import SMALL, TITLE, document, group, path, rect, text, text_width

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
        note: what is shown of it beside, where somebody points at it.
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
        """What others call it by: the last line of an op, the first of inputs and outputs."""
        return self.lines[-1 if self.kind in OPS else 0]


@dataclass(frozen=True)
class Drawing(Picture):
    """Boxes and edges between them.

    Args:
        title: what is drawn.
        boxes: by key, each after those that it reads.
        edges: (source, target) -> what is said of it.
        opened: whether what is within boxes is drawn there; a notebook has it below the picture where it is not.
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
        wide, high = legend_size(colours, width)
        below = [legend(colours, MARGIN, height, width)] if high else []
        return document(max(width, wide), height + high, self.title, [*shown, *below])

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self._said())])

    def _below(self) -> str:
        """What is within boxes that are not opened, to be opened there."""
        inner = [(box, box.inner) for box in self.boxes.values() if box.inner is not None]
        shut = (
            []
            if self.opened
            else [folded(": ".join(box.lines), scrolled(one.svg) + one._below()) for box, one in inner]
        )
        return "".join(shut)

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
                middle = x + text_width(self.edges[labels[key]], SMALL) / 2
                shown.append(text(middle, y + LINE - 4, self.edges[labels[key]], "small soft", "middle", SMALL))
            else:
                shown.append(_box(self.boxes[key], (x, y), sizes[key], inner.get(key)))
        width = max(layout.width, text_width(title, TITLE)) + 2 * MARGIN
        above = [text(MARGIN, LINE + 2, title, "title", size=TITLE)] if title else []
        return [*above, group(shown, x=(width - layout.width) / 2, y=top)], width, layout.height + top + MARGIN

    def _layout(self, sizes: Mapping[str, Size], labels: Mapping[str, tuple[str, str]]) -> Layout:
        """Places; a label is a box without a border on the way of its edge, so that nothing lies over it."""
        before: dict[str, list[str]] = {}
        for key, (_, target) in labels.items():
            before.setdefault(target, []).append(key)
        whole: dict[str, Size] = {}
        for key, size in sizes.items():  # each after what it reads
            whole.update((one, (text_width(self.edges[labels[one]], SMALL), LINE)) for one in before.get(key, ()))
            whole[key] = size
        plain = [edge for edge, label in self.edges.items() if not label]
        split = [pair for key, (source, target) in labels.items() for pair in ((source, key), (key, target))]
        return lay_out(whole, [*plain, *split])


def _size(box: Box, inner: Drawn | None) -> Size:
    width = max(map(text_width, box.lines)) + 2 * MARGIN
    height = LINE * len(box.lines) + ABOVE
    return (width, height) if inner is None else (max(width, inner[1] + MARGIN), height + inner[2])


def _box(box: Box, corner: Point, size: Size, inner: Drawn | None) -> str:
    (x, y), (width, height) = corner, size
    rounded = 4 if box.kind in OPS else 12
    parts = [rect(x, y, width, height, box.colour, rounded)]
    for i, said in enumerate(box.lines):
        kind = "bold" if i == (0 if box.kind in OPS else -1) else ""
        if inner is None:
            parts.append(text(x + width / 2, y + LINE * (i + 1), said, kind, "middle"))
        else:
            parts.append(text(x + MARGIN, y + LINE * (i + 1), said, kind))
    if inner is not None:
        parts.append(group(inner[0], x=x + (width - inner[1]) / 2, y=y + LINE * len(box.lines) + ABOVE / 2))
    return group(parts, box.note)


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
    head = path(f"M {a - TIP:.1f} {b - 2 * TIP:.1f} L {a:.1f} {b:.1f} L {a + TIP:.1f} {b - 2 * TIP:.1f} Z", "tip")
    return path(" ".join(parts), "way") + (head if arrow else "")
