"""Ops that move elements: views, copies and look-ups, lowered by running them on element numbers.

**Views outside of loops** (`views_of`). The results of some ops are their input, with another offset and other strides.
To find these, the op's reference runs once on element numbers, as in the compiler (`statements.py`). Limits: while that
runs, each element takes some tens of bytes. Results without elements are not views.

**Lowering by example, if sizes are symbols** (`between_sizes`). A reference that runs on element numbers needs numbers
for all sizes. So an op is lowered at two values of each symbol. Offsets and strides of a pure movement are polynomials
of degree one in each symbol, which these examples determine. They must also hold at a third value of all symbols, and
at the actual sizes if there are few elements. If they do not hold, the op is lowered for the actual sizes, and its
symbols are fixed to these (`specialised`).

**Look-ups**: Gather, its gradient, and labels that must be classes. A Gather whose index is known before a run becomes
a view or a copy. Any other index is checked when it is used. One out of range is moved inside, so that only the blob's
own memory is touched, and the run reports it.

**Movements**: ops that move elements without computing (Split, Transpose, Concat, Pad, ...) become views or copies. The
reference of the op, run on element numbers, tells which element goes where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from rnnops import templates as fill
from rnnops.compiler.lower.scan import Lowered, UnsupportedError
from rnnops.compiler.lower.statements import Access, Layout, Number, Statement, affine, box, dense, split_axes
from rnnops.errors import OpError
from rnnops.net.loop_forms import View
from rnnops.net.schema import Call, form_of, is_ours, schema_of
from rnnops.sizes import Size, Symbols, Values, sizes_in
from rnnops.types import Array, Shape, Type

FIRST_NUMBER = 1 << 40  # number of the first element; fill values (the edges of Pad) are far below it


def stays_there(call: Call) -> bool:
    """True if an op that is not compiled leaves arrays on their device: it is a view, or copies them side by side."""
    return call.op.type == "Concat" or bool(views_of(call))


def views_of(call: Call) -> tuple[Layout, ...]:
    """For each result the layout of its elements in the op's first input. Empty unless all results are views of it."""
    if "views" not in call.derived:
        form = form_of(call)
        of_first = isinstance(form, View) and (not form.all_inputs or len(call.op.inputs) == 1)
        call.derived["views"] = _views(call) if of_first else ()
    found: tuple[Layout, ...] = call.derived["views"]
    return found


def _views(call: Call) -> tuple[Layout, ...]:
    if any(call.has(i) and call.values[i] is None for i in range(1, len(call.op.inputs))):
        return ()
    shape = call.shape(0)
    layouts = [_layout(result - FIRST_NUMBER, prod(shape)) for result in moved_numbers(call, [0], [FIRST_NUMBER])]
    return tuple(layout for layout in layouts if layout) if all(layouts) else ()


def _layout(numbers: Array, count: int) -> Layout | None:
    """The layout of elements with these numbers. None if some are not of the input, or no strides describe them."""
    known = numbers.size > 0 and numbers.min() >= 0 and numbers.max() < count
    return affine(numbers) if known else None


CORNERS = tuple(zip(fill.FIRST, fill.SECOND, strict=True))
FEW = 1 << 16  # elements: so few are quickly lowered once more, as a check
Lower = Callable[[Lowered, Call], None]


def between_sizes(lower: Lower, lowered: Lowered, call: Call) -> None:
    """Lower an op; by examples if its sizes are symbols.

    Args:
        lower: adds statements and views of the op; it needs plain numbers.
    """
    views = {name: lowered.views[name] for name in call.op.inputs if name in lowered.views}
    sizes = sizes_in((call.types, call.output_types, call.op.attributes, views))
    if not sizes:
        return lower(lowered, call)
    try:
        return _lower_by_examples(lower, lowered, call, sizes)
    except _NoFitError:
        lowered.views.update(fill.specialised(views, sizes))
        return lower(lowered, fill.specialised(call, sizes))


class _NoFitError(Exception):
    """Examples that no polynomial describes."""


def _lower_by_examples(lower: Lower, lowered: Lowered, call: Call, sizes: Sequence[Size]) -> None:
    symbols, numbers = sizes[0].symbols, fill.symbols_of(sizes)
    if numbers is None or not is_ours(schema_of(call.op.type)):
        raise _NoFitError
    corners = [dict(zip(numbers, corner, strict=True)) for corner in product(*CORNERS[len(CORNERS) - len(numbers) :])]
    examples = [_example(lower, lowered, call, corner) for corner in corners]
    fitted = _fitted(examples, symbols, numbers)
    points = [dict(zip(numbers, fill.THIRD, strict=False))]
    if all(prod(Values(symbols.values).number(size) for size in kind.shape) <= FEW for kind in call.output_types):
        points.append({number: int(symbols.values[number]) for number in numbers})
    for point in points:
        if fill.filled_now(fitted, fill.values_at(point)) != _example(lower, lowered, call, point):
            raise _NoFitError
    for name in ("views", "numbers", "types"):
        getattr(lowered, name).update(fitted[name])
    lowered.statements += [replace(statement, call=call) for statement in fitted["statements"]]


