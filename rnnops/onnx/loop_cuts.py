"""What a Slice in a Loop's body takes along each axis, and which of its axes moves on from trip to trip."""

from __future__ import annotations

from dataclasses import dataclass

from rnnops.onnx.loop_elements import FAR, Elements, is_far
from rnnops.onnx.loop_numbers import TRIP, Sum
from rnnops.onnx.package import NodeProto
from rnnops.types import Array


@dataclass(frozen=True)
class Cut:
    """What a Slice takes along one axis."""

    axis: int
    start: Sum
    end: Sum
    step: Sum

    @property
    def moves(self) -> bool:
        """Whether it is another part at each trip."""
        return TRIP in self.start.factors

    @property
    def is_one(self) -> bool:
        """Whether it is one element: up to the next place, or in steps beyond the end."""
        ends_after = self.end.equals(self.start.plus(Sum(1)))
        return ends_after if self.step == Sum(1) else is_far(self.step) and (ends_after or is_far(self.end))

    def ends_before_it_begins(self, trips: Sum | None) -> bool:
        """Whether it may be from -1 to 0 at a trip, which is nothing: ends from 0 on count from the front.

        Args:
            trips: a number that the number of trips is never above, None where none is known.
        """
        first, slope = self.start.number, self.start.factors.get(TRIP, 0)
        if self.step != Sum(1) or first >= 0 or len(self.start.factors) != 1 or (slope < 0 and first < -1):
            return False
        return trips is None or bool(trips.factors) or trips.number > -1 - first

    @property
    def is_fixed(self) -> bool:
        return not (self.start.factors or self.end.factors or self.step.factors)

    def is_whole(self, size: int | str | None) -> bool:
        """Whether it is all of an axis of this size, None where that is open."""
        last = size if isinstance(size, int) else FAR
        return self.start == Sum() and self.step == Sum(1) and not self.end.factors and self.end.number >= last


def cuts_of(elements: Elements, node: NodeProto) -> list[Cut]:
    """What a Slice takes along each of its axes; nothing where that is not known."""
    starts, ends = (listed(elements, name) for name in node.input[1:3])
    if starts is None or ends is None:
        return []
    given = [elements.numbers(name) if name else None for name in node.input[3:5]]
    if any(name and numbers is None for name, numbers in zip(node.input[3:5], given, strict=True)):
        return []
    axes, steps = (*given, None, None)[:2]
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(axes) == len(starts) == len(ends) == len(steps):
        return []
    places = zip(axes, starts, ends, steps, strict=True)
    return [Cut(axis, start, end, Sum(step)) for axis, start, end, step in places]


def listed(elements: Elements, name: str) -> list[Sum] | None:
    """The sums in a list, None where it has anything else."""
    found: Array | None = elements.of(name)
    if found is None or found.ndim != 1 or not all(isinstance(element, Sum) for element in found):
        return None
    return list(found)
