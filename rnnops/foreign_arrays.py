"""Arrays of other libraries: what their memory holds, and what it does not say by itself.

PyTorch negates and conjugates by a bit beside the memory, which exchange protocols do not carry, and can take memory
away from a tensor. No library is imported: arrays are asked for what they offer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnops.types import Array


def resolved(value: Any) -> Any:
    """An array whose memory holds its values: itself, or a copy where a bit beside the memory changes them."""
    for bit, resolve in (("is_conj", "resolve_conj"), ("is_neg", "resolve_neg")):
        if hasattr(value, resolve) and getattr(value, bit)():
            value = getattr(value, resolve)()
    return value


def from_dlpack(value: Any) -> Array:
    """A NumPy array over the memory of an array with `__dlpack__`, or over a copy where its memory has other values.

    Raises BufferError where there is no memory for all of its elements, and whatever the other library raises.
    """
    value = resolved(value)
    array = np.from_dlpack(value)
    if array.size and not _is_there(value, array):
        raise BufferError("there is no memory for all of its elements")
    return array


def _is_there(value: Any, array: Array) -> bool:
    """True if NumPy did not make memory up for what had none, and a tensor's storage reaches as far as its elements."""
    if array.flags.owndata or not hasattr(value, "untyped_storage"):
        return not array.flags.owndata
    steps = zip(value.shape, value.stride(), strict=True)
    last = value.storage_offset() + sum((size - 1) * stride for size, stride in steps)
    enough: bool = (last + 1) * value.element_size() <= value.untyped_storage().nbytes()
    return enough
