"""What a new T or N costs beside a known one: CPU time of a two-layer language model, `python -m bench.new_sizes`.

`--budget 0.5` measures the same under a memory budget.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from statistics import median
from time import process_time
from typing import Any

import numpy as np

import rnnops as ro
from bench.language_model import build
from bench.problems import Arrays

WORDS, WIDTH, LAYERS, ROWS = 1000, 64, 2, 8
LENGTHS = range(110, 70, -1)  # falling, so that scratch of the lengths before is large enough


def measure(
    words: int = WORDS, width: int = WIDTH, lengths: Sequence[int] = LENGTHS, budget: float | None = None
) -> dict[str, float]:
    """Milliseconds of CPU, medians over lengths: of a step at a known length, and beyond it at a new one."""
    net = build(words, width, LAYERS)
    params = ro.init_params(net, 0, "float32")
    run, rng = ro.compile(net, threads=1, memory_budget=budget), np.random.default_rng(0)
    found = {}
    for name, step in (("call", _call), ("training step", _training)):
        known, beyond = [], []
        for T in (lengths[0] + 2, lengths[0] + 1, *lengths):
            text = rng.integers(0, words, (T + 1, ROWS)).astype(np.int32)
            feeds = {**params, "tokens": text[:-1], "labels": text[1:]}
            new, again = _cpu(step, run, feeds), min(_cpu(step, run, feeds) for _ in range(3))
            known.append(again)
            beyond.append(new - again)
        found[f"{name}, known length"] = median(known[2:])
        found[f"{name}, beyond it for a new one"] = median(beyond[2:])
        found[f"{name}, most for a new one"] = max(beyond[2:])
    return found


def lengths_in_turn(words: int = WORDS, width: int = WIDTH, counts: Sequence[int] = (20, 500)) -> dict[str, float]:
    """Milliseconds of a training step, averaged over so many lengths in turn that are known by then."""
    net, rng = build(words, width, LAYERS), np.random.default_rng(0)
    params = ro.init_params(net, 0, "float32")
    found = {}
    for count in counts:
        run, texts = ro.compile(net, threads=1), []
        for T in np.linspace(10, 509, count).astype(int):
            text = rng.integers(0, words, (T + 1, ROWS)).astype(np.int32)
            texts.append({**params, "tokens": text[:-1], "labels": text[1:]})
        for feeds in texts:
            _training(run, feeds)
        found[f"a step, {count} lengths in turn"] = sum(_cpu(_training, run, feeds) for feeds in texts) / count
    return found


def _cpu(step: Callable[[ro.Run, Arrays], Any], run: ro.Run, feeds: Arrays) -> float:
    start = process_time()
    step(run, feeds)
    return 1000 * (process_time() - start)


def _call(run: ro.Run, feeds: Arrays) -> Any:
    return run(feeds)


def _training(run: ro.Run, feeds: Arrays) -> Any:
    _, pullback = run.vjp(feeds)
    return pullback({"loss": np.ones((), np.float32)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.new_sizes", description=__doc__)
    parser.add_argument("--budget", type=float, help="memory budget, as a fraction of what keeping all takes")
    budget = parser.parse_args().budget
    for what, milliseconds in {**measure(budget=budget), **(lengths_in_turn() if budget is None else {})}.items():
        print(f"{what}: {milliseconds:.2f} ms")
