"""`python -m bench.first_minutes.jobs JOB`: the work of the first minutes that has a process of its own;
each prints its results.

A line `RESULT {...}` comes as soon as something is known, so that a process that hangs has told what went before.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import rnnops as ro
from bench.case import Case, Entry
from bench.contender import Settings
from bench.cuda_cases import FLASH, LOW_OF_PEER
from bench.data import make_feeds
from bench.environment import describe_cuda_machine, from_driver
from bench.first_minutes.checks import barriers, copies, tensor_cores
from bench.first_minutes.models import WHOLE, whole
from bench.first_minutes.steps import PROFILER, SANITIZER, compiled_run, find_tool, passes, placed, placed_feeds, tell
from bench.first_minutes.timings import loops, rates
from bench.measure import Measurement, environment_of
from bench.nets import user_net
from bench.place import find_place, relative_error
from bench.problems import Arrays, Problem, Size
from rnnops.compiler.targets.target import load_module
from rnnops.kernels.cuda import facade, gemm
from rnnops.kernels.cuda.device_array import empty

PACKAGES = ("cupy", "torch", "pytest", "xdist")
HALF_ERROR = 1e-2  # norm of the difference / norm, of weights that are float16 on chip
POISON = 2**26  # numbers that are NaN in memory which runs get afterwards
CLOCKS = ("clocks.sm", "temperature.gpu", "power.draw")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=tuple(JOBS))
    parser.add_argument("net", nargs="?", default="lstm", help=f"a cell, or of `whole` one of {', '.join(WHOLE)}")
    parser.add_argument("--size", type=Size.parse, default=Size(3, 16, 64), help="T,N,H")
    parser.add_argument("--also", type=Size.parse, action="append", default=[], help="more sizes, to be compiled")
    parser.add_argument("--weights", choices=("float32", "float16"), default="float32", help="as they lie on chip")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--profile", choices=("forward", "backward"), help="what a profiler looks at")
    parser.add_argument("--tiny", action="store_true", help="in numba's simulator")
    options = parser.parse_args()
    JOBS[options.job](options)


# the machine


def look(options: argparse.Namespace) -> None:
    """What rnnops finds on the machine, cuBLAS before PyTorch is imported; what is missing; clocks."""
    tell(missing=facade.missing())
    if not facade.missing():
        tell(device=str(facade.card()), products=gemm.product_library(), torch_was_there="torch" in sys.modules)
    absent = [name for name in PACKAGES if find_spec(name) is None]
    tell(not_installed=[*absent, *(name for name in (SANITIZER, PROFILER) if not find_tool(name))])
    tell(clocks=from_driver(CLOCKS))


def versions(options: argparse.Namespace) -> None:
    """Names and versions, PyTorch's own too, which takes seconds to import."""
    tell(machine=describe_cuda_machine(options.tiny))


# right or wrong


def compiled(options: argparse.Namespace) -> None:
    """Compile the kernels of a cell to the disk, for all sizes; nothing is launched."""
    run, start, made = compiled_run(options), time.perf_counter(), set[Any]()
    for size in (options.size, *options.also):
        for backward in (True, False):
            plan = run.plan(user_net(options.net).shapes(size), backward=backward).plan
            for kernel in [] if facade.SIMULATED else kernels_of(plan):
                if kernel not in made:
                    kernel.compile(facade.scan_signature(kernel.dtypes))
                    made.add(kernel)
                    tell(kernels=len(made), seconds=round(time.perf_counter() - start, 2))
    tell(kernels=len(made), seconds=round(time.perf_counter() - start, 2))


def kernels_of(plan: Any) -> Iterator[Any]:
    """The kernels of the modules of a plan."""
    for kernel in plan.compiled.kernels:
        module = vars(load_module(kernel.compiled.text.python()))
        yield from (module[name] for name in sorted(module) if name.startswith(("loop_", "region_")))


