"""The table of the CUDA benchmark: nets at sizes, who computes them in which precision, and what is wanted.

Cases come in the order in which they tell most: a run that is cut still says what matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.case import CUDA, Case, Entry
from bench.goals import OURS, Goal, extra, ratio, speedup, where_there
from bench.problems import Problem, Size
from bench.published import FLASHRNN, published_of

STEPS = 1024
FIRST_SIZES = (Size(STEPS, 16, 768), Size(STEPS, 64, 1024))
OTHER_SIZES = tuple(Size(STEPS, N, H) for N, H in ((16, 512), (64, 512), (16, 1024), (16, 256), (64, 768), (64, 256)))
TINY = Size(3, 2, 4)  # for numba's simulator
STOCK, CUSTOM = ("lstm", "gru"), ("layer_norm_lstm", "milstm", "attention_decoder")
LAYERS = {"lstm": "nn.LSTM", "gru": "nn.GRU"}
MODES = ("forward", "training")
PER_STEP, PERSISTENT, SMALL = "per step", "persistent", "small H"
OF_PER_STEP = {"forward": 0.8, "training": 0.9}  # of cuDNN's time where it launches kernels at every step
OF_PERSISTENT, OF_EAGER, OF_PRODUCTS = 2.5, 20.0, 1.10
OF_CUSTOM, OF_FLASHRNN = 2.5, 1.0  # of cuDNN's LSTM for a cell of one's own; of FlashRNN's fused LSTM / ours
RECOMPUTE = "rnnops recompute"
LOW = ("tf32", "bf16", "fp16")
FLASH, LOW_OF_PEER = "FlashRNN", "bf16"  # its float32 multiplies in TF32
# seconds: until the first result, of a forward call and of a training call; rough, for the estimate of a run
ROUGH_SECONDS = {
    "rnnops": (12.0, 0.005, 0.015),
    "nn.LSTM": (0.5, 0.005, 0.015),
    "nn.GRU": (0.5, 0.005, 0.015),
    "eager": (0.5, 0.2, 0.6),
    "torch.compile": (25.0, 0.1, 0.3),
    "JAX": (6.0, 0.05, 0.15),
    FLASH: (15.0, 0.005, 0.015),
    "products of cuBLAS": (0.1, 0.0, 0.005),
}
OF_OTHERS = (1.0, 0.05, 0.15)
COMPARISON_SECONDS, CALLS_BEFORE = 0.3, 4


def rough_seconds(case: Case, rounds: int) -> float:
    """What measuring a case may take."""
    return sum(rough_seconds_of(entry, rounds) for entry in case.entries)


def rough_seconds_of(entry: Entry, rounds: int) -> float:
    prepare, forward, training = ROUGH_SECONDS.get(entry.engine, OF_OTHERS)
    call = training if entry.is_training else forward
    return prepare + COMPARISON_SECONDS + (CALLS_BEFORE + rounds) * max(call, 0.05)


def cudnn_algorithm(problem: Problem, mode: str, precision: str) -> str:
    """Which algorithm PyTorch asks of cuDNN: the rules of `get_algo` in ATen's cudnn/RNN.cpp, for recent devices.

    One layer, one direction, sequences that are not packed, as many features in as in a state.
    """
    H, N = problem.size.H, problem.size.N
    small = 192 if mode == "forward" else 128
    if small >= H:
        return SMALL
    lasting = precision == "fp16" and problem.net == "lstm" and H <= 1024 and H % 128 == 0 and N % 8 == 0 and N <= 128
    return PERSISTENT if lasting else PER_STEP


def cuda_cases(tiny: bool = False) -> Iterator[Case]:
    """All of them, or the same nets at a size for the simulator."""
    if tiny:
        yield from (slim(case(net, mode, TINY, True)) for net in (*STOCK, *CUSTOM) for mode in MODES)
        return
    for size in FIRST_SIZES:
        yield from (case(net, mode, size, True) for net in (*STOCK, *CUSTOM) for mode in MODES)
    for nets in (STOCK, CUSTOM):
        yield from (case(net, mode, size, False) for size in OTHER_SIZES for net in nets for mode in MODES)


def case(net: str, mode: str, size: Size, compiled: bool) -> Case:
    """Args: compiled: with `torch.compile` and FlashRNN, which take longer than all others together."""
    problem = Problem(net, size)
    entries = [Entry(OURS, "rnnops", problem, mode)]
    low = precisions(net, compiled)
    entries += (Entry(f"{OURS} {precision}", OURS, problem, mode, precision=precision) for precision in low)
    entries += layers(net, size, mode, low)
    if net == "lstm" and mode == "training":
        entries += recomputed(problem)
    if compiled and net != "gru":
        entries += flashrnn(net, size, mode)
    entries.append(Entry("eager", "eager", problem, mode))
    if compiled:
        entries.append(Entry("torch.compile", "torch.compile", problem, mode))
    entries.append(Entry("JAX", "JAX", problem, mode))
    wanted = tuple(goals(problem, mode, compiled))
    published = published_of(problem, mode) if net != "gru" else ()
    return Case(f"{net} {mode}", str(size), tuple(entries), wanted, devices=CUDA, published=published)


def slim(one: Case) -> Case:
    """One of our precisions beside float32: an interpreter goes through tensor cores lane by lane."""
    dropped = [f"{OURS} {precision}" for precision in LOW if precision != LOW_OF_PEER]
    return replace(one, entries=tuple(entry for entry in one.entries if entry.label not in dropped))


def precisions(net: str, everything: bool) -> tuple[str, ...]:
    """Beside float32: those that tell most where not all are measured."""
    if everything or net in STOCK:
        return LOW
    return (LOW_OF_PEER,)


def layers(net: str, size: Size, mode: str, low: tuple[str, ...]) -> Iterator[Entry]:
    """PyTorch's layer, which is cuDNN's, in all precisions; beside a cell of one's own its LSTM, as a yardstick."""
    label, problem = LAYERS.get(net, LAYERS["lstm"]), Problem(net if net in LAYERS else "lstm", size)
    for precision in ("fp32", *low):
        name = label if precision == "fp32" else f"{label} {precision}"
        algorithm = cudnn_algorithm(problem, mode, precision)
        yield Entry(name, label, problem, mode, precision=precision, algorithm=algorithm)


