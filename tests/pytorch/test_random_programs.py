"""Random steps equal their loop, outputs and all gradients, or are refused by name; none is silently different."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

from random_programs import H, RandomStep  # noqa: E402
from test_torch import expect_equal, loop, numbers  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.errors import RnnopsError  # noqa: E402


def outcome(seed: int) -> str:
    """What became of a step: `equal`, or why it was refused."""
    step, T, N = RandomStep(seed), 3 + seed % 3, 1 + seed % 3
    xs, a, b = numbers(T, N, H, seed=seed), numbers(N, H, seed=seed + 1), numbers(N, H, seed=seed + 2)
    carry = (a, b, torch.zeros(N, dtype=torch.int64))
    try:
        mine = rt.scan(step, carry, xs)
    except RnnopsError as error:
        return str(error)
    (m_a, m_b, m_step), m_y = mine
    (a_, b_, step_), y = loop(step, carry, xs)
    assert torch.equal(m_step, step_)
    assert torch.equal(m_y["count"], y["count"])
    expect_equal((m_a, m_b, m_y["y"]), (a_, b_, y["y"]), [xs, a, b, *step.weights])
    return "equal"


def check(seeds: Any) -> None:
    found = Counter(outcome(seed) for seed in seeds)
    refused = sum(found.values()) - found["equal"]
    print(found)
    assert refused <= 0.1 * sum(found.values()), found


def test_5_random_steps() -> None:
    check(range(5))


@pytest.mark.slow
def test_200_random_steps() -> None:
    check(range(200))
