"""Several processes: DistributedDataParallel and fully_shard have one process's numbers; a killed one is survived."""

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

SHARDED = Path(__file__).with_name("sharded_training.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch_many_processes.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
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
    finished(start(tmp_path, *TORCHRUN, "--max-restarts", "9"))
    expect_same(alone, tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
def test_training_goes_on_after_a_process_is_killed(rank: int, alone: Path, tmp_path: Path) -> None:
    process = start(tmp_path, *TORCHRUN, "--max-restarts", "9")
    until = time.monotonic() + SECONDS
    while not (tmp_path / "checkpoint.pt").exists() and time.monotonic() < until:
        time.sleep(0.01)
    step = checkpoint(tmp_path)["step"]
    os.kill(int((tmp_path / f"process_{rank}").read_text()), signal.SIGKILL)
    text = finished(process)
    assert step < 10, "it was killed on the way"
    assert text.count("step 10: loss") == 1
    expect_same(alone, tmp_path)


def run_sharded(what: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *TORCHRUN, str(SHARDED), what]
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize("what", ["root", "rnn"])
def test_shards_equal_one_process(what: str) -> None:
    """The second one frees the recurrence's parameters between the passes, so that its forward pass runs again."""
    done = run_sharded(what)
    apart = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("apart:")]
    assert len(apart) == 2, done.stderr
    assert max(apart) < 1e-6


def test_a_shard_of_the_cell_is_refused() -> None:
    assert "Put fully_shard around the RNN" in run_sharded("cell").stderr
