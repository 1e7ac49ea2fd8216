"""A recurrence as one node of PyTorch's autograd graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from rnnops.compiler.api.run import Run
from rnnops.torch.errors import StepError
from rnnops.types import Array

SEEDS = 2**63 - 1
PLAIN = (Tensor, torch.nn.Parameter)
TYPES = {  # as NumPy calls them
    getattr(torch, name): np.dtype(name).str
    for name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
}


class Recurrence(torch.autograd.Function):
    """Runs a compiled recurrence; what backward reads lies in a pullback that goes with the graph.

    Where backward runs a second time (`retain_graph`), or a tensor has moved since (`fully_shard` frees and gathers
    parameters between the passes), the forward pass runs again.
    """

    @staticmethod
    def forward(ctx: Any, run: Run, names: Sequence[str], wanted: Sequence[str], seed: int, *tensors: Tensor) -> Any:
        """All outputs of the net, in its order; `wanted` are the inputs whose gradients are."""
        feeds = {name: as_array(name, tensor) for name, tensor in zip(names, tensors, strict=True)}
        out, ctx.pullback = run.vjp(feeds, wrt=wanted, seed=seed)
        outputs = tuple(as_tensor(array) for array in out.values())
        ctx.run, ctx.names, ctx.wanted, ctx.seed, ctx.addresses = run, names, wanted, seed, _addresses(tensors)
        ctx.save_for_backward(*tensors, *outputs)  # which tells where one was changed in place meanwhile
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[output for output in outputs if not output.is_floating_point()])
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        tensors = ctx.saved_tensors[: len(ctx.names)]
        pullback, ctx.pullback = ctx.pullback, None
        if pullback is None or ctx.addresses != _addresses(tensors):
            feeds = {name: as_array(name, tensor) for name, tensor in zip(ctx.names, tensors, strict=True)}
            _, pullback = ctx.run.vjp(feeds, wrt=ctx.wanted, seed=ctx.seed)
        outputs = ctx.run.net.output_blobs
        given = {name: as_array(name, grad) for name, grad in zip(outputs, grads, strict=True) if grad is not None}
        found = pullback(given)
        results = [as_tensor(found[name]) if name in found else None for name in ctx.names]
        if torch.is_grad_enabled():
            kept = iter(OnlyOnce.apply(*[r for r in results if r is not None], *tensors))
            results = [None if r is None else next(kept) for r in results]
        return (None, None, None, None, *results)


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
    run: Run, names: Sequence[str], wanted: Sequence[str], is_random: bool, tensors: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Outputs of a recurrence, in the net's order.

    Args:
        names: of the net's inputs, in the order of `tensors`.
        wanted: those whose gradients are wanted; without any nothing is kept.
    """
    check_surroundings(tensors)
    seed = int(torch.randint(SEEDS, ()).item()) if is_random else 0
    if wanted:
        # `Function.apply` is this behind a search for torch.func's tensors, which `check_surroundings` refuses
        outputs: Sequence[Tensor] = super(Function, Recurrence).apply(run, names, wanted, seed, *tensors)
        return outputs
    feeds = {name: as_array(name, tensor) for name, tensor in zip(names, tensors, strict=True)}
    return [as_tensor(array) for array in run(feeds, seed=seed, training=True).values()]


def check_surroundings(tensors: Sequence[Tensor]) -> None:
    if torch._C._are_functorch_transforms_active():
        raise StepError(
            "a recurrence runs under torch.func (vmap, grad, jvp), which rnnops does not support",
            hint="Use torch.autograd.grad; states and inputs have a batch axis already.",
        )
    if torch.is_autocast_enabled("cpu"):
        raise StepError(
            f"a recurrence runs under autocast to {torch.get_autocast_dtype('cpu')}, which its kernels do not have",
            hint="Put it under torch.autocast('cpu', enabled=False), its inputs as float32.",
        )


class _Lent:
    """A tensor's memory, in the form that NumPy reads.

    `Tensor.numpy()` would forbid for good that the memory is resized, which `fully_shard` does between the passes.
    """

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor  # lives as long as the array
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "typestr": TYPES[tensor.dtype],
            "version": 3,
        }


def as_array(name: str, tensor: Tensor) -> Array:
    """A tensor's memory as an array; a copy where it is not contiguous, or a view that negates or conjugates."""
    if not tensor.is_cpu or tensor.dtype not in TYPES:
        wanted = f"a tensor on the CPU, of {', '.join(str(dtype).removeprefix('torch.') for dtype in TYPES)}"
        came = f"{tensor.dtype} on {tensor.device}"
        raise StepError("a tensor that kernels cannot read", blob=name, wanted=wanted, came=came)
    if type(tensor) not in PLAIN:
        check_whole(name, tensor)
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return np.asarray(_Lent(tensor)) if tensor.numel() else tensor.detach().numpy()


def check_whole(name: str, tensor: Tensor) -> None:
    """Raise StepError for a tensor of which this process has a part."""
    if isinstance(tensor, torch.distributed.tensor.DTensor):
        hint = "Put fully_shard around the RNN, or a module that holds it, and not around its cell."
        raise StepError("a tensor of which this process has a part", blob=name, came=f"{tensor.placements}", hint=hint)


def as_tensor(array: Array) -> Tensor:
    """An output or gradient as a tensor over its memory; PyTorch itself finds out who changes it too early."""
    if not array.flags.writeable:
        array.flags.writeable = True
    return torch.from_numpy(np.asarray(array))
