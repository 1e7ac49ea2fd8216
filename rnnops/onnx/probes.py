"""What is known of shapes while a file is read: inference with made-up sizes for whatever the file leaves open.

Each open size gets two numbers that occur nowhere else, and types are inferred twice. A size that comes out equal both
times is fixed; two sizes that are equal both times are one size. Where made-up sizes do not broadcast, as those of a
table of places that is cut to a sequence's length, the result has another open size there. Where inference fails
otherwise the type is unknown, and so is all that follows from it: nothing is guessed, and no array of data is ever
made.

That a value comes out equal both times proves little: `min(T, 100)` is 100 for both of the large sizes. So what depends
on no made-up size at all is remembered by name; only that is certain, and an op that fails on it alone fails always.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TypeAlias

import numpy as np

from rnnops.infer import infer_call
from rnnops.net import Net
from rnnops.op import Op
from rnnops.ops.base import Binary, Variadic
from rnnops.schema import schema_of
from rnnops.types import FLOAT, Array, Shape, Type, broadcast_shapes

Dims: TypeAlias = tuple[int | str | None, ...]  # a size, the name of one, or an unknown one
Known: TypeAlias = tuple[Type, Type]

FIRST, STEP = (12 * 101, 12 * 151), (12 * 2, 12 * 3)  # multiples of 12, so that gates can be split off


class Sizes:
    """The made-up sizes of one model, by name.

    Args:
        first, step: numbers of the first size, and how much more those of the next are.
    """

    def __init__(self, first: tuple[int, int] = FIRST, step: tuple[int, int] = STEP) -> None:
        self._numbers = (count(first[0], step[0]), count(first[1], step[1]))
        self._named: dict[str, tuple[int, int]] = {}
        self.made_up: set[int] = set()  # the first number of each open size

    def pair(self, dim: int | str | None) -> tuple[int, int]:
        """A size twice, or the two numbers that stand for an open one."""
        if isinstance(dim, int):
            return dim, dim
        if dim in self._named:
            return self._named[dim]
        fresh = (next(self._numbers[0]), next(self._numbers[1]))
        self.made_up.add(fresh[0])
        return fresh if dim is None else self._named.setdefault(dim, fresh)

    def named(self) -> dict[tuple[int, int], str]:
        """Which two numbers stand for which name."""
        return {pair: name for name, pair in self._named.items()}


class Probes:
    """Types and values of a net's blobs, as far as they follow."""

    def __init__(self, sizes: Sizes, float_dtype: str) -> None:
        self.sizes, self.float_dtype = sizes, float_dtype
        self._types: tuple[dict[str, Type], dict[str, Type]] = ({}, {})
        self._values: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
        self._certain: set[str] = set()  # blobs whose types, and values, depend on no made-up size
        self._opened: dict[tuple[str, int], tuple[int, int]] = {}  # blob and axis that nothing fitting is known of
        self._seen = 0

    def declare(self, name: str, dtype: str, dims: Sequence[int | str | None]) -> None:
        """Say what an input is."""
        pairs = [self.sizes.pair(dim) for dim in dims]
        kind = self.float_dtype if dtype == FLOAT else dtype
        self.give(name, (Type(kind, tuple(a for a, _ in pairs)), Type(kind, tuple(b for _, b in pairs))))
        if all(isinstance(dim, int) for dim in dims):
            self._certain.add(name)

    def give(self, name: str, known: Known | None, certain: bool = False) -> None:
        """Say what an input is, both times, and whether that depends on no made-up size."""
        for types, kind in zip(self._types, known or (), strict=False):
            types[name] = kind
        if certain:
            self._certain.add(name)

    def give_value(self, name: str, value: Array) -> None:
        """Say what a constant input holds."""
        for values in self._values:
            values[name] = value

    def follow(self, net: Net) -> None:
        """Infer the ops that were appended since the last time. Raises what an op raises that can never run."""
        first, self._seen = self._seen, len(net.ops)
        for op in net.ops[first:]:
            certain = all(not name or name in self._certain for name in op.inputs)
            for i in range(len(self._types)):
                if all(not name or name in self._types[i] for name in op.inputs):
                    self._infer(net, op, i, certain)
            self._certain.update(op.outputs if certain else ())

    def known(self, name: str) -> Known | None:
        """A blob's type with either choice of sizes, None where it is unknown."""
        first, second = (types.get(name) for types in self._types)
        return None if first is None or second is None else (first, second)

    def is_certain(self, name: str) -> bool:
        """Whether a blob's type depends on no made-up size."""
        return name in self._certain

    def certain_value(self, name: str) -> Array | None:
        """A blob's value where it follows from constants and fixed sizes alone."""
        return self._values[0].get(name) if name in self._certain else None

    def likely_value(self, name: str) -> Array | None:
        """A blob's value where it comes out equal both times."""
        first, second = (values.get(name) for values in self._values)
        return None if first is None or second is None or not np.array_equal(first, second) else first

    def numbers(self, name: str) -> tuple[int, int] | None:
        """The integer that a blob of one element is with either choice of sizes."""
        first, second = (values.get(name) for values in self._values)
        if first is None or second is None or first.size != 1 or second.size != 1:
            return None
        return int(first.item()), int(second.item())

    def dims(self, name: str) -> Dims | None:
        """A blob's sizes, None for those that are open."""
        known = self.known(name)
        return None if known is None else fixed_dims(known)

    def _infer(self, net: Net, op: Op, i: int, certain: bool) -> None:
        """Types and values of an op's results with the i-th choice of sizes."""
        types, values = self._types[i], self._values[i]
        from_types = [types.get(name) for name in op.inputs]
        from_values = [values.get(name) for name in op.inputs]
        try:
            call, folded = infer_call(op, from_types, from_values, net.name, self.float_dtype)
        except Exception:
            if certain:
                raise
            self._open(net, op, i)
            return  # made-up sizes need not fit, and a senseless op fails again, with a message, at its run
        for name, kind, value in zip(call.op.outputs, call.output_types, folded, strict=True):
            if name:  # results without one are not to be taken for inputs that are left out
                types[name] = kind
            if name and value is not None:
                values[name] = value

    def _open(self, net: Net, op: Op, i: int) -> None:
        """The type of a result whose operands are made up so that they do not broadcast: they do in a run."""
        from_types = [self._types[i][name] for name in op.inputs if name]
        if not (op.type == "Where" or isinstance(schema_of(op.type), Binary | Variadic)):
            return
        rank = max(kind.rank for kind in from_types)
        shape: list[int] = []
        for axis, sizes in enumerate(zip(*(_padded(kind.shape, rank) for kind in from_types), strict=True)):
            together = broadcast_shapes([(size,) for size in sizes])
            if together is None:
                key = (op.outputs[0], axis)
                if key not in self._opened:
                    self._opened[key] = self.sizes.pair(None)
                together = (self._opened[key][i],)
            shape.extend(together)
        dtypes = [Type(kind.dtype, ()) for kind in from_types]
        try:
            call, _ = infer_call(op, dtypes, [None] * len(dtypes), net.name, self.float_dtype)
        except Exception:
            return
        self._types[i][op.outputs[0]] = Type(call.output_types[0].dtype, tuple(shape))


def _padded(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def fixed_dims(known: Known) -> Dims:
    """Sizes, None for those that are open."""
    first, second = known
    return tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))
