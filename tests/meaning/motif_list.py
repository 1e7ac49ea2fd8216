"""Motifs by name: what people write in cells. A motif appends lines to a `Writer`; drawing is by its own seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from cell_text import Writer

Motif = Callable[[Writer, Random], None]
MOTIFS: dict[str, Motif] = {}
ANYWHERE: list[str] = []  # those that only speak of the last axes, and so work around cells, too
AROUND: list[str] = []  # those that need steps
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


def enter_around(function: Motif, weight: int) -> None:
    """Enter a function that only works around cells."""
    MOTIFS[function.__name__], _WEIGHTS[function.__name__] = function, weight
    ANYWHERE.append(function.__name__)
    AROUND.append(function.__name__)


def draw_motif(r: Random, anywhere: bool = False) -> str:
    """The name of a motif."""
    names = ANYWHERE if anywhere else [name for name in MOTIFS if name not in AROUND]
    return r.choices(names, [_WEIGHTS[name] for name in names])[0]
