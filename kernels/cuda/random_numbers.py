"""Uniform random numbers from counters on a CUDA device: the bits of `rnnops.kernels.philox`, one number at a time.

Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC 2011). Words of 32 bits are kept in uint64: numba
knows no wider product than its operands, and the device's compiler sees the upper zeros.

Operands are integers of any type, as for processors: of a seed 64 bits count, so int64 and uint64 of the same bits give
the same numbers; of the others 32. Elements are 0 or more. Limit: each call computes four words and takes one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.kernels.cuda.overloads import of_integers
from rnnops.kernels.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD

MULTIPLIER_0, MULTIPLIER_1 = map(np.uint64, MULTIPLIERS)
KEY_STEP_0, KEY_STEP_1 = map(np.uint64, KEY_STEPS)
LOW, HALF = np.uint64(WORD), np.uint64(32)
NO_BITS, ONE, TWO = np.uint64(0), np.uint64(1), np.uint64(2)
STEP = 2.0**-32


@of_integers
def uniform(seed: Any, ordinal: Any, t: Any, n: Any, element: Any) -> Any:
    """Element `element` of row n in step t for the random op `ordinal`: float64 in [0, 1)."""
    place, key = np.uint64(element), np.uint64(seed)
    c0, c1, c2, c3 = np.uint64(t) & LOW, np.uint64(n) & LOW, (place >> TWO) & LOW, key >> HALF
    k0, k1 = key & LOW, np.uint64(ordinal) & LOW
    for _ in range(ROUNDS):
        product0, product1 = c0 * MULTIPLIER_0, c2 * MULTIPLIER_1
        c0, c2 = (product1 >> HALF) ^ c1 ^ k0, (product0 >> HALF) ^ c3 ^ k1
        c1, c3 = product1 & LOW, product0 & LOW
        k0, k1 = (k0 + KEY_STEP_0) & LOW, (k1 + KEY_STEP_1) & LOW
    is_odd = place & ONE != NO_BITS
    upper, lower = c3 if is_odd else c2, c1 if is_odd else c0
    return np.float64(upper if place & TWO != NO_BITS else lower) * STEP
