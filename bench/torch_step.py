"""A training step of a PyTorch module: outputs, and gradients of parameters and inputs for random output gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.nn import Module

from bench.contender import Contender, gradient_of
from bench.problems import Array, Arrays

Tensors = dict[str, Tensor]
Outputs = Callable[[], tuple[Any, Any]]  # results of all steps, and the last states


def random_tensor(name: str, *shape: int) -> Tensor:
    """Normal numbers, the same at every call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(crc32(name.encode())))


def parameters_of(module: Module) -> Tensors:
    """Parameters that are learnt, by name; layers of PyTorch call theirs as its cells do."""
    found = module.named_parameters()
    return {name.removesuffix("_l0"): parameter for name, parameter in found if parameter.requires_grad}


def inputs_of(xs: Tensor, states: Any) -> Tensors:
    """The sequence and the first states, as leaves whose gradients are wanted."""
    first = {f"state {number}": state for number, state in enumerate(pytree.tree_leaves(states))}
    return {name: tensor.requires_grad_() for name, tensor in {"xs": xs, **first}.items()}


def training_step(outputs_of: Outputs, leaves: Mapping[str, Tensor], batch_first: bool = False) -> Contender:
    """A contender that computes outputs and the gradients of leaves; results have time first, whatever comes first."""
    shapes = [swapped(y, batch_first).shape for y in pytree.tree_leaves(outputs_of()[0])]
    heads = [swapped(random_tensor("head", *shape), batch_first).contiguous() for shape in shapes]

    def call() -> tuple[list[Tensor], list[Tensor], list[Tensor | None]]:
        ys, last = outputs_of()
        results = pytree.tree_leaves(ys)
        gradients = torch.autograd.grad(results, list(leaves.values()), heads, allow_unused=True)
        return results, pytree.tree_leaves(last), list(gradients)

    def results(returned: tuple[list[Tensor], list[Tensor], list[Tensor | None]]) -> Arrays:
        ys, last, gradients = returned
        turned = [swapped(g, batch_first and name == "xs") for name, g in zip(leaves, gradients, strict=True)]
        return named_results(leaves, [swapped(y, batch_first) for y in ys], last, turned)

    return Contender(call, results)


def swapped(tensor: Any, batch_first: bool) -> Any:
    """With time and batch exchanged, where the batch comes first."""
    return tensor.transpose(0, 1) if batch_first and tensor is not None else tensor


def named_results(
    leaves: Mapping[str, Tensor], ys: list[Tensor], last: list[Tensor], gradients: list[Tensor | None]
) -> Arrays:
    """Results by names that all contenders have; where nothing depends on a leaf its gradient is zero."""
    named = {f"y {number}": array_of(y) for number, y in enumerate(ys)}
    named.update({f"last state {number}": array_of(state) for number, state in enumerate(last)})
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        named[gradient_of(name)] = array_of(torch.zeros_like(leaf) if gradient is None else gradient)
    return named


def array_of(tensor: Tensor) -> Array:
    array: Array = tensor.detach().numpy()
    return array


def python_loop(cell: Module, step: Callable[..., tuple[Any, Any]], xs: Any, states: Any) -> tuple[Any, Any]:
    """What users write: a step at a time, results stacked in the end."""
    leaves, tree = pytree.tree_flatten(xs)
    rows = []
    for row in zip(*[leaf.unbind(0) for leaf in leaves], strict=True):
        states, y = step(cell, states, pytree.tree_unflatten(list(row), tree))
        rows.append(y)
    return pytree.tree_map(lambda *ys: torch.stack(ys), *rows), states
