"""A recurrence is called as what surrounds the call wants it: with tangents in forward mode, over mapped rows in vmap.

Forward mode is `torch.autograd.forward_ad` or `torch.func.jvp`. `grad` and `vjp` of `torch.func` have graphs of their
own, whose backward pass is the gradient net. Transforms may be nested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import compress
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import _unwrap_for_grad, _wrap_for_grad, is_legacy_batchedtensor
from torch._functorch.pyfunctorch import GradInterpreter, temporarily_clear_interpreter_stack
from torch._functorch.utils import enable_single_level_autograd_function, unwrap_dead_wrappers
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from rnnops.torch.errors import StepError
from rnnops.torch.mapped import Mapped, axes_of_all, innermost, mapped_by_autograd, mapped_of
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
        drawn: the level of transforms from which on all places of a vmap have the same random numbers.
    """

    derive: Callable[[Sequence[Tensor]], TensorRun]
    seed: int | None
    rows: Callable[[], RowAxes | None]
    drawn: float = inf

    def outputs(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Outputs of the net, in its order."""
        mapped, transform = mapped_by_autograd(tensors) or mapped_of(tensors), innermost()
        if mapped is not None:
            return self._mapped(mapped)
        if isinstance(transform, GradInterpreter):
            return self.recorded(transform, None, tensors)
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

    def recorded(
        self, grad: GradInterpreter, known: Sequence[Tensor] | None, tensors: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Outputs as a node of the graph of `torch.func.grad`.

        Args:
            known: these outputs, if they are known.
        """
        lifted, _ = grad.lift((*tensors,), {})
        with enable_single_level_autograd_function():
            made: Sequence[Tensor] = TransformNode.apply(self, grad, known, *lifted)
        return made

    def _tangent(self, moving: tuple[bool, ...]) -> Surrounded:
        """The call of the tangent net, which takes tangents of those tensors that move behind all tensors."""
        count = len(moving)

        def rows() -> RowAxes | None:
            found = self.rows()
            return found and replace(found, inputs=(*found.inputs, *compress(found.inputs, moving)))

        return replace(self, derive=lambda given: self.derive(given[:count]).tangent(moving, given[:count]), rows=rows)

    def gradient(self, wanted: Sequence[bool], floats: Sequence[bool], given: Sequence[bool]) -> Surrounded:
        """The call of the gradient net, which takes gradients of outputs behind all tensors.

        Args:
            wanted: which tensors' gradients are.
            floats: which outputs are floats.
            given: which outputs have a gradient.
        """
        count = len(wanted)

        def derive(tensors: Sequence[Tensor]) -> TensorRun:
            run = self.derive(tensors[:count])
            return run.gradient((*wanted,), [*compress(run.run.net.output_blobs, given)], tensors[:count])

        def rows() -> RowAxes | None:
            found = self.rows()
            results = [None] if found is None else [*compress(found.inputs, wanted)]
            if found is None or None in results:
                return None
            axes = axes_of_all(found.outputs, floats)
            return replace(found, inputs=(*found.inputs, *compress(axes, given)), outputs=(*axes, *results))

        return replace(self, derive=derive, rows=rows)

    def _mapped(self, mapped: Mapped) -> Sequence[Tensor]:
        """Outputs for all places of the mapped axis: at once where it can be folded into the batch, else one by one."""
        is_same = self.seed is None or mapped.randomness == "same" or mapped.level >= self.drawn
        if mapped.is_same and is_same:
            return mapped.once(lambda *given: self.outputs(given))
        rows = self._foldable(mapped)
        if rows is not None:
            return mapped.folded(self.outputs, rows.inputs, rows.outputs)
        if not is_same and mapped.randomness == "error":
            hint = "Give torch.vmap(..., randomness='different'), or 'same'."
            raise StepError("a step draws random numbers under torch.vmap", hint=hint)

        def at(place: int, given: Sequence[Tensor]) -> Sequence[Tensor]:
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


class TransformNode(_SingleLevelFunction):
    """Runs a recurrence as a node of the graph of `torch.func.grad` or `vjp`; its backward pass is the gradient net.

    That is a call like any other, which transforms around it map, move and differentiate. Where there are none the
    numbers of a first backward pass come from a graph of autograd, which runs nothing again.
    """

    @staticmethod
    def forward(ctx: Any, call: Surrounded, grad: GradInterpreter, known: Any, *tensors: Tensor) -> Any:
        """All outputs of the net, in its order."""
        ctx.graph, level = None, grad.level()
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), grad.lower():
            below = [_unwrap_for_grad(x, level) for x in tensors]
            if known is None and _is_plain(below):
                with torch.enable_grad():
                    leaves = [
                        x.detach().requires_grad_(want) for x, want in zip(below, ctx.needs_input_grad[3:], strict=True)
                    ]
                    ctx.graph = leaves, call.outputs(leaves)
                known = ctx.graph[1]
            outputs = call.outputs(below) if known is None else [x.detach() for x in known]
        outputs = [_wrap_for_grad(x, level) for x in outputs]
        ctx.floats = [x.is_floating_point() for x in outputs]
        ctx.call = replace(call, drawn=min(call.drawn, level))
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[x for x in outputs if not x.is_floating_point()])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        wanted, given, transform = ctx.needs_input_grad[3:], [grad is not None for grad in grads], innermost()
        found = unwrap_dead_wrappers((*compress(grads, given),))
        held = (*unwrap_dead_wrappers(ctx.saved_tensors), *found)
        call = ctx.call.gradient(wanted, ctx.floats, given)
        known = None if ctx.graph is None else _pulled(ctx.graph, wanted, given, found)
        if known is not None and transform is not None:
            known = call.recorded(transform, known, held)
        made = iter((call.outputs(held) if known is None else known)[len(grads) :])
        return None, None, None, *(next(made) if want else None for want in wanted)


