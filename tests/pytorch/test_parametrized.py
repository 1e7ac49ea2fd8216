"""Parametrized weights in a cell are computed once a call, by PyTorch, with gradients through them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import accumulate
from threading import Thread
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.usefixtures("_seeded")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.torch.watch import Computed  # noqa: E402

T, N, D, H = 6, 3, 5, 4


@pytest.fixture
def _seeded() -> None:
    torch.manual_seed(1)


class Gated(nn.Module):
    """A GRU with a product of its own for the candidate."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h, self.inner = nn.Linear(D, 2 * H), nn.Linear(H, 2 * H), nn.Linear(H, H, bias=False)

    def forward(self, x: Any, h: Any) -> Any:
        z, n = (self.x(x) + self.h(h)).chunk(2, -1)
        return h + torch.sigmoid(z) * (torch.tanh(n + self.inner(h)) - h)


class Skew(nn.Module):
    def forward(self, w: Any) -> Any:
        return w.triu(1) - w.triu(1).mT


class Exponential(nn.Module):
    def forward(self, w: Any) -> Any:
        return torch.matrix_exp(w)


class Dropped(nn.Module):
    def forward(self, w: Any) -> Any:
        return nn.functional.dropout(w, 0.5)


def own_class(cell: Any) -> None:
    parametrize.register_parametrization(cell.inner, "weight", Skew())
    parametrize.register_parametrization(cell.inner, "weight", Exponential())


CASES: dict[str, Callable[[Any], Any]] = {
    "weight_norm": lambda cell: parametrizations.weight_norm(cell.h),
    "spectral_norm": lambda cell: parametrizations.spectral_norm(cell.inner),
    "matrix_exp": lambda cell: parametrizations.orthogonal(cell.inner, orthogonal_map="matrix_exp"),
    "cayley": lambda cell: parametrizations.orthogonal(cell.inner, orthogonal_map="cayley"),
    "householder": lambda cell: parametrizations.orthogonal(cell.inner, orthogonal_map="householder"),
    "own_class": own_class,
}


def made(name: str, dtype: Any = torch.float64) -> Any:
    cell = Gated().to(dtype)
    CASES[name](cell)
    return cell


def loop(cell: Any, xs: Any, h: Any) -> Any:
    with parametrize.cached():  # computed once, as a recurrence does
        return torch.stack([*accumulate(xs, lambda h, x: cell(x, h), initial=h)][1:])


