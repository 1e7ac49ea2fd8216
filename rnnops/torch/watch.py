"""Watching what a trace read: before each call all of it is compared, and its tensors are fetched.

While all objects are the same a flat list of fetches and comparisons is enough. Where one is another object everything
is walked again, and counts as the same where the walks agree: a list of equal values, a closure that was made anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import is_
from typing import Any

import torch
from torch import Tensor

from rnnops.torch.code_reads import Reads, bytes_of
from rnnops.torch.walk import Slot, Walk, walk_all


def tensor_at(slot: Slot) -> Tensor:
    """The tensor that is in a slot now."""
    holder, key, read = slot
    found: Tensor = read(holder, key)
    return found


class Watch:
    """The reads of a trace, by a walk from roots.

    Args:
        roots: by name.
        reads: names in the code that ran.
        ignored: places that are left out, as keys of `Walk`.
    """

    def __init__(self, roots: Mapping[str, Any], reads: Reads, ignored: Collection[tuple[int, Any]] = ()) -> None:
        self.reads, self._ignored = reads, ignored
        self._is_fixed = False
        self._take(walk_all(roots, reads, ignored=ignored))
        self.key, self.unseen = self.walk.key, self.walk.unseen
        self._dtype = torch.get_default_dtype()

    def _take(self, walk: Walk) -> None:
        self.walk, self.slots = walk, walk.slots
        tensors = walk.tensors()
        self._grads = "requires_grad" in self.reads.names
        self._kinds = self._kinds_of(tensors)
        self._ids = list(map(id, tensors))
        self._pattern = _pattern(self._ids)
        self._sizes = list(map(len, walk.sized))
        self._types = list(map(type, walk.typed))
        self._names = list(map(tuple, walk.named))
        self._fixed = [(self._ids.index(id(tensor)), id(tensor)) for tensor in walk.with_attributes]
        if self._is_fixed:
            self.fix_tensors()

    def tensors_now(self, roots: Mapping[str, Any]) -> list[Tensor] | None:
        """The tensors at all slots; None where something that the trace read is another now."""
        if torch.get_default_dtype() is not self._dtype:
            return None
        tensors = self._fetched(roots)
        if tensors is not None:
            return tensors
        walk = Walk(roots, self.reads, ignored=self._ignored)
        if walk.key != self.key or (self._is_fixed and list(map(id, walk.tensors())) != self._ids):
            return None
        self._take(walk)
        return walk.tensors()

    def _fetched(self, roots: Mapping[str, Any]) -> list[Tensor] | None:
        walk = self.walk
        found: list[Any] = []
        tensors: list[Tensor] = []
        if not all(map(is_, roots.values(), walk.roots)):
            return None
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
            all(bytes_of(array) == before for array, before in walk.arrays)
            and all(names.isdisjoint(held) for held, names in walk.apart)
            and all(ids[place] == tensor for place, tensor in self._fixed)
        )
        return tensors if is_same else None

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
