"""The table of the CUDA benchmark: nets at sizes, who computes them in which precision, and what is wanted.

Cases come in the order in which they tell most: a run that is cut still says what matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.goals import OURS, Extra, Goal, Ratio, Speedup
from bench.problems import Problem, Size

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
RECOMPUTE = "rnnops recompute"
UNLIKELY = (f"{OURS} bf16",)  # refused at once so far; it costs nothing in the estimate of a run
# seconds: until the first result, of a forward call and of a training call; rough, for the estimate of a run
ROUGH_SECONDS = {
    "rnnops": (12.0, 0.005, 0.015),
    "layer": (0.5, 0.005, 0.015),
    "eager": (0.5, 0.2, 0.6),
    "torch.compile": (25.0, 0.1, 0.3),
    "JAX": (6.0, 0.05, 0.15),
    "products": (0.1, 0.0, 0.005),
}
COMPARISON_SECONDS, CALLS_BEFORE = 0.3, 4


@dataclass(frozen=True)
class Precision:
    """What floats are, and whether products of float32 may use TF32."""

    dtype: str
    tf32: bool = False
    itemsize: int = 4

    @property
    def flag(self) -> str:
        """TF32 as tables show it: off or on, and nothing where there are no products of float32."""
        return ("on" if self.tf32 else "off") if self.dtype == "float32" else "-"


PRECISIONS = {
    "fp32": Precision("float32"),
    "tf32": Precision("float32", tf32=True),
    "bf16": Precision("bfloat16", itemsize=2),
    "fp16": Precision("float16", itemsize=2),
}


@dataclass(frozen=True)
class CudaEntry:
    """One contender of a case.

    Args:
        engine: a key of `cuda_peers.ENGINES`.
        precision: a key of `PRECISIONS`.
    """

    label: str
    engine: str
    problem: Problem
    mode: str
    precision: str = "fp32"

    @property
    def settings(self) -> Precision:
        return PRECISIONS[self.precision]

    @property
    def algorithm(self) -> str:
        """What cuDNN does; empty for others."""
        return cudnn_algorithm(self.problem, self.mode, self.precision) if self.engine == "layer" else ""

    def rough_seconds(self, rounds: int) -> float:
        prepare, forward, training = ROUGH_SECONDS[self.engine]
        prepare = 0.0 if self.label in UNLIKELY else prepare
        call = training if self.mode == "training" else forward
        return prepare + COMPARISON_SECONDS + (CALLS_BEFORE + rounds) * max(call, 0.05)


@dataclass(frozen=True)
class CudaCase:
    """Contenders for one net, size and mode, measured in turn."""

    problem: Problem
    mode: str
    entries: tuple[CudaEntry, ...]
    goals: tuple[Goal, ...]

    @property
    def group(self) -> str:
        return f"{self.problem.net} {self.mode}"

    @property
    def setting(self) -> str:
        return str(self.problem.size)

    @property
    def name(self) -> str:
        return f"{self.group} {self.setting}"

    def rough_seconds(self, rounds: int) -> float:
        """What measuring it may take."""
        return sum(entry.rough_seconds(rounds) for entry in self.entries)


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


def all_cases(tiny: bool = False) -> Iterator[CudaCase]:
    """The whole table, or the same nets at a size for the simulator."""
    if tiny:
        yield from (case(net, mode, TINY, True) for net in (*STOCK, *CUSTOM) for mode in MODES)
        return
    for size in FIRST_SIZES:
        yield from (case(net, mode, size, True) for net in (*STOCK, *CUSTOM) for mode in MODES)
    for nets in (STOCK, CUSTOM):
        yield from (case(net, mode, size, False) for size in OTHER_SIZES for net in nets for mode in MODES)


def case(net: str, mode: str, size: Size, compiled: bool) -> CudaCase:
    """Args: compiled: with `torch.compile`, which takes longer than all others together."""
    problem = Problem(net, size)
    stock = LAYERS.get(net)
    entries = [CudaEntry(OURS, "rnnops", problem, mode), *(layers(stock, problem, mode) if stock else ())]
    if net == "lstm" and mode == "training":
        entries += recomputed(problem)
    entries.append(CudaEntry("eager", "eager", problem, mode))
    if compiled:
        entries.append(CudaEntry("torch.compile", "torch.compile", problem, mode))
    entries.append(CudaEntry("JAX", "JAX", problem, mode))
    return CudaCase(problem, mode, tuple(entries), tuple(goals(problem, mode, compiled)))


def layers(label: str, problem: Problem, mode: str) -> Iterator[CudaEntry]:
    """PyTorch's layer, which is cuDNN's, in all precisions; rnnops in those that it may have beside float32."""
    yield CudaEntry(label, "layer", problem, mode)
    yield from (
        CudaEntry(f"{label} {precision}", "layer", problem, mode, precision) for precision in ("tf32", "bf16", "fp16")
    )
    yield from (CudaEntry(f"{OURS} {precision}", "rnnops", problem, mode, precision) for precision in ("bf16", "fp16"))


def recomputed(problem: Problem) -> Iterator[CudaEntry]:
    """Backward computes the gates again, beside what two products over all steps take: those it does once more."""
    yield CudaEntry(RECOMPUTE, "rnnops", Problem(problem.net, problem.size, ("gates",)), "training")
    yield CudaEntry("products", "products", problem, "training")


def goals(problem: Problem, mode: str, compiled: bool) -> Iterator[Goal]:
    """What is wanted of a case; figures without a goal are for information."""
    layer = LAYERS.get(problem.net)
    if layer:
        yield Ratio(OURS, layer, cudnn_goal(problem, mode, "fp32"))
        for precision in ("tf32", "bf16", "fp16"):
            yield Ratio(OURS, f"{layer} {precision}", cudnn_goal(problem, mode, precision))
    if problem.net == "lstm" and mode == "training":
        yield Extra(RECOMPUTE, OURS, "products", OF_PRODUCTS)
    yield Speedup(("eager",), None if layer else OF_EAGER)
    yield from (Speedup((label,), None) for label in ("torch.compile", "JAX") if compiled or label == "JAX")


def cudnn_goal(problem: Problem, mode: str, precision: str) -> float | None:
    """The most of cuDNN's time that the LSTM in float32 may take; none where nothing was promised."""
    algorithm = cudnn_algorithm(problem, mode, precision)
    if problem.net == "lstm" and precision == "fp32" and algorithm == PER_STEP:
        return OF_PER_STEP[mode]
    return OF_PERSISTENT if problem.net == "lstm" and algorithm == PERSISTENT else None
