"""Slices that begin where data say, of a length that the file says, as look-ups: `dynamic_slice` of JAX.

A Slice whose ends are its starts and a constant, or whose steps lead beyond every axis, has a size that is known though
its place is not. Places outside of the axis, which a Slice cuts to it, are an error in a run; so are those that begin
before the axis' end and go on after it, of which a Slice takes nothing: ends from 0 on count from the front.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rnnops.blob import Blob
from rnnops.onnx.loop_elements import FAR
from rnnops.onnx.loop_numbers import Around
from rnnops.onnx.node import Node
from rnnops.ops.comparison import equal, where
from rnnops.ops.extrema import clip
from rnnops.ops.indexing import gather, slice as slice_


def moving_slice(node: Node) -> Blob | None:
    """What a Slice takes whose starts are not known before a run; None where its size does not follow either."""
    names = node.reader.names
    if len(names) < 3 or node.known_value(1) is not None or node.reader.around.unknown_source(names[1]) is None:
        return None
    found = Places(node, Around(node.reader.around, "Slice"))
    starts, lengths, axes = found.starts(), found.lengths(), node.known_value(3)
    if starts is None or lengths is None or len(starts) != len(lengths) or (axes is None and node.has(3)):
        return None
    data = node.input(0)
    for axis, start, length in zip(range(len(starts)) if axes is None else axes.ravel(), starts, lengths, strict=True):
        data = along(node, data, int(axis), start, None if found.is_far() else length)
    return data


def along(node: Node, data: Blob, axis: int, start: str, length: int | None) -> Blob:
    """So many elements along one axis, from a start on; None: one, of all up to the end."""
    number = node.reader.around.known_value(start)
    if number is not None and number.size == 1:
        first = int(number.item())
        return slice_(data, [first], [first + length if length else first + 1 or FAR], [axis])
    places = node.reader.outer_blob(start)
    if length:
        places = before_the_end(places, length)
    return gather(data, places if length in (None, 1) else places + np.arange(length), axis)


def before_the_end(start: Blob, length: int) -> Blob:
    """A start, or a place that no axis has where so many elements would go on from its end to its front."""
    return where(equal(clip(start, -length, -1), start), FAR, start)


@dataclass
class Places:
    """Finds where a Slice begins and how much it takes.

    Args:
        around: numbers of the graph around the node.
    """

    node: Node
    around: Around

    def starts(self) -> list[str] | None:
        """A value of one number for each axis."""
        return self._parts(self.node.reader.names[1])

    def lengths(self) -> list[int] | None:
        """How many elements are taken along each axis, in steps of 1."""
        steps = self.node.known_value(4)
        if self.node.has(4) and steps is None:
            return None
        if steps is not None and (steps >= FAR).all():
            return [1] * steps.size if self.is_far() else None
        if steps is not None and (steps != 1).any():
            return None
        return self._added() or self._apart()

    def is_far(self) -> bool:
        """Whether all ends are beyond every axis."""
        ends = self.node.known_value(2)
        return ends is not None and bool((ends >= FAR).all())

    def _added(self) -> list[int] | None:
        """A constant that is added to all starts together."""
        starts, ends = (self._blob(self.node.reader.names[i]) for i in (1, 2))
        op = self.around.maker(ends)
        if op is None or op.type != "Add" or starts not in op.inputs:
            return None
        other = op.inputs[1 - op.inputs.index(starts)]
        value = self.node.reader.around.known_value(other)
        return None if value is None or value.ndim != 1 or (value < 1).any() else [int(number) for number in value]

    def _apart(self) -> list[int] | None:
        """The differences of ends and starts, one by one."""
        starts, ends = self.starts(), self._parts(self.node.reader.names[2])
        if starts is None or ends is None or len(starts) != len(ends):
            return None
        sums = [(self.around.sum_of(start), self.around.sum_of(end)) for start, end in zip(starts, ends, strict=True)]
        apart = [end.plus(start, -1) for start, end in sums if start is not None and end is not None]
        if len(apart) < len(starts) or any(total.factors or total.number < 1 for total in apart):
            return None
        return [total.number for total in apart]

    def _parts(self, name: str) -> list[str] | None:
        """The single numbers that a list is put together from."""
        blob = self._blob(name)
        if self._is_single(blob):
            return [blob]
        op = self.around.maker(blob)
        return (
            list(op.inputs) if op is not None and op.type == "Concat" and all(map(self._is_single, op.inputs)) else None
        )

    def _is_single(self, blob: str) -> bool:
        known = self.node.reader.around.known(blob)
        return known is not None and known[0].shape == (1,)

    def _blob(self, name: str) -> str:
        found: Blob = self.node.reader.around.blob(name)
        return found.name
