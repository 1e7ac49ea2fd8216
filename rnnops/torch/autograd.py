"""A recurrence in PyTorch's autograd: a node of the graph, tangents in forward mode, and vmap.

Forward mode is `torch.autograd.forward_ad` or `torch.func.jvp`. `grad` and `vjp` of `torch.func` record graphs of their
own. Their backward pass is the gradient net. Transforms may be nested.

**Mapped tensors** of `torch.func.vmap`: the mapped axis is folded into the batch, or there is one call for each place
on that axis. `torch.autograd.grad(..., is_grads_batched=True)` maps gradients in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import compress
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (
    _add_batch_dim,
    _unwrap_batched,
    _unwrap_for_grad,
    _wrap_for_grad,
    is_legacy_batchedtensor,
)
from torch._functorch.pyfunctorch import (
    GradInterpreter,
    VmapInterpreter,
    retrieve_current_functorch_interpreter,
    temporarily_clear_interpreter_stack,
)
from torch._functorch.utils import enable_single_level_autograd_function, unwrap_dead_wrappers
from torch.autograd import Function, forward_ad
from torch.autograd.function import _SingleLevelFunction

from rnnops.torch.errors import StepError
from rnnops.torch.sides import SEEDS, Grads, Side, TensorCall, TensorRun, check_order


@dataclass(frozen=True)
class Mapped:
    """The tensors of a call as they are outside of a vmap.

    Args:
        axes: the mapped axis of each tensor; None for a tensor that is the same at all places.
        places: length of the mapped axis.
        level: number of the vmap among the transforms. It is infinite for a vmap of `torch.autograd`, which occurs only
            in backward passes.
        randomness: the argument of `torch.vmap`.
        outside: makes a context in which the vmap is off.
        again: takes a result and an axis, and makes this axis the mapped one.
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
        """Results of one call that serves all places."""
        with self.outside():
            return call(*self.tensors)

    def one_by_one(self, call: Callable[[int, Sequence[Any]], Sequence[Any]]) -> list[Any]:
        """Results of one call for each place of the mapped axis, stacked and mapped again. A result stays None.

        Raises StepError if the mapped axis has length 0.
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
        self, call: Callable[[Sequence[Tensor]], Sequence[Tensor]], inputs: Sequence[int | None], outputs: Sequence[int]
    ) -> list[Tensor]:
        """Results of one call in which the mapped axis is a part of the batch.

        Args:
            inputs, outputs: axes of rows. Tangents of float outputs come after the outputs.
        """
        with self.outside():
            made = call([*map(self._fold, self.tensors, self.axes, inputs)])
            axes = axes_of_all(outputs, [x.is_floating_point() for x in made])
            sizes = [(self.places, x.shape[axis] // self.places) for x, axis in zip(made, axes, strict=True)]
            apart = [x.unflatten(axis, size) for x, axis, size in zip(made, axes, sizes, strict=True)]
        return [self.again(x, axis) for x, axis in zip(apart, axes, strict=True)]

    def batches(self, inputs: Sequence[int | None]) -> tuple[int, int]:
        """Size of the batch, and of the batch with the mapped axis folded in."""
        x, at, axis = next(found for found in zip(self.tensors, self.axes, inputs, strict=True) if found[2] is not None)
        own = [size for place, size in enumerate(x.shape) if place != at][axis or 0]
        return own, own * self.places

    def _fold(self, x: Tensor, at: int | None, axis: int | None) -> Tensor:
        if axis is None:
            return x
        x = x.expand(self.places, *x.shape) if at is None else x.movedim(at, 0)
        return x.movedim(0, axis).flatten(axis, axis + 1)


def axes_of_all(outputs: Sequence[int], floats: Sequence[bool]) -> list[int]:
    """Axes of rows: of outputs, then of their tangents.

    Args:
        floats: for each output and tangent, True if it is a float. If any float has a tangent, all have.
    """
    axes = [*outputs]
    while len(axes) < len(floats):
        axes += [axis for axis, is_float in zip(axes, floats, strict=False) if is_float]
    return axes


def at_each_place(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a backward pass take mapped gradients: it runs for each place of the mapped axis."""

    @wraps(backward)
    def run(ctx: Any, *grads: Tensor | None) -> Any:
        call, mapped = partial(run, ctx), mapped_by_autograd(grads) or mapped_of(grads)
        if mapped is None:
            return backward(ctx, *grads)
        return mapped.once(call) if mapped.is_same else tuple(mapped.one_by_one(lambda _, given: call(*given)))

    return run


