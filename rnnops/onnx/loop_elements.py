"""Follows integers and small arrays of a Loop's body, element by element.

**Integers of a graph as sums**: an example is `2 * i + T - 1`, where `i` counts a Loop's trips and `T` is an outer
value. Sums are followed through the ops that exporters write between a size and its use: Cast, Squeeze, Reshape, Add,
Sub. Equal sums are equal numbers at every trip. Different sums may still be equal numbers.

**Small arrays element by element**: an example is `[0, i]`, where `i` counts trips. JAX's and TensorFlow's exporters
write the place of a step as a list of places along all axes. They compare it with 0 and with sizes before they use it.
An element is a `LinearSum`, a bool, or None if it is not known. A Slice by such places is a `Cut` along each axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx

from rnnops.onnx.import_if import Operand, appended
from rnnops.onnx.node import attributes_of
from rnnops.types import Array

if TYPE_CHECKING:
    from rnnops.net.op import Op
    from rnnops.onnx.loop_body import LoopBody
    from rnnops.onnx.read_graph import GraphReader

TRIP = "<trip>"  # not the name of a value; all other roots are integers outside of the Loop
MOST_TERMS = 2**40  # bound of factors and numbers: far below the limits of int64, and above any number of trips
VIEWS = ("Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape")  # ops that hand on the one number that they read
NUMBERS = ("int32", "int64", "float32", "float64", "float")  # dtypes that can hold a number of trips


Element: TypeAlias = "LinearSum | bool | None"
ElementRule: TypeAlias = "Callable[[Elements, onnx.NodeProto], Array | None]"


@dataclass(frozen=True)
class LinearSum:
    """A whole number, `number + sum(factor * root)`.

    Args:
        factors: name of a root -> its factor, which is not 0.
        rank: 0, or 1 if the number is in an array `[1]`.
    """

    number: int = 0
    factors: Mapping[str, int] = field(default_factory=dict)
    rank: int = 0

    def plus(self, other: LinearSum, factor: int = 1) -> LinearSum:
        """This sum plus `factor` times another."""
        factors = dict(self.factors)
        for name, value in other.factors.items():
            factors[name] = factors.get(name, 0) + factor * value
        found = {name: value for name, value in factors.items() if value}
        return LinearSum(self.number + factor * other.number, found, max(self.rank, other.rank))

    def times(self, factor: int) -> LinearSum:
        """This sum times a factor."""
        return LinearSum(rank=self.rank).plus(self, factor)

    def equals(self, other: LinearSum) -> bool:
        """True if both sums are one number for all values of the roots."""
        difference = self.plus(other, -1)
        return not difference.number and not difference.factors

    @property
    def is_sane(self) -> bool:
        return all(abs(value) < MOST_TERMS for value in (self.number, *self.factors.values()))


def whole_number(value: np.ndarray[Any, Any]) -> LinearSum | None:
    """A constant of one whole number, as a sum."""
    if value.size != 1 or value.ndim > 1 or value.dtype.kind not in "iuf":
        return None
    number = value.item()
    return LinearSum(int(number), rank=value.ndim) if abs(number) < MOST_TERMS and number == int(number) else None


def product(one: LinearSum, other: LinearSum) -> LinearSum | None:
    """The product of two sums; None if both have roots."""
    if one.factors and other.factors:
        return None
    found = other.times(one.number) if not one.factors else one.times(other.number)
    return LinearSum(found.number, found.factors, max(one.rank, other.rank))


ARITHMETIC: dict[str, Callable[..., LinearSum | None]] = {
    "Add": LinearSum.plus,
    "Mul": product,
    "Neg": lambda one: one.times(-1),
    "Sub": lambda one, other: one.plus(other, -1),
}


def combined(op: str, *terms: Element) -> LinearSum | None:
    """The result of Add, Sub, Mul or Neg on sums; None if it is not a sum."""
    if len(terms) != (1 if op == "Neg" else 2):
        return None
    found = ARITHMETIC[op](*terms) if all(isinstance(term, LinearSum) for term in terms) else None
    return found if found is not None and found.is_sane else None


class Around:
    """Integers of the graph around a Loop: as sums, and nodes that compute sums."""

    def __init__(self, reader: GraphReader, prefix: str) -> None:
        self.reader, self.prefix = reader, prefix
        self._makers: dict[str, Op] = {}
        self._seen = 0

    def sum_of(self, name: str, depth: int = 0) -> LinearSum | None:
        """An outer value as a sum. None if it is not one whole number."""
        value = self.reader.known_value(name)
        if value is not None:
            return whole_number(value)
        return self._of_blob(self.reader.blob(name).name, depth)

    def _of_blob(self, name: str, depth: int) -> LinearSum | None:
        kind = self.reader.known(name)
        if kind is None or kind[0].shape not in ((), (1,)):
            return None
        op = self.maker(name)
        found = None if op is None or depth > 50 else self._through(op, depth + 1)
        if found is None and kind[0].dtype in ("int32", "int64"):
            found = LinearSum(0, {name: 1})
        return None if found is None else LinearSum(found.number, found.factors, kind[0].rank)

    def _through(self, op: Op, depth: int) -> LinearSum | None:
        """The sum that an op makes of its inputs."""
        if self.reader.net.dtype_of(op.outputs[0]) not in NUMBERS:  # smaller dtypes may overflow
            return None
        if op.type in VIEWS:
            return self.sum_of(op.inputs[0], depth)
        if op.type in ARITHMETIC:
            return combined(op.type, *(self.sum_of(name, depth) for name in op.inputs))
        return None

    def maker(self, name: str) -> Op | None:
        """The op of the net that makes a blob."""
        ops = self.reader.net.ops
        self._makers.update((output, op) for op in ops[self._seen :] for output in op.outputs)
        self._seen = len(ops)
        return self._makers.get(name)

    # -- nodes that compute ---------------------------------------------------------------------------------------

    def computed(self, total: LinearSum) -> int | str:
        """A sum as a number, or as the name of an int64 without axes that new nodes compute."""
        result: int | str = total.number
        for name, factor in total.factors.items():
            term = self.node("Mul", self.integer(name), factor) if factor != 1 else self.integer(name)
            result = term if result == 0 else self.node("Add", term, result)
        return result

    def integer(self, name: str) -> str:
        """A value as an int64 without axes."""
        if self.reader.dims(name) != ():
            name = self.append("Reshape", [name, []])
        return name if self.reader.dtype_of(name) == "int64" else self.append("Cast", [name], to=onnx.TensorProto.INT64)

    def node(self, op: str, *operands: int | str) -> int | str:
        """Appends an op of int64 numbers. If all operands are plain numbers, the result is a plain number."""
        if all(isinstance(operand, int) for operand in operands):
            return OF_NUMBERS[op](operands)  # type: ignore[arg-type]
        return self.append(op, operands)

    def append(self, op: str, inputs: Iterable[Operand], **attributes: Any) -> str:
        """Appends a node to the graph. Returns the name of its result."""
        return appended(self.reader, f"{self.prefix}/{op.lower()}", op, inputs, **attributes)

    def rank(self, name: str) -> int | None:
        """The number of axes of a value. None if it is not known."""
        dims = self.reader.dims(name)
        return None if dims is None else len(dims)

    def is_integer(self, name: str) -> bool:
        """True if a value holds integers of a dtype that no number of trips overflows."""
        return self.reader.dtype_of(name) in ("int32", "int64")


OF_NUMBERS: dict[str, Callable[[tuple[int, ...]], int]] = {
    "Add": sum,
    "Sub": lambda values: values[0] - values[1],
    "Mul": lambda values: values[0] * values[1],
    "Div": lambda values: values[0] // values[1],
    "Max": max,
    "Min": min,
}


FAR = 10**9  # beyond the end of any axis, in the form that tf2onnx writes
MOST = 64  # most elements of an array that is followed


class Elements:
    """Finds the elements of values of a body.

    Args:
        trips: an upper bound of the number of trips. None if none is known.
    """

    def __init__(self, body: LoopBody, trips: LinearSum | None) -> None:
        self.body, self.trips = body, trips
        self._found: dict[str, Array | None] = {}

    def of(self, name: str) -> Array | None:
        """An array of the elements. None if the value is not a small array."""
        name = self.body.handed_on(name)
        if name not in self._found:
            self._found[name] = None  # a value that depends on itself is not known
            found = self._look(name)
            self._found[name] = None if found is None or found.size > MOST else found
        return self._found[name]

    def numbers(self, name: str) -> list[int] | None:
        """The elements of a value with at most one axis, if they are whole numbers."""
        found = self.of(name)
        if found is None or found.ndim > 1 or not all(is_number(element) for element in found.flat):
            return None
        return [element.number for element in found.flat]

    def _look(self, name: str) -> Array | None:
        value = self.body.constant(name)
        if value is not None:
            return elements_of(value) if value.size <= MOST else None
        found = self.body.sum_of(name)
        if found is not None:
            return boxed(np.full((1,) * found.rank, plain(found), object))
        node = self.body.makers.get(name)
        rule = None if node is None else ELEMENT_RULES.get(node.op_type)
        if node is None or rule is None:
            return None
        if (sizes := self.body.sizes_of_step(node)) is not None:
            return np.full(sizes, None, object) if np.prod(sizes) <= MOST else None
        try:
            return rule(self, node)
        except (ValueError, IndexError):  # shapes do not fit; another check refuses them
            return None

    # -- facts that hold at all trips -------------------------------------------------------------------------------

    def least(self, total: LinearSum) -> int | None:
        """The smallest number that a sum has at any trip. None if it is not known."""
        slope = total.factors.get(TRIP, 0)
        if slope < 0 and self.trips is None:
            return None
        last = LinearSum() if slope >= 0 or self.trips is None else self.trips.plus(LinearSum(-1))
        found = total.plus(LinearSum(0, {TRIP: slope} if slope else {}), -1).plus(last, slope)
        return found.number if not found.factors else None

    def is_above(self, one: LinearSum, other: LinearSum) -> bool | None:
        """True if `one` is above `other` at all trips, False if at no trip. None if neither is known."""
        least, below = self.least(one.plus(other, -1)), self.least(other.plus(one, -1))
        return True if least is not None and least > 0 else False if below is not None and below >= 0 else None

    # -- ops --------------------------------------------------------------------------------------------------------

    def inputs(self, node: onnx.NodeProto) -> list[Array]:
        """The node's inputs. Raises ValueError if one is not a small array."""
        return [self.input(node, i) for i in range(len(node.input))]

    def input(self, node: onnx.NodeProto, i: int) -> Array:
        found = self.of(node.input[i]) if i < len(node.input) else None
        if found is None:
            raise ValueError("not a small array")
        return found

    def listed(self, node: onnx.NodeProto, i: int, name: str = "axes") -> tuple[int, ...]:
        """Whole numbers that are an input of the node. In older op sets they are an attribute."""
        given = attributes_of(node).get(name, (0, None))[1]
        numbers = given if given is not None else self.numbers(node.input[i]) if i < len(node.input) else None
        if numbers is None:
            raise ValueError("numbers are not known")
        return tuple(numbers)

    def compared(self, op: str, one: Element, other: Element) -> Element:
        """The result of comparing two elements."""
        if not isinstance(one, LinearSum) or not isinstance(other, LinearSum):
            return None
        if op == "Equal":
            apart = self.is_above(one, other) or self.is_above(other, one)
            return True if one.equals(other) else False if apart else None
        above = self.is_above(one, other) if op in ("Greater", "LessOrEqual") else self.is_above(other, one)
        return above if above is None or op in ("Less", "Greater") else not above

    def extreme(self, op: str, one: Element, other: Element) -> Element:
        """The larger or the smaller of two elements."""
        for far, near in ((one, other), (other, one)):
            if is_far(far) and not is_far(near):  # every place in an array is nearer
                return far if op == "Max" else near
        if not isinstance(one, LinearSum) or not isinstance(other, LinearSum):
            return None
        above = self.is_above(one, other)
        return None if above is None else one if above == (op == "Max") else other

    def shape(self, node: onnx.NodeProto) -> Array | None:
        """The sizes of a small array, or of a value whose sizes equal an outer value's at every trip."""
        found, around = self.of(node.input[0]), self.body.outer(node.output[0])
        if around is None:
            return elements_of(np.array(found.shape, np.int64)) if found is not None and not node.attribute else None
        value = self.body.reader.known_value(around)
        return None if value is None else elements_of(value)


