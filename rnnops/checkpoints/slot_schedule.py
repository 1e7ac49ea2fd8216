"""Which values to keep so that little memory is needed: minimum cuts, segments of a net, slots for a chain of steps.

**Minimum cuts** (`minimum_cut`). The smallest set of blobs from which other blobs can be computed is a minimum vertex
cut. Every blob is a vertex, and costs its bytes to keep. Sources are blobs that cannot be computed again. Targets are
blobs that must be there. Of all smallest cuts the one nearest to the targets is taken, because it leaves the least to
compute again. It is solved as maximum flow (Ford and Fulkerson 1956) by Dinic's algorithm (Soviet Math. Doklady 11,
1970). Each phase finds how far every vertex is from the source, and fills paths on which this distance grows by one at
each arc. SciPy has the algorithm too, but with capacities of 32 bits. Its import takes as long as all other imports of
a first step together.

**Segments of an outer net** (`find_cuts`), for `checkpoints="memory"`. At a cut between two ops, the blobs that were
made before it and are read after it are kept. The ops between two cuts are a segment, which runs again as a whole. The
cuts with the smallest sum of kept bytes and bytes of the largest segment are taken. For each of some limits of segment
sizes they are a shortest path over cuts. A chain of n equal ops has about sqrt(n) segments, and holds about 2 sqrt(n)
blobs. Source: Chen, Xu, Zhang, Guestrin, Training deep nets with sublinear memory cost (2016), 4.1, with cuts of any
width.

**Slots** (`slots`). Optimal checkpointing of a chain of steps: in which order steps run, and which values are stored.
There are three kinds of slot (Gruslys and others, Memory-efficient backpropagation through time, 2016; the first kind
is Revolve, Griewank and Walther 2000):

- `"state"`: a slot holds the state before a step. C(t, m) = min over y of y + C(t - y, m - 1) + C(y, m)
- `"step"`: a slot holds the values of one step for backward. C(t, m) = min over y of y + C(t - y, m - 1) + C(y - 1, m)
- `"mixed"`: a slot holds a state, and `cost` slots hold a step. C is the smaller of both, with m - cost in the second

C(t, m) is the number of forward steps for t steps and m slots; C(t, 1) = t (t + 1) / 2. The state before step 0 is
always there. With slots of states it takes one of the m slots.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from math import comb

import numpy as np

from rnnops.errors import CheckpointError
from rnnops.interpreter import Program
from rnnops.net.op import Op
from rnnops.sizes import guarded
from rnnops.types import Array


class FlowNet:
    """A graph with vertices 0, 1, ... and arcs with capacities. Each arc is stored next to its reverse.

    Args:
        count: the number of vertices.
    """

    def __init__(self, count: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(count)]  # vertex -> its arcs; arc i has the reverse i ^ 1
        self._heads: list[int] = []  # arc -> the vertex where it ends
        self._left: list[int] = []  # arc -> capacity that is left

    def add(self, tail: int, head: int, capacity: int) -> None:
        """Add an arc."""
        for vertex, other, left in ((tail, head, capacity), (head, tail, 0)):
            self._arcs[vertex].append(len(self._heads))
            self._heads.append(other)
            self._left.append(left)

    def fill(self, source: int, sink: int) -> int:
        """Send as much flow as possible; returns the amount."""
        total = 0
        while (distance := self._distances(source))[sink] >= 0:
            nexts = [0] * len(self._arcs)  # vertex -> its first arc that may still be used in this phase
            while path := self._path(source, sink, distance, nexts):
                amount = min(self._left[arc] for arc in path)
                for arc in path:
                    self._left[arc] -= amount
                    self._left[arc ^ 1] += amount
                total += amount
        return total

    def reaching(self, sink: int) -> set[int]:
        """Vertices from which more flow could go to the sink."""
        found, waiting = {sink}, [sink]
        while waiting:
            for arc in self._arcs[waiting.pop()]:
                tail = self._heads[arc]
                if tail not in found and self._left[arc ^ 1]:
                    found.add(tail)
                    waiting.append(tail)
        return found

    def _distances(self, source: int) -> list[int]:
        """The distance of each vertex from the source, over arcs with capacity left; -1 if it cannot be reached."""
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
        """Arcs of a shortest path with capacity left; empty if there is none."""
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
    """The blobs to keep: a minimum cut.

    Args:
        cost: bytes of each blob; None if it must not be kept.
        edges: (blob that is read, blob that is computed from it).
        sources: blobs that cannot be computed again.
        targets: blobs that must be kept, or must be computable from kept blobs.

    Raises ValueError if there is no cut: a blob that cannot be computed again must not be kept, but is needed.
    """
    wanted = set(targets)
    if not wanted:
        return set()
    index = {name: i for i, name in enumerate(cost)}
    arcs = [(2 * index[a] + 1, 2 * index[b]) for a, b in dict.fromkeys(edges)]
    starts = [2 * index[name] for name in dict.fromkeys(sources)]
    ends = [2 * index[name] + 1 for name in sorted(wanted)]
    find = partial(_cut, [size is None for size in cost.values()], arcs, starts, ends)
    cut: frozenset[int] = guarded(find, [max(1, size) for size in cost.values() if size is not None])
    return {name for name, i in index.items() if i in cut}


def _cut(
    without_cost: Sequence[bool],
    edges: Iterable[tuple[int, int]],
    sources: Iterable[int],
    targets: Iterable[int],
    cost: Sequence[int],
) -> tuple[frozenset[int], bool]:
    """The numbers of blobs to keep, and True, which tells `guarded` that the cost of a cut is linear in the costs of
    blobs.

    Args:
        without_cost: for each blob, True if it must not be kept.
        edges, sources, targets: by vertices of the graph: blob i has the vertices 2i and 2i + 1.
        cost: costs of the blobs that may be kept, in order.
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


