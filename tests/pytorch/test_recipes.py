"""Trainings as people write them, some with public packages: 20 steps are those of their own loops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

from bench.problems import Size  # noqa: E402
from bench.recipes import RECIPES, Log, scans  # noqa: E402
from rnnops.torch.prepare import CompiledStep  # noqa: E402
from rnnops.torch.rnn import _known  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
STEPS, SMALL = 20, Size(12, 4, 8)


@pytest.mark.parametrize("name", RECIPES)
def test_trains_as_by_its_own_loop(name: str) -> None:
    recipe = RECIPES[name]
    if recipe.missing:
        pytest.skip(f"{', '.join(recipe.missing)} is not installed")
    _known.clear()
    losses, states = [], []
    for scan in scans().values():
        log = Log()
        module, train = recipe.make(scan, SMALL)
        train(STEPS, log)
        losses.append(torch.tensor(log.losses))
        states.append([p for p in module.parameters() if p.requires_grad])
    torch.testing.assert_close(*losses, rtol=recipe.near, atol=recipe.near)
    torch.testing.assert_close(*states, rtol=recipe.near, atol=recipe.near)
    steps = [step for prepared in _known.values() for step in prepared.compiled.values()]
    assert steps, "something was compiled"
    assert all(isinstance(step, CompiledStep) for step in steps), "PyTorch's own loop does not run"
    assert len(losses[0]) == STEPS
    assert losses[0][-1] < losses[0][0]


def test_the_command_of_the_docs_runs_by_itself() -> None:
    """From the root of a checkout, without a path of the caller's."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "bench.recipes", "--only", "LRU*", "--size", "4,2,3"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("LRU block")
    assert "`OPENBLAS_NUM_THREADS=1 python -m bench.recipes`" in (ROOT / "docs/speed.md").read_text()
