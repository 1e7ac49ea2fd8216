"""Legends: what colours mean, in as many rows as the width needs."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.pictures.svg import SMALL, group, rect, text, text_width

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
            parts.append(text(x + at + SWATCH + 5, top + SWATCH - 1, said, "small soft", size=SMALL))
    return group(parts)


def _rows(named: Named, width: float) -> list[list[tuple[float, str, str]]]:
    """What is named in rows, each with its place."""
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
