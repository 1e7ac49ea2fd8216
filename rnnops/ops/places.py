"""Places in a flat array by indices of several axes; one that is out of range never becomes another element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnops.blob import Blob
from rnnops.ops.comparison import cast, greater_or_equal, less, or_, where
from rnnops.ops.indexing import slice as slice_
from rnnops.ops.movement import reshape
from rnnops.schema import Call
from rnnops.types import Array


def check_places(call: Call, indices: Array, size: int) -> Array:
    """Indices counted from the start. Raises TypeRuleError for one outside `[-size, size)`."""
    wrong = indices[(indices < -size) | (indices >= size)]
    if wrong.size:
        wanted = f"{-size} to {size - 1}"
        call.fail("an index is out of range", blob=call.op.inputs[1], wanted=wanted, came=int(wrong.flat[0]))
    return np.where(indices < 0, indices + size, indices)


def places_of(indices: Blob, base: Array, columns: Sequence[tuple[int | None, int, int]], count: int) -> Blob:
    """`base + sum(index * stride)` over columns, one for each row of indices.

    Args:
        columns: (column of indices, None for all of them; size of the axis; its stride).
        count: of the rows there are; a place beyond it says that an index is out of range.
    """
    whole, place = cast(indices, "int64"), None
    for column, size, stride in columns:
        part = whole if column is None else slice_(whole, [column], [column + 1], [-1])
        flat = reshape(part, [len(base)])
        index = where(less(flat, 0), flat + size, flat)
        wrong = or_(less(index, 0), greater_or_equal(index, size))
        moved = where(wrong, count + 1, index * stride)
        place = moved if place is None else place + moved
    own = indices.net.constant(base, "int64")
    return own if place is None else place if not base.any() else place + own
