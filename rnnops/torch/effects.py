"""Effects of a step besides its results: found by a journal, carried as states or counted where that is possible.

The journal holds copies of everything that a step could change, made before its code runs. All is put back at the end,
so that a trace and a self-check leave no mark.

A tensor that a step assigns (`self.mem = ...`) or changes in place becomes a state of the recurrence, and is written
back after a call. An attribute that code only adds to (`self.t += 1`) cannot decide anything: the sum is added after a
call. Any other change may decide how the next step goes, so such a step runs by PyTorch's own loop.
"""

from __future__ import annotations

import dis
import threading
import types
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import CellType, CodeType
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import SymInt, Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rnnops.torch.arguments import TensorKind, TensorLayout
from rnnops.torch.code_reads import MISSING, USER, bytes_of, kind_of, slots_of
from rnnops.torch.errors import StepError
from rnnops.torch.walk import MOST_ELEMENTS, Path, Slot, Walk, text_of, walk_all


class Change(NamedTuple):
    """One thing that a step changed.

    Args:
        holder: the object that holds it: a dict of attributes, items or globals, a class, a closure's cell, a list, ...
        key: place in the holder; None if only the whole holder can be compared.
        before, after: values; MISSING if there was no value, or none is left.
        where: the path to it, for messages.
    """

    holder: Any
    key: Any
    before: Any
    after: Any
    where: str


class Journal:
    """Copies of everything that a step could change: what is known to be read, and what newly met code names.

    Args:
        before: a walk over what the step could read.
    """

    def __init__(self, roots: Mapping[str, Any], before: Walk) -> None:
        self._roots, self._reads = roots, before.reads
        self._copies: dict[int, tuple[Any, Any, Path]] = {}
        self._tensors: dict[int, tuple[Tensor, int, Path]] = {}
        self._add(before)

    def on_code(self, code: types.CodeType, its_globals: dict[str, Any]) -> None:
        """Copies what new code could change, before it runs."""
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
        """The changes of values that were copied."""
        return [change for known in self._copies.values() for change in _changes_of(*known)]

    def changed_tensors(self) -> list[str]:
        """Paths to tensors that were changed in place."""
        known = self._tensors.values()
        return [text_of(path) for tensor, version, path in known if tensor._version != version]

    def forget_versions(self) -> None:
        """Tensors count as unchanged from here on."""
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
        return dict(dict.items(holder))  # even if its class overrides `[]`
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
        if bytes_of(before) != bytes_of(holder):
            yield Change(holder, None, before, holder, where)
    elif isinstance(holder, list) and len(holder) == len(before):
        for place, (one, other) in enumerate(zip(before, holder, strict=True)):
            if not is_same(one, other):
                yield Change(holder, place, one, other, f"{where}[{place}]")
    elif isinstance(holder, set):  # the copy of a set may have another order
        if set(map(id, before)) != set(map(id, holder)):
            yield Change(holder, None, before, holder, where)
    elif len(before) != len(holder) or not all(map(is_same, before, holder)):
        yield Change(holder, None, before, holder, where)


def is_same(one: Any, other: Any) -> bool:
    """True if two values count as no change: the same object, or equal numbers or texts."""
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
        np.copyto(np.asarray(holder), np.asarray(before))
        if isinstance(holder, np.ma.MaskedArray):
            holder.mask = before.mask
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
    """Restores the order of a dict's keys."""
    if isinstance(holder, dict) and list(dict.keys(holder)) != list(before):
        for key in before:
            dict.__setitem__(holder, key, dict.pop(holder, key))


NO_ATTRIBUTES = (CellType, ContextVar, type)


@dataclass(frozen=True)
class CarriedTensor:
    """A tensor that a step sets besides its carry.

    Args:
        slots: all places that hold the tensor. All of them are set.
        kind: dtype, shape and batch axis of the tensor.
        is_read: True if the value before a call matters.
        in_place: True if the step changes the tensor itself, which stays the same object.
        grows: True if the tensor comes to need a gradient when other tensors do.
        is_used: True if results depend on the value before a call. Its shape may matter even if this is False.
    """

    slots: tuple[Slot, ...]
    kind: TensorKind
    is_read: bool
    in_place: bool
    where: str
    before: Any = None
    grows: bool = True
    is_used: bool = True

    def after(self) -> Tensor:
        """The tensor that a step left in its place."""
        holder, key, read = self.slots[0]
        found = read(holder, key)
        if not isinstance(found, Tensor):
            raise StepError(f"a step sets {self.where} to a tensor in some steps only", came=type(found).__name__)
        return found

    def as_change(self) -> Change:
        holder, key, _ = self.slots[0]
        return Change(holder, key, self.before, None, self.where)

    def now(self, device: torch.device, rows: int) -> Tensor:
        """The value before a call. If it does not matter: zeros with the rows of the inputs, on their device."""
        holder, key, read = self.slots[0]
        if self.is_read and (self.is_used or self.in_place):
            found: Tensor = read(holder, key)
            return found.clone() if self.in_place else found  # the tensor's own memory is written at the end
        return torch.zeros(self.kind.of_batch(rows).shape, dtype=self.kind.dtype, device=device)

    def set(self, value: Any) -> None:
        """Puts a tensor into all its places."""
        for holder, key, _ in self.slots:
            put(holder, key, value)

    def write_back(self, last: Tensor) -> None:
        """Leaves the tensor as PyTorch's loop would leave it."""
        holder, key, read = self.slots[0]
        before = read(holder, key) if self.is_read else None
        if not self.grows and (before is None or not before.requires_grad):
            last = last.detach()
        if self.in_place:
            read(holder, key).copy_(last)
        else:
            self.set(last)


