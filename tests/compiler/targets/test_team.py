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

import numpy as np
import pytest
from rejection import rejects
from word_drivers import driver

from rnnops.compiler.targets import target as team_module
from rnnops.compiler.targets.target import check_threads, default_threads, run_together, wake_workers
from rnnops.errors import DeviceError
from rnnops.kernels.cpu.threads import SLEEPER, wait
from rnnops.kernels.cpu.words import Address, loaded, new_barrier, stored


@driver
def count_in(rank: int, threads: int, words: Address) -> None:
    """Each rank counts itself; when all have, each adds up what it sees."""
    barrier, own, sums = loaded(words), loaded(words + 8) + 8 * rank, loaded(words + 16) + 8 * rank
    stored(own, loaded(own) + 1)
    wait(barrier, 16, threads)
    for other in range(threads):
        stored(sums, loaded(sums) + loaded(loaded(words + 8) + 8 * other))
    wait(barrier, 16, threads)


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
        run_together(count_in, threads, [barrier, counts, sums])
        time.sleep(pause)
    assert counts.tolist() == [calls] * threads
    assert sums.tolist() == [threads * calls * (calls + 1) // 2] * threads


@pytest.mark.parametrize(("threads", "calls"), [(1, 100), (2, 5000), (3, 1000), (8, 300), (33, 30), (2, 100)])
def test_all_ranks_run_at_the_same_time(threads: int, calls: int) -> None:
    within_time(lambda: count_calls(threads, calls))


def test_workers_that_sleep_are_woken() -> None:
    within_time(lambda: count_calls(3, 50, pause=0.003))


def test_workers_are_awake_before_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that sleeps goes back to waiting, finds no job, sleeps again, and misses none that comes meanwhile."""
    monkeypatch.setattr(team_module, "_idle", [])
    wake_workers(2)  # where there are none
    count_calls(2, 1)
    (team,) = team_module._idle
    gate = team.workers[0].mailbox

    def wakes() -> bool:
        while gate[0] != SLEEPER:
            time.sleep(0)
        wake_workers(2)
        return bool(gate[0] != SLEEPER)

    within_time(lambda: [wakes() for _ in range(3)])
    assert any(wakes() for _ in range(100)), "it may be asleep again before this thread looks, but not each time"
    for pause in (0.0, 0.0001, 0.001) * 20:
        wake_workers(2)
        time.sleep(pause)
        wake_workers(5)
        count_calls(2, 1)
    assert team_module._idle == [team]


def test_several_callers_at_once() -> None:
    def all_callers() -> None:
        with ThreadPoolExecutor(5) as callers:
            list(callers.map(count_calls, (1, 2, 3, 4, 2), [300] * 5))

    within_time(all_callers)


@driver
def tell(rank: int, threads: int, words: Address) -> None:
    """What each rank was told, and the sizes of the arrays behind their addresses."""
    told = loaded(words) + 32 * rank
    stored(told, rank)
    stored(told + 8, threads)
    stored(told + 16, loaded(words + 16))
    stored(told + 24, loaded(loaded(words + 8)) + loaded(words + 24))


def test_ranks_are_told_what_they_need() -> None:
    told, other = np.zeros((3, 4), np.int64), np.full((5, 2), 7, np.int64)
    run_together(tell, 3, [told, other])
    assert told.tolist() == [[rank, 3, 12, 17] for rank in range(3)]


@pytest.mark.parametrize("threads", [0, -1, 1025, True, 2.0, "2", None, np.bool_(True)])
def test_bad_numbers_of_threads(threads: Any) -> None:
    rejects(DeviceError, lambda: check_threads(threads), "an integer from 1 to 1024", repr(threads))
    rejects(DeviceError, lambda: run_together(count_in, threads, []), "no such number of threads")


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


TESTS = str(Path(__file__).parents[2])
FUNCTIONS = """
import os, sys, threading, time
import numpy as np
from rnnops.compiler.targets.target import default_threads, run_together
from rnnops.kernels.cpu.threads import SLEEPER, wait
from rnnops.kernels.cpu.words import new_barrier
from rnnops.kernels.cpu.words import loaded, stored
from rnnops.kernels.cpu.words import Address
from word_drivers import driver

@driver
def count_in(rank: int, threads: int, words: Address) -> None:
    own = loaded(words + 8) + 8 * rank
    stored(own, loaded(own) + 1)
    wait(loaded(words), 16, threads)

@driver
def work_long(rank: int, threads: int, words: Address) -> None:
    own = loaded(words + 8) + 8 * rank
    for i in range(1000000000):
        stored(own, loaded(own) + 1)
        wait(loaded(words), 16, threads)

def count(threads, calls):
    barrier, counts = new_barrier(), np.zeros(threads, np.int64)
    for _ in range(calls):
        run_together(count_in, threads, [barrier, counts])
    assert counts.tolist() == [calls] * threads
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("team")
    (path / "team_functions.py").write_text(FUNCTIONS)
    return path


def run_program(program: str, folder: Path, **environment: str) -> str:
    """What a program prints that may use the functions above; fail where it hangs, crashes or complains."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), TESTS)), **environment}
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


FIRST_CALLS = """
from concurrent.futures import ThreadPoolExecutor
sys.setswitchinterval(1e-5)  # threads change places in the midst of what is done once
with ThreadPoolExecutor(5) as callers:
    list(callers.map(count, (1, 2, 3, 4, 2), [100] * 5))
"""
FIRST_COMPILES = """
from concurrent.futures import ThreadPoolExecutor
import logging
import rnnops as ro

logging.getLogger("rnnops").setLevel(logging.ERROR)  # how long it took to compile is said
feeds = {name: np.linspace(-1, 1, int(np.prod(shape))).reshape(shape) for name, shape in dict(
    xs=(3, 4, 2), h0=(4, 5), w=(2, 5), u=(5, 5)).items()}

@ro.cell
def plain(x, h, *, w, u):
    return dict(h=np.tanh(x @ w + h @ u))

def outputs_and_gradients(threads):
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    ys = ro.scan(plain, xs, h=h0)[1]
    net.outputs(y=ys["h"])
    out, pullback = ro.compile(net, threads=threads).vjp(feeds)
    return [out["y"], *pullback({"y": np.ones_like(out["y"])}).values()]

sys.setswitchinterval(1e-5)
with ThreadPoolExecutor(5) as callers:
    first, *others = callers.map(outputs_and_gradients, (1, 2, 3, 2, 1))
print(all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True)))
"""


def test_first_calls_of_a_process_at_once(folder: Path) -> None:
    """Each thread once made a library of its own; all but one were freed while workers ran their code."""
    assert run_program(FIRST_CALLS, folder) == ""


@pytest.mark.parametrize("cache", ["empty", "full"])
def test_first_compiles_of_a_process_at_once(folder: Path, tmp_path: Path, cache: str) -> None:
    where = {"RNNOPS_CACHE_DIR": str(tmp_path)} if cache == "empty" else {}
    assert run_program(FIRST_COMPILES, folder, **where) == "True"


EXITS = {
    "asleep": "count(3, 5); time.sleep(0.02)",
    "at exit": "import atexit; count(2, 5); atexit.register(count, 2, 5)",
    "in use by a daemon": """
barrier, busy = new_barrier(), np.zeros(3, np.int64)
threading.Thread(target=run_together, args=(work_long, 3, [barrier, busy]), daemon=True).start()
while busy.min() < 1000:
    time.sleep(0.001)
""",
}


@pytest.mark.parametrize("program", EXITS.values(), ids=EXITS.keys())
def test_exit_is_clean(program: str, folder: Path) -> None:
    assert run_program(program, folder) == ""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no processor affinity")
def test_default_threads_follow_the_affinity(folder: Path) -> None:
    program = "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]); print(default_threads()); count(3, 100)"
    assert run_program(program, folder, OMP_NUM_THREADS="7") == "1"
