"""States of a stream as values: what each call begins with, row by row.

A function here makes new states of old ones and changes none. Arrays are read-only, so that states share what they have
in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnops.compiler.buffers.memory import on_host
from rnnops.errors import StreamError
from rnnops.lazy import cached_property
from rnnops.twin_array import TwinArray
from rnnops.types import Array, Shape, Type, type_of

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class State:
    """An output that feeds an input at the next call.

    Args:
        sizes: its shape; that of the axis of rows stands for any number.
        axis: of rows, None where it has none.
        fixed: the number of rows that the net declares, None where it declares none.
    """

    output: str
    input: str
    dtype: str
    sizes: Shape
    axis: int | None = None
    fixed: int | None = None

    def type(self, rows: int) -> Type:
        """Its type with so many rows."""
        axis = self.axis
        return Type(self.dtype, self.sizes if axis is None else (*self.sizes[:axis], rows, *self.sizes[axis + 1 :]))

    def chosen(self, mask: Array, new: Array, old: Array) -> Array:
        """The rows of a mask from `new`, the others from `old`; all of `new` where there is no axis of rows."""
        if self.axis is None:
            return new
        if isinstance(old, TwinArray):
            return self._chosen_there(mask, new, old)
        others = [i for i in range(len(self.sizes)) if i != self.axis]
        return np.where(np.expand_dims(mask, others), on_host(new), old)

    def _chosen_there(self, mask: Array, new: Array, old: Any) -> Any:
        """The same on the device where `old` lies: a copy for each stretch of rows."""
        made, before = old.copy(), (slice(None),) * (self.axis or 0)
        for first, end in np.flatnonzero(np.diff(mask, prepend=False, append=False)).reshape(-1, 2).tolist():
            rows = (*before, slice(first, end))
            made[rows] = new[rows]
        return made

    def taken(self, rows: Sequence[int], array: Array) -> Array:
        """Some rows in an order, of what broadcasts to the state; all of it where rows are not told apart."""
        axis = None if self.axis is None else self.axis - len(self.sizes)
        return array if axis is None or array.ndim < -axis or array.shape[axis] == 1 else array.take(rows, axis)

    def fitted(self, net: str, array: Array, rows: int) -> Array:
        """A value in full size. Raises StreamError for what has another dtype, or does not broadcast."""
        wanted = self.type(rows)
        if array.dtype != wanted.dtype or not _broadcasts(array.shape, wanted.shape):
            raise StreamError("a state does not fit", net=net, blob=self.input, wanted=wanted, came=type_of(array))
        full: Array = np.broadcast_to(array, wanted.shape).copy()
        return full


@dataclass(frozen=True)
class Places:
    """Which states there are and which rows: what stays the same from call to call.

    Args:
        net: for errors.
        initial: input name -> what rows begin with, where that is not zeros.
        present: bool[rows].
    """

    net: str
    links: tuple[State, ...]
    initial: Arrays
    present: Array

    @property
    def rows(self) -> int:
        return self.present.size

    @cached_property
    def full(self) -> bool:
        """Whether all rows are there."""
        return bool(self.present.all())

    @cached_property
    def wanted(self) -> tuple[tuple[State, np.dtype[Any], Shape], ...]:
        """Dtypes and shapes of states."""
        return tuple((state, np.dtype(state.dtype), state.type(self.rows).shape) for state in self.links)

    def started(self) -> dict[str, Array]:
        """What rows begin with."""
        return self.fitted({state.input: np.zeros((), state.dtype) for state in self.links} | dict(self.initial))

    def fitted(self, values: Arrays) -> dict[str, Array]:
        """Values of some states in full size. Raises StreamError for what is no state, or does not fit one."""
        inputs = {state.input: state for state in self.links}
        unknown = [str(name) for name in values if name not in inputs]
        if unknown:
            wanted = f"one of {', '.join(inputs)}"
            raise StreamError("no states of this stream", net=self.net, blob=", ".join(unknown), wanted=wanted)
        return {name: inputs[name].fitted(self.net, array, self.rows) for name, array in values.items()}

    def with_present(self, present: Array) -> Places:
        """With rows that are there or not. Raises StreamError where the net declares another number of them."""
        for state in self.links:
            if state.fixed not in (None, present.size):
                problem = "the net declares how many rows a state has"
                raise StreamError(problem, net=self.net, blob=state.input, wanted=state.fixed, came=present.size)
        return replace(self, present=fixed(present))


@dataclass(frozen=True)
class States:
    """All states between two calls: input name -> array."""

    places: Places
    arrays: dict[str, Array]

    def put(self, new: Arrays, mask: Array | None = None, shared: bool = False) -> States:
        """With other values of some states.

        Args:
            mask: of which rows; None for all.
            shared: whether states without an axis of rows are put where there is a mask, too.
        """
        if mask is None:
            return States(self.places, read_only({**self.arrays, **new}))
        found = dict(self.arrays)
        for state in self.places.links:
            if state.input in new and (shared or state.axis is not None):
                found[state.input] = state.chosen(mask, new[state.input], found[state.input])
        return States(self.places, read_only(found))

    def with_present(self, present: Array) -> States:
        """With rows that are there or not."""
        return States(self.places.with_present(present), self.arrays)

    def grown(self) -> States:
        """With one place more, that of a row that is not there."""
        places = self.places.with_present(np.append(self.places.present, False))
        new, found = places.started(), dict(self.arrays)
        for state in places.links:
            if state.axis is not None:
                last = new[state.input].take([places.rows - 1], state.axis)
                found[state.input] = np.concatenate([on_host(found[state.input]), last], state.axis)
        return States(places, read_only(found))

    def taken(self, rows: Sequence[int]) -> States:
        """With these rows alone, in this order."""
        inputs = {state.input: state for state in self.places.links}
        initial, arrays = (
            {name: inputs[name].taken(rows, on_host(array)) for name, array in values.items()}
            for values in (self.places.initial, self.arrays)
        )
        places = self.places.with_present(self.places.present[np.array(rows, int)])
        return States(replace(places, initial=initial), read_only(arrays))


def first_states(net: str, links: Sequence[State], initial: Arrays, rows: int) -> States:
    """What a stream begins with. Raises StreamError for initial states that do not fit."""
    places = Places(net, tuple(links), dict(initial), fixed(np.ones(rows, bool)))
    return States(places, read_only(places.started()))


def fixed(array: Array) -> Array:
    """The array, not to be written any more."""
    array.flags.writeable = False
    return array


def read_only(arrays: dict[str, Array]) -> dict[str, Array]:
    """Arrays, not to be written any more."""
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def _broadcasts(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether arrays of a shape can be repeated to another."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(came in (1, size) for came, size in pairs)
