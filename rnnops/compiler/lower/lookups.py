"""Look-ups: Gather, its gradient, and labels that must be classes.

An index that is known before a run makes a view or a copy of a Gather. Any other is checked when it is used: one out of
range is moved inside, so that no memory but the blob's own is touched, and the run says that it was there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rnnops.compiler.ir.lowered import Lowered, UnsupportedError
from rnnops.compiler.ir.statements import Access, Statement
from rnnops.compiler.lower.movements import lower_numbers
from rnnops.schema import Call
from rnnops.types import Array, Shape, Type


def lower_gather(lowered: Lowered, call: Call) -> None:
    """`data[..., index, ...]`: the index replaces the data's axis."""
    axis, kind = call.axis(call.attr("axis"), call.rank(0)), call.output_types[0]
    name, size, rank = call.op.outputs[0], call.shape(0)[axis], call.rank(1)
    known = _known_index(lowered, call, size)
    if known is not None:
        starts = np.array([1, 1 + data_size(call)])
        numbers = np.take(np.arange(1, starts[1]).reshape(call.shape(0)), known, axis)
        return lower_numbers(lowered, call, name, kind, numbers, [call.op.inputs[0]], starts)
    data = lowered.in_memory(call.op.inputs[0], Type(call.dtype(0), call.shape(0)))
    order = (*range(axis), *(None,) * rank, *range(axis + 1, call.rank(0)))
    index, limit = _placed_index(lowered, call, axis, kind.shape, size)
    layout = data.layout.with_axes(order, kind.shape)
    operand = Access(data.owner, layout, index, data.layout.strides[axis], limit)
    target = lowered.own(name, kind)
    lowered.statements.append(Statement(name, kind.shape, target, (operand,), "copy", call, kind.dtype))
    return None


def data_size(call: Call) -> int:
    """Elements of a call's first input."""
    return int(np.prod(call.shape(0)))


def lower_scatter_add(lowered: Lowered, call: Call) -> None:
    """Zeros, to which the slices of x are added where the index sends them."""
    axis, kind, shape = call.attr("axis"), call.output_types[0], call.shape(0)
    rank, name = call.rank(1), call.op.outputs[0]
    target = lowered.own(name, kind)
    lowered.statements.append(Statement(name, kind.shape, target, (0,), "copy", call, kind.dtype))
    order = (*range(axis), *(None,) * rank, *range(axis + 1, len(kind.shape)))
    index, limit = _placed_index(lowered, call, axis, shape, kind.shape[axis])
    place = Access(name, target.layout.with_axes(order, shape), index, target.layout.strides[axis], limit)
    operand = lowered.operand(call.op.inputs[0], shape)
    lowered.statements.append(Statement(name, shape, place, (operand,), "copy", call, kind.dtype, "add", None))


def lower_check_labels(lowered: Lowered, call: Call) -> None:
    """Labels as they are; those that are no class are noted."""
    kind = call.output_types[0]
    target = lowered.own(call.op.outputs[0], kind)
    operand = lowered.operand(call.op.inputs[0], kind.shape)
    lowered.statements.append(Statement(call.op.outputs[0], kind.shape, target, (operand,), "labels", call, kind.dtype))


def _known_index(lowered: Lowered, call: Call, size: int) -> Array | None:
    """An index that is known before a run, counted from the front. Raises UnsupportedError for one out of range."""
    name = call.op.inputs[1]
    if name in lowered.numbers:
        index = np.full(call.shape(1), lowered.numbers[name], np.int64)
    elif name in lowered.constants:
        index = lowered.constants[name].reshape(call.shape(1)).astype(np.int64)
    else:
        return None
    if ((index < -size) | (index >= size)).any():
        raise UnsupportedError(f"{call.op.label}: an index is out of range")
    return np.where(index < 0, index + size, index)


def _placed_index(lowered: Lowered, call: Call, axis: int, shape: Shape, size: int) -> tuple[Access, int]:
    """The index of a look-up, over the axes of `shape`, in which its own begin at `axis`; and what limits it."""
    name, known = call.op.inputs[1], _known_index(lowered, call, size)
    if known is None:
        index = lowered.views[name]
    else:
        table = lowered.fresh(f"{name}/table")
        lowered.constants[table] = np.ascontiguousarray(known)
        index = lowered.own(table, Type("int64", known.shape))
    rank = call.rank(1)
    order = (*(None,) * axis, *range(rank), *(None,) * (len(shape) - axis - rank))
    return replace(index, layout=index.layout.with_axes(order, shape)), size if known is None else 0
