"""The device side of a recurrence's tensors, host or CUDA, and runs there.

**CUDA tensors**: kernels read tensors where they are, without a copy. PyTorch lends all memory that a call needs, so
outputs and gradients are PyTorch's own tensors. No exchange protocol is involved, whose read-only arrays PyTorch would
refuse. Work goes into the current stream, for which PyTorch's pool lends memory, so nothing waits. `torch.cuda.graph`
can capture a call like any other work, once a call has run before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import rnnops as ro
from rnnops.compiler.api.bound_run import CallLists, TrainingLists
from rnnops.compiler.api.planned_run import KINDS
from rnnops.compiler.api.run import Run
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.run.recorder import array_maker
from rnnops.compiler.targets.target import Processor, openmp_of
from rnnops.net.net import Net
from rnnops.torch.arguments import PLAIN
from rnnops.torch.errors import SHARDED, StepError
from rnnops.types import Array
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.kernels.cuda import memory as lenders, simulated as simulated
else:  # these modules load numba
    lenders = LazyModule("rnnops.kernels.cuda.memory")
    simulated = LazyModule("rnnops.kernels.cuda.simulated")

TYPES = {  # names of the dtypes in NumPy
    getattr(torch, name): np.dtype(name).str
    for name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
}


class HostSide:
    """Runs for tensors on the CPU."""

    kind = "cpu"  # autocast's name of the device
    captures = False

    def compile(self, net: Net, threads: int | None, options: Mapping[str, Any]) -> Run:
        """Compiles a net. It uses the threads of PyTorch's pool if PyTorch's runtime is a known one."""
        tuning = Options(device=Processor(openmp=openmp_of(torch._C.__file__)))
        return ro.compile(net, tuning=tuning, threads=threads, **options)

    def call(self, run: Run, feeds: Mapping[str, Tensor], seed: int | None) -> list[Tensor]:
        """Outputs of a net, in its order. `seed` is None if the net draws no random numbers."""
        arrays = _arrays(feeds)
        out = run(arrays) if seed is None else run(arrays, seed=seed, training=True)
        return [as_tensor(array) for array in out.values()]

    def vjp(
        self, run: Run, feeds: Mapping[str, Tensor], wanted: Sequence[str], seed: int
    ) -> tuple[tuple[Tensor, ...], Any]:
        """Outputs of a net, in its order, and the pullback for `pull`."""
        out, pullback = run.vjp(_arrays(feeds), wrt=wanted, seed=seed)
        return tuple(as_tensor(array) for array in out.values()), pullback

    def pull(self, pullback: Any, grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients of inputs from those of outputs."""
        return {name: as_tensor(array) for name, array in pullback(_arrays(grads)).items()}


HOST = HostSide()


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: as_array(name, tensor) for name, tensor in tensors.items()}


class _Lent:
    """A tensor's memory in the form that NumPy reads.

    `Tensor.numpy()` would keep `fully_shard` from resizing the tensor later.
    """

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor  # keeps the tensor alive as long as the array
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "typestr": TYPES[tensor.dtype],
            "version": 3,
        }


def as_array(name: str, tensor: Tensor) -> Array:
    """A tensor's memory as an array.

    It is a copy if the tensor is not contiguous, or is a view with a lazy sign or conjugate.
    """
    tensor = _on_host(name, tensor)
    return np.asarray(_Lent(tensor)) if tensor.numel() else tensor.detach().numpy()


def as_read(names: Iterable[str], tensors: Sequence[Tensor]) -> tuple[list[int], Any]:
    """Addresses of tensors that kernels can read on the host, and the copies that had to be made."""
    words = []
    for x in tensors:
        if type(x) not in PLAIN or not x.is_cpu or not x.is_contiguous() or x.is_neg():
            copies = list(map(_on_host, names, tensors))
            return [x.data_ptr() for x in copies], copies
        words.append(x.data_ptr())
    return words, None


def _on_host(name: str, tensor: Tensor) -> Tensor:
    if not tensor.is_cpu or tensor.dtype not in TYPES:
        raise unreadable(name, tensor, "the CPU")
    return in_rows(name, tensor)


def in_rows(name: str, tensor: Tensor) -> Tensor:
    """The tensor, or a copy, whose memory has its numbers without gaps. Raises StepError for a part of one."""
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
    return StepError("kernels cannot read a tensor", blob=name, wanted=wanted, came=came, hint=hint)


