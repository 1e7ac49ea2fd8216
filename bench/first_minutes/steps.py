"""The steps of `python -m bench --device cuda --first-minutes`, each of processes with a time limit.

**Runs.** Each job prints its results, makes a run of a cell, and goes through both of its passes.

**Tools** of NVIDIA are looked for, and the last words of each are read.

**Steps.** The order is that in which they tell most, in the table and within a step, as time may be up before its end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import rnnops as ro
from bench.contender import Settings, named
from bench.cuda_cases import FLASH, TINY as TINY_CASE
from bench.data import make_feeds
from bench.kinds_of_cells import KINDS
from bench.problems import Arrays, Problem, Size
from bench.rnnops_engine import compile_net
from bench.watch import ROOT

RESULT = "RESULT "  # begins a line that is not for people
MODEL = "model,"  # begins what is told of the cost model beside a loop


def tell(**words: Any) -> None:
    """Something that is known now."""
    print(RESULT + json.dumps(words), flush=True)


def compiled_run(options: argparse.Namespace) -> Any:
    weights = None if options.weights == "float32" else options.weights
    return compile_net(Problem(options.net, options.size), Settings("cuda"), weights=weights)


def passes(run: Any, feeds: Mapping[str, Any], heads: Mapping[str, Any], **stream: Any) -> dict[str, Any]:
    """Outputs and gradients of one step of training, by name."""
    outputs, pullback = run.vjp(feeds, **stream)
    return named((outputs, pullback(heads)))


def placed_feeds(problem: Problem) -> tuple[dict[str, Any], dict[str, Any]]:
    """Feeds and gradients of outputs, on the device."""
    feeds, heads = make_feeds(problem)
    return placed(feeds), placed(heads)


def placed(arrays: Arrays) -> dict[str, Any]:
    return {name: ro.on_device(array) for name, array in arrays.items()}


SANITIZER, PROFILER, TESTER = "compute-sanitizer", "ncu", "pytest"
NO_TESTS = 5  # pytest's exit status where it has found none
FOLDERS = (  # of toolkits and of Nsight Compute, that are not on the path
    "/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/usr/local/cuda*/nsight-compute*",
)  # fmt: skip
ERRORS = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
REFUSALS = ("ERR_NVGPUCTRPERM", "Failed to initialize the profiler", "No kernels were profiled", "Device not supported")
PERMISSION = "the driver lets only root read counters (ERR_NVGPUCTRPERM): run as root"


def find_tool(name: str) -> str:
    """The path of a tool, empty where it is not found: the path, NVIDIA's finder, CUDA_HOME, the usual folders."""
    found = shutil.which(name) or _by_pathfinder(name)
    if found:
        return found
    homes = [os.path.join(os.environ[key], "bin") for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    for folder in (*homes, *(one for pattern in FOLDERS for one in sorted(glob(pattern), reverse=True))):
        path = Path(folder) / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return ""


def _by_pathfinder(name: str) -> str:
    try:
        finder: Any = import_module("cuda.pathfinder")
        return str(finder.find_nvidia_binary_utility(name) or "")
    except Exception:  # it is not there, is too old, or does not know the tool
        return ""


def refusal(text: str) -> str:
    """Why a tool did not work here; empty where it says nothing of the kind."""
    said = next((words for words in REFUSALS if words in text), "")
    return PERMISSION if said == REFUSALS[0] else said


def only_skipped(text: str) -> str:
    """What pytest says last where no test ran; empty where one did."""
    last = next((line for line in reversed(text.splitlines()) if " skipped" in line or " passed" in line), "")
    return "" if " passed" in last or " failed" in last or " error" in last else last.strip("= ")


def errors_found(text: str) -> int | None:
    """Errors and hazards that compute-sanitizer has counted; None where it has not come to that."""
    found = [int(one or other) for one, other in ERRORS.findall(text)]
    return sum(found) if found else None


CELLS = ("lstm", "gru", "layer_norm_lstm", "milstm", "attention_decoder")
SIZES = (Size(8, 16, 64), Size(8, 16, 768))
SANITIZED = ("lstm", "layer_norm_lstm")
CHECKS = ("memcheck", "racecheck", "synccheck", "initcheck")
SHORT, PROFILED = Size(3, 16, 64), Size(32, 16, 768)
WIDTHS, ENDS, ROWS = (768, 512, 1024), (64, 512), (16, 64)  # of the loops that are timed; ends of the slope over T
TINY = Size(2, 2, 2)  # for numba's simulator
KERNEL_TESTS = ("test_cuda_gemm.py", "test_device_array.py", "test_cuda_step_product.py", "test_cuda_replays.py")
WITHOUT_DEVICE = ("facade", "blas", "_ptx")  # in names of tests of kernels that look at something else
TESTS, TORCH_TESTS = Path("tests") / "kernels", Path("tests") / "pytorch"
CHECKS_OF_KERNELS, WHOLE = ("barriers", "copies", "tensor-cores"), ("rows", "model", "nested", "slots", "layers")
MOST_TESTERS = 8
KINDS_AT_ONCE, KIND_SECONDS = 5, 75.0
PROCESS_SECONDS = 30.0
SIDE_BY_SIDE_SECONDS = 60.0  # of processes that share the device and the cores
GATE_SECONDS = 60.0  # of the first process, without which there is no other: libraries come from a cold disk


@dataclass(frozen=True)
class Part:
    """One process.

    Args:
        seconds: after which it counts as hanging and is ended; less where the step has less left.
        tool: that looks at it, `SANITIZER` or `PROFILER`, or is it, `TESTER`; their last words say how it went.
        missing: why it cannot be started; empty where it can.
        told: whether it is told how many seconds it has.
        optional: whether it is others' matter that it does not end in time.
    """

    label: str
    command: tuple[str, ...]
    seconds: float = PROCESS_SECONDS
    tool: str = ""
    missing: str = ""
    told: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Step:
    """Parts one after another.

    Args:
        seconds: of all; what steps before it have left over is added.
        first: parts that run before the others, side by side: compilers.
        rest: whether it has all the time that is left.
    """

    title: str
    seconds: float
    parts: tuple[Part, ...]
    first: tuple[Part, ...] = ()
    rest: bool = False


def all_steps(tiny: bool, output: Path) -> tuple[Step, ...]:
    """All of them.

    Args:
        tiny: for numba's simulator.
        output: folder of the results of the benchmark that the last step is.
    """
    look = job("look", tiny, seconds=GATE_SECONDS)
    return (
        Step("the machine", 15, (look, job("versions", tiny))),
        Step("the kernel tests, on the device", 45, tuple(kernel_tests(tiny))),
        Step("barriers, copies, tensor cores", 25, tuple(job(name, tiny) for name in CHECKS_OF_KERNELS)),
        Step("kernels, compiled to the disk", 45, (), tuple(compilations(tiny))),
        Step("cells beside the reference", 75, (), tuple(agreements(tiny))),
        Step("what runs around loops", 60, (around(tiny, WHOLE[0]),), tuple(beside(tiny))),
        Step("kinds of cells beside PyTorch", 75, (), tuple(kinds_of_cells(tiny))),
        Step("compute-sanitizer", 60, (), tuple(sanitized(tiny))),
        Step("how long loops take, beside the cost model", 80, tuple(timings(tiny))),
        Step("ncu on a loop each way", 40, tuple(profiles(tiny))),
        Step("LSTM in the benchmark", 0, tuple(benchmarks(tiny, output)), rest=True),
    )


def job(name: str, tiny: bool, *words: str, seconds: float = PROCESS_SECONDS, label: str = "") -> Part:
    """a job of `jobs.py`."""
    command = sys.executable, "-m", "bench.first_minutes.jobs", name, *words, *(["--tiny"] if tiny else [])
    return Part(label or " ".join((name, *words)), command, seconds)


def kernel_tests(tiny: bool) -> Iterator[Part]:
    """Tests of kernels, those that tell most first; warnings that nobody has seen yet are not failures."""
    chosen = ["-k", "bools or nothing_to_do"] if tiny else side_by_side()
    yield tests("tests/kernels", [str(TESTS / name) for name in KERNEL_TESTS], chosen, 120.0)
    found = sorted(path.name for path in (ROOT / TESTS).glob("test_cuda_*.py"))
    others = [name for name in found if name not in KERNEL_TESTS and not any(word in name for word in WITHOUT_DEVICE)]
    if not tiny:
        rest = tests("tests/kernels, the others", [str(TESTS / name) for name in others], chosen, 120.0)
        yield replace(rest, optional=True)  # nobody knows how long they compile


def torch_tests(tiny: bool) -> Part:
    """Tests of `rnnops.torch` on tensors of the device, which are skipped without one."""
    files = [str(TORCH_TESTS / path.name) for path in sorted((ROOT / TORCH_TESTS).glob("test_cuda*.py"))]
    options = ["-m", "not slow", *(["--collect-only"] if tiny else side_by_side())]
    return tests("tests/pytorch", files, options, 55.0)


def tests(label: str, files: Sequence[str], options: Sequence[str], seconds: float) -> Part:
    """A run of pytest."""
    words = ["-v", "--tb=short", "-W", "default", "-p", "no:cacheprovider", *options]
    lacking = "" if find_spec("pytest") else "pytest is not installed"
    lacking = lacking or ("" if files else "there are no such tests")
    return Part(label, (sys.executable, "-m", "pytest", *words, *files), seconds, TESTER, lacking)


def side_by_side() -> list[str]:
    return ["-n", str(min(MOST_TESTERS, os.cpu_count() or 1))] if find_spec("xdist") else []


def around(tiny: bool, name: str) -> Part:
    """Something that runs around loops, beside the reference."""
    return job("whole", tiny, name, f"--size={TINY if tiny else SHORT}", seconds=45.0)


def beside(tiny: bool) -> Iterator[Part]:
    """Side by side, as nothing is timed."""
    yield torch_tests(tiny)
    yield from (around(tiny, name) for name in WHOLE[1:] if not tiny)


def kinds_of_cells(tiny: bool) -> Iterator[Part]:
    """All kinds of `bench.kinds` once, side by side: their numbers beside PyTorch's."""
    for first in range(0, 1 if tiny else len(KINDS), KINDS_AT_ONCE):
        last = first + (1 if tiny else KINDS_AT_ONCE)
        words = "--device", "cuda", "--without", "jax", "--seeds", f"{first}:{last}"
        yield Part(f"kinds {first} to {last - 1}", (sys.executable, "-m", "bench.kinds", *words), KIND_SECONDS)


def compilations(tiny: bool) -> Iterator[Part]:
    """Kernels go to the disk before anything is measured; those of a cell at all sizes that come, side by side."""
    if tiny:
        yield from (
            job("compile", tiny, net, f"--size={size}", f"--weights={kept}") for net, kept, size in checked(tiny)
        )
        return
    for kept in ("float32", "float16"):
        for net in CELLS:
            yield compilation(net, kept, (*SIZES, SHORT))
    for width in WIDTHS:
        sizes = [Size(T, N, width) for T in ENDS for N in ROWS]
        yield compilation("lstm", "float32", (PROFILED, *sizes) if width == PROFILED.H else sizes)


def compilation(net: str, kept: str, sizes: Sequence[Size]) -> Part:
    words = f"--size={sizes[0]}", f"--weights={kept}", *(f"--also={size}" for size in sizes[1:])
    return job("compile", False, net, *words, seconds=75.0, label=f"compile {net} {kept}, from {sizes[0]}")


def agreements(tiny: bool) -> Iterator[Part]:
    repeats = 1 if tiny else 20
    for net, weights, size in checked(tiny):
        words = net, f"--size={size}", f"--weights={weights}", f"--repeats={repeats}"
        yield job("agree", tiny, *words, seconds=SIDE_BY_SIDE_SECONDS)


def checked(tiny: bool) -> list[tuple[str, str, Size]]:
    """Cells, in which dtype their weights lie on chip, and sizes."""
    if tiny:
        return [("lstm", "float32", TINY), ("gru", "float16", TINY)]
    return [(net, weights, size) for weights in ("float32", "float16") for size in SIZES for net in CELLS]


def sanitized(tiny: bool) -> Iterator[Part]:
    """Compiled already, but for the few kernels beside loops."""
    checks = CHECKS[:1] if tiny else CHECKS
    for check in checks:
        options = ["--tool", check, "--error-exitcode", "9", "--print-limit", "20"]
        options += ["--report-api-errors", "no"] if check == "memcheck" else []
        for net in SANITIZED[: 1 if tiny else None]:
            words = net, f"--size={TINY if tiny else SHORT}"
            yield looked_at(
                SANITIZER, options, job("train", tiny, *words, seconds=SIDE_BY_SIDE_SECONDS), f"{check} {net}"
            )


def timings(tiny: bool) -> Iterator[Part]:
    yield job("rates", tiny, f"--size={TINY if tiny else Size(8, 16, WIDTHS[0])}", seconds=45.0)
    for width in (TINY.H,) if tiny else WIDTHS:
        yield job("loops", tiny, "lstm", f"--size={Size(8, 16, width)}", seconds=60.0)


def profiles(tiny: bool) -> Iterator[Part]:
    options = ["--set", "full", "--launch-count", "1", "--profile-from-start", "off"]
    options += ["--kernel-name-base", "mangled", "--kernel-name", "regex:loop_"]
    for which in ("forward", "backward"):
        words = "lstm", f"--size={TINY if tiny else PROFILED}", f"--profile={which}"
        yield looked_at(PROFILER, options, job("train", tiny, *words), f"ncu {which}")


def looked_at(tool: str, options: Sequence[str], part: Part, label: str) -> Part:
    """A part under a tool."""
    found = find_tool(tool)
    lacking = "" if found else f"{tool} is not on the path, nor where NVIDIA's toolkits put it"
    return Part(label, (found or tool, *options, *part.command), part.seconds, tool, lacking)


def benchmarks(tiny: bool, output: Path) -> Iterator[Part]:
    """The benchmark itself, one case at a time, into one file; then FlashRNN, whose compiler may take all the rest."""
    sizes = [TINY_CASE] if tiny else [Size(1024, rows, 768) for rows in (16, 64)]
    for size in sizes:
        for mode in ("forward",) if tiny else ("forward", "training"):
            name = f"lstm {mode} {size}"
            words = ["--device", "cuda", "--quick", "--resume", "--restart", "--without", f"{FLASH}*"]
            words += ["--only", name, "--output", str(output), *(["--scale", "tiny"] if tiny else [])]
            yield Part(name, (sys.executable, "-m", "bench", *words), 240.0, told=True)
    flash = job("flashrnn", tiny, "lstm", f"--size={sizes[0]}", seconds=240.0)
    yield replace(flash, optional=True)
