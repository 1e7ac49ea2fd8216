"""Arrays of a plan that is recorded: what would move elements is noted as a job instead (`recorder.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.compiler.buffers.memory import SCRATCH, Buffer, allocate
from rnnops.twin_array import TwinArray
from rnnops.types import Array, Shape

BOX_AXES = 3  # that a job copies along, beside a run of bytes
Note = Callable[..., None]


class NotRecordedError(Exception):
    """Something is done with an array that no job does."""


class Region:
    """A piece of memory.

    Args:
        frame: its bytes; they are not looked at while a plan is recorded, and where it is `given` never.
        note: what notes jobs.
        given: number of the array of a caller that it stands for, -1 for memory of the plan's own.
        made: whether it is written anew in each call.
    """

    def __init__(self, frame: Array, note: Note, given: int = -1, made: bool = False) -> None:
        self.frame, self.note, self.given, self.made = frame, note, given, made
        self.start: int = frame.__array_interface__["data"][0]


class RecordedArray(TwinArray):
    """An array whose elements are not there yet.

    Args:
        memory: in which it will lie.
        twin: a view of the memory's frame.
    """

    memory: Region
    where: ClassVar[str] = "a plan that is recorded"

    @property
    def place(self) -> tuple[Region, int]:
        """The memory, and bytes from its beginning to the first element."""
        return self.memory, self.offset

    def assign(self, value: Any) -> None:
        """Note that elements are copied from another array, or one number for all."""
        source = value if isinstance(value, RecordedArray) else held(np.asarray(value, self.dtype), self.memory.note)
        for target, part in boxes(self, source.broadcast_to(self.shape)):
            self.memory.note("copy_box", 1, (target.place, part.place), box_of(target.twin, part.twin))

    def fill(self, number: Any) -> None:
        """Note that all elements become a number."""
        if number == 0 and self.flags.c_contiguous:
            self.memory.note("clear", 1, (self.place,), (self.nbytes,))
        else:
            self.assign(np.asarray(number, self.dtype))

    def copy(self) -> RecordedArray:
        made = made_array(self.shape, self.dtype, self.memory.note)
        made.assign(self)
        return made

    def __getattr__(self, name: str) -> Any:
        """What NumPy's arrays do beside is done to elements."""
        if name.startswith("__"):  # which NumPy asks for, to find out what this is
            raise AttributeError(name)
        raise NotRecordedError(f"NumPy's `{name}` is called from Python")

    def __array__(self, *_given: Any, **_named: Any) -> Any:
        raise NotRecordedError("elements are looked at from Python")


def made_array(shape: Shape, dtype: Any, note: Note, given: int = -1) -> RecordedArray:
    """An array of new memory, or one that a caller gives."""
    kind = np.dtype(dtype)
    nbytes = prod(shape) * kind.itemsize
    frame = allocate(Buffer("recorded", SCRATCH, "uint8", (nbytes,))) if given < 0 else np.empty(nbytes, np.uint8)
    return RecordedArray(Region(frame, note, given, made=True), frame.view(kind).reshape(shape))


def held(array: Array, note: Note) -> RecordedArray:
    """An array that lasts, as it is."""
    plain = np.asarray(array, order="C")
    return RecordedArray(Region(plain.reshape(-1).view(np.uint8), note), plain)


def box_of(target: Array, source: Array) -> tuple[int, ...]:
    """The numbers of `copy_box` (kernels/cpu/jobs.py) for arrays of one shape."""
    run, axes = _run_and_axes(target, source)
    ones = [(1, 0, 0)] * (BOX_AXES - len(axes))
    return (run, *(number for axis in (*ones, *axes) for number in axis))


def boxes(target: RecordedArray, source: RecordedArray) -> Iterator[tuple[RecordedArray, RecordedArray]]:
    """Two arrays of one shape in parts that one job copies each."""
    if target.size == 0:
        return
    _, axes = _run_and_axes(target.twin, source.twin)
    if len(axes) <= BOX_AXES:
        yield target, source
        return
    for index in product(*map(range, target.shape[: target.ndim - BOX_AXES])):
        yield target[index], source[index]


def _run_and_axes(target: Array, source: Array) -> tuple[int, Sequence[tuple[int, int, int]]]:
    """Bytes that lie together in both, and outer axes as (count, stride in the source, stride in the target)."""
    run, axes = target.itemsize, list[tuple[int, int, int]]()
    for count, out, into in zip(target.shape[::-1], source.strides[::-1], target.strides[::-1], strict=True):
        if count == 1:
            continue
        if not axes and out == into == run:
            run *= count
        elif axes and (out, into) == (axes[0][0] * axes[0][1], axes[0][0] * axes[0][2]):
            axes[0] = (axes[0][0] * count, *axes[0][1:])
        else:
            axes.insert(0, (count, out, into))
    return run, axes
