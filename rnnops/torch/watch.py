"""Watches what a trace read. Before each call all of it is compared, and its tensors are fetched.

While all objects are the same, a flat list of fetches and comparisons is enough. If an object was replaced, the roots
are walked again. The trace still holds if the new walk has the same key, as for a list of equal values. Most loops
around `scan` make its function anew each time. That needs no new walk: the function and its closure cells replace the
old ones in the stored walk.

**Parametrized weights** (`torch.nn.utils.parametrize`) are computed by PyTorch once a call, outside of the trace. For
the trace such a weight is a tensor from outside, and autograd carries its gradient on. A weight that draws random
numbers differs from step to step, so it stays a part of the step.
"""

from __future__ import annotations

import copy
import gc
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack
from operator import attrgetter, getitem, is_, itemgetter
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, enable_grad
from torch.nn import Module, Parameter
from torch.nn.utils import parametrize
from torch.nn.utils.parametrize import ParametrizationList

from rnnops.kernels.cpu.native import threads
from rnnops.kernels.cpu.threads import ATTRIBUTE, ELEMENT, ITEM, KEYS, SIZE, TYPE, memory_address
from rnnops.torch.arguments import outside_of_graphs, swapped
from rnnops.torch.code_reads import MISSING, Reads, bytes_of, is_filled, keys_of_class
from rnnops.torch.errors import StepError
from rnnops.torch.walk import Slot, Walk, walk_all


def tensor_at(slot: Slot) -> Tensor:
    """The tensor that a slot holds now."""
    holder, key, read = slot
    found: Tensor = read(holder, key)
    return found


LISTS_WITH_HOLDERS = ("fetches", "tensor_fetches", "sized", "named", "slots", "holders", "functions")


def _parts(root: Any) -> tuple[Any, ...]:
    """Parts that a second `def` of the same code makes anew: a function, its dict and its closure cells.

    A bound method is one part.
    """
    return (root, root.__dict__, *(root.__closure__ or ())) if type(root) is FunctionType else (root,)


def _is_alike(root: Any, other: Any) -> bool:
    """True for two bound methods, or two functions of one `def`. The objects that they hold are not compared."""
    if type(root) is FunctionType is type(other):
        return root.__code__ is other.__code__ and root.__globals__ is other.__globals__
    return type(root) is MethodType is type(other)


class Successors:
    """Replaces the functions of a walk by other functions of the same code.

    Args:
        kept: ids of objects that must not be replaced.
    """

    def __init__(self, walk: Walk, kept: Set[int]) -> None:
        # id of a part -> (number of its root, number of the part in that root)
        self._owners: dict[int, tuple[int, int]] = {}
        for number, root in enumerate(walk.roots):
            parts = _parts(root) if isinstance(root, FunctionType | MethodType) else ()
            is_known = parts and all(map(is_filled, parts[2:])) and kept.isdisjoint(map(id, parts))
            if is_known and walk.is_separate(root, parts):
                self._owners.update((id(part), (number, place)) for place, part in enumerate(parts))
        self._numbers = {number for number, _ in self._owners.values()}
        self._places = [(name, *place) for name in LISTS_WITH_HOLDERS for place in self._places_in(getattr(walk, name))]
        self._lists = {name for name, *_ in self._places}

    def _places_in(self, entries: list[Any]) -> Iterator[tuple[int, int | None, int, int]]:
        """Finds the parts in a list.

        Yields the place, the place within a tuple there, and the numbers of root and part.
        """
        for place, entry in enumerate(entries):
            if id(entry) in self._owners:
                yield place, None, *self._owners[id(entry)]
            elif type(entry) is tuple:
                for within, value in enumerate(entry):
                    if id(value) in self._owners:
                        yield place, within, *self._owners[id(value)]

    def moved(self, walk: Walk, roots: Mapping[str, Any]) -> Walk | None:
        """The walk for other roots. Its values are not compared yet. None if these roots need a walk of their own."""
        parts: dict[int, tuple[Any, ...]] = {}
        for number, (before, root) in enumerate(zip(walk.roots, roots.values(), strict=True)):
            if root is not before:
                if number not in self._numbers or not _is_alike(before, root):
                    return None
                parts[number] = _parts(root)
        moved = copy.copy(walk)
        moved.roots = tuple(roots.values())
        for name in self._lists:
            setattr(moved, name, getattr(walk, name).copy())
        for name, place, within, number, part in self._places:
            if number in parts:
                entries, value = getattr(moved, name), parts[number][part]
                old = entries[place]
                entries[place] = value if within is None else (*old[:within], value, *old[within + 1 :])
        return moved


