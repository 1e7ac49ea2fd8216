"""Trips of a Loop: how many there are, and arrays that it reads one by one.

**How many trips a Loop makes**: from its trip count, and from comparisons of counters with numbers that stay. A
condition that a trip computes decides whether there is another one. So a Loop that begins makes one trip at least, and
where `D = base - slope * trip > 0` is the condition, `1 + ceil(base / slope)` in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NoReturn

from rnnops.onnx.loop_body import LoopBody, Read
from rnnops.onnx.loop_elements import TRIP, Around, LinearSum
from rnnops.onnx.package import NodeProto, OnnxError

if TYPE_CHECKING:
    from rnnops.onnx.read_graph import GraphReader

ENDLESS = 2**31  # trip counts from here on say that a condition ends the Loop
ORDER = {"Less": (1, 0, 0), "Greater": (0, 1, 0), "LessOrEqual": (1, 0, 1), "GreaterOrEqual": (0, 1, 1)}
OPPOSITE = {"Less": "GreaterOrEqual", "Greater": "LessOrEqual", "LessOrEqual": "Greater", "GreaterOrEqual": "Less"}
HINT = "If it is the same in all runs, give the input that it follows from: load(path, constants={...})."


@dataclass
class Trips:
    """Finds the number of trips.

    Args:
        count, condition: the Loop's first two inputs, empty where left out.
        most: what the number of trips is never above; `number` finds it.
    """

    body: LoopBody
    around: Around
    count: str
    condition: str
    most: LinearSum | None = None

    def number(self) -> int | str:
        """The number, or the name of an int64 of the graph around. Raises OnnxError where data decide it."""
        count = self._count()
        limits = self._limits(self.body.graph.output[0].name, True)
        first = self._first_condition()
        if first is False:
            return 0
        if count is None and not limits:
            self._fail_endless()
        begins = first is True or self._is_first_of(limits)
        numbers = [self._trips(limit, begins and first is not True) for limit in limits]
        self.most = self._most(count, limits if begins and first is not True else [])
        if count is not None:
            numbers.append(self.around.node("Max", self._computed(count), 0))
        number = reduce(lambda one, other: self.around.node("Min", one, other), numbers)
        return number if begins else self._if_begun(number)

    def _most(self, count: LinearSum | None, limits: list[LinearSum]) -> LinearSum | None:
        """A number that the number of trips is never above, where one is written: the trip count, or of a condition."""
        found = [before_first(limit) for limit in limits if limit.factors[TRIP] == -1]
        return next((total for total in (count, *found) if total is not None), None)

    def _count(self) -> LinearSum | None:
        """The trip count, None where there is none, or one from `ENDLESS` on."""
        if not self.count:
            return None
        value = self.body.reader.known_value(self.count)
        if value is not None and value.size == 1:
            return None if value.item() >= ENDLESS else LinearSum(max(int(value.item()), 0))
        found = self.around.sum_of(self.count)
        if found is None:
            raise OnnxError("the trip count of a Loop is not one known integer", blob=self.count)
        return found

    def _fail_endless(self) -> NoReturn:
        if self.count:
            came = self.body.reader.known_value(self.count)
            problem = "a Loop, whose condition is true always, makes too many trips"
            raise OnnxError(problem, blob=self.count, wanted=f"a trip count below {ENDLESS}", came=came)
        raise OnnxError("a Loop without a trip count, whose condition is true always, never ends")

    def _first_condition(self) -> bool | None:
        """The condition before the first trip, None where it is not known."""
        value = self.body.reader.known_value(self.condition) if self.condition else None
        return True if not self.condition else None if value is None or value.size != 1 else bool(value.item())

    def _limits(self, name: str, wanted: bool, depth: int = 0) -> list[LinearSum]:
        """Sums that are all above 0 exactly where a condition is as wanted after a trip."""
        name = self.body.handed_on(name)
        value, node = self.body.constant(name), self.body.makers.get(name)
        if (name == self.body.condition and wanted) or (
            value is not None and value.size == 1 and value.all() == wanted
        ):
            return []
        if node is None or depth > 50:
            self._fail(name)
        if node.op_type == "And" and wanted:
            return [limit for part in node.input for limit in self._limits(part, True, depth + 1)]
        if node.op_type == "Not":
            return self._limits(node.input[0], not wanted, depth + 1)
        if node.op_type == "Cast" and self._is_bool(node):
            return self._limits(node.input[0], wanted, depth + 1)
        limit = compared(
            node.op_type if wanted else OPPOSITE.get(node.op_type, ""), list(map(self.body.sum_of, node.input))
        )
        if limit is None or limit.factors.get(TRIP, 0) >= 0:
            self._fail(name)
        return [limit]

    def _is_bool(self, node: NodeProto) -> bool:
        """True if a Cast is one of a value that is a bool before."""
        name = self.body.handed_on(node.input[0])
        made = self.body.makers.get(name)
        return name == self.body.condition or (made is not None and made.op_type in (*ORDER, "And", "Not"))

    def _fail(self, name: str) -> NoReturn:
        node = self.body.makers.get(name)
        raise OnnxError(
            "a Loop may end before its last trip",
            blob=name,
            wanted="a condition that is true always, or compares a counter with a number that stays as it is",
            came=f"the result of {node.op_type}" if node is not None else "a value that is not known",
        )

    def _is_first_of(self, limits: list[LinearSum]) -> bool:
        """True if the condition before the first trip is the one after each trip, of the first numbers."""
        op = self.around.maker(self.body.reader.blob(self.condition).name) if self.condition else None
        if op is None or len(limits) != 1:
            return False
        first = compared(op.type, [self.around.sum_of(name) for name in op.inputs])
        return first is not None and first.equals(before_first(limits[0]))

    def _trips(self, limit: LinearSum, may_be_none: bool) -> int | str:
        """The number of trips until a sum is 0 or less."""
        slope = -limit.factors[TRIP]
        base = before_first(limit) if may_be_none else without_trip(limit)
        number = self.around.node("Max", self._computed(base), 0)
        if slope > 1:
            number = self.around.node("Div", self.around.node("Add", number, slope - 1), slope)
        return number if may_be_none else self.around.node("Add", number, 1)

    def _computed(self, total: LinearSum) -> int | str:
        """A sum as nodes. Raises OnnxError where it depends on data."""
        for name in total.factors:
            source = self.around.reader.unknown_source(name)
            if source is not None:
                raise OnnxError(
                    "data decide how many trips a Loop makes",
                    blob=name,
                    wanted="a number that follows from constants and sizes of arrays",
                    came=f"what follows from '{source}'",
                    hint=HINT,
                )
        return self.around.computed(total, "trips")

    def _if_begun(self, number: int | str) -> str:
        """The number, 0 where the condition before the first trip does not hold."""
        source = self.around.reader.unknown_source(self.condition)
        if source is not None:
            came = f"what follows from '{source}'"
            raise OnnxError("data decide whether a Loop begins", blob=self.condition, came=came, hint=HINT)
        condition = self.around.append("Reshape", [self.condition, self.around.sizes([])])
        return self.around.append("Where", [condition, self.around.named(number), self.around.named(0)])


def compared(op: str, sides: list[LinearSum | None]) -> LinearSum | None:
    """A sum that is above 0 exactly where a comparison of whole numbers holds."""
    if op not in ORDER or len(sides) != 2 or sides[0] is None or sides[1] is None:
        return None
    small, large, equal = ORDER[op]
    one, other = (sides[0], sides[1]) if small > large else (sides[1], sides[0])
    return other.plus(one, -1).plus(LinearSum(equal))


def without_trip(limit: LinearSum) -> LinearSum:
    """A sum at the first trip."""
    return limit.plus(LinearSum(0, {TRIP: limit.factors[TRIP]}), -1)


def before_first(limit: LinearSum) -> LinearSum:
    """A sum as it would be one trip before the first."""
    return without_trip(limit).plus(LinearSum(-limit.factors[TRIP]))


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

    def _first_place(self, data: str, place: LinearSum, slope: int, trips: int | str) -> int | str:
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
        """True if all steps of an array are read, as far as made-up sizes show."""
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
        """True if an array has as many steps as there are trips whatever the open sizes are."""
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
