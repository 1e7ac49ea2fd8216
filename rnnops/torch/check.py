"""The self-check of a step: two steps by the interpreter against PyTorch's own, with all gradients, before first use.

What a trace cannot see (a custom gradient that is not elementwise, a hook, a decision by data) becomes an error here
instead of a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, autocast, enable_grad, inference_mode

import rnnops as ro
from rnnops.torch.errors import SelfCheckError
from rnnops.torch.host_side import as_array
from rnnops.torch.layout import CPU, Kind, Layout
from rnnops.torch.random_numbers import OwnDraws, RandomFunctions
from rnnops.torch.recorder import Recorder
from rnnops.torch.step_modes import Decisions
from rnnops.torch.translate import Translation

if TYPE_CHECKING:
    from rnnops.torch.prepare import Step

SEED = 0
STEPS = 2  # the second one reads states that the first one made
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-7}  # relative to the largest element; wrong gradients are far off


def check_step(step: Step, translation: Translation, layout: Layout, recorder: Recorder) -> None:
    """Raise SelfCheckError where outputs or gradients of two steps differ from PyTorch's."""
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[] if layout.device == CPU else [layout.device]))
        stack.enter_context(_exact_products())
        stack.enter_context(inference_mode(False))
        stack.enter_context(enable_grad())
        stack.enter_context(autocast(layout.device.type, enabled=False))
        torch.manual_seed(0)
        states = [_random(kind, kind.shape, layout.device) for kind in layout.states]
        inputs = [_random(kind, (STEPS, *kind.shape), layout.device) for kind in layout.inputs]
        theirs = _loop(step, states, inputs, layout, recorder)
        _compare(translation, [*states, *inputs, *translation.closed_over], theirs)


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


def _random(kind: Kind, shape: Sequence[int], device: torch.device) -> Tensor:
    """The same numbers on every device."""
    if not kind.dtype.is_floating_point:
        return torch.randint(0, 2, tuple(shape)).to(device, kind.dtype)
    return torch.rand(tuple(shape), dtype=kind.dtype).to(device).requires_grad_()


def _loop(
    step: Step, states: Sequence[Tensor], inputs: Sequence[Tensor], layout: Layout, recorder: Recorder
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
        _expect_equal(f"the gradient of {name}", _hooked(tensor, mine[name]), wanted)


def _hooked(tensor: Tensor, grad: Any) -> Any:
    """A gradient after the hooks of its tensor, which PyTorch runs whoever computed it."""
    for hook in (tensor._backward_hooks or {}).values():
        changed = hook(torch.from_numpy(grad).to(tensor.device))
        grad = grad if changed is None else on_host(changed).numpy()
    return grad


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
