"""DistributedDataParallel around a recurrence: the numbers of one process, and training that survives a killed one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch_many_processes.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "9"]
SECONDS = 300


def start(folder: Path, *before: str, steps: int = 10) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *before, str(EXAMPLE), "--folder", str(folder), "--steps", str(steps)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finished(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, text
    return text


def checkpoint(folder: Path) -> Any:
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def expect_same(one: Path, other: Path) -> None:
    a, b = checkpoint(one), checkpoint(other)
    assert a["step"] == b["step"] == 10
    for name, tensor in a["model"].items():
        torch.testing.assert_close(tensor, b["model"][name], rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process on the whole batch."""
    folder = tmp_path_factory.mktemp("alone")
    finished(start(folder))
    return folder


def test_two_processes_equal_one(alone: Path, tmp_path: Path) -> None:
    finished(start(tmp_path, *TORCHRUN))
    expect_same(alone, tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
def test_training_goes_on_after_a_process_is_killed(rank: int, alone: Path, tmp_path: Path) -> None:
    process = start(tmp_path, *TORCHRUN)
    until = time.monotonic() + SECONDS
    while not (tmp_path / "checkpoint.pt").exists() and time.monotonic() < until:
        time.sleep(0.01)
    step = checkpoint(tmp_path)["step"]
    os.kill(int((tmp_path / f"process_{rank}").read_text()), signal.SIGKILL)
    text = finished(process)
    assert step < 10, "it was killed on the way"
    assert text.count("step 10: loss") == 1
    expect_same(alone, tmp_path)
