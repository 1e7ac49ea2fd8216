"""Charts: a frame with scales, lines of a grid with what they stand for, stairs and areas between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from rnnops.pictures.svg import SMALL, line, path, text

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
Tick = tuple[float, str]  # where, and what is said there


@dataclass(frozen=True)
class Frame:
    """A rectangle in which numbers have places.

    Args:
        left, top, width, height: where it lies.
        x_range, y_range: the numbers at its sides; large `y` lie high.
    """

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        """The place of a number from left to right."""
        low, high = self.x_range
        return self.left + self.width * (value - low) / ((high - low) or 1)

    def y(self, value: float) -> float:
        """The place of a number from the bottom up."""
        low, high = self.y_range
        return self.top + self.height * (1 - (value - low) / ((high - low) or 1))

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, ticks: Sequence[Tick]) -> list[str]:
        """Lines from side to side, each with its text left of the frame."""
        ends = self.left, self.left + self.width
        lines = [line(ends[0], self.y(at), ends[1], self.y(at), "grid") for at, _ in ticks]
        texts = [text(self.left - 6, self.y(at) + 3, said, "small soft", "end", SMALL) for at, said in ticks]
        return lines + texts

    def below(self, ticks: Sequence[Tick]) -> list[str]:
        """Short lines under the frame with texts below them."""
        places = [(self.x(at), said) for at, said in ticks]
        lines = [line(x, self.bottom, x, self.bottom + 4, "way") for x, _ in places]
        return lines + [text(x, self.bottom + 15, said, "small soft", "middle", SMALL) for x, said in places]

    def area(self, low: Sequence[float], high: Sequence[float], kind: str) -> str:
        """What lies between two stairs, whose steps are one wide and begin at 0."""
        up = self._stairs(high)
        down = self._stairs(low)[::-1]
        return path("M " + " L ".join(f"{x:.1f} {y:.1f}" for x, y in [*up, *down]) + " Z", kind)

    def outline(self, heights: Sequence[float], kind: str) -> str:
        """Stairs as a line."""
        return path("M " + " L ".join(f"{x:.1f} {y:.1f}" for x, y in self._stairs(heights)), kind)

    def _stairs(self, heights: Sequence[float]) -> list[tuple[float, float]]:
        """Corners of stairs, none between steps that are equally high."""
        corners: list[tuple[float, float]] = []
        for i, height in enumerate(heights):
            if corners and heights[i - 1] == height:
                corners.pop()
            else:
                corners.append((self.x(i), self.y(height)))
            corners.append((self.x(i + 1), self.y(height)))
        return corners


def ticks_up_to(most: float, count: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of 10) from 0 to the first that is no less than the most."""
    if most <= 0:
        return [0.0]
    size = 10.0 ** floor(log10(most / count))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size * count >= most)
    return [step * i for i in range(ceil(most / step - 1e-9) + 1)]


def byte_ticks(most: int) -> list[Tick]:
    """Round numbers of bytes, in the unit that the most is told in."""
    power = 0
    while most >= 1024 ** (power + 1) and power + 1 < len(UNITS):
        power += 1
    return [(at * 1024**power, f"{at:g} {UNITS[power]}") for at in ticks_up_to(most / 1024**power)]
