"""Random choices that are the same on every machine (`Draw`), and a net that grows by them (`Builder`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np

import rnnops as ro
from rnnops.net.blob import Blob
from rnnops.net.infer import infer_call
from rnnops.net.net import Net
from rnnops.types import BOOL, Array, Shape, Type, is_float

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


FLOAT_DTYPE = "float64"
TAME = 3.0  # the largest absolute value of float blobs that become operands
LARGEST = 36  # the most elements of a blob


@dataclass(frozen=True)
class Item:
    """A blob that may become an operand, with its shape and a bound of its absolute value."""

    blob: Blob
    shape: Shape
    bound: float

    @property
    def rank(self) -> int:
        return len(self.shape)


class Builder:
    """A net under construction.

    Args:
        prefix: prefix of the names of parameters.
        parameter_budget: the most elements of all parameters together.
    """

    def __init__(self, net: Net, draw: Draw, prefix: str, parameter_budget: int = 12) -> None:
        self.net, self.draw, self.prefix, self.budget = net, draw, prefix, parameter_budget
        self.floats: list[Item] = []
        self.integers: list[Item] = []
        self.bools: list[Item] = []
        self.parameters: list[Item] = []
        self._types: dict[str, Type] = {}
        self._values: dict[str, Array] = {}
        self._read: set[str] = set()
        self._seen = 0

    # -- what is known of blobs ----------------------------------------------------------------------------------

    def declare(self, blob: Blob, shape: Shape, bound: float) -> Item:
        """An input of the net as an operand."""
        self._types[blob.name] = Type(FLOAT_DTYPE if is_float(blob.dtype) else blob.dtype, shape)
        return self.add(blob, bound)

    def shape(self, blob: Blob) -> Shape:
        return self.type(blob.name).shape

    def type(self, name: str) -> Type:
        """The type of a blob; ops appended since the last call are inferred first."""
        for spec in self.net.input_specs:
            if spec.shape is not None and spec.name not in self._types:
                self._types[spec.name] = Type(FLOAT_DTYPE if is_float(spec.dtype) else spec.dtype, spec.shape)
        for op in self.net.ops[self._seen :]:
            self._read.update(op.inputs)
            types, values = [self._types.get(n) for n in op.inputs], [self._values.get(n) for n in op.inputs]
            call, folded = infer_call(op, types, values, self.net.name, FLOAT_DTYPE)
            for output, kind, value in zip(op.outputs, call.output_types, folded, strict=True):
                self._types[output] = kind
                if value is not None:
                    self._values[output] = value
        self._seen = len(self.net.ops)
        return self._types[name]

    def add(self, blob: Blob, bound: float) -> Item:
        """Put a blob among the operands. A float blob is squashed if it may be large."""
        if is_float(blob.dtype) and bound > TAME:
            blob, bound = self.squashed(blob, bound)
        item = Item(blob, self.shape(blob), bound)
        if is_float(blob.dtype):
            self.floats.append(item)
        else:
            (self.bools if blob.dtype == BOOL else self.integers).append(item)
        return item

    def rename(self, blob: Blob, name: str) -> None:
        """Name a blob, so that cells can find it by its name."""
        self._types[name] = self.type(blob.name)
        if blob.name in self._values:
            self._values[name] = self._values[blob.name]
        if blob.name in self._read:
            self._read.add(name)
        blob.named(name)

    def squashed(self, blob: Blob, bound: float) -> tuple[Blob, float]:
        """The blob after an op that makes its values about 1, and their bound."""
        shrunk = round(1.4 / bound, 4)
        functions: list[Callable[[Blob], Blob]] = [ro.tanh, ro.softsign, ro.erf, ro.sin, lambda x: x * shrunk]
        return self.draw.pick(functions)(blob), 1.5

    # -- operands ------------------------------------------------------------------------------------------------

    def unread(self, items: Sequence[Item]) -> list[Item]:
        """The items that no op reads yet."""
        return [item for item in items if item.blob.name not in self._read]

    def choose(self, items: Sequence[Item]) -> Item:
        """A random operand. Operands that no op reads, and new ones, are chosen most often."""
        unread = self.unread(items)
        return self.draw.late(unread if unread and self.draw.chance(0.6) else items)

    def operand(self, fits: Callable[[Item], bool] = lambda item: True) -> Item:
        """A random float operand that fits; if none does, the newest one."""
        return self.choose([item for item in self.floats if fits(item)] or self.floats[-1:])

    def of_rank(self, least: int) -> Item:
        """A float operand with at least `least` axes."""
        item = self.operand(lambda item: item.rank >= least)
        missing = least - item.rank
        if missing <= 0:
            return item
        blob = ro.unsqueeze(item.blob, list(range(missing)))
        return Item(blob, self.shape(blob), item.bound)

    def partner(self, shape: Shape) -> Item:
        """A float operand that broadcasts against a shape."""

        def fits(item: Item) -> bool:
            pairs = list(zip(item.shape[::-1], shape[::-1], strict=False))
            wide = item.shape if item.rank > len(shape) else shape
            grown = prod(max(pair) for pair in pairs) * prod(wide[: len(wide) - len(pairs)])
            return grown <= LARGEST and all(a == b or 1 in (a, b) for a, b in pairs)

        item = self.operand(fits)
        return item if fits(item) else Item(fit(self, item, shape), shape, item.bound)

    def parameter(self, shape: Shape) -> Item:
        """A parameter of a shape: an existing one, or a new one while the budget lasts, else a constant."""
        there = [item for item in self.parameters if item.shape == shape]
        if there and (self.draw.chance(0.5) or self.budget < prod(shape)):
            return self.draw.pick(there)
        if self.budget < prod(shape):
            return Item(self.net.constant(self.draw.array(shape).round(3)), shape, 1.0)
        self.budget -= prod(shape)
        blob = self.net.parameter(f"{self.prefix}{len(self.parameters)}", shape, ("uniform", -1.0, 1.0))
        item = Item(blob, shape, 1.0)
        self.parameters.append(item)
        return item

    def axis(self, item: Item) -> int:
        """An axis of an operand, counted from either end."""
        axis = self.draw.integer(0, item.rank - 1)
        return axis if self.draw.chance(0.6) else axis - item.rank


def fit(builder: Builder, item: Item, shape: Shape) -> Blob:
    """An operand in another shape, by reductions, slices, padding, look-ups and broadcasting.

    Its bound stays valid, because means, extrema and copies are not larger.
    """
    draw, blob = builder.draw, item.blob
    while len(builder.shape(blob)) > len(shape):
        reduce = draw.pick([ro.reduce_mean, ro.reduce_max, ro.reduce_min])
        blob = reduce(blob, [draw.integer(0, len(builder.shape(blob)) - 1)], keepdims=0)
    missing = len(shape) - len(builder.shape(blob))
    if missing:
        blob = ro.unsqueeze(blob, [draw.pick([k, k - len(shape)]) for k in range(missing)])
    for axis, wanted in enumerate(shape):
        blob = _resized(builder, blob, axis, wanted)
    return blob if builder.shape(blob) == shape else ro.expand(blob, list(shape))


def _resized(builder: Builder, blob: Blob, axis: int, wanted: int) -> Blob:
    """The blob with another size along one axis. Size 1 may stay, for broadcasting."""
    draw, size = builder.draw, builder.shape(blob)[axis]
    if size == wanted or size == 1:
        return blob
    if wanted == 1 and draw.chance(0.5):
        return ro.reduce_sum(blob, [axis]) * round(1.0 / size, 3)
    if draw.chance(0.3):
        return ro.gather(blob, [draw.integer(-size, size - 1) for _ in range(wanted)], axis=axis)
    if size > wanted:
        start = draw.integer(0, size - wanted)
        return ro.slice(blob, [start], [start + wanted], axes=[axis])
    return ro.pad(blob, [0, wanted - size], mode=draw.pick(["constant", "edge", "reflect", "wrap"]), axes=[axis])
