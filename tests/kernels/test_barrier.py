"""The barrier: nobody passes early, everything written before is seen after, on any number of threads."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
from word_drivers import call, driver

from rnnops.errors import DeviceError
from rnnops.kernels.cpu import native
from rnnops.kernels.cpu.native import NativeFunction
from rnnops.kernels.cpu.threads import wait
from rnnops.kernels.cpu.words import LINE, Address, loaded, new_barrier, stored

CROWD = 2 * (os.cpu_count() or 1) + 1  # more than there are cores


@driver
def march(rank: int, threads: int, words: Address) -> None:
    """Write the round, meet, see that all others have written it, meet."""
    barrier, steps, wrong = loaded(words), loaded(words + 8), loaded(words + 24) + 8 * rank
    for i in range(1, loaded(loaded(words + 16)) + 1):
        stored(steps + 8 * rank, i)
        wait(barrier, 16, threads)
        for other in range(threads):
            stored(wrong, loaded(wrong) + (1 if loaded(steps + 8 * other) != i else 0))
        wait(barrier, 16, threads)


@driver
def pass_on(rank: int, threads: int, words: Address) -> None:
    """Take the number of the next rank, one more each round; one barrier a round, so that rounds follow at once."""
    numbers, neighbour = loaded(words + 8), (rank + 1) % threads
    for i in range(loaded(loaded(words + 16))):
        own, other = (i + 1) % 2 * threads + rank, i % 2 * threads + neighbour
        stored(numbers + 8 * own, loaded(numbers + 8 * other) + 1)
        wait(loaded(words), 16, threads)


@driver
def stagger(rank: int, threads: int, words: Address) -> None:
    """The last rank comes late, after work of its own; the others see the whole of it."""
    barrier, order, size = loaded(words), loaded(words + 8), loaded(loaded(words + 24))
    for i in range(loaded(loaded(words + 16))):
        if rank == threads - 1:
            for k in range(size):
                stored(order + 8 * k, loaded(order + 8 * k) + k % (i + 2))
        wait(barrier, 16, threads)
        if rank == i % threads:
            total = 0
            for k in range(size):
                total += loaded(order + 8 * k)
            stored(order, total)
        wait(barrier, 16, threads)


def number(value: int) -> Any:
    return np.array([value], np.int64)


def on_threads(threads: int, made: NativeFunction, *arrays: Any) -> None:
    """Run a driver on so many threads; fail where they hang."""
    given = [(made, rank, threads, *arrays) for rank in range(threads)]
    crew = [threading.Thread(target=call, args=one, daemon=True) for one in given]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(60)
    assert not any(thread.is_alive() for thread in crew), "threads hang in the barrier"


@pytest.mark.parametrize(("threads", "rounds"), [(2, 5000), (3, 2000), (4, 2000), (8, 1000), (CROWD, 1000)])
def test_nobody_passes_early(threads: int, rounds: int) -> None:
    wrong = np.zeros(threads, np.int64)
    on_threads(threads, march, new_barrier(), np.zeros(threads, np.int64), number(rounds), wrong)
    assert not wrong.any()


@pytest.mark.parametrize(("threads", "rounds"), [(2, 20001), (3, 5001), (8, 1001), (CROWD, 1001)])
def test_one_barrier_after_the_other(threads: int, rounds: int) -> None:
    numbers, barrier = np.zeros((2, threads), np.int64), new_barrier()
    on_threads(threads, pass_on, barrier, numbers, number(rounds))
    assert (numbers[rounds % 2] == rounds).all()
    on_threads(threads, pass_on, barrier, numbers[::-1].copy(), number(rounds))


def test_all_writes_of_a_late_rank_are_seen() -> None:
    threads, rounds = 3, 300
    together, alone = np.zeros(5000, np.int64), np.zeros(5000, np.int64)
    size = number(together.size)
    on_threads(threads, stagger, new_barrier(), together, number(rounds), size)
    call(stagger, 0, 1, new_barrier(), alone, number(rounds), size)
    assert (together == alone).all()


def test_two_teams_use_two_barriers() -> None:
    arrays = [(new_barrier(), np.zeros((2, 2), np.int64), number(3001 + 2 * team)) for team in range(2)]
    teams = [threading.Thread(target=on_threads, args=(2, pass_on, *own)) for own in arrays]
    for team in teams:
        team.start()
    for team in teams:
        team.join()
    for _, numbers, rounds in arrays:
        assert (numbers[rounds[0] % 2] == rounds[0]).all()


def test_a_barrier_lies_on_two_cache_lines_of_its_own() -> None:
    for _ in range(20):
        barrier = new_barrier()
        assert barrier.dtype == np.int64
        assert barrier.size == 2 * LINE == 16
        assert barrier.ctypes.data % 64 == 0
        assert not barrier.any()


def test_one_thread_meets_nobody() -> None:
    barrier, wrong = new_barrier(), np.zeros(1, np.int64)
    call(march, 0, 1, barrier, np.zeros(1, np.int64), number(3), wrong)
    assert not barrier.any()
    native.wait(barrier, 1)


def test_plain_python_joins_no_threads() -> None:
    with pytest.raises(DeviceError, match="only compiled code runs on several threads; wanted 1 thread"):
        native.wait(new_barrier(), 2)
    with pytest.raises(DeviceError, match="only compiled code runs on several threads; wanted 1 thread"):
        wait(int(new_barrier().ctypes.data), 16, 2)
