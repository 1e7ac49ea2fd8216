"""Motifs by name: what people write in cells. A motif appends lines to a `Writer`; drawing is by its own seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from cell_text import Writer

Motif = Callable[[Writer, Random], None]
MOTIFS: dict[str, Motif] = {}
ANYWHERE: list[str] = []  # those that only speak of the last axes, and so work around cells, too
_WEIGHTS: dict[str, int] = {}


def motif(weight: int = 1, anywhere: bool = False) -> Callable[[Motif], Motif]:
    """Enter a function into the list.

    Args:
        weight: how often it is drawn beside others.
        anywhere: whether values may have more axes before the features than rows.
    """

    def entered(function: Motif) -> Motif:
        name = function.__name__
        MOTIFS[name], _WEIGHTS[name] = function, weight
        if anywhere:
            ANYWHERE.append(name)
        return function

    return entered


def draw_motif(r: Random, anywhere: bool = False) -> str:
    """The name of a motif."""
    names = ANYWHERE if anywhere else list(MOTIFS)
    return r.choices(names, [_WEIGHTS[name] for name in names])[0]
