"""A training step of a recurrence of PyTorch: a cell, its inputs, and gradients for random gradients of the outputs.

**A layer.** A recurrent cell of PyTorch over time: in a Python loop, through `rnnops.torch`, and as PyTorch's own
layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.nn import Module

import rnnops.torch as rt
from bench.case import Entry
from bench.cell_builders import Built
from bench.contender import Bench, Contender, MissingPeerError, gradient_of
from bench.package_cells import CELLS
from bench.problems import Array, Arrays, Size

Tensors = dict[str, Tensor]
Runner = Callable[[Any, Any], tuple[Any, Any]]  # a sequence and states -> results of all steps, and the last states


def made_at(name: str, size: Size, bench: Bench) -> tuple[Built, Any, Tensor]:
    """A cell with the same numbers at every call, the states it begins with, and a sequence.

    Raises MissingPeerError where its package does not import.
    """
    torch.set_num_threads(bench.settings.threads)
    torch.manual_seed(size.N + size.H)
    try:
        built = CELLS[name].build(size.H, size.H)
    except ImportError as error:
        library = CELLS[name].package
        raise MissingPeerError(f"cells of {library} are left out: it does not import ({error})") from error
    return built, built.states(size.N), random_tensor("xs", size.T, size.N, built.features)


def in_rnn(built: Built) -> rt.RNN:
    """A cell as a module over time."""
    return rt.RNN(built.cell, built.step, batch_axis=built.batch_axis, assume=built.assume)


def looped(built: Built) -> Runner:
    """A cell as its package runs it."""
    return lambda xs, states: python_loop(built.cell, built.step, xs, states)


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


def training_step(
    outputs_of: Callable[[], tuple[Any, Any]], leaves: Mapping[str, Tensor], batch_first: bool = False
) -> Contender:
    """A contender that computes outputs and the gradients of leaves; results have time first, whatever comes first."""
    shapes = [swapped(y, batch_first).shape for y in pytree.tree_leaves(outputs_of()[0])]
    heads = [swapped(random_tensor("head", *shape), batch_first).contiguous() for shape in shapes]

    def call(k: int) -> tuple[list[Tensor], list[Tensor], list[Tensor | None]]:
        ys, last = outputs_of()
        results = pytree.tree_leaves(ys)
        gradients = torch.autograd.grad(results, list(leaves.values()), heads, allow_unused=True)
        return results, pytree.tree_leaves(last), list(gradients)

    def results(returned: tuple[list[Tensor], list[Tensor], list[Tensor | None]]) -> Arrays:
        """By names that all contenders have; where nothing depends on a leaf its gradient is zero."""
        ys, last, gradients = returned
        found = {f"y {number}": array_of(swapped(y, batch_first)) for number, y in enumerate(ys)}
        found.update({f"last state {number}": array_of(state) for number, state in enumerate(last)})
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            whole = torch.zeros_like(leaf) if gradient is None else gradient
            found[gradient_of(name)] = array_of(swapped(whole, batch_first and name == "xs"))
        return found

    return Contender(call, results)


def swapped(tensor: Any, batch_first: bool) -> Any:
    """With time and batch exchanged, where the batch comes first."""
    return tensor.transpose(0, 1) if batch_first else tensor


def array_of(tensor: Any) -> Array:
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
