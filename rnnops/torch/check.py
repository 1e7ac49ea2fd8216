"""The self-check of a step: two steps by the interpreter against PyTorch's own, with all gradients, before first use.

What a trace cannot see (a custom gradient that is not elementwise, a hook, a decision by data) becomes an error here
instead of a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, autocast, enable_grad, inference_mode
from torch.autograd.graph import saved_tensors_hooks

import rnnops as ro
from rnnops.torch.errors import SelfCheckError
from rnnops.torch.host_side import as_array
from rnnops.torch.layout import CPU, Kind, Layout
from rnnops.torch.random_numbers import OwnDraws, RandomFunctions
from rnnops.torch.step_modes import Decisions
from rnnops.torch.translate import Translation

if TYPE_CHECKING:
    from rnnops.torch.traced import Step

SEED = 0
STEPS = 2  # the second one reads states that the first one made
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-7}  # relative to the largest element; wrong gradients are far off


def check_step(
    step: Step,
    translation: Translation,
    layout: Layout,
    recorder: AbstractContextManager[Any],
    closed_over: Sequence[Tensor] | None = None,
) -> None:
    """Raise SelfCheckError where outputs or gradients of two steps differ from PyTorch's.

    Args:
        recorder: a context around each step of PyTorch's.
        closed_over: tensors that the step closes over now, where they are others than at its trace.
    """
    closed_over = translation.closed_over if closed_over is None else closed_over
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[] if layout.device == CPU else [layout.device]))
        stack.enter_context(_exact_products())
        stack.enter_context(inference_mode(False))
        stack.enter_context(enable_grad())
        stack.enter_context(autocast(layout.device.type, enabled=False))
        stack.enter_context(without_hooks(closed_over))
        torch.manual_seed(0)
        states = [random_tensor(kind, kind.shape, layout.device) for kind in layout.states]
        inputs = [random_tensor(kind, (STEPS, *kind.shape), layout.device) for kind in layout.inputs]
        theirs = _loop(step, states, inputs, layout, recorder)
        _compare(translation, [*states, *inputs, *closed_over], theirs)


@contextmanager
def without_hooks(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Hooks of tensors, and of what autograd saves, are those of the user's own passes, and see nothing of a check."""
    held = [tensor._backward_hooks for tensor in tensors if tensor._backward_hooks]
    before = [dict(hooks) for hooks in held]
    for hooks in held:
        hooks.clear()
    try:
        with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            yield
    finally:
        for hooks, kept in zip(held, before, strict=True):
            hooks.update(kept)


@contextmanager
def _exact_products() -> Iterator[None]:
    """PyTorch's products of float32 are of float32 numbers, as ours are, and not of TF32."""
    before = torch.get_float32_matmul_precision()
    if before != "highest":
        torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if before != "highest":
            torch.set_float32_matmul_precision(before)


def random_tensor(kind: Kind, shape: Sequence[int], device: torch.device) -> Tensor:
    """The same numbers on every device."""
    if not kind.dtype.is_floating_point:
        return torch.randint(0, 2, tuple(shape)).to(device, kind.dtype)
    return torch.rand(tuple(shape), dtype=kind.dtype).to(device).requires_grad_()


def results_of_one_step(step: Step, layout: Layout, beside: Sequence[Kind]) -> list[Tensor]:
    """What one step of PyTorch gives, without the tensors that it carries beside its own states.

    Args:
        beside: kinds of these.
    """
    count = len(layout.states)
    with inference_mode(False), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        states = [random_tensor(kind, kind.shape, layout.device) for kind in layout.states]
        inputs = [random_tensor(kind, kind.shape, layout.device) for kind in layout.inputs]
        others = [random_tensor(kind, kind.shape, layout.device) for kind in beside]
        with RandomFunctions(OwnDraws(SEED).at_step(0)), Decisions(step.assume):
            results = list(step.function(*states, *others, *inputs))
    return [*results[:count], *results[count + len(beside) :]]


def _loop(
    step: Step,
    states: Sequence[Tensor],
    inputs: Sequence[Tensor],
    layout: Layout,
    recorder: AbstractContextManager[Any],
) -> list[Tensor]:
    """Last states, then results of all steps, by PyTorch, with the random numbers of the translated step."""
    count, carried, rows, draws = len(layout.states), list(states), [], OwnDraws(SEED)
    for t in range(STEPS):
        with RandomFunctions(draws.at_step(t)), Decisions(step.assume), recorder:
            results = list(step.function(*carried, *[sequence[t] for sequence in inputs]))
        carried = results[:count]
        rows.append(results[count:])
    return [*carried, *(torch.stack(list(column)) for column in zip(*rows, strict=True))]


def _compare(translation: Translation, tensors: list[Tensor], theirs: list[Tensor]) -> None:
    named = dict(zip(translation.names, tensors, strict=True))
    feeds = {name: as_array(name, on_host(tensor)) for name, tensor in named.items()}  # which leaves them resizable
    leaves = {name: tensor for name, tensor in named.items() if tensor.requires_grad}
    results = dict(zip((*translation.last, *translation.steps), theirs, strict=True))
    run = ro.compile(translation.net, device="reference")
    out, pullback = run.vjp(feeds, wrt=list(leaves), seed=SEED)
    for name, tensor in results.items():
        _expect_equal(f"output {name}", out[name], tensor)
    live = {name: tensor for name, tensor in results.items() if tensor.requires_grad}
    given = {name: torch.rand_like(tensor) for name, tensor in live.items()}
    mine = pullback({name: on_host(grad).numpy() for name, grad in given.items()})
    if not live:
        return
    grads = torch.autograd.grad(list(live.values()), list(leaves.values()), list(given.values()), allow_unused=True)
    for (name, tensor), grad in zip(leaves.items(), grads, strict=True):
        wanted = torch.zeros_like(tensor) if grad is None else grad
        _expect_equal(f"the gradient of {name}", mine[name], wanted)


def on_host(tensor: Tensor) -> Tensor:
    """A tensor, or a copy of one of another device."""
    return tensor if tensor.is_cpu else tensor.detach().cpu()


def _expect_equal(what: str, mine: Any, theirs: Tensor) -> None:
    wanted = on_host(theirs.detach()).numpy()
    tolerance = TOLERANCE.get(theirs.dtype, 0)
    scale = 1 + np.abs(wanted).max(initial=0)
    if not np.allclose(mine, wanted, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        raise SelfCheckError(
            f"the translated step is not PyTorch's own: {what} differs",
            wanted=f"at most {tolerance * scale:.2g} apart",
            came=f"{np.abs(mine - wanted).max():.2g}",
            hint="The step does what its graph does not show; write that part by PyTorch's own ops.",
        )