LIMITS = 24  # how many limits of segment sizes are tried


@dataclass(frozen=True)
class Cuts:
    """The result of `find_cuts`.

    Args:
        kept: blobs that are alive at one of the cuts.
        held: bytes of the kept blobs and of the largest segment together.
    """

    kept: frozenset[str]
    held: int


def find_cuts(program: Program, reads: Sequence[str], free: Collection[str], nbytes: Mapping[str, int]) -> Cuts:
    """The best cuts; without kept blobs if no cut saves memory.

    Args:
        reads: blobs that the backward pass reads.
        free: blobs that are there in any case.
        nbytes: bytes of every blob.
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
    """The ops on which the blobs that backward reads depend, in order.

    Attributes:
        lives: blob -> (number of the op that makes it, number of the op that reads it last).
        costs: number of an op -> bytes that are alive after it.
        weights: number of an op -> bytes of its results that backward reads.
        sums: number of an op -> sum of the weights of all ops before it.
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
        """The blobs that are alive at cuts behind these ops. Numbers of ops must be in order."""
        return frozenset(
            name for name, (first, end) in self.lives.items() if bisect_left(places, first) < bisect_left(places, end)
        )

    def largest(self, places: Sequence[int]) -> int:
        """Bytes of the largest segment between cuts behind these ops."""
        ends = [0, *(place + 1 for place in places), len(self.weights)]
        return int(max((self.sums[b] - self.sums[a] for a, b in pairwise(ends)), default=0))

    def shortest(self, limit: float) -> list[int]:
        """The cheapest cuts such that no segment is above the limit, except segments of one op."""
        count = len(self.weights)
        cost, before = [0.0] * (count + 1), [0] * (count + 1)
        firsts = np.searchsorted(self.sums, self.sums[1:] - limit)
        best: deque[int] = deque()  # possible starts of the segment, in order of cost and of number
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
    """The ops that the read blobs depend on, up to free blobs."""
    needed, ops = set(reads), []
    for op in reversed(program.net.ops):
        if any(name in needed and name not in free for name in op.outputs):
            needed.update(filter(None, op.inputs))
            ops.append(op)
    return ops[::-1]


KINDS = ("state", "step", "mixed")
LARGEST_TABLE = 2_000_000  # entries in the table for mixed slots; it takes some seconds


@dataclass(frozen=True)
class Action:
    """One action in a schedule of `slots`; `str()` gives it in words.

    Args:
        what: `advance`: run steps from `first` to `last` (not included) from the current state, and keep nothing.
            `keep`: run step `first` and keep its values for backward.
            `backward`: run step `first` backward and forget its kept values.
            `store`: put the current state, which is the one before step `first`, in a slot.
            `restore`: make the state before step `first` the current one, from its slot or from the kept values of the
            step before.
            `drop`: forget the state before step `first`.
        first: a step.
        last: for `advance`, the step after its last one.

    Raises:
        CheckpointError: in `slots`, which makes actions.

    Example:
        >>> str(ro.checkpoints.Action("advance", 0, 5))
        'advance 0 to 5'
    """

    what: str
    first: int
    last: int = 0

    def __str__(self) -> str:
        return f"{self.what} {self.first}" + (f" to {self.last}" if self.what == "advance" else "")


