"""SVG pictures: elements and their style, `Picture`, legends, charts, and the layout of boxes and edges.

**Elements** are SVG text. All texts of users are escaped. Pictures are inline in pages of notebooks, where a style
sheet holds for the whole page. So all of its rules are only for `.rnnops`, and all pictures have the same style sheet.
Nothing is loaded from elsewhere, and nothing has an id.

**A layered layout** (`lay_out`) of a directed graph without cycles (Sugiyama, Tagawa and Toda, IEEE Trans. SMC 11(2),
1981). Boxes are in layers; each box is below those that it reads. An edge over several layers has a place in each of
them. Layers are sorted by the mean place of neighbours, in sweeps down and up. Then boxes move towards neighbours.

Limits: a few hundred boxes; crossings are few, but not always as few as possible.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile
from math import ceil, copysign, floor, log10
from unicodedata import combining, east_asian_width

from rnnops.util import LazyModule, folded, preformatted, replaced, scrolled

EIGHTHS = " ▏▎▍▌▋▊▉"
WIDTH = 24  # characters of the longest bar


def bar(value: float, most: float, width: int = WIDTH) -> str:
    """A bar of block characters: `most` is `width` characters long, in steps of an eighth of a character."""
    eighths = round(8 * width * value / most) if most > 0 else 0
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


html = LazyModule("html")
LETTER = 0.61  # width of a letter divided by the font size, a little more than in any common monospaced font
SIZE, SMALL, TITLE = 11.0, 10.0, 13.0  # font sizes in pixels
SIZES = {"small": SMALL, "title": TITLE}  # class of the style sheet -> font size

# Name -> fill and stroke on light paper, then on dark paper.
COLOURS: Mapping[str, tuple[str, str, str, str]] = {
    "input": ("#e8f0fe", "#6b8fd4", "#1e3050", "#7fa6ec"),
    "parameter": ("#eceff3", "#8b93a0", "#2c3138", "#8a919b"),
    "constant": ("#f8f9fa", "#c0c4c9", "#26292e", "#666b72"),
    "op": ("#ffffff", "#9aa0a6", "#2a2d32", "#80868b"),
    "recurrence": ("#fbfbfc", "#9aa0a6", "#23262a", "#80868b"),
    "fused": ("#f4f7fb", "#8b9bb3", "#222933", "#8494ac"),
    "sequence": ("#e3f4f1", "#2f9284", "#123833", "#54bfae"),
    "state": ("#e6e8fa", "#6a76c0", "#262b4d", "#8f9bea"),
    "output": ("#fde8e4", "#cf7f70", "#45261f", "#e08b7a"),
    "checkpoint": ("#f0e6fb", "#9b6fcb", "#35234d", "#b78be6"),
    "kept": ("#d5efdc", "#3a9461", "#173a24", "#5cc489"),
    "boundary": ("#e9f7ed", "#3a9461", "#1b2e22", "#5cc489"),
    "recomputed": ("#fdedc6", "#c08a2c", "#453410", "#e0aa4a"),
    "gradient": ("#f8dcec", "#b85a94", "#45203a", "#e08bc0"),
    "sums": ("#fbe6d0", "#c77f3a", "#45301a", "#e0a060"),
    "packed": ("#dfe3f7", "#6a76c0", "#262b4d", "#8f9bea"),
    "scratch": ("#eceff3", "#8b93a0", "#31363d", "#8a919b"),
    "tile": ("#dbe8fb", "#5b87d6", "#1d3357", "#7fa6ec"),
    "step": ("#cfeae6", "#2f9284", "#12413b", "#54bfae"),
    "once": ("#efe6fb", "#9b6fcb", "#35234d", "#b78be6"),
}
DASHED = ("recomputed", "boundary", "next")
# Boxes of drawings: kind -> radius of corners, and how far a second border lies within the first.
SHAPES: Mapping[str, tuple[float, float, float]] = {
    **dict.fromkeys(("input", "sequence", "output"), (12, 0, 0)),
    **dict.fromkeys(("constant", "op", "recurrence", "fused"), (4, 0, 0)),
    "state": (12, 3, 3),
    "parameter": (1, 3, 0),
}
MARKS = ("checkpoint", "kept", "boundary", "recomputed")  # kinds of borders of boxes
TIP = 3.5  # half of the width of an arrow's head
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def _rules(dark: bool) -> str:
    paper, ink, soft, line, grid = (
        ("#1e2023", "#e8eaed", "#abb1b8", "#7d838a", "#34383d")
        if dark
        else ("#ffffff", "#202124", "#5f6368", "#9aa0a6", "#e8eaed")
    )
    rules = [
        f".rnnops .paper {{ fill: {paper} }} .rnnops text {{ fill: {ink} }} .rnnops .soft {{ fill: {soft} }}",
        f".rnnops .way {{ stroke: {line} }} .rnnops .tip {{ fill: {line} }} .rnnops .grid {{ stroke: {grid} }}",
        f".rnnops .halo {{ paint-order: stroke; stroke: {paper}; stroke-width: 3px }}",
        f".rnnops .mark {{ stroke: {ink} }} .rnnops .dot {{ fill: {ink}; stroke: {paper} }}",
    ]
    at = 2 if dark else 0
    rules.append(f".rnnops .tick {{ fill: {COLOURS['step'][at + 1]}; opacity: 0.75 }}")
    rules += [f".rnnops .{n} {{ fill: {c[at]}; stroke: {c[at + 1]} }}" for n, c in COLOURS.items()]
    rules += [f".rnnops .box.{n} {{ fill: {COLOURS[n][at]} }}" for n in SHAPES]
    return "\n".join(rules)


STYLE = "\n".join([
    f".rnnops text {{ font: {SIZE:g}px {FONT}; stroke: none }}",
    f".rnnops .small {{ font-size: {SMALL:g}px }} .rnnops .title {{ font-size: {TITLE:g}px; font-weight: 600 }}",
    ".rnnops .bold { font-weight: 600 } .rnnops .way, .rnnops .grid, .rnnops .mark { fill: none; stroke-width: 1 }",
    f".rnnops .mark {{ stroke-width: 1.5 }} {', '.join(map('.rnnops .{}'.format, DASHED))} {{ stroke-dasharray: 4 2 }}",
    f"{', '.join(map('.rnnops .box.{}'.format, MARKS))} {{ stroke-width: 2.5 }}",
    _rules(dark=False),
    f"@media (prefers-color-scheme: dark) {{\n{_rules(dark=True)}\n}}",
])  # fmt: skip


def text_width(text: str, size: float = SIZE) -> float:
    """The largest width of a text, in pixels."""
    return LETTER * size * sum(map(_letters, text))


def _letters(sign: str) -> int:
    """The width of a character in letters: 2 for wide East Asian ones, 0 for combining marks."""
    return 0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1


def cut(text: str, letters: int) -> str:
    """A text, cut to at most `letters` letters; `…` stands for the rest."""
    widths = [*accumulate(map(_letters, text))]
    if not text or widths[-1] <= letters:
        return text
    return text[: bisect_right(widths, letters - 1)].rstrip() + "…"


def text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    """A text on a line.

    Args:
        kind: classes of the style sheet, which may change the size of the font.
        anchor: the point of the text at `x`: its `start`, `middle` or `end`.
    """
    size = next((SIZES[name] for name in kind.split() if name in SIZES), SIZE)
    named = f' class="{kind}"' if kind else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    # Fonts with non-ASCII letters may be wider, so such a text is fitted to its width.
    fitted = "" if said.isascii() else f' textLength="{text_width(said, size):.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}{place}{fitted}>{html.escape(said)}</text>'


def rect(x: float, y: float, width: float, height: float, kind: str, rounded: float = 0.0) -> str:
    """A rectangle."""
    corner = f' rx="{rounded:g}"' if rounded else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"{corner}/>'


def box(x: float, y: float, width: float, height: float, kind: str, mark: str = "") -> str:
    """A box of a drawing.

    Args:
        kind: of `SHAPES`.
        mark: of `MARKS`, or `""`.
    """
    rounded, across, down = SHAPES[kind]
    outer = rect(x, y, width, height, f"box {kind} {mark}".rstrip(), min(rounded, height / 2))
    size = width - 2 * across, height - 2 * down
    return outer + (rect(x + across, y + down, *size, f"box {kind}", max(rounded - down, 0)) if across else "")


def path(steps: str, kind: str) -> str:
    """A path from steps in the language of SVG. Never put texts of users here: they are not escaped."""
    return f'<path d="{steps}" class="{kind}"/>'


def line(x: float, y: float, a: float, b: float, kind: str) -> str:
    """A straight line."""
    return path(f"M {x:.1f} {y:.1f} L {a:.1f} {b:.1f}", kind)


def way(points: Sequence[tuple[float, float]], kind: str = "way", arrow: bool = True) -> str:
    """A smooth line through points, straight between points below each other, with the head of an arrow at its end."""
    parts = [f"M {points[0][0]:.1f} {points[0][1]:.1f}"]
    for i, ((x, y), (a, b)) in enumerate(pairwise(points), 2):
        if x != a:
            middle = (y + b) / 2
            parts.append(f"C {x:.1f} {middle:.1f} {a:.1f} {middle:.1f} {a:.1f} {b:.1f}")
        elif i == len(points) or points[i][0] != a:
            parts.append(f"V {b:.1f}")
    a, b = points[-1]
    back = b + 2 * copysign(TIP, points[-2][1] - b)
    head = path(f"M {a - TIP:.1f} {back:.1f} L {a:.1f} {b:.1f} L {a + TIP:.1f} {back:.1f} Z", "tip")
    return path(" ".join(parts), kind) + (head if arrow else "")


def group(parts: Iterable[str], tooltip: str = "", x: float = 0.0, y: float = 0.0) -> str:
    """Elements together.

    Args:
        tooltip: a text that is shown when the mouse is over them.
        x, y: the distances that they are moved by.
    """
    moved = f' transform="translate({x:.1f} {y:.1f})"' if x or y else ""
    told = f"<title>{html.escape(tooltip)}</title>" if tooltip else ""
    return f"<g{moved}>{told}{''.join(parts)}</g>"


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """A whole picture with its own background, readable on any page.

    Args:
        title: its title, also for screen readers.
    """
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    named = f'class="rnnops" role="img" aria-label="{html.escape(title)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {named}>',
        f"<title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style>",
        rect(0, 0, width, height, "paper"),
        *parts,
        "</svg>\n",
    ]
    return "\n".join(lines)


class Picture(ABC):
    """Base of pictures; `print` says what they show, and notebooks show them."""

    @property
    @abstractmethod
    def svg(self) -> str:
        """The picture as an SVG document."""

    @property
    def text(self) -> str:
        """The same in words."""
        return str(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as an SVG file.

        Args:
            path: the path of the file. An old file is replaced as a whole.

        Raises:
            OSError: the file cannot be written; an old file stays.
        """
        with replaced(path) as file:
            file.write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return scrolled(self.svg) + self._below() + folded("in words", preformatted(self.text))

    def _below(self) -> str:
        """HTML to show below the picture."""
        return ""


