"""What contenders of the CUDA benchmark are fed: several sets of sequences in rotation, one set of parameters.

Sets take turns so that no contender finds the numbers of its last call in a cache; nothing is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from zlib import crc32

from bench.cuda_place import Place
from bench.nets import user_net
from bench.problems import SEQUENCES, STATES, Arrays, Problem, Shape, draw_feed

Placed = dict[str, Any]


@dataclass(frozen=True)
class InputSet:
    """Feeds by name, and gradients of outputs by name, on the device."""

    feeds: Placed
    heads: Placed


@dataclass(frozen=True)
class Data:
    """All that is fed in a case.

    Args:
        parameters: of the net, also among the feeds of each set, as arrays of NumPy.
    """

    problem: Problem
    parameters: Arrays
    sets: tuple[InputSet, ...]


def draw_data(problem: Problem, place: Place, count: int) -> Data:
    """Random data, the same in every process on the same device."""
    net, size = user_net(problem.net), problem.size
    shapes = net.shapes(size)
    changing = {name: shape for name, shape in shapes.items() if name in (*SEQUENCES, *STATES)}
    parameters = {name: draw_feed(name, shape, size) for name, shape in shapes.items() if name not in changing}
    placed = {name: place.put(array) for name, array in parameters.items()}
    heads: dict[str, Shape] = dict.fromkeys(net.differentiated, (size.T, size.N, size.H))
    sets = (InputSet({**draw(changing, place, k), **placed}, draw(heads, place, k)) for k in range(count))
    return Data(problem, parameters, tuple(sets))


def draw(shapes: dict[str, Shape], place: Place, number: int) -> Placed:
    """Normal numbers by name; `number` of the set."""
    return {name: place.normal(shape, crc32(f"{name} {number}".encode())) for name, shape in shapes.items()}
