"""Functions of words: compiled, they compute what they do in plain Python; what has no meaning is named."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from rnnops.kernels.cpu.native import compiled, engine_of
from rnnops.kernels.cpu.words import Address, AddressOf, Text, copied, loaded, room, stored, zeroed

NUMBERS = [-7, -1, 0, 1, 2, 5, 64, 1000]
LIMIT = 5


def native(function: Callable[..., Any], operands: int, result: Any = ctypes.c_int64) -> Callable[..., Any]:
    """A function of words, compiled."""
    text = Text()
    text.export(f"test_words_{function.__name__}", function)
    engine = engine_of(compiled(str(text)))
    made: Any = ctypes.CFUNCTYPE(result, *[ctypes.c_int64] * operands)(
        engine.get_function_address(f"test_words_{function.__name__}")
    )
    made.engine = engine
    return made  # type: ignore[no-any-return]


def arithmetic(a: int, b: int) -> int:
    c, d = a + b * 3 - 2, -a
    c += d
    return (c & 255) * (a - b)


def division(a: int, b: int) -> int:
    return a // max(1, b) * 7 + a % max(1, b)


def choices(a: int, b: int) -> int:
    result = 0
    if a < b:
        result += 1
    if a <= b and not a >= LIMIT:
        result += 2
    elif a > b or b >= LIMIT:
        result += 4
    else:
        result += 8
    return result + (16 if a != b else 32) + min(a, b)


def loops(a: int, b: int) -> int:
    total = 0
    for i in range(a):
        for k in range(i, b, 3):
            if k == LIMIT:
                return total
            total += i * k
    while total > 100:
        total = total - 100
    return total


def helper(x: int) -> int:
    return x * x + LIMIT


def calls(a: int, b: int) -> int:
    return helper(a) - helper(helper(b))


@pytest.mark.parametrize("function", [arithmetic, choices, loops, calls])
def test_compiled_and_plain_are_the_same(function: Callable[[int, int], int]) -> None:
    made = native(function, 2)
    for a, b in product(NUMBERS, NUMBERS):
        assert made(a, b) == function(a, b), (a, b)


def test_division_of_numbers_of_0_or_more() -> None:
    made = native(division, 2)
    for a, b in product(NUMBERS, NUMBERS):
        if a >= 0:
            assert made(a, b) == division(a, b)


def moving(size: int) -> Callable[..., None]:
    copy, clear = copied(size), zeroed(size)

    def move(target: Address, source: Address, count: int) -> None:
        for i in range(count):
            copy(target + i * size, source + i * size)
        clear(target)

    return move


@pytest.mark.parametrize("size", [4, 8])
def test_numbers_that_a_function_closes_over_are_constants(size: int) -> None:
    for made in (native(moving(size), 3, None), moving(size)):
        source, target = np.arange(1.0, 8.0, dtype=f"f{size}"), np.full(9, -1, f"f{size}")
        made(target.ctypes.data, source.ctypes.data, 7)
        assert target.tolist() == [0, 2, 3, 4, 5, 6, 7, -1, -1]


new_words = room(64)


def squares(count: int) -> int:
    words, total = new_words(), 0
    for i in range(8):
        stored(words + 8 * i, i * i)
    for i in range(count):
        total += loaded(words + 8 * i)
    return total


def test_room_on_the_stack() -> None:
    assert native(squares, 1)(8) == sum(i * i for i in range(8))


address_of_helper = AddressOf(helper)


def where() -> int:
    return address_of_helper()


def test_addresses_of_functions() -> None:
    made = native(where, 0)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(made())(6) == 41
    with pytest.raises(TypeError):
        where()


def floats(a: int) -> int:
    return int(a / 2)


def strings(a: int) -> int:
    name = "word"
    return len(name) + a


def keywords(a: int) -> int:
    return helper(x=a)


def unknown(a: int) -> int:
    return a + nowhere  # type: ignore[name-defined]  # noqa: F821


def chained(a: int) -> int:
    return 1 if 0 < a < 3 else 2


def listed(a: int) -> int:
    for i in [1, 2]:
        a += i
    return a


@pytest.mark.parametrize("function", [floats, strings, keywords, unknown, chained, listed])
def test_what_has_no_meaning_is_named(function: Callable[[int], int]) -> None:
    with pytest.raises(SyntaxError, match=f"{function.__name__}, line [0-9]+: a function of words may not have"):
        native(function, 1)