ROW, SWATCH, GAP, EDGE = 17.0, 16.0, 16.0, 10.0
Named = Sequence[tuple[str, str]]  # (classes of the style sheet, text of the legend)


def legend_size(named: Named, width: float) -> tuple[float, float]:
    """The width of a legend within `width`, and its height with margins, which is 0 without items."""
    rows = _rows(named, width)
    wide = max((x + _taken(said) for row in rows for x, _, said in row), default=0.0)
    return wide + 2 * EDGE, (len(rows) * ROW + EDGE if rows else 0.0)


def legend(named: Named, x: float, y: float, width: float) -> str:
    """A legend: swatches with their meaning.

    Args:
        x, y: the upper left corner.
        width: the width of the picture above it.
    """
    parts = []
    for number, row in enumerate(_rows(named, width)):
        for at, colour, said in row:
            top = y + number * ROW
            parts.append(_swatch(x + at, top, colour))
            parts.append(text(x + at + SWATCH + 5, top + SMALL - 1, said, "small soft"))
    return group(parts)


def _swatch(x: float, y: float, classes: str) -> str:
    """A small box, line or coloured area, as in the picture."""
    first, *more = classes.split()
    if first == "box":
        return box(x, y, SWATCH, SMALL, *more)
    return line(x, y + SMALL / 2, x + SWATCH, y + SMALL / 2, classes) if more else rect(x, y, SWATCH, SMALL, first, 2)


