"""Integers of a graph as sums: `2 * i + T - 1`, where `i` counts a Loop's trips and `T` is a value around it.

A sum is followed through the ops that exporters write between a size and its use: Cast, Squeeze, Reshape, Add, Sub. Two
sums that are equal say the same number at every trip; sums that differ may still be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.onnx.import_if import appended
from rnnops.onnx.package import TensorProto, helper

if TYPE_CHECKING:
    from rnnops.onnx.read_graph import GraphReader
    from rnnops.op import Op

TRIP = "<trip>"  # no name of a value: those that a sum is computed of are integers around the Loop
MOST = 2**40  # beyond any number of trips; numbers stay far below what int64 holds
VIEWS = ("Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape")  # ops that hand on the one number that they read
NUMBERS = ("int32", "int64", "float32", "float64", "float")  # dtypes that a number of trips fits into


@dataclass(frozen=True)
class Sum:
    """A whole number, `number + sum(factor * root)`.

    Args:
        factors: name of a root -> its factor, none of them 0.
        rank: 0, or 1 where it stands in an array `[1]`.
    """

    number: int = 0
    factors: Mapping[str, int] = field(default_factory=dict)
    rank: int = 0

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """This and so many times the other."""
        factors = dict(self.factors)
        for name, value in other.factors.items():
            factors[name] = factors.get(name, 0) + factor * value
        found = {name: value for name, value in factors.items() if value}
        return Sum(self.number + factor * other.number, found, max(self.rank, other.rank))

    def times(self, factor: int) -> Sum:
        """So many times this."""
        return Sum(rank=self.rank).plus(self, factor)

    def equals(self, other: Sum) -> bool:
        """Whether both are one number whatever the roots are."""
        difference = self.plus(other, -1)
        return not difference.number and not difference.factors

    @property
    def is_sane(self) -> bool:
        return all(abs(value) < MOST for value in (self.number, *self.factors.values()))


def whole(value: np.ndarray[Any, Any]) -> Sum | None:
    """A constant of one whole number as a sum."""
    if value.size != 1 or value.ndim > 1 or value.dtype.kind not in "iuf":
        return None
    number = value.item()
    return Sum(int(number), rank=value.ndim) if abs(number) < MOST and number == int(number) else None


def combined(op: str, terms: list[Sum | None]) -> Sum | None:
    """What Add, Sub, Mul and Neg make of sums; None for what is none."""
    if None in terms:
        return None
    if op == "Neg" and len(terms) == 1:
        found = terms[0].times(-1)  # type: ignore[union-attr]
    elif len(terms) != 2:
        return None
    else:
        found = of_two(op, terms[0], terms[1])  # type: ignore[arg-type]
    return found if found is not None and found.is_sane else None


def of_two(op: str, one: Sum, other: Sum) -> Sum | None:
    """The same for two operands."""
    if op in ("Add", "Sub"):
        return one.plus(other, 1 if op == "Add" else -1)
    if op == "Mul" and not (one.factors and other.factors):
        rank = max(one.rank, other.rank)
        found = other.times(one.number) if not one.factors else one.times(other.number)
        return Sum(found.number, found.factors, rank)
    return None


class Around:
    """Numbers of the graph around a Loop: what they are sums of, and nodes that compute sums."""

    def __init__(self, reader: GraphReader, prefix: str) -> None:
        self.reader, self.prefix = reader, prefix
        self._makers: dict[str, Op] = {}
        self._seen = 0

    def sum_of(self, name: str, depth: int = 0) -> Sum | None:
        """The sum that a value around the Loop is, None where it is no one whole number."""
        value = self.reader.known_value(name)
        if value is not None:
            return whole(value)
        return self._of_blob(self.reader.blob(name).name, depth)

    def _of_blob(self, name: str, depth: int) -> Sum | None:
        kind = self.reader.known(name)
        if kind is None or kind[0].shape not in ((), (1,)):
            return None
        op = self.maker(name)
        found = None if op is None or depth > 50 else self._through(op, depth + 1)
        if found is None and kind[0].dtype in ("int32", "int64"):
            found = Sum(0, {name: 1})
        return None if found is None else Sum(found.number, found.factors, kind[0].rank)

    def _through(self, op: Op, depth: int) -> Sum | None:
        """The sum that an op makes of its inputs."""
        if self.reader.net.dtype_of(op.outputs[0]) not in NUMBERS:  # smaller ones begin again where they are full
            return None
        if op.type in VIEWS:
            return self.sum_of(op.inputs[0], depth)
        if op.type in ("Add", "Sub", "Mul", "Neg"):
            return combined(op.type, [self.sum_of(name, depth) for name in op.inputs])
        return None

    def maker(self, name: str) -> Op | None:
        """The op of the net that makes a blob."""
        ops = self.reader.net.ops
        self._makers.update((output, op) for op in ops[self._seen :] for output in op.outputs)
        self._seen = len(ops)
        return self._makers.get(name)

    # -- nodes that compute ---------------------------------------------------------------------------------------

    def computed(self, total: Sum, hint: str) -> int | str:
        """A sum as a number, or as the name of an int64 without axes that nodes compute."""
        result: int | str = total.number
        for name, factor in total.factors.items():
            term = self.node("Mul", self.integer(name), factor) if factor != 1 else self.integer(name)
            result = term if result == 0 else self.node("Add", term, result)
        return result

    def integer(self, name: str) -> str:
        """A number as an int64 without axes."""
        kind = self.reader.known(self.reader.blob(name).name)
        if kind is None or kind[0].shape != ():
            name = self.append("Reshape", [name, self.sizes([])])
        return name if self.reader.dtype_of(name) == "int64" else self.append("Cast", [name], to=TensorProto.INT64)

    def node(self, op: str, *operands: int | str) -> int | str:
        """An op of int64 numbers; a number where all of them are."""
        if all(isinstance(operand, int) for operand in operands):
            return FOLDED[op](operands)  # type: ignore[arg-type]
        return self.append(op, [self.named(operand) for operand in operands])

    def named(self, value: int | str) -> str:
        """A number as a value of the graph."""
        if isinstance(value, str):
            return value
        return self.append("Constant", [], value=helper.make_tensor("", TensorProto.INT64, [], [value]))

    def sizes(self, values: list[int]) -> str:
        """A list of integers as a value of the graph."""
        return self.append("Constant", [], value=helper.make_tensor("", TensorProto.INT64, [len(values)], values))

    def append(self, op: str, inputs: Iterable[str], **attributes: Any) -> str:
        """One more node of the graph; the name of its result."""
        return appended(self.reader, f"{self.prefix}/{op.lower()}", op, list(inputs), **attributes)

    def rank(self, name: str) -> int | None:
        """The number of axes of a value, None where it does not follow."""
        value = self.reader.value(name)
        if value is not None:
            return int(value.ndim)
        kind = self.reader.known(self.reader.blob(name).name)
        return None if kind is None else kind[0].rank

    def is_integer(self, name: str) -> bool:
        """Whether a value is of integers that no number of trips fills."""
        return self.reader.dtype_of(name) in ("int32", "int64")


FOLDED: dict[str, Callable[[tuple[int, ...]], int]] = {
    "Add": sum,
    "Sub": lambda values: values[0] - values[1],
    "Mul": lambda values: values[0] * values[1],
    "Div": lambda values: values[0] // values[1],
    "Max": max,
    "Min": min,
}
