"""Steps that draw random numbers: their distribution, what they depend on, and equality of forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
kstest = pytest.importorskip("scipy.stats").kstest  # here, as it takes a second to load
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

from rejection import rejects  # noqa: E402

import rnnops.torch as rt  # noqa: E402

F = torch.nn.functional
T, N, H = 50, 40, 12


def noise(function: Callable[[Any], Any], dtype: Any = torch.float32, seed: int = 0) -> Any:
    """What a step draws at each of its steps, for zeros as its state."""
    torch.manual_seed(seed)
    zeros = torch.zeros(T, N, H, dtype=dtype)
    return rt.scan(lambda carry, x: (carry, function(carry + x)), zeros[0], zeros)[1].numpy().ravel()


CONTINUOUS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "rand_like": (torch.rand_like, "uniform"),
    "rand": (lambda x: torch.rand(x.shape, dtype=x.dtype), "uniform"),
    "randn_like": (torch.randn_like, "norm"),
    "randn": (lambda x: torch.randn(x.shape[0], H, dtype=x.dtype), "norm"),
    "normal": (lambda x: torch.normal(x, 1.0), "norm"),
    "uniform_": (lambda x: (torch.empty_like(x).uniform_(-1, 1) + 1) / 2, "uniform"),
    "normal_": (lambda x: (torch.empty_like(x).normal_(2, 3) - 2) / 3, "norm"),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2.0) * 2, "expon"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_are_distributed_as_they_should_be(name: str, dtype: Any) -> None:
    """By the test of Kolmogorov and Smirnov, on 24 000 numbers of 50 steps."""
    function, distribution = CONTINUOUS[name]
    assert kstest(noise(function, dtype), distribution).pvalue > 1e-3


DISCRETE: dict[str, tuple[Callable[[Any], Any], dict[float, float]]] = {
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), {0.0: 0.7, 1.0: 0.3}),
    "bernoulli of p": (lambda x: torch.bernoulli(x, 0.3), {0.0: 0.7, 1.0: 0.3}),
    "bernoulli_": (lambda x: x.new_empty(x.shape).bernoulli_(0.8), {0.0: 0.2, 1.0: 0.8}),
    "dropout": (lambda x: F.dropout(x + 1, 0.2), {0.0: 0.2, 1.25: 0.8}),
    "a module": (torch.nn.Sequential(torch.nn.Hardtanh(1.0, 2.0), torch.nn.Dropout(0.5)), {0.0: 0.5, 2.0: 0.5}),
    "randint": (lambda x: torch.randint(1, 4, x.shape).to(x.dtype), {1.0: 1 / 3, 2.0: 1 / 3, 3.0: 1 / 3}),
    "hard choice": (lambda x: F.gumbel_softmax(x[:, :4], hard=True), {0.0: 0.75, 1.0: 0.25}),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_choices_have_their_shares(name: str) -> None:
    function, shares = DISCRETE[name]
    numbers = np.round(noise(function), 5)
    for value, share in shares.items():
        assert abs((numbers == np.float32(value)).mean() - share) < 0.02
    assert set(np.unique(numbers).tolist()) == set(np.float32(list(shares)).tolist())


def test_numbers_follow_the_generator() -> None:
    """The same seed gives the same numbers, a second call others; steps and ops of a step do not repeat each other."""
    step = lambda x: torch.rand_like(x) - torch.rand_like(x)  # noqa: E731
    one, again, other = noise(step), noise(step), noise(step, seed=1)
    assert (one == again).all()
    assert (one != other).mean() > 0.99
    assert (one != 0).all(), "the two draws of a step are not one"
    assert len(np.unique(one)) > 0.99 * one.size, "steps draw anew"
    torch.manual_seed(0)
    rnn = rt.RNN(torch.nn.RNNCell(H, H), lambda cell, h, x: (F.dropout(cell(x, h), 0.5),) * 2)
    xs = torch.zeros(T, N, H)
    assert not torch.equal(rnn(xs)[0], rnn(xs)[0])
    rnn.eval()


@pytest.mark.parametrize("options", [{}, {"checkpoints": "all"}, {"memory_budget": 0.5}])
def test_backward_has_the_masks_of_forward(options: dict[str, Any]) -> None:
    """The result is linear in the inputs given its masks, so that it equals the gradient times the inputs."""
    torch.manual_seed(3)
    xs = torch.randn(T, N, H, dtype=torch.float64, requires_grad=True)

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        carry = F.dropout(0.9 * carry + x * torch.rand_like(x), 0.3)
        return carry, carry

    ys = rt.scan(step, xs.new_zeros(N, H), xs, **options)[1]
    weights = torch.randn_like(ys)
    (grad,) = torch.autograd.grad((ys * weights).sum(), xs)
    torch.testing.assert_close((grad * xs).sum(), (ys * weights).sum(), rtol=1e-10, atol=1e-10)


def test_evaluation_draws_nothing() -> None:
    rnn = rt.RNN(torch.nn.RNNCell(H, H), lambda cell, h, x: (cell(F.dropout(x, 0.5, cell.training), h),) * 2).eval()
    xs = torch.randn(5, 2, H)
    assert torch.equal(rnn(xs)[0], rnn(xs)[0])


GENERATOR = torch.Generator()
OWN: dict[str, Callable[[Any], Any]] = {
    "rand": lambda h: torch.rand(h.shape, generator=GENERATOR),
    "randn": lambda h: torch.randn(h.shape, generator=GENERATOR),
    "normal": lambda h: torch.normal(h, 1.0, generator=GENERATOR),
    "bernoulli": lambda h: torch.bernoulli(h.sigmoid(), generator=GENERATOR),
    "multinomial": lambda h: torch.multinomial(h.softmax(-1), 1, generator=GENERATOR) + h,
    "normal_": lambda h: torch.empty_like(h).normal_(generator=GENERATOR),
    "uniform_": lambda h: torch.empty_like(h).uniform_(generator=GENERATOR),
    "randperm": lambda h: h + torch.randperm(H, generator=GENERATOR),
}


def forked(h: Any) -> Any:
    with torch.random.fork_rng():
        return h + torch.randn_like(h)


SEEDING: dict[str, Callable[[Any], Any]] = {
    "manual_seed": lambda h: (torch.manual_seed(0), h + torch.randn_like(h))[1],
    "seed": lambda h: (torch.seed(), h + torch.randn_like(h))[1],
    "set_rng_state": lambda h: (torch.set_rng_state(torch.get_rng_state()), h + torch.randn_like(h))[1],
    "fork_rng": forked,
}


class Noisy(torch.nn.Module):  # type: ignore[misc]
    hidden_size = H

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, h: Any) -> Any:
        return x + self.function(h)


@pytest.mark.parametrize("name", [*OWN, *SEEDING, "of a generator"])
def test_a_step_that_seeds_or_has_a_generator_is_refused(name: str) -> None:
    """Its numbers would be others at each step, and its generator would not advance. The user's seeds stay."""
    known = {**OWN, **SEEDING, "of a generator": lambda h: (GENERATOR.manual_seed(3), h + torch.randn_like(h))[1]}
    torch.manual_seed(7)
    before, own, xs = torch.get_rng_state(), GENERATOR.get_state(), torch.zeros(T, N, H)
    for init in (None, torch.zeros(N, H)):
        told = "manual_seed" if name == "of a generator" else name
        problem = "a generator of its own" if name in OWN else "seeds random numbers"
        rejects(rt.StepError, lambda: rt.RNN(Noisy(known[name]))(xs, init), f"op '{told}'", problem, "before the call")  # noqa: B023
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(GENERATOR.get_state(), own)