def _rows(named: Named, width: float) -> list[list[tuple[float, str, str]]]:
    """The items of a legend in rows, each with its horizontal place."""
    rows: list[list[tuple[float, str, str]]] = []
    x = 0.0
    for colour, said in named:
        if not rows or x + _taken(said) > width - 2 * EDGE:
            rows.append([])
            x = 0.0
        rows[-1].append((x, colour, said))
        x += _taken(said) + GAP
    return rows


def _taken(said: str) -> float:
    return SWATCH + 5 + text_width(said, SMALL)


UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
Tick = tuple[float, str]  # (number, text)


@dataclass(frozen=True)
class Frame:
    """The rectangle of a chart, in which numbers have places.

    Args:
        left, top, width, height: its place in the picture.
        x_range, y_range: the numbers at its sides; large `y` are at the top.
    """

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        """The place of a number from left to right."""
        low, high = self.x_range
        return self.left + self.width * (value - low) / ((high - low) or 1)

    def y(self, value: float) -> float:
        """The place of a number from the bottom up."""
        low, high = self.y_range
        return self.top + self.height * (1 - (value - low) / ((high - low) or 1))

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, ticks: Sequence[Tick]) -> list[str]:
        """Lines from side to side, each with its text left of the frame."""
        ends = self.left, self.left + self.width
        lines = [line(ends[0], self.y(at), ends[1], self.y(at), "grid") for at, _ in ticks]
        texts = [text(self.left - 6, self.y(at) + 3, said, "small soft", "end") for at, said in ticks]
        return lines + texts

    def below(self, ticks: Sequence[Tick]) -> list[str]:
        """Short lines under the frame with texts below them."""
        places = [(self.x(at), said) for at, said in ticks]
        lines = [line(x, self.bottom, x, self.bottom + 4, "way") for x, _ in places]
        return lines + [text(x, self.bottom + 15, said, "small soft", "middle") for x, said in places]

    def area(self, low: Sequence[float], high: Sequence[float], kind: str) -> str:
        """The area between two stairs. Steps of stairs have width 1; the first begins at 0."""
        up = self._stairs(high)
        down = self._stairs(low)[::-1]
        return path("M " + " L ".join(f"{x:.1f} {y:.1f}" for x, y in [*up, *down]) + " Z", kind)

    def outline(self, heights: Sequence[float], kind: str) -> str:
        """Stairs as a line."""
        return path("M " + " L ".join(f"{x:.1f} {y:.1f}" for x, y in self._stairs(heights)), kind)

    def _stairs(self, heights: Sequence[float]) -> list[tuple[float, float]]:
        """Corners of stairs, none between steps that are equally high."""
        corners: list[tuple[float, float]] = []
        for i, height in enumerate(heights):
            if corners and heights[i - 1] == height:
                corners.pop()
            else:
                corners.append((self.x(i), self.y(height)))
            corners.append((self.x(i + 1), self.y(height)))
        return corners


