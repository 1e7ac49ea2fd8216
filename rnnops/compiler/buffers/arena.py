"""Arenas: buffers that live at different times share one block of memory.

Dynamic storage allocation with fixed lifetimes (NP-hard; Robson 1971, Gergov 1999 for bounds). Buffers are placed one
after another, each at the lowest offset that is free for as long as it lives, or where it leaves the least space over
(best fit), in several orders. From the best layouts a bounded local search places what lies highest earlier. It ends
where the block is as large as what is alive at once: no block can be smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from random import Random

from rnnops.compiler.buffers.allocations import MOMENTS, Allocation
from rnnops.compiler.buffers.memory import rounded

STARTS = 4  # layouts that the local search begins at; the first one has most of the rounds
ROUNDS, PAIRS = 1000, 5_000_000  # of the local search: placements at most, and pairs of buffers that these look at


@dataclass(frozen=True)
class Interval:
    """A buffer of so many bytes, alive from one op to another, both included."""

    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Arena:
    """Where buffers lie in a block of so many bytes; offsets are multiples of a line of the cache."""

    offsets: tuple[int, ...] = ()
    nbytes: int = 0


def intervals_of(allocations: Iterable[Allocation]) -> list[Interval]:
    """From which op to which memory is there; what an op asks for lies apart, whatever its moment."""
    return [Interval(one.nbytes, one.first // MOMENTS, one.last // MOMENTS) for one in allocations]


def plan_arena(intervals: Sequence[Interval]) -> Arena:
    """Offsets for buffers, such that no two that are alive at once overlap."""
    if not intervals:
        return Arena()
    lines = [Interval(rounded(one.nbytes), one.first, one.last) for one in intervals]
    least, _ = most_at_once(lines)
    starts: list[Arena] = []
    for key in ORDERS:
        order = sorted(range(len(lines)), key=lambda i: (key(lines[i]), i))
        for fit in (_lowest, _tightest):
            starts.append(_placed(lines, order, fit))
            if starts[-1].nbytes == least:
                return starts[-1]
    return _best_searched(lines, sorted(starts, key=lambda start: start.nbytes)[:STARTS], least)


def _best_searched(lines: Sequence[Interval], starts: Sequence[Arena], least: int) -> Arena:
    """The best of what the search finds from each layout, in turn until none can be smaller."""
    best, rounds = starts[0], min(ROUNDS, PAIRS // len(lines) ** 2 + 1)
    for number, start in enumerate(starts):
        found = _searched(lines, start, least, rounds if number == 0 else rounds // STARTS)
        best = found if found.nbytes < best.nbytes else best
        if best.nbytes == least:
            break
    return best


def most_at_once(intervals: Iterable[Interval | Allocation]) -> tuple[int, int]:
    """The largest sum of bytes that are alive at once, and the first moment when so many are."""
    changes: dict[int, int] = {}
    for one in intervals:
        changes[one.first] = changes.get(one.first, 0) + one.nbytes
        changes[one.last + 1] = changes.get(one.last + 1, 0) - one.nbytes
    alive, most = 0, (0, 0)
    for moment in sorted(changes):
        alive += changes[moment]
        most = max(most, (alive, moment), key=itemgetter(0))
    return most


ORDERS: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
    lambda one: (-one.nbytes, one.first),
    lambda one: (one.first, -one.nbytes),
    lambda one: (-one.nbytes * (one.last - one.first + 1), one.first),
    lambda one: (-(one.last - one.first), -one.nbytes),
    lambda one: (-one.last, -one.nbytes),
)
Gap = tuple[int, int]  # from, to
Fit = Callable[[Iterable[Gap], int], int]


def _lowest(gaps: Iterable[Gap], nbytes: int) -> int:
    return next(start for start, end in gaps if end - start >= nbytes)


def _tightest(gaps: Iterable[Gap], nbytes: int) -> int:
    return min((end - start, start) for start, end in gaps if end - start >= nbytes)[1]


def _placed(lines: Sequence[Interval], order: Iterable[int], fit: Fit) -> Arena:
    """Buffers placed one after another."""
    offsets = [0] * len(lines)
    placed: list[tuple[int, int, int, int]] = []  # from, to, first, last
    total = 0
    for i in order:
        one = lines[i]
        taken = sorted((start, end) for start, end, first, last in placed if first <= one.last and one.first <= last)
        offsets[i] = fit(_gaps(taken), one.nbytes)
        placed.append((offsets[i], offsets[i] + one.nbytes, one.first, one.last))
        total = max(total, offsets[i] + one.nbytes)
    return Arena(tuple(offsets), total)


def _gaps(taken: Iterable[Gap]) -> Iterable[Gap]:
    """Free space between what is taken, lowest first, and all that is above it."""
    top, gaps = 0, []
    for start, end in taken:
        if start > top:
            gaps.append((top, start))
        top = max(top, end)
    return [*gaps, (top, 1 << 62)]


def _searched(lines: Sequence[Interval], best: Arena, least: int, rounds: int) -> Arena:
    """Place again with one buffer earlier in the order, one that lies at the top or any; as long as tries are left."""
    draw = Random(0)
    order = sorted(range(len(lines)), key=lambda i: (best.offsets[i], i))
    for number in range(rounds):
        top = [i for i in order if best.offsets[i] + lines[i].nbytes == best.nbytes]
        moved = draw.choice(order if number % 4 == 3 else top)
        candidate = [i for i in order if i != moved]
        candidate.insert(draw.randint(0, order.index(moved)), moved)
        found = _placed(lines, candidate, _lowest)
        if found.nbytes <= best.nbytes:
            best, order = found, candidate
        if best.nbytes == least:
            break
    return best
