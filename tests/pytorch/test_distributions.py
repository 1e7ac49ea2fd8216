"""Distributions of PyTorch in a step, with their default checks: a loop over them has the same numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.usefixtures("_seeded")

import torch.distributions as D  # noqa: E402, N812
import torch.nn.functional as F  # noqa: E402, N812
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.torch.sides import SEEDS  # noqa: E402
from rnnops.torch.step_modes import OwnDraws, RandomFunctions  # noqa: E402

T, N, H = 5, 3, 4


@pytest.fixture
def _seeded() -> None:
    torch.manual_seed(3)
    D.Distribution.set_default_validate_args(True)  # which torch.compile turns off


def loop(step: Callable[..., Any], carry: Any, xs: Any, seed: int) -> tuple[Any, Any]:
    """PyTorch's own loop, with the random numbers that a recurrence of this seed draws."""
    torch.manual_seed(seed)
    draws, rows = OwnDraws(int(torch.randint(SEEDS, ()).item())), []
    for t, x in enumerate(xs):
        with RandomFunctions(draws.at_step(t)):
            carry, y = step(carry, x)
        rows.append(y)
    return carry, tree_map(lambda *ys: torch.stack(ys), *rows)


def positive(x: Any) -> Any:
    return F.softplus(x) + 0.1


def blocks(x: Any) -> Any:
    return D.Independent(D.OneHotCategoricalStraightThrough(logits=x.unflatten(-1, (2, 2))), 1)


def reached(d: Any, other: Any) -> list[Any]:
    """What does not depend on a draw."""
    return [d.entropy(), d.mean, d.mode, D.kl_divergence(d, other)]


def logs(d: Any, other: Any) -> list[Any]:
    return [d.entropy(), d.mode, D.kl_divergence(d, other)]