def check_whole(name: str, tensor: Tensor) -> None:
    """Raise StepError for a tensor if this process has only a part of it."""
    if isinstance(tensor, torch.distributed.tensor.DTensor):
        raise StepError(
            "this process has only a part of a tensor", blob=name, came=f"{tensor.placements}", hint=SHARDED
        )


def as_tensor(array: Array) -> Tensor:
    """An output or gradient as a tensor over its memory. PyTorch itself detects changes that come too early."""
    if not array.flags.writeable:
        array.flags.writeable = True
    return torch.from_numpy(np.asarray(array))


SEEDS = 2**63 - 1


Grads = Sequence[Tensor | None]
Pull = Callable[[Grads], Grads]  # from gradients of outputs to those of inputs


LARGE = 1 << 20  # bytes; from here on, memory of PyTorch needs new pages at each call


def maker(shape: tuple[int, ...], dtype: Any) -> Callable[[], Tensor]:
    """A function that makes new tensors: small ones of PyTorch's memory, large ones of memory that has its pages."""
    if prod(shape) * np.dtype(dtype).itemsize >= LARGE:
        make = array_maker(shape, dtype)
        return lambda: as_tensor(make())
    return partial(torch.empty_like, torch.from_numpy(np.empty((), dtype)).expand(shape))  # the fastest way


class TensorCalls:
    """Answers calls with tensors of certain kinds by a run's lists of jobs."""

    def __init__(self, lists: CallLists) -> None:
        self._lists = lists
        self._outputs = [maker(shape, dtype) for _, dtype, shape in lists.recorded.outputs]

    def __call__(self, given: list[int]) -> list[Tensor] | None:
        """Outputs, from the addresses of inputs. None if an index is out of range."""
        made = [make() for make in self._outputs]
        jobs = self._lists.take()
        right = jobs.perform(given + [x.data_ptr() for x in made])
        self._lists.idle.append(jobs)
        return made if right else None


class TensorSteps:
    """Answers training steps with tensors of certain kinds by a run's lists of jobs.

    Args:
        names: of the net's inputs.
    """

    def __init__(self, lists: TrainingLists, names: Sequence[str]) -> None:
        self._lists, recorded = lists, lists.recorded
        outputs, results = [*recorded.outputs], [*recorded.results]
        self._outputs = [maker(*kind) for kind in recorded.outputs.values()]
        self._results = [maker(*kind) for kind in recorded.results.values()]
        self._zeros = [
            (outputs.index(name), torch.from_numpy(np.zeros(*kind))) for name, kind in recorded.grads.items()
        ]
        self._order = [results.index(name) if name in results else None for name in names]
        self._kept = maker(*recorded.kept)

    def __call__(self, given: list[int], copies: Any) -> tuple[list[Tensor], Pull] | None:
        """Outputs, and the pullback, which holds copies of inputs. None if an index is out of range."""
        made, kept = [make() for make in self._outputs], self._kept()
        given = [*given, *[x.data_ptr() for x in made], kept.data_ptr()]
        return (made, partial(self._pull, given, (kept, copies))) if self._perform(0, given) else None

    def _pull(self, given: list[int], _held: Any, grads: Grads) -> Grads:
        dys = [zeros if grads[place] is None else grads[place] for place, zeros in self._zeros]
        words, _copies = as_read(repeat("a gradient"), dys)
        results = [make() for make in self._results]
        self._perform(1, given + words + [x.data_ptr() for x in results])
        return [None if place is None else results[place] for place in self._order]

    def _perform(self, which: int, words: list[int]) -> bool:
        passes = self._lists.take()
        right = passes[which].perform(words)
        self._lists.idle.append(passes)
        return right


