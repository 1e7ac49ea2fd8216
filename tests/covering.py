"""Covering arrays: few cases of a product of parameters, in which every two values of two parameters still meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any


def meetings(case: Mapping[str, object], strength: int) -> Iterator[tuple[tuple[str, object], ...]]:
    """What meets in a case: its values, so many at a time."""
    yield from combinations(sorted(case.items()), min(strength, len(case)))


def covering(cases: Sequence[Mapping[str, object]], strength: int) -> list[int]:
    """Numbers of the cases to keep: greedily the one in which most meets that has not met so far.

    Of equals it is the one whose values came up least, so that all do about as often, and of those the first.

    Args:
        cases: the value of each parameter by its name; values are compared, so indices serve.
        strength: how many parameters at a time; 1: every value comes up, 2: every pair of values that comes up at all.
    """
    found = [set(meetings(case, strength)) for case in cases]
    missing, kept = set[tuple[tuple[str, object], ...]]().union(*found), list[int]()
    used = Counter[tuple[str, object]]()

    def gain(number: int) -> tuple[int, int]:
        return len(found[number] & missing), -sum(used[one] for one in cases[number].items())

    while missing:
        kept.append(max(range(len(cases)), key=gain))
        missing -= found[kept[-1]]
        used.update(cases[kept[-1]].items())
    return sorted(kept)


def covered(strength: int, *values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The product of some values as far as it takes for so many of them at a time to meet in every way."""
    rows = list(product(*values))
    return [rows[number] for number in _covered_numbers(strength, *map(len, values))]


@cache
def _covered_numbers(strength: int, *counts: int) -> list[int]:
    return covering([{str(i): k for i, k in enumerate(row)} for row in product(*map(range, counts))], strength)
