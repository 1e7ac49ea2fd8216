"""Everything that a step can read is changed between two calls: the second one gives the loop's result, or an error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

from read_places import NUMBERS, TENSORS, Mode, Place  # noqa: E402
from torch import nn  # noqa: E402

import rnnops.torch as rt  # noqa: E402

T, N, H = 3, 2, 4
CALLS = 4  # the last ones are lists of jobs
# Places that CI changes as numbers, and the others as tensors: both are found in the same way, but for what is the same
# number at the next call (a default).
HALF = {*[*TENSORS][::2]} - {"a_default_dict"}


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment and an enum's attribute are put back."""
    monkeypatch.setenv("READ_PLACES", "0.5")
    torch.manual_seed(0)
    Mode.A.scale = 0.5
    return


class Reader(nn.Module):
    """A cell that reads from a place."""

    hidden_size = H

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.lin, self.place = nn.Linear(H, H), place

    def forward(self, x: Any, h: Any) -> Any:
        return h + self.place.read() * torch.tanh(self.lin(h) + x)


def runs_of(place: Place) -> dict[str, Any]:
    """`rt.RNN` around a module, and `rt.scan` of one step, and of a step that is made anew for each call."""
    cell, read = Reader(place), place.read

    def step(h: Any, x: Any) -> Any:
        h = h + read() * torch.tanh(h + x)
        return h, h

    def scan_anew(xs: Any) -> Any:
        known = read

        def step(h: Any, x: Any) -> Any:
            h = h + known() * torch.tanh(h + x)
            return h, h

        return rt.scan(step, torch.zeros(N, H), xs)[0], step

    rnn = rt.RNN(cell)
    return {
        "RNN": lambda xs: (rnn(xs)[1], lambda h, x: (cell(x, h),) * 2),
        "scan": lambda xs: (rt.scan(step, torch.zeros(N, H), xs)[0], step),
        "scan anew": scan_anew,
    }


def expect_loop(run: Any, xs: Any, leaf: Any = None) -> None:
    mine, step = run(xs)
    h = torch.zeros(N, H)
    for x in xs:
        h, _ = step(h, x)
    torch.testing.assert_close(mine, h, rtol=1e-4, atol=1e-4)
    if leaf is not None:
        one, other = (torch.autograd.grad(found.square().sum(), leaf)[0] for found in (mine, h))
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def places(names: Iterable[str], slow: Collection[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in names]


@pytest.mark.parametrize("way", ["RNN", "scan", "scan anew"])
@pytest.mark.parametrize("name", places(NUMBERS, slow={*TENSORS} - {*HALF}))
def test_numbers_that_change(name: str, way: str) -> None:
    place, xs = NUMBERS[name](0.5), torch.randn(T, N, H)
    run = runs_of(place)[way]
    for _ in range(CALLS):
        expect_loop(run, xs)
    place.put(2.0)
    expect_loop(run, xs)


@pytest.mark.parametrize("way", ["RNN", "scan", "scan anew"])
@pytest.mark.parametrize("name", places(TENSORS, slow=HALF))
def test_tensors_that_are_replaced(name: str, way: str) -> None:
    """The new one is used, and gets the gradient."""
    place, xs = TENSORS[name](torch.rand(H)), torch.randn(T, N, H)
    run = runs_of(place)[way]
    for _ in range(CALLS):
        expect_loop(run, xs)
    for shape in ((H,), (N, H)):
        weight = torch.rand(shape, requires_grad=True)
        place.put(weight)
        expect_loop(run, xs, weight)
        with torch.no_grad():
            weight.mul_(3)
        expect_loop(run, xs, weight)
