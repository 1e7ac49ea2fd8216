"""Derivatives of derivatives as users of PyTorch take them: checks by differences, penalties on gradients, and MAML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.func import functional_call

import rnnops.torch as rt

D, H = 3, 4
LENGTHS = [4, 2]  # of rows
STEPS = 20
Run = Callable[[Tensor], Tensor]
pytestmark = pytest.mark.usefixtures("in_float64")


class Elman(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden_size, self.lin = H, torch.nn.Linear(D + H, H)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return self.lin(torch.cat([x, h], -1)).tanh()


class Gated(Elman):
    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        new = super().forward(x, h)
        return h + new.sigmoid() * (torch.softmax(new, -1) - h)


class Normed(Elman):
    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.nn.functional.gelu(torch.nn.functional.layer_norm(super().forward(x, h), (H,)))


CELLS: dict[str, Callable[[], Any]] = {
    "LSTM": lambda: torch.nn.LSTMCell(D, H), "GRU": lambda: torch.nn.GRUCell(D, H), "Elman": Elman, "gated": Gated,
    "normed": Normed,
}  # fmt: skip


def loop(cell: Any, xs: Tensor, lengths: list[int] | None = None) -> Tensor:
    """PyTorch's own steps; rows that are over give zeros."""
    state: Any = (xs.new_zeros(xs.shape[1], H),) * (2 if isinstance(cell, torch.nn.LSTMCell) else 1)
    rows = []
    for t, x in enumerate(xs):
        new = cell(x, state if len(state) > 1 else state[0])
        state = new if isinstance(new, tuple) else (new,)
        over = xs.new_tensor([[t < end] for end in lengths or [len(xs)] * xs.shape[1]])
        rows.append(state[0] * over)
    return torch.stack(rows)


@pytest.mark.parametrize("name", CELLS)
def test_second_derivatives_beside_differences(name: str) -> None:
    """In the inputs and all parameters, of rows that end."""
    cell = CELLS[name]()
    rnn, names = rt.RNN(cell), [name for name, _ in cell.named_parameters()]
    xs = torch.randn(max(LENGTHS), len(LENGTHS), D, requires_grad=True)

    def run(xs: Tensor, *parameters: Tensor) -> Any:
        named = dict(zip((f"cell.{name}" for name in names), parameters, strict=True))
        return functional_call(rnn, named, (xs,), {"lengths": LENGTHS})[0]

    given = [xs, *cell.parameters()]
    torch.testing.assert_close(run(*given), loop(cell, xs, LENGTHS))
    assert torch.autograd.gradgradcheck(run, given)


def trained(penalized: Callable[[Any, Run], Tensor], ours: bool) -> list[Tensor]:
    """Losses of 20 steps, and the parameters after them."""
    torch.manual_seed(1)
    cell = Gated()
    rnn, optimizer, losses = rt.RNN(cell), torch.optim.Adam(cell.parameters(), 0.02), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = penalized(cell, (lambda xs: rnn(xs)[0]) if ours else (lambda xs: loop(cell, xs)))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(p.detach() for p in cell.parameters())]


def with_penalty(cell: Any, run: Run) -> Tensor:
    """A loss, and the square by which the gradient in the inputs is longer than 1, as of a WGAN-GP's critic."""
    xs = torch.randn(6, 5, D, requires_grad=True)
    score = run(xs)[-1].square().sum(-1)
    (slope,) = torch.autograd.grad(score.sum(), xs, create_graph=True)
    return score.mean() + 10 * (slope.square().sum((0, 2)).sqrt() - 1).square().mean()


def test_a_penalty_on_gradients() -> None:
    torch.testing.assert_close(trained(with_penalty, True), trained(with_penalty, False), rtol=1e-9, atol=1e-9)


def adapted(ours: bool) -> list[Tensor]:
    """MAML: two steps within a task, whose result's loss on other data is differentiated in what was before them."""
    torch.manual_seed(2)
    cell = torch.nn.GRUCell(D, H)
    rnn, optimizer, losses = rt.RNN(cell), torch.optim.SGD(cell.parameters(), 0.1), []

    def error(weights: dict[str, Tensor], xs: Tensor, ys: Tensor) -> Tensor:
        if ours:
            named = {f"cell.{name}": tensor for name, tensor in weights.items()}
            return torch.nn.functional.mse_loss(functional_call(rnn, named, (xs,))[0], ys)
        step = lambda x, h: functional_call(cell, weights, (x, h))  # noqa: E731 - a cell of the loop
        return torch.nn.functional.mse_loss(loop(step, xs), ys)

    for _ in range(STEPS):
        xs, ys = torch.randn(2, 6, 5, D), torch.randn(2, 6, 5, H)
        weights = dict(cell.named_parameters())
        for _ in range(2):
            grads = torch.autograd.grad(error(weights, xs[0], ys[0]), [*weights.values()], create_graph=True)
            weights = {name: w - 0.5 * g for (name, w), g in zip(weights.items(), grads, strict=True)}
        optimizer.zero_grad()
        loss = error(weights, xs[1], ys[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(p.detach() for p in cell.parameters())]


def test_learning_to_learn() -> None:
    torch.testing.assert_close(adapted(True), adapted(False), rtol=1e-9, atol=1e-9)
