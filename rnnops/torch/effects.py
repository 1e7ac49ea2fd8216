"""Effects of a step beside its results: tensors that it sets are carried as states, counters go on as in a loop.

A tensor that a step assigns (`self.mem = ...`), or changes in place, becomes a state of the recurrence, and is written
back after a call. An attribute that code only adds to (`self.t += 1`) cannot decide anything: it is added up. All else
that a step changes may decide how its next step goes, so that such a step runs by PyTorch's own loop.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import CellType, CodeType
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import SymInt, Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rnnops.torch.code_reads import USER, kind_of
from rnnops.torch.errors import StepError
from rnnops.torch.journal import Change, put
from rnnops.torch.layout import Kind, Layout
from rnnops.torch.walk import Slot, Walk

NO_ATTRIBUTES = (CellType, ContextVar, type)


@dataclass(frozen=True)
class Carried:
    """A tensor that a step sets beside its carry.

    Args:
        slots: where it is held, all of which are set.
        kind: of the tensor.
        is_read: whether the value before a call counts.
        in_place: whether the tensor itself is changed, and stays the same object.
        grows: whether it comes to need a gradient where others do.
    """

    slots: tuple[Slot, ...]
    kind: Kind
    is_read: bool
    in_place: bool
    where: str
    before: Any = None
    grows: bool = True

    def after(self) -> Tensor:
        """The tensor that a step left."""
        holder, key, read = self.slots[0]
        found = read(holder, key)
        if not isinstance(found, Tensor):
            raise StepError(f"a step sets {self.where} to a tensor only at times", came=type(found).__name__)
        return found

    def as_change(self) -> Change:
        holder, key, _ = self.slots[0]
        return Change(holder, key, self.before, None, self.where)

    def now(self, device: torch.device) -> Tensor:
        """The value before a call; zeros on the device of the inputs where it does not count."""
        holder, key, read = self.slots[0]
        if self.is_read:
            found: Tensor = read(holder, key)
            return found.clone() if self.in_place else found  # its own memory is written at the end
        return torch.zeros(self.kind.shape, dtype=self.kind.dtype, device=device)

    def set(self, value: Any) -> None:
        """Put a tensor where the step puts it."""
        for holder, key, _ in self.slots:
            put(holder, key, value)

    def write_back(self, last: Tensor) -> None:
        """Leave what a loop leaves."""
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
    """An attribute that each step adds the same number to."""

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
    """What a step changes beside its results.

    Args:
        others: what may decide how the next step goes.
    """

    carried: tuple[Carried, ...] = ()
    counted: tuple[Counted, ...] = ()
    others: tuple[Change, ...] = ()

    @property
    def where(self) -> str:
        """The ways to what may decide, or else to all of it, for messages."""
        others = [change.where for change in self.others]
        known = [*(c.where for c in self.carried), *(c.where for c in self.counted)]
        return ", ".join(dict.fromkeys(others or known))

    def full(self, layout: Layout) -> Layout:
        """A layout with the tensors that are carried beside."""
        kinds = (_for_batch(carried, layout) for carried in self.carried)
        return Layout((*layout.states, *kinds), layout.inputs, layout.device)

    def knows(self, change: Change) -> bool:
        """Whether a change is one of a tensor that is carried, or of a counter."""
        place = id(change.holder), change.key
        counted = ((id(c.holder), c.key) for c in self.counted)
        return place in counted or any((id(h), k) == place for c in self.carried for h, k, _ in c.slots)

    def deciding(self, others: Sequence[Change]) -> Effects:
        """The same where more may decide how the next step goes."""
        return Effects(self.carried, self.counted, (*self.others, *others))

    def growing(self, grown: Sequence[bool]) -> Effects:
        """The same where it is known which carried tensors come to need a gradient."""
        carried = (replace(c, grows=grows) for c, grows in zip(self.carried, grown, strict=True))
        return Effects(tuple(carried), self.counted, self.others)

    def all_changes(self) -> tuple[Change, ...]:
        """All of it as changes that may decide."""
        counted = (Change(c.holder, c.key, 0, 0, c.where) for c in self.counted)
        return (*self.others, *(c.as_change() for c in self.carried), *counted)

    def ignored(self) -> set[tuple[int, Any]]:
        """Places whose values before a call do not count, as keys of `Walk`."""
        slots = {(id(holder), key) for c in self.carried if not c.is_read for holder, key, _ in c.slots}
        counted = {(id(c.holder), c.key) for c in self.counted}
        others = {
            (id(c.holder), None if isinstance(c.holder, list) else c.key)
            for c in self.others
            if c.key is None or isinstance(c.holder, list) or type(c.before) in (int, float, str)
        }
        return slots | counted | others


def _for_batch(carried: Carried, layout: Layout) -> Kind:
    """Its kind for the batch size of a layout, where the value before does not matter."""
    kind = carried.kind
    if carried.is_read or kind.batch_axis is None or layout.batch is None:
        return kind
    return Kind(kind.dtype, (layout.batch, *kind.shape[1:]), kind.batch_axis)


def effects_of(
    changes: Sequence[Change], mutated: Sequence[Tensor], walk: Walk, layout: Layout, codes: Sequence[CodeType]
) -> Effects:
    """Effects by what one step changed.

    Args:
        mutated: tensors that were changed in place.
        walk: over all that the step reads.
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