def _example(lower: Lower, lowered: Lowered, call: Call, point: Mapping[int, int]) -> dict[str, Any]:
    """The views, numbers, types and statements that an op is lowered to at some sizes."""
    values = fill.values_at(point)
    known = {name for name in call.op.inputs if name in lowered.views or name in lowered.numbers}
    before = Lowered(
        views={name: fill.filled_now(lowered.views[name], values) for name in known & lowered.views.keys()},
        numbers={name: lowered.numbers[name] for name in known & lowered.numbers.keys()},
    )
    after, plain = before.copy(), fill.filled_now(call, values)
    try:
        lower(after, plain)
    except (*fill.FAILURES, UnsupportedError) as error:
        raise _NoFitError from error
    if after.constants:
        raise _NoFitError
    return {
        "views": {name: view for name, view in after.views.items() if name not in before.views},
        "numbers": {name: number for name, number in after.numbers.items() if name not in before.numbers},
        "types": after.types,
        "statements": [replace(statement, call=None) for statement in after.statements],
    }


def _fitted(examples: Sequence[Any], symbols: Symbols, numbers: Sequence[int]) -> Any:
    """The common form of all examples; numbers that differ become polynomials in symbols. Raises _NoFitError."""
    first: Any = examples[0]
    if any(type(other) is not type(first) for other in examples):
        raise _NoFitError
    if all(other == first for other in examples):
        return first
    if isinstance(first, int):
        return _polynomial(examples, symbols, numbers)
    if isinstance(first, dict):
        if any(other.keys() != first.keys() for other in examples):
            raise _NoFitError
        return {key: _fitted([other[key] for other in examples], symbols, numbers) for key in first}
    if isinstance(first, list | tuple):
        if any(len(other) != len(first) for other in examples):
            raise _NoFitError
        return type(first)(_fitted(parts, symbols, numbers) for parts in zip(*examples, strict=True))
    if not is_dataclass(first):
        raise _NoFitError
    names = [field.name for field in fields(first) if field.init]
    parts = {name: _fitted([getattr(other, name) for other in examples], symbols, numbers) for name in names}
    kind: Any = type(first)
    return kind(**parts)


def _polynomial(examples: Sequence[int], symbols: Symbols, numbers: Sequence[int]) -> Any:
    """The polynomial of degree one in each symbol that has these values at its corners."""
    if len(examples) == 1:
        return examples[0]
    half, place = len(examples) // 2, len(fill.FIRST) - len(numbers)
    low, high = (_polynomial(part, symbols, numbers[1:]) for part in (examples[:half], examples[half:]))
    step = fill.SECOND[place] - fill.FIRST[place]
    slope = (high - low) // step
    if slope * step != high - low:
        raise _NoFitError
    return low + slope * (symbols.symbol(numbers[0]) - fill.FIRST[place])


def lower_gather(lowered: Lowered, call: Call) -> None:
    """`data[..., index, ...]`: the index replaces the data's axis."""
    axis, kind = call.axis(call.attr("axis"), call.rank(0)), call.output_types[0]
    name, size, rank = call.op.outputs[0], call.shape(0)[axis], call.rank(1)
    known = _known_index(lowered, call, size)
    if known is not None:
        starts = np.array([1, 1 + int(np.prod(call.shape(0)))])
        numbers = np.take(np.arange(1, starts[1]).reshape(call.shape(0)), known, axis)
        return lower_numbers(lowered, call, name, kind, numbers, [call.op.inputs[0]], starts)
    data = lowered.in_memory(call.op.inputs[0], Type(call.dtype(0), call.shape(0)))
    order = (*range(axis), *(None,) * rank, *range(axis + 1, call.rank(0)))
    index, limit = _placed_index(lowered, call, axis, kind.shape, size)
    layout = data.layout.with_axes(order, kind.shape)
    operand = Access(data.owner, layout, index, data.layout.strides[axis], limit)
    lowered.compute(name, kind, (operand,), "copy", call)
    return None


