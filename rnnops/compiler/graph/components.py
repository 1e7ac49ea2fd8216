"""Connected components of a graph: strongly connected ones by Tarjan's algorithm (SIAM J. Comput. 1(2), 1972)."""

from __future__ import annotations

from collections.abc import Sequence


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