def ticks_up_to(most: float, count: int = 5) -> list[float]:
    """Multiples of a round step (1, 2 or 5 times a power of 10), from 0 to the first that is at least `most`."""
    if most <= 0:
        return [0.0]
    size = 10.0 ** floor(log10(most / count))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size * count >= most)
    return [step * i for i in range(ceil(most / step - 1e-9) + 1)]


def byte_ticks(most: int) -> list[Tick]:
    """Round numbers of bytes up to `most`, in the unit of `most`."""
    power = 0
    while most >= 1024 ** (power + 1) and power + 1 < len(UNITS):
        power += 1
    return [(at * 1024**power, f"{at:g} {UNITS[power]}") for at in ticks_up_to(most / 1024**power)]


SWEEPS = 8  # sweeps down and up in turn; more would change little
BETWEEN, LAYER_GAP, WAY = 16.0, 34.0, 8.0  # gaps between boxes and between layers; width of a place of an edge
NEAR = 12  # how many next places of an edge are tried as the line on which it goes straight
CORNER = 40.0  # edges do not begin or end nearer than this to the sides of a box

Size = tuple[float, float]
Point = tuple[float, float]
Edge = tuple[str, str]
NO_AIMS: Mapping[Edge, float] = {}


@dataclass(frozen=True)
class DrawingLayout:
    """The places of boxes and edges.

    Args:
        boxes: key -> upper left corner.
        ways: (source, target) -> points from the lower side of one box to the upper side of the other.
    """

    boxes: dict[str, Point]
    ways: dict[Edge, list[Point]]
    width: float
    height: float


def lay_out(
    sizes: Mapping[str, Size], edges: Sequence[Edge], top: Collection[str] = (), aims: Mapping[Edge, float] = NO_AIMS
) -> DrawingLayout:
    """The layout of boxes of certain sizes. An edge leaves its layer straight down, so that it crosses no box.

    Args:
        sizes: key -> (width, height). A key comes after the keys that it reads.
        edges: (source, target), by key.
        top: keys that are alone in the highest layer.
        aims: edge -> where it ends at its target: offset from the center in widths of the target, 0.0 if left out.
    """
    moved = _Layered(sizes, edges, top, aims)
    moved.order()
    moved.center()
    moved.straighten()
    return moved.placed()