def lower_scatter_add(lowered: Lowered, call: Call) -> None:
    """Zeros, to which the slices of x are added where the index sends them."""
    axis, kind, shape = call.attr("axis"), call.output_types[0], call.shape(0)
    rank, name = call.rank(1), call.op.outputs[0]
    target = lowered.compute(name, kind, (0,), "copy", call)
    order = (*range(axis), *(None,) * rank, *range(axis + 1, len(kind.shape)))
    index, limit = _placed_index(lowered, call, axis, shape, kind.shape[axis])
    place = Access(name, target.layout.with_axes(order, shape), index, target.layout.strides[axis], limit)
    operand = lowered.operand(call.op.inputs[0], shape)
    lowered.statements.append(Statement(name, shape, place, (operand,), "copy", call, kind.dtype, "add", None))


def lower_check_labels(lowered: Lowered, call: Call) -> None:
    """Labels, unchanged. The run reports labels that are not a class."""
    kind = call.output_types[0]
    lowered.compute(call.op.outputs[0], kind, (lowered.operand(call.op.inputs[0], kind.shape),), "labels", call)


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
    """The index of a look-up over the axes of `shape`, in which its own axes begin at `axis`, and its `index_size`."""
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


SHIFT = 1 << 41  # added to numbers in the second numbering; more than all numbers of the first
LARGEST = 1 << 27  # elements of a movement; their numbers are held while a plan is made, eight bytes each


def lower_movement(lowered: Lowered, call: Call, form: View) -> None:
    """Lower a movement by running its reference on element numbers.

    Raises UnsupportedError if the movement depends on values of a run, or moves too many elements. Raises OpError if
    the reference computes.
    """
    moved = [i for i in range(len(call.op.inputs)) if call.has(i) and (i == 0 or form.all_inputs)]
    unknown = [i for i in range(len(call.op.inputs)) if i not in moved and call.has(i) and _known(call, i) is None]
    if unknown:
        raise UnsupportedError(f"{call.op.label}: the movement depends on the values of '{call.op.inputs[unknown[0]]}'")
    if any(prod(shape) > LARGEST for shape in (*map(call.shape, moved), *(kind.shape for kind in call.output_types))):
        raise UnsupportedError(f"{call.op.label}: it moves more than {LARGEST} elements, too many to plan")
    between_sizes(partial(_lower_moved, moved), lowered, call)


def _lower_moved(moved: Sequence[int], lowered: Lowered, call: Call) -> None:
    starts = np.cumsum([1, *(prod(call.shape(i)) for i in moved)])
    results = moved_numbers(call, moved, starts)
    for name, kind, numbers in zip(call.op.outputs, call.output_types, results, strict=True):
        if name:
            lower_numbers(lowered, call, name, kind, numbers, [call.op.inputs[i] for i in moved], starts)


def moved_numbers(call: Call, moved: Sequence[int], starts: Sequence[int] | Array) -> list[Array]:
    """For each result the number of the input element at each place; 0 for a fill value.

    Args:
        moved: the inputs whose elements move.
        starts: the number of each such input's first element, above 0.

    Raises OpError if the reference computes: a second numbering of the elements must come out in the same places.
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
    """The result of the reference on element numbers, which are shifted and multiplied by a sign first."""
    arrays: list[Any] = [None if not name else _known(call, i) for i, name in enumerate(call.op.inputs)]
    for start, i in zip(starts, moved, strict=False):
        first = start + shift
        arrays[i] = sign * np.arange(first, first + prod(call.shape(i)), dtype=np.int64).reshape(call.shape(i))
    result = schema_of(call.op.type).reference(_without_fill(call), *arrays)
    return [np.asarray(numbers) for numbers in (result if isinstance(result, tuple) else (result,))]


def _known(call: Call, i: int) -> Array | None:
    """An input that is known before a run, else None. Pad's fill value is 0 here, which is not an element's number."""
    if call.op.type == "Pad" and i == 2:
        return np.zeros((), np.int64)
    return call.values[i] if i < len(call.values) else None


def _without_fill(call: Call) -> Call:
    """The call with a fill value of 0, which is not an element's number."""
    if "constant_value" not in call.op.attributes:
        return call
    attributes = {name: value for name, value in call.op.attributes.items() if name != "constant_value"}
    return replace(call, op=replace(call.op, attributes=attributes))


def lower_numbers(
    lowered: Lowered, call: Call, name: str, kind: Type, numbers: Array, sources: list[str], starts: Array
) -> None:
    """A blob whose elements come from other blobs: a view if possible, else copies.

    Args:
        numbers: for each element the number of its source element; 0 for a fill value.
        starts: the number of each source's first element; then the number after the last source's last element.
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
    if (numbers == 0).any():
        lowered.compute(name, kind, (_fill(lowered, call, kind),), "copy", call)
    else:
        lowered.own(name, kind)
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
    """Access to elements in an order that no strides describe. An array of their numbers is the index."""
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
