"""From a plan with symbols for sizes to a plan with numbers.

**Example sizes** (`agreed`). Some work needs plain numbers, such as moving element numbers in NumPy. It is done with
several example sizes in place of symbols. If all results agree, they hold for all sizes: an op of rnnops that moves
elements does the same for all sizes that meet the conditions noted by shape inference. Otherwise the work is done with
the current sizes, and the plan is then only for these (`specialised`).

**Filling in** replaces symbols by numbers. `filled_now` copies a small value at once. A `Template` is for large values
that a run reads only in part, such as plans. All filled-in copies share the parts without sizes. Any other attribute is
filled in when it is first read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import FunctionType, MappingProxyType
from typing import Any, Generic, TypeVar, cast

import numpy as np

from rnnops.errors import RnnopsError
from rnnops.sizes import LazyText, Size, Symbols, Values, sizes_in

Value = TypeVar("Value")
Result = TypeVar("Result")
FIRST, SECOND, THIRD = (5, 11, 17, 23), (7, 13, 19, 29), (6, 8, 9, 10)  # three examples: sizes of up to four symbols
FAILURES = (RnnopsError, ValueError, IndexError)  # errors of rules and references if example sizes do not fit


def agreed(function: Callable[[Value], Result], value: Value) -> Result:
    """The result of a function that needs plain numbers: that of the examples if they agree, else that of the current
    sizes, which are specialised."""
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
    return function(specialised(value, sizes))


def _examples(symbols: Sequence[int]) -> list[Values]:
    """Three examples of values for these symbols; empty if there are no symbols."""
    return [values_at(dict(zip(symbols, sizes, strict=False))) for sizes in (FIRST, SECOND, THIRD)] if symbols else []


def symbols_of(sizes: Sequence[Size]) -> list[int] | None:
    """The numbers of the symbols that sizes are computed from; None if there are too many, or atoms that are not
    symbols."""
    numbers = sorted({atom for size in sizes for monomial in size.terms for atom in monomial})
    return numbers if len(numbers) <= len(FIRST) and numbers[-1] < sizes[0].symbols.count else None


def values_at(point: Mapping[int, int]) -> Values:
    """Values of some symbols, by number."""
    return Values([point.get(number, 0) for number in range(max(point) + 1)])


def specialised(value: Value, sizes: Sequence[Size]) -> Value:
    """A value with the current numbers of its sizes. The plan then holds only for these numbers."""
    for size in sizes:
        size.symbols.guard(size)
    result: Value = filled_now(value, Values(sizes[0].symbols.values))
    return result


Whole = TypeVar("Whole")
GROWING = (dict, list, set)
PLAIN = (str, bytes, int, float, bool, type(None), np.ndarray, np.generic, np.dtype, type, FunctionType)
CONTAINERS = (tuple, list, set, frozenset, dict, MappingProxyType)


class NoTemplateError(Exception):
    """A value has a part that may or may not depend on sizes."""


class Shared:
    """Base of objects that all plans share, for all sizes."""


class Own:
    """Base of objects that are copied for each plan, even without sizes in them, because caches use them as keys."""


class Fresh:
    """Base of caches that belong to one plan."""

    def fresh(self) -> Any:
        """An empty cache of the same kind for another plan."""
        raise NotImplementedError


def filled_now(value: Any, values: Values) -> Any:
    """A value of tuples, lists, mappings and dataclasses with numbers in place of sizes. Other parts do not change."""
    if type(value) is Size:
        return values.number(value)
    if isinstance(value, tuple | list):
        parts = [filled_now(part, values) for part in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else _container(value, parts)
    if isinstance(value, Mapping):
        filled = {key: filled_now(part, values) for key, part in value.items()}
        return value if all(filled[key] is part for key, part in value.items()) else filled
    if not is_dataclass(value) or isinstance(value, type):
        return value
    before = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    after = {name: filled_now(part, values) for name, part in before.items()}
    return value if all(after[name] is part for name, part in before.items()) else type(value)(**after)


def _container(like: Any, parts: Iterable[Any]) -> Any:
    """Parts in a container of the same kind, which may be a named tuple."""
    return getattr(like, "_make", type(like))(parts)


class Template(Generic[Whole]):
    """A value that was made with symbols for sizes. It can be filled in for all sizes that lead to the same decisions.

    Args:
        value: plain data, containers, and objects whose attributes are all in their `__dict__`.
        symbols: the symbols that it was made with.

    Raises NoTemplateError if the value has other parts.
    """

    def __init__(self, value: Whole, symbols: Symbols) -> None:
        self.value, self.symbols = value, symbols
        self.recipes: dict[int, Recipe | None] = dict.fromkeys(_dependent(value))

    def at(self, sizes: Sequence[int]) -> Whole | None:
        """The value for certain sizes; None if they would have led to other decisions."""
        values = self.symbols.at(sizes)
        return None if values is None else cast(Whole, _Filling(self.recipes, values).filled(self.value))

    def __len__(self) -> int:
        """How many parts depend on sizes."""
        return len(self.recipes)


class _Filling:
    """A template with certain sizes. Each object of the template is filled in once.

    Args:
        recipes: id of a part that depends on sizes -> how to fill it in; None if this was not needed yet.
    """

    def __init__(self, recipes: dict[int, Recipe | None], values: Values) -> None:
        self.recipes, self.values = recipes, values
        self.found: dict[int, Any] = {}

    def filled(self, part: Any) -> Any:
        """A part of the template with its sizes filled in."""
        key = id(part)
        found = self.found.get(key)
        if found is not None:
            return found
        recipe = self.recipes.get(key, _SAME)
        if recipe is None:
            recipe = self.recipes[key] = _recipe(part, self.recipes)
        return part if recipe is _SAME else self.found.setdefault(key, recipe(self, part))


Recipe = Callable[[_Filling, Any], Any]
SOURCE = "(filling, part of the template)"  # a key of `__dict__` that cannot be the name of an attribute


def _recipe(part: Any, depends: Collection[int]) -> Recipe:
    """How to fill in a part that depends on sizes."""
    if type(part) is Size:
        return lambda filling, size: filling.values.number(size)
    if isinstance(part, LazyText):
        return lambda filling, said: said.text([filling.values.number(size) for size in said.sizes])
    if isinstance(part, Fresh):
        return lambda filling, fresh: fresh.fresh()
    if isinstance(part, dict | MappingProxyType):
        return lambda filling, mapping: {key: filling.filled(one) for key, one in mapping.items()}
    if isinstance(part, CONTAINERS):
        return lambda filling, container: _container(container, map(filling.filled, container))
    return _object_recipe(part, depends)


def _object_recipe(part: Any, depends: Collection[int]) -> Recipe:
    """How to make an object whose attributes are filled in when they are first read. Attributes that do not depend on
    sizes are copied at once."""
    attributes = vars(part)
    missing = [name for name, one in attributes.items() if id(one) in depends or isinstance(one, GROWING)]
    same = {name: one for name, one in attributes.items() if name not in missing}
    of: Any = type(part)
    kind = _filled_class(of, frozenset(missing))

    def made(filling: _Filling, part: Any) -> Any:
        filled = object.__new__(kind)
        filled.__dict__.update(same)
        filled.__dict__[SOURCE] = filling, attributes
        return filled

    return made


class _Attribute:
    """An attribute that is filled in when it is first read. From then on it is in the object's `__dict__`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        filling, attributes = instance.__dict__[SOURCE]
        part = attributes[self.name]
        filled = filling.filled(part)
        if filled is part and isinstance(part, GROWING):
            filled = part.copy()  # values that are put into it later may depend on sizes
        return instance.__dict__.setdefault(self.name, filled)