@dataclass(frozen=True)
class Counted:
    """An attribute to which each step adds the same number."""

    holder: Any
    key: Any
    by: int | float
    where: str

    def write_back(self, steps: int) -> None:
        value = self.holder[self.key] if isinstance(self.holder, dict) else getattr(self.holder, self.key)
        if isinstance(self.by, int) and isinstance(value, int):
            value += steps * self.by
        else:
            for _ in range(steps):
                value += self.by
        put(self.holder, self.key, value)


@dataclass(frozen=True)
class Effects:
    """Side effects of a step.

    Args:
        others: changes that may decide how the next step goes.
    """

    carried: tuple[CarriedTensor, ...] = ()
    counted: tuple[Counted, ...] = ()
    others: tuple[Change, ...] = ()

    @property
    def where(self) -> str:
        """Paths, for messages: of changes that may decide, else of all effects."""
        others = [change.where for change in self.others]
        known = [*(c.where for c in self.carried), *(c.where for c in self.counted)]
        return ", ".join(dict.fromkeys(others or known))

    def full(self, layout: TensorLayout) -> TensorLayout:
        """A layout with the carried tensors as extra states."""
        kinds = (_for_batch(carried, layout) for carried in self.carried)
        return TensorLayout((*layout.states, *kinds), layout.inputs, layout.device)

    def knows(self, change: Change) -> bool:
        """True if a carried tensor or a counter describes this change."""
        place = id(change.holder), change.key
        counted = ((id(c.holder), c.key) for c in self.counted)
        return place in counted or any((id(h), k) == place for c in self.carried for h, k, _ in c.slots)

    def deciding(self, others: Sequence[Change]) -> Effects:
        """These effects with more changes that may decide."""
        return Effects(self.carried, self.counted, (*self.others, *others))

    def growing(self, grown: Sequence[bool], used: Sequence[bool]) -> Effects:
        """These effects, with the knowledge which carried tensors come to need a gradient and which are used."""
        known = zip(self.carried, grown, used, strict=True)
        carried = (replace(c, grows=grows, is_used=is_used) for c, grows, is_used in known)
        return Effects(tuple(carried), self.counted, self.others)

    def all_changes(self) -> tuple[Change, ...]:
        """All effects as changes that may decide."""
        counted = (Change(c.holder, c.key, 0, 0, c.where) for c in self.counted)
        return (*self.others, *(c.as_change() for c in self.carried), *counted)

    def holders(self) -> list[Any]:
        """Objects in which a call sets something."""
        return [*(holder for c in self.carried for holder, _, _ in c.slots), *(c.holder for c in self.counted)]

    def ignored(self) -> set[tuple[int, Any]]:
        """Places whose values before a call do not matter, in the form that `Walk` takes."""
        slots = {(id(holder), key) for c in self.carried if not c.is_read for holder, key, _ in c.slots}
        counted = {(id(c.holder), c.key) for c in self.counted}
        others = {
            (id(c.holder), None if isinstance(c.holder, list) else c.key)
            for c in self.others
            if c.key is None or isinstance(c.holder, list) or type(c.before) in (int, float, str)
        }
        return slots | counted | others


def _for_batch(carried: CarriedTensor, layout: TensorLayout) -> TensorKind:
    """The carried tensor's kind for the batch size of a layout, if its value before does not matter."""
    return carried.kind if carried.is_read or layout.batch is None else carried.kind.of_batch(layout.batch)