CASES: dict[str, Callable[[Any, Any], list[Any]]] = {
    "normal": lambda m, x: (lambda d: [d.rsample(), d.log_prob(x), *reached(d, D.Normal(x, 2.0))])(
        D.Normal(m, positive(m))
    ),
    "independent": lambda m, x: (
        lambda d: [d.rsample(), d.log_prob(x), *reached(d, D.Independent(D.Normal(x, 1.0), 1))]
    )(D.Independent(D.Normal(m, positive(m)), 1)),
    "one_hot": lambda m, x: (lambda d: [s := d.sample(), d.log_prob(s), *reached(d, D.OneHotCategorical(logits=x))])(
        D.OneHotCategorical(logits=m)
    ),
    "straight_through": lambda m, x: (lambda d: [s := d.rsample(), d.log_prob(s.detach()), *reached(d, blocks(x))])(
        blocks(m)
    ),
    "categorical": lambda m, x: (lambda d: [s := d.sample(), d.log_prob(s), *logs(d, D.Categorical(logits=x))])(
        D.Categorical(probs=m.softmax(-1))
    ),
    "bernoulli": lambda m, x: (
        lambda d: [s := d.sample(), d.log_prob(s), d.entropy(), d.mean, D.kl_divergence(d, D.Bernoulli(logits=x))]
    )(D.Bernoulli(logits=m)),
    "multivariate_normal": lambda m, x: (lambda d: [d.rsample(), d.log_prob(x), d.mean, d.mode])(
        D.MultivariateNormal(m, 2 * torch.eye(H, dtype=m.dtype) + m[:, :, None] * m[:, None, :], validate_args=True)
    ),
    "lower_triangle": lambda m, x: (lambda d: [d.rsample(), d.log_prob(x), d.entropy()])(
        D.MultivariateNormal(m, scale_tril=torch.eye(H, dtype=m.dtype))
    ),
    "squashed": lambda m, x: (lambda d: [d.rsample(), d.log_prob(x.tanh())])(
        D.TransformedDistribution(D.Normal(m, positive(m)), [D.TanhTransform()])
    ),
    "laplace": lambda m, x: (lambda d: [d.rsample(), d.log_prob(x), d.entropy()])(D.Laplace(m, positive(m))),
    "exponential": lambda m, x: (lambda d: [d.rsample(), d.log_prob(positive(x))])(D.Exponential(positive(m))),
    "uniform": lambda m, x: (lambda d: [d.rsample(), d.log_prob(m)])(D.Uniform(m - 1, m + 2)),
    "beta": lambda m, x: (
        lambda d: [d.log_prob(x.sigmoid()), d.entropy(), D.kl_divergence(d, D.Beta(positive(x), 2.0))]
    )(D.Beta(1 + positive(m), positive(x) + 1)),
    "gamma": lambda m, x: (lambda d: [d.log_prob(positive(x)), *reached(d, D.Gamma(positive(x), 2.0))])(
        D.Gamma(positive(m), positive(x))
    ),
    "dirichlet": lambda m, x: (
        lambda d: [
            d.log_prob(x.softmax(-1)).expand(H, N).T,
            d.entropy(),
            d.mean,
            D.kl_divergence(d, D.Dirichlet(positive(x))),
        ]
    )(D.Dirichlet(positive(m))),
    "student": lambda m, x: (lambda d: [d.log_prob(x), d.entropy(), d.mean])(
        D.StudentT(2 + positive(x), m, positive(m))
    ),
    "poisson": lambda m, x: (lambda d: [d.log_prob(x.abs().ceil()), D.kl_divergence(d, D.Poisson(positive(x)))])(
        D.Poisson(positive(m))
    ),
    "negative_binomial": lambda m, x: (lambda d: [d.log_prob(x.abs().ceil()), d.mean])(
        D.NegativeBinomial(positive(x), logits=m)
    ),
    "inverse_gamma": lambda m, x: (lambda d: [d.log_prob(positive(x)), d.entropy()])(
        D.InverseGamma(positive(m), positive(x))
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_its_own_loop(name: str) -> None:
    weight, xs = (0.5 * torch.randn(H, H, dtype=torch.float64)).requires_grad_(), torch.randn(T, N, H)
    xs = xs.double()

    def step(h: Any, x: Any) -> Any:
        m = torch.tanh(h @ weight + x)
        results = CASES[name](m, x)
        return m + results[0].reshape(N, -1).double() * 0.1, results

    with torch.random.fork_rng():
        torch.manual_seed(7)
        mine = rt.scan(step, torch.zeros(N, H, dtype=torch.float64), xs)
    theirs = loop(step, torch.zeros(N, H, dtype=torch.float64), xs, 7)
    for one, other in zip(tree_leaves(mine), tree_leaves(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    grads = [
        torch.autograd.grad(sum(y.square().sum() for y in tree_leaves(both) if y.requires_grad), weight)[0]
        for both in (mine, theirs)
    ]
    torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-8)


class Rssm(torch.nn.Module):
    """Recurrent state-space model, after Hafner and others, "Mastering Atari" (ICLR 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.prior, self.posterior = (
            torch.nn.GRUCell(6 + 2, 8),
            torch.nn.Linear(8, 6),
            torch.nn.Linear(8 + 5, 6),
        )

    @staticmethod
    def of(logits: Any) -> Any:
        return D.Independent(D.OneHotCategoricalStraightThrough(logits=logits.unflatten(-1, (2, 3))), 1)

    def forward(self, carry: Any, x: Any) -> Any:
        h, z = carry
        action, seen = x
        h = self.cell(torch.cat([z, action], -1), h)
        prior, posterior = self.of(self.prior(h)), self.of(self.posterior(torch.cat([h, seen], -1)))
        z = posterior.rsample().flatten(1)
        return (h, z), {"kl": D.kl_divergence(posterior, prior), "entropy": prior.entropy(), "h": h, "z": z}


def test_a_state_space_model_trains_as_by_its_own_loop() -> None:
    mine = Rssm()
    theirs, xs = deepcopy(mine), (torch.randn(T, N, 2), torch.randn(T, N, 5))
    rnn = rt.RNN(mine, lambda cell, carry, x: cell(carry, x))
    ways = {
        mine: lambda: rnn(xs, (torch.zeros(N, 8), torch.zeros(N, 6)))[0],
        theirs: lambda: loop(theirs, (torch.zeros(N, 8), torch.zeros(N, 6)), zip(*xs, strict=True), seed)[1],
    }
    losses: dict[Any, list[Any]] = {mine: [], theirs: []}
    for model, run in ways.items():
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for seed in range(20):
            torch.manual_seed(seed)
            ys = run()
            loss = ys["kl"].mean() - 0.1 * ys["entropy"].mean() + (ys["h"].sum(-1) - ys["z"][..., 0]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[model].append(loss.detach())
    torch.testing.assert_close(torch.stack(losses[mine]), torch.stack(losses[theirs]), rtol=1e-4, atol=1e-5)
    assert losses[mine][-1] < losses[mine][0]
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_values_are_not_checked_in_a_compiled_step() -> None:
    def step(h: Any, x: Any) -> Any:
        return h, D.Normal(x, h, validate_args=True).log_prob(x)

    _, ys = rt.scan(step, -torch.ones(N, H), torch.randn(T, N, H))
    assert ys.isnan().all()
    with pytest.raises(ValueError, match="scale"):
        step(-torch.ones(N, H), torch.randn(N, H))


def test_shapes_are_checked() -> None:
    def step(h: Any, x: Any) -> Any:
        return h, D.MultivariateNormal(x, torch.eye(H)).log_prob(h[:, :1])

    with pytest.raises(rt.StepError, match="must match event_shape"):
        rt.scan(step, torch.zeros(N, H), torch.randn(T, N, H))


def test_an_object_made_before_checks_no_values_in_a_step() -> None:
    prior = D.Beta(torch.ones(H), torch.ones(H), validate_args=True)
    normal = D.Normal(torch.zeros(H), torch.ones(H), validate_args=True)
    _, ys = rt.scan(lambda h, x: (h, normal.log_prob(x)), torch.zeros(N, H), xs := torch.randn(T, N, H))
    torch.testing.assert_close(ys, normal.log_prob(xs))
    _, ys = rt.scan(lambda h, x: (h, prior.log_prob(x)), torch.zeros(N, H), xs.sigmoid())
    torch.testing.assert_close(ys, prior.log_prob(xs.sigmoid()))
    with pytest.raises(ValueError, match="support"):
        prior.log_prob(2 * torch.ones(H))


@pytest.mark.parametrize(("count", "replacement"), [(1, False), (3, False), (4000, True)])
def test_multinomial(count: int, replacement: bool) -> None:
    p = torch.tensor([0.1, 0.0, 0.6, 0.3])
    rows = 1 if replacement else 4000

    def step(h: Any, x: Any) -> Any:
        return h, torch.multinomial(p.expand(rows, 4), count, replacement)

    _, drawn = rt.scan(step, torch.zeros(rows, 1), torch.zeros(1, rows, 1))
    first = drawn.flatten() if replacement else drawn[0, :, 0]
    frequency = torch.bincount(first, minlength=4) / 4000
    torch.testing.assert_close(frequency, p, rtol=0, atol=0.04)
    if count == 3:
        assert drawn[0].sort().values.unique(dim=0).tolist() == [[0, 2, 3]]


def test_an_assertion_on_the_device_is_left_out_with_a_warning() -> None:
    def step(h: Any, x: Any) -> Any:
        torch._assert_async((x < 0).all())
        return h, x + 1

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        rt.scan(step, torch.zeros(N, H), torch.ones(T, N, H))
    assert [w for w in told if issubclass(w.category, rt.UnseenWarning) and "_assert_async" in str(w.message)]
