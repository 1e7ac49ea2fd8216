"""Watching what a trace read: before each call all of it is compared, and its tensors are fetched.

While all objects are the same a flat list of fetches and comparisons is enough. Where one is another object everything
is walked again, and counts as the same where the walks agree: a list of equal values, a closure that was made anew.
Most loops around `scan` make its function anew each time. That needs no walk: the new function's
cells take the places of those before in the stored walk.

**Parametrized weights** (`torch.nn.utils.parametrize`) are computed once a call, by PyTorch, outside of the trace. To a
trace such a weight is a tensor from outside. Its gradient flows on by autograd. One that is another at each step, as it
draws random numbers, stays a part of the step.
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
    """The tensor that is in a slot now."""
    holder, key, read = slot
    found: Tensor = read(holder, key)
    return found


LISTS_WITH_HOLDERS = ("fetches", "tensor_fetches", "sized", "named", "slots", "holders", "functions")


def _parts(root: Any) -> tuple[Any, ...]:
    """A function with its own dict and cells, which a second `def` of the same code makes anew; or a bound method."""
    return (root, root.__dict__, *(root.__closure__ or ())) if type(root) is FunctionType else (root,)


def _is_alike(root: Any, other: Any) -> bool:
    """True for two bound methods, or functions of one `def`; the objects that they have are not compared."""
    if type(root) is FunctionType is type(other):
        return root.__code__ is other.__code__ and root.__globals__ is other.__globals__
    return type(root) is MethodType is type(other)


class Successors:
    """The places of a walk's functions in its lists, where other functions of the same code can stand.

    Args:
        kept: ids of objects that nothing else stands for.
    """

    def __init__(self, walk: Walk, kept: Set[int]) -> None:
        self._owners: dict[int, tuple[int, int]] = {}  # by id of a part: the number of its root, and of the part there
        for number, root in enumerate(walk.roots):
            parts = _parts(root) if isinstance(root, FunctionType | MethodType) else ()
            is_known = parts and all(map(is_filled, parts[2:])) and kept.isdisjoint(map(id, parts))
            if is_known and walk.is_separate(root, parts):
                self._owners.update((id(part), (number, place)) for place, part in enumerate(parts))
        self._numbers = {number for number, _ in self._owners.values()}
        self._places = [(name, *place) for name in LISTS_WITH_HOLDERS for place in self._places_in(getattr(walk, name))]
        self._lists = {name for name, *_ in self._places}

    def _places_in(self, entries: list[Any]) -> Iterator[tuple[int, int | None, int, int]]:
        """For each part in a list: its place, its place within a tuple, the numbers of its root and of the part."""
        for place, entry in enumerate(entries):
            if id(entry) in self._owners:
                yield place, None, *self._owners[id(entry)]
            elif type(entry) is tuple:
                for within, value in enumerate(entry):
                    if id(value) in self._owners:
                        yield place, within, *self._owners[id(value)]

    def moved(self, walk: Walk, roots: Mapping[str, Any]) -> Walk | None:
        """The walk for other roots, before its values are compared; None where these have to be walked."""
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


Check = tuple[int, Any, Any, Any]  # which, holder, key, the object or number that is expected


TRIES = 16  # to make native checks: what they refuse again and again is compared in Python


def native_checks(walk: Walk) -> tuple[Callable[[Any], bool], Any] | None:
    """A native function that is True while all objects of a walk are the same, and the objects that it reads.

    None where Python has to make some of the comparisons.
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
    fetch = getattr(fetch, "_get", fetch)  # of those that are made of others
    if isinstance(holder, type) and not isinstance(fetch, attrgetter):
        (inner,) = gc.get_referents(holder.__dict__)  # the dict that the proxy shows
        if fetch is keys_of_class:
            return [(KEYS, inner, tuple(inner), len(inner))]
        holder = inner
    if not isinstance(fetch, itemgetter | attrgetter):
        return None
    kind = ATTRIBUTE if isinstance(fetch, attrgetter) else ELEMENT if type(holder) is list else ITEM
    read = getattr if kind == ATTRIBUTE else getitem
    return [(kind, holder, key, read(holder, key)) for key in fetch.__reduce__()[1]]


