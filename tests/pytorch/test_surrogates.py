"""Surrogate gradients of spiking packages, each beside its own, and elements that a mask picks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from inspect import isclass, isfunction, signature
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")

from each import check_each  # noqa: E402
from rejection import rejects  # noqa: E402
from test_torch import DOUBLE, loop, numbers  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.torch.errors import StepError  # noqa: E402

N, H, T = 3, 5, 6
RANDOM = ("PoissonPass", "SSO", "LSO", "circ_dist_fn", "logistic_fn")  # draw numbers of their own
NEEDS_MORE = ("MultiLevelSpikeCount", "custom_surrogate")  # what they are made of


def of_spikingjelly() -> Iterator[tuple[str, Any]]:
    module = pytest.importorskip("spikingjelly.activation_based.surrogate", reason="spikingjelly is not installed")
    for name, made in vars(module).items():
        if isclass(made) and issubclass(made, module.SurrogateFunctionBase) and made.__module__ == module.__name__:
            yield name, made


def of_snntorch() -> Iterator[tuple[str, Any]]:
    module = pytest.importorskip("snntorch.surrogate", reason="snntorch is not installed")
    for name, made in vars(module).items():
        if isfunction(made) and made.__module__ == module.__name__:
            yield name, partial(made, 5) if name == "sigmoid" else made  # its own slope of 25 overflows


def of_norse() -> Iterator[tuple[str, Any]]:
    module = pytest.importorskip("norse.torch.functional.threshold", reason="norse is not installed")
    ten = torch.as_tensor(10.0)
    for name, function in vars(module).items():
        if name.endswith("_fn") and isfunction(function):
            more = [ten] * (len(signature(function).parameters) - 1)
            yield name, lambda function=function, more=more: lambda x: function(x, *more)


def assert_equal(step: Callable[[Any, Any], Any], dtype: Any = torch.float32) -> None:
    h, xs, weights = (numbers(*shape).to(dtype) for shape in ((N, H), (T, N, H), (T, N, H)))
    leaves = [h.requires_grad_(), (1.5 * xs).detach().requires_grad_()]
    both = []
    for run in (rt.scan, loop):
        last, ys = run(step, *leaves)
        both.append((ys, last, *torch.autograd.grad((ys * weights).sum() + last.sum(), leaves)))
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("package", [of_spikingjelly, of_snntorch, of_norse])
def test_surrogates_have_their_own_gradients(package: Callable[[], Iterator[tuple[str, Any]]]) -> None:
    def check(named: tuple[str, Any]) -> None:
        spike = named[1]()

        def step(h: Any, x: Any) -> Any:
            membrane = 0.9 * h + x
            spikes = spike(membrane - 1.0)
            return membrane * (1 - spikes.detach()), spikes * x

        assert_equal(step)

    known = [named for named in package() if named[0] not in (*RANDOM, *NEEDS_MORE) and "Base" not in named[0]]
    assert len(known) >= 5
    check_each(known, check, lambda named: named[0])


def logarithm(h: Any, x: Any) -> Any:
    y = h + x
    y[y > 0] = torch.log(y[y > 0])
    return y.tanh(), y


def twice(h: Any, x: Any) -> Any:
    y = torch.sin(h + x)
    y[y >= 0] = -2 * y[y >= 0] + y[y >= 0] ** 2
    y[x < 0] = (y[x < 0] * 3).sigmoid()
    return y, y


def other_mask(h: Any, x: Any) -> Any:
    y = h + x
    y[x < 0] = 2 * y[x > 0]
    return y, y


def mask_of_mask(h: Any, x: Any) -> Any:
    y = h + x
    positive = y > 0
    z = y[positive]
    z[z > 0.5] = torch.log(z[z > 0.5])
    y[positive] = z
    return y.tanh(), y


def mask_that_a_mask_picks(h: Any, x: Any) -> Any:
    y = h + x
    positive, large = y > 0, y > 0.5
    z, k = y[positive], large[positive]
    z[k] *= 2
    z[~k] = x[0, 0]
    y[positive] = z.masked_fill(z > 2, x[1, 0]) * x[0, 1].abs()
    return y.tanh(), y


def three_masks(h: Any, x: Any) -> Any:
    y = h + x
    positive = y > 0
    z = y[positive]
    w = z[z > 0.3]
    w[w > 0.6] = w[w > 0.6].log()
    z[z > 0.3] = w
    y[positive] = z
    return y.tanh(), y


def shorter(h: Any, x: Any) -> Any:
    y = h + x
    y[y > 0.5] = y[y > -1][:1]
    return y, y


def named_twice(h: Any, x: Any) -> Any:
    y = h + x
    z = y[y > 0]
    z[y[y > 0] > 0.5] = z[y[y > 0] > 0.5].log()
    y[y > 0] = z
    return y, y


def filled(h: Any, x: Any) -> Any:
    y = h + x
    z = y[y > 0]
    y[y > 0] = z.masked_fill_(z > 0.5, x[0, 0])
    return y, y


@pytest.mark.parametrize("step", [logarithm, twice, mask_of_mask, mask_that_a_mask_picks, three_masks])
def test_elements_that_a_mask_picks(step: Callable[[Any, Any], Any]) -> None:
    """What a function makes of the others, as NaN of a logarithm, reaches no result and no gradient."""
    assert_equal(step, DOUBLE)


def test_elements_of_another_mask_are_refused() -> None:
    for step in (other_mask, shorter, lambda h, x: (h + x[x > 0].sum(), h)):
        rejects(StepError, lambda step=step: rt.scan(step, torch.ones(N, H), torch.ones(T, N, H)), "indexed by a mask")


def test_counts_of_two_masks_that_are_compared_are_refused() -> None:
    for step in (named_twice, filled):
        rejects(StepError, lambda step=step: rt.scan(step, torch.ones(N, H), torch.ones(T, N, H)), "name a mask once")
