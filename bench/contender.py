"""Contenders: one library's way to compute a problem, ready to be called; and the table of who there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bench.counting import Work
from bench.problems import Arrays, Problem

MODES = ("forward", "kept forward", "training")  # "kept forward": keeps what backward needs, and drops it


@dataclass(frozen=True)
class Settings:
    """What holds for a whole run.

    Args:
        device: of rnnops.
        rounds: blocks of each contender.
        settle, counted: seconds of a block before counting and counted.
        patience: seconds that a case may lose to repeating blocks that other processes disturbed.
    """

    device: str = "cpu"
    threads: int = 2
    rounds: int = 5
    settle: float = 0.05
    counted: float = 0.1
    patience: float = 20.0


def gradient_of(name: str) -> str:
    """How results call the gradient of a feed."""
    return f"gradient of {name}"


@dataclass(frozen=True)
class Contender:
    """One way to compute a problem.

    Args:
        call: what is timed; it returns when all results are there.
        results: what a call returned -> outputs by name and `gradient_of(feed)`, in the layout of the feeds.
        work: floating-point operations and elementwise results, where they are counted.
    """

    call: Callable[[], Any]
    results: Callable[[Any], Arrays] | None = None
    work: Work | None = None


@dataclass(frozen=True)
class Engine:
    """Where a contender is made: `maker` of a module of `bench`, called with (problem, mode, settings)."""

    module: str
    maker: str
    needs: tuple[str, ...] = ()


ENGINES = {
    "rnnops": Engine("rnnops_engine", "plain"),
    "rnnops bound": Engine("rnnops_engine", "bound", ()),
    "reference": Engine("rnnops_engine", "reference"),
    "recycled": Engine("language_model", "recycled"),
    "all": Engine("budgets", "saving_all"),
    "default": Engine("budgets", "saving_default"),
    "memory": Engine("budgets", "saving_memory"),
    "budget 20 %": Engine("budgets", "within_20"),
    "budget 10 %": Engine("budgets", "within_10"),
    "budget 5 %": Engine("budgets", "within_5"),
    "budget 2 %": Engine("budgets", "within_2"),
    "not recycled": Engine("language_model", "not_recycled"),
    "peak": Engine("machine", "peak"),
    "products": Engine("machine", "products"),
    "nn.LSTM": Engine("torch_layers", "lstm", ("torch",)),
    "nn.GRU": Engine("torch_layers", "gru", ("torch",)),
    "packed sequence": Engine("torch_layers", "packed_lstm", ("torch",)),
    "eager": Engine("torch_engine", "eager", ("torch",)),
    "torch.compile": Engine("torch_engine", "compiled", ("torch",)),
    "JAX": Engine("jax_engine", "scan", ("jax",)),
    "first rnnops": Engine("first_results", "ours"),
    "first JAX": Engine("first_results", "jax", ("jax",)),
    "JAX checkpoint": Engine("jax_engine", "checkpointed_scan", ("jax",)),
    "rt.RNN": Engine("torch_rnn", "through_rnnops", ("torch",)),
    "Python loop": Engine("torch_rnn", "in_a_loop", ("torch",)),
    "layer of a cell": Engine("torch_rnn", "layer", ("torch",)),
    "between Linear": Engine("torch_rnn", "between_linear", ("torch",)),
    "loop between Linear": Engine("torch_rnn", "between_linear_in_a_loop", ("torch",)),
    "nn.Linear": Engine("torch_rnn", "linear_alone", ("torch",)),
    "small rt.RNN": Engine("torch_overhead", "through_torch", ("torch",)),
    "small run": Engine("torch_overhead", "run_alone", ("torch",)),
    "empty function": Engine("torch_overhead", "through_nothing", ("torch",)),
    "rt.RNN, new T": Engine("torch_shapes", "through_torch_new_steps", ("torch",)),
    "run, new T": Engine("torch_shapes", "run_alone_new_steps", ("torch",)),
    "rt.RNN, new N": Engine("torch_shapes", "through_torch_new_rows", ("torch",)),
    "run, new N": Engine("torch_shapes", "run_alone_new_rows", ("torch",)),
    "policy": Engine("torch_policy", "through_rnnops", ("torch",)),
    "policy in a loop": Engine("torch_policy", "in_a_loop", ("torch",)),
    "policy, split and padded": Engine("torch_policy", "split_and_padded", ("torch",)),
    "policy of torchrl": Engine("torch_policy", "through_torchrl", ("torch", "torchrl", "tensordict")),
    "onnxruntime": Engine("onnxruntime_engine", "lstm", ("onnxruntime", "onnx")),
}


class MissingPeerError(Exception):
    """A library that a contender needs is not there."""


def require_libraries(engine: str) -> None:
    """Raises MissingPeerError where a library of an engine does not import."""
    for library in ENGINES[engine].needs:
        try:
            import_module(library)
        except ImportError as error:
            raise MissingPeerError(
                f"{engine} is not measured: wanted the library {library}, which does not import ({error}); "
                "install the extra 'bench': pip install 'rnnops[bench]'"
            ) from error


def make_contender(engine: str, problem: Problem, mode: str, settings: Settings) -> Contender:
    """The contender that an engine makes of a problem. Raises MissingPeerError where its library does not import."""
    require_libraries(engine)
    found = ENGINES[engine]
    module = import_module(f"bench.{found.module}")
    maker: Callable[[Problem, str, Settings], Contender] = getattr(module, found.maker)
    return maker(problem, mode, settings)
