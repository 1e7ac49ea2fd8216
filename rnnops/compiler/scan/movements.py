"""Ops that move elements without computing (Split, Transpose, Concat, Pad, ...), as views and copies.

What such an op does is read off its reference, run on element numbers.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from rnnops.compiler.scan.layouts import Layout, affine, box, dense
from rnnops.compiler.scan.lowered import Lowered, UnsupportedError
from rnnops.compiler.scan.statements import Access, Number, Statement
from rnnops.schema import Call, schema_of
from rnnops.types import Array, Type


def lower_movement(lowered: Lowered, call: Call) -> None:
    """Run the reference on element numbers, and read off what it does."""
    schema, neutral = schema_of(call.op.type), _without_fill(call)
    moved = [i for i in range(len(call.op.inputs)) if call.has(i) and (i == 0 or call.op.type == "Concat")]
    starts = np.cumsum([1, *(prod(call.shape(i)) for i in moved)])
    arrays: list[Any] = [None if not name else np.zeros(1) for name in call.op.inputs]
    for start, i in zip(starts, moved, strict=False):
        arrays[i] = np.arange(start, start + prod(call.shape(i)), dtype=np.int64).reshape(call.shape(i))
    for i in range(len(arrays)):
        if i not in moved and call.has(i) and i < len(call.values) and call.values[i] is not None:
            arrays[i] = call.values[i]
    if call.op.type == "Pad" and call.has(2):
        arrays[2] = np.zeros((), np.int64)
    result = schema.reference(neutral, *arrays)
    for name, kind, numbers in zip(
        call.op.outputs, call.output_types, result if isinstance(result, tuple) else (result,), strict=True
    ):
        if name:
            lower_numbers(lowered, call, name, kind, np.asarray(numbers), [call.op.inputs[i] for i in moved], starts)


def _without_fill(call: Call) -> Call:
    """The call with a fill value of 0, which is no element's number."""
    if "constant_value" not in call.op.attributes:
        return call
    attributes = {name: value for name, value in call.op.attributes.items() if name != "constant_value"}
    return replace(call, op=replace(call.op, attributes=attributes))


def lower_numbers(
    lowered: Lowered, call: Call, name: str, kind: Type, numbers: Array, sources: list[str], starts: Array
) -> None:
    """A blob whose elements are those of other blobs: a view where it can be one, else copies.

    Args:
        numbers: for each element the number of the one that it is, 0 for what is filled in.
        starts: the number of each source's first element, and one after the last.
    """
    if len(sources) == 1 and sources[0] in lowered.numbers and (numbers > 0).all():
        lowered.numbers[name] = lowered.numbers[sources[0]]
        return
    if len(sources) == 1 and sources[0] in lowered.views and (numbers > 0).all():
        access = lowered.views[sources[0]]
        layout = affine(access.layout.numbers().reshape(-1)[numbers - 1])
        if layout is not None:
            lowered.views[name] = replace(access, layout=layout)
            return
    _copied(lowered, call, name, kind, numbers, sources, starts)


def _copied(
    lowered: Lowered, call: Call, name: str, kind: Type, numbers: Array, sources: list[str], starts: Array
) -> None:
    target = lowered.own(name, kind)
    if (numbers == 0).any():
        fill = _fill(lowered, call, kind)
        lowered.statements.append(Statement(name, kind.shape, target, (fill,), "copy", call, kind.dtype))
    for source, start, stop in zip(sources, starts[:-1], starts[1:], strict=True):
        mask = (numbers >= start) & (numbers < stop)
        if mask.any():
            _copied_part(lowered, call, name, kind, mask, numbers - start, source)


def _copied_part(lowered: Lowered, call: Call, name: str, kind: Type, mask: Array, numbers: Array, source: str) -> None:
    region, positions = box(mask), dense(kind.shape).numbers()
    target = None if region is None else affine(positions[region])
    if region is None or target is None:
        raise UnsupportedError(f"{call.op.label}: this movement of elements has no compiled form")
    if source in lowered.numbers:
        operand: Access | Number = lowered.numbers[source]
    else:
        access = lowered.views[source]
        layout = affine(access.layout.numbers().reshape(-1)[numbers[region]])
        operand = (
            replace(access, layout=layout) if layout is not None else _by_table(lowered, name, access, numbers[region])
        )
    lowered.statements.append(Statement(name, target.shape, Access(name, target), (operand,), "copy", call, kind.dtype))


def _by_table(lowered: Lowered, name: str, access: Access, numbers: Array) -> Access:
    """Elements in an order that no strides describe: an array of their numbers is the index."""
    table = lowered.fresh(f"{name}/table")
    lowered.constants[table] = np.ascontiguousarray(access.layout.numbers().reshape(-1)[numbers])
    index = lowered.own(table, Type("int64", numbers.shape))
    still = Layout(0, numbers.shape, (0,) * numbers.ndim)
    return Access(access.owner, still, index, 1)


def _fill(lowered: Lowered, call: Call, kind: Type) -> Access | Number:
    if call.op.type == "Pad" and call.has(2):
        value = lowered.operand(call.op.inputs[2], ())
        return value if not isinstance(value, Access) else replace(value, layout=value.layout.broadcast_to(kind.shape))
    return call.attr("constant_value") if call.op.type == "Pad" else 0
