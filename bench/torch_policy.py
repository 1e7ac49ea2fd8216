"""A recurrent policy as PPO trains it: states are zero again where an episode begins in the middle of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.nn import Module
from torch.nn.utils import rnn

import rnnops.torch as rt
from bench.case import Entry
from bench.contender import Bench, Contender
from bench.problems import Problem, Size
from bench.torch_step import inputs_of, parameters_of, python_loop, random_tensor, training_step

ACTIONS, BEGINS = 6, 0.02  # an episode of 50 steps on average
LAYERS = {"GRU": (nn.GRUCell, nn.GRU), "LSTM": (nn.LSTMCell, nn.LSTM)}
Recurrence = Callable[[Tensor, Tensor, Any], Tensor]  # observations, where episodes begin, states -> features


class Policy(Module):
    """What a policy and a value head make of the features of a recurrence."""

    def __init__(self, recurrence: Recurrence, learnt: Module, width: int) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.actions, self.value = nn.Linear(width, ACTIONS), nn.Linear(width, 1)
        self.recurrence, self.learnt = recurrence, learnt

    def forward(self, xs: Tensor, begins: Tensor, states: Any) -> tuple[Any, Any]:
        features = self.recurrence(xs, begins, states)
        return (self.actions(features), self.value(features)), ()


def reset_step(cell: Module, states: Any, inputs: tuple[Tensor, Tensor]) -> tuple[Any, Tensor]:
    """A step from states that are zero where an episode begins."""
    x, begins = inputs
    states = cell(x, pytree.tree_map(lambda state: state * (1 - begins), states))
    return states, states if isinstance(states, Tensor) else states[0]


def cell_over_time(entry: Entry, bench: Bench, is_loop: bool = False) -> Contender:
    """The cell through `rnnops.torch`, or in a Python loop."""
    cell = _cell(entry.problem)
    run = partial(python_loop, cell, reset_step) if is_loop else rt.RNN(cell, reset_step)
    return _contender(entry.problem, bench, lambda xs, begins, states: run((xs, begins), states)[0], cell)


def split_and_padded(entry: Entry, bench: Bench) -> Contender:
    """Episodes as rows of their own, padded to the longest, through PyTorch's layer, and put together again."""
    layer = _layer(entry.problem)

    def recurrence(xs: Tensor, begins: Tensor, states: Any) -> Tensor:
        lengths, rows = episodes(begins[..., 0] > 0)
        pieces = xs.flatten(0, 1).split(lengths.tolist())
        padded = rnn.pad_sequence(list(pieces), batch_first=True)
        first = [state.new_zeros(1, len(lengths), state.shape[-1]).index_copy(1, rows, state[None]) for state in states]
        packed = rnn.pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
        features, _ = layer(packed, first[0] if isinstance(layer, nn.GRU) else tuple(first))
        unpacked, _ = rnn.pad_packed_sequence(features, batch_first=True)
        inside = torch.arange(unpacked.shape[1]) < lengths[:, None]
        return unpacked[inside].view(*xs.shape[:2], -1)

    return _contender(entry.problem, bench, recurrence, layer, batch_first=True)


def episodes(begins: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths of all episodes `[N, T]`, row by row, and the number of the first one of each row."""
    starts = begins.clone()
    starts[:, 0] = True
    places = starts.flatten().nonzero()[:, 0]
    ends = torch.cat([places[1:], torch.tensor([begins.numel()])])
    return ends - places, starts.sum(1).cumsum(0) - starts.sum(1)


def through_torchrl(entry: Entry, bench: Bench) -> Contender:
    """The module of torchrl, which splits and pads by itself."""
    from tensordict import TensorDict
    from torchrl.modules import GRUModule, LSTMModule

    size, layer = entry.problem.size, _layer(entry.problem)
    names = ["h"] if isinstance(layer, nn.GRU) else ["h", "c"]
    keys = {"in_keys": ["xs", *names], "out_keys": ["features", *(f"next {name}" for name in names)]}
    given = {"gru": layer} if isinstance(layer, nn.GRU) else {"lstm": layer}
    kind = GRUModule if isinstance(layer, nn.GRU) else LSTMModule
    module = kind(**given, **keys, default_recurrent_mode=True)
    stored = [torch.zeros(size.N, size.T, 1, size.H) for _ in names]

    def recurrence(xs: Tensor, begins: Tensor, states: Any) -> Tensor:
        for buffer, state in zip(stored, states, strict=True):
            buffer[:, 0, 0] = state
        data = {"xs": xs, "is_init": begins > 0, **dict(zip(names, stored, strict=True))}
        features: Tensor = module(TensorDict(data, batch_size=xs.shape[:2]))["features"]
        return features

    return _contender(entry.problem, bench, recurrence, layer, batch_first=True)


def _cell(problem: Problem) -> Module:
    """A cell, the same at every call."""
    torch.manual_seed(1)
    return LAYERS[problem.net][0](problem.size.H, problem.size.H)


def _layer(problem: Problem) -> Module:
    """A layer with the parameters of the cell."""
    layer = LAYERS[problem.net][1](problem.size.H, problem.size.H, batch_first=True)
    layer.load_state_dict({f"{name}_l0": value for name, value in _cell(problem).state_dict().items()})
    return layer


def _contender(
    problem: Problem, bench: Bench, recurrence: Recurrence, learnt: Module, batch_first: bool = False
) -> Contender:
    """A training step of the policy; gradients stop at the states, which were stored while the policy acted."""
    torch.set_num_threads(bench.settings.threads)
    xs, begins = (given.transpose(0, 1).contiguous() if batch_first else given for given in _rollout(problem.size))
    states: Any = [random_tensor(f"state {k}", problem.size.N, problem.size.H) for k in range(_states(problem))]
    if not batch_first:
        states = states[0] if len(states) == 1 else tuple(states)
    model = Policy(recurrence, learnt, problem.size.H)
    leaves = {**inputs_of(xs, ()), **{name.removeprefix("learnt."): p for name, p in parameters_of(model).items()}}
    return training_step(lambda: model(xs, begins, states), leaves, batch_first)


def _states(problem: Problem) -> int:
    return 2 if problem.net == "LSTM" else 1


def _rollout(size: Size) -> tuple[Tensor, Tensor]:
    """Observations, and a one where an episode begins; never at the first step, where states are those of before."""
    begins = (torch.rand(size.T, size.N, 1, generator=torch.Generator().manual_seed(3)) < BEGINS).float()
    begins[0] = 0
    begins[size.T // 2, 0] = 1
    return random_tensor("xs", size.T, size.N, size.H), begins