def agree(options: argparse.Namespace) -> None:
    """A cell beside the reference; then the same bits again and again, in a stream of PyTorch's, in memory of NaN."""
    feeds, heads = make_feeds(Problem(options.net, options.size))
    run, start = compiled_run(options), time.perf_counter()
    passes(run, feeds, heads)
    tell(first_seconds=round(time.perf_counter() - start, 2))
    tell(**compared(options, run, feeds, heads))
    there, wanted = placed(feeds), placed(heads)
    bits = bytes_of(passes(run, there, wanted))
    same = all(bytes_of(passes(run, there, wanted)) == bits for _ in range(options.repeats))
    tell(repeats=options.repeats, **({"equal_bits": True} if same else {"wrong": "repeats differ in their bits"}))
    fresh = compiled_run(options)
    poison(POISON // (2**16 if options.tiny else 1))
    told(in_memory_of_nan=bytes_of(passes(fresh, there, wanted)) == bits)
    stream = stream_of_torch()
    if isinstance(stream, str):
        tell(in_stream_of_torch=stream)
    else:
        told(in_stream_of_torch=bytes_of(passes(run, there, wanted, stream=stream)) == bits)


def compared(options: argparse.Namespace, run: Any, feeds: Arrays, heads: Arrays) -> dict[str, Any]:
    """How far results are off; `wrong` says what is off too far."""
    if options.weights == "float32":
        try:
            report = ro.testing.check_devices(run.net, feeds, {"cuda": lambda net: run})
        except ro.testing.CheckError as error:
            return {"wrong": str(error)}
        worst = max(report.rows, key=lambda row: row.error / max(row.limit, 1e-30))
        return {"worst": str(worst)}
    wanted = passes(ro.compile(run.net, device="reference"), feeds, heads)
    errors = {name: relative_error(array, wanted[name]) for name, array in passes(run, feeds, heads).items()}
    name, off = max(errors.items(), key=lambda pair: np.inf if np.isnan(pair[1]) else pair[1])
    found = f"{name} is off by {off:.1e} of its norm"
    return {"worst": found} if off <= HALF_ERROR else {"wrong": f"{found}, allowed {HALF_ERROR:.0e}"}


def bytes_of(arrays: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: array.to_host().tobytes() for name, array in arrays.items()}


def told(**same: bool) -> None:
    """Tell whether there were the same bits."""
    for what, equal in same.items():
        tell(**({what: "equal bits"} if equal else {"wrong": f"{what}: different bits"}))


def poison(count: int) -> None:
    """Fill the memory that runs get next with NaN: all that is free goes back, and one piece with NaN comes."""
    cupy = None if facade.SIMULATED else facade.optional("cupy")
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
    empty((count,), "float32").fill(np.nan)


def stream_of_torch() -> Any:
    """A stream that is not the default one, or why there is none."""
    try:
        import torch
    except ImportError:
        return "not tried: PyTorch is not installed"
    return torch.cuda.Stream() if torch.cuda.is_available() else "not tried: PyTorch sees no device"


# for sanitizers and profilers


def train(options: argparse.Namespace) -> None:
    """One step of training, for tools that look at it; a profiler looks at one of its passes, when all is compiled."""
    cupy = None if facade.SIMULATED else facade.optional("cupy")
    if cupy is not None and not options.profile:
        cupy.cuda.set_allocator(None)  # without a pool sanitizers see where an array ends
    feeds, heads = placed_feeds(Problem(options.net, options.size))
    run = compiled_run(options)
    if options.profile:
        passes(run, feeds, heads)
    with profiled(options.profile == "forward"):
        _, pullback = run.vjp(feeds)
    with profiled(options.profile == "backward"):
        grads = pullback(heads)
    tell(finite=all(bool(np.isfinite(array.to_host()).all()) for array in grads.values()))


@contextmanager
def profiled(on: bool) -> Iterator[None]:
    if not on or facade.SIMULATED:
        yield
        return
    facade.cuda.synchronize()
    facade.cuda.profile_start()
    yield
    facade.cuda.synchronize()
    facade.cuda.profile_stop()


def flashrnn(options: argparse.Namespace) -> None:
    """FlashRNN's LSTM beside cuDNN's, or why not; its kernels go to a folder of this run, as a lock may stay in it."""
    problem, settings = Problem("lstm", options.size), replace(Settings("cuda", sets=2, rounds=2), tiny=options.tiny)
    with TemporaryDirectory() as folder, environment_of(TORCH_EXTENSIONS_DIR=folder):
        for mode in ("forward", "training"):
            layer = Entry("nn.LSTM", "nn.LSTM", problem, mode)
            peer = Entry(f"{FLASH} {LOW_OF_PEER}", FLASH, problem, mode, precision=LOW_OF_PEER)
            it = Measurement(Case(FLASH, str(options.size), (layer, peer)), settings, find_place(not options.tiny))
            for row in it.measured():
                told = f"{row.value / options.size.T * 1e6:.2f} us a step" if row.value else row.missing
                tell(**{f"{row.label} {mode}": told if row.error is None else f"{told}, error {row.error:.1e}"})
            if peer.label in it.reasons:
                tell(not_there=it.reasons[peer.label])
                return


JOBS: dict[str, Callable[[argparse.Namespace], None]] = {
    "look": look, "versions": versions, "compile": compiled, "agree": agree, "train": train, "loops": loops,
    "rates": rates, "barriers": barriers, "copies": copies, "tensor-cores": tensor_cores, "whole": whole,
    "flashrnn": flashrnn,
}  # fmt: skip

if __name__ == "__main__":
    main()