def _layers(sizes: Mapping[str, Size], edges: Sequence[Edge], top: Collection[str]) -> dict[str, int]:
    """The layer of each box: one below the lowest box that it reads.

    A box that reads nothing is one above its first reader. So is the only reader of such boxes.
    """
    reads = _neighbours(edges, 1)
    layers = dict.fromkeys(top, 0)
    for key in (key for key in sizes if key not in top):
        layers[key] = 1 + max((layers[source] for source in reads.get(key, ())), default=0 if top else -1)
    read_by, loose = _neighbours(edges, 0), set[str]()
    for key in sizes:
        if all(source in loose and len(read_by[source]) == 1 for source in reads.get(key, ())):
            loose.add(key)
    for key in reversed([*sizes]):
        if key in loose and key in read_by and key not in top:
            layers[key] = min(layers[reader] for reader in read_by[key]) - 1
    return layers


def _neighbours(pairs: Sequence[Edge], side: int) -> dict[str, list[str]]:
    """For each key on one side (0 or 1) of pairs, the keys on the other side."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(pair[side], []).append(pair[1 - side])
    return found


def _chain(edge: Edge, layer_of: Mapping[str, int]) -> list[str]:
    """An edge as keys from source to target, with a place in each layer that it passes."""
    source, target = edge
    passed = range(layer_of[source] + 1, layer_of[target])
    return [source, *(f"{source}\n{target}\n{layer}" for layer in passed), target]


def _filled(layer_of: Mapping[str, int], chains: Mapping[Edge, list[str]]) -> list[list[str]]:
    """For each layer, its boxes and places of edges."""
    layers: list[list[str]] = [[] for _ in range(1 + max(layer_of.values(), default=-1))]
    for key, layer in layer_of.items():
        layers[layer].append(key)
    for (source, _), chain in chains.items():
        for offset, place in enumerate(chain[1:-1], layer_of[source] + 1):
            layers[offset].append(place)
    return layers


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Centers near the wanted ones, in order and without overlap: the mean of pushing boxes right and left."""

    def pushed(centers: Sequence[float], sizes: Sequence[float]) -> list[float]:
        found: list[float] = []
        for i, center in enumerate(centers):
            least = found[-1] + (sizes[i - 1] + sizes[i]) / 2 + BETWEEN if found else center
            found.append(max(center, least))
        return found

    right = pushed(wanted, widths)
    left = [-center for center in pushed([-center for center in wanted[::-1]], widths[::-1])][::-1]
    return [(a + b) / 2 for a, b in zip(right, left, strict=True)]


