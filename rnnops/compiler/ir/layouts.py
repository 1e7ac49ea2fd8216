"""Layouts: where the elements of a blob lie in the memory of the blob that owns it.

Ops that move elements without computing (Split, Transpose, Concat, Pad, ...) are understood by what their reference
does to an array of element numbers, so that no op needs a second definition: a result whose numbers are an affine
function of the position is a view, anything else a copy.

Limits: the numbers of a blob are held while a plan is made, eight bytes an element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from rnnops.sizes import is_symbolic
from rnnops.types import Array, Shape


@dataclass(frozen=True)
class Layout:
    """Element (i, j, ...) is number `offset + i * strides[0] + j * strides[1] + ...` of the owner's elements.

    Axes of size 1 have stride 0, so that equal layouts compare equal.
    """

    offset: int
    shape: Shape
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        if 1 in self.shape:
            still = tuple(0 if size == 1 else stride for size, stride in zip(self.shape, self.strides, strict=True))
            object.__setattr__(self, "strides", still)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def span(self) -> tuple[int, int]:
        """The lowest and the highest number."""
        moves = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        return self.offset + sum([m for m in moves if m < 0]), self.offset + sum([m for m in moves if m > 0])

    def numbers(self) -> Array:
        """The owner's element numbers, in the layout's shape."""
        total = np.full(self.shape, self.offset, np.int64)
        for axis, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = np.arange(size, dtype=np.int64) * stride
            total += steps.reshape(-1, *(1,) * (len(self.shape) - axis - 1))
        return total

    def numbers_at(self, positions: Array) -> Array:
        """The owner's element numbers at these positions, counted row by row."""
        if self.strides == dense(self.shape).strides:  # as most are, and divisions of a large weight's take long
            return positions + self.offset
        total = np.full(positions.shape, self.offset, np.int64)
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            positions, place = np.divmod(positions, size)
            total += place * stride
        return total

    def broadcast_to(self, shape: Shape) -> Layout:
        """The layout as an operand of something of another shape: axes of size 1 and missing ones do not move."""
        missing = len(shape) - len(self.shape)
        return Layout(self.offset, shape, (*(0,) * missing, *self.strides))

    def with_axes(self, axes: tuple[int | None, ...], shape: Shape) -> Layout:
        """The layout over other axes: axis `axes[i]` becomes axis i, None stands for one along which nothing moves."""
        strides = tuple(0 if axis is None else self.strides[axis] for axis in axes)
        return Layout(self.offset, shape, strides)


def dense(shape: Shape) -> Layout:
    """Row-major order without gaps."""
    return _dense(shape) if is_symbolic(shape) else _known_dense(shape)


@lru_cache(maxsize=1024)
def _known_dense(shape: Shape) -> Layout:
    return _dense(shape)


def _dense(shape: Shape) -> Layout:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return Layout(0, shape, tuple(reversed(strides)))


def affine(numbers: Array) -> Layout | None:
    """The layout whose numbers these are; None where they are no affine function of the position."""
    if numbers.size == 0:
        return None
    first = numbers[(0,) * numbers.ndim]
    strides = []
    for axis, size in enumerate(numbers.shape):
        second = tuple(1 if other == axis else 0 for other in range(numbers.ndim))
        strides.append(int(numbers[second] - first) if size > 1 else 0)
    layout = Layout(int(first), numbers.shape, tuple(strides))
    return layout if np.array_equal(layout.numbers(), numbers) else None


def split_axes(numbers: Array) -> Shape | None:
    """The shape in which these numbers may have strides: axes along which steps differ are split where they first do.

    None where an axis has no such parts. What a reshape of a view gives has them: `[N, 4, 64]`, read as `[N, 256]`.
    """
    shape: list[int] = []
    for axis in range(numbers.ndim):
        line = numbers[tuple(slice(None) if other == axis else 0 for other in range(numbers.ndim))]
        parts: list[int] = []
        while True:
            steps = np.diff(line)
            changes = np.flatnonzero(steps != steps[0]) if steps.size else steps
            if not changes.size:
                shape += [line.size, *parts]
                break
            part = int(changes[0]) + 1
            if part == 1 or line.size % part:
                return None
            parts.insert(0, part)
            line = line[::part]
    return tuple(shape)


def box(mask: Array) -> tuple[slice, ...] | None:
    """The slices, with steps, that hold all true elements and no others; None where there are none."""
    if not mask.any():
        return None
    slices = []
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        found = np.flatnonzero(mask.any(axis=others))
        step = int(found[1] - found[0]) if found.size > 1 else 1
        slices.append(slice(int(found[0]), int(found[-1]) + 1, step))
    region = tuple(slices)
    return region if mask[region].all() and mask[region].size == mask.sum() else None
