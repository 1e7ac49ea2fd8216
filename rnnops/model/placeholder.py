"""Placeholder: the shape and dtype of data that is not there yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnops.errors import ModelError
from rnnops.types import FLOAT, Shape, Type, dtype_name, is_float


class Placeholder:
    """The shape and dtype of data that is not there yet: what a model is compiled for in place of an array.

    Args:
        shape: sizes, such as `(T, N, D)`.
        dtype: `"float"` is the model's own float dtype; labels, tokens and lengths are `"int32"`.

    Raises:
        ModelError: shape is no list of sizes.
        NetError: dtype is none.

    Example:
        >>> ro.model.Placeholder((7, 2), "int32")
        Placeholder([7, 2], 'int32')
    """

    def __init__(self, shape: Sequence[int], dtype: object = FLOAT) -> None:
        self.shape, self.dtype = _sizes(shape), dtype_name(dtype)

    def type(self, float_dtype: str) -> Type:
        """Its type in a model.

        Args:
            float_dtype: that `"float"` stands for.
        """
        return Type(float_dtype if self.dtype == FLOAT else self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"Placeholder({list(self.shape)}, {self.dtype!r})"


def as_placeholder(name: str, value: Any, float_dtype: str) -> Placeholder:
    """The placeholder of an array, or the one that is given.

    Raises ModelError for anything else, and for floats that are not the model's.
    """
    if isinstance(value, Placeholder):
        shape, dtype = value.shape, value.dtype
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        shape, dtype = tuple(value.shape), str(value.dtype).rpartition(".")[2]
    else:
        raise ModelError("this is no array", blob=name, wanted="an array or a Placeholder", came=type(value).__name__)
    if is_float(dtype) and dtype not in (FLOAT, float_dtype):
        hint = "Convert the array, or compile the model with dtype=."
        raise ModelError("floats of another dtype", blob=name, wanted=float_dtype, came=dtype, hint=hint)
    return Placeholder(shape, FLOAT if is_float(dtype) else dtype)


def _sizes(shape: object) -> Shape:
    listed = isinstance(shape, Sequence) and not isinstance(shape, str)
    sizes: tuple[Any, ...] = tuple(shape) if listed else ()  # type: ignore[arg-type]
    if not listed or not all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0 for size in sizes
    ):
        raise ModelError("not a shape", wanted="a tuple of integers of 0 or more", came=repr(shape))
    return tuple(int(size) for size in sizes)
