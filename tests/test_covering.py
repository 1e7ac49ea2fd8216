"""Fewer cases that still cover, and many cases in one test: neither may lose a failure."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from covering import covered, covering
from each import check_each

CASES = [dict(zip("abc", values, strict=True)) for values in product(range(4), range(3), range(2))]


@pytest.mark.parametrize(("strength", "count"), [(1, 4), (2, 12), (3, 24), (4, 24)])
def test_all_that_meets_still_does(strength: int, count: int) -> None:
    kept = covering(CASES, strength)
    assert len(kept) == count
    for names in combinations("abc", min(strength, 3)):
        values = [
            {tuple(case[name] for name in names) for case in cases} for cases in (CASES, [CASES[k] for k in kept])
        ]
        assert values[0] == values[1]


def test_values_come_up_about_as_often() -> None:
    cases = [{"device": k, "cell": i} for k, i in product(range(2), range(12))]
    kept = covering(cases, 1)
    assert len(kept) == 12
    assert sum(cases[number]["device"] for number in kept) == 6


def test_values_of_a_product_are_covered() -> None:
    values = ("abcd", range(3), (None, True))
    assert covered(3, *values) == list(product(*values))
    kept = covered(2, *values)
    assert len(kept) == 12
    for i, j in combinations(range(3), 2):
        assert {(row[i], row[j]) for row in kept} == {*product(values[i], values[j])}


def test_only_what_comes_up_is_covered() -> None:
    assert covering([{"a": 0, "b": 1}, {"a": 1, "b": 0}, {"a": 0, "b": 1}], 2) == [0, 1]
    assert covering([{}], 2) == [0]
    assert covering([], 2) == []


def test_a_failure_among_many_cases_is_named() -> None:
    def small(number: int) -> None:
        assert number < 7

    check_each(range(7), small)
    with pytest.raises(AssertionError, match=r"2 of 9 cases failed:\n7: AssertionError.*\n8: AssertionError") as failed:
        check_each([7, *range(7), 8], small)
    assert isinstance(failed.value.__cause__, AssertionError)
    with pytest.raises(AssertionError, match="nothing to check"):
        check_each([], small)
