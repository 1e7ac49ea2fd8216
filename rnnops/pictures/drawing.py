"""Drawings: boxes and edges as SVG, which browsers and notebooks show, and as text, which says the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rnnops.atomic_file import replaced
from rnnops.lazy import LazyModule
from rnnops.pictures.layered import Point, lay_out

html = LazyModule("html")
LETTER, LINE, MARGIN = 6.7, 15.0, 9.0  # of a monospaced font of 11 pixels; around texts
FILLS = {
    "input": "#e8f0fe", "parameter": "#e6f4ea", "constant": "#f1f3f4", "op": "#ffffff", "recurrence": "#fffdf5",
    "output": "#fce8e6", "recomputed": "#fef7e0", "checkpoint": "#f3e8fd",
}  # fmt: skip
OPS = ("constant", "op", "recurrence", "recomputed", "checkpoint")
STYLE = (
    "text { font: 11px ui-monospace, monospace; fill: #202124 } .label { fill: #5f6368; font-size: 10px } "
    "rect { stroke: #5f6368; stroke-width: 1 } path { fill: none; stroke: #9aa0a6; stroke-width: 1 }"
)


@dataclass(frozen=True)
class Box:
    """A box with lines of text, and what is drawn within it.

    Args:
        kind: one of `FILLS`.
    """

    lines: tuple[str, ...]
    kind: str
    inner: Drawing | None = None

    @property
    def named(self) -> str:
        """What others call it by: the last line of an op, the first of inputs and outputs."""
        return self.lines[-1 if self.kind in OPS else 0]


@dataclass(frozen=True)
class Drawing:
    """Boxes and edges between them; `_repr_svg_` is what notebooks show.

    Args:
        boxes: by key, each after those that it reads.
        edges: (source, target) -> what is said of it.
    """

    title: str
    boxes: Mapping[str, Box]
    edges: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def svg(self) -> str:
        """The picture, as a document of its own."""
        body, width, height = self._drawn(0.0, 0.0)
        size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        lines = "\n".join(body)
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{lines}\n</svg>\n'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as an SVG file. Raises OSError where that fails; an old file stays then."""
        with replaced(path) as file:
            file.write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self._said())])

    def _said(self) -> Iterator[str]:
        reads: dict[str, list[str]] = {}
        for (source, target), label in self.edges.items():
            reads.setdefault(target, []).append(label or self.boxes[source].named)
        for key, box in self.boxes.items():
            yield f"{box.kind} {': '.join(box.lines)}" + (f" <- {', '.join(reads[key])}" if key in reads else "")
            if box.inner is not None:
                yield from (f"  {line}" for line in str(box.inner).splitlines())

    def _drawn(self, x: float, y: float) -> tuple[list[str], float, float]:
        """Lines of SVG with the upper left corner at a point, and the size."""
        inner = {key: box.inner._drawn(0.0, 0.0) for key, box in self.boxes.items() if box.inner is not None}
        sizes = {key: _size(box, inner.get(key)) for key, box in self.boxes.items()}
        layout = lay_out(sizes, list(self.edges))
        top = LINE + MARGIN
        lines = [_text(x + MARGIN, y + LINE, self.title, "label")]
        for edge, points in layout.ways.items():
            lines += _way([(x + a + MARGIN, y + b + top) for a, b in points], self.edges[edge])
        for key, (a, b) in layout.boxes.items():
            lines += _box(self.boxes[key], (x + a + MARGIN, y + b + top), sizes[key], inner.get(key))
        width = max(layout.width, LETTER * len(self.title)) + 2 * MARGIN
        return lines, width, layout.height + top + MARGIN


def _size(box: Box, inner: tuple[list[str], float, float] | None) -> tuple[float, float]:
    width = LETTER * max(map(len, box.lines)) + 2 * MARGIN
    height = LINE * len(box.lines) + MARGIN
    return (width, height) if inner is None else (max(width, inner[1]), height + inner[2])


def _box(box: Box, corner: Point, size: tuple[float, float], inner: tuple[list[str], float, float] | None) -> list[str]:
    (x, y), (width, height) = corner, size
    rounded = 3 if box.kind in ("op", "recurrence") else 9
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{rounded}"'
    texts = [_text(x + MARGIN, y + LINE * (i + 1) - 1, line, "") for i, line in enumerate(box.lines)]
    lines = [f'<rect {place} fill="{FILLS[box.kind]}"/>', *texts]
    if inner is not None:
        shift = f"translate({x:.1f} {y + LINE * len(box.lines) + MARGIN / 2:.1f})"
        lines += [f'<g transform="{shift}">', *inner[0], "</g>"]
    return lines


def _way(points: Sequence[Point], label: str) -> Iterator[str]:
    """A smooth line through points, and its label at its end, where others are apart."""
    (x, y), *others = points
    parts, last = [f"M {x:.1f} {y:.1f}"], (x, y)
    for a, b in others:
        middle = (last[1] + b) / 2
        parts.append(f"C {last[0]:.1f} {middle:.1f} {a:.1f} {middle:.1f} {a:.1f} {b:.1f}")
        last = a, b
    yield f'<path d="{" ".join(parts)}"/>'
    if label:
        yield _text(last[0] + 3, last[1] - 5, label, "label")


def _text(x: float, y: float, text: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{html.escape(text)}</text>'
