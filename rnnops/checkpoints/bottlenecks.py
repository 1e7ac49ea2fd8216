"""Where to cut a net so that little is held: the cuts that `checkpoints="memory"` makes in an outer net.

Between two ops what is alive is what was made before and is read after; kept there, it lets the ops in between be run
again, segment by segment. Of all cuts those are taken with the smallest sum of what is kept and of the largest segment:
for each limit of segment sizes a shortest path over cuts, for about sqrt(n) equal parts of a chain 2 sqrt(n) in all.

Source: Chen, Xu, Zhang, Guestrin, Training deep nets with sublinear memory cost (2016), 4.1, with cuts of any width.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rnnops.interpreter import Program
from rnnops.op import Op
from rnnops.types import Array

LIMITS = 24  # sizes of segments that are tried


@dataclass(frozen=True)
class Cuts:
    """What is kept.

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
        """What is made before a cut behind one of these ops, in order, and read after it."""
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
