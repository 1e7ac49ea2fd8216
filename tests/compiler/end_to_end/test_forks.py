"""Forks while other threads plan and compile: the child goes on, with a new shape and with a new net."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, random, sys, threading, time
import numpy as np
import rnnops as ro

def net_of(name, sign):
    cell = ro.Net("cell")
    x_t, h_prev, w = cell.inputs("x_t", "h_prev", "w")
    cell.outputs(h_t=ro.tanh(x_t @ w + h_prev * sign))
    net = ro.Net(name)
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.recurrent_net(net, cell, [("x_t", xs)], [("h_prev", h0)], {"h_prev": "h_t"})[0])
    return net

def train(run, steps):
    feeds = dict(xs=np.ones((steps, 3, 4)), h0=np.zeros(4), w=np.eye(4) / 8)
    out, pullback = run.vjp(feeds)
    return float(pullback(np.ones_like(out["y"]))["w"].sum())

def child(run, number):
    train(run, 30 + number)
    train(ro.compile(net_of(f"new_{number}", 1 / (number + 2))), 5)

def forked(run, number, seconds):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child(run, number)
            code = 0
        finally:
            os._exit(code)
    for _ in range(int(seconds / 0.01)):
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            return "ended"
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hung"

shared = ro.compile(net_of("shared", 0.5))
if "warm" in sys.argv:
    train(shared, 2)
done = threading.Event()

def keep_compiling():
    for number in range(10**6):
        if done.is_set():
            return
        train(ro.compile(net_of(f"other_{number}", number + 3.0)), 4)
        train(shared, 100 + number)

compiling = threading.Thread(target=keep_compiling, daemon=True)
compiling.start()
chance = random.Random(int(sys.argv[1]))
results = []
for number in range(int(sys.argv[2])):
    time.sleep(chance.random())
    results.append(forked(shared, number, 100))
done.set()
compiling.join()
print(" ".join(results))
"""


def results(tmp_path: Path, *arguments: str) -> list[str]:
    environment = {**os.environ, "RNNOPS_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("warm", [(), ("warm",)], ids=["the first compile", "later compiles"])
def test_children_forked_during_a_compile_go_on(tmp_path: Path, warm: tuple[str, ...]) -> None:
    assert results(tmp_path, "0", "2", *warm) == ["ended"] * 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_twenty_children_forked_at_random_moments_go_on(tmp_path: Path) -> None:
    assert results(tmp_path, "1", "20", "warm") == ["ended"] * 20
