"""Dtypes and types of blobs, and arrays that are not NumPy's.

Nets have no fixed float dtype: a float blob has the dtype `"float"`. A run replaces it by the one float dtype of its
feeds.

**Twins** are for arrays (of a device, for example) that know only where their elements lie. NumPy decides what a view
of them is: each array has a twin, a NumPy array of the same shape and strides in a frame as large as the array's
memory. Slicing, reshaping and transposing go to the twin. The place of the twin's first element in the frame is the
place of the array's first element in the memory. A subclass defines how elements are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from rnnops.errors import NetError

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

FLOAT = "float"
FLOATS = (FLOAT, "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
BOOL = "bool"
NUMERIC = FLOATS + INTEGERS
OPAQUE = "opaque"  # values that only rnnops passes from op to op, such as step workspaces
ANY = (*NUMERIC, BOOL)
MOST_ELEMENTS = 2**60  # an array has fewer elements: with eight bytes each, pointers could not address so many


def is_signed(dtype: str) -> bool:
    """True for dtypes of integers that may be negative."""
    return dtype in INTEGERS and not dtype.startswith("u")


def limit(dtype: str, side: int) -> float | int:
    """The smallest number of a dtype, or with side 1 the largest."""
    if is_float(dtype):
        return side * float("inf")
    return int(np.iinfo(dtype).min if side < 0 else np.iinfo(dtype).max)


@dataclass(frozen=True)
class Type:
    """Dtype and shape of a blob whose sizes are known, printed as `float32[3, 4]`.

    Args:
        dtype: its name.
        shape: sizes.
    """

    dtype: str
    shape: Shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        if self.dtype == OPAQUE:
            return 0
        return self.size * np.dtype(self.dtype).itemsize

    def in_words(self) -> str:
        """As text: `float32[3, 4], 12 elements, 48 bytes`."""
        return f"{self}, {self.size} elements, {self.nbytes} bytes"

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def is_too_large(shape: Shape) -> bool:
    """True if no memory can hold an array of this shape. NumPy refuses such a shape even if another size is 0."""
    elements = prod(shape)
    return elements >= MOST_ELEMENTS or (elements == 0 and prod(filter(None, shape)) >= MOST_ELEMENTS)


def type_of(array: Array) -> Type:
    """The type of an array."""
    return Type(_name_of(array.dtype), array.shape)


_name_of: Callable[[np.dtype[Any]], str] = lru_cache(maxsize=64)(str)  # cached, as NumPy computes a name anew each time


COMPLEX = "Complex numbers are pairs of reals: one blob for each part."  # a hint


def dtype_name(dtype: object) -> str:
    """The name in `ANY` of a dtype that a user gives (`"int32"`, `np.int32`, `"float"`)."""
    name = dtype if isinstance(dtype, str) else _numpy_name(dtype)
    if name not in ANY:
        hint = COMPLEX if "complex" in name else None
        raise NetError("unknown dtype", wanted=f"one of {', '.join(ANY)}", came=name, hint=hint)
    return name


def _numpy_name(dtype: object) -> str:
    """The name of a NumPy dtype or scalar class. Other objects are only shown in errors."""
    if not isinstance(dtype, np.dtype | type):
        return repr(dtype)
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        return repr(dtype)


def is_float(dtype: str) -> bool:
    """True if blobs of this dtype can have gradients."""
    return dtype in FLOATS


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape | None:
    """The common shape by the broadcasting of ONNX and NumPy. None if there is none."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        wide = [size for size in sizes if size != 1]
        if any(size != wide[0] for size in wide):
            return None
        result.append(wide[0] if wide else 1)
    return tuple(result)


Self = TypeVar("Self", bound="TwinArray")


class TwinArray:
    """An array that is described by its twin.

    Args:
        memory: the memory in which it lies. `memory.frame` is an array of its bytes, which starts at the address
            `memory.start`.
        twin: a view of the memory's frame.
    """

    where: ClassVar[str]  # name of the memory's place, for errors

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
        """The array that belongs to another view of the same frame."""
        return type(self)(self.memory, twin)

    def __getitem__(self: Self, key: Any) -> Self:
        keys = key if isinstance(key, tuple) else (key,)
        basic = (int, np.integer, slice, type(None), type(Ellipsis))
        if not all(isinstance(one, basic) and not isinstance(one, bool) for one in keys):
            raise TypeError(f"arrays of {self.where} take whole numbers and slices as indices")
        return self.viewed(self.twin[(*keys, ...) if Ellipsis not in keys else key])

    def reshape(self: Self, *shape: Any) -> Self:
        """A view if possible, else a copy."""
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
        """Elements of the array (or of a copy) at given places. Offset and strides count elements in order."""
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
        """Copies the elements of another array into this one."""
        raise NotImplementedError

    def __setitem__(self, key: Any, value: Any) -> None:
        self[key].assign(value)

    def contiguous(self: Self) -> Self:
        """The array, or a copy if its elements are not in order without gaps."""
        return self if self.flags.c_contiguous else self.copy()

    def broadcast_to(self: Self, shape: tuple[int, ...]) -> Self:
        return self.viewed(np.broadcast_to(self.twin, shape))


def _steps_through(
    array: Any, offset: int, shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[slice, ...], list[int]] | None:
    """Slices that lead to the first element, and strides in bytes, for such elements of an array without gaps.

    None if a stride would have to go on from the end of one axis in another, so that no single stride in bytes fits.
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
