"""The barrier: nobody passes early, everything written before is seen after, on any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.errors import TypingError

from rnnops.errors import DeviceError
from rnnops.kernels.cpu.barrier import LINE, new_barrier, wait
from rnnops.kernels.cpu.fastmath import kernel

CROWD = 2 * (os.cpu_count() or 1) + 1  # more than there are cores


@kernel
def march(rank, threads, barrier, steps, rounds, wrong):  # type: ignore[no-untyped-def]
    """Write the round, meet, see that all others have written it, meet."""
    for i in range(1, rounds + 1):
        steps[rank] = i
        wait(barrier, threads)
        for other in range(threads):
            wrong[rank] += steps[other] != i
        wait(barrier, threads)


@kernel
def pass_on(rank, threads, barrier, numbers, rounds):  # type: ignore[no-untyped-def]
    """Take the number of the next rank, one more each round; one barrier a round, so that rounds follow at once."""
    for i in range(rounds):
        numbers[(i + 1) % 2, rank] = numbers[i % 2, (rank + 1) % threads] + 1
        wait(barrier, threads)


@kernel
def stagger(rank, threads, barrier, order, rounds):  # type: ignore[no-untyped-def]
    """The last rank comes late, after work of its own; the others see the whole of it."""
    for i in range(rounds):
        if rank == threads - 1:
            for k in range(order.size):
                order[k] += k % (i + 2)
        wait(barrier, threads)
        if rank == i % threads:
            total = 0
            for k in range(order.size):
                total += order[k]
            order[0] = total
        wait(barrier, threads)


@kernel
def meet(threads, barrier):  # type: ignore[no-untyped-def]
    wait(barrier, threads)
    return threads


def on_threads(threads: int, function: Callable[..., Any], *arguments: Any) -> None:
    """Run a compiled function on so many threads; fail where they hang."""
    function(0, 1, new_barrier(), *(np.copy(x) if isinstance(x, np.ndarray) else x for x in arguments[1:]))  # compile
    crew = [threading.Thread(target=function, args=(rank, threads, *arguments), daemon=True) for rank in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(60)
    assert not any(thread.is_alive() for thread in crew), "threads hang in the barrier"


@pytest.mark.parametrize(("threads", "rounds"), [(2, 5000), (3, 2000), (4, 2000), (8, 1000), (CROWD, 1000)])
def test_nobody_passes_early(threads: int, rounds: int) -> None:
    wrong = np.zeros(threads, np.int64)
    on_threads(threads, march, new_barrier(), np.zeros(threads, np.int64), rounds, wrong)
    assert not wrong.any()


@pytest.mark.parametrize(("threads", "rounds"), [(2, 20001), (3, 5001), (8, 1001), (CROWD, 1001)])
def test_one_barrier_after_the_other(threads: int, rounds: int) -> None:
    numbers, barrier = np.zeros((2, threads), np.int64), new_barrier()
    on_threads(threads, pass_on, barrier, numbers, rounds)
    assert (numbers[rounds % 2] == rounds).all()
    on_threads(threads, pass_on, barrier, numbers[::-1].copy(), rounds)


def test_all_writes_of_a_late_rank_are_seen() -> None:
    threads, rounds = 3, 300
    together, alone = np.zeros(5000, np.int64), np.zeros(5000, np.int64)
    on_threads(threads, stagger, new_barrier(), together, rounds)
    stagger(0, 1, new_barrier(), alone, rounds)
    assert (together == alone).all()


def test_two_teams_use_two_barriers() -> None:
    arrays = [(new_barrier(), np.zeros((2, 2), np.int64), 3001 + 2 * team) for team in range(2)]
    pass_on(0, 1, new_barrier(), np.zeros((2, 2), np.int64), 1)
    teams = [threading.Thread(target=on_threads, args=(2, pass_on, *own)) for own in arrays]
    for team in teams:
        team.start()
    for team in teams:
        team.join()
    for _, numbers, rounds in arrays:
        assert (numbers[rounds % 2] == rounds).all()


def test_a_barrier_lies_on_two_cache_lines_of_its_own() -> None:
    for _ in range(20):
        barrier = new_barrier()
        assert barrier.dtype == np.int64
        assert barrier.size == 2 * LINE == 16
        assert barrier.ctypes.data % 64 == 0
        assert not barrier.any()


def test_one_thread_meets_nobody() -> None:
    barrier = new_barrier()
    wait(barrier, 1)
    assert meet(1, barrier) == 1
    assert not barrier.any()


def test_plain_python_joins_no_threads() -> None:
    with pytest.raises(DeviceError, match="compiled code only; wanted 1 thread"):
        wait(new_barrier(), 2)


@pytest.mark.parametrize("barrier", [np.zeros(16), np.zeros((2, 8), np.int64), np.zeros(32, np.int64)[::2]])
def test_other_memory_is_refused(barrier: np.ndarray) -> None:
    with pytest.raises(TypingError):
        meet(2, barrier)


MODULE = """
from rnnops.kernels.cpu.barrier import wait
from rnnops.kernels.cpu.fastmath import kernel

@kernel
def twice(rank, threads, barrier, counts):
    wait(barrier, threads)
    counts[rank] += 1
    wait(barrier, threads)
"""
PROGRAM = """
import threading
import numpy as np, barrier_module
from rnnops.kernels.cpu.barrier import new_barrier
barrier, counts = new_barrier(), np.zeros(3, np.int64)
barrier_module.twice(0, 1, barrier, counts)
crew = [threading.Thread(target=barrier_module.twice, args=(r, 3, barrier, counts)) for r in range(3)]
for thread in crew: thread.start()
for thread in crew: thread.join()
assert counts.tolist() == [2, 1, 1]
print(sum(barrier_module.twice.stats.cache_hits.values()))
"""


def test_callers_are_kept_on_disk(tmp_path: Path) -> None:
    (tmp_path / "barrier_module.py").write_text(MODULE)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "RNNOPS_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROGRAM]
    runs = [
        subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60) for _ in range(2)
    ]
    assert [run.stdout.strip() for run in runs] == ["0", "1"]
