"""Minimum cuts: the smallest set of blobs to keep, found by maximum flow.

Maximum flow through a net of arcs with capacities: Dinic's algorithm (Soviet Math. Doklady 11, 1970).

Each phase finds how far every vertex is from the source, then fills paths along which that grows by one, until none is
left. SciPy has it too, with capacities of 32 bits; its import takes as long as all else that a first step imports.

The smallest set of blobs from which others follow: a minimum vertex cut.

Every blob is a vertex that costs its bytes to keep. Sources are blobs that cannot be computed again, targets blobs that
must be at hand; the cut separates them. Of all smallest cuts the one nearest to the targets is taken, which leaves the
least to compute again. Solved as maximum flow (Ford and Fulkerson 1956).

Where to cut a net so that little is held: the cuts that `checkpoints="memory"` makes in an outer net.

Between two ops what is alive is what was made before and is read after; kept there, it lets the ops in between be run
again, segment by segment. Of all cuts those are taken with the smallest sum of what is kept and of the largest segment:
for each limit of segment sizes a shortest path over cuts, for about sqrt(n) equal parts of a chain 2 sqrt(n) in all.

Source: Chen, Xu, Zhang, Guestrin, Training deep nets with sublinear memory cost (2016), 4.1, with cuts of any width.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from rnnops.interpreter import Program
from rnnops.op import Op
from rnnops.sizes import settled
from rnnops.types import Array


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


def minimum_cut(
    cost: Mapping[str, int | None], edges: Iterable[tuple[str, str]], sources: Iterable[str], targets: Iterable[str]
) -> set[str]:
    """Blobs to keep.

    Args:
        cost: bytes of each blob, None where it must not be kept.
        edges: (blob read, blob computed from it).
        sources: blobs that cannot be computed again.
        targets: blobs that must be kept or follow from what is kept.

    Returns: the cut; raises ValueError where a source that is also a target must not be kept.
    """
    wanted = set(targets)
    if not wanted:
        return set()
    index = {name: i for i, name in enumerate(cost)}
    arcs = [(2 * index[a] + 1, 2 * index[b]) for a, b in dict.fromkeys(edges)]
    starts = [2 * index[name] for name in dict.fromkeys(sources)]
    ends = [2 * index[name] + 1 for name in sorted(wanted)]
    find = partial(_cut, [size is None for size in cost.values()], arcs, starts, ends)
    cut: frozenset[int] = settled(find, [max(1, size) for size in cost.values() if size is not None])
    return {name for name, i in index.items() if i in cut}


def _cut(
    without_cost: Sequence[bool],
    edges: Iterable[tuple[int, int]],
    sources: Iterable[int],
    targets: Iterable[int],
    cost: Sequence[int],
) -> tuple[frozenset[int], bool]:
    """Blobs to keep, by number, and that what a cut costs is linear in the costs of blobs.

    Args:
        without_cost: whether each blob must not be kept.
        edges, sources, targets: between the vertices of the graph.
        cost: of each blob that may be kept.
    """
    infinite, sizes, count = sum(cost) + 1, iter(cost), len(without_cost)
    source, sink = 2 * count, 2 * count + 1
    net = FlowNet(sink + 1)
    for i, never in enumerate(without_cost):
        net.add(2 * i, 2 * i + 1, infinite if never else next(sizes))
    for start, end in edges:
        net.add(start, end, infinite)
    for vertex in sources:
        net.add(source, vertex, infinite)
    for vertex in targets:
        net.add(vertex, sink, infinite)
    if net.fill(source, sink) >= infinite:
        raise ValueError("no finite cut: a blob that must not be kept cannot be computed again")
    reaches_sink = net.reaching(sink)
    return frozenset(i for i in range(count) if 2 * i + 1 in reaches_sink and 2 * i not in reaches_sink), True


LIMITS = 24  # sizes of segments that are tried


@dataclass(frozen=True)
class Cuts:
    """The blobs that are kept.

    Args:
        kept: blobs alive at a cut.
        held: bytes of them and of the largest segment.
    """

    kept: frozenset[str]
    held: int


def find_cuts(program: Program, reads: Sequence[str], free: Collection[str], nbytes: Mapping[str, int]) -> Cuts:
    """The best cuts; none where nothing is gained by any.

    Args:
        reads: what the backward pass reads.
        free: what is at hand anyway.
        nbytes: of every blob.
    """
    chain = _Chain(program, set(reads), free, nbytes)
    best = Cuts(frozenset(), chain.largest([]))
    for limit in np.geomspace(max(chain.weights.max(initial=1), 1), max(chain.weights.sum(), 1), LIMITS):
        places = chain.shortest(limit)
        kept = chain.alive_at(places)
        held = sum(nbytes[name] for name in kept) + chain.largest(places)
        if held < best.held:
            best = Cuts(kept, held)
    return best


class _Chain:
    """The ops in a row that backward reads depend on.

    `lives` says which op makes a blob and which is the last to read it, `costs[i]` how much is alive behind op i,
    `weights[i]` how many op i makes for backward to read.
    """

    def __init__(self, program: Program, reads: set[str], free: Collection[str], nbytes: Mapping[str, int]) -> None:
        ops = _needed(program, reads, free)
        made = [[name for name in op.outputs if name and name not in free] for op in ops]
        last = {name: i for i, op in enumerate(ops) for name in op.inputs}
        self.lives = {name: (i, last.get(name, i)) for i, names in enumerate(made) for name in names}
        changes = np.zeros(len(ops) + 1)
        for name, (first, end) in self.lives.items():
            changes[first] += nbytes[name]
            changes[end] -= nbytes[name]
        self.costs: Array = np.cumsum(changes)
        self.weights = np.array([sum(nbytes[name] for name in names if name in reads) for names in made], np.float64)
        self.sums: Array = np.concatenate([[0.0], np.cumsum(self.weights)])

    def alive_at(self, places: Sequence[int]) -> frozenset[str]:
        """The blobs that are alive at a cut behind these ops, whose numbers are in order."""
        return frozenset(
            name for name, (first, end) in self.lives.items() if bisect_left(places, first) < bisect_left(places, end)
        )

    def largest(self, places: Sequence[int]) -> int:
        """Bytes of the largest segment between cuts behind these ops."""
        ends = [0, *(place + 1 for place in places), len(self.weights)]
        return int(max((self.sums[b] - self.sums[a] for a, b in pairwise(ends)), default=0))

    def shortest(self, limit: float) -> list[int]:
        """The cheapest cuts between which no segment is above the limit, where single ops allow that."""
        count = len(self.weights)
        cost, before = [0.0] * (count + 1), [0] * (count + 1)
        firsts = np.searchsorted(self.sums, self.sums[1:] - limit)
        best: deque[int] = deque()  # starts of which none is dearer than a later one
        for end in range(1, count + 1):
            while best and cost[best[-1]] > cost[end - 1]:
                best.pop()
            best.append(end - 1)
            while best[0] < min(int(firsts[end - 1]), end - 1):
                best.popleft()
            before[end] = best[0]
            cost[end] = cost[best[0]] + (self.costs[end - 1] if end < count else 0)
        places: list[int] = []
        end = count
        while before[end] > 0:
            end = before[end]
            places.append(end - 1)
        return places[::-1]


def _needed(program: Program, reads: set[str], free: Collection[str]) -> list[Op]:
    """The ops that what is read depends on, up to what is free."""
    needed, ops = set(reads), []
    for op in reversed(program.net.ops):
        if any(name in needed and name not in free for name in op.outputs):
            needed.update(op.inputs)
            ops.append(op)
    return ops[::-1]
