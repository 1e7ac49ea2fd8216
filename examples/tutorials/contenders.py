"""Trains contenders on the same data, seed by seed and in turn, and prints what they score and how long they take.

Times are processor time of one thread: what the system gives to others on a busy machine is in none of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

Score = float | tuple[float, ...]
Train = Callable[[int], tuple[Score, "Clock"]]


@dataclass
class Clock:
    """Processor time up to the end of the first step, kernels and plans included, and of the steps after it."""

    begun: float
    first: float = 0.0
    rest: float = 0.0

    @classmethod
    def start(cls) -> Clock:
        return cls(time.process_time())

    def steps(self, batches: Iterable) -> Iterable:
        """The batches; when they are used up the clock has stopped."""
        for number, batch in enumerate(batches):
            yield batch
            if number == 0:
                self.first = time.process_time() - self.begun
        self.rest = time.process_time() - self.begun - self.first


def arguments(text: str, seeds: int = 5) -> argparse.ArgumentParser:
    """The options that all of these programs have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=["torch"], help="train the same model in PyTorch, too")
    parser.add_argument("--seeds", type=int, default=seeds, help="how many runs the figures are of (%(default)s)")
    return parser


def compare(contenders: Mapping[str, Train], seeds: int, unit: str) -> None:
    """Train each contender with each seed and print a line for each: of each score the median, least and most."""
    scores: dict[str, list[tuple[float, ...]]] = {name: [] for name in contenders}
    clocks: dict[str, list[Clock]] = {name: [] for name in contenders}
    for seed in range(seeds):
        for name, train in contenders.items():
            score, clock = train(seed)
            scores[name].append(score if isinstance(score, tuple) else (score,))
            clocks[name].append(clock)
            print(f"seed {seed}  {name:24} {'  '.join(f'{one:.4f}' for one in scores[name][-1])}", flush=True)
    ours = clocks[next(iter(contenders))]
    print(f"\n{unit}: median (least to most) of {seeds} seeds; processor time of all steps but the first, beside ours")
    for name in contenders:
        found = "  ".join(
            f"{median(one):.4f} ({min(one):.4f} to {max(one):.4f})" for one in zip(*scores[name], strict=True)
        )
        ratio = median(theirs.rest / own.rest for theirs, own in zip(clocks[name], ours, strict=True))
        first, rest = (median(getattr(clock, part) for clock in clocks[name]) for part in ("first", "rest"))
        print(f"{name:24} {found}  {ratio:5.2f} times ({rest:.2f} s; first step {first:.2f} s)")
