"""The scalar functions that texts of loop forms name, steps of reductions, and uniform random numbers.

**Steps of reductions in plain Python**: sums in any order, multiply-adds, extrema that keep NaN. Compiled code has its
own for them. A sum written as a loop is a chain of additions; `add_any_order` marks one addition, that to the
accumulator, as free to be done in another order, which each target chooses, while the arithmetic of the summands keeps
its own. On processors it is one fixed grouping (`rnnops/compiler/targets/cpu/row_sums.py`): the bits of a sum follow
only from its summands, whatever else a loop does and however wide vectors are. Extrema are one instruction each, known
for what they are, and exact in any order.

Limits: accumulator and operand are of one dtype. Which NaN an extremum gives, and the sign of a zero, are left open.

**Uniform random numbers from counters**: what `rnnops.kernels.philox` gives, in compiled code, one number at a time.
Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC 2011). Numbers depend only on the counter, so
rows and steps may be computed in any order and by any thread. Words of 32 bits are in 64 bits, as wide as their
products.

`seed`, `ordinal`, `t`, `n` and `element` are integers of any type. Of a seed 64 bits count, so int64 and uint64 of the
same bits give the same numbers; of the others 32. Elements and sizes are 0 or more.

**The scalar functions that texts of loop forms name, for processors**: those of the table, collected. Each is a plain
Python function over NumPy scalars and arrays, float32 and float64 alike; symbols make it straight arithmetic without a
branch, a call or (float64 sin and cos apart) a table, which LLVM turns into vector instructions when a loop runs over
it (`traced.py`). Operands of one call are of one dtype.

Errors are within `ERROR_BOUNDS` for every finite operand whose result is a normal number. Infinities, NaN, zeros and
numbers below the smallest normal one are right; results below the smallest normal number are too, or are 0. The signs
of zeros are kept by odd functions. The bounds hold with and without fused multiply-adds, compiled or not; run in plain
Python, functions may warn of overflow and invalid values (`np.errstate`).
"""

from __future__ import annotations

from typing import Any

from rnnops.kernels.cpu.bits import maximum, minimum
from rnnops.kernels.cpu.traced import Symbol, select
from rnnops.kernels.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD
from rnnops.kernels.scalar_functions import TABLE, implementations


def add_any_order(accumulator: Any, x: Any) -> Any:
    """`accumulator + x`; a loop of such steps may add in any order."""
    return accumulator + x


def add_product_any_order(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add; a loop of such steps may add in any order."""
    return accumulator + x * y


def add_product(accumulator: Any, x: Any, y: Any) -> Any:
    """`accumulator + x * y`, one multiply-add; a loop of such steps adds in its order."""
    return accumulator + x * y


def larger(accumulator: Any, x: Any) -> Any:
    """The larger of the two, NaN if one is; loops of such steps become vector loops."""
    return maximum(accumulator, x)


def smaller(accumulator: Any, x: Any) -> Any:
    """The smaller of the two, NaN if one is."""
    return minimum(accumulator, x)


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


FUNCTIONS = implementations("cpu")
# In units in the last place of the exact result, float32 and float64.
ERROR_BOUNDS = {function.name: function.ulps for function in TABLE if function.ulps is not None}