def flashrnn(net: str, size: Size, mode: str) -> Iterator[Entry]:
    """FlashRNN's LSTM: in all its precisions, beside other cells in the one that it was made for."""
    for precision in LOW if net == "lstm" else (LOW_OF_PEER,):
        yield Entry(f"{FLASH} {precision}", FLASH, Problem("lstm", size), mode, precision=precision)


def recomputed(problem: Problem) -> Iterator[Entry]:
    """Backward computes the gates again, beside what two products over all steps take: those it does once more."""
    yield Entry(RECOMPUTE, "rnnops", Problem(problem.net, problem.size, ("gates",)))
    yield Entry("products", "products of cuBLAS", problem)


def goals(problem: Problem, mode: str, compiled: bool) -> Iterator[Goal]:
    """What is wanted of a case; figures without a goal are for information."""
    layer = LAYERS.get(problem.net)
    if layer:
        yield ratio(OURS, layer, cudnn_goal(problem, mode, "fp32"))
        for precision in LOW:
            yield ratio(OURS, f"{layer} {precision}", cudnn_goal(problem, mode, precision))
    else:
        lstm = LAYERS["lstm"]  # of others, in equal precision
        yield ratio(OURS, lstm, OF_CUSTOM)
        for precision in precisions(problem.net, compiled):
            yield ratio(f"{OURS} {precision}", f"{lstm} {precision}", OF_CUSTOM)
    if compiled and problem.net != "gru":
        for entry in flashrnn(problem.net, problem.size, mode):
            yield where_there(speedup((entry.label,), OF_FLASHRNN, f"{OURS} {entry.precision}"), entry.label)
    if published_of(problem, mode) and problem.net != "gru":
        yield speedup((FLASHRNN,), None, f"{OURS} bf16")
    if problem.net == "lstm" and mode == "training":
        yield extra(RECOMPUTE, OURS, "products", OF_PRODUCTS)
    yield speedup(("eager",), None if layer else OF_EAGER)
    yield from (speedup((label,), None) for label in ("torch.compile", "JAX") if compiled or label == "JAX")


def cudnn_goal(problem: Problem, mode: str, precision: str) -> float | None:
    """The most of cuDNN's time that the LSTM in float32 may take; none where nothing was promised."""
    algorithm = cudnn_algorithm(problem, mode, precision)
    if problem.net == "lstm" and precision == "fp32" and algorithm == PER_STEP:
        return OF_PER_STEP[mode]
    return OF_PERSISTENT if problem.net == "lstm" and algorithm == PERSISTENT else None
