"""How kernels are compiled: kept on disk, right about NaN, and the same when not compiled at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from rnnops.kernels.cpu.fastmath import FLAGS, kernel

MODULE = """
import numpy as np
from rnnops.kernels.cpu.fastmath import kernel

@kernel
def gate(result, x):
    for i in range(x.size):
        result[i] = np.tanh(x[i]) / (1.0 + np.exp(-x[i])) + np.cos(x[i])
"""
PROGRAM = """
import numpy as np, gate_module
x = np.linspace(-3, 3, 50)
result = np.empty(50)
gate_module.gate(result, x)
assert np.allclose(result, np.tanh(x) / (1 + np.exp(-x)) + np.cos(x), 1e-14)
print(sum(gate_module.gate.stats.cache_hits.values()) if hasattr(gate_module.gate, "stats") else "not compiled")
"""


def run_program(folder: Path, **environment: str) -> str:
    folders = {"PYTHONPATH": str(folder), "RNNOPS_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", PROGRAM]
    environ = {**os.environ, **folders, **environment}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def test_kernels_are_kept_on_disk(tmp_path: Path) -> None:
    (tmp_path / "gate_module.py").write_text(MODULE)
    assert [run_program(tmp_path) for _ in range(2)] == ["0", "1"]


def test_kernels_run_uncompiled(tmp_path: Path) -> None:
    (tmp_path / "gate_module.py").write_text(MODULE)
    assert run_program(tmp_path, NUMBA_DISABLE_JIT="1") == "not compiled"


def test_only_safe_flags() -> None:
    assert {"contract", "nsz", "afn"} == FLAGS


@kernel
def count_special(x):  # type: ignore[no-untyped-def]
    nans = infinities = 0
    for i in range(x.size):
        nans += x[i] != x[i]
        infinities += x[i] - x[i] != 0.0 and x[i] == x[i]
    return nans, infinities


def test_nan_and_infinity_are_seen() -> None:
    assert count_special(np.array([np.nan, np.inf, 1.0, -np.inf, np.nan] * 8)) == (16, 16)
    assert count_special.targetoptions["fastmath"] == FLAGS