@cache
def _filled_class(kind: Any, missing: frozenset[str]) -> Any:
    """A class of filled-in objects, for which `isinstance` says that they are of class `kind`."""
    attributes = {name: _Attribute(name) for name in missing}
    return type(kind.__name__, (kind,), {**attributes, "__class__": property(lambda filled: kind)})


def _same(filling: _Filling, part: Any) -> Any:
    """A value that does not depend on sizes."""
    return part


_SAME: Recipe = _same


def _dependent(value: object) -> frozenset[int]:
    """The ids of all parts that contain a size, or an object that each plan has of its own."""
    parents: dict[int, list[int]] = {id(value): []}
    waiting, found = [value], []
    while waiting:
        part = waiting.pop()
        if type(part) is Size or isinstance(part, LazyText | Fresh | Own):
            found.append(id(part))
            if not isinstance(part, Own):
                continue
        for one in _parts(part):
            if id(one) not in parents:
                parents[id(one)] = []
                waiting.append(one)
            parents[id(one)].append(id(part))
    depends = set(found)
    while found:
        for parent in parents[found.pop()]:
            if parent not in depends:
                depends.add(parent)
                found.append(parent)
    return frozenset(depends)


def _parts(value: Any) -> Iterator[Any]:
    """The parts of a value. Raises NoTemplateError if they cannot be found."""
    if isinstance(value, PLAIN):
        looked_into = not (isinstance(value, np.ndarray) and value.dtype.hasobject) and not (
            isinstance(value, FunctionType) and value.__closure__
        )
    elif isinstance(value, dict | MappingProxyType):
        yield from value.values()
        looked_into = all(map(_is_plain, value))
    elif isinstance(value, CONTAINERS):
        looked_into = type(value) in CONTAINERS or hasattr(value, "_make")
        yield from value
    elif isinstance(value, Shared):
        looked_into = True
    else:
        known = type(value).__module__.startswith("rnnops.") or is_dataclass(value)
        looked_into = known and hasattr(value, "__dict__")
        yield from vars(value).values() if looked_into else ()
    if not looked_into:
        raise NoTemplateError(f"{type(value).__qualname__}")


def _is_plain(key: object) -> bool:
    """True if a key of a mapping does not depend on sizes."""
    return all(map(_is_plain, key)) if isinstance(key, tuple) else isinstance(key, PLAIN)
