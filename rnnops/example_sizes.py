"""Example sizes: what needs plain numbers, such as element numbers in NumPy, is tried with some where symbols stand.

What moves elements does the same for all sizes by which its shapes were inferred alike: conditions that these depend on
have been noted. That holds for the ops of rnnops; what others do is looked at for the sizes at hand, which are pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from rnnops.errors import RnnopsError
from rnnops.fill import filled_now
from rnnops.sizes import Size
from rnnops.symbols import Values

Value = TypeVar("Value")
Result = TypeVar("Result")
FIRST, SECOND, THIRD = (5, 11, 17, 23), (7, 13, 19, 29), (6, 8, 9, 10)  # sizes for each of some symbols
FAILURES = (RnnopsError, ValueError, IndexError)  # of rules and references at sizes that do not fit each other


def agreed(function: Callable[[Value], Result], value: Value) -> Result:
    """What a function makes of a value that needs plain numbers, where examples agree; else that for pinned sizes."""
    sizes = sizes_in(value)
    if not sizes:
        return function(value)
    symbols = symbols_of(sizes)
    try:
        found = [function(filled_now(value, values)) for values in _examples(symbols or ())]
    except FAILURES:
        found = []
    if found and all(one == found[0] for one in found):
        return found[0]
    return function(pinned(value, sizes))


def _examples(symbols: Sequence[int]) -> list[Values]:
    """Values of some symbols; none where there are none."""
    return [values_at(dict(zip(symbols, sizes, strict=False))) for sizes in (FIRST, SECOND, THIRD)] if symbols else []


def symbols_of(sizes: Sequence[Size]) -> list[int] | None:
    """The numbers of the symbols that sizes are computed from; None where there are other atoms, or too many."""
    numbers = sorted({atom for size in sizes for monomial in size.terms for atom in monomial})
    return numbers if len(numbers) <= len(FIRST) and numbers[-1] < sizes[0].symbols.count else None


def values_at(point: Mapping[int, int]) -> Values:
    """Values of some symbols, by number."""
    return Values([point.get(number, 0) for number in range(max(point) + 1)])


def pinned(value: Value, sizes: Sequence[Size]) -> Value:
    """A value with the plain numbers of its sizes, which are pinned."""
    for size in sizes:
        size.symbols.pin(size)
    result: Value = filled_now(value, Values(sizes[0].symbols.values))
    return result


def sizes_in(value: Any) -> list[Size]:
    """All sizes within a value of tuples, lists, mappings and dataclasses, less what these have worked out."""
    if type(value) is Size:
        return [value]
    if isinstance(value, Mapping):
        return [size for part in value.values() for size in sizes_in(part)]
    if isinstance(value, list | tuple):
        return [size for part in value for size in sizes_in(part)]
    if is_dataclass(value) and not isinstance(value, type):
        return [size for field in fields(value) if field.init for size in sizes_in(getattr(value, field.name))]
    return []
