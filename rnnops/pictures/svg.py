"""SVG pictures: elements, style, legends, charts, and the same in words.

SVG as text: elements with all foreign text escaped, the one style sheet of all pictures, widths of texts.

Pictures lie inline in pages of notebooks, where a style sheet is everybody's: all its rules are only for `.rnnops`,
and the same in all pictures. Nothing is loaded from elsewhere, nothing has an id.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor, log10
from unicodedata import combining, east_asian_width

from rnnops.util import LazyModule, folded, preformatted, replaced, scrolled

EIGHTHS = " ▏▎▍▌▋▊▉"
WIDTH = 24  # signs of the longest bar


def bar(value: float, most: float, width: int = WIDTH) -> str:
    """A bar that is as long as a value is of the most, in eighths of a sign."""
    eighths = round(8 * width * value / most) if most > 0 else 0
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


html = LazyModule("html")
LETTER = 0.61  # width of a letter in sizes of its font, a little more than in any common monospaced one
SIZE, SMALL, TITLE = 11.0, 10.0, 13.0  # of fonts, in pixels
SIZES = {"small": SMALL, "title": TITLE}  # of classes of the style sheet

# Name -> fill and stroke on light paper, then on dark paper.
COLOURS: Mapping[str, tuple[str, str, str, str]] = {
    "input": ("#e8f0fe", "#6b8fd4", "#1e3050", "#7fa6ec"),
    "parameter": ("#eceff3", "#8b93a0", "#2c3138", "#8a919b"),
    "constant": ("#f8f9fa", "#c0c4c9", "#26292e", "#666b72"),
    "op": ("#ffffff", "#9aa0a6", "#2a2d32", "#80868b"),
    "recurrence": ("#fbfbfc", "#9aa0a6", "#23262a", "#80868b"),
    "fused": ("#f4f7fb", "#8b9bb3", "#222933", "#8494ac"),
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
DASHED = ("recomputed", "boundary")
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
    return "\n".join(rules)


STYLE = "\n".join([
    f".rnnops text {{ font: {SIZE:g}px {FONT}; stroke: none }}",
    f".rnnops .small {{ font-size: {SMALL:g}px }} .rnnops .title {{ font-size: {TITLE:g}px; font-weight: 600 }}",
    ".rnnops .bold { font-weight: 600 } .rnnops .way, .rnnops .grid, .rnnops .mark { fill: none; stroke-width: 1 }",
    f".rnnops .mark {{ stroke-width: 1.5 }} {', '.join(map('.rnnops .{}'.format, DASHED))} {{ stroke-dasharray: 4 2 }}",
    _rules(dark=False),
    f"@media (prefers-color-scheme: dark) {{\n{_rules(dark=True)}\n}}",
])  # fmt: skip


def text_width(text: str, size: float = SIZE) -> float:
    """The width that a text takes at most."""
    return LETTER * size * sum(map(_letters, text))


def _letters(sign: str) -> int:
    """How many letters a sign is as wide as: one of East Asia as two, a mark over another as none."""
    return 0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1


def cut(text: str, letters: int) -> str:
    """A text that is at most so many letters wide, its end left out where it is."""
    widths = [*accumulate(map(_letters, text))]
    if not text or widths[-1] <= letters:
        return text
    return text[: bisect_right(widths, letters - 1)].rstrip() + "…"


def text(x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> str:
    """A text on a line.

    Args:
        kind: classes of the style sheet, which may change the size of the font.
        anchor: what of it lies at `x`: its `start`, `middle` or `end`.
    """
    size = next((SIZES[name] for name in kind.split() if name in SIZES), SIZE)
    named = f' class="{kind}"' if kind else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    # Fonts that have such letters may be wider: these are fitted to the width that is there.
    fitted = "" if said.isascii() else f' textLength="{text_width(said, size):.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}{place}{fitted}>{html.escape(said)}</text>'


def rect(x: float, y: float, width: float, height: float, kind: str, rounded: float = 0.0) -> str:
    """A rectangle."""
    corner = f' rx="{rounded:g}"' if rounded else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"{corner}/>'


def path(steps: str, kind: str) -> str:
    """A path of steps in SVG's own words; never foreign text."""
    return f'<path d="{steps}" class="{kind}"/>'


def line(x: float, y: float, a: float, b: float, kind: str) -> str:
    """A straight line."""
    return path(f"M {x:.1f} {y:.1f} L {a:.1f} {b:.1f}", kind)


def group(parts: Iterable[str], tooltip: str = "", x: float = 0.0, y: float = 0.0) -> str:
    """Elements together.

    Args:
        tooltip: what is shown over them.
        x, y: by how much they are moved.
    """
    moved = f' transform="translate({x:.1f} {y:.1f})"' if x or y else ""
    told = f"<title>{html.escape(tooltip)}</title>" if tooltip else ""
    return f"<g{moved}>{told}{''.join(parts)}</g>"


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """A picture on paper of its own, readable on any page.

    Args:
        title: what it is called, for those who do not see it as well.
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
        """The picture, as a document of its own."""

    @property
    def text(self) -> str:
        """The same in words."""
        return str(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as an SVG file.

        Args:
            path: of the file, which is replaced as a whole.

        Raises:
            OSError: where that fails; an old file stays then.
        """
        with replaced(path) as file:
            file.write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return scrolled(self.svg) + self._below() + folded("in words", preformatted(self.text))

    def _below(self) -> str:
        """The part of a page below the picture."""
        return ""


ROW, SWATCH, GAP, EDGE = 17.0, 10.0, 16.0, 10.0
Named = Sequence[tuple[str, str]]  # colours of the style sheet, and what is said of each


def legend_size(named: Named, width: float) -> tuple[float, float]:
    """The width that a legend needs within a width, and its height with space around it; 0 where nothing is named."""
    rows = _rows(named, width)
    wide = max((x + _taken(said) for row in rows for x, _, said in row), default=0.0)
    return wide + 2 * EDGE, (len(rows) * ROW + EDGE if rows else 0.0)


def legend(named: Named, x: float, y: float, width: float) -> str:
    """Swatches with what they mean.

    Args:
        x, y: the upper left corner.
        width: of the picture that it is below of.
    """
    parts = []
    for number, row in enumerate(_rows(named, width)):
        for at, colour, said in row:
            top = y + number * ROW
            parts.append(rect(x + at, top, SWATCH, SWATCH, colour, 2))
            parts.append(text(x + at + SWATCH + 5, top + SWATCH - 1, said, "small soft"))
    return group(parts)


def _rows(named: Named, width: float) -> list[list[tuple[float, str, str]]]:
    """The named items in rows, each with its place."""
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
Tick = tuple[float, str]  # where, and what is said there


@dataclass(frozen=True)
class Frame:
    """A rectangle in which numbers have places.

    Args:
        left, top, width, height: where it lies.
        x_range, y_range: the numbers at its sides; large `y` lie high.
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
        """The area between two stairs, whose steps are one wide and begin at 0."""
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
    """Round numbers (1, 2 or 5 times a power of 10) from 0 to the first that is no less than the most."""
    if most <= 0:
        return [0.0]
    size = 10.0 ** floor(log10(most / count))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size * count >= most)
    return [step * i for i in range(ceil(most / step - 1e-9) + 1)]


def byte_ticks(most: int) -> list[Tick]:
    """Round numbers of bytes, in the unit that the most is told in."""
    power = 0
    while most >= 1024 ** (power + 1) and power + 1 < len(UNITS):
        power += 1
    return [(at * 1024**power, f"{at:g} {UNITS[power]}") for at in ticks_up_to(most / 1024**power)]
