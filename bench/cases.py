"""The table of the benchmark: what is measured, at which sizes, and what is wanted of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from bench.case import CUDA, GATES, HOST, Case, Entry, entries
from bench.cuda_cases import cuda_cases
from bench.goals import (
    Goal,
    at_most,
    beyond_products,
    either,
    extra,
    linear,
    of_estimate,
    of_peak,
    over_pairs,
    ratio,
    speedup,
)
from bench.nets import FIRST, MANY_OPS
from bench.preset_engine import preset_cases
from bench.problems import Problem, Size, share_inside
from bench.torch_cases import torch_cases

SIZES = (Size(50, 16, 128), Size(100, 32, 256), Size(100, 64, 512))
MIDDLE, LARGE = SIZES[1:]
ONE_ROW, NOTHING = Size(50, 1, 128), Size(1, 1, 8)
UNEVEN = Size(1000, 64, 256)  # lengths uniform in [T/10, T]
MANY_STEPS = tuple(Size(T, 16, 256) for T in (100, 300, 1000, 3000, 10000))
OTHER_SIZES = (*(Size(50, 32, H) for H in (32, 200, 1000, 2048)), *(Size(50, N, 256) for N in (3, 7, 100)))
FORWARD_OF_PEAK, TRAINING_OF_PEAK = (0.70, 0.85, 0.90), (None, None, 0.80)
NEAR_PEAK = 0.90  # from where on no layer can be asked to be as much slower as is wanted
JAX = (2.0, 2.0, 1.7)
STREAMED = {"LSTM 64": 2.0, "LSTM 256": 1.0, "denoiser of bands": 1.0, "denoiser by masks": 1.0, "keywords": 1.0}
MORE_ROWS = (4, 8, 16)
INT8 = {64: None, 256: 1.2, 512: 1.4, 1024: 2.0}  # features of two layers -> times the speed of float32
CELLS = {"milstm": 1.25, "layer_norm_lstm": 1.35, "gru": None}  # and how much longer than the LSTM they may take
VARIANTS = {"renamed": 1.0, "permuted": 1.0, "softsign": 1.0, "one_more_op": 1.0, "second_sequence": 1.5}
RANDOM_CELLS = 20
LONG = Size(1000, 16, 256)
BUDGETS = {"memory": 1.35, "budget 20 %": 1.38, "budget 10 %": 1.40, "budget 5 %": 1.45}  # of the time of "all"
MODEL, WORDS = Size(64, 32, 256), (256, 10_000)
BUDGET = "budget"
DEVICES = (*HOST, *CUDA)
BESIDE_EAGER = ("rnnops", GATES, "nn.LSTM", "eager", "JAX", "JAX checkpoint")
Scale = Callable[[Size], Size]


def cases_of(device: str, tiny: bool = False) -> list[Case]:
    """What is measured of a device, or the same nets at sizes for an interpreter."""
    return [case for case in all_cases(tiny) if device in case.devices]


def all_cases(tiny: bool = False) -> Iterator[Case]:
    """The whole table of all devices."""
    scale = Size.tiny if tiny else lambda size: size
    for some in (
        own_cell_cases,
        lstm_cases,
        cell_cases,
        bfloat16_cases,
        other_cases,
        memory_cases,
        compile_cases,
        torch_cases,
    ):
        yield from some(scale)
    yield from stream_cases()
    yield from int8_cases()
    yield from preset_cases(scale)
    yield from cuda_cases(tiny)


def beside(
    group: str, net: str, size: Size, mode: str, names: tuple[str, ...], *goals: Goal, measure: str = "time"
) -> Case:
    """Contenders for one problem."""
    return Case(group, str(size), entries(Problem(net, size), mode, *names), goals, measure)


def lstm_cases(scale: Scale) -> Iterator[Case]:
    """The LSTM beside those that have it built in."""
    forward = ("rnnops", "rnnops bound", "nn.LSTM", "onnxruntime")
    for size, share in zip(map(scale, SIZES), FORWARD_OF_PEAK, strict=True):
        goals = speedup(("nn.LSTM", "onnxruntime"), 1.05), of_peak(share), beyond_products(), speedup(("JAX",), None)
        yield beside("lstm forward", "lstm", size, "forward", (*forward, "JAX", "peak"), *goals)
    bound = speedup(("onnxruntime",), 1.0, "rnnops bound"), speedup(("nn.LSTM",), 2.0, "rnnops bound")
    yield beside("lstm forward", "lstm", scale(ONE_ROW), "forward", forward, *bound)
    peers = ("rnnops", GATES, "nn.LSTM", "eager", "torch.compile", "JAX", "JAX checkpoint", "products", "peak")
    for size, jax, of_training in zip(map(scale, SIZES), JAX, TRAINING_OF_PEAK, strict=True):
        yield beside(
            "lstm training", "lstm", size, "training", peers, either(speedup(("nn.LSTM",), 1.3), of_peak(NEAR_PEAK)),
            speedup(("JAX",), jax), of_peak(of_training), beyond_products(), extra(GATES, "rnnops", "products", 1.10),
            speedup(("eager",), None), speedup(("torch.compile",), None), speedup(("JAX checkpoint",), None, GATES),
        )  # fmt: skip


def own_cell_cases(scale: Scale) -> Iterator[Case]:
    """README's first table: its cell beside the same cell as a user of PyTorch or JAX writes it."""
    peers = ("eager", "torch.compile", "JAX")
    goals = (*(either(speedup((peer,), 1.5), of_peak(0.85)) for peer in peers), of_peak(None))
    for mode in ("forward", "training"):
        for size in map(scale, SIZES):
            yield beside(f"own cell {mode}", "coupled", size, mode, ("rnnops", *peers, "peak"), *goals)


