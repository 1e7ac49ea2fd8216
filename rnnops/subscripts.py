"""Subscripts of blobs, `x[0, ..., :H]`, as ops: Slice, Gather, Squeeze, Unsqueeze, as NumPy means them.

Axes before an Ellipsis count from the front and those behind it from the back, so that no rank has to be known.

Limits: one array of indices, by itself or beside full slices; masks are no subscripts, as their sizes depend on values.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rnnops.errors import NetError

if TYPE_CHECKING:
    from rnnops.blob import Blob

FIRST, LAST = -(2**63), 2**63 - 1  # ONNX's words for "from the first" and "to the last"
WANTED = "integers, slices of integers, None, `...`, or one array of integers"


def subscript(blob: Blob, key: Any) -> Blob:
    """What `blob[key]` is.

    Args:
        key: integers, slices of integers, None (a new axis of size 1), one Ellipsis; or one array, list or blob of
            integers.

    Raises NetError for anything else.
    """
    items = [_with_dtype(blob, item) for item in (key if isinstance(key, tuple) else [key])]
    split = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    del items[split : split + 1]
    for item in items:
        _check(blob, item)
    found = _gathered(blob, items, split)
    found = _sliced(found, items, split)
    for op, wanted, counted in (("Squeeze", _is_integer, _is_old), ("Unsqueeze", _is_none, _is_left)):
        axes = [_axis(items, split, i, counted) for i, item in enumerate(items) if wanted(item)]
        found = found.net.call(op, found, axes) if axes else found
    return found


def _with_dtype(blob: Blob, item: Any) -> Any:
    """An item, an empty list as integers, as NumPy takes it. Raises NetError for lists of several lengths within."""
    try:
        return np.zeros(np.shape(item), np.int64) if isinstance(item, list) and not np.size(item) else item
    except ValueError:
        _refuse(blob, "indices are no array", item)


def _axis(items: Sequence[Any], split: int, i: int, counted: Any) -> int:
    """The axis of item i: from the front, or from the back where an Ellipsis lies before it."""
    return sum(map(counted, items[:i])) if i < split else -sum(map(counted, items[i:]))


def _is_integer(item: Any) -> bool:
    return hasattr(item, "__index__") and not _is_array(item)


def _is_array(item: Any) -> bool:
    return isinstance(item, list | np.ndarray) or hasattr(item, "net")


def _is_none(item: Any) -> bool:
    return item is None


def _is_old(item: Any) -> bool:
    """Whether an item stands for an axis of the operand."""
    return item is not None


def _is_left(item: Any) -> bool:
    """Whether an item stands for an axis of the result."""
    return not _is_integer(item)


def _check(blob: Blob, item: Any) -> None:
    """Raise NetError for an item that is no part of a subscript."""
    if item is Ellipsis:
        _refuse(blob, "a subscript has one `...` at most", item)
    dtype = _dtype(item) if _is_array(item) else None
    if isinstance(item, bool | np.bool_) or dtype == "bool":
        _refuse(blob, "masks are no subscripts", item, "ro.where(mask, x, 0.0) keeps the shape.")
    if dtype is not None and not dtype.startswith(("int", "uint")):
        _refuse(blob, "indices are no integers", item)
    bounds = (item.start, item.stop, item.step) if isinstance(item, slice) else ()
    if any(bound is not None and not _is_integer(bound) for bound in bounds):
        _refuse(blob, "a bound is no integer", item, "ro.slice takes blobs of integers.")
    if not (item is None or isinstance(item, slice) or _is_integer(item) or _is_array(item)):
        _refuse(blob, "this is no subscript", item)


def _dtype(item: Any) -> str:
    """Of an array of indices."""
    return str(np.asarray(item).dtype if isinstance(item, list) else item.dtype)


def _refuse(blob: Blob, problem: str, item: Any, hint: str | None = None) -> NoReturn:
    raise NetError(problem, net=blob.net.name, blob=blob.name, wanted=WANTED, came=repr(item)[:60], hint=hint)


def _gathered(blob: Blob, items: list[Any], split: int) -> Blob:
    """What an array of indices takes; its place among the items is that of a full slice afterwards."""
    arrays = [i for i, item in enumerate(items) if _is_array(item)]
    if not arrays:
        return blob
    if any(item != slice(None) for i, item in enumerate(items) if i != arrays[0]):
        hint = "Take one subscript after the other: x[:, indices][0]."
        _refuse(blob, "an array of indices stands beside other subscripts", tuple(items), hint)
    found = blob.net.call("Gather", blob, items[arrays[0]], _axis(items, split, arrays[0], _is_old))
    items.clear()
    return found


def _sliced(blob: Blob, items: Sequence[Any], split: int) -> Blob:
    """What integers and slices leave, axes of integers as size 1."""
    cuts = [(_axis(items, split, i, _is_old), *_bounds(item)) for i, item in enumerate(items) if item is not None]
    cuts = [cut for cut in cuts if cut[1:] != (0, LAST, 1)]
    if not cuts:
        return blob
    axes, starts, ends, steps = (list(column) for column in zip(*cuts, strict=True))
    return blob.net.call("Slice", blob, starts, ends, axes, steps)


def _bounds(item: Any) -> tuple[int, int, int]:
    """Start, end and step of a slice, or of the one element at an integer."""
    if not isinstance(item, slice):
        return index(item), index(item) + 1 or LAST, 1
    step = 1 if item.step is None else index(item.step)
    start = (0 if step > 0 else LAST) if item.start is None else index(item.start)
    end = (LAST if step > 0 else FIRST) if item.stop is None else index(item.stop)
    return start, end, step
