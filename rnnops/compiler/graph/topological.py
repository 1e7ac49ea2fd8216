"""Topological order: things in an order in which each comes after what it needs (Kahn 1962)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush


def topological_order(
    before: Sequence[Collection[int]],
    key: Callable[[int], int],
    ran: Callable[[int], Iterable[int]] = lambda number: (),
) -> list[int]:
    """An order in which, of all that may come next, always the one of the smallest key comes; of equals the first.

    Args:
        before: for each number those that it needs.
        key: may get smaller with what has run, never larger.
        ran: is told of each number as its turn comes, and says of which others the key may have changed by that.
    """
    waiting = [len(set(needed)) for needed in before]
    after: list[set[int]] = [set() for _ in before]
    for number, needed in enumerate(before):
        for one in needed:
            after[one].add(number)
    ready = [(key(number), number) for number, count in enumerate(waiting) if not count]
    heapify(ready)  # a number may be there several times: with its key of now, and with larger ones of before
    order: dict[int, None] = {}
    while ready:
        _, chosen = heappop(ready)
        if chosen in order:
            continue
        order[chosen] = None
        for number in ran(chosen):
            if not waiting[number] and number not in order:
                heappush(ready, (key(number), number))
        for number in after[chosen]:
            waiting[number] -= 1
            if not waiting[number]:
                heappush(ready, (key(number), number))
    return list(order)


def makers_before(ops: Sequence[tuple[Collection[str], Collection[str]]]) -> list[set[int]]:
    """For each op, given as what it reads and what it makes, the ops that make what it reads."""
    makers = {name: number for number, (_, made) in enumerate(ops) for name in made if name}
    return [{makers[name] for name in read if name in makers} for read, _ in ops]
