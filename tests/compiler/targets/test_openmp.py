"""Teams inside an OpenMP pool: all ranks at the same time, errors, fewer threads than wanted, forks."""

from __future__ import annotations

import ctypes.util
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from test_team import count_in, tell, within_time

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.target import OpenMP, Processor, openmp_of, run_in_region
from rnnops.kernels.cpu.words import new_barrier

FOUND = openmp_of(ctypes.util.find_library("gomp") or "no such library")
pytestmark = pytest.mark.skipif(FOUND is None, reason="there is no libgomp")


@pytest.fixture
def openmp() -> OpenMP:
    assert FOUND is not None
    return FOUND


def count_calls(openmp: OpenMP, threads: int, calls: int) -> None:
    barrier, counts, sums = new_barrier(), np.zeros(threads, np.int64), np.zeros(threads, np.int64)
    for _ in range(calls):
        run_in_region(openmp, count_in, threads, [barrier, counts, sums])
    assert counts.tolist() == [calls] * threads
    assert sums.tolist() == [threads * calls * (calls + 1) // 2] * threads


@pytest.mark.parametrize(("threads", "calls"), [(1, 100), (2, 2000), (3, 300), (8, 30), (2, 100)])
def test_all_ranks_run_at_the_same_time(openmp: OpenMP, threads: int, calls: int) -> None:
    within_time(lambda: count_calls(openmp, threads, calls))


def test_ranks_are_threads_of_the_pool(openmp: OpenMP) -> None:
    """No thread of ours is started."""
    known = {thread.ident for thread in threading.enumerate()}
    count_calls(openmp, 2, 3)
    assert {thread.ident for thread in threading.enumerate()} == known


def test_ranks_are_told_what_they_need(openmp: OpenMP) -> None:
    told, other = np.zeros((3, 4), np.int64), np.full((5, 2), 7, np.int64)
    run_in_region(openmp, tell, 3, [told, other])
    assert told.tolist() == [[rank, 3, 12, 17] for rank in range(3)]


def test_a_net_has_the_same_bits(openmp: OpenMP) -> None:
    net = ro.Net("model")
    net.outputs(h=ro.LSTM(net, net.input("x"), None, None, 16, 64, scope="lstm")[0])
    feeds = {**ro.init_params(net, seed=0), "x": np.random.default_rng(0).normal(size=(9, 32, 16)).astype("float32")}
    found = []
    for device in (Processor(), Processor(openmp=openmp)):
        out, pullback = ro.compile(net, threads=2, tuning=Options(device=device)).vjp(feeds)
        found.append({**out, **pullback({"h": np.cos(out["h"])})})
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])


def test_libraries_without_a_runtime() -> None:
    assert openmp_of("no such library") is None
    assert openmp_of(ctypes.util.find_library("m") or "no such library") is None


def test_fewer_threads_than_wanted_are_replaced_by_ours() -> None:
    """The runtime gives one thread; the function runs once, on two of ours."""
    here = Path(__file__)
    code = "from test_openmp import FOUND, count_calls; count_calls(FOUND, 2, 50)"
    path = os.pathsep.join((str(here.parent), str(here.parents[2]), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork")  # JAX's, where other tests of the process have loaded it
def test_forked_children_leave_the_pool_alone(openmp: OpenMP) -> None:
    """The threads of the pool are not in the child: waiting for them would never end."""
    count_calls(openmp, 2, 3)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)  # by the thread that has the pool: others would get a new one
            count_calls(openmp, 2, 3)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
