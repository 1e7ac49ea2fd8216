"""Where the tensors of a recurrence lie, and how it is one node of PyTorch's autograd graph there.

**Recurrences whose tensors lie on a CUDA device**: in PyTorch's stream, in PyTorch's memory, without a copy. Kernels
read tensors where they are. PyTorch lends all memory that a call takes, so that outputs and gradients are its own
tensors, views of what was lent: nothing goes through an exchange protocol, whose read-only arrays PyTorch refuses. Work
goes into the stream that is current, for which PyTorch's pool lends, without a wait. So `torch.cuda.graph` captures a
call like any other work, once one has run before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

import rnnops as ro
from rnnops.compiler.api.run import Run
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cpu.team import openmp_of
from rnnops.compiler.targets.target import Processor
from rnnops.net.net import Net
from rnnops.torch.errors import StepError
from rnnops.types import Array
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.kernels.cuda import memory as lenders, simulated as simulated
else:  # which load numba
    lenders = LazyModule("rnnops.kernels.cuda.memory")
    simulated = LazyModule("rnnops.kernels.cuda.simulated")

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

    def call(self, run: Run, feeds: Mapping[str, Tensor], seed: int | None) -> list[Tensor]:
        """Outputs of a net, in its order; without a seed nothing in it is random."""
        arrays = _arrays(feeds)
        out = run(arrays) if seed is None else run(arrays, seed=seed, training=True)
        return [as_tensor(array) for array in out.values()]

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
    """Raise StepError for a tensor that this process has only a part of."""
    if isinstance(tensor, torch.distributed.tensor.DTensor):
        hint = "Put fully_shard around the RNN, or a module that holds it, and not around its cell."
        raise StepError("a tensor of which this process has a part", blob=name, came=f"{tensor.placements}", hint=hint)


def as_tensor(array: Array) -> Tensor:
    """An output or gradient as a tensor over its memory; PyTorch itself finds out who changes it too early."""
    if not array.flags.writeable:
        array.flags.writeable = True
    return torch.from_numpy(np.asarray(array))


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
    seed = _new_seed(side) if is_random else None
    if wanted:
        # `Function.apply` is this behind a search for torch.func's tensors, which `check_surroundings` refuses
        outputs: Sequence[Tensor] = super(Function, RecurrenceFunction).apply(
            side, run, names, wanted, seed or 0, *tensors
        )
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


def is_on_card(tensor: Tensor) -> bool:
    """True if a tensor lies on a CUDA device."""
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
    """True if `torch.cuda.graph` captures what goes into the stream that is current."""
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
        """True if a graph is being captured."""
        return is_capturing()

    def compile(self, net: Net, threads: int | None, options: Mapping[str, Any]) -> Run:
        """Compile for the device. Raises DeviceError where numba-cuda is missing, or the device cannot be used."""
        self._check_current()
        if simulated.SIMULATED and torch.cuda.is_available():
            hint = "Unset NUMBA_ENABLE_CUDASIM before Python starts."
            raise StepError("CUDA tensors, and CUDA kernels run in numba's simulator, on the CPU", hint=hint)
        return ro.compile(net, device="cuda", **options)

    def call(self, run: Any, feeds: Mapping[str, Tensor], seed: int | None) -> list[Tensor]:
        """Outputs of a net, in its order; without a seed nothing in it is random."""
        with self._working() as stream:
            out = run(self._arrays(feeds), seed=seed, training=seed is not None, stream=stream)
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