def slots(T: int, m: int, kind: str = "state", cost: int = 1) -> tuple[Action, ...]:
    """The schedule that runs T steps backward with m slots and the fewest forward steps.

    Gruslys and others 2016, "Memory-efficient backpropagation through time", arXiv 1606.03401; slots of states:
    Revolve, Griewank and Walther 2000. C(t, m) is the least number of forward steps for t steps and m slots, and
    `C(t, 1) = t (t + 1) / 2`::

        state: a slot holds the state before a step
            C(t, m) = min over y of y + C(t - y, m - 1) + C(y, m)
        step: a slot holds the values of one step for backward
            C(t, m) = min over y of y + C(t - y, m - 1) + C(y - 1, m)
        mixed: a slot holds a state, and `cost` slots hold the values of one step
            the smaller of both, with m - cost in the second

    The state before step 0 is always there. With slots of states it takes one of the m slots.

    Args:
        T: number of steps, 0 or more.
        m: number of slots, 1 or more.
        kind: kind of slots: `"state"`, `"step"` or `"mixed"`.
        cost: for `"mixed"`, the number of slots that hold the values of one step, 1 or more.

    Returns:
        A tuple of `Action`.

    Raises:
        CheckpointError: a number or kind is wrong, or there are too many mixed slots for the number of steps.

    Example:
        >>> print("; ".join(map(str, ro.checkpoints.slots(2, 2))))
        advance 0 to 1; store 1; keep 1; backward 1; drop 1; restore 0; keep 0; backward 0
    """
    return tuple(_planner(T, m, kind, cost).actions())


def forward_steps(T: int, m: int, kind: str = "state", cost: int = 1) -> int:
    """The number of forward steps in the schedule of `slots` with these arguments: C(T, m).

    Args:
        T, m, kind, cost: as for `slots`.

    Raises:
        CheckpointError: as for `slots`.

    Example:
        >>> [ro.checkpoints.forward_steps(100, m) for m in (1, 2, 5, 10)]
        [5050, 945, 416, 322]
    """
    planner = _planner(T, m, kind, cost)
    return int(planner.counts(planner.most)[T])


def check_slots(T: int, m: int, kind: str, cost: int) -> None:
    """Raise CheckpointError for a wrong number or kind."""
    for name, value, least in (("T", T, 0), ("m", m, 1), ("cost", cost, 1)):
        check_count(name, value, least)
    if kind not in KINDS:
        raise CheckpointError("no such kind of slot", wanted=f"one of {', '.join(KINDS)}", came=repr(kind))


