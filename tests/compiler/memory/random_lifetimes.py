"""Random graphs of ops with their memory, and what is alive in an order, worked out the slow way."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import permutations

from rnnops.compiler.memory.allocations import Lifetimes


def random_lifetimes(seed: int, ops: int) -> tuple[Lifetimes, list[set[int]]]:
    """Ops that read what earlier ones make, and for each op those that it needs."""
    rng = random.Random(seed)
    given = rng.randint(0, 2)
    sizes = [rng.choice((1, 4, 16, 100)) for _ in range(given)]
    made_by: dict[int, int] = {}
    makes, reads = [], []
    for op in range(ops):
        reads.append(tuple(rng.sample(range(len(sizes)), min(len(sizes), rng.randint(0, 3)))))
        makes.append(tuple(range(len(sizes), len(sizes) + rng.choice((1, 1, 1, 2)))))
        made_by.update(dict.fromkeys(makes[-1], op))
        sizes += [rng.choice((0, 1, 4, 16, 100)) for _ in makes[-1]]
    stays = {piece for piece in range(given, len(sizes)) if rng.random() < 0.2}
    within = tuple(rng.choice((0, 0, 0, 8, 50)) for _ in range(ops))
    lifetimes = Lifetimes(tuple(makes), tuple(reads), tuple(sizes), frozenset(stays), within, frozenset(range(given)))
    return lifetimes, [{made_by[piece] for piece in read if piece in made_by} for read in reads]


def orders(before: Sequence[set[int]]) -> Iterator[tuple[int, ...]]:
    """All orders in which ops come after those that they need."""
    for order in permutations(range(len(before))):
        place = {op: i for i, op in enumerate(order)}
        if all(place[maker] < place[op] for op, makers in enumerate(before) for maker in makers):
            yield order


def alive_at(lifetimes: Lifetimes, order: Sequence[int]) -> list[set[int]]:
    """For each place in the order the pieces that are alive there: made by then, and read from then on."""
    place = {op: i for i, op in enumerate(order)}
    first = dict.fromkeys(lifetimes.given, 0)
    last = dict.fromkeys(lifetimes.stays, len(order))
    for op, made in enumerate(lifetimes.makes):
        first.update(dict.fromkeys(made, place[op]))
        for piece in made:
            last[piece] = max(last.get(piece, 0), place[op])
    for op, read in enumerate(lifetimes.reads):
        for piece in read:
            last[piece] = max(last.get(piece, 0), place[op])
    unread = {piece for piece in lifetimes.given if piece not in last}
    there = [{piece for piece in first if first[piece] <= i <= last.get(piece, -1)} for i in range(len(order))]
    return [alive | unread for alive in there]


def most_by_hand(lifetimes: Lifetimes, order: Sequence[int]) -> int:
    """The peak, from `alive_at`."""
    sums = [
        sum(lifetimes.sizes[piece] for piece in alive) + lifetimes.within[op]
        for op, alive in zip(order, alive_at(lifetimes, order), strict=True)
    ]
    return max(sums)
