"""Where the tensors of a recurrence lie: on the CPU or on a CUDA device.

What is asked of `torch.cuda`, all of it: tests that have no GPU answer in its place.

Recurrences whose tensors lie on a CUDA device: in PyTorch's stream, in PyTorch's memory, without a copy.

Kernels read tensors where they are. PyTorch lends all memory that a call takes, so that outputs and gradients are its
own tensors, views of what was lent: nothing goes through an exchange protocol, whose read-only arrays PyTorch refuses.
Work goes into the stream that is current, for which PyTorch's pool lends, and nobody waits. So `torch.cuda.graph`
captures a call like any other work, once one has run before.

Sides: where the tensors of a recurrence lie, and what runs there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import rnnops as ro
from rnnops.compiler.api.run import Run
from rnnops.net import Net
from rnnops.torch.errors import StepError
from rnnops.torch.host_side import HOST, TYPES, HostSide, in_rows, unreadable
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.kernels.cuda import lenders as lenders, simulated as simulated
else:  # which load numba
    lenders = LazyModule("rnnops.kernels.cuda.lenders")
    simulated = LazyModule("rnnops.kernels.cuda.simulated")


def is_on_card(tensor: Tensor) -> bool:
    """Whether a tensor lies on a CUDA device."""
    return tensor.is_cuda


def device_of(tensor: Tensor) -> torch.device:
    """Where a tensor lies."""
    return tensor.device


def current_device() -> int:
    """The number of the device that is current in this thread."""
    return torch.cuda.current_device()


def current_stream(device: torch.device) -> Any:
    """The stream into which this thread's work on a device goes."""
    return torch.cuda.current_stream(device)


def is_capturing() -> bool:
    """Whether `torch.cuda.graph` captures what goes into the stream that is current."""
    return torch.cuda.is_current_stream_capturing()


def memory(nbytes: int, device: torch.device) -> Tensor:
    """Memory of a device, from PyTorch's pool, for the stream that is current, or of the graph that is captured."""
    return torch.empty(max(nbytes, 1), dtype=torch.uint8, device=device)


@dataclass
class TorchMemory:
    """PyTorch as the lender of a call."""

    device: torch.device
    captures: bool

    def take(self, nbytes: int) -> tuple[Tensor, int]:
        """New memory of PyTorch's pool: a tensor of bytes, and its address."""
        owner = memory(nbytes, self.device)
        return owner, owner.data_ptr()


class Lent:
    """A tensor's memory, in the form in which arrays of the device are read."""

    __slots__ = ("__cuda_array_interface__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor  # lives as long as the array
        self.__cuda_array_interface__ = {
            "data": (tensor.data_ptr() if tensor.numel() else 0, False),
            "shape": tuple(tensor.shape),
            "typestr": TYPES[tensor.dtype],
            "strides": None,
            "stream": None,
            "version": 3,
        }


@dataclass(frozen=True)
class CudaSide:
    """Runs for tensors on a CUDA device."""

    device: torch.device
    kind = "cuda"  # as autocast calls it

    @property
    def captures(self) -> bool:
        """Whether a graph is being captured."""
        return is_capturing()

    def compile(self, net: Net, threads: int | None, options: Mapping[str, Any]) -> Run:
        """Compile for the device. Raises DeviceError where numba-cuda is missing, or the device cannot be used."""
        self._check_current()
        if simulated.SIMULATED and torch.cuda.is_available():
            hint = "Unset NUMBA_ENABLE_CUDASIM before Python starts."
            raise StepError("CUDA tensors, and CUDA kernels run in numba's simulator, on the CPU", hint=hint)
        return ro.compile(net, device="cuda", **options)

    def call(self, run: Any, feeds: Mapping[str, Tensor], seed: int) -> list[Tensor]:
        """Outputs of a net, in its order."""
        with self._working() as stream:
            out = run(self._arrays(feeds), seed=seed, training=True, stream=stream)
            return [self.tensor(array) for array in out.values()]

    def vjp(
        self, run: Any, feeds: Mapping[str, Tensor], wanted: Sequence[str], seed: int
    ) -> tuple[tuple[Tensor, ...], Any]:
        """Outputs of a net, in its order, and what `pull` takes."""
        with self._working() as stream:
            out, pullback = run.vjp(self._arrays(feeds), wrt=wanted, seed=seed, stream=stream)
            return tuple(self.tensor(array) for array in out.values()), pullback

    def pull(self, pullback: Any, grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients of inputs by those of outputs."""
        with self._working() as stream:
            found = pullback(self._arrays(grads), stream=stream)
            return {name: self.tensor(array) for name, array in found.items()}

    @contextmanager
    def _working(self) -> Iterator[Any]:
        """PyTorch lends the memory; the stream into which all goes."""
        self._check_current()
        with lenders.lent_by(TorchMemory(self.device, self.captures)):
            yield current_stream(self.device)

    def _check_current(self) -> None:
        current = current_device()
        if current != self.device.index:
            raise StepError(
                "tensors lie on a CUDA device that is not the current one",
                wanted=f"cuda:{current}",
                came=str(self.device),
                hint=f"Call it within torch.cuda.device({self.device.index}), or torch.cuda.set_device before.",
            )

    def _arrays(self, tensors: Mapping[str, Tensor]) -> dict[str, Lent]:
        return {name: self.array(name, tensor) for name, tensor in tensors.items()}

    def array(self, name: str, tensor: Tensor) -> Lent:
        """A tensor's memory for kernels; a copy where it is not contiguous, or a view that negates or conjugates."""
        if device_of(tensor) != self.device or tensor.dtype not in TYPES:
            raise unreadable(name, tensor, str(self.device))
        return Lent(in_rows(name, tensor))

    def tensor(self, array: Any) -> Tensor:
        """An output or gradient as a tensor over its memory, which was lent; a copy of what else it is (constants)."""
        if not isinstance(array.memory.owner, Tensor) or any(stride < 0 for stride in array.strides):
            array = array.copy()
        owner, size = array.memory.owner, array.itemsize
        made = torch.empty(0, dtype=getattr(torch, str(array.dtype)), device=owner.device)
        strides = [stride // size for stride in array.strides]
        return made.set_(owner.untyped_storage(), array.offset // size, array.shape, strides)


Side = HostSide | CudaSide


def side_of(tensors: Sequence[Tensor]) -> Side:
    """Where states, inputs and lengths lie: the CUDA device that one is on, and all have to be, else the host."""
    if not any(map(is_on_card, tensors)):  # most calls
        return HOST
    found = dict.fromkeys(map(device_of, tensors))
    card = next(device for device in found if device.type == "cuda")
    if len(found) > 1:
        raise StepError(
            "states and inputs lie on two devices",
            wanted="all on one, as the module",
            came=" and ".join(map(str, found)),
            hint=f"Move them: x.to('{card}').",
        )
    return CudaSide(card)