class TensorRun:
    """A run that takes tensors and reads them in place."""

    def __init__(self, side: Side, run: Run, compile_net: Callable[[Net], Run], has_slopes: bool, kind: str) -> None:
        self.side, self.run, self.names, self._compile = side, run, tuple(run.net.input_names), compile_net
        self._derived: dict[Any, TensorRun] = {}
        self.has_slopes = has_slopes  # whether it has custom autograd functions
        self.kind = kind  # "t": a run of tangents, "d": a run of gradients, "": neither
        self._known: dict[Any, TensorCall] = {}  # replaced and never changed, so there is no lock

    def call_for(self, tensors: Sequence[Tensor], wanted: tuple[bool, ...]) -> TensorCall:
        """The way in which calls with tensors of these kinds are done.

        Args:
            wanted: for each tensor, True if its gradient is wanted. Empty if none is.
        """
        key = (wanted, *[x.shape for x in tensors], *[x.dtype for x in tensors])
        found = self._known.get(key)
        if found is None:
            found = TensorCall(self, wanted, self._lists_for(tensors, wanted))
            if found.lists is not None:
                self._known = {**dict([*self._known.items()][1 - KINDS :]), key: found}
        return found

    def _lists_for(self, tensors: Sequence[Tensor], wanted: tuple[bool, ...]) -> TensorCalls | TensorSteps | None:
        if self.side is not HOST or not all(x.dtype in TYPES for x in tensors):
            return None
        kinds = tuple((np.dtype(TYPES[x.dtype]), tuple(x.shape)) for x in tensors)
        run, names = self.run, self.chosen(wanted)
        lists = run._steps.known(kinds, names, True) if wanted else run._calls.known(kinds)
        if lists is None:
            return None
        return TensorSteps(lists, self.names) if wanted else TensorCalls(lists)

    def gradient(self, wanted: tuple[bool, ...], outputs: Sequence[str], tensors: Sequence[Tensor]) -> TensorRun:
        """The run of the gradient net. It takes the tensors, then gradients of these outputs."""
        key = ("d", wanted, *outputs, *[x.shape for x in tensors])
        shapes = {name: tuple(x.shape) for name, x in zip(self.names, tensors, strict=True)}
        return self._derived_for(key, lambda: ro.gradient_net(self.run.net, self.chosen(wanted), outputs, **shapes))

    def tangent(self, moving: tuple[bool, ...], tensors: Sequence[Tensor]) -> TensorRun:
        """The run of the tangent net. It takes all tensors, then the tangents of those that move."""
        key = ("t", moving, *[x.shape for x in tensors])
        shapes = {name: tuple(x.shape) for name, x in zip(self.names, tensors, strict=True)}
        return self._derived_for(key, lambda: ro.tangent_net(self.run.net, self.chosen(moving), **shapes))

    def _derived_for(self, key: Any, make: Callable[[], Net]) -> TensorRun:
        if key not in self._derived:
            check_order(self, bool(self.kind))
            made = TensorRun(self.side, self._compile(make()), self._compile, self.has_slopes, key[0])
            self._derived = {**dict([*self._derived.items()][1 - KINDS :]), key: made}
        return self._derived[key]

    def chosen(self, wanted: tuple[bool, ...]) -> tuple[str, ...]:
        """Names of the inputs whose gradients are wanted."""
        return tuple(name for name, want in zip(self.names, wanted, strict=False) if want)


@dataclass(frozen=True)
class TensorCall:
    """A call of a run with tensors of certain kinds.

    Args:
        wanted: for each tensor, True if its gradient is wanted. Empty if none is.
        lists: lists of jobs that answer the call from the addresses of tensors. None if the run itself answers.
    """

    run: TensorRun
    wanted: tuple[bool, ...]
    lists: Any

    def outputs(self, tensors: Sequence[Tensor], seed: int | None) -> Sequence[Tensor]:
        """Outputs of the net, in its order. `seed` is None if the net draws no random numbers."""
        one = self.run
        if self.lists is not None and seed is None:
            words, _copies = as_read(one.names, tensors)
            made: Sequence[Tensor] | None = self.lists(words)
            if made is not None:
                return made
        return one.side.call(one.run, dict(zip(one.names, tensors, strict=True)), seed)

    def vjp(
        self, tensors: Sequence[Tensor], seed: int, words: list[int] | None = None
    ) -> tuple[Sequence[Tensor], Pull]:
        """Outputs of the net, in its order, and the pullback.

        Args:
            words: addresses of the tensors that kernels read directly.
        """
        if self.lists is not None:
            given = as_read(self.run.names, tensors) if words is None else (words, None)
            made: tuple[Sequence[Tensor], Pull] | None = self.lists(*given)
            if made is not None:
                return made
        one = self.run
        feeds = dict(zip(one.names, tensors, strict=True))
        outputs, pullback = one.side.vjp(one.run, feeds, one.chosen(self.wanted), seed)
        return outputs, partial(self._pull, pullback)

    def _pull(self, pullback: Any, grads: Grads) -> Grads:
        one = self.run
        given = zip(one.run.net.output_blobs, grads, strict=True)
        found = one.side.pull(pullback, {name: grad for name, grad in given if grad is not None})
        return [found.get(name) for name in one.names]


