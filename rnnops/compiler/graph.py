"""Graphs: topological order and connected components."""

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


def strong_components(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """For each node of a directed graph the number of its strongly connected component."""
    after: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        after[a].append(b)
    label, index, low, stack = [-1] * count, [-1] * count, [0] * count, list[int]()
    found = visited = 0
    for root in range(count):
        path = [(root, 0)] if index[root] < 0 else []
        while path:
            node, place = path.pop()
            if place == 0:
                index[node] = low[node] = visited
                visited += 1
                stack.append(node)
            else:
                low[node] = min(low[node], low[after[node][place - 1]])
            rest = after[node]
            while place < len(rest) and (index[rest[place]] >= 0):
                if label[rest[place]] < 0:  # still on the stack
                    low[node] = min(low[node], index[rest[place]])
                place += 1
            if place < len(rest):
                path += [(node, place + 1), (rest[place], 0)]
            elif low[node] == index[node]:
                while label[node] < 0:
                    label[stack.pop()] = found
                found += 1
    return label


def weak_components(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """For each node of a graph the number of its component, whichever way edges point."""
    first = list(range(count))  # a node that comes earlier in the component, or the node itself

    def root(node: int) -> int:
        while first[node] != node:
            first[node] = node = first[first[node]]
        return node

    for a, b in edges:
        low, high = sorted((root(a), root(b)))
        first[high] = low
    numbers = {one: i for i, one in enumerate(dict.fromkeys(map(root, range(count))))}
    return [numbers[root(node)] for node in range(count)]
