"""Trainings as people write them, some with public packages: 20 steps are those of their own loops."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

import rnnops.torch as rt  # noqa: E402
from bench.problems import Size  # noqa: E402
from bench.recipes import RECIPES, Log, scans  # noqa: E402

STEPS, SMALL = 20, Size(12, 4, 8)


@pytest.mark.parametrize("name", RECIPES)
def test_trains_as_by_its_own_loop(name: str) -> None:
    recipe = RECIPES[name]
    if recipe.missing:
        pytest.skip(f"{', '.join(recipe.missing)} is not installed")
    losses, states = [], []
    for scan in scans().values():
        log = Log()
        with warnings.catch_warnings():
            warnings.simplefilter("error", rt.UnseenWarning)  # which says that PyTorch's own loop runs
            module, train = recipe.make(scan, SMALL)
            train(STEPS, log)
        losses.append(torch.tensor(log.losses))
        states.append([p for p in module.parameters() if p.requires_grad])
    torch.testing.assert_close(*losses, rtol=recipe.near, atol=recipe.near)
    torch.testing.assert_close(*states, rtol=recipe.near, atol=recipe.near)
    assert len(losses[0]) == STEPS
    assert losses[0][-1] < losses[0][0]
