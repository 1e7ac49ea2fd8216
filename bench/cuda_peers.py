"""Contenders of the CUDA benchmark: the table of who there is, and what each of them must be able to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bench.contender import Engine, MissingPeerError, gradient_of
from bench.cuda_cases import CudaEntry
from bench.cuda_data import Data, Placed
from bench.cuda_place import Place

ENGINES = {
    "rnnops": Engine("cuda_rnnops", "plain"),
    "layer": Engine("cuda_torch", "layer", ("torch",)),
    "eager": Engine("cuda_torch", "eager", ("torch",)),
    "torch.compile": Engine("cuda_torch", "compiled", ("torch",)),
    "products": Engine("cuda_torch", "products", ("torch",)),
    "JAX": Engine("cuda_jax", "scan", ("jax",)),
}
NOT_SIMULATED = ("torch.compile", "JAX")  # minutes of compiling would say nothing


@dataclass(frozen=True)
class CudaContender:
    """One way to compute a problem on a device.

    Args:
        call: number of an input set -> whatever comes; the work may still run when it returns.
        results: what a call returned -> outputs by name and `gradient_of(feed)`; None for one that computes less.
        waits: whether a call returns only when its work is done; it is timed by the processor's clock.
        planned: bytes that a call needs beside its feeds, by the library's own account; None where PyTorch counts.
    """

    call: Callable[[int], Any]
    results: Callable[[Any], Placed] | None = None
    waits: bool = False
    planned: Callable[[], int] | None = None


Maker = Callable[[CudaEntry, Data, Place], CudaContender]


def make_cuda_contender(entry: CudaEntry, data: Data, place: Place, tiny: bool) -> CudaContender:
    """The contender of an entry. Raises MissingPeerError where its library is not there or has no device."""
    engine = ENGINES[entry.engine]
    if tiny and entry.engine in NOT_SIMULATED:
        raise MissingPeerError(f"{entry.engine} is left out of tiny runs")
    for library in engine.needs:
        require_on_device(library, place)
    maker: Maker = getattr(import_module(f"bench.{engine.module}"), engine.maker)
    return maker(entry, data, place)


def require_on_device(library: str, place: Place) -> None:
    """Raises MissingPeerError where a library does not import, or computes elsewhere."""
    try:
        import_module(library)
    except ImportError as error:
        raise MissingPeerError(f"the library {library} does not import ({error})") from error
    if library == "torch" and not place.torch_device:
        raise MissingPeerError("this build of PyTorch sees no CUDA device")


def named(returned: tuple[Placed, Placed]) -> Placed:
    """Outputs and gradients under one roof."""
    outputs, gradients = returned
    return {**outputs, **{gradient_of(name): array for name, array in gradients.items()}}
