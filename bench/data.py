"""What contenders are fed: parameters, and sets of sequences in rotation where a device may have any of them cached.

Nothing is zero, and what is drawn for a name is the same in every process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from bench import language_model
from bench.nets import user_net
from bench.place import HostPlace, Place
from bench.problems import POSITIVE, SEQUENCES, STATES, Arrays, Problem, Shape, draw_feed, rows_inside

Placed = dict[str, Any]


@dataclass(frozen=True)
class InputSet:
    """Feeds by name, and gradients of outputs by name, where the contenders compute."""

    feeds: Placed
    heads: Placed


@dataclass(frozen=True)
class Data:
    """All that is fed in a case.

    Args:
        parameters: of the net, also among the feeds of each set, as arrays of NumPy.
    """

    parameters: Arrays
    sets: tuple[InputSet, ...]


def draw_data(problem: Problem, place: Place, count: int = 1) -> Data:
    """Random data, the same in every process on the same device."""
    if problem.net.startswith(language_model.PREFIX):
        return Data({}, (InputSet(language_model.feeds_of(problem), {"loss": np.ones((), np.float32)}),))
    net, size = user_net(problem.net), problem.size
    shapes = net.shapes(size)
    changing = {name: shape for name, shape in shapes.items() if name in (*SEQUENCES, *STATES)}
    fixed = {name: draw_feed(name, shape, size) for name, shape in shapes.items() if name not in changing}
    placed = {name: place.put(array) for name, array in fixed.items()}
    heads: dict[str, Shape] = dict.fromkeys(net.differentiated, (size.T, size.N, size.H))
    sets = [InputSet({**draw(changing, place, k), **placed}, draw(heads, place, k)) for k in range(count)]
    if net.lengths:  # what is past the end of a row is nobody's concern
        inside = rows_inside(fixed, size)
        sets = [InputSet(one.feeds, {name: head * inside for name, head in one.heads.items()}) for one in sets]
    parameters = {name: array for name, array in fixed.items() if name not in (*POSITIVE, "seq_lengths")}
    return Data(parameters, tuple(sets))


def draw(shapes: dict[str, Shape], place: Place, number: int) -> Placed:
    """Normal numbers by name; `number` of the set."""
    return {
        name: place.normal(shape, crc32((f"{name} {number}" if number else name).encode()))
        for name, shape in shapes.items()
    }


def make_feeds(problem: Problem) -> tuple[Arrays, Arrays]:
    """Feeds, and the gradients of outputs, as arrays of NumPy."""
    only = draw_data(problem, HostPlace()).sets[0]
    return only.feeds, only.heads
