"""Nested tuples, lists and dicts of blobs, placeholders or arrays: what models take and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def leaves(structure: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What lies in a structure, with names: the structure's own, followed by `_<place or key>` for each level."""
    if isinstance(structure, dict | list | tuple):
        for key, part in _parts(structure):
            yield from leaves(part, f"{name}_{key}")
    else:
        yield name, structure


def mapped(structure: Any, function: Callable[[str, Any], Any], name: str) -> Any:
    """A structure of the same kind with `function(name, leaf)` in place of each leaf; names as in `leaves`."""
    if not isinstance(structure, dict | list | tuple):
        return function(name, structure)
    parts = [(key, mapped(part, function, f"{name}_{key}")) for key, part in _parts(structure)]
    if isinstance(structure, dict):
        return dict(parts)
    values = [part for _, part in parts]
    return structure._make(values) if hasattr(structure, "_make") else type(structure)(values)


def form_of(structure: Any, describe: Callable[[str, Any], object], name: str) -> object:
    """Equal for structures of equal kinds, with `describe(name, leaf)` for leaves, and None for those that are."""
    if not isinstance(structure, dict | list | tuple):
        return None if structure is None else describe(name, structure)
    parts = [(key, form_of(part, describe, f"{name}_{key}")) for key, part in _parts(structure)]
    return (type(structure), *parts)


def _parts(structure: Any) -> Iterator[tuple[Any, Any]]:
    yield from structure.items() if isinstance(structure, dict) else enumerate(structure)
