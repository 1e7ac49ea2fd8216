"""`grad`, `vjp` and what `torch.func` makes of them, in and around other transforms, beside those of a Python loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from random_programs import Surrogate
from torch import Tensor
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

import rnnops.torch as rt
from rnnops.torch.sides import TensorCall, TensorRun

T, N, D, H, V = 4, 3, 2, 4, 5
pytestmark = [  # the warning is PyTorch's own, at its first tangent
    pytest.mark.usefixtures("in_float64"),
    pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning"),
]


def close(mine: Any, wanted: Any) -> None:
    torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-9)


class OwnGRU(torch.nn.Module):
    """PyTorch has no vmap of its own GRU cell."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden_size = H
        self.of_input, self.of_state = torch.nn.Linear(D, 3 * H), torch.nn.Linear(H, 3 * H)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        (r, z, n), (hr, hz, hn) = self.of_input(x).chunk(3, -1), self.of_state(h).chunk(3, -1)
        z = (z + hz).sigmoid()
        return (1 - z) * (n + (r + hr).sigmoid() * hn).tanh() + z * h


class Loop(torch.nn.Module):
    def __init__(self, cell: torch.nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, xs: Tensor, lengths: Tensor | None = None) -> Any:
        h, rows = xs.new_zeros(xs.shape[1], H), []
        for t, x in enumerate(xs):
            new = self.cell(x, h)
            live = torch.ones_like(new[:, :1]).bool() if lengths is None else (t < lengths)[:, None]
            h = torch.where(live, new, h)
            rows.append(torch.where(live, new, 0.0))
        return torch.stack(rows), h


Loss = Callable[[dict[str, Tensor], Tensor], Tensor]


def losses(lengths: Tensor | None) -> tuple[dict[str, Tensor], list[Loss]]:
    """Parameters, and a loss of them and inputs by the recurrence, and by its loop."""
    cell = OwnGRU()

    def of(module: torch.nn.Module) -> Loss:
        def loss(parameters: dict[str, Tensor], xs: Tensor) -> Tensor:
            ys, h = functional_call(module, parameters, (xs,), {"lengths": lengths})
            return ys.square().sum() + h.sin().sum()

        return loss

    rnn = rt.RNN(cell)
    return {name: p.detach() for name, p in rnn.named_parameters()}, [of(rnn), of(Loop(cell))]


def pulled(loss: Loss, p: Any, xs: Tensor) -> Any:
    """A pullback that is used twice, and differentiated by what it takes."""
    out, pull = vjp(loss, p, xs)
    given = torch.tensor(3.0, requires_grad=True)
    first, again = pull(torch.tensor(2.0)), pull(given)
    return out, first, again, torch.autograd.grad(again[1].square().sum(), given), grad(lambda g: pull(g)[1].sum())(out)


def of_outer_graph(loss: Loss, p: Any, xs: Tensor) -> Any:
    """A gradient that PyTorch's own graph differentiates."""
    leaves = {name: x.clone().requires_grad_() for name, x in p.items()}
    return torch.autograd.grad(grad(loss, argnums=1)(leaves, xs).square().sum(), [*leaves.values()])