def check_count(name: str, value: object, least: int) -> None:
    """Raise CheckpointError if a value is not an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise CheckpointError(f"{name} is not a count", wanted=f"an integer from {least}", came=repr(value))


def _planner(T: int, m: int, kind: str, cost: int) -> _Planner:
    """The planner for checked arguments. Mixed slots that are too few to hold a step are slots of states."""
    check_slots(T, m, kind, cost)
    planner = _Planner(T, m, "state" if kind == "mixed" and cost >= m else kind, cost)
    if planner.kind == "mixed" and planner.most * T > LARGEST_TABLE:
        raise CheckpointError(
            "too many mixed slots for so many steps",
            wanted=f"at most {LARGEST_TABLE} steps times slots",
            came=planner.most * T,
            hint="Use slots of kind 'state' or 'step', which need no table.",
        )
    return planner


@dataclass(frozen=True)
class _Planner:
    T: int
    m: int
    kind: str
    cost: int

    @property
    def most(self) -> int:
        """The number of slots that can be used."""
        return min(self.m, max(self.T, 1) * (self.cost if self.kind == "mixed" else 1))

    def actions(self) -> Iterator[Action]:
        """All actions, in order."""
        return self._span(0, self.T, self.most)

    def counts(self, m: int) -> Array:
        """C(t, m) for all t up to T."""
        if self.kind == "state":
            return _state_counts(self.T, m)
        return _step_counts(self.T, m) if self.kind == "step" else _mixed_table(self.T, self.most, self.cost)[m]

    def _span(self, a: int, t: int, m: int) -> Iterator[Action]:
        """The actions for t steps from step a on. The state before step a is the current one and stays available."""
        waiting: list[Action | tuple[int, int, int]] = [(a, t, m)]
        while waiting:
            item = waiting.pop()
            if isinstance(item, Action):
                yield item
            elif item[1] == 1 or item[2] == 1:
                yield from self._one_by_one(*item[:2])
            elif item[1] > 0:
                waiting += reversed(self._cut(*item))

    def _cut(self, a: int, t: int, m: int) -> list[Action | tuple[int, int, int]]:
        """The actions for a span of t steps, in which tuples are shorter spans to be planned later."""
        y, stores_step = self._split(t, m)
        if stores_step:
            price = self.cost if self.kind == "mixed" else 1
            head = [*_advance(a, a + y - 1), Action("keep", a + y - 1)]
            rest: list[Action | tuple[int, int, int]] = [Action("restore", a), (a, y - 1, m)] if y > 1 else []
            return [*head, (a + y, t - y, m - price), Action("backward", a + y - 1), *rest]
        inner = (a + y, t - y, m - 1)
        return [
            *_advance(a, a + y),
            Action("store", a + y),
            inner,
            Action("drop", a + y),
            Action("restore", a),
            (a, y, m),
        ]

    def _one_by_one(self, a: int, t: int) -> Iterator[Action]:
        for last in reversed(range(a, a + t)):
            yield from _advance(a, last)
            yield Action("keep", last)
            yield Action("backward", last)
            if last > a:
                yield Action("restore", a)

    def _split(self, t: int, m: int) -> tuple[int, bool]:
        """How many steps to run before the first value is stored; True if the last of them is stored as a step."""
        ways: list[tuple[float, int, bool]] = []
        if self.kind != "step":
            y = np.arange(1, t)
            total = y + self.counts(m - 1)[t - y] + self.counts(m)[y]
            ways.append((total.min(), int(y[total.argmin()]), False))
        price = self.cost if self.kind == "mixed" else 1
        if self.kind != "state" and m - price >= 1:
            y = np.arange(1, t + 1)
            total = y + self.counts(m - price)[t - y] + self.counts(m)[y - 1]
            ways.append((total.min(), int(y[total.argmin()]), True))
        _, y_best, stores_step = min(ways)
        return y_best, stores_step


def _advance(a: int, b: int) -> Iterator[Action]:
    if b > a:
        yield Action("advance", a, b)


@lru_cache(maxsize=1024)
def _state_counts(T: int, m: int) -> Array:
    """C(t, m) for all t up to T: (r + 1) t - binom(m + r, r - 1), r the least integer with binom(m + r, m) >= t."""
    counts = np.zeros(T + 1)
    r, done = 0, 0
    while done < T:
        until = min(T, comb(m + r, m))
        t = np.arange(done + 1, until + 1)
        counts[done + 1 : until + 1] = (r + 1) * t - (comb(m + r, r - 1) if r else 0)
        r, done = r + 1, until
    return counts


@lru_cache(maxsize=1024)
def _step_counts(T: int, m: int) -> Array:
    """C(t, m) for all t up to T: at most N(k) = binom(m + k, m) - 1 steps run no more than k times each."""
    t = np.arange(T + 1)
    counts = np.zeros(T + 1)
    k, before = 1, np.zeros(T + 1)
    while before[-1] < T:
        reached = np.minimum(t, comb(m + k, m) - 1)
        counts += k * (reached - before)
        k, before = k + 1, reached
    return counts


@lru_cache(maxsize=64)
def _mixed_table(T: int, m: int, cost: int) -> Array:
    """C(t, m') for all t up to T and m' up to m, by dynamic programming: there is no closed form."""
    table = np.zeros((m + 1, T + 1))
    table[1] = np.arange(T + 1) * np.arange(1, T + 2) / 2
    for slots_left in range(2, m + 1):
        fewer, counts = table[slots_left - 1], table[slots_left]
        kept = table[slots_left - cost] if slots_left > cost else None
        counts[1:2] = 1
        for steps in range(2, T + 1):
            counts[steps] = (np.arange(1, steps) + fewer[steps - 1 : 0 : -1] + counts[1:steps]).min()
            if kept is not None:
                counts[steps] = min(
                    counts[steps], (np.arange(1, steps + 1) + kept[steps - 1 :: -1] + counts[:steps]).min()
                )
    return table