@dataclass(frozen=True)
class Cut:
    """The range that a Slice takes along one axis."""

    axis: int
    start: LinearSum
    end: LinearSum
    step: LinearSum

    @property
    def moves(self) -> bool:
        """True if each trip takes another part."""
        return TRIP in self.start.factors

    @property
    def is_one(self) -> bool:
        """True for one element: the end is the place after the start, or the step leads beyond the array."""
        ends_after = self.end.equals(self.start.plus(LinearSum(1)))
        return ends_after if self.step == LinearSum(1) else is_far(self.step) and (ends_after or is_far(self.end))

    def ends_before_it_begins(self, trips: LinearSum | None) -> bool:
        """True if a trip may slice from -1 to 0. Such a slice is empty, as -1 counts from the end and 0 from the front.

        Args:
            trips: an upper bound of the number of trips. None if none is known.
        """
        first, slope = self.start.number, self.start.factors.get(TRIP, 0)
        if self.step != LinearSum(1) or first >= 0 or len(self.start.factors) != 1 or (slope < 0 and first < -1):
            return False
        return trips is None or bool(trips.factors) or trips.number > -1 - first

    @property
    def is_fixed(self) -> bool:
        return not (self.start.factors or self.end.factors or self.step.factors)

    def is_whole(self, size: int | str | None) -> bool:
        """True if it takes all of an axis of this size. `size` is None if it is open."""
        last = size if isinstance(size, int) else FAR
        return (
            self.start == LinearSum() and self.step == LinearSum(1) and not self.end.factors and self.end.number >= last
        )


