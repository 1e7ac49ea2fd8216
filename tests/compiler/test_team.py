"""Teams of threads: all ranks at the same time, several callers, errors, fork, exit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from rejection import rejects

from rnnops.compiler import team as team_module
from rnnops.compiler.team import check_threads, default_threads, run_together
from rnnops.errors import DeviceError
from rnnops.kernels.cpu.barrier import new_barrier, wait
from rnnops.kernels.cpu.fastmath import kernel, types

WORD = types.int64


@kernel
def count_in(rank, threads, barrier, counts, sums):  # type: ignore[no-untyped-def]
    """Each rank counts itself; when all have, each adds up what it sees."""
    counts[rank] += 1
    wait(barrier, threads)
    for other in range(threads):
        sums[rank] += counts[other]
    wait(barrier, threads)


@kernel
def fail(rank, threads, first_bad, last_bad, ended):  # type: ignore[no-untyped-def]
    """Some ranks raise at once, the others end late."""
    if first_bad <= rank <= last_bad:
        raise ValueError(rank)
    total = 0
    for i in range(200000):
        total += i % (rank + 7)
    ended[rank] = total + 1


def within_time(trial: Callable[[], None]) -> None:
    """Run a trial on another thread; fail where it hangs, raise what it raises."""
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            trial()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "a team hangs"
    if errors:
        raise errors[0]


def count_calls(threads: int, calls: int, pause: float = 0.0) -> None:
    barrier, counts, sums = new_barrier(), np.zeros(threads, np.int64), np.zeros(threads, np.int64)
    for _ in range(calls):
        run_together(count_in, threads, barrier, counts, sums)
        time.sleep(pause)
    assert counts.tolist() == [calls] * threads
    assert sums.tolist() == [threads * calls * (calls + 1) // 2] * threads


@pytest.mark.parametrize(("threads", "calls"), [(1, 100), (2, 5000), (3, 1000), (8, 300), (33, 30), (2, 100)])
def test_all_ranks_run_at_the_same_time(threads: int, calls: int) -> None:
    within_time(lambda: count_calls(threads, calls))


def test_workers_that_sleep_are_woken() -> None:
    within_time(lambda: count_calls(3, 50, pause=0.003))


def test_several_callers_at_once() -> None:
    def all_callers() -> None:
        with ThreadPoolExecutor(5) as callers:
            list(callers.map(count_calls, (1, 2, 3, 4, 2), [300] * 5))

    within_time(all_callers)


@pytest.mark.parametrize(("first_bad", "last_bad"), [(0, 0), (1, 1), (1, 3), (0, 3)])
def test_errors_come_after_all_ranks_have_ended(first_bad: int, last_bad: int) -> None:
    ended = np.zeros(4, np.int64)
    for _ in range(20):
        with pytest.raises(ValueError, match=f"^{first_bad}$"):
            within_time(lambda: run_together(fail, 4, first_bad, last_bad, ended))
        assert [bool(end) for end in ended] == [not first_bad <= rank <= last_bad for rank in range(4)]
        within_time(lambda: count_calls(4, 2))


def test_arguments_that_do_not_fit_start_no_rank() -> None:
    count_calls(2, 1)
    counts = np.zeros(2, np.int64)
    for sums in ([], ["sums"], [np.zeros((2, 2))]):
        with pytest.raises(TypeError, match="No matching definition"):
            run_together(count_in, 2, new_barrier(), counts, *sums)
    assert not counts.any()


def test_arguments_of_all_kinds_arrive() -> None:
    kinds = types.Array(types.float32, 2, "A", readonly=True), types.boolean, types.complex128, types.UniTuple(WORD, 2)

    @numba.njit(types.void(WORD, WORD, *kinds, types.float32, types.float64[:, ::1]), nogil=True)
    def store(rank, threads, matrix, flag, number, pair, factor, results):  # type: ignore[no-untyped-def]
        results[rank, 0], results[rank, 1], results[rank, 2] = matrix[1, rank], flag, number.imag
        results[rank, 3], results[rank, 4], results[rank, 5] = pair[1], factor, threads

    results = np.zeros((2, 6))
    run_together(store, 2, np.arange(8, dtype=np.float32).reshape(2, 4)[:, ::2], True, 1 - 5j, (3, 4), 0.5, results)
    assert results.tolist() == [[4, 1, -5, 4, 0.5, 2], [6, 1, -5, 4, 0.5, 2]]


def test_a_function_is_compiled_for_its_first_arguments() -> None:
    @numba.njit(nogil=True)
    def mark(rank, threads, marks):  # type: ignore[no-untyped-def]
        marks[rank] = threads

    marks = np.zeros(2, np.float32)
    run_together(mark, 2, marks)
    assert marks.tolist() == [2, 2]
    assert len(mark.signatures) == 1


@pytest.mark.parametrize(
    ("signatures", "result"),
    [
        (WORD(WORD, WORD), 3),
        (types.void(types.float64, WORD), None),
        ([types.void(WORD, WORD), types.void(WORD, types.float64)], None),
    ],
)
def test_other_signatures_are_refused(signatures: Any, result: int | None) -> None:
    compiled = numba.njit(signatures)(lambda rank, threads: result)
    rejects(DeviceError, lambda: run_together(compiled, 2), "wanted one signature, void(int64, int64, ...)")


def test_plain_python_runs_on_one_thread() -> None:
    seen: list[Any] = []
    run_together(lambda *arguments: seen.append(arguments), 1, "a", None)
    assert seen == [(0, 1, "a", None)]
    rejects(DeviceError, lambda: run_together(seen.append, 2), "compiled code only")


@pytest.mark.parametrize("threads", [0, -1, 1025, True, 2.0, "2", None, np.bool_(True)])
def test_bad_numbers_of_threads(threads: Any) -> None:
    rejects(DeviceError, lambda: check_threads(threads), "an integer from 1 to 1024", repr(threads))
    rejects(DeviceError, lambda: run_together(count_in, threads), "no such number of threads")


def test_good_numbers_of_threads() -> None:
    assert [check_threads(threads) for threads in (1, np.int32(3), 1024)] == [1, 3, 1024]
    assert 1 <= check_threads(default_threads()) <= (os.cpu_count() or 1)


def test_idle_workers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five teams with two workers each, two stay where four workers may; the threads of the others end."""
    monkeypatch.setattr(team_module, "_idle", [])
    monkeypatch.setattr(team_module, "IDLE_WORKERS", 4)
    before, teams = threading.active_count(), [team_module._idle_team() for _ in range(5)]
    for team in teams:
        team.grow(2)
    assert threading.active_count() - before == 10
    for team in teams:
        team_module._keep(team)
    assert team_module._idle == teams[:2]
    assert threading.active_count() - before == 4
    within_time(lambda: count_calls(3, 100))
    assert threading.active_count() - before == 4
    for team in teams[:2]:
        team.grow(5)  # more than may wait, but a team alone is kept
        team_module._idle.clear()
        team_module._keep(team)
        assert team_module._idle == [team]
        team.end()
    assert threading.active_count() == before


