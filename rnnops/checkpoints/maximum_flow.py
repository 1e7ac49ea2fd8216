"""Maximum flow through a net of arcs with capacities: Dinic's algorithm (Soviet Math. Doklady 11, 1970).

Each phase finds how far every vertex is from the source, then fills paths along which that grows by one, until none is
left. SciPy has it too, with capacities of 32 bits; its import takes as long as all else that a first step imports.
"""

from __future__ import annotations

from collections import deque


class FlowNet:
    """Arcs between vertices 0, 1, ...; each lies beside its reverse, through which flow goes back.

    Args:
        count: of vertices.
    """

    def __init__(self, count: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(count)]  # of each vertex; arc i has the reverse i ^ 1
        self._heads: list[int] = []
        self._left: list[int] = []  # capacity of arcs

    def add(self, tail: int, head: int, capacity: int) -> None:
        """Add an arc."""
        for vertex, other, left in ((tail, head, capacity), (head, tail, 0)):
            self._arcs[vertex].append(len(self._heads))
            self._heads.append(other)
            self._left.append(left)

    def fill(self, source: int, sink: int) -> int:
        """Let as much flow as goes; how much that is."""
        total = 0
        while (distance := self._distances(source))[sink] >= 0:
            nexts = [0] * len(self._arcs)  # arcs before it are of no more use in this phase
            while path := self._path(source, sink, distance, nexts):
                amount = min(self._left[arc] for arc in path)
                for arc in path:
                    self._left[arc] -= amount
                    self._left[arc ^ 1] += amount
                total += amount
        return total

    def reaching(self, sink: int) -> set[int]:
        """Vertices from which flow could still go to one."""
        found, waiting = {sink}, [sink]
        while waiting:
            for arc in self._arcs[waiting.pop()]:
                tail = self._heads[arc]
                if tail not in found and self._left[arc ^ 1]:
                    found.add(tail)
                    waiting.append(tail)
        return found

    def _distances(self, source: int) -> list[int]:
        """Arcs with capacity left from the source to each vertex; -1 where it cannot be reached."""
        distance, waiting = [-1] * len(self._arcs), deque([source])
        distance[source] = 0
        while waiting:
            vertex = waiting.popleft()
            for arc in self._arcs[vertex]:
                head = self._heads[arc]
                if self._left[arc] and distance[head] < 0:
                    distance[head] = distance[vertex] + 1
                    waiting.append(head)
        return distance

    def _path(self, source: int, sink: int, distance: list[int], nexts: list[int]) -> list[int]:
        """Arcs of a shortest path with capacity left; empty where there is none."""
        path: list[int] = []
        vertex = source
        while vertex != sink:
            arcs = self._arcs[vertex]
            if nexts[vertex] == len(arcs):
                if not path:
                    return []
                vertex = self._heads[path.pop() ^ 1]
                nexts[vertex] += 1
                continue
            arc = arcs[nexts[vertex]]
            if self._left[arc] and distance[self._heads[arc]] == distance[vertex] + 1:
                path.append(arc)
                vertex = self._heads[arc]
            else:
                nexts[vertex] += 1
        return path
