"""The page of core aten ops: each op that it allows equals PyTorch's in a step, the others are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"),
    pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the page is of PyTorch 2.13"),
]

import torch.utils._pytree as pytree  # noqa: E402
from core_ops import GROUPS, LIMITS, PAGE, REFUSED, core_ops, page  # noqa: E402
from each import check_each  # noqa: E402
from test_torch import DOUBLE, numbers  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.torch.aten import RULES  # noqa: E402
from rnnops.torch.errors import StepError  # noqa: E402

H0 = torch.zeros(3, 1, dtype=DOUBLE)


@pytest.mark.parametrize("group", GROUPS)
def test_an_op_that_the_page_allows_equals_pytorch(group: str) -> None:
    """All ops of a group are one step."""
    calls, xs = GROUPS[group], numbers(2, 3, 4)
    mine = rt.scan(lambda h, x: (h, {name: call(x) for name, call in calls.items()}), H0, xs)[1]

    def check(name: str) -> None:
        for ys, wanted in zip(pytree.tree_leaves(mine[name]), pytree.tree_leaves(calls[name](xs[1])), strict=True):
            torch.testing.assert_close(ys[1], wanted)
            if wanted.requires_grad:
                weights = torch.rand_like(wanted)
                pair = [torch.autograd.grad(y, xs, weights, retain_graph=True)[0] for y in (ys[1], wanted)]
                torch.testing.assert_close(*pair)

    check_each(list(calls), check)


@pytest.mark.parametrize("name", [name for name, (_, call) in REFUSED.items() if call])
def test_an_op_that_the_page_does_not_allow_is_refused(name: str) -> None:
    call: Any = REFUSED[name][1]
    call(numbers(3, 4).detach())
    with pytest.raises(StepError, match=r"^(?!the step fails)"):
        rt.scan(lambda h, x: (h, call(x)), H0, numbers(2, 3, 4).detach())


def test_the_page_has_every_core_op_once() -> None:
    allowed = [name for group in GROUPS.values() for name in group]
    assert sorted([*allowed, *REFUSED]) == core_ops()
    assert set(LIMITS) <= set(allowed)
    assert not set(REFUSED) & set(RULES)
    assert PAGE.read_text() == page(), "python tests/pytorch/core_ops.py writes the page anew"
