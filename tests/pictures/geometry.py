"""The geometry of a picture as numbers: boxes, texts and lines where a reader sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree

from rnnops.svg import SIZE, SIZES, text_width

SVG = "{http://www.w3.org/2000/svg}"
STEP = 16  # pieces of a curve that are looked at
Point = tuple[float, float]


@dataclass(frozen=True)
class Area:
    """A box or a text: its sides, its class, and the groups that it lies in."""

    left: float
    top: float
    right: float
    bottom: float
    kind: str
    within: tuple[int, ...]
    said: str = ""


@dataclass(frozen=True)
class Line:
    """A line as points close to each other."""

    points: tuple[Point, ...]
    kind: str
    within: tuple[int, ...]


@dataclass
class Seen:
    boxes: list[Area] = field(default_factory=list)
    texts: list[Area] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


def seen_in(svg: str) -> Seen:
    """All boxes, texts and ways of a drawing."""
    seen = Seen()
    _look(ElementTree.fromstring(svg), 0.0, 0.0, (), seen)
    return seen


def _look(element: ElementTree.Element, x: float, y: float, within: tuple[int, ...], seen: Seen) -> None:
    moved = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform", ""))
    x, y = (x + float(moved[1]), y + float(moved[2])) if moved else (x, y)
    kind, number = (
        element.get("class", ""),
        {name: float(element.get(name, 0)) for name in ("x", "y", "width", "height")},
    )
    if element.tag == f"{SVG}rect" and kind.startswith("box"):
        left, top = x + number["x"], y + number["y"]
        seen.boxes.append(Area(left, top, left + number["width"], top + number["height"], kind, within))
    elif element.tag == f"{SVG}text":
        size = next((SIZES[name] for name in kind.split() if name in SIZES), SIZE)
        width, said = text_width(element.text or "", size), element.text or ""
        left = x + number["x"] - (width / 2 if element.get("text-anchor") == "middle" else 0)
        bottom = y + number["y"]
        seen.texts.append(Area(left, bottom - 0.75 * size, left + width, bottom + 0.2 * size, kind, within, said))
    elif element.tag == f"{SVG}path" and kind.startswith("way"):
        seen.lines.append(Line(tuple((x + a, y + b) for a, b in _points(element.get("d", ""))), kind, within))
    for child in element:
        _look(child, x, y, (*within, id(element)), seen)


def _points(steps: str) -> Iterator[Point]:
    """Points on a path of M, L, V and C, all with absolute numbers."""
    at = (0.0, 0.0)
    for letter, told in re.findall(r"([MLVC])((?:\s*-?[\d.]+)+)", steps):
        numbers = [float(one) for one in told.split()]
        if letter in "ML":
            at = numbers[0], numbers[1]
            yield at
            continue
        a, c = at, (at[0], numbers[0]) if letter == "V" else (numbers[4], numbers[5])
        ends = (a, a, c, c) if letter == "V" else (a, (numbers[0], numbers[1]), (numbers[2], numbers[3]), c)
        for t in (i / STEP for i in range(1, STEP + 1)):
            shares = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            yield tuple(sum(share * end[i] for share, end in zip(shares, ends, strict=True)) for i in (0, 1))  # type: ignore[misc]
        at = c
