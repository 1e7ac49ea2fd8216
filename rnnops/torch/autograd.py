"""A recurrence as one node of PyTorch's autograd graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from rnnops.compiler.api.run import Run
from rnnops.torch.errors import StepError
from rnnops.torch.sides import Side

SEEDS = 2**63 - 1


class RecurrenceFunction(torch.autograd.Function):
    """Runs a compiled recurrence; what backward reads lies in a pullback that goes with the graph.

    Where backward runs a second time (`retain_graph`), or a tensor has moved since (`fully_shard` frees and gathers
    parameters between the passes), the forward pass runs again.
    """

    @staticmethod
    def forward(
        ctx: Any, side: Side, run: Run, names: Sequence[str], wanted: Sequence[str], seed: int, *tensors: Tensor
    ) -> Any:
        """All outputs of the net, in its order; `wanted` are the inputs whose gradients are."""
        outputs, ctx.pullback = side.vjp(run, dict(zip(names, tensors, strict=True)), wanted, seed)
        ctx.side, ctx.run, ctx.names, ctx.wanted, ctx.seed = side, run, names, wanted, seed
        ctx.addresses = _addresses(tensors)
        ctx.save_for_backward(*tensors, *outputs)  # which tells where one was changed in place meanwhile
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[output for output in outputs if not output.is_floating_point()])
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        tensors = ctx.saved_tensors[: len(ctx.names)]
        pullback, ctx.pullback = ctx.pullback, None
        if pullback is None or ctx.addresses != _addresses(tensors):
            _, pullback = ctx.side.vjp(ctx.run, dict(zip(ctx.names, tensors, strict=True)), ctx.wanted, ctx.seed)
        outputs = ctx.run.net.output_blobs
        given = {name: grad for name, grad in zip(outputs, grads, strict=True) if grad is not None}
        found = ctx.side.pull(pullback, given)
        results = [found.get(name) for name in ctx.names]
        if torch.is_grad_enabled():
            kept = iter(OnlyOnce.apply(*[r for r in results if r is not None], *tensors))
            results = [None if r is None else next(kept) for r in results]
        return (None, None, None, None, None, *results)


def _addresses(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


class OnlyOnce(torch.autograd.Function):
    """Gradients that have no gradient themselves: asking for one is an error, not a zero."""

    @staticmethod
    def forward(ctx: FunctionCtx, *tensors: Tensor) -> Any:
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> Any:
        raise StepError(
            "a gradient of a gradient of a recurrence is asked for, which rnnops does not have",
            hint="Leave create_graph=True out, or detach what the recurrence gives from the second derivative.",
        )


def run_recurrence(
    side: Side, run: Run, names: Sequence[str], wanted: Sequence[str], is_random: bool, tensors: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Outputs of a recurrence, in the net's order.

    Args:
        side: where its tensors lie.
        names: of the net's inputs, in the order of `tensors`.
        wanted: those whose gradients are wanted; without any nothing is kept.
    """
    check_surroundings(side.kind)
    seed = _new_seed(side) if is_random else 0
    if wanted:
        # `Function.apply` is this behind a search for torch.func's tensors, which `check_surroundings` refuses
        outputs: Sequence[Tensor] = super(Function, RecurrenceFunction).apply(side, run, names, wanted, seed, *tensors)
        return outputs
    return side.call(run, dict(zip(names, tensors, strict=True)), seed)


def _new_seed(side: Side) -> int:
    if side.captures:
        raise StepError(
            "a CUDA graph is captured, and the step draws random numbers: each replay would draw the same",
            hint="Leave the recurrence out of the graph, or put the module into eval mode.",
        )
    return int(torch.randint(SEEDS, ()).item())


def check_surroundings(kind: str) -> None:
    """Raise StepError under transforms of torch.func, and under autocast on a kind of device."""
    if torch._C._are_functorch_transforms_active():
        raise StepError(
            "a recurrence runs under torch.func (vmap, grad, jvp), which rnnops does not support",
            hint="Use torch.autograd.grad; states and inputs have a batch axis already.",
        )
    if torch.is_autocast_enabled(kind):
        raise StepError(
            f"a recurrence runs under autocast to {torch.get_autocast_dtype(kind)}, which its kernels do not have",
            hint=f"Put it under torch.autocast('{kind}', enabled=False), its inputs as float32.",
        )
