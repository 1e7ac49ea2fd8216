"""What a step changes beside its carry: found by copies of all that it could change, made before its code runs.

Everything is put back at the end, so that a trace and the self-check leave no mark.
"""

from __future__ import annotations

import threading
import types
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from rnnops.torch.getters import MISSING, slots_of
from rnnops.torch.walk import MOST_ELEMENTS, Path, Walk, text_of, walk_all


class Change(NamedTuple):
    """One thing that a step changed.

    Args:
        holder: what it is in: a dict of attributes, items or globals, a class, a closure's cell, a list, ...
        key: where in the holder; None where only the whole of it can be compared.
        before, after: MISSING where there was nothing, or nothing is left.
        where: the way to it, for messages.
    """

    holder: Any
    key: Any
    before: Any
    after: Any
    where: str


class Journal:
    """Copies of what a step could change: of all that code reads which is known, and of what new code names.

    Args:
        before: a walk over what the step could read.
    """

    def __init__(self, roots: Mapping[str, Any], before: Walk) -> None:
        self._roots, self._reads = roots, before.reads
        self._copies: dict[int, tuple[Any, Any, Path]] = {}
        self._tensors: dict[int, tuple[Tensor, int, Path]] = {}
        self._add(before)

    def on_code(self, code: types.CodeType, its_globals: dict[str, Any]) -> None:
        """Copy what new code could change, before it runs."""
        if self._reads.add(code, its_globals):
            self._add(walk_all(self._roots, self._reads, tensor_parts=False))

    def _add(self, walk: Walk) -> None:
        for holder, path in zip(walk.holders, walk.holder_paths, strict=True):
            if id(holder) not in self._copies:
                self._copies[id(holder)] = holder, _copied(holder), path
        for number in walk.slot_objects:
            tensor = walk.objects[number]
            if id(tensor) not in self._tensors and not tensor.is_inference():
                self._tensors[id(tensor)] = tensor, tensor._version, walk.paths[number]

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: Any) -> None:
        self.restore()

    def changes(self) -> list[Change]:
        """What is another now."""
        return [change for known in self._copies.values() for change in _changes_of(*known)]

    def changed_tensors(self) -> list[str]:
        """The ways to tensors that were changed in place."""
        known = self._tensors.values()
        return [text_of(path) for tensor, version, path in known if tensor._version != version]

    def forget_versions(self) -> None:
        """Tensors count as they are now."""
        known = self._tensors.items()
        self._tensors = {number: (tensor, tensor._version, path) for number, (tensor, _, path) in known}

    def restore(self) -> None:
        """Put everything back."""
        for change in self.changes():
            put_back(change)
        for holder, before, _ in self._copies.values():
            _restore_order(holder, before)


def _copied(holder: Any) -> Any:
    if isinstance(holder, type | threading.local):
        return dict(holder.__dict__)
    if isinstance(holder, ContextVar):
        return {"value": holder.get(MISSING)}
    if isinstance(holder, types.CellType):
        return holder.cell_contents
    if isinstance(holder, np.ndarray):
        return holder.copy()
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, array):
        return array(holder.typecode, holder.tolist())
    if isinstance(holder, list | deque | set | bytearray) and len(holder) <= MOST_ELEMENTS:
        return type(holder)(holder) if type(holder) in (list, set, bytearray) else list(holder)
    return {name: _slot(holder, name) for name in slots_of(type(holder))}


def _slot(holder: Any, name: str) -> Any:
    try:
        return object.__getattribute__(holder, name)
    except AttributeError:
        return MISSING


def _changes_of(holder: Any, before: Any, path: Path) -> Iterator[Change]:
    where = text_of(path)
    if isinstance(before, dict):
        now = _copied(holder)
        for key in [*before, *(key for key in now if key not in before)]:
            one, other = before.get(key, MISSING), now.get(key, MISSING)
            if not is_same(one, other):
                name = f".{key}" if not isinstance(holder, dict) or isinstance(key, str) else f"[{key!r}]"
                yield Change(holder, key, one, other, where + name)
    elif isinstance(holder, types.CellType):
        if not is_same(before, holder.cell_contents):
            yield Change(holder, "cell_contents", before, holder.cell_contents, where)
    elif isinstance(holder, np.ndarray):
        if before.tobytes() != holder.tobytes():
            yield Change(holder, None, before, holder, where)
    elif isinstance(holder, list) and len(holder) == len(before):
        for place, (one, other) in enumerate(zip(before, holder, strict=True)):
            if not is_same(one, other):
                yield Change(holder, place, one, other, f"{where}[{place}]")
    elif len(before) != len(holder) or not all(map(is_same, before, holder)):
        yield Change(holder, None, before, holder, where)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values count as no change: the same object, or equal numbers or texts."""
    if one is other:
        return True
    return type(one) is type(other) and isinstance(one, bool | int | float | str | bytes) and repr(one) == repr(other)


def put_back(change: Change) -> None:
    """Put back what was changed."""
    put(change.holder, change.key, change.before)


def put(holder: Any, key: Any, value: Any) -> None:
    """Put a value where a change was."""
    if key is None:
        _replace_contents(holder, value)
    elif isinstance(holder, dict):
        dict.pop(holder, key, None) if value is MISSING else dict.__setitem__(holder, key, value)
    elif isinstance(holder, list):
        holder[key] = value
    elif isinstance(holder, type):
        type.__delattr__(holder, key) if value is MISSING else type.__setattr__(holder, key, value)
    elif isinstance(holder, types.CellType):
        holder.cell_contents = value
    elif isinstance(holder, ContextVar):
        if value is not MISSING:
            holder.set(value)
    elif isinstance(holder, threading.local):
        delattr(holder, key) if value is MISSING else setattr(holder, key, value)
    elif value is MISSING:
        object.__delattr__(holder, key)
    else:
        object.__setattr__(holder, key, value)


def _replace_contents(holder: Any, before: Any) -> None:
    if isinstance(holder, np.ndarray):
        np.copyto(holder, before)
    elif isinstance(holder, array):
        holder[:] = array(holder.typecode, list(before))
    elif isinstance(holder, list | bytearray):
        holder[:] = before
    elif isinstance(holder, set):
        holder.clear()
        holder.update(before)
    elif isinstance(holder, deque):
        holder.clear()
        holder.extend(before)


def _restore_order(holder: Any, before: Any) -> None:
    """The keys of a dict in the order that they had."""
    if isinstance(holder, dict) and list(holder) != list(before):
        for key in before:
            dict.__setitem__(holder, key, dict.pop(holder, key))
