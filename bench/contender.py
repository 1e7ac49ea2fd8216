"""Contenders: one library's way to compute a problem, ready to be called; and the table of who there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib import import_module
from typing import Any

from bench.case import Entry
from bench.counting import Work
from bench.data import Data, Placed, draw_data
from bench.place import HostPlace, Place
from bench.problems import Problem


@dataclass(frozen=True)
class Settings:
    """What holds for a whole run.

    Args:
        device: of rnnops.
        rounds: blocks of each contender.
        settle, counted: seconds of a block before counting and counted.
        patience: seconds that a case may lose to repeating blocks that other processes disturbed.
        sets: of inputs.
        tiny: sizes for an interpreter, which on a CUDA device is numba's simulator.
        without: a pattern of labels of contenders that are left out.
        processor_time: what is counted is time of the processor, of all threads, not of the clock on the wall.
    """

    device: str = "cpu"
    threads: int = 2
    rounds: int = 5
    settle: float = 0.05
    counted: float = 0.1
    patience: float = 20.0
    sets: int = 1
    tiny: bool = False
    processor_time: bool = False
    without: str = ""

    @property
    def is_cuda(self) -> bool:
        return self.device == "cuda"

    @property
    def is_simulated(self) -> bool:
        return self.is_cuda and self.tiny


@dataclass
class Bench:
    """Where the contenders of a case are made; data of a problem is drawn once, and shared."""

    settings: Settings
    place: Place = field(default_factory=HostPlace)
    drawn: dict[object, Data] = field(default_factory=dict)

    def data(self, problem: Problem) -> Data:
        if problem.data not in self.drawn:
            self.drawn[problem.data] = draw_data(problem, self.place, self.settings.sets)
        return self.drawn[problem.data]


def gradient_of(name: str) -> str:
    """How results call the gradient of a feed."""
    return f"gradient of {name}"


def named(returned: tuple[Placed, Placed]) -> Placed:
    """Outputs and gradients under one roof."""
    outputs, gradients = returned
    return {**outputs, **{gradient_of(name): array for name, array in gradients.items()}}


@dataclass(frozen=True)
class Contender:
    """One way to compute a problem.

    Args:
        call: number of an input set -> whatever comes; on a device the work may still run when it returns.
        results: what a call returned -> outputs by name and `gradient_of(feed)`, in the layout of the feeds; None for
            one that computes less.
        work: floating-point operations and elementwise results, where they are counted.
        waits: whether a call returns only when its work is done; it is timed by the processor's clock.
        planned: bytes that a call needs beside its feeds, by the library's own account; None where PyTorch counts.
    """

    call: Callable[[int], Any]
    results: Callable[[Any], Placed] | None = None
    work: Callable[[], Work] | None = None
    waits: bool = False
    planned: Callable[[], int] | None = None


@dataclass(frozen=True)
class Engine:
    """Where a contender is made: `maker` of a module of `bench`, called with an entry, a bench and options."""

    module: str
    maker: str
    needs: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_fed(self) -> bool:
        """With data of a problem of `nets.py`; the others make theirs by themselves."""
        modules = ("rnnops_engine", "torch_engine", "jax_engine", "onnxruntime_engine", "flashrnn_engine")
        return self.module in modules or self.maker == "products"


def ours(**options: Any) -> Engine:
    return Engine("rnnops_engine", "plain", options=options)


def in_torch(module: str, maker: str, *needs: str, **options: Any) -> Engine:
    return Engine(module, maker, ("torch", *needs), options)


SAVING: Mapping[str, Engine] = {
    "all": ours(checkpoints="all"),
    "default": ours(),
    "memory": ours(checkpoints="memory"),
    **{f"budget {share} %": ours(memory_budget=share / 100) for share in (20, 10, 5, 2)},
}
ENGINES: dict[str, Engine] = {
    "rnnops": ours(),
    "rnnops bound": ours(bind=True),
    "reference": ours(device="reference"),
    "recycled": ours(recycle=True),
    "not recycled": ours(recycle=False),
    **SAVING,
    "peak": Engine("machine", "peak"),
    "products": Engine("machine", "products"),
    "nn.LSTM": in_torch("torch_engine", "layer"),
    "nn.GRU": in_torch("torch_engine", "layer"),
    "packed sequence": in_torch("torch_engine", "layer", is_packed=True),
    "eager": in_torch("torch_engine", "loop"),
    "torch.compile": in_torch("torch_engine", "loop", is_compiled=True),
    "FlashRNN": in_torch("flashrnn_engine", "lstm", "flashrnn"),
    "products of cuBLAS": in_torch("torch_engine", "products"),
    "JAX": Engine("jax_engine", "scan", ("jax",)),
    "preset": Engine("preset_engine", "ours"),
    "preset in JAX": Engine("preset_engine", "in_jax", ("jax",)),
    "JAX checkpoint": Engine("jax_engine", "scan", ("jax",), {"is_checkpointed": True}),
    "rt.RNN": in_torch("torch_step", "recurrence"),
    "Python loop": in_torch("torch_step", "recurrence", is_loop=True),
    "layer of a cell": in_torch("torch_step", "layer"),
    "between Linear": in_torch("torch_step", "between_linear"),
    "loop between Linear": in_torch("torch_step", "between_linear", is_loop=True),
    "nn.Linear": in_torch("torch_step", "linear_alone"),
    "small rt.RNN": in_torch("torch_overhead", "through_torch"),
    "small run": in_torch("torch_overhead", "run_alone"),
    "empty function": in_torch("torch_overhead", "through_nothing"),
    "rt.RNN, new T": in_torch("torch_overhead", "new_shapes", grows="T"),
    "run, new T": in_torch("torch_overhead", "new_shapes", grows="T", is_alone=True),
    "rt.RNN, new N": in_torch("torch_overhead", "new_shapes", grows="N"),
    "run, new N": in_torch("torch_overhead", "new_shapes", grows="N", is_alone=True),
    "policy": in_torch("torch_policy", "cell_over_time"),
    "policy in a loop": in_torch("torch_policy", "cell_over_time", is_loop=True),
    "policy, split and padded": in_torch("torch_policy", "split_and_padded"),
    "policy of torchrl": in_torch("torch_policy", "through_torchrl", "torchrl", "tensordict"),
    "served run": Engine("stream_engine", "bound", ("torch", "onnx", "onnxruntime")),
    "served program": Engine("stream_engine", "program", ("torch", "onnx", "onnxruntime")),
    "served session": Engine("stream_engine", "session", ("torch", "onnx", "onnxruntime")),
    "onnxruntime": Engine("onnxruntime_engine", "lstm", ("onnxruntime", "onnx")),
}
BY_ITSELF = {"flashrnn": "pip install flashrnn, which compiles its kernels with nvcc and g++"}  # of another licence
NOT_SIMULATED = ("torch.compile", "JAX")  # minutes of compiling would say nothing
Maker = Callable[..., Contender]


class MissingPeerError(Exception):
    """A library that a contender needs is not there, or not on the device."""


def require_libraries(engine: str, place: Place) -> None:
    """Raises MissingPeerError where a library of an engine does not import, or computes elsewhere."""
    for library in ENGINES[engine].needs:
        try:
            import_module(library)
        except ImportError as error:
            raise MissingPeerError(
                f"{engine} is not measured: wanted the library {library}, which does not import ({error}); "
                + (BY_ITSELF.get(library) or "install the extra 'bench': pip install '.[bench]'")
            ) from error
        if library == "torch" and not place.torch_device:
            raise MissingPeerError("this build of PyTorch sees no CUDA device")


def make_contender(entry: Entry, bench: Bench) -> Contender:
    """The contender of an entry. Raises MissingPeerError where its library is not there or has no device."""
    if bench.settings.is_simulated and entry.engine in NOT_SIMULATED:
        raise MissingPeerError(f"{entry.engine} is left out of tiny runs")
    if fnmatch(entry.label, bench.settings.without):
        raise MissingPeerError(f"left out by --without '{bench.settings.without}'")
    require_libraries(entry.engine, bench.place)
    engine = ENGINES[entry.engine]
    maker: Maker = getattr(import_module(f"bench.{engine.module}"), engine.maker)
    return maker(entry, bench, **engine.options)
