"""Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw: Parallel random numbers, SC 2011), in NumPy.

Every word depends only on a key and a counter, so random arrays are equal on every device and in every order.
"""

from __future__ import annotations

import numpy as np

from rnnops.types import Array

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF


def philox4x32(counter: Array, key: tuple[int, int]) -> Array:
    """Four random words for each counter.

    Args:
        counter: [4, ...], words below 2**32.
        key: two words.

    Returns: uint32 [4, ...].
    """
    c0, c1, c2, c3 = np.asarray(counter, np.uint64)
    k0, k1 = key
    low, half = np.uint64(WORD), np.uint64(32)
    for _ in range(ROUNDS):
        product0, product1 = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c2 = (product1 >> half) ^ c1 ^ np.uint64(k0), (product0 >> half) ^ c3 ^ np.uint64(k1)
        c1, c3 = product1 & low, product0 & low
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return np.stack([c0, c1, c2, c3]).astype(np.uint32)


def uniform_rows(seed: int, ordinal: int, t: int, rows: int, row_size: int) -> Array:
    """Uniform numbers in [0, 1) for one step: float64 [rows, row_size].

    Element e of row n is word `e % 4` of counter (t, n, e // 4, upper half of the seed), times 2**-32; the key is the
    lower half of the seed and the ordinal of the random op.
    """
    blocks = -(-row_size // 4)
    counter = np.zeros((4, rows, blocks), np.uint64)
    counter[0] = t
    counter[1] = np.arange(rows, dtype=np.uint64)[:, None]
    counter[2] = np.arange(blocks, dtype=np.uint64)
    counter[3] = (seed >> 32) & WORD
    words = philox4x32(counter, (seed & WORD, ordinal & WORD))
    flat = np.moveaxis(words, 0, -1).reshape(rows, 4 * blocks)
    return flat[:, :row_size] * 2.0**-32