def effects_of(
    changes: Sequence[Change], mutated: Sequence[Tensor], walk: Walk, layout: TensorLayout, codes: Sequence[CodeType]
) -> Effects:
    """Finds the effects of a step from the changes that one step made.

    Args:
        mutated: tensors that were changed in place.
        walk: a walk over everything that the step reads.
    """
    carried, counted, others = [], [], []
    for change in changes:
        is_key = change.key is not None and not isinstance(change.holder, type | ContextVar)
        if isinstance(change.after, Tensor) and is_key:
            carried.append(_assigned(change, layout))
        elif _is_counter(change, codes):
            counted.append(Counted(change.holder, change.key, change.after - change.before, change.where))
        else:
            others.append(change)
    places = {(id(h), k) for c in carried for h, k, _ in c.slots}
    for tensor in mutated:
        found = _mutated(tensor, walk, layout)
        if not places.intersection((id(h), k) for h, k, _ in found.slots):
            carried.append(found)
            places.update((id(h), k) for h, k, _ in found.slots)
    return Effects(tuple(carried), tuple(counted), tuple(others))


def _assigned(change: Change, layout: TensorLayout) -> CarriedTensor:
    kind = _kind(change.after, layout)
    before = change.before
    is_read = isinstance(before, Tensor) and (before.dtype, tuple(before.shape)) == (kind.dtype, kind.shape)
    slot = change.holder, change.key, _reader(change.holder)
    return CarriedTensor((slot,), kind, is_read, False, change.where, before)


def _reader(holder: Any) -> Any:
    return (lambda held, key: held[key]) if isinstance(holder, dict | list) else getattr


def _mutated(tensor: Tensor, walk: Walk, layout: TensorLayout) -> CarriedTensor:
    """The tensor that was changed in place, directly or through a view."""
    memory = tensor.untyped_storage().data_ptr()
    found = walk.tensors()
    places = [n for n, other in enumerate(found) if other is tensor]
    places = places or [n for n, other in enumerate(found) if other.untyped_storage().data_ptr() == memory]
    if not places:
        hint = "Hold it in an attribute, a list, a dict, a closure or a global, or carry it as a state."
        raise StepError("a step changes a tensor in place that rnnops cannot find", came=list(tensor.shape), hint=hint)
    whole = found[places[0]]
    slots = tuple(walk.slots[n] for n in places if found[n] is whole)
    return CarriedTensor(slots, _kind(whole, layout), True, True, walk.where_slot(places[0]), whole)


def _kind(tensor: Tensor, layout: TensorLayout) -> TensorKind:
    shape = tuple(size.node.hint if isinstance(size, SymInt) else int(size) for size in tensor.shape)
    return TensorKind(tensor.dtype, shape, 0 if shape and shape[0] == layout.batch else None)


def _is_counter(change: Change, codes: Sequence[CodeType]) -> bool:
    """True if all code only adds numbers to an attribute."""
    before, after = change.before, change.after
    is_number = type(before) is type(after) and type(before) in (int, float)
    if not is_number or not isinstance(change.key, str) or isinstance(change.holder, NO_ATTRIBUTES):
        return False
    is_set = any(
        i.opname == "STORE_ATTR" and i.argval == change.key for code in codes for i in dis.get_instructions(code)
    )
    return is_set and all(_only_adds(code, change.key) for code in codes)


def _only_adds(code: CodeType, name: str) -> bool:
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG", "PRECALL")]
    if kind_of(code.co_filename) == USER and name in [text for text in code.co_consts if isinstance(text, str)]:
        return False
    for number, instruction in enumerate(instructions):
        if instruction.argval != name or not isinstance(instruction.argval, str):
            continue
        is_store = instruction.opname == "STORE_ATTR"
        is_added = instruction.opname == "LOAD_ATTR" and instructions[number - 1].opname in ("COPY", "DUP_TOP")
        if not (is_store and _follows_addition(instructions, number)) and not is_added:
            return False
    return True


def _follows_addition(instructions: list[dis.Instruction], number: int) -> bool:
    swap, added = instructions[number - 1], instructions[number - 2]
    is_addition = added.opname in ("INPLACE_ADD", "INPLACE_SUBTRACT") or added.argrepr in ("+=", "-=")
    return swap.opname in ("SWAP", "ROT_TWO") and is_addition


class Mutations(TorchDispatchMode):
    """Notes tensors from outside of a trace that are changed in place within it, and restores them at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def tensors(self) -> list[Tensor]:
        return [tensor for tensor, _ in self._before.values()]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    pytree.tree_map_only(Tensor, self._note, value)
        return func(*args, **(kwargs or {}))

    def _note(self, tensor: Tensor) -> Tensor:
        if type(tensor) in (Tensor, torch.nn.Parameter, torch.nn.Buffer) and id(tensor) not in self._before:
            with torch.utils._python_dispatch._disable_current_modes():
                self._before[id(tensor)] = tensor, tensor.detach().clone()
        return tensor

    def restore(self) -> None:
        with torch.no_grad():
            # in reverse order, as views of one tensor may overlap
            for tensor, before in reversed(self._before.values()):
                tensor.detach().copy_(before)
