"""A recurrent cell of PyTorch over time: in a Python loop, through `rnnops.torch`, and as PyTorch's own layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import Module

from bench.contender import Contender, Settings
from bench.problems import Problem
from bench.torch_recurrences import Recurrence, make_recurrence
from bench.torch_step import inputs_of, parameters_of, python_loop, random_tensor, training_step

BETWEEN = "nn.LSTMCell"  # the cell that lies between linear layers
Runner = Callable[[Any, Any], tuple[Any, Any]]


def through_rnnops(problem: Problem, mode: str, settings: Settings) -> Contender:
    """The cell in an `rt.RNN`."""
    return _contender(problem, settings, lambda made: made.in_rnn())


def in_a_loop(problem: Problem, mode: str, settings: Settings) -> Contender:
    """The cell as its package runs it."""
    return _contender(problem, settings, looped)


def layer(problem: Problem, mode: str, settings: Settings) -> Contender:
    """PyTorch's LSTM layer with the parameters of the cell."""
    torch.set_num_threads(settings.threads)
    made, xs, lstm = *_with_inputs(problem), nn.LSTM(problem.size.H, problem.size.H)
    lstm.load_state_dict({f"{name}_l0": value for name, value in made.cell.state_dict().items()})
    h, c = made.states

    def outputs_of() -> tuple[Any, Any]:
        ys, last = lstm(xs, (h[None], c[None]))
        return ys, tuple(state[0] for state in last)

    return training_step(outputs_of, {**inputs_of(xs, made.states), **parameters_of(lstm)})


def looped(made: Recurrence) -> Runner:
    return lambda xs, states: python_loop(made.cell, made.step, xs, states)


def _contender(problem: Problem, settings: Settings, runner: Callable[[Recurrence], Runner]) -> Contender:
    torch.set_num_threads(settings.threads)
    made, xs = _with_inputs(problem)
    run = runner(made)
    return training_step(lambda: run(xs, made.states), {**inputs_of(xs, made.states), **parameters_of(made.cell)})


def _with_inputs(problem: Problem) -> tuple[Recurrence, torch.Tensor]:
    size = problem.size
    made = make_recurrence(problem.net, size.N, size.H)
    return made, random_tensor("xs", size.T, size.N, made.features)


class BetweenLinear(Module):
    """Linear layers before and after a recurrence, which is what `run` does."""

    def __init__(self, made: Recurrence, run: Runner) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.before, self.after = nn.Linear(made.features, made.features), nn.Linear(made.features, made.features)
        self.cell, self.run = made.cell, run

    def forward(self, xs: torch.Tensor, states: Any) -> tuple[Any, Any]:
        ys, last = self.run(self.before(xs), states)
        return self.after(ys), last


def between_linear(problem: Problem, mode: str, settings: Settings) -> Contender:
    return _between(problem, settings, lambda made: made.in_rnn())


def between_linear_in_a_loop(problem: Problem, mode: str, settings: Settings) -> Contender:
    return _between(problem, settings, looped)


def _between(problem: Problem, settings: Settings, runner: Callable[[Recurrence], Runner]) -> Contender:
    torch.set_num_threads(settings.threads)
    made, xs = _with_inputs(Problem(BETWEEN, problem.size))
    run = runner(made)
    model = BetweenLinear(made, lambda xs, states: run(xs, states))
    leaves = {**inputs_of(xs, made.states), **parameters_of(model)}
    return training_step(lambda: model(xs, made.states), leaves)


def linear_alone(problem: Problem, mode: str, settings: Settings) -> Contender:
    """One of the two layers."""
    torch.set_num_threads(settings.threads)
    torch.manual_seed(1)
    size = problem.size
    linear, xs = nn.Linear(size.H, size.H), random_tensor("xs", size.T, size.N, size.H)
    return training_step(lambda: (linear(xs), ()), {**inputs_of(xs, ()), **parameters_of(linear)})