@pytest.mark.parametrize("name", CASES)
def test_trains_as_by_its_own_loop(name: str) -> None:
    mine = made(name, torch.float32)
    theirs, rnn = deepcopy(mine), rt.RNN(mine)
    ways = {mine: lambda xs: rnn(xs, xs.new_zeros(N, H))[0], theirs: lambda xs: loop(theirs, xs, xs.new_zeros(N, H))}
    for model, run in ways.items():
        torch.manual_seed(5)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(20):
            loss = (run(torch.randn(T, N, D)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for (key, one), other in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("name", [name for name in CASES if name != "householder"])  # holds for its own vectors only
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    cell, xs = made(name).eval(), torch.randn(3, 2, D).double()
    rnn, originals = rt.RNN(cell), [*cell.parameters()]

    def last(*values: Any) -> Any:
        with torch.no_grad():
            for original, value in zip(originals, values, strict=True):
                original.copy_(value)
        return rnn(xs, xs.new_zeros(2, H))[1].square().sum()

    before = [x.detach().clone() for x in originals]
    grads = torch.autograd.grad(last(*before), originals)
    for place, grad in enumerate(grads):
        direction = torch.randn_like(grad)
        moved = [[x + sign * 1e-6 * direction if i == place else x for i, x in enumerate(before)] for sign in (1, -1)]
        slope = (last(*moved[0]) - last(*moved[1])) / 2e-6
        torch.testing.assert_close((grad * direction).sum(), slope.detach(), rtol=1e-6, atol=1e-8)


def test_buffers_are_updated_once_a_call() -> None:
    cell = made("spectral_norm")
    other, rnn, xs = deepcopy(cell), rt.RNN(cell, recheck=2), torch.randn(T, N, D).double()
    for _ in range(3):
        ys, _ = rnn(xs, xs.new_zeros(N, H))
        torch.testing.assert_close(ys, loop(other, xs, xs.new_zeros(N, H)))
        for one, two in zip(cell.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(one, two)
    cell.eval()
    before = [buffer.clone() for buffer in cell.buffers()]
    rnn(xs, xs.new_zeros(N, H))
    assert all(map(torch.equal, before, cell.buffers()))


def test_a_step_that_is_a_function_may_have_another_cell_at_each_call() -> None:
    xs = torch.randn(T, N, D).double()
    for name in ("weight_norm", "matrix_exp", "weight_norm"):
        cell = made(name)
        last, _ = rt.scan(lambda h, x, cell=cell: (cell(x, h), None), xs.new_zeros(N, H), xs)
        torch.testing.assert_close(last, loop(cell, xs, xs.new_zeros(N, H))[-1])


def test_parametrizations_come_and_go() -> None:
    cell, xs = Gated().double(), torch.randn(T, N, D).double()
    rnn = rt.RNN(cell)
    for change in (
        lambda: 0,
        lambda: own_class(cell),
        lambda: parametrize.remove_parametrizations(cell.inner, "weight"),
    ):
        change()
        torch.testing.assert_close(rnn(xs, xs.new_zeros(N, H))[0], loop(cell, xs, xs.new_zeros(N, H)))


def test_a_cache_around_calls_holds_their_weights() -> None:
    cell, xs = made("matrix_exp"), torch.randn(T, N, D).double()
    rnn = rt.RNN(cell)
    with parametrize.cached():
        ys, _ = rnn(xs, xs.new_zeros(N, H))
        weight = cell.inner.weight
        assert weight is cell.inner.weight
        torch.testing.assert_close(rnn(xs, xs.new_zeros(N, H))[0], ys, rtol=0, atol=0)
        (ys.sum() + weight.sum()).backward()
    assert all(x.grad is not None for x in cell.parameters())


@pytest.mark.parametrize("is_open", [False, True])
def test_other_threads_open_and_close_caches_while_a_step_is_traced(is_open: bool) -> None:
    cell, block, weights = made("matrix_exp").inner, parametrize.cached(), []

    def elsewhere() -> None:
        if is_open:
            weights.extend([cell.weight, cell.weight])
            block.__exit__(None, None, None)
        else:
            block.__enter__()
            weights.extend([cell.weight, cell.weight])

    if is_open:
        block.__enter__()
    with Computed({}):
        thread = Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert cell.weight is not cell.weight
    assert weights[0] is weights[1]
    assert type(parametrize._cache_enabled) is int
    if not is_open:
        block.__exit__(None, None, None)
    assert cell.weight is not cell.weight


def test_random_weights_are_new_at_each_step() -> None:
    cell = nn.Linear(H, H, bias=False)
    parametrize.register_parametrization(cell, "weight", Dropped())
    _, ys = rt.scan(lambda h, x: (h, cell(x)), torch.zeros(1, 1), torch.ones(50, 1, H))
    assert len(ys.unique(dim=0)) > 20


def test_a_weight_that_follows_from_the_step_is_refused() -> None:
    class Shifted(nn.Module):
        def forward(self, w: Any) -> Any:
            return w + self.shift

    cell, shifted = nn.Linear(H, H), Shifted()
    shifted.shift = torch.zeros(())
    parametrize.register_parametrization(cell, "weight", shifted)

    def step(h: Any, x: Any) -> Any:
        shifted.shift = x.mean()
        return cell(h), None

    with pytest.raises(rt.StepError):
        rt.scan(step, torch.ones(N, H), torch.randn(T, N, H))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("old", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_hooks_of_old_are_refused(old: Any) -> None:
    cell = Gated()
    old(cell.inner)
    with pytest.raises(rt.StepError, match=f"parametrizations.{old.__name__}"):
        rt.RNN(cell)(torch.randn(T, N, D), torch.zeros(N, H))


@pytest.mark.parametrize("name", ["weight_norm", "matrix_exp", "spectral_norm"])
def test_in_a_graph(name: str) -> None:
    cell = made(name, torch.float32)
    other, xs = deepcopy(cell), torch.randn(T, N, D)
    rnn = rt.RNN(cell)
    graph = torch.compile(lambda xs: rnn(xs, xs.new_zeros(N, H))[0], fullgraph=True, backend="aot_eager")
    for _ in range(2):
        ys, wanted = graph(xs), loop(other, xs, xs.new_zeros(N, H))
        torch.testing.assert_close(ys, wanted)
    ys.square().sum().backward()
    wanted.square().sum().backward()
    for one, two in zip(cell.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-4, atol=1e-5)
    for one, two in zip(cell.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(one, two)
