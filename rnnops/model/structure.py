"""Nested tuples, lists and dicts of blobs, placeholders or arrays: what models take and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def leaves(structure: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What lies in a structure, with names: the structure's own, followed by `_<place or key>` for each level."""
    if isinstance(structure, dict):
        for key, part in structure.items():
            yield from leaves(part, f"{name}_{key}")
    elif isinstance(structure, list | tuple):
        for place, part in enumerate(structure):
            yield from leaves(part, f"{name}_{place}")
    else:
        yield name, structure


def mapped(structure: Any, function: Callable[[str, Any], Any], name: str) -> Any:
    """A structure of the same kind with `function(name, leaf)` in place of each leaf; names as in `leaves`."""
    if isinstance(structure, dict):
        return {key: mapped(part, function, f"{name}_{key}") for key, part in structure.items()}
    if isinstance(structure, list | tuple):
        parts = [mapped(part, function, f"{name}_{place}") for place, part in enumerate(structure)]
        return structure._make(parts) if hasattr(structure, "_make") else type(structure)(parts)
    return function(name, structure)
