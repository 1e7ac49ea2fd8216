"""What the objects that a step reads hold now: getters of several things at once, as a watch calls them."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from operator import itemgetter
from typing import Any

import numpy as np

from rnnops.torch.code_reads import is_unread

MISSING = object()


def several(getter: Any, keys: Sequence[Any]) -> Callable[[Any], Iterable[Any]]:
    """A getter of a tuple, also for one key, which then comes twice."""
    fetch: Callable[[Any], Iterable[Any]] = getter(*keys) if len(keys) > 1 else getter(keys[0], keys[0])
    return fetch


class AsOneOfSeveral:
    """A getter of one thing as one of several."""

    __slots__ = ("_get",)

    def __init__(self, get: Callable[[Any], Any]) -> None:
        self._get = get

    def __call__(self, holder: Any) -> tuple[Any]:
        return (self._get(holder),)


class names_in_class:  # noqa: N801 - used as the getters of `operator` are
    def __init__(self, *names: str) -> None:
        self._get = itemgetter(*names)

    def __call__(self, value: type) -> Any:
        return self._get(value.__dict__)


class items_of_dict:  # noqa: N801
    """Items of a dict, whatever its class makes of `[]`."""

    def __init__(self, *keys: Any) -> None:
        self._keys = keys

    def __call__(self, value: dict[Any, Any]) -> Any:
        found = [dict.__getitem__(value, key) for key in self._keys]
        return found if len(found) > 1 else found[0]


class items_of_sequence:  # noqa: N801
    def __init__(self, *places: int) -> None:
        self._places = places

    def __call__(self, value: Any) -> Any:
        held = list(value)
        found = [held[place] for place in self._places]
        return found if len(found) > 1 else found[0]


def elements(value: Any) -> list[Any]:
    found: list[Any] = value.ravel().tolist()
    return found


def bytes_of(value: Any) -> Any:
    """What an array holds."""
    return (value.tobytes(), value.shape, value.dtype) if isinstance(value, np.ndarray) else bytes(value)


def keys_of_class(value: type) -> tuple[str, ...]:
    return tuple(value.__dict__)


def variable_now(value: ContextVar[Any], key: None) -> Any:
    return value.get(MISSING)


def of_variable(*keys: None) -> Callable[[ContextVar[Any]], Any]:
    return (lambda value: [value.get(MISSING)] * 2) if len(keys) > 1 else (lambda value: value.get(MISSING))


def referent(value: Any) -> tuple[Any]:
    return (value(),)


def slots_now(names: tuple[str, ...], value: Any) -> list[bool]:
    return [has_slot(value, name) for name in names]


def has_slot(value: Any, name: str) -> bool:
    try:
        object.__getattribute__(value, name)
    except AttributeError:
        return False
    return True


def slots_of(kind: type) -> list[str]:
    return [
        name
        for base in kind.__mro__
        if not is_unread(base.__module__)
        for name, part in base.__dict__.items()
        if isinstance(part, types.MemberDescriptorType)
    ]


def is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a name that has no value yet
        return False
    return True


def text_of_key(key: Any) -> str:
    if isinstance(key, str):
        return "" if key == "cell_contents" else f".{key}"
    return f"[{key!r}]"[:40]
