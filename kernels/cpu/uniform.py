"""Uniform random numbers from counters: what `rnnops.philox` gives, in compiled code, one number at a time.

Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC 2011). Numbers depend on the counter alone, so
rows and steps may be computed in any order and by any thread. Words of 32 bits are in 64 bits, as wide as their
products.

`seed`, `ordinal`, `t`, `n` and `element` are integers of any type. Of a seed 64 bits count, so int64 and uint64 of the
same bits give the same numbers; of the others 32. Elements and sizes are 0 or more.
"""

from __future__ import annotations

from typing import Any

from rnnops.kernels.cpu.traced import Symbol, select
from rnnops.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD

MULTIPLIER_0, MULTIPLIER_1 = MULTIPLIERS
KEY_STEP_0, KEY_STEP_1 = KEY_STEPS
STEP = 2.0**-32


def unsigned(x: Any) -> Any:
    """x modulo 2**64, as uint64 where it is a symbol."""
    return x.as_dtype("uint64") if isinstance(x, Symbol) else int(x) & (2**64 - 1)


def _low(x: Any) -> Any:
    return unsigned(x) & unsigned(WORD)


def _high(x: Any) -> Any:
    return unsigned(x) >> unsigned(32)


def _four_words(seed: Any, ordinal: Any, t: Any, n: Any, block: Any) -> Any:
    """The words of elements 4 block to 4 block + 3."""
    c0, c1, c2, c3 = _low(t), _low(n), _low(block), _high(seed)
    k0, k1 = _low(seed), _low(ordinal)
    for _ in range(ROUNDS):
        product0, product1 = c0 * unsigned(MULTIPLIER_0), c2 * unsigned(MULTIPLIER_1)
        c0, c2 = _high(product1) ^ c1 ^ k0, _high(product0) ^ c3 ^ k1
        c1, c3 = _low(product1), _low(product0)
        k0, k1 = _low(k0 + unsigned(KEY_STEP_0)), _low(k1 + unsigned(KEY_STEP_1))
    return c0, c1, c2, c3


def uniform(seed: Any, ordinal: Any, t: Any, n: Any, element: Any) -> Any:
    """Element `element` of row n in step t for the random op `ordinal`: float64 in [0, 1)."""
    c0, c1, c2, c3 = _four_words(seed, ordinal, t, n, element >> 2)
    is_odd = (element & 1) != 0
    word = select((element & 2) != 0, select(is_odd, c3, c2), select(is_odd, c1, c0))
    return word * STEP
