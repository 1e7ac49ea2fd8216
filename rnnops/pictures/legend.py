"""Legends: what colours mean, in as many rows as the width needs."""

from __future__ import annotations

from collections.abc import Iterable

from rnnops.pictures.svg import SMALL, group, rect, text, text_width

ROW, SWATCH, GAP, EDGE = 17.0, 10.0, 16.0, 10.0


def legend_size(names: Iterable[str], width: float) -> tuple[float, float]:
    """The width that a legend needs within a width, and its height with space around it; 0 where nothing is named."""
    rows = _rows(names, width)
    wide = max((x + _taken(name) for row in rows for x, name in row), default=0.0)
    return wide + 2 * EDGE, (len(rows) * ROW + EDGE if rows else 0.0)


def legend(names: Iterable[str], x: float, y: float, width: float) -> str:
    """Swatches with names.

    Args:
        names: of colours of the style sheet; what is said of each is its name.
        x, y: the upper left corner.
        width: of the picture that it is below of.
    """
    parts = []
    for number, row in enumerate(_rows(names, width)):
        for at, name in row:
            top = y + number * ROW
            parts.append(rect(x + at, top, SWATCH, SWATCH, name.split()[0], 2))
            parts.append(text(x + at + SWATCH + 5, top + SWATCH - 1, name, "small soft", size=SMALL))
    return group(parts)


def _rows(names: Iterable[str], width: float) -> list[list[tuple[float, str]]]:
    """Names in rows, each with its place."""
    rows: list[list[tuple[float, str]]] = []
    x = 0.0
    for name in names:
        if not rows or x + _taken(name) > width - 2 * EDGE:
            rows.append([])
            x = 0.0
        rows[-1].append((x, name))
        x += _taken(name) + GAP
    return rows


def _taken(name: str) -> float:
    return SWATCH + 5 + text_width(name, SMALL)
