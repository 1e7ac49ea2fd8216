"""What policies and budgets cost in time beside what is done by default, `python -m bench.policies`.

Training steps of a table of cells on one thread, all ways of saving in turn: what is told of a way is the median over
rounds of its processor time over that of the default in the same round, and bytes kept. Nothing should be faster than
the default by more than 3 %.
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
from bench.problems import Arrays, Problem, Size
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
    times: dict[str, list[float]] = {name: [] for name in kept}
    with no_collections():
        for turn in range(rounds):
            for name in sorted(kept, reverse=bool(turn % 2)):
                times[name].append(_seconds(lambda run=runs[name]: run.vjp(feeds)[1](heads)))
    default = times[BY_DEFAULT]
    return {
        name: (median(a / b for a, b in zip(own, default, strict=True)), 1000 * median(own), kept[name])
        for name, own in times.items()
    }


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.policies", description=__doc__)
    parser.add_argument("--only", default="*", help="cells of such names; * and ? as in a shell")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    limit_threads(1)
    for name, make in nets():
        if fnmatch(name, given.only):
            for way, (ratio, milliseconds, nbytes) in measure(*make(), WAYS, given.rounds).items():
                verdict = "FASTER" if ratio < 1 / SLOWER else ""
                print(f"{ratio:5.2f} {milliseconds:9.2f} ms {nbytes:13,} bytes  {name}, {way} {verdict}", flush=True)


if __name__ == "__main__":
    main()