def check_order(run: TensorRun, is_second: bool) -> None:
    """Raise StepError for second derivatives of custom autograd functions. Nets have only their first ones."""
    if is_second and run.has_slopes:
        hint = "Write the function by PyTorch's own ops, or leave out create_graph=True and gradients of tangents."
        raise StepError("a step with a custom autograd function has no second derivative", hint=hint)


is_on_card = attrgetter("is_cuda")  # whether a tensor lies on a CUDA device


def device_of(tensor: Tensor) -> torch.device:
    """The device of a tensor."""
    return tensor.device


def current_device() -> int:
    """The number of this thread's current device."""
    return torch.cuda.current_device()


def current_stream(device: torch.device) -> Any:
    """The stream into which this thread's work on a device goes."""
    return torch.cuda.current_stream(device)


def is_capturing() -> bool:
    """True if `torch.cuda.graph` captures the work of the current stream."""
    return torch.cuda.is_current_stream_capturing()


def memory(nbytes: int, device: torch.device) -> Tensor:
    """Memory of a device from PyTorch's pool, for the current stream or for the graph that is captured."""
    return torch.empty(max(nbytes, 1), dtype=torch.uint8, device=device)


@dataclass
class TorchMemory:
    """Lends memory of PyTorch to a call."""

    device: torch.device
    captures: bool

    def take(self, nbytes: int) -> tuple[Tensor, int]:
        """New memory of PyTorch's pool: a tensor of bytes, and its address."""
        owner = memory(nbytes, self.device)
        return owner, owner.data_ptr()


class Lent:
    """A tensor's memory in the form in which kernels of the device read arrays."""

    __slots__ = ("__cuda_array_interface__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor  # keeps the tensor alive as long as the array
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
    kind = "cuda"  # autocast's name of the device

    @property
    def captures(self) -> bool:
        """True if a graph is being captured."""
        return is_capturing()

    def compile(self, net: Net, threads: int | None, options: Mapping[str, Any]) -> Run:
        """Compile for the device. Raises DeviceError if numba-cuda is missing, or the device cannot be used."""
        self._check_current()
        if simulated.SIMULATED and torch.cuda.is_available():
            hint = "Unset NUMBA_ENABLE_CUDASIM before Python starts."
            raise StepError("with CUDA tensors, CUDA kernels must not run in numba's simulator on the CPU", hint=hint)
        return ro.compile(net, device="cuda", **options)

    def call(self, run: Any, feeds: Mapping[str, Tensor], seed: int | None) -> list[Tensor]:
        """Outputs of a net, in its order. `seed` is None if the net draws no random numbers."""
        with self._working() as stream:
            out = run(self._arrays(feeds), seed=seed, training=seed is not None, stream=stream)
            return [self.tensor(array) for array in out.values()]

    def vjp(
        self, run: Any, feeds: Mapping[str, Tensor], wanted: Sequence[str], seed: int
    ) -> tuple[tuple[Tensor, ...], Any]:
        """Outputs of a net, in its order, and the pullback for `pull`."""
        with self._working() as stream:
            out, pullback = run.vjp(self._arrays(feeds), wrt=wanted, seed=seed, stream=stream)
            return tuple(self.tensor(array) for array in out.values()), pullback

    def pull(self, pullback: Any, grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients of inputs from those of outputs."""
        with self._working() as stream:
            found = pullback(self._arrays(grads), stream=stream)
            return {name: self.tensor(array) for name, array in found.items()}

    @contextmanager
    def _working(self) -> Iterator[Any]:
        """A context in which PyTorch lends the memory. It gives the stream into which all work goes."""
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
        """A tensor's memory for kernels.

        It is a copy if the tensor is not contiguous, or is a view with a lazy sign or conjugate.
        """
        if device_of(tensor) != self.device or tensor.dtype not in TYPES:
            raise unreadable(name, tensor, str(self.device))
        return Lent(in_rows(name, tensor))

    def tensor(self, array: Any) -> Tensor:
        """An output or gradient as a tensor over the memory that PyTorch lent.

        Other arrays, such as constants, are copied.
        """
        if not isinstance(array.memory.owner, Tensor) or any(stride < 0 for stride in array.strides):
            array = array.copy()
        owner, size = array.memory.owner, array.itemsize
        made = torch.empty(0, dtype=getattr(torch, str(array.dtype)), device=owner.device)
        strides = [stride // size for stride in array.strides]
        return made.set_(owner.untyped_storage(), array.offset // size, array.shape, strides)


Side = HostSide | CudaSide


def side_of(tensors: Sequence[Tensor]) -> Side:
    """A CUDA device if a state, an input or lengths lie on one (all must then), else the host."""
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