def cuts_of(elements: Elements, node: onnx.NodeProto) -> list[Cut]:
    """The ranges that a Slice takes along its axes. Empty if they are unknown."""
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
    return [Cut(axis, start, end, LinearSum(step)) for axis, start, end, step in places]


def listed(elements: Elements, name: str) -> list[LinearSum] | None:
    """The sums in a list. None if it has other elements."""
    found: Array | None = elements.of(name)
    if found is None or found.ndim != 1 or not all(isinstance(element, LinearSum) for element in found):
        return None
    return list(found)


def is_far(element: Element) -> bool:
    """True if an element is a place beyond the end of any axis."""
    return isinstance(element, LinearSum) and not element.factors and element.number >= FAR


def is_number(element: Element) -> bool:
    """True if an element is a number that is the same at all trips."""
    return isinstance(element, LinearSum) and not element.factors


def plain(total: LinearSum) -> LinearSum:
    """A sum as an element, without axes."""
    return LinearSum(total.number, total.factors)


def boxed(array: Any) -> Array:
    """An array of elements. A single element becomes an array without axes."""
    if isinstance(array, np.ndarray):
        return array
    box = np.empty((), object)
    box[()] = array
    return box


def elements_of(value: Array) -> Array:
    """The elements of a constant."""
    return each(lambda number: number if value.dtype.kind == "b" else as_sum(number), value)