def innermost() -> Any:
    """The innermost transform of torch.func around a call; None if there is none."""
    is_any = torch._C._are_functorch_transforms_active()
    return retrieve_current_functorch_interpreter() if is_any else None


def mapped_of(tensors: Sequence[Tensor | None]) -> Mapped | None:
    """The tensors outside of the innermost transform, if this is a vmap; else None."""
    vmap = innermost()
    if not isinstance(vmap, VmapInterpreter):
        return None
    found, axes = zip(*((None, None) if x is None else _unwrap_batched(x, vmap.level()) for x in tensors), strict=True)
    again = partial(_again, _add_batch_dim, vmap.level())
    return Mapped(found, axes, vmap.batch_size(), vmap.level(), vmap.randomness(), vmap.lower, again)


# depth of nested vmaps of `torch.autograd` that is searched; a backward pass on CUDA cannot ask for the depth
DEEPEST = 16


def mapped_by_autograd(tensors: Sequence[Tensor | None]) -> Mapped | None:
    """The tensors outside of the innermost vmap of `torch.autograd`, which has tensor types and levels of its own."""
    if not any(x is not None and is_legacy_batchedtensor(x) for x in tensors):
        return None
    for level in range(DEEPEST, 0, -1):
        found = tuple(None if x is None else torch._remove_batch_dim(x, level, 0, 0) for x in tensors)
        # length 0 if the tensor is not mapped at this level
        axes = tuple(0 if x is not None and len(x) else None for x in found)
        if 0 in axes:
            given = tuple(x if axis is None else y for x, y, axis in zip(tensors, found, axes, strict=True))
            places = max(len(x) for x in found if x is not None)
            return Mapped(given, axes, places, inf, "error", nullcontext, partial(_again, torch._add_batch_dim, level))
    return None


def _again(add: Callable[..., Tensor], level: int, x: Tensor, axis: int) -> Tensor:
    return add(x, axis, level)


def check_tangents(call: TensorCall, grads: Grads) -> None:
    """Raise StepError for a backward pass in forward mode, whose gradients would need tangents."""
    tangents = [forward_ad.unpack_dual(grad).tangent for grad in grads if grad is not None]
    if call.run.kind == "t" or any(tangent is not None for tangent in tangents):
        hint = "Take gradients of tangents after dual_level ends, or use torch.autograd.grad with create_graph=True."
        raise StepError("gradients of a recurrence are taken in forward mode, and would have no tangents", hint=hint)