def _assigned(change: Change, layout: Layout) -> Carried:
    kind = _kind(change.after, layout)
    before = change.before
    is_read = isinstance(before, Tensor) and (before.dtype, tuple(before.shape)) == (kind.dtype, kind.shape)
    slot = change.holder, change.key, _reader(change.holder)
    return Carried((slot,), kind, is_read, False, change.where, before)


def _reader(holder: Any) -> Any:
    return (lambda held, key: held[key]) if isinstance(holder, dict | list) else getattr


def _mutated(tensor: Tensor, walk: Walk, layout: Layout) -> Carried:
    """The tensor that was changed in place, or of which a view was."""
    memory = tensor.untyped_storage().data_ptr()
    found = walk.tensors()
    places = [n for n, other in enumerate(found) if other is tensor]
    places = places or [n for n, other in enumerate(found) if other.untyped_storage().data_ptr() == memory]
    if not places:
        hint = "Hold it in an attribute, a list, a dict, a closure or a global, or carry it as a state."
        raise StepError("a step changes a tensor in place that rnnops cannot find", came=list(tensor.shape), hint=hint)
    whole = found[places[0]]
    slots = tuple(walk.slots[n] for n in places if found[n] is whole)
    return Carried(slots, _kind(whole, layout), True, True, walk.where_slot(places[0]), whole)


def _kind(tensor: Tensor, layout: Layout) -> Kind:
    shape = tuple(size.node.hint if isinstance(size, SymInt) else int(size) for size in tensor.shape)
    return Kind(tensor.dtype, shape, 0 if shape and shape[0] == layout.batch else None)


def _is_counter(change: Change, codes: Sequence[CodeType]) -> bool:
    """Whether code does nothing with an attribute but adding numbers to it."""
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
    if kind_of(code.co_filename) == USER and name in _texts(code):
        return False
    for number, instruction in enumerate(instructions):
        if instruction.argval != name or not isinstance(instruction.argval, str):
            continue
        is_store = instruction.opname == "STORE_ATTR"
        is_added = instruction.opname == "LOAD_ATTR" and instructions[number - 1].opname in ("COPY", "DUP_TOP")
        if not (is_store and _follows_addition(instructions, number)) and not is_added:
            return False
    return True


def _texts(code: CodeType) -> Iterator[str]:
    return (constant for constant in code.co_consts if isinstance(constant, str))


def _follows_addition(instructions: list[dis.Instruction], number: int) -> bool:
    swap, added = instructions[number - 1], instructions[number - 2]
    is_addition = added.opname in ("INPLACE_ADD", "INPLACE_SUBTRACT") or added.argrepr in ("+=", "-=")
    return swap.opname in ("SWAP", "ROT_TWO") and is_addition


class Mutations(TorchDispatchMode):
    """Tensors that live outside of a trace and are changed in place within: they get their values back at the end."""

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
            for tensor, before in reversed(self._before.values()):  # views of one tensor may overlap
                tensor.detach().copy_(before)
