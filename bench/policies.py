"""What policies and budgets cost in time beside what is done by default, `python -m bench.policies`.

Training steps of a table of cells on one thread, all ways of saving in turn: what is told of a way is the median over
rounds of its processor time over that of the default in the same round, and bytes kept. Nothing should be faster than
the default by more than 3 %.

`python -m bench.policies --derivatives` has derivatives beside the call that each is a derivative of, in the same way.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import numpy as np

import rnnops as ro
from bench.data import make_feeds
from bench.environment import limit_threads
from bench.matrix_states import cells
from bench.nets import build_net
from bench.problems import SEQUENCES, Arrays, Problem, Size
from bench.timing import no_collections

CELLS = ("lstm", "milstm", "layer_norm_lstm", "gru", "attention_decoder", "random_3")
SIZES = {"small": Size(50, 16, 128), "middle": Size(100, 32, 256)}
LONG = {"long": Size(1000, 16, 256)}  # of the LSTM
MATRICES = {"row": (2048, 1), "rows": (256, 8)}
BY_DEFAULT = "default"
WAYS: Mapping[str, dict[str, Any]] = {
    BY_DEFAULT: {},
    **{kind: {"checkpoints": kind} for kind in ("all", "speed", "memory")},
    **{f"budget {share} %": {"memory_budget": share / 100} for share in (100, 50, 20, 5)},
}
ROUNDS, COUNTED = 7, 0.15  # seconds of a block
SLOWER = 1.03
RAGGED = Size(100, 32, 128)  # with lengths uniform in [T/10, T]
BESIDE = {  # of each derivative: what its time is divided by, and how much longer it may take
    "jvp": ("forward", 3.2),
    "jvp of x": ("forward", 2.2),
    "hvp": ("gradient", 3.5),
    "gradient net": ("gradient", 1.1),
}
Net = tuple[ro.Net, Arrays, Arrays]  # with feeds, and gradients of outputs


def nets() -> Iterator[tuple[str, Callable[[], Net]]]:
    """The table: names, and what makes a net."""
    for cell in CELLS:
        for name, size in {**SIZES, **(LONG if cell == "lstm" else {})}.items():
            yield f"{cell}, {name}", partial(of_problem, Problem(cell, size))
    for name, cell in cells().items():
        for shape, (T, N) in MATRICES.items():
            yield f"{name}, {shape}", partial(_of_matrices, cell, T, N)


def of_problem(problem: Problem) -> Net:
    return build_net(problem), *make_feeds(problem)


def _of_matrices(cell: Any, T: int, N: int) -> Net:
    net, feeds = cell.net(), cell.feeds(T, N)
    y = ro.compile(net)(feeds)["y"]
    return net, feeds, {"y": np.ones_like(y)}


def measure(
    net: ro.Net, feeds: Arrays, heads: Arrays, ways: Mapping[str, dict[str, Any]] = WAYS, rounds: int = ROUNDS
) -> dict[str, tuple[float, float, int]]:  # fmt: skip
    """Of each way: time over that of the default, milliseconds, and bytes kept; none of budgets that nothing fits."""
    runs = {name: ro.compile(net, threads=1, **options) for name, options in ways.items()}
    kept = {name: nbytes for name, run in runs.items() if (nbytes := _kept(run, feeds)) is not None}
    times = _times({name: lambda run=runs[name]: run.vjp(feeds)[1](heads) for name in kept}, rounds)
    return {name: (_ratio(own, times[BY_DEFAULT]), 1000 * median(own), kept[name]) for name, own in times.items()}


def measure_derivatives(
    net: ro.Net, feeds: Arrays, heads: Arrays, rounds: int = ROUNDS
) -> dict[str, tuple[float, float]]:
    """Of each derivative: time over that of the call that it is of, and milliseconds."""
    run, given = ro.compile(net, threads=1), {**feeds, **{f"d_{name}": head for name, head in heads.items()}}
    shapes = {name: array.shape for name, array in feeds.items()}
    twin = ro.compile(ro.gradient_net(net, outputs=[*heads], **shapes), threads=1)
    moved = {name: array for name, array in feeds.items() if array.dtype.kind == "f"}
    of_x = {name: array for name, array in moved.items() if name in SEQUENCES}
    calls: dict[str, Callable[[], object]] = {
        "forward": lambda: run(feeds),
        "gradient": lambda: run.vjp(feeds)[1](heads),
        "gradient net": lambda: twin(given),
        "jvp": lambda: run.jvp(feeds, moved),
        "jvp of x": lambda: run.jvp(feeds, of_x),
        "hvp": lambda: run.hvp(feeds, moved, heads),
    }
    times = _times(calls, rounds)
    return {name: (_ratio(times[name], times[base]), 1000 * median(times[name])) for name, (base, _) in BESIDE.items()}


def _times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Of each call: processor time in each round; in every second round they take turns the other way round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    with no_collections():
        for turn in range(rounds):
            for name in sorted(calls, reverse=bool(turn % 2)):
                times[name].append(_seconds(calls[name]))
    return times


def _ratio(own: list[float], base: list[float]) -> float:
    return median(a / b for a, b in zip(own, base, strict=True))


def _seconds(call: Callable[[], object]) -> float:
    """Processor time of a call, of the median one of a block."""
    call()
    times: list[float] = []
    while sum(times) < COUNTED:
        start = process_time()
        call()
        times.append(process_time() - start)
    return median(times)


def _kept(run: ro.Run, feeds: Arrays) -> int | None:
    try:
        return run.saved_residuals(feeds).total
    except ro.CheckpointError:
        return None


def show_derivatives(pattern: str, rounds: int) -> None:
    """The table of derivatives."""
    problems = [Problem(cell, size) for cell in ("lstm", "gru") for size in SIZES.values()]
    for problem in (*problems, Problem("lstm_with_lengths", RAGGED)):
        if fnmatch(f"{problem.net}, {problem.size}", pattern):
            for way, (ratio, milliseconds) in measure_derivatives(*of_problem(problem), rounds).items():
                base, most = BESIDE[way]
                verdict = "SLOWER" if ratio > most else ""
                text = f"{ratio:5.2f} of {base:8} {milliseconds:9.2f} ms  {problem.net}, {problem.size}, {way}"
                print(text, verdict, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.policies", description=__doc__)
    parser.add_argument("--only", default="*", help="cells of such names; * and ? as in a shell")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--derivatives", action="store_true", help="derivatives in place of policies and budgets")
    given = parser.parse_args()
    limit_threads(1)
    if given.derivatives:
        return show_derivatives(given.only, given.rounds)
    for name, make in nets():
        if fnmatch(name, given.only):
            for way, (ratio, milliseconds, nbytes) in measure(*make(), WAYS, given.rounds).items():
                verdict = "FASTER" if ratio < 1 / SLOWER else ""
                print(f"{ratio:5.2f} {milliseconds:9.2f} ms {nbytes:13,} bytes  {name}, {way} {verdict}", flush=True)


if __name__ == "__main__":
    main()
