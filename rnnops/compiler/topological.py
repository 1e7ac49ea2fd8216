"""Topological order: things in an order in which each comes after what it needs (Kahn 1962)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence


def topological_order(
    before: Sequence[Collection[int]], key: Callable[[int], int], ran: Callable[[int], None] = lambda number: None
) -> list[int]:
    """An order in which, of all that may come next, always the one of the smallest key comes; of equals the first.

    Args:
        before: for each number those that it needs.
        key: may change with what has run.
        ran: is told of each number as its turn comes.
    """
    waiting = [len(set(needed)) for needed in before]
    after: list[set[int]] = [set() for _ in before]
    for number, needed in enumerate(before):
        for one in needed:
            after[one].add(number)
    ready = {number for number, count in enumerate(waiting) if not count}
    order = []
    while ready:
        chosen = min(ready, key=lambda number: (key(number), number))
        ready.discard(chosen)
        order.append(chosen)
        ran(chosen)
        for number in after[chosen]:
            waiting[number] -= 1
            if not waiting[number]:
                ready.add(number)
    return order


def makers_before(ops: Sequence[tuple[Collection[str], Collection[str]]]) -> list[set[int]]:
    """For each op, given as what it reads and what it makes, the ops that make what it reads."""
    makers = {name: number for number, (_, made) in enumerate(ops) for name in made if name}
    return [{makers[name] for name in read if name in makers} for read, _ in ops]
