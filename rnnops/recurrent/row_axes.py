"""Along which axes of an op's operands the rows of its results run.

Limits: look-ups and what fills in elements (Pad) are said to mix rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from rnnops.example_sizes import agreed
from rnnops.loops import MATMULS, Pointwise, Reduction, View
from rnnops.ops.reduction import Reduce
from rnnops.schema import Call, form_of, is_ours, schema_of
from rnnops.types import Array, Shape

Axes = Sequence[int | None]
OF_ALL_AXES_ON = ("LayerNormalization", "RMSNormalization")  # they mix all axes from `axis` on


def row_axes(call: Call, axis: int) -> Axes:
    """For each operand of an op the axis that rows run along, None where it is the same for all rows.

    Args:
        axis: of the results that rows run along.

    Returns: nothing for an op whose rows do not follow from the same rows of its operands alone.
    """
    form, schema = form_of(call), schema_of(call.op.type)
    if isinstance(form, Pointwise):
        begins = dict(form.begins)
        return [_aligned(call, i, axis, begins.get(i)) for i in range(len(call.op.inputs))]
    if call.op.type in ("Dropout", "RandomUniformLike"):
        return [_aligned(call, 0, axis)]
    if call.op.type in MATMULS:
        return _of_product(call, axis)
    if isinstance(form, Reduction) or isinstance(schema, Reduce):
        return _of_reduction(call, axis)
    if call.op.type in ("Softmax", "LogSoftmax", *OF_ALL_AXES_ON):
        first = call.axis(call.attr("axis"), call.rank(0))
        mixed = axis >= first if call.op.type in OF_ALL_AXES_ON else axis == first
        return [] if mixed else [_aligned(call, i, axis) for i in range(len(call.op.inputs))]
    if not isinstance(form, View):
        return []
    of_view = partial(_of_view, axis, form)
    return agreed(of_view, call) if is_ours(schema) else of_view(call)


def _aligned(call: Call, i: int, axis: int, begin: int | None = None) -> int | None:
    """The axis of operand `i` along an axis of the result: by broadcasting, unless its form says where it begins."""
    if not call.has(i):
        return None
    kind = call.output_types[0]
    own = axis - (kind.rank - call.rank(i) if begin is None else begin)
    return own if 0 <= own < call.rank(i) and call.shape(i)[own] == kind.shape[axis] else None


def _of_product(call: Call, axis: int) -> Axes:
    """Rows of the left operand, columns of the right one, or an axis over which both are stacked."""
    rank = call.output_types[0].rank
    if call.rank(0) == 1 or call.rank(1) == 1:
        return [axis, None] if call.rank(0) > 1 else []
    left, right = _aligned(call, 0, axis), _aligned(call, 1, axis)
    return [left if axis != rank - 1 else None, right if axis != rank - 2 else None]


def _of_reduction(call: Call, axis: int) -> Axes:
    folded = schema_of(call.op.type).reduced_axes(call)
    has_all_axes = call.output_types[0].rank == call.rank(0)
    kept = [a for a in range(call.rank(0)) if has_all_axes or a not in folded]
    return [] if kept[axis] in folded else [kept[axis], *(None for _ in call.op.inputs[1:])]


def _of_view(axis: int, form: View, call: Call) -> Axes:
    """As the op's reference says, run on arrays of which each element is the number of its row."""
    rows = call.output_types[0].shape[axis]
    moved = len(call.op.inputs) if form.all_inputs else 1
    if any(call.has(i) and call.values[i] is None for i in range(moved, len(call.op.inputs))):
        return []
    for own in [own for own, size in enumerate(call.shape(0)) if size == rows]:
        arrays = [_numbers(call.shape(i), own) for i in range(moved)] + list(call.values[moved:])
        found = schema_of(call.op.type).reference(call, *arrays)
        results = found if isinstance(found, tuple) else (found,)
        if all(np.array_equal(result, _numbers(result.shape, axis)) for result in results):
            return [own] * moved + [None] * (len(call.op.inputs) - moved)
    return []


def _numbers(shape: Shape, axis: int) -> Array:
    """For each element its position along an axis."""
    return np.broadcast_to(np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - axis - 1)), shape)