def stream_cases() -> Iterator[Case]:
    """One step of one row, as models are served; from C at least twice as fast as others are from Python."""
    for model, of_program in STREAMED.items():
        problem = Problem(model, Size(1, 1, 1))
        contenders = (
            Entry("onnxruntime", "served session", problem, "forward"),
            Entry("rnnops", "served run", problem, "forward"),
            Entry("rnnops in C", "served program", problem, "forward"),
        )
        goals = speedup(("onnxruntime",), 1.0), speedup(("onnxruntime",), of_program, "rnnops in C")
        yield Case("a step of one row", model, contenders, goals)


def int8_cases() -> Iterator[Case]:
    """The same with weights of int8 beside ours of float32, for one row and for some, where multiply-adds hide more."""
    for rows in (1, *MORE_ROWS):
        for features, times_float32 in INT8.items():
            problem = Problem(f"LSTM {features}", Size(1, rows, 1))
            exact = [Entry(f"rnnops {way}", f"served {way}", problem, "forward") for way in ("run", "program")]
            narrow = [replace(entry, label=f"int8 {entry.label.split()[1]}", precision="int8") for entry in exact]
            goals = (
                speedup(("rnnops run",), None, "int8 run"),
                speedup(("rnnops program",), times_float32 if rows == 1 else None, "int8 program"),
            )
            said = "one row" if rows == 1 else f"{rows} rows"
            yield Case(f"a step of {said}, int8", problem.net, (*exact, *narrow), goals)


def cell_cases(scale: Scale) -> Iterator[Case]:
    """Cells that no library has built in; of the GRU one there is, beside it."""
    for net, times_lstm in CELLS.items():
        yield from (cell_training(net, size, jax, times_lstm) for size, jax in zip(map(scale, SIZES), JAX, strict=True))
    goals = speedup(("eager",), 4.0), speedup(("JAX",), 2.0)
    for size in map(scale, SIZES):
        group = "attention_decoder training"
        yield beside(group, "attention_decoder", size, "training", ("rnnops", "eager", "JAX"), *goals)
    yield from (uneven_lengths(scale(UNEVEN), mode) for mode in ("forward", "training"))
    yield compared_with_reference(
        "generality training", ("lstm", *VARIANTS), scale(MIDDLE),
        *(ratio(net, "lstm", 1.15 * work) for net, work in VARIANTS.items()),
    )  # fmt: skip
    names = tuple(f"random_{seed}" for seed in range(RANDOM_CELLS))
    goals_of_random = (of_estimate(name, 1.5) for name in names)
    random = compared_with_reference("random cells training", names, scale(MIDDLE), *goals_of_random)
    peak = entries(Problem("lstm", scale(MIDDLE)), "training", "peak")
    yield replace(random, entries=(*random.entries, *peak))


