"""The code of cells that nobody holds any more is freed: memory after fifty of them, by hand (`pytest -m slow -s`)."""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST_MEGABYTES = 1.0  # a cell
CODE = """
import gc
from pathlib import Path
import numpy as np
import rnnops as ro

def megabytes():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024

def run_and_drop(number):
    cell, net = ro.Net("cell"), ro.Net("net")
    x, h, w = cell.inputs("x", "h", "w")
    state = x + h @ w
    for k in range(number % 7 + 2):
        state = ro.tanh(state * (0.5 + 0.01 * number + k))
    cell.outputs(h=state)
    y, *_ = ro.recurrent_net(net, cell, [("x", net.input("xs"))], [("h", net.input("h0"))], {"h": "h"})
    net.outputs(y=y)
    random = np.random.default_rng(0)
    shapes = dict(xs=(20, 8, 64), h0=(8, 64), w=(64, 64))
    feeds = {name: random.normal(size=shape).astype("f") for name, shape in shapes.items()}
    outputs, pullback = ro.compile(net).vjp(feeds)
    pullback(outputs)

for number in range(52):
    run_and_drop(number)
    if number == 1:
        gc.collect()
        before = megabytes()
gc.collect()
print((megabytes() - before) / 50)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory of a process is read from Linux's files")
def test_memory_after_fifty_dropped_cells() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    print(f"{float(done.stdout):.2f} MB a cell")
    assert float(done.stdout) <= MOST_MEGABYTES