Check = tuple[int, Any, Any, Any]  # kind of the check, holder, key, expected object or number


TRIES = 16  # number of times that native checks are made. Walks whose checks keep failing are compared in Python.


def native_checks(walk: Walk) -> tuple[Callable[[Any], bool], Any] | None:
    """A native function that is True while all objects of a walk are the same, and the objects that it reads.

    None if some comparisons need Python.
    """
    checks: list[Check] = [(SIZE, held, None, len(held)) for held in walk.sized]
    checks += [(TYPE, value, None, type(value)) for value in walk.typed]
    checks += [(KEYS, held, tuple(held), len(held)) for held in walk.named]
    checks += [(ITEM, held, name, MISSING) for held, names in walk.apart for name in names]
    for fetch, holder in (*walk.fetches, *walk.tensor_fetches):
        found = _checks_of(fetch, holder)
        if found is None:
            return None
        checks += found
    if not all(isinstance(holder, dict) for kind, holder, _, _ in checks if kind in (ITEM, KEYS)):
        return None
    keys = [np.array([*map(id, key)], np.int64) if kind == KEYS else key for kind, _, key, _ in checks]
    words = np.array([(len(checks), id(False), id(True), 0), *map(_words_of, checks, keys)], np.int64)
    return threads().method("unchanged", words), (checks, keys)


def _words_of(check: Check, key: Any) -> tuple[int, int, int, int]:
    kind, holder, _, expected = check
    place = key if kind == ELEMENT else memory_address(key) if kind == KEYS else id(key)
    is_number = kind in (SIZE, KEYS)
    return kind, id(holder), place, expected if is_number else 0 if expected is MISSING else id(expected)


def _checks_of(fetch: Any, holder: Any) -> list[Check] | None:
    fetch = getattr(fetch, "_get", fetch)  # a getter may be wrapped in another one
    if isinstance(holder, type) and not isinstance(fetch, attrgetter):
        (inner,) = gc.get_referents(holder.__dict__)  # the dict behind the proxy
        if fetch is keys_of_class:
            return [(KEYS, inner, tuple(inner), len(inner))]
        holder = inner
    if not isinstance(fetch, itemgetter | attrgetter):
        return None
    kind = ATTRIBUTE if isinstance(fetch, attrgetter) else ELEMENT if type(holder) is list else ITEM
    read = getattr if kind == ATTRIBUTE else getitem
    return [(kind, holder, key, read(holder, key)) for key in fetch.__reduce__()[1]]


