"""The table of all makers of random ops, and how often each is drawn."""

from __future__ import annotations

from rnnops.testing import random_elementwise as elementwise, random_structure as structure, random_windows as windows
from rnnops.testing.random_builder import Builder
from rnnops.testing.random_elementwise import Maker

MAKERS: dict[Maker, int] = {
    elementwise.unary: 6,
    elementwise.binary: 6,
    elementwise.scaled: 3,
    elementwise.compared: 1,
    elementwise.truncated: 1,
    elementwise.counted: 1,
    elementwise.decided: 1,
    elementwise.chosen: 2,
    elementwise.as_float: 1,
    elementwise.clipped: 1,
    elementwise.dropped: 1,
    elementwise.constant: 1,
    structure.split: 1,
    structure.concat: 1,
    structure.sliced: 1,
    structure.reshaped: 2,
    structure.transposed: 1,
    structure.widened: 2,
    structure.gathered: 1,
    structure.scattered: 1,
    structure.reduced: 3,
    structure.normalized: 2,
    structure.ordered: 1,
    structure.multiplied: 4,
    structure.mixed: 2,
    structure.general_product: 1,
    structure.classified: 1,
    windows.convolved: 2,
    windows.pooled: 2,
}
_DRAWN = [maker for maker, weight in MAKERS.items() for _ in range(weight)]


def add_ops(builder: Builder, count: int) -> None:
    """Append so many makers' ops, each to operands that are there."""
    for _ in range(count):
        builder.draw.pick(_DRAWN)(builder)
