"""Tensors that `torch.func.vmap` has mapped: the mapped axis is folded into the batch, or gone along place by place.

`torch.autograd.grad(..., is_grads_batched=True)` maps gradients in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, wraps
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import _add_batch_dim, _unwrap_batched, is_legacy_batchedtensor
from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter

from rnnops.torch.errors import StepError


@dataclass(frozen=True)
class Mapped:
    """The tensors of a call as they are outside of a vmap.

    Args:
        axes: the axis of each that is mapped, None in those that are the same at all places.
        places: how long that axis is.
        level: of the vmap among transforms, infinite for those of `torch.autograd`, which are in backward passes.
        randomness: the argument of `torch.vmap`.
        outside: a context in which the vmap is not there.
        again: makes an axis of a result the mapped one.
    """

    tensors: tuple[Any, ...]
    axes: tuple[int | None, ...]
    places: int
    level: float
    randomness: str
    outside: Callable[[], AbstractContextManager[Any]]
    again: Callable[[Tensor, int], Tensor]

    @property
    def is_same(self) -> bool:
        """True if all places have the same tensors."""
        return all(axis is None for axis in self.axes)

    def once(self, call: Callable[..., Any]) -> Any:
        """Results of a call that all places have."""
        with self.outside():
            return call(*self.tensors)

    def one_by_one(self, call: Callable[[int, Sequence[Any]], Sequence[Any]]) -> list[Any]:
        """Results of a call for each place of the mapped axis, mapped again; None where a result is None.

        Raises StepError for no places.
        """
        if not self.places:
            raise StepError("torch.vmap maps an axis without places", wanted="1 or more", came=0)
        pairs = [*zip(self.tensors, self.axes, strict=True)]
        with self.outside():
            found = [
                call(place, [x if axis is None else x.select(axis, place) for x, axis in pairs])
                for place in range(self.places)
            ]
            made = [None if column[0] is None else torch.stack(column) for column in zip(*found, strict=True)]
        return [None if x is None else self.again(x, 0) for x in made]

    def folded(
        self,
        call: Callable[[Sequence[Tensor]], Sequence[Tensor]],
        inputs: Sequence[int | None],
        outputs: Sequence[int],
    ) -> list[Tensor]:
        """Results of one call in which the mapped axis is a part of the batch.

        Args:
            inputs, outputs: the axis of rows. Behind outputs are their tangents, of those that are floats.
        """
        with self.outside():
            made = call([*map(self._fold, self.tensors, self.axes, inputs)])
            axes = axes_of_all(outputs, [x.is_floating_point() for x in made])
            sizes = [(self.places, x.shape[axis] // self.places) for x, axis in zip(made, axes, strict=True)]
            apart = [x.unflatten(axis, size) for x, axis, size in zip(made, axes, sizes, strict=True)]
        return [self.again(x, axis) for x, axis in zip(apart, axes, strict=True)]

    def batches(self, inputs: Sequence[int | None]) -> tuple[int, int]:
        """The size of the batch, and that of the batch into which the mapped axis is folded."""
        x, at, axis = next(found for found in zip(self.tensors, self.axes, inputs, strict=True) if found[2] is not None)
        own = [size for place, size in enumerate(x.shape) if place != at][axis or 0]
        return own, own * self.places

    def _fold(self, x: Tensor, at: int | None, axis: int | None) -> Tensor:
        if axis is None:
            return x
        x = x.expand(self.places, *x.shape) if at is None else x.movedim(at, 0)
        return x.movedim(0, axis).flatten(axis, axis + 1)


def axes_of_all(outputs: Sequence[int], floats: Sequence[bool]) -> list[int]:
    """The axis of rows of outputs, and of their tangents behind them.

    Args:
        floats: which of all these are floats, and have a tangent if any has.
    """
    axes = [*outputs]
    while len(axes) < len(floats):
        axes += [axis for axis, is_float in zip(axes, floats, strict=False) if is_float]
    return axes


def at_each_place(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward pass that takes gradients that are mapped, too: it runs for each place of the mapped axis."""

    @wraps(backward)
    def run(ctx: Any, *grads: Tensor | None) -> Any:
        call, mapped = partial(run, ctx), mapped_by_autograd(grads) or mapped_of(grads)
        if mapped is None:
            return backward(ctx, *grads)
        return mapped.once(call) if mapped.is_same else tuple(mapped.one_by_one(lambda _, given: call(*given)))

    return run


def innermost() -> Any:
    """The innermost transform of torch.func around a call, None where there is none."""
    is_any = torch._C._are_functorch_transforms_active()
    return retrieve_current_functorch_interpreter() if is_any else None


def mapped_of(tensors: Sequence[Tensor | None]) -> Mapped | None:
    """Tensors outside of the innermost transform, if that is a vmap."""
    vmap = innermost()
    if not isinstance(vmap, VmapInterpreter):
        return None
    found, axes = zip(*((None, None) if x is None else _unwrap_batched(x, vmap.level()) for x in tensors), strict=True)
    again = partial(_again, _add_batch_dim, vmap.level())
    return Mapped(found, axes, vmap.batch_size(), vmap.level(), vmap.randomness(), vmap.lower, again)


DEEPEST = 16  # such vmaps in vmaps; a backward pass on a CUDA device cannot ask how many there are


def mapped_by_autograd(tensors: Sequence[Tensor | None]) -> Mapped | None:
    """Tensors outside of the innermost vmap of `torch.autograd`, which has tensors and levels of its own."""
    if not any(x is not None and is_legacy_batchedtensor(x) for x in tensors):
        return None
    for level in range(DEEPEST, 0, -1):
        found = tuple(None if x is None else torch._remove_batch_dim(x, level, 0, 0) for x in tensors)
        axes = tuple(0 if x is not None and len(x) else None for x in found)  # 0 long if it is not mapped here
        if 0 in axes:
            given = tuple(x if axis is None else y for x, y, axis in zip(tensors, found, axes, strict=True))
            places = max(len(x) for x in found if x is not None)
            return Mapped(given, axes, places, inf, "error", nullcontext, partial(_again, torch._add_batch_dim, level))
    return None


def _again(add: Callable[..., Tensor], level: int, x: Tensor, axis: int) -> Tensor:
    return add(x, axis, level)