def _pulled(graph: Any, wanted: Sequence[bool], given: Sequence[bool], grads: Any) -> list[Tensor] | None:
    """Outputs and gradients by a graph of autograd; None where transforms are around more than its backward pass.

    Args:
        graph: its inputs and its outputs.
    """
    (leaves, outputs), transform = graph, innermost()
    if not isinstance(transform, GradInterpreter | None):
        return None
    with nullcontext() if transform is None else transform.lower():
        below = grads if transform is None else [_unwrap_for_grad(grad, transform.level()) for grad in grads]
        if not _is_plain(below):
            return None
        asked = [*compress(leaves, wanted)]
        made = torch.autograd.grad([*compress(outputs, given)], asked, below, retain_graph=True, materialize_grads=True)
    return [*outputs, *made]


def _is_plain(tensors: Sequence[Tensor]) -> bool:
    """True if no transform is around a call, and none of its tensors has a gradient."""
    is_moved = forward_ad._current_level >= 0 or any(x.requires_grad or is_legacy_batchedtensor(x) for x in tensors)
    return not is_moved and innermost() is None


def _new_seed(side: Side) -> int:
    if side.captures:
        raise StepError(
            "a CUDA graph is captured, and the step draws random numbers: each replay would draw the same",
            hint="Leave the recurrence out of the graph, or put the module into eval mode.",
        )
    return int(torch.randint(SEEDS, ()).item())


def check_surroundings() -> None:
    """Raise StepError under transforms of torch.func other than grad, jvp and vmap."""
    if not torch._C._are_functorch_transforms_active():
        return
    names = [level.key().name.lower() for level in torch._C._functorch.get_interpreter_stack() or ()]
    if not {"grad", "jvp", "vmap"}.issuperset(names):
        problem = f"a recurrence runs under torch.func ({' in '.join(reversed(names))}), which rnnops does not support"
        raise StepError(problem, hint="Use torch.func.grad, vjp, jvp and vmap.")


def outside_of_transforms() -> AbstractContextManager[object]:
    """A step is traced and compared without tangents, and outside of `torch.func`, whose tensors have no data."""
    is_plain = forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active()
    return nullcontext() if is_plain else _outside()


@contextmanager
def _outside() -> Iterator[None]:
    refusal = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()  # of torch.func.grad
    with forward_ad._set_fwd_grad_enabled(False), temporarily_clear_interpreter_stack():
        torch._C._autograd._saved_tensors_hooks_enable()
        try:
            yield
        finally:
            if refusal is not None:
                torch._C._autograd._saved_tensors_hooks_disable(refusal)


def check_traceable() -> None:
    """Raise StepError for a step that fails because it reads tensors of `torch.func`."""
    check_surroundings()
    if torch._C._are_functorch_transforms_active():
        hint = "Call it once outside of torch.func: the trace is kept."
        raise StepError("a step that reads tensors of torch.func was not traced before", hint=hint)