def as_sum(number: float) -> LinearSum | None:
    """A whole number as a sum."""
    return LinearSum(int(number)) if np.isfinite(number) and number == int(number) else None


def each(function: Callable[..., Element], *arrays: Array) -> Array:
    """Applies a function of elements to arrays of elements."""
    if all(array.size for array in arrays):
        objects = [array.astype(object) for array in arrays]
        return boxed(np.frompyfunc(function, len(arrays), 1)(*objects))
    return np.empty(np.broadcast_shapes(*(array.shape for array in arrays)), object)


def chosen(condition: Element, one: Element, other: Element) -> Element:
    """One of two elements, by a condition."""
    if condition is None:
        return one if isinstance(one, LinearSum) and isinstance(other, LinearSum) and one.equals(other) else None
    return one if condition else other


def both(one: Element, other: Element) -> Element:
    """True if both hold. It is False if one is known to be false, even if the other is unknown."""
    return False if one is False or other is False else None if one is None or other is None else True


def either(one: Element, other: Element) -> Element:
    return True if one is True or other is True else None if one is None or other is None else False


def changed(to: int, element: Element) -> Element:
    """An element in another dtype."""
    if to == onnx.TensorProto.BOOL:
        return element if not is_number(element) else bool(element.number)  # type: ignore[union-attr]
    if to not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        return None
    return LinearSum(int(element)) if isinstance(element, bool) else element


