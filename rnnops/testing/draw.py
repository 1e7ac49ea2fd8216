"""Random choices that are the same on every platform and NumPy version: raw words of PCG64, and no more than that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from rnnops.types import Array, Shape

Choice = TypeVar("Choice")


class Draw:
    """A source of choices, from a seed."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return (int(self._bits.random_raw()) >> 11) * 2.0**-53

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def pick(self, items: Sequence[Choice]) -> Choice:
        return items[self.integer(0, len(items) - 1)]

    def late(self, items: Sequence[Choice]) -> Choice:
        """One of the items, the later ones more often."""
        last = len(items) - 1
        return items[max(self.integer(0, last), self.integer(0, last))]

    def subset(self, items: Sequence[Choice], probability: float) -> list[Choice]:
        return [item for item in items if self.chance(probability)]

    def number(self, low: float = -1.0, high: float = 1.0) -> float:
        """A number of two decimals, so that nets are easy to read."""
        return round(low + (high - low) * self.uniform(), 2)

    def array(self, shape: Shape, low: float = -1.0, high: float = 1.0) -> Array:
        """Numbers in [low, high)."""
        words = self._bits.random_raw(int(np.prod(shape, dtype=np.int64))) >> np.uint64(11)
        return np.asarray(low + (high - low) * (words * 2.0**-53)).reshape(shape)

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        """Integers from `low` to `high`, both included."""
        return np.floor(self.array(shape, low, high + 1)).astype(np.int32)