def bfloat16_cases(scale: Scale) -> Iterator[Case]:
    """Products of bfloat16, beside ours of float32 and PyTorch's layers of bfloat16; goals are at the last size."""
    layers = {"lstm": "nn.LSTM", "gru": "nn.GRU", "milstm": "", "layer_norm_lstm": "", "random_3": ""}
    for size in (*SIZES, ONE_ROW):
        of_layer = 1.05 if size == LARGE else None
        yield bfloat16_case("lstm", scale(size), "forward", "nn.LSTM", of_layer, None)
    for net, layer in layers.items():
        for size in SIZES:
            goal = 1.4 if size == LARGE else None
            yield bfloat16_case(net, scale(size), "training", layer, goal if layer else None, goal)


def bfloat16_case(
    net: str, size: Size, mode: str, layer: str, of_layer: float | None, of_float32: float | None
) -> Case:
    """One case.

    Args:
        layer: PyTorch's, in bfloat16; empty where there is none.
        of_layer: how many times as fast as that it is to be, unless products run at 0.85 of the peak.
        of_float32: how many times as fast as ours in float32.
    """
    problem, exact, peers = Problem(net, size), "rnnops float32", (layer,) if layer else ()
    low = (replace(entry, precision="bf16") for entry in entries(problem, mode, "rnnops", *peers, "peak"))
    goals = [speedup((exact,), of_float32), of_peak(None)]
    if layer:
        goals.append(either(speedup(peers, of_layer), of_peak(0.85)) if of_layer else speedup(peers, None))
    return Case(f"{net} {mode}, bfloat16", str(size), (Entry(exact, "rnnops", problem, mode), *low), tuple(goals))


def cell_training(net: str, size: Size, jax: float, times_lstm: float | None) -> Case:
    """Args: times_lstm: how much longer than the LSTM it may take; None where a layer of PyTorch is beside it."""
    contenders = entries(Problem(net, size), "training", "rnnops", "eager", "torch.compile", "JAX")
    if times_lstm is None:
        contenders += entries(Problem(net, size), "training", "nn.GRU")
        more = speedup(("nn.GRU",), None)
    else:
        contenders += (Entry("rnnops lstm", "rnnops", Problem("lstm", size)),)
        more = ratio("rnnops", "rnnops lstm", times_lstm)
    goals = (speedup(("eager",), 4.0), speedup(("torch.compile",), 4.0), speedup(("JAX",), jax), more)
    return Case(f"{net} training", str(size), contenders, goals)


def uneven_lengths(size: Size, mode: str) -> Case:
    """Rows that are over cost nothing: time goes with the sum of lengths, beside padding all rows to T."""
    ours, packed = entries(Problem("lstm_with_lengths", size), mode, "rnnops", "packed sequence")
    padded = Entry("rnnops padded", "rnnops", Problem("lstm", size), mode)
    goals = (ratio("rnnops", "rnnops padded", 1.25 * share_inside(size)), speedup(("packed sequence",), 5.0))
    return Case(f"lengths {mode}", str(size), (ours, padded, packed), goals)


def compared_with_reference(group: str, names: tuple[str, ...], size: Size, *goals: Goal) -> Case:
    """Nets without peers, each compared with the interpreter."""
    contenders = []
    for name in names:
        problem = Problem(name, size)
        contenders += [Entry(f"{name} (reference)", "reference", problem, timed=False), Entry(name, "rnnops", problem)]
    return Case(group, str(size), tuple(contenders), goals)


def other_cases(scale: Scale) -> Iterator[Case]:
    """Time against T, calls with next to nothing to do, other sizes."""
    yield from (many_steps([scale(size) for size in MANY_STEPS], mode) for mode in ("kept forward", "training"))
    goals = at_most("rnnops bound", 30e-6), at_most("rnnops", None)
    yield beside("a call", "lstm", scale(NOTHING), "forward", ("rnnops", "rnnops bound"), *goals)
    for mode in ("forward", "training"):
        for size in map(scale, OTHER_SIZES):
            group = f"lstm {mode}, other sizes"
            yield beside(group, "lstm", size, mode, ("rnnops", "nn.LSTM"), speedup(("nn.LSTM",), None))