class RecurrenceFunction(torch.autograd.Function):
    """Runs a compiled recurrence. The pullback holds what backward reads, and lives as long as the graph.

    The forward pass runs again if backward runs again (`retain_graph`, mapped gradients), or if a tensor has moved
    since. `fully_shard` moves tensors: it frees and gathers parameters between the passes.
    """

    @staticmethod
    def forward(ctx: Any, call: TensorCall, seed: int, words: list[int] | None, *tensors: Tensor) -> Any:
        """All outputs of the net, in its order."""
        outputs, ctx.pull = call.vjp(tensors, seed, words)
        held = (*tensors, *outputs)
        ctx.how = call, seed, [x.data_ptr() for x in held]
        ctx.save_for_backward(*held)  # `saved_tensors` raises an error if a tensor was changed in place meanwhile
        ctx.set_materialize_grads(False)
        if False in [output.is_floating_point() for output in outputs]:
            ctx.mark_non_differentiable(*[output for output in outputs if not output.is_floating_point()])
        return tuple(outputs)

    @staticmethod
    @at_each_place
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        held: Any = ctx.saved_tensors
        if forward_ad._current_level >= 0:
            check_tangents(ctx.how[0], grads)
        check_order(ctx.how[0].run, bool(ctx.how[0].run.kind))
        (call, seed, addresses), pull, ctx.pull = ctx.how, ctx.pull, None
        if pull is None or addresses != [x.data_ptr() for x in held]:
            held, pull = call.vjp(held[: len(call.wanted)], seed)
        results = pull(grads)
        if torch.is_grad_enabled():
            tensors = ctx.saved_tensors[: len(call.wanted)]
            found = [result for result in results if result is not None]
            given = [grad for grad in grads if grad is not None]
            kept = iter(Gradients.apply(call, seed, grads, len(found), *found, *tensors, *given))
            results = [None if result is None else next(kept) for result in results]
        return (None, None, None, *results)


class Gradients(torch.autograd.Function):
    """Gradients of a recurrence, as values that are known.

    Differentiating them runs the gradient net, which is made when it is first needed.

    Its run is a node of autograd's graph, so that there are derivatives of every order.
    """

    @staticmethod
    def forward(ctx: Any, call: TensorCall, seed: int, grads: Grads, count: int, *tensors: Tensor) -> Any:
        """Returns the gradients, which are the first `count` tensors.

        After them come the inputs, then gradients of outputs.
        """
        names = [name for name, grad in zip(call.run.run.net.output_blobs, grads, strict=True) if grad is not None]
        ctx.how = call, seed, names, count
        ctx.save_for_backward(*tensors[count:])
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    @at_each_place
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        (call, seed, names, count), held, deeper = ctx.how, ctx.saved_tensors, torch.is_grad_enabled()
        check_order(call.run, True)
        with torch.enable_grad():
            held = [x.view_as(x) for x in held]  # gradients of outputs may themselves depend on inputs
            run = call.run.gradient(call.wanted, names, held[: len(call.wanted)])
            outputs = with_gradients(run.call_for(held, wanted_of(held)), seed, None, *held)[-count:]
            pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None]
            asked = [x for x in held if x.requires_grad]
            ends, given = [output for output, _ in pairs], [grad for _, grad in pairs]
            moved = torch.autograd.grad(ends, asked, given, create_graph=deeper, allow_unused=True) if ends else ()
        found = iter(moved)
        return (None,) * (4 + count) + tuple(next(found, None) if x.requires_grad else None for x in held)


