"""Recurrent cells of PyTorch and of packages for it, each with how it is called and what it begins with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module

from bench.contender import MissingPeerError
from bench.torch_own_cells import LayerNormLSTM, MinimalGatedUnit, PeepholeLSTM

StepFunction = Callable[[Any, Any, Any], tuple[Any, Any]]
ACTIONS = 8  # units at the end of a wired or spiking net


@dataclass(frozen=True)
class Recurrence:
    """A cell, how a step calls it, the states that it begins with, and how many features it takes."""

    cell: Module
    step: StepFunction
    states: Any
    features: int


def plain_step(cell: Module, states: Any, x: Tensor) -> tuple[Any, Any]:
    """The first state is the output."""
    states = cell(x, states)
    return states, states if isinstance(states, Tensor) else states[0]


def output_first(cell: Module, states: Any, x: Tensor) -> tuple[Any, Any]:
    """A cell of ncps, a unit of time after the step before."""
    output, states = cell(x, states, 1.0)
    return states, output


def spiking_step(cell: Module, states: Any, x: Tensor) -> tuple[Any, Any]:
    """A net that steps itself."""
    states, output = cell(states, x)
    return states, output


def one_state(kind: Callable[[int, int], Module], N: int, H: int) -> Recurrence:
    return Recurrence(kind(H, H), plain_step, torch.randn(N, H), H)


def two_states(kind: Callable[[int, int], Module], N: int, H: int) -> Recurrence:
    return Recurrence(kind(H, H), plain_step, (torch.randn(N, H), torch.randn(N, H)), H)


def cfc(N: int, H: int) -> Recurrence:
    """A closed-form continuous-time cell with a backbone of one layer."""
    cell = package("ncps.torch").CfCCell(H, H, backbone_units=H, backbone_layers=1, backbone_dropout=0.0)
    return Recurrence(cell, output_first, torch.randn(N, H), H)


def wired_cfc(N: int, H: int) -> Recurrence:
    """A closed-form cell whose neurons are wired in layers."""
    wiring = package("ncps.wirings").AutoNCP(max(H, 4 * ACTIONS), ACTIONS)
    cell = package("ncps.torch").WiredCfCCell(H, wiring)
    return Recurrence(cell, output_first, torch.randn(N, cell.state_size), H)


def ltc(N: int, H: int) -> Recurrence:
    """A liquid time-constant cell, which takes small steps of a solver within each of its own; H / 4 neurons."""
    wiring = package("ncps.wirings").AutoNCP(max(H // 4, 2 * ACTIONS), ACTIONS)
    wiring.build(max(1, H // 8))
    return Recurrence(package("ncps.torch").LTCCell(wiring), output_first, torch.randn(N, wiring.units), H // 8)


class Leaky(Module):
    """Two layers of leaky neurons, without a recurrence beside their own memory."""

    def __init__(self, width: int) -> None:
        super().__init__()
        neurons = package("snntorch")
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, ACTIONS)
        self.hidden, self.last = neurons.Leaky(beta=0.9, learn_beta=True), neurons.Leaky(beta=0.9)

    def forward(self, states: tuple[Tensor, ...], x: Tensor) -> tuple[Any, Any]:
        spikes, hidden = self.hidden(self.first(x), states[0])
        spikes, last = self.last(self.second(spikes), states[1])
        return (hidden, last), (spikes, last)


class RLeaky(Module):
    """The same with a first layer that its own spikes go back to."""

    def __init__(self, width: int) -> None:
        super().__init__()
        neurons = package("snntorch")
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, ACTIONS)
        self.hidden, self.last = neurons.RLeaky(beta=0.9, linear_features=width), neurons.Leaky(beta=0.9)

    def forward(self, states: tuple[Tensor, ...], x: Tensor) -> tuple[Any, Any]:
        fired, hidden = self.hidden(self.first(x), states[0], states[1])
        spikes, last = self.last(self.second(fired), states[2])
        return (fired, hidden, last), (spikes, last)


def leaky(N: int, H: int) -> Recurrence:
    return Recurrence(Leaky(H), spiking_step, (torch.randn(N, H), torch.randn(N, ACTIONS)), H)


def recurrent_leaky(N: int, H: int) -> Recurrence:
    fired = (torch.rand(N, H) < 0.3).float()
    return Recurrence(RLeaky(H), spiking_step, (fired, torch.randn(N, H), torch.randn(N, ACTIONS)), H)


def package(name: str) -> Any:
    """A module of a package. Raises MissingPeerError where it does not import."""
    try:
        return import_module(name)
    except ImportError as error:
        library = name.split(".")[0]
        raise MissingPeerError(f"cells of {library} are left out: it does not import ({error})") from error


RECURRENCES: dict[str, Callable[[int, int], Recurrence]] = {
    "nn.LSTMCell": lambda N, H: two_states(nn.LSTMCell, N, H),
    "nn.GRUCell": lambda N, H: one_state(nn.GRUCell, N, H),
    "nn.RNNCell": lambda N, H: one_state(nn.RNNCell, N, H),
    "peephole LSTM": lambda N, H: two_states(PeepholeLSTM, N, H),
    "minimal gated unit": lambda N, H: one_state(MinimalGatedUnit, N, H),
    "layer norm LSTM": lambda N, H: two_states(LayerNormLSTM, N, H),
    "ncps CfCCell": cfc,
    "ncps WiredCfCCell": wired_cfc,
    "ncps LTCCell": ltc,
    "snntorch Leaky": leaky,
    "snntorch RLeaky": recurrent_leaky,
}


def make_recurrence(name: str, N: int, H: int) -> Recurrence:
    """A recurrence with the same numbers at every call."""
    torch.manual_seed(N + H)
    return RECURRENCES[name](N, H)