class _Layered:
    """Boxes and places of edges in layers, while they are moved.

    Attributes:
        chains: edge -> its source, its places in the layers that it passes, and its target.
        layers: for each layer, the keys of its boxes and places.
        above, below: key -> its neighbours in the layer above or below.
        aims: (key, target below) -> where the edge ends at the target.
    """

    def __init__(
        self, sizes: Mapping[str, Size], edges: Sequence[Edge], top: Collection[str], aims: Mapping[Edge, float]
    ) -> None:
        layer_of = _layers(sizes, edges, top)
        self.sizes, self.chains = sizes, {edge: _chain(edge, layer_of) for edge in dict.fromkeys(edges)}
        self.widths = {key: width for key, (width, _) in sizes.items()}
        self.widths |= {place: WAY for chain in self.chains.values() for place in chain[1:-1]}
        self.layers = _filled(layer_of, self.chains)
        links = [pair for chain in self.chains.values() for pair in pairwise(chain)]
        self.above, self.below = _neighbours(links, 1), _neighbours(links, 0)
        self.aims = {(self.chains[edge][-2], edge[1]): aim for edge, aim in aims.items()}
        self.centers: dict[str, float] = {}

    def _wanted(self, places: Mapping[str, float], key: str, others: Sequence[str]) -> float:
        """The mean of the places where edges of a key end; its own place if it has no edges."""
        widths = self.widths if places is self.centers else {}  # other places are positions in a layer
        ends = [places[one] + self.aims.get((key, one), 0.0) * widths.get(one, 1.0) for one in others]
        return sum(ends) / len(ends) if ends else places[key]

    def order(self) -> None:
        """Sort each layer by the mean place of neighbours: in turn of those above and of those below."""
        places = {key: float(i) for layer in self.layers for i, key in enumerate(layer)}
        for sweep in range(SWEEPS):
            neighbours = self.below if sweep % 2 else self.above
            for layer in self.layers[::-1] if sweep % 2 else self.layers:
                layer.sort(key=lambda key, near=neighbours: self._wanted(places, key, near.get(key, ())))  # type: ignore[misc]
                places.update((key, float(i)) for i, key in enumerate(layer))

    def center(self) -> None:
        """Find horizontal centers: boxes are side by side at first, then move towards neighbours if there is room."""
        for layer in self.layers:
            x = 0.0
            for key in layer:
                self.centers[key] = x + self.widths[key] / 2
                x += self.widths[key] + BETWEEN
        for sweep in range(2 * SWEEPS):
            neighbours = self.below if sweep % 2 else self.above
            for layer in self.layers:
                wanted = [self._wanted(self.centers, key, neighbours.get(key, ())) for key in layer]
                self.centers.update(zip(layer, _apart(wanted, [self.widths[key] for key in layer]), strict=True))

    def straighten(self) -> None:
        """Move the places of each long edge onto vertical lines, as many places onto a line as there is room for."""
        beside: dict[str, tuple[str | None, str | None]] = {}
        for layer in self.layers:
            beside.update(zip(layer, zip([None, *layer], [*layer[1:], None], strict=False), strict=True))

        def straight(x: float, keys: Sequence[str]) -> int:
            """How many places, from the first on, have room at `x`."""
            free = takewhile(lambda key: self._has_room(x, key, beside[key]), keys)
            return sum(1 for _ in free)

        for source, *between, target in self.chains.values():
            end = self._wanted(self.centers, between[-1], [target]) if between else 0.0
            while between:
                near = [end, *(self.centers[key] for key in (source, *between[:NEAR]))]
                count, _, x = max((straight(x, between), -abs(x - self.centers[between[0]]), x) for x in near)
                self.centers.update(dict.fromkeys(between[:count], x))
                source, between = between[max(count, 1) - 1], between[max(count, 1) :]

    def _has_room(self, x: float, key: str, beside: tuple[str | None, str | None]) -> bool:
        """True if there is room at `x` for the center of a place."""
        left, right = beside
        widths, centers = self.widths, self.centers
        far_left = left is None or x - centers[left] >= (widths[left] + widths[key]) / 2 + BETWEEN
        return far_left and (right is None or centers[right] - x >= (widths[right] + widths[key]) / 2 + BETWEEN)

    def placed(self) -> DrawingLayout:
        """Corners of boxes and ways of edges, moved so that all `x` are at least 0."""
        sizes, centers, widths = self.sizes, self.centers, self.widths
        left = min((centers[key] - widths[key] / 2 for key in centers), default=0.0)
        tops: dict[str, float] = {}
        ends: dict[str, float] = {}  # key -> lower end of its layer
        y = 0.0
        for layer in self.layers:
            height = max((sizes[key][1] for key in layer if key in sizes), default=0.0)
            for key in layer:  # a box that reads nothing is at the lower end of its layer, near its readers
                own = sizes[key][1] if key in sizes else 0.0
                tops[key], ends[key] = y if key in self.above or not own else y + height - own, y + height
            y += height + LAYER_GAP
        boxes = {key: (centers[key] - widths[key] / 2 - left, tops[key]) for key in sizes}
        ways = {}
        for edge, chain in self.chains.items():
            source, *between, target = chain
            x = self._port(source, chain[1]) - left
            points = [(x, tops[source] + sizes[source][1]), (x, ends[source])]
            for place in between:
                points += [(centers[place] - left, tops[place]), (centers[place] - left, ends[place])]
            ways[edge] = [*dict.fromkeys(points), (self._port(target, chain[-2]) - left, tops[target])]
        right = max((centers[key] + widths[key] / 2 for key in centers), default=0.0)
        return DrawingLayout(boxes, ways, right - left, max(y - LAYER_GAP, 0.0))

    def _port(self, box: str, other: str) -> float:
        """Where an edge begins or ends at a box: as near to its other end as possible."""
        reach = max(self.widths[box] / 2 - CORNER, 0.0)
        end = self._wanted(self.centers, box, [other])
        return min(max(end, self.centers[box] - reach), self.centers[box] + reach)