USES: dict[str, Callable[[Loss, Any, Tensor], Any]] = {
    "grad": lambda f, p, xs: grad(f, argnums=(0, 1))(p, xs),
    "grad and value": lambda f, p, xs: grad_and_value(f)(p, xs),
    "grad of xs": lambda f, p, xs: grad(f, argnums=1)(p, xs),
    "vjp": pulled,
    "hessian": lambda f, p, xs: hessian(f, argnums=(0, 1))(p, xs),
    "jacrev of grad": lambda f, p, xs: jacrev(grad(f, argnums=1), argnums=(0, 1))(p, xs),
    "jvp of grad": lambda f, p, xs: jvp(lambda x: grad(f)(p, x), (xs,), (xs.cos(),)),
    "grad of jvp": lambda f, p, xs: grad(lambda x: jvp(lambda y: f(p, y), (x,), (x.cos(),))[1])(xs),
    "grad of grad": lambda f, p, xs: grad(lambda p: grad(f, argnums=1)(p, xs).square().sum())(p),
    "grad of jvp of grad": lambda f, p, xs: grad(
        lambda x: jvp(lambda x: grad(f, argnums=1)(p, x), (x,), (xs.cos(),))[1].square().sum()
    )(xs),
    "of an outer graph": of_outer_graph,
}
MAPPED: dict[str, Callable[[Loss, Any, Tensor], Any]] = {  # over xs [V, T, N, D]
    "grads of samples": lambda f, p, xs: vmap(grad(f, argnums=(0, 1)), in_dims=(None, 0))(p, xs),
    "samples on another axis": lambda f, p, xs: vmap(grad(f), in_dims=(None, 2))(p, xs.movedim(0, 2)),
    "grad of a map": lambda f, p, xs: grad(
        lambda p, xs: vmap(f, in_dims=(None, 0))(p, xs).square().sum(), argnums=(0, 1)
    )(p, xs),
    "models": lambda f, p, xs: vmap(vmap(grad(f), in_dims=(None, 0)), in_dims=(0, None))(
        {name: torch.stack([x, 2 * x]) for name, x in p.items()}, xs
    ),
    "hessians": lambda f, p, xs: vmap(hessian(f, argnums=1), in_dims=(None, 0))(p, xs[:2]),
}


@pytest.mark.parametrize("ragged", [False, True])
def test_transforms_are_those_of_a_loop(ragged: bool) -> None:
    p, (ours, looped) = losses(torch.tensor([T, 2, 0]) if ragged else None)
    for uses, shape in ((USES, (T, N, D)), (MAPPED, (V, T, N, D))):
        xs = torch.randn(shape)
        for name, use in uses.items():
            torch.testing.assert_close(use(ours, p, xs), use(looped, p, xs), rtol=1e-9, atol=1e-9, msg=name)


def test_a_first_call_may_be_within_transforms() -> None:
    for name, shape in {"grad": (T, N, D), "jvp of grad": (T, N, D), "models": (V, T, N, D)}.items():
        (p, (ours, looped)), use = losses(None), {**USES, **MAPPED}[name]
        xs = torch.randn(shape)
        close(use(ours, p, xs), use(looped, p, xs))


def test_jacobians_by_reverse_mode() -> None:
    cell = OwnGRU()
    modules, xs = [rt.RNN(cell), Loop(cell)], torch.randn(T, N, D)
    p = {name: x.detach() for name, x in modules[0].named_parameters()}
    both = [lambda p, xs, module=module: functional_call(module, p, (xs,))[0] for module in modules]
    close(*(jacrev(f, argnums=(0, 1))(p, xs) for f in both))
    close(*(jacfwd(jacrev(f, argnums=1), argnums=1)(p, xs[:2]) for f in both))


def test_a_first_backward_pass_runs_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    p, (ours, _) = losses(None)
    xs, ran = torch.randn(T, N, D), list[str]()
    for name, owner in (("gradient", TensorRun), ("vjp", TensorCall)):
        own = getattr(owner, name)

        def noted(*given: Any, name: str = name, own: Any = own) -> Any:
            ran.append(name)
            return own(*given)

        monkeypatch.setattr(owner, name, noted)
    grad(ours)(p, xs)
    vjp(ours, p, xs)[1](torch.ones(()))
    assert ran == ["vjp", "vjp"]


def test_outputs_that_are_changed_in_place_are_an_error_or_right() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(T, N, D)
    x = xs.clone().requires_grad_()
    wanted = torch.autograd.grad((rnn(x)[0] + 1).square().sum(), x)[0]

    def loss(x: Tensor) -> Tensor:
        total: Tensor = rnn(x)[0].add_(1).square().sum()
        return total

    close(grad(loss)(xs), wanted)  # a graph outside of it is not gone through
    rnn.requires_grad_(False)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        grad(loss)(xs)


