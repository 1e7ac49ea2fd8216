"""The table of `rnnops.torch`: recurrences of PyTorch's users as they run them, and compiled inside autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.case import Case, Entry, entries
from bench.goals import Goal, added, of_sum, over_pairs, speedup
from bench.package_cells import CELLS
from bench.problems import Problem, Size

MIDDLE, BESIDE_LAYER, SMALL = Size(100, 32, 128), Size(100, 32, 256), Size(4, 1, 8)
POLICIES = ("GRU", "LSTM")
MEDIAN, LEAST, OF_LAYER, OF_PARTS = 5.0, 2.0, 0.95, 1.1
ADDED, ADDED_AT_A_NEW_SHAPE = 70e-6, 20e-3
IN_TORCH = "rnnops"


def torch_cases(scale: Callable[[Size], Size]) -> Iterator[Case]:
    """All cases; names begin with torch."""
    yield cells(scale(MIDDLE))
    yield beside_layer(scale(BESIDE_LAYER))
    yield between_linear(scale(MIDDLE))
    yield overhead(SMALL)
    yield new_shape(scale(MIDDLE), "T")
    yield new_shape(scale(MIDDLE), "N")
    yield from (policy(scale(MIDDLE), kind) for kind in POLICIES)


def cells(size: Size) -> Case:
    """All cells that tests compare with their loop; those of a package that is missing are left out."""
    pairs = [(name, f"{name}, Python loop") for name in CELLS]
    contenders = [
        (Entry(slow, "Python loop", Problem(name, size)), Entry(name, "rt.RNN", Problem(name, size)))
        for name, slow in pairs
    ]
    ratios = tuple(speedup((slow,), None, name) for name, slow in pairs)
    goals: tuple[Goal, ...] = (over_pairs(tuple(pairs), MEDIAN), over_pairs(tuple(pairs), LEAST, least=True), *ratios)
    everybody = tuple(entry for pair in contenders for entry in pair)
    return Case("torch cells training", str(size), everybody, goals, apart=True)


def beside_layer(size: Size) -> Case:
    """A cell that has a layer of PyTorch's own."""
    problem = Problem("nn.LSTMCell", size)
    contenders = (Entry("nn.LSTM", "layer of a cell", problem), Entry(IN_TORCH, "rt.RNN", problem))
    return Case("torch nn.LSTMCell", str(size), contenders, (speedup(("nn.LSTM",), OF_LAYER),), apart=True)


def between_linear(size: Size) -> Case:
    """Kernels of two libraries in turn must not cost more than each by itself."""
    whole, cell = Problem("between", size), Problem("nn.LSTMCell", size)
    alone = ("Linear", "other Linear", "recurrence")
    contenders = (
        Entry("whole in a loop", "loop between Linear", whole, timed=False),
        Entry(IN_TORCH, "between Linear", whole),
        *(Entry(label, "nn.Linear", Problem("linear", size)) for label in alone[:2]),
        Entry("recurrence in a loop", "Python loop", cell, timed=False),
        Entry("recurrence", "rt.RNN", cell),
    )
    return Case("torch between Linear", str(size), contenders, (of_sum(IN_TORCH, alone, OF_PARTS),), apart=True)


def overhead(size: Size) -> Case:
    """What autograd costs where there is next to nothing to compute."""
    contenders = entries(Problem("nn.GRUCell", size), "training", "small run", "small rt.RNN", "empty function")
    goals = (added("small rt.RNN", "small run", ADDED), added("small rt.RNN", "empty function", None))
    return Case("torch added to a run", str(size), contenders, goals, apart=True)


def new_shape(size: Size, what: str) -> Case:
    """The first call with another number of steps or rows, beside what the run itself needs to plan it."""
    ours, alone = f"rt.RNN, new {what}", f"run, new {what}"
    contenders = entries(Problem("nn.GRUCell", size), "training", alone, ours)
    goals = (added(ours, alone, ADDED_AT_A_NEW_SHAPE),)
    return Case(f"torch first call, new {what}", str(size), contenders, goals, "first calls", apart=True)


def policy(size: Size, kind: str) -> Case:
    """A policy of PPO: beside the loop, the layer on episodes that are split and padded, and torchrl that does so."""
    problem = Problem(kind, size)
    others = {"Python loop": "policy in a loop", "split and pad": "policy, split and padded"}
    contenders = (
        *(Entry(label, engine, problem) for label, engine in others.items()),
        Entry("torchrl", "policy of torchrl", problem),
        Entry(IN_TORCH, "policy", problem),
    )
    goals = tuple(speedup((label,), None) for label in (*others, "torchrl"))
    return Case(f"torch {kind} policy", str(size), contenders, goals, apart=True)
