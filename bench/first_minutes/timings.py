"""How long loops take, for `first_minutes.py`: microseconds of a step; and the barrier, products, graphs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

import rnnops as ro
from bench.contender import Settings
from bench.cuda_assembly import beside_measured, loops_written, predicted
from bench.environment import from_driver
from bench.first_minutes.steps import ENDS, MODEL, ROWS, compiled_run, passes, placed_feeds, tell
from bench.floor import sync_seconds, typical
from bench.group_wait import group_wait_seconds
from bench.nets import user_net
from bench.place import Place, find_place
from bench.problems import Problem, Size
from bench.rnnops_engine import compile_net
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda import target
from rnnops.compiler.targets.cuda.share_blocks import CLOCK
from rnnops.compiler.targets.cuda.target import cuda_target
from rnnops.kernels.cuda import gemm
from rnnops.kernels.cuda.facade import card
from rnnops.kernels.cuda.gemm import Matrix, Product

ROUNDS = 3
HIGHEST_CLOCK = "clocks.max.sm"
GRAPH_STEPS, GRAPH_RUNS = 64, 5  # steps with more launches than are worth recording


def loops(options: argparse.Namespace) -> None:
    """Microseconds of a step: of each kernel of a loop, and of whole passes, by the slope between two lengths."""
    place = find_place(not options.tiny)
    ends = (1, 2) if options.tiny else ENDS
    for rows in (2,) if options.tiny else ROWS:
        timed = [loop_seconds(options, Size(T, rows, options.size.H), place) for T in ends]
        steps = ends[1] - ends[0]
        slopes = {name: (timed[1][name] - timed[0][name]) / steps * 1e6 for name in timed[0] if name in timed[1]}
        tell(**{f"N {rows}": {name: round(slope, 3) for name, slope in slopes.items()}})
        tried(f"{MODEL} H {options.size.H}, N {rows}", partial(beside_model, options, rows, slopes))


def beside_model(options: argparse.Namespace, rows: int, slopes: Mapping[str, float]) -> dict[str, Any]:
    """What the cost model says of these loops on this device: its clock and multiprocessors, where the driver tells."""
    clock, size = cycles_a_microsecond(), Size(ENDS[0], rows, options.size.H)
    with loops_written() as written:
        plan = compiled_run(options).plan(user_net(options.net).shapes(size), dtype="float32")
    found = predicted([kernel.compiled for kernel in plan.plan.compiled.kernels], written, rows, clock or CLOCK)
    of = f"{clock or CLOCK:.0f} MHz{'' if clock else ', as nobody tells'}, {card().multiprocessors} multiprocessors"
    return {"for": of, **beside_measured(slopes, found)}


def cycles_a_microsecond() -> float:
    """The highest clock of the multiprocessors; 0 where the driver does not tell."""
    said = from_driver((HIGHEST_CLOCK,)).get(HIGHEST_CLOCK, "").split()
    return float(said[0]) if said and said[0].replace(".", "", 1).isdigit() else 0.0


def loop_seconds(options: argparse.Namespace, size: Size, place: Place) -> dict[str, float]:
    """Seconds of both passes, and of their kernels that are loops; medians, compiled before."""
    feeds, heads = placed_feeds(Problem(options.net, size))
    options = argparse.Namespace(**{**vars(options), "size": size})
    run, start = compiled_run(options), time.perf_counter()
    passes(run, feeds, heads)
    tell(**{f"first seconds {size}": round(time.perf_counter() - start, 2)})
    found: dict[str, list[float]] = {}
    rounds = 1 if options.tiny else ROUNDS
    for _ in range(rounds):
        _, pullback = timed(place, found, "forward", partial(run.vjp, feeds))
        timed(place, found, "backward", partial(pullback, heads))
    for _ in range(rounds):
        with timed_kernels(place, found, "forward"):
            _, pullback = run.vjp(feeds)
        with timed_kernels(place, found, "backward"):
            pullback(heads)
    return {name: median(values) for name, values in found.items()}


def timed(place: Place, found: dict[str, list[float]], label: str, call: Callable[[], Any]) -> Any:
    """What a call returns, whose time is noted."""
    returned: list[Any] = []
    found.setdefault(label, []).append(place.seconds(lambda: returned.append(call())))
    return returned[0]


@contextmanager
def timed_kernels(place: Place, found: dict[str, list[float]], which: str) -> Iterator[None]:
    """Time each launch of a kernel that is a loop, one by one; a pass has several where it goes tile by tile."""
    real, sums = target.launch, dict[str, float]()

    def launch(kernel: Any, *given: Any) -> None:
        name = kernel.__name__ if hasattr(kernel, "__name__") else kernel.fn.__name__
        if not name.startswith("loop_"):
            real(kernel, *given)
            return
        label = f"{which} {name}"
        sums[label] = sums.get(label, 0.0) + place.seconds(partial(real, kernel, *given))

    with mock.patch.object(target, "launch", launch):
        yield
    for label, seconds in sums.items():
        found.setdefault(label, []).append(seconds)


def rates(options: argparse.Namespace) -> None:
    """Barriers of a grid and of a group, products of a tile by cuBLAS and by ours, and whether graphs are recorded."""
    place = find_place(not options.tiny)
    if options.tiny:
        tell(barriers="not measured: the simulator has none")
    else:
        tried("barrier of the grid, us", lambda: round(sync_seconds(place) * 1e6, 3))
        tried("barrier of half a grid, us", lambda: round(group_wait_seconds(place, card().multiprocessors) * 1e6, 3))
    tried("products, GFLOP/s", lambda: product_rates(options, place))
    tried("graphs", lambda: graphs(options))


def tried(what: str, measure: Callable[[], Any]) -> None:
    """Tell a number, or why there is none."""
    try:
        tell(**{what: measure()})
    except Exception as error:  # of any library
        tell(**{what: f"not measured: {type(error).__name__}: {' '.join(str(error).split())[:200]}"})


def product_rates(options: argparse.Namespace, place: Place) -> dict[str, Any]:
    """The input projection of a tile, `[rows, H] @ [H, 4H]`."""
    H = options.size.H
    rows = 4 if options.tiny else 16 * 1024
    random = np.random.default_rng(0)
    a, b, c = (
        ro.on_device(random.standard_normal(count, dtype=np.float32)) for count in (rows * H, H * 4 * H, rows * 4 * H)
    )
    one = Product(Matrix(a, 0, H), Matrix(b, 0, 4 * H), Matrix(c, 0, 4 * H), rows, 4 * H, H)
    library = gemm.cublas()
    ways: dict[str, Callable[[], object]] = {"ours": lambda: gemm._launch([one], 0)}
    if library is not None:
        ways[str(library)] = lambda: library.multiply(*one[:6], 0, 0)
    flops = 2.0 * rows * H * 4 * H
    return {name: round(flops / typical(place, way) / 1e9, 3) for name, way in ways.items()}


def graphs(options: argparse.Namespace) -> dict[str, Any]:
    """A recurrence step by step: whether it is recorded, why not, and seconds of its runs one after another."""
    problem = Problem("lstm", Size(4, 1, 2) if options.tiny else replace(options.size, T=GRAPH_STEPS))
    target = replace(cuda_target("graphs", None), shared_bytes=0)
    run = compile_net(problem, Settings("cuda"), tuning=Options(device=target))
    feeds, _ = placed_feeds(problem)
    place, seconds = find_place(not options.tiny), []
    for _ in range(3 if options.tiny else GRAPH_RUNS):
        start = time.perf_counter()
        run(feeds)
        place.wait()
        seconds.append(round(time.perf_counter() - start, 5))
    known = list(target.replays.values())
    refused = next((one.refused for one in known if one.refused), "")
    launches = [one.launches for one in known]
    recorded = sum(one.recorded for one in known)
    return {"recorded": recorded, "refused": refused, "launches": launches, "seconds of runs": seconds}