def outputs_of(run: TensorRun, seed: int | None, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Outputs of a recurrence, in the net's order. `seed` is None if the recurrence draws no random numbers."""
    call = run.call_for(tensors, wanted_of(tensors))
    if not call.wanted:
        return call.outputs(tensors, seed)
    outputs: Sequence[Tensor] = with_gradients(call, seed or 0, None, *tensors)
    return outputs


def wanted_of(tensors: Sequence[Tensor]) -> tuple[bool, ...]:
    """For each tensor, True if its gradient is wanted. Empty if none is."""
    wanted = tuple([x.requires_grad for x in tensors]) if torch.is_grad_enabled() else ()
    return wanted if True in wanted else ()


# Makes outputs a node of autograd's graph. Arguments are a call, a seed, addresses of the tensors that kernels read
# directly, and tensors. `Function.apply` does the same after a search for torch.func's tensors, which are unwrapped
# earlier here.
with_gradients = super(Function, RecurrenceFunction).apply


@dataclass(frozen=True)
class RowAxes:
    """Axes of the batch's rows in the tensors of a recurrence that keeps rows apart.

    Args:
        inputs: the axis in each input of the net; None for inputs without rows.
        outputs: the axis in each output.
        fits: takes a number of rows; True if rows are then computed in the same way.
        resized: takes a number of rows; returns the run for it.
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
        tensors: one for each input of the net, in its order.
        rows: returns the axes of rows; None if a step may mix rows.
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
    """A call of a recurrence within transforms. Each method takes off the innermost transform first.

    Args:
        derive: makes the run for tensors without transforms. Nets of tangents are made for given sizes.
        seed: None if the recurrence draws no random numbers.
        drawn: level of transforms from which on all places of a vmap have the same random numbers.
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
        """Outputs with tangents, by the run of the tangent net. Tensors without a tangent are constant.

        Outputs and tangents are nodes of autograd's graph, so that tangents have gradients too.
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
        count = (len(made) + floats.count(False)) // 2  # each float has a tangent
        moved = iter(made[count:])
        return [forward_ad.make_dual(x, next(moved)) if x.is_floating_point() else x for x in made[:count]]

    def recorded(
        self, grad: GradInterpreter, known: Sequence[Tensor] | None, tensors: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Outputs as a node of the graph of `torch.func.grad`.

        Args:
            known: the outputs, if they were computed before.
        """
        lifted, _ = grad.lift((*tensors,), {})
        with enable_single_level_autograd_function():
            made: Sequence[Tensor] = TransformNode.apply(self, grad, known, *lifted)
        return made

    def _tangent(self, moving: tuple[bool, ...]) -> Surrounded:
        """The call of the tangent net. It takes all tensors, then the tangents of those that move."""
        count = len(moving)

        def rows() -> RowAxes | None:
            found = self.rows()
            return found and replace(found, inputs=(*found.inputs, *compress(found.inputs, moving)))

        return replace(self, derive=lambda given: self.derive(given[:count]).tangent(moving, given[:count]), rows=rows)

    def gradient(self, wanted: Sequence[bool], floats: Sequence[bool], given: Sequence[bool]) -> Surrounded:
        """The call of the gradient net. It takes all tensors, then gradients of outputs.

        Args:
            wanted: for each tensor, True if its gradient is wanted.
            floats: for each output, True if it is a float.
            given: for each output, True if it has a gradient.
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
        """Outputs for all places of the mapped axis.

        One call serves them if the axis can be folded into the batch; else there is one call for each place.
        """
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
        """Axes of rows if the mapped axis can be folded into them: each mapped tensor needs rows. Else None."""
        rows = self.rows() if self.seed is None else None
        if rows is None:
            return None
        if any(axis is None and at is not None for axis, at in zip(rows.inputs, mapped.axes, strict=True)):
            return None
        return rows if rows.fits(*mapped.batches(rows.inputs)) else None


class TransformNode(_SingleLevelFunction):
    """A recurrence as a node of the graph of `torch.func.grad` or `vjp`. Its backward pass is the gradient net.

    The gradient net is a call like any other, so outer transforms can map and differentiate it. Without outer
    transforms a first backward pass uses a graph of autograd, which need not run the forward pass again.
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
    """Outputs and gradients by a graph of autograd. None if other transforms surround the backward pass.

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
    """True if no transform surrounds a call, and none of its tensors has a gradient."""
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
    """A context without tangents and outside of `torch.func`, in which steps are traced and compared.

    Tensors of `torch.func` have no data.
    """
    is_plain = forward_ad._current_level < 0 and not torch._C._are_functorch_transforms_active()
    return nullcontext() if is_plain else _outside()


@contextmanager
def _outside() -> Iterator[None]:
    # `torch.func.grad` sets this message
    refusal = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
    with forward_ad._set_fwd_grad_enabled(False), temporarily_clear_interpreter_stack():
        torch._C._autograd._saved_tensors_hooks_enable()
        try:
            yield
        finally:
            if refusal is not None:
                torch._C._autograd._saved_tensors_hooks_disable(refusal)


def check_traceable() -> None:
    """Raise StepError for a step that failed because it reads tensors of `torch.func`."""
    check_surroundings()
    if torch._C._are_functorch_transforms_active():
        hint = "Call it once outside of torch.func: the trace is kept."
        raise StepError("a step reads tensors of torch.func and was not traced before", hint=hint)