class Watch:
    """The reads of a trace, by a walk from roots.

    Args:
        roots: by name.
        reads: names in the code that ran.
        ignored: places that are left out, as `Walk` has them.
        changed: objects whose attributes or items a call sets; the trace is valid for these objects only.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        reads: Reads,
        ignored: Collection[tuple[int, Any]] = (),
        changed: Collection[Any] = (),
    ) -> None:
        self.reads, self._ignored = reads, ignored
        self._is_fixed = False
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
        self.distinct = sorted(set(self._pattern))  # places of tensors, without those that are there twice
        self._sizes = list(map(len, walk.sized))
        self._types = list(map(type, walk.typed))
        self._names = list(map(tuple, walk.named))
        self._tensors = tensors
        self._native: tuple[Any, Walk, list[Tensor]] | None = None
        self._tries = TRIES
        self._fixed = [(self._ids.index(id(tensor)), id(tensor)) for tensor in walk.with_attributes]
        if self._is_fixed:
            self.fix_tensors()

    def tensors_now(self, roots: Mapping[str, Any]) -> list[Tensor] | None:
        """The tensors at all slots; None where something that the trace read is another now."""
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
        if self._is_fixed and list(map(id, walk.tensors())) != self._ids:
            return None
        self._take(walk)
        return walk.tensors()

    def same_tensors(self, roots: Mapping[str, Any]) -> list[Tensor] | None:
        """The tensors of the call before, if all that was read then is the same; their kinds may be others now."""
        native = self._native  # read once: another thread may take it away
        if native is None or torch.get_default_dtype() is not self._dtype:
            return None
        (is_unchanged, _), walk, tensors = native
        is_same = all(map(is_, roots.values(), walk.roots)) and is_unchanged(None)
        return tensors if is_same and (not walk.arrays or self._have_contents(walk)) else None

    def _remember(self, walk: Walk, tensors: list[Tensor]) -> None:
        """From now on one native call compares what is read, where that was the same twice."""
        is_same = walk is self.walk and len(tensors) == len(self._tensors) and all(map(is_, tensors, self._tensors))
        self._native, self._tensors = None, tensors
        checks = native_checks(walk) if is_same and self._tries else None
        if checks is not None:
            self._native, self._tries = (checks, walk, tensors), self._tries - 1

    def _walk_of(self, roots: Mapping[str, Any]) -> Walk | None:
        """The walk for these roots, if they need no walk of their own."""
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
        except Exception:  # something is gone, or cannot be compared
            return None
        ids = list(map(id, tensors))
        if ids != self._ids:
            if _pattern(ids) != self._pattern:
                return None
            self._ids = ids
        is_same = (
            self._have_contents(walk)
            and all(held.keys().isdisjoint(names) for held, names in walk.apart)
            and all(ids[place] == tensor for place, tensor in self._fixed)
        )
        if is_same:
            self._remember(walk, tensors)
        return tensors if is_same else None

    def _have_contents(self, walk: Walk) -> bool:
        """True if arrays have the contents that were read."""
        return all(bytes_of(array) == before for array, before in walk.arrays)

    def _kinds_of(self, tensors: list[Tensor]) -> list[Any]:
        if self._grads:
            return [(tensor.dtype, tensor.shape, tensor.requires_grad) for tensor in tensors]
        return [(tensor.dtype, tensor.shape) for tensor in tensors]

    def fix_tensors(self) -> None:
        """From now on tensors may not be others."""
        self._is_fixed = True
        self._fixed = list(enumerate(self._ids))


def _pattern(ids: list[int]) -> list[int]:
    first: dict[int, int] = {}
    return [first.setdefault(number, place) for place, number in enumerate(ids)]


Owner = tuple[Module, str]
plain_call: Any = ParametrizationList.__call__


def owners_of(modules: Iterable[Module]) -> dict[int, Owner]:
    """Which module has a parametrization, and under which name; by the parametrization's id."""
    found = {}
    for module in modules:
        if isinstance(module._modules.get("parametrizations"), Module):
            found.update({id(made): (module, name) for name, made in module.parametrizations.items()})
    return found


class Known(NamedTuple):
    """A parametrized weight of a trace.

    Args:
        value: None where it differs from step to step.
        updates: whether buffers are set whenever it is computed.
        source: its parametrization, which lives as long.
    """

    value: Tensor | None
    updates: bool
    source: ParametrizationList


class UncachedHere(int):
    """How many blocks of `parametrize.cached` are open, none to the thread that traces: they would keep its tensors."""

    tracing = 0

    def __bool__(self) -> bool:
        return self != 0 and threading.get_ident() != UncachedHere.tracing

    def __add__(self, blocks: int) -> UncachedHere:
        return UncachedHere(int(self) + blocks)

    def __sub__(self, blocks: int) -> UncachedHere:
        return UncachedHere(int(self) - blocks)


class Computed:
    """A context in which parametrized weights are tensors that are known, and buffers stay.

    Args:
        given: these tensors by the ids of parametrizations; left out, they are computed when first read.
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
        parametrize._cache_enabled = int(parametrize._cache_enabled)  # which others may have changed

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
                "a parametrized weight follows from what a step sets", came=type(made[0]).__name__, hint=hint
            )
        return known.value


def _tried(made: ParametrizationList) -> tuple[Tensor, bool]:
    """The value of a parametrization, and whether it set buffers, which are put back."""
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
