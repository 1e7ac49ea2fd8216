"""Runs that are recorded: when, and that what changes from run to run does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_marks import on_cuda

from rnnops.compiler.targets.cuda import target
from rnnops.compiler.targets.cuda.target import Launches, Replays, ScanRun
from rnnops.kernels.cuda import facade
from rnnops.kernels.cuda.device_array import on_device
from rnnops.kernels.cuda.facade import scan_kernel

RECORDS = facade.SIMULATED or facade.optional("cupy") is not None
pytestmark = [*on_cuda, pytest.mark.skipif(not RECORDS, reason="nothing is recorded without CuPy")]
STEPS = 40


@scan_kernel("float64")
def add_seed(low: int, begin: int, end: int, steps: int, sizes: Any, status: Any, counters: Any, x: Any) -> None:
    """x[0] grows by a number that changes from run to run, and by the step."""
    x[0] += sizes[0] + begin


class Runs:
    """Runs of a function that launches `add_seed` for each step, with a look at what is launched as usual."""

    def __init__(self, steps: int = STEPS) -> None:
        self.steps, self.as_usual, self.replays = steps, 0, Replays()

    def run(self, x: Any, seed: int) -> float:
        before = x.to_host()[0]
        self.replays.start(ScanRun(self.driver, (), (), (x,), x, 1, x), np.array([seed]), 0)
        return float(x.to_host()[0] - before)

    def driver(self, on: Launches, numbers: Any, x: Any) -> None:
        self.as_usual += 1
        for step in range(self.steps):
            on.launch(add_seed, 1, 0, 0, step, step + 1, self.steps, x)

    def wanted(self, seed: int) -> float:
        return self.steps * seed + self.steps * (self.steps - 1) / 2


def test_the_third_run_with_the_same_arrays_is_launched_at_once() -> None:
    runs, x = Runs(), on_device(np.zeros(1))
    for seed in (3, 4, 5, 6):
        assert runs.run(x, seed) == runs.wanted(seed)
    assert runs.as_usual == 2  # once as usual, once to record


def test_other_arrays_are_other_runs() -> None:
    runs, x, y = Runs(), on_device(np.zeros(1)), on_device(np.zeros(1))
    for seed in (3, 4, 5):
        assert runs.run(x, seed) == runs.wanted(seed)
        assert runs.run(y, seed + 1) == runs.wanted(seed + 1)
    assert runs.as_usual == 4


def test_few_launches_are_not_recorded() -> None:
    runs, x = Runs(steps=4), on_device(np.zeros(1))
    for seed in (3, 4, 5):
        assert runs.run(x, seed) == runs.wanted(seed)
    assert runs.as_usual == 3


def test_what_was_used_long_ago_is_forgotten() -> None:
    runs = Runs()
    arrays = [on_device(np.zeros(1)) for _ in range(target.KEPT + 1)]
    for _ in range(2):
        for x in arrays:
            assert runs.run(x, 2) == runs.wanted(2)
    assert runs.as_usual == 2 * len(arrays)
    assert len(runs.replays._known) == target.KEPT


def test_numbers_that_were_used_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "KNOWN", 2)
    runs, x = Runs(steps=4), on_device(np.zeros(1))
    for seed in (3, 4, 3, 5):
        assert runs.run(x, seed) == runs.wanted(seed)
    assert [np.frombuffer(numbers, "int64")[0] for _, numbers in runs.replays._sizes] == [3, 5]


def test_what_cannot_be_recorded_is_launched_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(work: Any) -> None:
        raise RuntimeError("no graphs here")

    for broken in (lambda work: None, refuses):
        monkeypatch.setattr(target, "record", broken)
        runs, x = Runs(), on_device(np.zeros(1))
        for seed in (3, 4, 5):
            assert runs.run(x, seed) == runs.wanted(seed)
        assert runs.as_usual == 3


def test_errors_are_raised_when_launched_as_usual() -> None:
    runs, x = Replays(), on_device(np.zeros(1))

    def fails(on: Launches, numbers: Any) -> None:
        raise ValueError("wrong")

    for _ in range(3):
        with pytest.raises(ValueError, match="wrong"):
            runs.start(ScanRun(fails, (), (), (), x, 1, x), np.zeros(1), 0)
