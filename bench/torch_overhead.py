"""What PyTorch adds to a recurrence: the same run with and without autograd, at one shape, and at a new one each time.

`rnnops.torch` is looked into for the run that it holds, so that both do the very same work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor

import rnnops.torch as rt
from bench.case import Entry
from bench.contender import Bench, Contender, gradient_of
from bench.measure import FIRST_CALLS
from bench.problems import Arrays, Size
from bench.torch_step import array_of, in_rnn, made_at, parameters_of, random_tensor

AHEAD = FIRST_CALLS + 2  # inputs, drawn before any call: two calls come before those that are timed


@dataclass(frozen=True)
class Small:
    """A recurrence that has run once, so that all is compiled.

    Args:
        compiled: how `rnnops.torch` holds what it runs.
        named: tensors that are fed to the run, by the names of its inputs.
        leaves: those whose gradients are computed, by our names.
    """

    recurrent: rt.RNN
    compiled: Any
    xs: Tensor
    states: Any
    head: Tensor
    named: dict[str, Tensor]
    leaves: dict[str, Tensor]


def small(entry: Entry, bench: Bench) -> Small:
    built, states, xs = made_at(entry.problem.net, entry.problem.size, bench)
    recurrent = in_rnn(built)
    head = random_tensor("head", *recurrent(xs.requires_grad_(), states)[0].shape)
    compiled = compiled_of(recurrent)
    named = dict(
        zip(
            compiled.translation.names,
            [states, xs, *compiled.closed_over(compiled.traced.watch.walk.tensors())],
            strict=True,
        )
    )
    return Small(recurrent, compiled, xs, states, head, named, {"xs": xs, **parameters_of(built.cell)})


def compiled_of(recurrent: rt.RNN) -> Any:
    """What an `rt.RNN` compiled for the sizes that it has seen last."""
    prepared = list(recurrent._prepared.values())[-1]
    return list(prepared.compiled.values())[-1]


def through_torch(entry: Entry, bench: Bench) -> Contender:
    it = small(entry, bench)
    return _backward(it, lambda: it.recurrent(it.xs, it.states)[0])


def through_nothing(entry: Entry, bench: Bench) -> Contender:
    """An autograd function with as many tensors that computes nothing, and so agrees with nobody."""
    it = small(entry, bench)
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

    def call(k: int) -> Tensor:
        for leaf in it.leaves.values():
            leaf.grad = None
        y = forward()
        y.backward(it.head)
        return y

    def results(y: Tensor) -> Arrays:
        return {"y": array_of(y), **{gradient_of(name): array_of(leaf.grad) for name, leaf in it.leaves.items()}}

    return Contender(call, results)


def run_alone(entry: Entry, bench: Bench) -> Contender:
    """`vjp` and its pullback on the same memory, as NumPy's arrays."""
    it = small(entry, bench)
    feeds = {name: array_of(tensor) for name, tensor in it.named.items()}
    names = {id(tensor): name for name, tensor in it.named.items()}
    wanted = tuple(names[id(leaf)] for leaf in it.leaves.values())
    (output,) = it.compiled.translation.steps
    head = {output: array_of(it.head)}

    def call(k: int) -> tuple[Any, Any]:
        outputs, pullback = it.compiled.run.vjp(feeds, wrt=wanted)
        return outputs[output], pullback(head)

    def results(returned: tuple[Any, Any]) -> Arrays:
        y, gradients = returned
        return {"y": y, **{gradient_of(name): gradients[names[id(leaf)]] for name, leaf in it.leaves.items()}}

    return Contender(call, results)


def new_shapes(entry: Entry, bench: Bench, grows: str, is_alone: bool = False) -> Contender:
    """Forward and backward at a new shape each time, of a recurrence that has done a step at the problem's own size.

    Args:
        grows: the size that does, T or N.
        is_alone: `vjp` and its pullback of the run, and not the `rt.RNN`.
    """
    size = entry.problem.size
    built, _, _ = made_at(entry.problem.net, size, bench)
    recurrent = in_rnn(built)
    xs, states, head = _inputs(size)
    recurrent(xs, states)[0].backward(head)
    sizes = (replace(size, **{grows: getattr(size, grows) + k}) for k in count(1))
    given = iter([_inputs(one) for one, _ in zip(sizes, range(AHEAD), strict=False)])
    if is_alone:
        return _alone(compiled_of(recurrent), lambda: next(given))
    parameters = list(built.cell.parameters())

    def call(k: int) -> tuple[Tensor, Any]:
        xs, states, head = next(given)
        y, _ = recurrent(xs, states)
        return y, torch.autograd.grad(y, [xs, states, *parameters], head)

    return Contender(call, lambda returned: {"y": array_of(returned[0]), "sum": array_of(returned[1][2])})


def _alone(compiled: Any, inputs: Callable[[], tuple[Tensor, Tensor, Tensor]]) -> Contender:
    names, (output,) = compiled.translation.names, compiled.translation.steps
    parameters = [array_of(compiled.closed_over_now(place)) for place in range(len(compiled.numbers))]

    def call(k: int) -> tuple[Any, Any]:
        xs, states, head = inputs()
        feeds = dict(zip(names, [array_of(states), array_of(xs), *parameters], strict=True))
        outputs, pullback = compiled.run.vjp(feeds, wrt=names)
        return outputs[output], pullback({output: array_of(head)})

    return Contender(call, lambda returned: {"y": returned[0], "sum": returned[1][names[2]]})


def _inputs(size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """A sequence, states, a gradient of the output."""
    xs, head = (random_tensor(name, size.T, size.N, size.H) for name in ("xs", "head"))
    return xs.requires_grad_(), random_tensor("state", size.N, size.H).requires_grad_(), head
