"""PyTorch with a cell of one's own: a Python loop over the steps, the cell eager or through `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from bench.contender import Contender, Settings, gradient_of
from bench.nets import make_feeds, user_net
from bench.problems import Arrays, Problem
from bench.torch_cells import CELLS, Tensors

Outputs = dict[str, Tensor]
Returned = tuple[Outputs, Outputs]


def eager(problem: Problem, mode: str, settings: Settings) -> Contender:
    return _loop_contender(problem, mode, settings, CELLS[problem.net].step)


def compiled(problem: Problem, mode: str, settings: Settings) -> Contender:
    """Sizes are fixed, so that the compiler may use them."""
    torch._dynamo.reset()  # it gives up on a function that it has seen at too many sizes
    return _loop_contender(problem, mode, settings, torch.compile(CELLS[problem.net].step, dynamic=False))


def _loop_contender(problem: Problem, mode: str, settings: Settings, step: Callable[..., Any]) -> Contender:
    torch.set_num_threads(settings.threads)
    arrays, output_gradients = make_feeds(problem)
    feeds, outputs_of = to_tensors(arrays), loop_over_steps(problem.net, step)
    call = pass_over(mode, lambda: outputs_of(feeds), feeds, output_gradients)
    return Contender(call, lambda returned: named_results(*returned))


def loop_over_steps(net: str, step: Callable[..., Any]) -> Callable[[Tensors], Outputs]:
    """Outputs by name, from feeds by name, of a cell that Python steps."""
    cell, states = CELLS[net], user_net(net).states

    def outputs_of(feeds: Tensors) -> Outputs:
        given = cell.before(feeds)
        parameters = [given[name] for name in cell.parameters]
        current = [given[state.initial] for state in states]
        steps = []
        for x_t in given["xs"].unbind(0):
            current = step(x_t, *current, *parameters)
            steps.append(current)
        columns = zip(states, zip(*steps, strict=True), strict=True)
        return {s.output: torch.stack(column) if s.whole else column[-1][None] for s, column in columns}

    return outputs_of


def pass_over(
    mode: str, outputs_of: Callable[[], Outputs], leaves: Mapping[str, Tensor], output_gradients: Arrays
) -> Callable[[], Returned]:
    """A call that gives outputs, and in training the gradients of all leaves."""
    heads = to_tensors(output_gradients)

    def forward() -> Returned:
        with torch.no_grad():
            return outputs_of(), {}

    def training() -> Returned:
        outputs = outputs_of()
        given = [outputs[name] for name in heads]
        gradients = torch.autograd.grad(given, list(leaves.values()), list(heads.values()))
        return outputs, dict(zip(leaves, gradients, strict=True))

    if mode != "training":
        return forward
    for leaf in leaves.values():
        leaf.requires_grad_()
    return training


def to_tensors(arrays: Arrays) -> Outputs:
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def named_results(outputs: Outputs, gradients: Outputs) -> Arrays:
    named = {**outputs, **{gradient_of(name): tensor for name, tensor in gradients.items()}}
    return {name: tensor.detach().numpy() for name, tensor in named.items()}
