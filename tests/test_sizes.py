"""Sizes as symbols: what is computed and decided with them is what plain numbers give, for all sizes that fit."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from rnnops.sizes import Size, Symbols, guarded, is_symbolic, lazy_text, whole

ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    max,
    min,
    lambda a, b: -(-a // b),
    lambda a, b: a if a == b else b,
    lambda a, b: abs(a - b),
    lambda a, b: a + 2 if a >= 3 * b else a,
    lambda a, b: divmod(a, b)[0],
    lambda a, b: int(a / b * 100) if a < 2 * b else a + 1,
    lambda a, b: math.prod((a, 2, b)) if a != 1 else b,
]


def computed(seed: int, T: Any, N: Any) -> list[Any]:
    """What a random program makes of two numbers."""
    draw, numbers = Random(seed), [T, N, 1, 2, 7, 64]
    for _ in range(12):
        function, a, b = draw.choice(ARITHMETIC), draw.choice(numbers), draw.choice(numbers)
        try:
            numbers.append(function(a, b))
        except ZeroDivisionError:
            numbers.append(a)
    return numbers


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    symbols = Symbols([12, 5])
    found = computed(seed, symbols.symbol(0), symbols.symbol(1))
    assert [one.value if type(one) is Size else one for one in found] == computed(seed, 12, 5)
    assert symbols.at([12, 5]) is not None
    for T in range(2, 40, 2):
        for N in range(2, 20):
            values = symbols.at([T, N])
            if values is not None:
                assert [values.number(one) for one in found] == computed(seed, T, N), (T, N)


def test_what_holds_for_all_sizes_is_no_condition() -> None:
    symbols = Symbols([12, 5])
    T, N = symbols.symbol(0), symbols.symbol(1)
    assert T > 1
    assert T != 0
    assert T * N > N
    assert 3 * T * N // N == 3 * T
    assert (T * N * 4) % 4 == 0
    assert N % (T * N) == N
    assert not symbols.conditions
    assert T > N
    assert len(symbols.conditions) == 1
    assert symbols.at([5, 12]) is None


@pytest.mark.parametrize(
    "use",
    [int, hash, str, list[int](range(3)).__getitem__, lambda size: np.zeros(size), lambda size: np.array([size, 1])],
)
def test_what_wants_a_plain_number_pins_the_size(use: Callable[[Any], Any]) -> None:
    symbols = Symbols([2, 5])
    use(symbols.symbol(0))
    assert symbols.at([2, 9]) is not None
    assert symbols.at([3, 5]) is None


@pytest.mark.parametrize("use", [operator.add, operator.mul, operator.floordiv, operator.eq, operator.lt, operator.pow])
def test_sizes_of_two_plans_do_not_meet(use: Callable[[Any, Any], Any]) -> None:
    one, other = Symbols([12, 5]), Symbols([12, 5])
    with pytest.raises(TypeError, match="different plans"):
        use(one.symbol(0), other.symbol(0))


def test_arrays_and_numbers_of_numpy() -> None:
    symbols = Symbols([12, 5])
    T = symbols.symbol(0)
    assert type(np.int64(3) * T) is Size
    assert type(T + np.int32(1)) is Size
    assert symbols.at([13, 5]) is not None
    assert (np.arange(3) * T).tolist() == [0, 12, 24]
    assert (np.arange(3) < T).all()
    assert symbols.at([13, 5]) is None


def test_sizes_look_like_whole_numbers() -> None:
    T = Symbols([12]).symbol(0)
    assert isinstance(T, int)
    assert isinstance(T / 5, float)
    assert not isinstance(T, float | bool)
    assert whole(T) is T
    assert is_symbolic((3, T))
    assert not is_symbolic((3, 12))
    assert lazy_text("{} steps", 3) == "3 steps"
    assert lazy_text("{} steps", T).text([7]) == "7 steps"


def test_linear_choices_hold_between_the_sizes_that_were_tried() -> None:
    def smaller(numbers: Any) -> tuple[int, bool]:
        return int(np.argmin(numbers)), True

    symbols = Symbols([100])
    T = symbols.symbol(0)
    assert guarded(smaller, [3 * T, 2 * T + 1, 1000 * T]) == 1
    assert not symbols.choices
    assert symbols.at([700]) is not None
    assert symbols.at([100_000]) is None
    assert guarded(smaller, [T, 110]) == 0  # it is not the same for all around: looked at each time
    assert len(symbols.choices) == 1
    assert symbols.at([109]) is not None
    assert symbols.at([111]) is None
