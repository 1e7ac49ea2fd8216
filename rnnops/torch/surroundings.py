"""A recurrence is called as what surrounds the call wants it: with tangents in forward mode, over mapped rows in vmap.

Forward mode is `torch.autograd.forward_ad` or `torch.func.jvp`. Transforms of `torch.func` may be nested; those with a
backward pass of their own (`grad`, `vjp`) are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import _unwrap_for_grad, _wrap_for_grad, is_legacy_batchedtensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad

from rnnops.torch.errors import StepError
from rnnops.torch.mapped import Mapped, innermost, mapped_of
from rnnops.torch.sides import SEEDS, Side, TensorRun, outputs_of


@dataclass(frozen=True)
class RowAxes:
    """Where rows of the batch lie in tensors of a recurrence that keeps them apart.

    Args:
        inputs: the axis in each input of the net, None in those without rows.
        outputs: the axis in each output.
        fits: whether rows are computed in the same way where there is another number of them.
        resized: the run for a number of rows.
    """

    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    fits: Callable[[int, int], bool]
    resized: Callable[[int], TensorRun]


def run_recurrence(
    run: TensorRun, is_random: bool, tensors: Sequence[Tensor], rows: Callable[[], RowAxes | None]
) -> Sequence[Tensor]:
    """Outputs of a recurrence, in the net's order.

    Args:
        tensors: of the net's inputs, in its order.
        rows: where they are, None where a step may mix them.
    """
    if forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active():
        return outputs_of(run, _new_seed(run.side) if is_random else None, tensors)
    check_surroundings()
    with temporarily_clear_interpreter_stack():
        seed = _new_seed(run.side) if is_random else None

    def run_for(given: Sequence[Tensor]) -> TensorRun:
        found = None if given[0].shape == tensors[0].shape else rows()
        return run if found is None else found.resized(given[0].shape[found.inputs[0] or 0])

    return Surrounded(run_for, seed, rows).outputs(tensors)


@dataclass(frozen=True)
class Surrounded:
    """A call of a recurrence within transforms. The innermost one is taken off first.

    Args:
        derive: the run for tensors without transforms: nets of tangents are made for sizes.
        seed: None where nothing in it is random.
    """

    derive: Callable[[Sequence[Tensor]], TensorRun]
    seed: int | None
    rows: Callable[[], RowAxes | None]

    def outputs(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Outputs of the net, in its order."""
        mapped, transform = mapped_of(tensors), innermost()
        if mapped is not None:
            return self._mapped(mapped)
        primals, tangents = zip(*map(forward_ad.unpack_dual, tensors), strict=True)
        if transform is None and {*tangents} == {None}:
            return outputs_of(self.derive(tensors), self.seed, tensors)
        return self._moved(transform, primals, tangents)

    def _moved(self, jvp: Any, primals: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Sequence[Tensor]:
        """Outputs with tangents, where a tensor has one, by the run of the tangent net.

        They are nodes of autograd's graph like any others, so that tangents have gradients.
        """
        given = [*primals, *(tangent for tangent in tangents if tangent is not None)]
        if any(map(is_legacy_batchedtensor, given)):
            hint = "Use torch.func.jacfwd, or vectorize=False."
            raise StepError(
                "tangents are mapped by torch.autograd.functional, which rnnops does not support", hint=hint
            )
        moving = tuple([tangent is not None for tangent in tangents])
        call = self._tangent(moving) if True in moving else self
        with nullcontext() if jvp is None else jvp.lower():
            made = call.outputs(given if jvp is None else [_unwrap_for_grad(x, jvp.level()) for x in given])
        made = made if jvp is None else [_wrap_for_grad(x, jvp.level()) for x in made]
        if call is self:
            return made
        floats = [x.is_floating_point() for x in made]
        count = (len(made) + floats.count(False)) // 2  # as each float has a tangent
        moved = iter(made[count:])
        return [forward_ad.make_dual(x, next(moved)) if x.is_floating_point() else x for x in made[:count]]

    def _tangent(self, moving: tuple[bool, ...]) -> Surrounded:
        """The call of the tangent net, which takes tangents of those tensors that move behind all tensors."""
        count = len(moving)

        def rows() -> RowAxes | None:
            found = self.rows()
            return found and replace(found, inputs=(*found.inputs, *compress(found.inputs, moving)))

        return Surrounded(lambda given: self.derive(given[:count]).tangent(moving, given[:count]), self.seed, rows)

    def _mapped(self, mapped: Mapped) -> Sequence[Tensor]:
        """Outputs for all places of the mapped axis: at once where it can be folded into the batch, else one by one."""
        if mapped.is_same and (self.seed is None or mapped.randomness == "same"):
            return mapped.once(lambda *given: self.outputs(given))
        rows = self._foldable(mapped)
        if rows is not None:
            return mapped.folded(self.outputs, rows.inputs, rows.outputs)
        if self.seed is not None and mapped.randomness == "error":
            hint = "Give torch.vmap(..., randomness='different'), or 'same'."
            raise StepError("a step draws random numbers under torch.vmap", hint=hint)

        def at(place: int, given: Sequence[Tensor]) -> Sequence[Tensor]:
            is_same = self.seed is None or mapped.randomness == "same"
            return replace(self, seed=self.seed if is_same else hash((self.seed, place)) % SEEDS).outputs(given)

        return mapped.one_by_one(at)

    def _foldable(self, mapped: Mapped) -> RowAxes | None:
        """Where rows lie, if the mapped axis can be folded into them: only what has rows is mapped."""
        rows = self.rows() if self.seed is None else None
        if rows is None:
            return None
        if any(axis is None and at is not None for axis, at in zip(rows.inputs, mapped.axes, strict=True)):
            return None
        return rows if rows.fits(*mapped.batches(rows.inputs)) else None


def _new_seed(side: Side) -> int:
    if side.captures:
        raise StepError(
            "a CUDA graph is captured, and the step draws random numbers: each replay would draw the same",
            hint="Leave the recurrence out of the graph, or put the module into eval mode.",
        )
    return int(torch.randint(SEEDS, ()).item())


NESTED = "Use torch.autograd.grad with create_graph=True, or torch.func.jvp, jacfwd and vmap."


def check_surroundings() -> None:
    """Raise StepError under transforms of torch.func other than jvp and vmap."""
    if not torch._C._are_functorch_transforms_active():
        return
    names = [level.key().name.lower() for level in torch._C._functorch.get_interpreter_stack() or ()]
    if not {"jvp", "vmap"}.issuperset(names):
        problem = f"a recurrence runs under torch.func ({' in '.join(reversed(names))}), which rnnops does not support"
        raise StepError(problem, hint=NESTED)


def outside_of_transforms() -> AbstractContextManager[object]:
    """A step is traced and compared without tangents, and outside of `torch.func`, whose tensors have no data."""
    is_plain = forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active()
    return nullcontext() if is_plain else _outside()


@contextmanager
def _outside() -> Iterator[None]:
    with forward_ad._set_fwd_grad_enabled(False), temporarily_clear_interpreter_stack():
        yield


def check_traceable() -> None:
    """Raise StepError for a step that fails because it reads tensors of `torch.func`."""
    check_surroundings()
    if torch._C._are_functorch_transforms_active():
        hint = "Call it once outside of torch.func: the trace is kept."
        raise StepError("a step that reads tensors of torch.func was not traced before", hint=hint)
