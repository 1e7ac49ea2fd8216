"""Dtypes and types of blobs.

Nets are dtype-free: a float blob has the dtype `"float"` until a run resolves it to the one float dtype of its feeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

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
OPAQUE = "opaque"  # what only rnnops itself hands from op to op, such as step workspaces
ANY = (*NUMERIC, BOOL)
MOST_ELEMENTS = 2**60  # an array has fewer: with eight bytes each, as indices have, no pointer could address them


def is_signed(dtype: str) -> bool:
    """True if a dtype is one of integers that may be below 0."""
    return dtype in INTEGERS and not dtype.startswith("u")


def limit(dtype: str, side: int) -> float | int:
    """The least number of a dtype, or for a side of 1 the largest."""
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
        """How many axes there are."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        if self.dtype == OPAQUE:
            return 0
        return self.size * np.dtype(self.dtype).itemsize

    def in_words(self) -> str:
        """`float32[3, 4], 12 elements, 48 bytes`."""
        return f"{self}, {self.size} elements, {self.nbytes} bytes"

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def is_too_large(shape: Shape) -> bool:
    """True if no memory can hold an array of a shape; NumPy has none of it even where another size is 0."""
    elements = prod(shape)
    return elements >= MOST_ELEMENTS or (elements == 0 and prod(filter(None, shape)) >= MOST_ELEMENTS)


def type_of(array: Array) -> Type:
    """The type of an array."""
    return Type(_name_of(array.dtype), array.shape)


_name_of: Callable[[np.dtype[Any]], str] = lru_cache(maxsize=64)(str)  # NumPy works a name out anew each time


COMPLEX = "Complex numbers are pairs of reals: one blob for each part."  # a hint


def dtype_name(dtype: object) -> str:
    """Normalise what a user gives as a dtype (`"int32"`, `np.int32`, `"float"`) to a name in `ANY`."""
    name = dtype if isinstance(dtype, str) else _numpy_name(dtype)
    if name not in ANY:
        hint = COMPLEX if "complex" in name else None
        raise NetError("unknown dtype", wanted=f"one of {', '.join(ANY)}", came=name, hint=hint)
    return name


def _numpy_name(dtype: object) -> str:
    """The name of a NumPy dtype or scalar class; other things are only shown."""
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
    """The common shape under multidirectional broadcasting (ONNX, NumPy), or None where there is none."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        wide = [size for size in sizes if size != 1]
        if any(size != wide[0] for size in wide):
            return None
        result.append(wide[0] if wide else 1)
    return tuple(result)
