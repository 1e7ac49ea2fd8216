"""Runs of `rnnops train` that take a fraction of a second, and what they leave behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from rnnops.cli.main import main
from rnnops.model.store import load

# 16 streams of 4 steps: an epoch of the text below has 45 windows.
TINY = ("--hidden", "6", "--batch", "16", "--seq-length", "4", "--evaluate-every", "10", "--sample", "0")
TINY = (*TINY, "--device", "reference")  # compiling takes longer than all the steps of these runs
COMMAND = (sys.executable, "-W", "error", "-m", "rnnops.cli.main", "train")


def write_text(path: Path, lines: int = 110, seed: int = 0) -> Path:
    """Short sums, one a line: text with something to learn."""
    generator = np.random.default_rng(seed)
    numbers = generator.integers(10, 90, (lines, 2)).tolist()
    path.write_text("".join(f"the sum of {a} and {b} is {a + b}\n" for a, b in numbers))
    return path


def train(*arguments: object) -> int:
    """Run the command in this process and return its exit code."""
    return main(["train", *map(str, arguments)])


def start(*arguments: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)


def outcome(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What must be equal where two runs took the same steps: curves, and the bits of every array."""
    arrays, state = load(path)
    curves = {name: state[name] for name in ("recent", "training", "held_out", "settings")}
    own = {f"state.{name}": value for name, value in state.items() if isinstance(value, np.ndarray)}
    return curves, {name: array.tobytes() for name, array in {**arrays, **own}.items()}


def steps_of(path: Path) -> int:
    """How far the run in a checkpoint has come."""
    return int(load(path)[0]["optimizer.step"])


def wait_for_step(path: Path, step: int, process: subprocess.Popen[str], seconds: float = 60.0) -> None:
    """Wait until a checkpoint is there that has come so far."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if path.exists() and steps_of(path) >= step:
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} did not come within {seconds} s")
