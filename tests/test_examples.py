"""The examples run, and what they say is true."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
TIME_LIMIT = 300  # seconds
MAY_BE_ROOT = {  # Open MPI asks, and counts cores; others do not look
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def output_of(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIME_LIMIT, env={**os.environ, **environment}, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(pattern: str, text: str) -> list[int]:
    """The numbers in the groups of a pattern that the text has."""
    found = re.search(pattern, text)
    assert found is not None, text
    return [int(group.replace(",", "")) for group in found.groups()]


def test_an_optimizer_inside_the_loop_needs_less_memory() -> None:
    said = output_of(sys.executable, str(EXAMPLES / "layer_by_layer.py"))
    total, layer = numbers(r"of all parameters ([\d,]+) bytes, of one layer ([\d,]+)", said)
    (after,), (inside,) = numbers(r"after it: +([\d,]+)", said), numbers(r"inside it: +([\d,]+)", said)
    assert total > 6 * layer
    assert after >= total
    assert inside <= 2.5 * layer  # a kernel adds up its sums beside the gradients that it makes of them


def test_a_forecaster_learns_from_a_stream() -> None:
    """On a sine in place of carbon dioxide, which needs a package: traces tell from the third step on."""
    program = runpy.run_path(str(EXAMPLES / "online_learning.py"))
    series = np.sin(np.arange(62) / 4).astype(np.float32)[:, None, None]
    known = np.ones_like(series[2:])
    data = {"x": np.concatenate([series[1:-1], known], -1), "target": series[2:], "known": known}
    losses, without = program["online"](data), program["cut_off"](data, 1)
    np.testing.assert_allclose(losses[:2], without[:2], rtol=1e-5)
    assert abs(losses[2] - without[2]) > 1e-4
    assert losses[30:].mean() < losses[:30].mean()


def mpiexec() -> str:
    """The launcher, of this environment if it has one. Skips the test where there is none."""
    if find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed (extra `mpi`)")
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        pytest.skip("there is no mpiexec (extra `mpi`)")
    return found


def trained_on(processes: int, folder: Path) -> tuple[dict[str, np.ndarray], str]:
    """Parameters after training on so many processes, and what was said."""
    path = folder / f"{processes}.npz"
    script = str(EXAMPLES / "overlap_all_reduce.py")
    said = output_of(mpiexec(), "-n", str(processes), sys.executable, script, str(path), **MAY_BE_ROOT)
    with np.load(path) as file:
        return dict(file), said


def test_two_processes_are_one_on_the_whole_batch(tmp_path: Path) -> None:
    one, _ = trained_on(1, tmp_path)
    two, said = trained_on(2, tmp_path)
    assert "on 2 processes" in said
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, rtol=0, atol=1e-12, err_msg=name)
        assert name.endswith("_state") or not (array == 0).all(), name
