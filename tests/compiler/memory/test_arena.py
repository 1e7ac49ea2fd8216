"""Arenas: buffers that are alive at once never overlap, and a block is hardly larger than what is alive at once."""

from __future__ import annotations

import random
from itertools import combinations
from time import process_time

import pytest
from arena_models import MODELS
from each import check_each

import rnnops as ro
from rnnops.compiler.memory.allocations import Arena, Interval, allocations_of, intervals_of, most_at_once, plan_arena
from rnnops.compiler.memory.memory import ALIGNMENT
from rnnops.compiler.run.pipeline import TrainingPlan

LARGER = 1.02


def check(intervals: list[Interval], larger: float = LARGER) -> Arena:
    """Lay out; alive at once is worked out here moment by moment, in whole lines of the cache."""
    arena = plan_arena(intervals)
    assert len(arena.offsets) == len(intervals)
    for (a, at), (b, bt) in combinations(zip(intervals, arena.offsets, strict=True), 2):
        if a.first <= b.last and b.first <= a.last:
            assert at + a.nbytes <= bt or bt + b.nbytes <= at, (a, at, b, bt)
    for one, offset in zip(intervals, arena.offsets, strict=True):
        assert offset % ALIGNMENT == 0
        assert 0 <= offset <= arena.nbytes - one.nbytes
    moments = {one.first for one in intervals}
    sums = [sum(-(-i.nbytes // 64) * 64 for i in intervals if i.first <= now <= i.last) for now in moments]
    assert arena.nbytes <= max(larger * max(sums, default=0), max(sums, default=0) + ALIGNMENT)
    return arena


def test_nothing_needs_nothing() -> None:
    assert plan_arena([]) == Arena((), 0)


def test_one_after_another_in_the_same_place() -> None:
    assert check([Interval(100, 0, 1), Interval(100, 2, 3), Interval(90, 4, 4)]) == Arena((0, 0, 0), 128)


def test_both_ends_are_alive() -> None:
    assert check([Interval(64, 0, 1), Interval(64, 1, 2)]).nbytes == 128


def test_what_is_empty_takes_nothing() -> None:
    assert check([Interval(0, 0, 9), Interval(64, 1, 2)]).nbytes == 64


def test_a_chain_takes_two() -> None:
    assert check([Interval(640, i, i + 1) for i in range(100)]).nbytes == 2 * 640


def test_largest_first_is_not_always_best() -> None:
    """Sorted by size or by start there is a hole; the search closes it."""
    sizes = ((3, 0, 1), (1, 0, 3), (2, 2, 5), (2, 1, 3), (3, 4, 6), (1, 5, 6))
    check([Interval(64 * size, first, last) for size, first, last in sizes], larger=1.0)


def test_random_intervals() -> None:
    """As hard as it gets: sizes and lifetimes that know nothing of each other."""
    check_each(range(200), assert_random_intervals_fit)


def assert_random_intervals_fit(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice((3, 10, 30))
    starts = [rng.randrange(2 * count) for _ in range(count)]
    sizes = (64, 100, 4096, 10**5, rng.randint(1, 10**6))
    check([Interval(rng.choice(sizes), start, start + int(rng.expovariate(0.2))) for start in starts], larger=1.05)


def test_the_largest_sum_is_what_counting_says() -> None:
    rng = random.Random(0)
    for _ in range(200):
        found = [Interval(rng.randint(0, 9), a := rng.randrange(9), a + rng.randrange(9)) for _ in range(12)]
        sums = [sum(one.nbytes for one in found if one.first <= now <= one.last) for now in range(20)]
        assert most_at_once(found) == (max(sums), sums.index(max(sums)))


def test_a_thousand_buffers_take_about_a_second() -> None:
    rng = random.Random(0)
    found = [Interval(rng.randint(1, 10**6), a, a + int(rng.expovariate(0.05))) for a in range(1000)]
    start = process_time()
    plan_arena(found)
    assert process_time() - start < 5
    assert plan_arena(found) == plan_arena(found)


# -- nets --------------------------------------------------------------------------------------------------------------


def passes(net: ro.Net, **given: object) -> list[list[Interval]]:
    """All memory of the forward and of the backward pass as if it were laid out in one block each."""
    plan = ro.compile(net, device="reference").plan(dict(given)).plan
    assert isinstance(plan, TrainingPlan)
    forward = allocations_of(plan.program, {}, (*plan.residuals.kept, *plan.residuals.free))
    return [intervals_of(forward), intervals_of(allocations_of(plan.backward, {}))]


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_nets(first: int) -> None:
    check_each(range(first, first + 20), assert_random_nets_fit)


def assert_random_nets_fit(seed: int) -> None:
    made = ro.testing.random_net(seed)
    for intervals in passes(made.net, **made.feeds):
        check(intervals)


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    net, shapes = MODELS[name]()
    for intervals in passes(net, **shapes):
        assert len(intervals) > 3
        check(intervals)