def many_steps(sizes: list[Size], mode: str) -> Case:
    contenders = tuple(Entry(f"T={s.T}", "rnnops", Problem("lstm", s, ("gates",)), mode) for s in sizes)
    steps = {entry.label: entry.problem.size.T for entry in contenders}
    return Case(f"time against T, {mode}", f"{sizes[0].N},{sizes[0].H}", contenders, (linear(steps, 1.10),))


def memory_cases(scale: Scale) -> Iterator[Case]:
    """What policies and budgets cost in time (what they hold is in the picture), and what training steps need.

    Memory is the peak over what was resident before, each contender in a process of its own; once more where the C
    library gives freed memory back at once: what a contender needs, not what it leaves lying. By default the eager loop
    takes four times what it needs; whoever compares with that alone compares with luck.
    """
    saving, limits = ("all", "default", *BUDGETS, "budget 2 %"), BUDGETS.items()
    of_all = (ratio(label, "all", limit) for label, limit in limits)
    yield beside(BUDGET, "lstm", scale(LONG), "training", saving, *of_all)
    for group, measure, goals in (
        ("memory of a training step", "memory", (0.65, 0.6, 0.35)),
        ("memory, freed at once", "memory given back", (None,) * 3),
    ):
        pairs = zip(("rnnops", "rnnops", GATES), ("nn.LSTM", "eager", "eager"), goals, strict=True)
        wanted = (ratio(*pair) for pair in pairs)
        yield beside(group, "lstm", scale(LARGE), "training", BESIDE_EAGER, *wanted, measure=measure)
    held = at_most("rnnops", None), at_most(GATES, None)  # in units of T N H numbers: 6 by default, 2 without gates
    yield beside("kept by a pullback", "lstm", scale(LARGE), "training", ("rnnops", GATES), *held, measure="kept")
    yield from (case for words in WORDS for case in recycling(scale(MODEL), words))


def recycling(size: Size, words: int) -> Iterator[Case]:
    """Memory that is used again within a pass costs no time, and saves some."""
    contenders = entries(Problem(f"language_model_{words}", size), "training", "recycled", "not recycled")
    faster, smaller = speedup(("not recycled",), 0.98, "recycled"), ratio("recycled", "not recycled", None)
    setting = f"{words} words, {size}"
    yield Case("language model training", setting, contenders, (faster,))
    yield Case("memory of a language model", setting, contenders, (smaller,), "memory given back")


def compile_cases(scale: Scale) -> Iterator[Case]:
    """From `import rnnops` to the first gradients of one cell, beside NumPy's import; ten cells beside JAX's jit."""
    size = scale(SIZES[0])
    limits = {"empty cache": 2.0, "another net cached": 1.0, "from disk": 0.25}
    contenders = tuple(Entry(label, "rnnops", Problem("lstm", size)) for label in limits)
    goals = tuple(at_most(label, limit) for label, limit in limits.items())
    yield Case("compile", str(size), contenders, goals, "compile")
    yield first_results("compile beside JAX", FIRST, size, ("forward", "training"), 2.0)
    yield first_results("compile large cells beside JAX", MANY_OPS, size, ("training",), 1.0)


def first_results(group: str, cells: Iterable[str], size: Size, modes: tuple[str, ...], median: float) -> Case:
    """Cells until their first results, beside JAX's jit.

    Args:
        median: of JAX's time over ours.
    """
    pairs, contenders = [], []
    for cell in cells:
        for mode in modes:
            ours, peer = (f"{cell}, {mode}, {library}" for library in ("rnnops", "JAX"))
            pairs.append((ours, peer))
            contenders += [Entry(label, label.split(", ")[-1], Problem(cell, size), mode) for label in (ours, peer)]
    goals = over_pairs(tuple(pairs), median), over_pairs(tuple(pairs), 1.0, least=True)
    warm_up = Problem("permuted", replace(size, H=size.H // 2))  # none of the ten: modules serve all sizes
    return Case(group, str(size), tuple(contenders), goals, "first results", True, warm_up)
