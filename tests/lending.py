"""A lender of memory for the device that writes down what it lends: memory of the host, full of bytes that make NaN."""

from __future__ import annotations

from typing import Any

import numpy as np


class Purse:
    """Lends memory of NumPy's.

    Args:
        captures: whether it says that a graph is captured.
    """

    def __init__(self, captures: bool = False) -> None:
        self.captures = captures
        self.lent: list[Any] = []

    def take(self, nbytes: int) -> tuple[Any, int]:
        owner = np.full(max(nbytes, 1), 0xFF, np.uint8)
        self.lent.append(owner)
        return owner, owner.ctypes.data

    def owns(self, array: Any) -> bool:
        return any(array.memory.owner is owner for owner in self.lent)
