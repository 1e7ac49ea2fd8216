"""A recurrent cell of PyTorch over time: in a Python loop, through `rnnops.torch`, and as PyTorch's own layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import Module

from bench.case import Entry
from bench.cell_builders import Built
from bench.contender import Bench, Contender
from bench.torch_step import (
    Runner,
    in_rnn,
    inputs_of,
    looped,
    made_at,
    parameters_of,
    random_tensor,
    training_step,
)

BETWEEN = "nn.LSTMCell"  # the cell that lies between linear layers


def recurrence(entry: Entry, bench: Bench, is_loop: bool = False) -> Contender:
    """The cell in an `rt.RNN`, or as its package runs it."""
    built, states, xs = made_at(entry.problem.net, entry.problem.size, bench)
    run = looped(built) if is_loop else in_rnn(built)
    return training_step(lambda: run(xs, states), {**inputs_of(xs, states), **parameters_of(built.cell)})


def layer(entry: Entry, bench: Bench) -> Contender:
    """PyTorch's LSTM layer with the parameters of the cell."""
    size = entry.problem.size
    built, (h, c), xs = made_at(entry.problem.net, size, bench)
    lstm = nn.LSTM(size.H, size.H)
    lstm.load_state_dict({f"{name}_l0": value for name, value in built.cell.state_dict().items()})

    def outputs_of() -> tuple[Any, Any]:
        ys, last = lstm(xs, (h[None], c[None]))
        return ys, tuple(state[0] for state in last)

    return training_step(outputs_of, {**inputs_of(xs, (h, c)), **parameters_of(lstm)})


class BetweenLinear(Module):
    """Linear layers before and after a recurrence, which is what `run` does."""

    def __init__(self, built: Built, run: Runner) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.before, self.after = nn.Linear(built.features, built.features), nn.Linear(built.features, built.features)
        self.cell, self.run = built.cell, run

    def forward(self, xs: torch.Tensor, states: Any) -> tuple[Any, Any]:
        ys, last = self.run(self.before(xs), states)
        return self.after(ys), last


def between_linear(entry: Entry, bench: Bench, is_loop: bool = False) -> Contender:
    built, states, xs = made_at(BETWEEN, entry.problem.size, bench)
    run = looped(built) if is_loop else in_rnn(built)
    model = BetweenLinear(built, lambda xs, states: run(xs, states))
    return training_step(lambda: model(xs, states), {**inputs_of(xs, states), **parameters_of(model)})


def linear_alone(entry: Entry, bench: Bench) -> Contender:
    """One of the two layers."""
    torch.set_num_threads(bench.settings.threads)
    torch.manual_seed(1)
    size = entry.problem.size
    linear, xs = nn.Linear(size.H, size.H), random_tensor("xs", size.T, size.N, size.H)
    return training_step(lambda: (linear(xs), ()), {**inputs_of(xs, ()), **parameters_of(linear)})
