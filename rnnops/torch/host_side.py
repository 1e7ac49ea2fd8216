"""Recurrences whose tensors lie on the CPU: kernels read and write their memory where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rnnops as ro
from rnnops.compiler.api.run import Run
from rnnops.compiler.execute.compiled_scan import Options
from rnnops.compiler.targets.cpu.team import openmp_of
from rnnops.compiler.targets.target import Processor
from rnnops.net import Net
from rnnops.torch.errors import StepError
from rnnops.types import Array

PLAIN = (Tensor, torch.nn.Parameter)
TYPES = {  # as NumPy calls them
    getattr(torch, name): np.dtype(name).str
    for name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
}


class HostSide:
    """Runs for tensors on the CPU."""

    kind = "cpu"  # as autocast calls it
    captures = False

    def compile(self, net: Net, threads: int | None, options: Mapping[str, Any]) -> Run:
        """Compile for the threads of the pool that PyTorch has, where its runtime is one that is known."""
        tuning = Options(device=Processor(openmp=openmp_of(torch._C.__file__)))
        return ro.compile(net, tuning=tuning, threads=threads, **options)

    def call(self, run: Run, feeds: Mapping[str, Tensor], seed: int) -> list[Tensor]:
        """Outputs of a net, in its order."""
        return [as_tensor(array) for array in run(_arrays(feeds), seed=seed, training=True).values()]

    def vjp(
        self, run: Run, feeds: Mapping[str, Tensor], wanted: Sequence[str], seed: int
    ) -> tuple[tuple[Tensor, ...], Any]:
        """Outputs of a net, in its order, and what `pull` takes."""
        out, pullback = run.vjp(_arrays(feeds), wrt=wanted, seed=seed)
        return tuple(as_tensor(array) for array in out.values()), pullback

    def pull(self, pullback: Any, grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients of inputs by those of outputs."""
        return {name: as_tensor(array) for name, array in pullback(_arrays(grads)).items()}


HOST = HostSide()


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: as_array(name, tensor) for name, tensor in tensors.items()}


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
        raise unreadable(name, tensor, "the CPU")
    tensor = in_rows(name, tensor)
    return np.asarray(_Lent(tensor)) if tensor.numel() else tensor.detach().numpy()


def in_rows(name: str, tensor: Tensor) -> Tensor:
    """A tensor whose memory holds its numbers, without gaps: itself, or a copy. Raises StepError for parts of one."""
    if type(tensor) not in PLAIN:
        check_whole(name, tensor)
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        return tensor.detach().resolve_conj().resolve_neg().contiguous()
    return tensor


def unreadable(name: str, tensor: Tensor, where: str) -> StepError:
    """The error for a tensor that kernels cannot read."""
    wanted = f"a tensor on {where}, of {', '.join(str(dtype).removeprefix('torch.') for dtype in TYPES)}"
    came = f"{tensor.dtype} on {tensor.device}"
    hint = f"Inputs, states and the module lie on one device: module.to({where!r})." if "cuda" in where else None
    return StepError("a tensor that kernels cannot read", blob=name, wanted=wanted, came=came, hint=hint)


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