def by_element(function: Callable[..., Element]) -> ElementRule:
    """A rule for a function that gets all elements, the op's name, and an element of each input."""
    return lambda elements, node: each(partial(function, elements, node.op_type), *elements.inputs(node))


def cast(elements: Elements, node: onnx.NodeProto) -> Array:
    to = attributes_of(node)["to"][1]
    return each(lambda element: changed(to, element), elements.input(node, 0))


def squeeze(elements: Elements, node: onnx.NodeProto) -> Array:
    return boxed(np.squeeze(elements.input(node, 0), elements.listed(node, 1)))


def reshape(elements: Elements, node: onnx.NodeProto) -> Array:
    return elements.input(node, 0).reshape(elements.listed(node, 1, "shape"))


def expand(elements: Elements, node: onnx.NodeProto) -> Array:
    array, shape = elements.input(node, 0), elements.listed(node, 1, "shape")
    return np.array(np.broadcast_to(array, np.broadcast_shapes(array.shape, shape)), object)


def gather(elements: Elements, node: onnx.NodeProto) -> Array:
    array, places = elements.inputs(node)
    if not all(is_number(place) for place in places.flat):
        raise ValueError("an index is not known")
    axis = attributes_of(node).get("axis", (0, 0))[1]
    return boxed(np.take(array, each(lambda place: place.number, places).astype(int), axis))


def cut(elements: Elements, node: onnx.NodeProto) -> Array:
    """Slice."""
    array, starts, ends = elements.input(node, 0), elements.listed(node, 1, "starts"), elements.listed(node, 2, "ends")
    axes = elements.listed(node, 3) if len(node.input) > 3 and node.input[3] else range(len(starts))
    steps = elements.listed(node, 4, "steps") if len(node.input) > 4 else (1,) * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        array = np.moveaxis(np.moveaxis(array, axis, 0)[start:end:step], 0, axis)
    return array


def nonzero(elements: Elements, node: onnx.NodeProto) -> Array:
    array = elements.input(node, 0)
    if not all(isinstance(element, bool) for element in array.flat):
        raise ValueError("an element is not known")
    return elements_of(np.array(np.nonzero(array.astype(bool)), np.int64))


ELEMENT_RULES: dict[str, ElementRule] = {
    **dict.fromkeys(ARITHMETIC, by_element(lambda elements, op, *terms: combined(op, *terms))),
    **dict.fromkeys(("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"), by_element(Elements.compared)),
    **dict.fromkeys(("Max", "Min"), by_element(Elements.extreme)),
    "And": by_element(lambda elements, op, one, other: both(one, other)),
    "Or": by_element(lambda elements, op, one, other: either(one, other)),
    "Not": by_element(lambda elements, op, one: None if one is None else not one),
    "Where": by_element(lambda elements, op, *inputs: chosen(*inputs)),
    "Cast": cast,
    "Concat": lambda elements, node: np.concatenate(elements.inputs(node), attributes_of(node)["axis"][1]),
    "Expand": expand,
    "Gather": gather,
    "NonZero": nonzero,
    "Reshape": reshape,
    "Shape": Elements.shape,
    "Slice": cut,
    "Squeeze": squeeze,
    "Transpose": lambda elements, node: np.transpose(
        elements.input(node, 0), attributes_of(node).get("perm", (0, None))[1]
    ),
    "Unsqueeze": lambda elements, node: np.expand_dims(elements.input(node, 0), elements.listed(node, 1)),
}