def test_without_threads_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is named, and the team serves with the workers that it got."""
    monkeypatch.setattr(team_module, "_idle", [])
    count_calls(2, 1)

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        rejects(DeviceError, lambda: count_calls(3, 1), "no more threads; wanted 2; got 1")
    within_time(lambda: count_calls(3, 10))


FUNCTIONS = """
import os, sys, threading, time
import numpy as np
from rnnops.compiler.team import default_threads, run_together
from rnnops.kernels.cpu.barrier import new_barrier, wait
from rnnops.kernels.cpu.fastmath import kernel

@kernel
def count_in(rank, threads, barrier, counts):
    counts[rank] += 1
    wait(barrier, threads)

@kernel
def work_long(rank, threads, barrier, counts, rounds):
    for i in range(rounds):
        counts[rank] += 1
        wait(barrier, threads)

def count(threads, calls):
    barrier, counts = new_barrier(), np.zeros(threads, np.int64)
    for _ in range(calls):
        run_together(count_in, threads, barrier, counts)
    assert counts.tolist() == [calls] * threads
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("team")
    (path / "team_functions.py").write_text(FUNCTIONS)
    return path


def run_program(program: str, folder: Path, **environment: str) -> str:
    """What a program prints that may use the functions above; fail where it hangs, crashes or complains."""
    environ = {**os.environ, "PYTHONPATH": str(folder), **environment}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", f"from team_functions import *\n{program}"]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.strip()


FORK = """
def child(task):
    pid = os.fork()
    if pid == 0:
        task()
        os._exit(0)
    return os.waitpid(pid, 0)[1]

count(3, 5)
print(child(lambda: count(3, 50)), child(lambda: print(child(lambda: count(4, 50)), end=" ", flush=True)))
stop = []
def keep_calling():
    while not stop:
        count(2, 5)
caller = threading.Thread(target=keep_calling)
caller.start()
print([child(lambda: count(2, 50)) for _ in range(10)])
stop.append(1)
caller.join()
count(3, 5)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_has_workers_of_its_own(folder: Path) -> None:
    assert run_program(FORK, folder).split("\n") == ["0 0 0", str([0] * 10)]


EXITS = {
    "asleep": "count(3, 5); time.sleep(0.02)",
    "at exit": "import atexit; count(2, 5); atexit.register(count, 2, 5)",
    "in use by a daemon": """
barrier, busy = new_barrier(), np.zeros(3, np.int64)
threading.Thread(target=run_together, args=(work_long, 3, barrier, busy, 10**9), daemon=True).start()
while busy.min() < 1000:
    time.sleep(0.001)
""",
}


@pytest.mark.parametrize("program", EXITS.values(), ids=EXITS.keys())
def test_exit_is_clean(program: str, folder: Path) -> None:
    assert run_program(program, folder) == ""


def test_uncompiled_functions_run_on_one_thread(folder: Path) -> None:
    assert run_program("count(1, 3)", folder, NUMBA_DISABLE_JIT="1") == ""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no processor affinity")
def test_default_threads_follow_the_affinity(folder: Path) -> None:
    program = "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]); print(default_threads()); count(3, 100)"
    assert run_program(program, folder, OMP_NUM_THREADS="7") == "1"