class Watch:
    """Watches the reads of a trace, by a walk from roots.

    Args:
        roots: the step and its cell, by name.
        reads: names that occur in the code that ran.
        ignored: places that are left out, as in `Walk`.
        changed: objects in which a call sets attributes or items. The trace is valid for these objects only.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        reads: Reads,
        ignored: Collection[tuple[int, Any]] = (),
        changed: Collection[Any] = (),
    ) -> None:
        self.reads, self._ignored = reads, ignored
        self._is_pinned = False
        walk = walk_all(roots, reads, ignored=ignored)
        self._changed = {*map(id, changed)}.intersection(map(id, walk.holders))
        self._take(walk)
        self.key, self.unseen = self.walk.key, self.walk.unseen
        self._dtype = torch.get_default_dtype()

    def _take(self, walk: Walk) -> None:
        self.walk, self.slots = walk, walk.slots
        self._successors: Successors | None = None
        tensors = walk.tensors()
        self._grads = "requires_grad" in self.reads.names
        self._kinds = self._kinds_of(tensors)
        self._ids = list(map(id, tensors))
        self._pattern = _pattern(self._ids)
        self.distinct = sorted(set(self._pattern))  # slots of tensors, one for each tensor
        self._sizes = list(map(len, walk.sized))
        self._types = list(map(type, walk.typed))
        self._names = list(map(tuple, walk.named))
        self._tensors = tensors
        self._native: tuple[Any, Walk, list[Tensor]] | None = None
        self._tries = TRIES
        self._pinned = [(self._ids.index(id(tensor)), id(tensor)) for tensor in walk.with_attributes]
        if self._is_pinned:
            self.pin_tensors()

    def tensors_now(self, roots: Mapping[str, Any]) -> list[Tensor] | None:
        """The tensors at all slots. None if something else that the trace read has changed."""
        if torch.get_default_dtype() is not self._dtype:
            return None
        known = self._walk_of(roots)
        tensors = None if known is None else self._fetched(known)
        if known is not None and tensors is not None:
            self.walk, self.slots = known, known.slots
            return tensors
        walk = Walk(roots, self.reads, ignored=self._ignored)
        if walk.key != self.key or not self._changed.issubset(map(id, walk.holders)):
            return None
        if self._is_pinned and list(map(id, walk.tensors())) != self._ids:
            return None
        self._take(walk)
        return walk.tensors()

    def same_tensors(self, roots: Mapping[str, Any]) -> list[Tensor] | None:
        """The tensors of the call before, if all objects that were read then are the same.

        Their dtypes and shapes are not compared.
        """
        native = self._native  # read once: another thread may take it away
        if native is None or torch.get_default_dtype() is not self._dtype:
            return None
        (is_unchanged, _), walk, tensors = native
        is_same = all(map(is_, roots.values(), walk.roots)) and is_unchanged(None)
        return tensors if is_same and (not walk.arrays or self._have_contents(walk)) else None

    def _remember(self, walk: Walk, tensors: list[Tensor]) -> None:
        """Makes one native call that compares all reads from now on, if the last two calls read the same objects."""
        is_same = walk is self.walk and len(tensors) == len(self._tensors) and all(map(is_, tensors, self._tensors))
        self._native, self._tensors = None, tensors
        checks = native_checks(walk) if is_same and self._tries else None
        if checks is not None:
            self._native, self._tries = (checks, walk, tensors), self._tries - 1

    def _walk_of(self, roots: Mapping[str, Any]) -> Walk | None:
        """The walk for these roots, if the stored walk can serve them."""
        if all(map(is_, roots.values(), self.walk.roots)):
            return self.walk
        if self._successors is None:
            self._successors = Successors(self.walk, self._changed.union(holder for holder, _ in self._ignored))
        return self._successors.moved(self.walk, roots)

    def _fetched(self, walk: Walk) -> list[Tensor] | None:
        found: list[Any] = []
        tensors: list[Tensor] = []
        try:
            if list(map(len, walk.sized)) != self._sizes or list(map(type, walk.typed)) != self._types:
                return None
            if list(map(tuple, walk.named)) != self._names:
                return None
            for fetch, holder in walk.fetches:
                found += fetch(holder)
            if len(found) != len(walk.expected) or not all(map(is_, found, walk.expected)):
                return None
            for fetch, holder in walk.tensor_fetches:
                tensors += fetch(holder)
            if self._kinds_of(tensors) != self._kinds:
                return None
        except Exception:  # an object is gone, or cannot be compared
            return None
        ids = list(map(id, tensors))
        if ids != self._ids:
            if _pattern(ids) != self._pattern:
                return None
            self._ids = ids
        is_same = (
            self._have_contents(walk)
            and all(held.keys().isdisjoint(names) for held, names in walk.apart)
            and all(ids[place] == tensor for place, tensor in self._pinned)
        )
        if is_same:
            self._remember(walk, tensors)
        return tensors if is_same else None

    def _have_contents(self, walk: Walk) -> bool:
        """True if arrays have the same contents as at the trace."""
        return all(bytes_of(array) == before for array, before in walk.arrays)

    def _kinds_of(self, tensors: list[Tensor]) -> list[Any]:
        if self._grads:
            return [(tensor.dtype, tensor.shape, tensor.requires_grad) for tensor in tensors]
        return [(tensor.dtype, tensor.shape) for tensor in tensors]

    def pin_tensors(self) -> None:
        """From now on each tensor must stay the same object."""
        self._is_pinned = True
        self._pinned = list(enumerate(self._ids))


def _pattern(ids: list[int]) -> list[int]:
    first: dict[int, int] = {}
    return [first.setdefault(number, place) for place, number in enumerate(ids)]


Owner = tuple[Module, str]
plain_call: Any = ParametrizationList.__call__


def owners_of(modules: Iterable[Module]) -> dict[int, Owner]:
    """For each parametrization, by its id: its module, and the name of the weight."""
    found = {}
    for module in modules:
        if isinstance(module._modules.get("parametrizations"), Module):
            found.update({id(made): (module, name) for name, made in module.parametrizations.items()})
    return found


class Known(NamedTuple):
    """A parametrized weight of a trace.

    Args:
        value: the weight; None if it differs from step to step.
        updates: True if computing the weight sets buffers.
        source: its parametrization, which is kept alive.
    """

    value: Tensor | None
    updates: bool
    source: ParametrizationList


class UncachedHere(int):
    """Number of open blocks of `parametrize.cached`. It is 0 for the tracing thread: they would keep its tensors."""

    tracing = 0

    def __bool__(self) -> bool:
        return self != 0 and threading.get_ident() != UncachedHere.tracing

    def __add__(self, blocks: int) -> UncachedHere:
        return UncachedHere(int(self) + blocks)

    def __sub__(self, blocks: int) -> UncachedHere:
        return UncachedHere(int(self) - blocks)


class Computed:
    """A context in which parametrized weights have known values, and buffers keep theirs.

    Args:
        given: the weights, by the ids of parametrizations. If left out, each is computed when it is first read.
    """

    def __init__(self, given: Mapping[int, Tensor] | None = None) -> None:
        self._given, self.known = given, dict[int, Known]()

    def __enter__(self) -> None:
        if isinstance(parametrize._cache_enabled, UncachedHere):
            raise StepError("a step calls a recurrence", hint="Loop over the steps of the inner one in Python.")
        tracing = UncachedHere.tracing = threading.get_ident()
        parametrize._cache_enabled = UncachedHere(parametrize._cache_enabled)

        def call(made: ParametrizationList) -> Any:
            found = self._value(made) if threading.get_ident() == tracing else None
            return plain_call(made) if found is None else found

        ParametrizationList.__call__ = call

    def __exit__(self, *error: Any) -> None:
        del ParametrizationList.__call__
        parametrize._cache_enabled = int(parametrize._cache_enabled)  # others may have changed it meanwhile

    def _value(self, made: ParametrizationList) -> Tensor | None:
        if self._given is not None:
            return self._given.get(id(made))
        known = self.known.get(id(made))
        if known is None:
            with torch.random.fork_rng(devices=[]):
                (value, updates), (again, _) = _tried(made), _tried(made)
            leaf = Parameter(value.detach(), value.requires_grad) if torch.equal(value, again) else None
            self.known[id(made)] = known = Known(leaf, updates, made)
        elif known.value is not None and not known.updates and not torch.equal(known.value, _tried(made)[0]):
            hint = "Compute what differs in the step itself."
            raise StepError(
                "a parametrized weight depends on a value that the step sets", came=type(made[0]).__name__, hint=hint
            )
        return known.value


def _tried(made: ParametrizationList) -> tuple[Tensor, bool]:
    """The value of a parametrization, and True if computing it set buffers. The buffers are put back."""
    profile, copies = sys.getprofile(), []
    sys.setprofile(None)
    try:
        with ExitStack() as stack:
            stack.enter_context(outside_of_graphs([made]))
            stack.enter_context(enable_grad())
            for held in (module._buffers for module in made.modules()):
                own = {name: buffer.clone() for name, buffer in held.items() if buffer is not None}
                copies += [(held, name, buffer.clone()) for name, buffer in own.items()]
                stack.enter_context(swapped(held, own))
            value = plain_call(made)
            return value, not all(torch.equal(held[name], buffer) for held, name, buffer in copies)
    finally:
        sys.setprofile(profile)
