"""Lowering by example where sizes are symbols: an op is lowered at some sizes, and what comes out is fitted to them.

What moves elements is read off a reference that runs on element numbers, for which there must be sizes. Offsets and
strides are polynomials in these, of degree one in each, for all that only moves: two sizes for each symbol tell which,
and one more for all, and the sizes at hand, must agree. What does not is lowered for these, and they are pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import product
from math import prod
from typing import Any

from rnnops.compiler.ir.lowered import Lowered, UnsupportedError
from rnnops.example_sizes import FAILURES, FIRST, SECOND, THIRD, pinned, sizes_in, symbols_of, values_at
from rnnops.fill import filled_now
from rnnops.schema import Call, is_ours, schema_of
from rnnops.sizes import Size
from rnnops.symbols import Symbols, Values

CORNERS = tuple(zip(FIRST, SECOND, strict=True))
FEW = 1 << 16  # elements: as many numbers are soon looked at
Lower = Callable[[Lowered, Call], None]


def between_sizes(lower: Lower, lowered: Lowered, call: Call) -> None:
    """Lower an op, by examples where its sizes are symbols.

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
        lowered.views.update(pinned(views, sizes))
        return lower(lowered, pinned(call, sizes))


class _NoFitError(Exception):
    """Examples that no polynomial describes."""


def _lower_by_examples(lower: Lower, lowered: Lowered, call: Call, sizes: Sequence[Size]) -> None:
    symbols, numbers = sizes[0].symbols, symbols_of(sizes)
    if numbers is None or not is_ours(schema_of(call.op.type)):
        raise _NoFitError
    corners = [dict(zip(numbers, corner, strict=True)) for corner in product(*CORNERS[len(CORNERS) - len(numbers) :])]
    examples = [_example(lower, lowered, call, corner) for corner in corners]
    fitted = _fitted(examples, symbols, numbers)
    points = [dict(zip(numbers, THIRD, strict=False))]
    if all(prod(Values(symbols.values).number(size) for size in kind.shape) <= FEW for kind in call.output_types):
        points.append({number: int(symbols.values[number]) for number in numbers})
    for point in points:
        if filled_now(fitted, values_at(point)) != _example(lower, lowered, call, point):
            raise _NoFitError
    for name in ("views", "numbers", "types"):
        getattr(lowered, name).update(fitted[name])
    lowered.statements += [replace(statement, call=call) for statement in fitted["statements"]]


def _example(lower: Lower, lowered: Lowered, call: Call, point: Mapping[int, int]) -> dict[str, Any]:
    """What is added at some sizes."""
    values = values_at(point)
    known = {name for name in call.op.inputs if name in lowered.views or name in lowered.numbers}
    before = Lowered(
        views={name: filled_now(lowered.views[name], values) for name in known & lowered.views.keys()},
        numbers={name: lowered.numbers[name] for name in known & lowered.numbers.keys()},
    )
    after, plain = before.copy(), filled_now(call, values)
    try:
        lower(after, plain)
    except (*FAILURES, UnsupportedError) as error:
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
    """What is the same in all examples, with sizes where numbers follow from theirs. Raises _NoFitError."""
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
    half, place = len(examples) // 2, len(FIRST) - len(numbers)
    low, high = (_polynomial(part, symbols, numbers[1:]) for part in (examples[:half], examples[half:]))
    step = SECOND[place] - FIRST[place]
    slope = (high - low) // step
    if slope * step != high - low:
        raise _NoFitError
    return low + slope * (symbols.symbol(numbers[0]) - FIRST[place])