def test_a_backward_pass_draws_the_numbers_of_its_forward_pass() -> None:
    """For each place of maps around a gradient, and the same for all places of a map over gradients."""
    rnn = rt.RNN(torch.nn.Linear(H, H), lambda cell, h, x: (torch.nn.functional.dropout(h + x, 0.5),) * 2)
    xs, many = torch.randn(T, N, H), torch.randn(V, T, N, H)

    def loss(x: Tensor) -> Tensor:
        total: Tensor = (rnn(x, torch.zeros(N, H))[0] * weights).sum()  # linear in x
        return total

    def call(use: Callable[[], Any]) -> Any:
        torch.manual_seed(0)
        return use()

    weights = torch.randn(T, N, H)
    slope, value = call(lambda: grad_and_value(loss)(xs))
    close(((slope * xs).sum()), value)
    for how in ("same", "different"):
        slopes, values = call(lambda how=how: vmap(grad_and_value(loss), randomness=how)(many))
        close((slopes * many).sum((1, 2, 3)), values)
        dropped = slopes == 0
        assert (dropped == dropped[:1]).all() == (how == "same")
    (ys, h), pull = call(lambda: vjp(lambda x: rnn(x, torch.zeros(N, H)), xs))
    rows = vmap(pull)((torch.eye(ys.numel()).view(-1, *ys.shape), torch.zeros(ys.numel(), *h.shape)))[0]
    close((rows * xs).sum((1, 2, 3)), ys.flatten())
    with pytest.raises(rt.StepError, match="randomness='different'"):
        vmap(grad(loss))(many)


def test_custom_functions_have_the_first_derivative() -> None:
    rnn = rt.RNN(torch.nn.Linear(H, H), lambda cell, h, x: (0.5 * h + Surrogate.apply(cell(x)),) * 2)
    xs = torch.randn(T, N, H)

    def loss(x: Tensor) -> Tensor:
        total: Tensor = rnn(x, torch.zeros(N, H))[0].square().sum()
        return total

    x = xs.clone().requires_grad_()
    close(grad(loss)(xs), torch.autograd.grad(loss(x), x)[0])
    close(vmap(grad(loss))(xs[None])[0], grad(loss)(xs))
    for use in (
        lambda: hessian(loss)(xs),
        lambda: grad(lambda x: grad(loss)(x).sum())(xs),
        lambda: grad(lambda x: jvp(loss, (x,), (xs,))[1])(xs),
        lambda: jvp(lambda x: jvp(loss, (x,), (xs,))[1], (xs,), (xs,)),
    ):
        with pytest.raises(rt.StepError, match="a custom autograd function has no second derivative"):
            use()


def test_what_is_refused_says_so() -> None:
    w, xs = torch.randn(D, H), torch.randn(T, N, D)

    def loss(w: Tensor) -> Tensor:
        ys: Tensor = rt.scan(lambda h, x: (torch.tanh(h + x @ w),) * 2, torch.zeros(N, H), xs)[1]
        return ys.square().sum()

    with pytest.raises(rt.StepError, match=r"Call it once outside of torch\.func"):
        grad(loss)(w)
    leaf = w.clone().requires_grad_()
    close(torch.autograd.grad(loss(leaf), leaf)[0], grad(loss)(w))
    with pytest.raises(rt.StepError, match=r"torch\.func \(functionalize\)"):
        torch.func.functionalize(loss)(w)


@pytest.mark.parametrize("name", ["first.weight", "second.weight"])
def test_both_names_of_a_tied_weight_are_given_by_either(name: str) -> None:
    """By the caller, and by the step itself."""

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(H, H), torch.nn.Linear(H, H, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor, h: Tensor) -> Tensor:
            return self.second((self.first(h) + x).tanh()).tanh()

    cell, w, h, xs = Tied(), torch.randn(H, H), torch.randn(N, H), torch.randn(T, N, H)
    rnn = rt.RNN(cell)

    def step(w: Tensor, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return (functional_call(cell, {name: 0.5 * w}, (x, h)),) * 2

    def looped(w: Tensor) -> Tensor:
        y, rows = h, []
        for x in xs:
            y = step(w, y, x)[0]
            rows.append(y)
        return torch.stack(rows)

    rnn(xs, h)
    assert {*rnn.get_params()} == {"cell.first.weight", "cell.first.bias"}
    for given in (
        lambda w: functional_call(rnn, {f"cell.{name}": 0.5 * w}, (xs, h))[0],
        lambda w: rt.scan(lambda h, x: step(w, h, x), h, xs)[1],
    ):
        close(given(w), looped(w))
        for transform in (jacrev, jacfwd):
            close(transform(lambda w, given=given: given(w).sum())(w), jacrev(lambda w: looped(w).sum())(w))
