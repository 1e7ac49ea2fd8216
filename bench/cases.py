"""The table of the benchmark: what is measured, at which sizes, and what is wanted of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from bench.case import CUDA, HOST, Case, Entry, entries
from bench.cuda_cases import cuda_cases
from bench.goals import Goal, at_most, extra, linear, of_estimate, of_peak, over_pairs, ratio, speedup
from bench.nets import FIRST
from bench.problems import Problem, Size, share_inside
from bench.torch_cases import torch_cases

SIZES = (Size(50, 16, 128), Size(100, 32, 256), Size(100, 64, 512))
MIDDLE, LARGE = SIZES[1:]
ONE_ROW, NOTHING = Size(50, 1, 128), Size(1, 1, 8)
UNEVEN = Size(1000, 64, 256)  # lengths uniform in [T/10, T]
MANY_STEPS = tuple(Size(T, 16, 256) for T in (100, 300, 1000, 3000, 10000))
OTHER_SIZES = (*(Size(50, 32, H) for H in (32, 200, 1000, 2048)), *(Size(50, N, 256) for N in (3, 7, 100)))
FORWARD_OF_PEAK, TRAINING_OF_PEAK = (0.70, 0.85, 0.90), (None, None, 0.80)
JAX = (2.0, 2.0, 1.7)
CELLS = {"milstm": 1.25, "layer_norm_lstm": 1.35, "gru": None}  # and how much longer than the LSTM they may take
VARIANTS = {"renamed": 1.0, "permuted": 1.0, "softsign": 1.0, "one_more_op": 1.0, "second_sequence": 1.5}
RANDOM_CELLS = 20
LONG = Size(1000, 16, 256)
BUDGETS = {"memory": 1.35, "budget 20 %": 1.38, "budget 10 %": 1.40, "budget 5 %": 1.45}  # of the time of "all"
MODEL, WORDS = Size(64, 32, 256), (256, 10_000)
GATES = ("gates",)
BUDGET = "budget"
DEVICES = (*HOST, *CUDA)
Scale = Callable[[Size], Size]


def cases_of(device: str, tiny: bool = False) -> list[Case]:
    """What is measured of a device, or the same nets at sizes for an interpreter."""
    return [case for case in all_cases(tiny) if device in case.devices]


def all_cases(tiny: bool = False) -> Iterator[Case]:
    """The whole table of all devices."""
    scale = Size.tiny if tiny else lambda size: size
    yield from host_cases(scale)
    yield from torch_cases(scale)
    yield from cuda_cases(tiny)


def host_cases(scale: Scale) -> Iterator[Case]:
    """Those of processors, sizes changed by `scale`."""
    sizes = tuple(map(scale, SIZES))
    for size, share in zip(sizes, FORWARD_OF_PEAK, strict=True):
        yield lstm_forward(size, share)
    yield one_row(scale(ONE_ROW))
    for size, jax, of_training in zip(sizes, JAX, TRAINING_OF_PEAK, strict=True):
        yield lstm_training(size, jax, of_training)
    for net, times_lstm in CELLS.items():
        yield from (cell_training(net, size, jax, times_lstm) for size, jax in zip(sizes, JAX, strict=True))
    yield from map(attention, sizes)
    yield from (uneven_lengths(scale(UNEVEN), mode) for mode in ("forward", "training"))
    yield variants(scale(MIDDLE))
    yield random_cells(scale(MIDDLE))
    yield from (many_steps([scale(size) for size in MANY_STEPS], mode) for mode in ("kept forward", "training"))
    yield nothing_to_compute(scale(NOTHING))
    for mode in ("forward", "training"):
        yield from (other_size(scale(size), mode) for size in OTHER_SIZES)
    yield budgets(scale(LONG))
    yield from (memory(scale(LARGE)), memory_given_back(scale(LARGE)), kept(scale(LARGE)))
    for words in WORDS:
        yield from (recycling(scale(MODEL), words), recycling_memory(scale(MODEL), words))
    yield compile_times(scale(SIZES[0]))
    yield first_results(scale(SIZES[0]))


def lstm_forward(size: Size, share: float | None) -> Case:
    contenders = entries(
        Problem("lstm", size), "forward", "rnnops", "rnnops bound", "nn.LSTM", "onnxruntime", "JAX", "peak"
    )
    goals = (speedup(("nn.LSTM", "onnxruntime"), 1.05), of_peak(share), speedup(("JAX",), None))
    return Case("lstm forward", str(size), contenders, goals)


def one_row(size: Size) -> Case:
    contenders = entries(Problem("lstm", size), "forward", "rnnops", "rnnops bound", "nn.LSTM", "onnxruntime")
    goals = (speedup(("onnxruntime",), 1.0, "rnnops bound"), speedup(("nn.LSTM",), 2.0, "rnnops bound"))
    return Case("lstm forward", str(size), contenders, goals)


def lstm_training(size: Size, jax: float, share: float | None) -> Case:
    problem = Problem("lstm", size)
    contenders = (
        *entries(problem, "training", "rnnops"),
        Entry("rnnops [gates]", "rnnops", Problem("lstm", size, GATES)),
        *entries(problem, "training", "nn.LSTM", "eager", "torch.compile", "JAX", "JAX checkpoint"),
        *entries(problem, "training", "products", "peak"),
    )
    goals = (
        speedup(("nn.LSTM",), 1.3),
        speedup(("JAX",), jax),
        of_peak(share),
        extra("rnnops [gates]", "rnnops", "products", 1.10),
        speedup(("eager",), None),
        speedup(("torch.compile",), None),
        speedup(("JAX checkpoint",), None, "rnnops [gates]"),
    )
    return Case("lstm training", str(size), contenders, goals)


def cell_training(net: str, size: Size, jax: float, times_lstm: float | None) -> Case:
    """A cell that no library has built in; of the GRU one there is, beside it."""
    contenders = entries(Problem(net, size), "training", "rnnops", "eager", "torch.compile", "JAX")
    if times_lstm is None:
        contenders += entries(Problem(net, size), "training", "nn.GRU")
        more: Goal = speedup(("nn.GRU",), None)
    else:
        contenders += (Entry("rnnops lstm", "rnnops", Problem("lstm", size)),)
        more = ratio("rnnops", "rnnops lstm", times_lstm)
    goals = (speedup(("eager",), 4.0), speedup(("torch.compile",), 4.0), speedup(("JAX",), jax), more)
    return Case(f"{net} training", str(size), contenders, goals)


def attention(size: Size) -> Case:
    contenders = entries(Problem("attention_decoder", size), "training", "rnnops", "eager", "JAX")
    return Case("attention_decoder training", str(size), contenders, (speedup(("eager",), 4.0), speedup(("JAX",), 2.0)))


def uneven_lengths(size: Size, mode: str) -> Case:
    """Rows that are over cost nothing: time goes with the sum of lengths, beside padding all rows to T."""
    problem, share = Problem("lstm_with_lengths", size), share_inside(size)
    padded = Entry("rnnops padded", "rnnops", Problem("lstm", size), mode)
    contenders = (*entries(problem, mode, "rnnops"), padded, *entries(problem, mode, "packed sequence"))
    goals = (ratio("rnnops", "rnnops padded", 1.25 * share), speedup(("packed sequence",), 5.0))
    return Case(f"lengths {mode}", str(size), contenders, goals)


def compared_with_reference(label: str, problem: Problem) -> tuple[Entry, Entry]:
    """A contender without peers is compared with the interpreter."""
    return Entry(f"{label} (reference)", "reference", problem, timed=False), Entry(label, "rnnops", problem)


def variants(size: Size) -> Case:
    pairs = [compared_with_reference(net, Problem(net, size)) for net in ("lstm", *VARIANTS)]
    goals = tuple(ratio(net, "lstm", 1.15 * work) for net, work in VARIANTS.items())
    return Case("generality training", str(size), tuple(entry for pair in pairs for entry in pair), goals)


def random_cells(size: Size) -> Case:
    names = [f"random_{seed}" for seed in range(RANDOM_CELLS)]
    pairs = [compared_with_reference(name, Problem(name, size)) for name in names]
    contenders = (*(entry for pair in pairs for entry in pair), *entries(Problem("lstm", size), "training", "peak"))
    return Case("random cells training", str(size), contenders, tuple(of_estimate(name, 1.5) for name in names))


def many_steps(sizes: list[Size], mode: str) -> Case:
    contenders = tuple(Entry(f"T={s.T}", "rnnops", Problem("lstm", s, GATES), mode) for s in sizes)
    steps = {entry.label: entry.problem.size.T for entry in contenders}
    return Case(f"time against T, {mode}", f"{sizes[0].N},{sizes[0].H}", contenders, (linear(steps, 1.10),))


def nothing_to_compute(size: Size) -> Case:
    contenders = entries(Problem("lstm", size), "forward", "rnnops", "rnnops bound")
    return Case("a call", str(size), contenders, (at_most("rnnops bound", 30e-6), at_most("rnnops", None)))


def other_size(size: Size, mode: str) -> Case:
    contenders = entries(Problem("lstm", size), mode, "rnnops", "nn.LSTM")
    return Case(f"lstm {mode}, other sizes", str(size), contenders, (speedup(("nn.LSTM",), None),))


def memory_entries(size: Size) -> tuple[Entry, ...]:
    problem, gates = Problem("lstm", size), Entry("rnnops [gates]", "rnnops", Problem("lstm", size, GATES))
    peers = entries(problem, "training", "nn.LSTM", "eager", "JAX", "JAX checkpoint")
    return (*entries(problem, "training", "rnnops"), gates, *peers)


def memory(size: Size) -> Case:
    """Peak memory of a training step over what was resident before it, each contender in a process of its own."""
    goals = (ratio("rnnops", "nn.LSTM", 0.65), ratio("rnnops", "eager", 0.6), ratio("rnnops [gates]", "eager", 0.35))
    return Case("memory of a training step", str(size), memory_entries(size), goals, "memory")


def memory_given_back(size: Size) -> Case:
    """The same where the C library gives freed memory back at once: what a contender needs, not what it leaves lying.

    By default the eager loop takes four times what it needs; whoever compares with that alone compares with luck.
    """
    goals = (ratio("rnnops", "nn.LSTM", None), ratio("rnnops", "eager", None), ratio("rnnops [gates]", "eager", None))
    return Case("memory, freed at once", str(size), memory_entries(size), goals, "memory given back")


def kept(size: Size) -> Case:
    """What a pullback holds beside the feeds, in units of T N H numbers: 6 by default, 2 with the gates recomputed."""
    contenders = (
        Entry("rnnops", "rnnops", Problem("lstm", size)),
        Entry("rnnops [gates]", "rnnops", Problem("lstm", size, GATES)),
    )
    goals = (at_most("rnnops", None), at_most("rnnops [gates]", None))
    return Case("kept by a pullback", str(size), contenders, goals, "kept")


def recycling(size: Size, words: int) -> Case:
    """Memory that is used again within a pass costs no time."""
    contenders = entries(Problem(f"language_model_{words}", size), "training", "recycled", "not recycled")
    goals = (speedup(("not recycled",), 0.98, "recycled"),)
    return Case("language model training", f"{words} words, {size}", contenders, goals)


def recycling_memory(size: Size, words: int) -> Case:
    """Peak memory of its training step, likewise; freed memory goes back at once, so that no other step leaves any."""
    contenders = entries(Problem(f"language_model_{words}", size), "training", "recycled", "not recycled")
    goals = (ratio("recycled", "not recycled", None),)
    return Case("memory of a language model", f"{words} words, {size}", contenders, goals, "memory given back")


def budgets(size: Size) -> Case:
    """What policies and budgets cost in time; what they hold is in the picture."""
    contenders = entries(Problem("lstm", size), "training", "all", "default", *BUDGETS, "budget 2 %")
    goals = tuple(ratio(label, "all", limit) for label, limit in BUDGETS.items())
    return Case(BUDGET, str(size), contenders, goals)


def first_results(size: Size) -> Case:
    """Ten cells, forward and training, until their first results, beside JAX's jit."""
    pairs, contenders = [], []
    for cell in FIRST:
        for mode in ("forward", "training"):
            labels = [f"{cell}, {mode}, {library}" for library in ("rnnops", "JAX")]
            pairs.append((labels[0], labels[1]))
            engines = zip(labels, ("rnnops", "JAX"), strict=True)
            contenders += [Entry(label, engine, Problem(cell, size), mode) for label, engine in engines]
    goals = over_pairs(tuple(pairs), 2.0), over_pairs(tuple(pairs), 1.0, least=True)
    warm_up = Problem(next(iter(FIRST)), replace(size, H=size.H // 2))
    return Case("compile beside JAX", str(size), tuple(contenders), goals, "first results", True, warm_up)


def compile_times(size: Size) -> Case:
    """From `import rnnops` to the first gradients of one cell, numba being imported."""
    limits = {"empty cache": 2.0, "kernels cached": 1.0, "from disk": 0.25}
    contenders = tuple(Entry(label, "rnnops", Problem("lstm", size)) for label in limits)
    goals = tuple(at_most(label, limit) for label, limit in limits.items())
    return Case("compile", str(size), contenders, goals, "compile")
