"""Tests of the CUDA device ask for a device where the simulator is off, and not for the simulator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = ("api/test_cuda_run.py", "targets/cuda/test_cuda_device.py", "targets/cuda/test_cuda_ops.py")


def test_tests_of_scans_run_on_a_device() -> None:
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist"]
    chosen = ["-k", "agrees_with_caffe2 or results_are_where or as_the_reference"]
    files = [str(ROOT / "tests" / "compiler" / name) for name in FILES]
    done = subprocess.run(
        [*command, *chosen, *files], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    reasons = {line.split(": ", 1)[1] for line in done.stdout.splitlines() if line.startswith("SKIPPED")}
    assert done.returncode == 0, done.stdout
    assert len(reasons) == 1, done.stdout
    assert {"numba-cuda", "driver", "device"} & set(reasons.pop().replace(",", "").split())
