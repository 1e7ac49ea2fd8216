"""Arrays that only know where their elements lie, with as much of NumPy as running a net takes of views.

What a view is, NumPy decides: an array has a twin, a NumPy array of the same shape and strides over a frame as large as
its memory. Slicing, reshaping and transposing go to the twin; where its first element lies in the frame tells where the
array's lies in the memory. Who derives a class from this one says what copying elements means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

Self = TypeVar("Self", bound="TwinArray")


class TwinArray:
    """An array by its twin.

    Args:
        memory: in which it lies; it has a `frame`, of bytes, and the address of that as `start`.
        twin: a view of the memory's frame.
    """

    where: ClassVar[str]  # it lies, for errors

    def __init__(self, memory: Any, twin: Any) -> None:
        self.memory, self.twin = memory, twin

    # -- geometry --------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.twin.shape)

    @property
    def dtype(self) -> Any:
        return self.twin.dtype

    @property
    def ndim(self) -> int:
        return int(self.twin.ndim)

    @property
    def size(self) -> int:
        return int(self.twin.size)

    @property
    def itemsize(self) -> int:
        return int(self.twin.itemsize)

    @property
    def nbytes(self) -> int:
        return int(self.twin.nbytes)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.twin.strides)

    @property
    def flags(self) -> Any:
        return self.twin.flags

    @property
    def base(self) -> Any:
        """The array that owns the memory."""
        return self.memory

    @property
    def offset(self) -> int:
        """Bytes from the beginning of the memory to the first element."""
        return int(self.twin.__array_interface__["data"][0] - self.memory.start)

    def __len__(self) -> int:
        return len(self.twin)

    # -- views -----------------------------------------------------------------------------------------------------

    def viewed(self: Self, twin: Any) -> Self:
        """The array whose twin this view of the same frame is."""
        return type(self)(self.memory, twin)

    def __getitem__(self: Self, key: Any) -> Self:
        keys = key if isinstance(key, tuple) else (key,)
        basic = (int, np.integer, slice, type(None), type(Ellipsis))
        if not all(isinstance(one, basic) and not isinstance(one, bool) for one in keys):
            raise TypeError(f"arrays of {self.where} take whole numbers and slices as indices")
        return self.viewed(self.twin[(*keys, ...) if Ellipsis not in keys else key])

    def reshape(self: Self, *shape: Any) -> Self:
        """A view where there is one, else a copy."""
        twin = self.twin.reshape(*shape)
        if self.size == 0 or np.may_share_memory(twin, self.memory.frame):
            return self.viewed(twin)
        return self.copy().reshape(*shape)

    def view(self: Self, dtype: Any = None) -> Self:
        """The same memory, as another dtype if one is given."""
        return self.viewed(self.twin.view() if dtype is None else self.twin.view(dtype))

    def transpose(self: Self, *axes: Any) -> Self:
        return self.viewed(self.twin.transpose(*axes))

    def strided(self: Self, offset: int, shape: tuple[int, ...], strides: Sequence[int]) -> Self:
        """The elements of the array, or of a copy, that lie so; offset and strides count elements in order."""
        found = _steps_through(self.twin, offset, shape, strides)
        if found is not None:
            first, steps = found
            return self.viewed(np.lib.stride_tricks.as_strided(self.twin[first], shape, steps))
        flat = self.contiguous().reshape(-1)
        steps = [stride * self.itemsize for stride in strides]
        return flat.viewed(np.lib.stride_tricks.as_strided(flat.twin[offset:], shape, steps))

    # -- elements --------------------------------------------------------------------------------------------------

    def copy(self: Self) -> Self:
        """A contiguous copy."""
        raise NotImplementedError

    def assign(self, value: Any) -> None:
        """Take the elements of another array."""
        raise NotImplementedError

    def __setitem__(self, key: Any, value: Any) -> None:
        self[key].assign(value)

    def contiguous(self: Self) -> Self:
        """The array, or a copy where its elements do not lie one behind the other in order."""
        return self if self.flags.c_contiguous else self.copy()

    def broadcast_to(self: Self, shape: tuple[int, ...]) -> Self:
        return self.viewed(np.broadcast_to(self.twin, shape))


def _steps_through(
    array: Any, offset: int, shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[slice, ...], list[int]] | None:
    """Slices to the first element, and bytes from each to the next, of what would lie so in an array without gaps.

    None where a step goes on from the end of one axis in another, so that no number of bytes is that of all steps.
    """
    if array.size == 0 or 0 in shape or not array.ndim:
        return None
    first = np.array(np.unravel_index(offset, array.shape))
    low, high, steps = first.copy(), first.copy(), list[int]()
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            steps.append(0)
            continue
        step = np.array(np.unravel_index(abs(stride), array.shape)) * (1 if stride > 0 else -1)
        reached = (size - 1) * step
        low, high = low + np.minimum(reached, 0), high + np.maximum(reached, 0)
        steps.append(int(step @ array.strides))
    inside = (low >= 0).all() and (high < array.shape).all()
    return (tuple(slice(int(start), None) for start in first), steps) if inside else None
