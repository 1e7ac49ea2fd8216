"""The first call at a new shape: of a recurrence of `rnnops.torch` that was used at another, and of its run alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import torch
from torch import Tensor

import rnnops.torch as rt
from bench.contender import Contender, Settings
from bench.measure import FIRST_CALLS
from bench.problems import Problem, Size
from bench.torch_overhead import compiled_of
from bench.torch_recurrences import Recurrence, make_recurrence
from bench.torch_step import array_of, random_tensor

Inputs = tuple[Tensor, Tensor, Tensor]  # a sequence, states, a gradient of the output
Shapes = Callable[[Size], Iterator[Size]]
AHEAD = FIRST_CALLS + 2  # inputs, drawn before any call: two calls come before those that are timed


def more_steps(size: Size) -> Iterator[Size]:
    return (Size(size.T + k, size.N, size.H) for k in count(1))


def more_rows(size: Size) -> Iterator[Size]:
    return (Size(size.T, size.N + k, size.H) for k in count(1))


def through_torch_new_steps(problem: Problem, mode: str, settings: Settings) -> Contender:
    return _through_torch(problem, settings, more_steps)


def through_torch_new_rows(problem: Problem, mode: str, settings: Settings) -> Contender:
    return _through_torch(problem, settings, more_rows)


def run_alone_new_steps(problem: Problem, mode: str, settings: Settings) -> Contender:
    return _run_alone(problem, settings, more_steps)


def run_alone_new_rows(problem: Problem, mode: str, settings: Settings) -> Contender:
    return _run_alone(problem, settings, more_rows)


def _through_torch(problem: Problem, settings: Settings, shapes: Shapes) -> Contender:
    """Forward and backward of an `rt.RNN`, at a new shape each time."""
    made, recurrent = _used_before(problem, settings)
    parameters, given = list(made.cell.parameters()), _drawn(problem.size, shapes)

    def call() -> tuple[Tensor, Any]:
        xs, states, head = next(given)
        y, _ = recurrent(xs, states)
        return y, torch.autograd.grad(y, [xs, states, *parameters], head)

    return Contender(call, lambda returned: {"y": array_of(returned[0]), "sum": array_of(returned[1][2])})


def _run_alone(problem: Problem, settings: Settings, shapes: Shapes) -> Contender:
    """`vjp` and its pullback of a run, at a new shape each time."""
    _, recurrent = _used_before(problem, settings)
    compiled, given = compiled_of(recurrent), _drawn(problem.size, shapes)
    names, (output,) = compiled.translation.names, compiled.translation.steps
    parameters = [array_of(tensor) for tensor in compiled.closed_over(())]

    def call() -> tuple[Any, Any]:
        xs, states, head = next(given)
        feeds = dict(zip(names, [array_of(states), array_of(xs), *parameters], strict=True))
        outputs, pullback = compiled.run.vjp(feeds, wrt=names)
        return outputs[output], pullback({output: array_of(head)})

    return Contender(call, lambda returned: {"y": returned[0], "sum": returned[1][names[2]]})


def _used_before(problem: Problem, settings: Settings) -> tuple[Recurrence, rt.RNN]:
    """A recurrence that has done a training step at the problem's own size."""
    torch.set_num_threads(settings.threads)
    made = make_recurrence(problem.net, problem.size.N, problem.size.H)
    recurrent = made.in_rnn()
    xs, states, head = _inputs(problem.size)
    recurrent(xs, states)[0].backward(head)
    return made, recurrent


def _drawn(size: Size, shapes: Shapes) -> Iterator[Inputs]:
    """Inputs at shapes that differ from each other."""
    return iter([_inputs(shape) for shape, _ in zip(shapes(size), range(AHEAD), strict=False)])


def _inputs(size: Size) -> Inputs:
    xs, head = (random_tensor(name, size.T, size.N, size.H) for name in ("xs", "head"))
    return xs.requires_grad_(), random_tensor("state", size.N, size.H).requires_grad_(), head
