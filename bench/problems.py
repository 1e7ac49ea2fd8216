"""Problems: a cell at a size, with the arrays that every contender is fed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]
Shape = tuple[int, ...]

ENCODER_STEPS = 32
NEAR_ONE = ("alpha", "beta1", "beta2", "scale")  # parameters that multiply what passes through them
SEQUENCES = ("xs", "zs", "encoder")
STATES = ("h0", "c0", "context0", "top0")
POSITIVE = ("norm0",)  # a state that is divided by


@dataclass(frozen=True)
class Size:
    """T steps of N rows; H features in, H in every state."""

    T: int
    N: int
    H: int

    def __str__(self) -> str:
        return f"{self.T},{self.N},{self.H}"

    @classmethod
    def parse(cls, text: str) -> Size:
        return cls(*(int(part) for part in text.split(",")))

    @property
    def unit(self) -> int:
        """U: numbers in one sequence of one state."""
        return self.T * self.N * self.H

    def tiny(self) -> Size:
        """The same proportions in a size that an interpreter runs in milliseconds."""
        return Size(max(1, self.T // 20), max(1, self.N // 8), max(4, self.H // 32))


@dataclass(frozen=True)
class Problem:
    """What is computed: a net of `nets.py` at a size.

    Args:
        recompute: blobs of the cell that backward computes again; changes no result.
    """

    net: str
    size: Size
    recompute: tuple[str, ...] = ()

    @property
    def data(self) -> tuple[str, Size]:
        """Equal where results are."""
        return self.net, self.size

    def at(self, size: Size) -> Problem:
        return replace(self, size=size)


def draw_feed(name: str, shape: Shape, size: Size) -> Array:
    """An array from its name alone, the same in every process.

    Sequences and states normal, weights small enough for a stable recurrence, lengths uniform in [T/10, T].
    """
    rng = np.random.default_rng(crc32(name.encode()))
    if name == "seq_lengths":
        return rng.integers(max(1, size.T // 10), size.T, shape, endpoint=True).astype(np.int32)
    if name in POSITIVE:
        return 1.0 + np.abs(rng.standard_normal(shape, dtype=np.float32))
    if name in (*SEQUENCES, *STATES):
        return rng.standard_normal(shape, dtype=np.float32)
    weights = rng.uniform(-1.0, 1.0, shape) / np.sqrt(size.H)
    return np.asarray(weights + (name in NEAR_ONE), np.float32)


def rows_inside(feeds: Arrays, size: Size) -> Array:
    """[T, N, 1]: 1 where a row has not ended yet."""
    lengths = feeds.get("seq_lengths", np.full(size.N, size.T, np.int32))
    inside: Array = np.arange(size.T)[:, None, None] < lengths[None, :, None]
    return inside.astype(np.float32)


def share_inside(size: Size) -> float:
    """(sum of lengths) / (T N) of the lengths that are drawn for a size."""
    lengths = draw_feed("seq_lengths", (size.N,), size)
    return float(lengths.astype(np.float64).sum()) / (size.T * size.N)
