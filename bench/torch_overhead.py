"""What PyTorch adds to a small recurrence: the same run with and without autograd, and autograd with nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import rnnops.torch as rt
from bench.contender import Contender, Settings, gradient_of
from bench.problems import Arrays, Problem
from bench.torch_recurrences import Recurrence, make_recurrence
from bench.torch_step import array_of, parameters_of, random_tensor


@dataclass(frozen=True)
class Small:
    """A recurrence that has run once, so that all is compiled.

    Args:
        compiled: how `rnnops.torch` holds what it runs.
        named: tensors that are fed to the run, by the names of its inputs.
        leaves: those whose gradients are computed, by our names.
    """

    made: Recurrence
    recurrent: rt.RNN
    compiled: Any
    xs: Tensor
    head: Tensor
    named: dict[str, Tensor]
    leaves: dict[str, Tensor]


def small(problem: Problem, settings: Settings) -> Small:
    torch.set_num_threads(settings.threads)
    size = problem.size
    made = make_recurrence(problem.net, size.N, size.H)
    recurrent, xs = made.in_rnn(), random_tensor("xs", size.T, size.N, made.features).requires_grad_()
    head = random_tensor("head", *recurrent(xs, made.states)[0].shape)
    compiled = compiled_of(recurrent)
    named = dict(zip(compiled.translation.names, [made.states, xs, *compiled.closed_over(())], strict=True))
    return Small(made, recurrent, compiled, xs, head, named, {"xs": xs, **parameters_of(made.cell)})


def compiled_of(recurrent: rt.RNN) -> Any:
    """What an `rt.RNN` compiled for the sizes that it has seen last."""
    prepared = list(recurrent._prepared.values())[-1]
    return list(prepared.compiled.values())[-1]


def through_torch(problem: Problem, mode: str, settings: Settings) -> Contender:
    return _backward(it := small(problem, settings), lambda: it.recurrent(it.xs, it.made.states)[0])


def through_nothing(problem: Problem, mode: str, settings: Settings) -> Contender:
    """An autograd function with as many tensors that computes nothing, and so agrees with nobody."""
    it = small(problem, settings)
    tensors = tuple(it.named.values())
    place = next(k for k, tensor in enumerate(tensors) if tensor is it.xs)
    return Contender(_backward(it, lambda: Nothing.apply(place, *tensors)).call)


class Nothing(torch.autograd.Function):
    """Gives a copy of one of its inputs, and back what it was given."""

    @staticmethod
    def forward(ctx: Any, place: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return tensors[place].detach().clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (None, *[tensor if tensor.requires_grad else None for tensor in ctx.saved_tensors])


def _backward(it: Small, forward: Callable[[], Tensor]) -> Contender:
    """`backward()` as a training loop calls it, gradients emptied before."""

    def call() -> Tensor:
        for leaf in it.leaves.values():
            leaf.grad = None
        y = forward()
        y.backward(it.head)
        return y

    def results(y: Tensor) -> Arrays:
        gradients = {gradient_of(name): array_of(leaf.grad) for name, leaf in it.leaves.items()}
        return {"y": array_of(y), **gradients}

    return Contender(call, results)


def run_alone(problem: Problem, mode: str, settings: Settings) -> Contender:
    """`vjp` and its pullback on the same memory, as NumPy's arrays."""
    it = small(problem, settings)
    feeds = {name: array_of(tensor) for name, tensor in it.named.items()}
    names = {id(tensor): name for name, tensor in it.named.items()}
    wanted = tuple(names[id(leaf)] for leaf in it.leaves.values())
    (output,) = it.compiled.translation.steps
    head = {output: array_of(it.head)}

    def call() -> tuple[Any, Any]:
        outputs, pullback = it.compiled.run.vjp(feeds, wrt=wanted)
        return outputs[output], pullback(head)

    def results(returned: tuple[Any, Any]) -> Arrays:
        y, gradients = returned
        return {"y": y, **{gradient_of(name): gradients[names[id(leaf)]] for name, leaf in it.leaves.items()}}

    return Contender(call, results)
