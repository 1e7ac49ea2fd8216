"""Arrays that a Loop reads step by step, as sequences of a recurrence: time first, as many steps as trips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rnnops.onnx.loop_body import Read
from rnnops.onnx.loop_numbers import TRIP, Around, Sum
from rnnops.onnx.loop_trips import without_trip

if TYPE_CHECKING:
    from rnnops.onnx.read_graph import GraphReader

FAR = 2**62  # beyond any end


class LoopSteps:
    """Appends nodes that make such sequences to the graph around a Loop."""

    def __init__(self, reader: GraphReader, around: Around) -> None:
        self.reader, self.around = reader, around

    def size(self, name: str, axis: int) -> str:
        """One size of an array, as a list of it."""
        shape = self.around.append("Shape", [name])
        return self.around.append("Slice", [shape, self.around.sizes([axis]), self.around.sizes([axis + 1])])

    def sequence(self, read: Read, trips: int | str) -> str:
        """The steps that a Loop reads, time first, in the order of the array; a run refuses another number."""
        around, data = self.around, read.data
        place = without_trip(read.place)
        if read.axis:
            rank = around.rank(data) or 0
            data = around.append("Transpose", [data], perm=[read.axis, *(k for k in range(rank) if k != read.axis)])
        first = self._first_place(data, place, read.place.factors[TRIP], trips)
        if self._is_whole(data, first, trips):
            return data if self._is_certain(data, trips) else self._guarded(data, trips)
        end = around.node("Add", first, trips)
        cut = around.append("Slice", [data, self._listed(first), self._listed(end), around.sizes([0])])
        return self._guarded(cut, trips)

    def _first_place(self, data: str, place: Sum, slope: int, trips: int | str) -> int | str:
        """The first of the places that are read, in the order of the array."""
        around = self.around
        first = around.computed(place, "first")
        if not place.factors and place.number < 0:
            first = around.node("Add", around.append("Reshape", [self.size(data, 0), around.sizes([])]), place.number)
        if slope > 0:
            return first
        last = around.node("Add", first, 1)
        return around.node("Sub", last, trips)

    def _is_whole(self, data: str, first: int | str, trips: int | str) -> bool:
        """Whether all steps of an array are read, as far as made-up sizes show."""
        known = self.reader.known(self.reader.blob(data).name)
        return (
            known is not None and self._both(first) == (0, 0) and self._both(trips) == tuple(k.shape[0] for k in known)
        )

    def _both(self, number: int | str) -> tuple[int, int] | None:
        """A number for both choices of made-up sizes."""
        if isinstance(number, int):
            return number, number
        return self.reader.likely_numbers(number)

    def _is_certain(self, data: str, trips: int | str) -> bool:
        """Whether an array has as many steps as there are trips whatever the open sizes are."""
        return isinstance(trips, int) and self.reader.is_certain(data)

    def _guarded(self, data: str, trips: int | str) -> str:
        """An array of so many steps; a run at which it has others is refused."""
        around = self.around
        shape = around.append("Shape", [data])
        rest = around.append("Slice", [shape, around.sizes([1]), around.sizes([FAR])])
        sizes = around.append("Concat", [self._listed(trips), rest], axis=0)
        return around.append("Reshape", [data, sizes], allowzero=1)

    def _listed(self, number: int | str) -> str:
        """A number as a list of it."""
        if isinstance(number, int):
            return self.around.sizes([number])
        return self.around.append("Reshape", [number, self.around.sizes([1])])
