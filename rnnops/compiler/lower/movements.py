"""Ops that move elements without computing (Split, Transpose, Concat, Pad, ...), as views and copies.

What such an op does is read off its reference, run on element numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rnnops.compiler.ir.layouts import Layout, affine, box, dense, split_axes
from rnnops.compiler.ir.lowered import Lowered, UnsupportedError
from rnnops.compiler.ir.statements import Access, Number, Statement
from rnnops.compiler.lower.between_sizes import between_sizes
from rnnops.errors import OpError
from rnnops.loops import View
from rnnops.schema import Call, schema_of
from rnnops.types import Array, Type

SHIFT = 1 << 41  # between two ways to number elements, above all numbers of one
LARGEST = 1 << 27  # elements of what is moved; their numbers are held while a plan is made, eight bytes each


def lower_movement(lowered: Lowered, call: Call, form: View) -> None:
    """Run the reference on element numbers, and read off what it does.

    Raises UnsupportedError where what goes where depends on a run, or is too much, OpError where the reference
    computes.
    """
    moved = [i for i in range(len(call.op.inputs)) if call.has(i) and (i == 0 or form.all_inputs)]
    unknown = [i for i in range(len(call.op.inputs)) if i not in moved and call.has(i) and _known(call, i) is None]
    if unknown:
        raise UnsupportedError(f"{call.op.label}: what moves where depends on '{call.op.inputs[unknown[0]]}'")
    if any(prod(shape) > LARGEST for shape in (*map(call.shape, moved), *(kind.shape for kind in call.output_types))):
        raise UnsupportedError(f"{call.op.label}: it moves too many elements to plan how")
    between_sizes(partial(_lower_moved, moved), lowered, call)


def _lower_moved(moved: Sequence[int], lowered: Lowered, call: Call) -> None:
    starts = np.cumsum([1, *(prod(call.shape(i)) for i in moved)])
    results = moved_numbers(call, moved, starts)
    for name, kind, numbers in zip(call.op.outputs, call.output_types, results, strict=True):
        if name:
            lower_numbers(lowered, call, name, kind, numbers, [call.op.inputs[i] for i in moved], starts)


def moved_numbers(call: Call, moved: Sequence[int], starts: Sequence[int] | Array) -> list[Array]:
    """For each result, the numbers of the elements that its elements are; 0 for what is filled in.

    Args:
        moved: the inputs whose elements move.
        starts: numbers of their first elements, above 0.

    Raises OpError where other numbers of elements do not come out as those numbers: the reference computes.
    """
    results = _referenced(call, moved, starts)
    for one, other, kind in zip(results, _referenced(call, moved, starts, SHIFT, -1), call.output_types, strict=True):
        same = one.shape == kind.shape and one.dtype == other.dtype == np.int64
        if not same or (one < 0).any() or not np.array_equal(np.where(one > 0, -one - SHIFT, one), other):
            raise OpError(
                "its loop form is View(), and its reference does more than move elements and fill in zeros",
                net=call.net,
                op=call.op.label,
                hint="Give it the form of what it computes, or none.",
            )
    return results


def _referenced(
    call: Call, moved: Sequence[int], starts: Sequence[int] | Array, shift: int = 0, sign: int = 1
) -> list[Array]:
    """What the reference makes of the numbers of elements, shifted, with a sign."""
    arrays: list[Any] = [None if not name else _known(call, i) for i, name in enumerate(call.op.inputs)]
    for start, i in zip(starts, moved, strict=False):
        first = start + shift
        arrays[i] = sign * np.arange(first, first + prod(call.shape(i)), dtype=np.int64).reshape(call.shape(i))
    result = schema_of(call.op.type).reference(_without_fill(call), *arrays)
    return [np.asarray(numbers) for numbers in (result if isinstance(result, tuple) else (result,))]


def _known(call: Call, i: int) -> Array | None:
    """An input that is known before a run; what Pad fills in is 0 here, which is no element's number."""
    if call.op.type == "Pad" and i == 2:
        return np.zeros((), np.int64)
    return call.values[i] if i < len(call.values) else None


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
        layout = affine(access.layout.numbers_at(numbers - 1))
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
        places = access.layout.numbers_at(numbers[region])
        shape = split_axes(places)
        layout = None if shape is None else affine(places.reshape(shape))
        if layout is not None:
            operand, target = replace(access, layout=layout), affine(positions[region].reshape(layout.shape)) or target
        else:
            operand = _by_table(lowered, name, access, numbers[region])
    lowered.statements.append(Statement(name, target.shape, Access(name, target), (operand,), "copy", call, kind.dtype))


def _by_table(lowered: Lowered, name: str, access: Access, numbers: Array) -> Access:
    """Elements in an order that no strides describe: an array of their numbers is the index."""
    table = lowered.fresh(f"{name}/table")
    lowered.constants[table] = np.ascontiguousarray(access.layout.numbers_at(numbers))
    index = lowered.own(table, Type("int64", numbers.shape))
    still = Layout(0, numbers.shape, (0,) * numbers.ndim)
    return Access(access.owner, still, index, 1)


def _fill(lowered: Lowered, call: Call, kind: Type) -> Access | Number:
    if call.op.type == "Pad" and call.has(2):
        value = lowered.operand(call.op.inputs[2], ())
        return value if not isinstance(value, Access) else replace(value, layout=value.layout.broadcast_to(kind.shape))
    return call.attr("constant_value") if call.op.type == "Pad" else 0
