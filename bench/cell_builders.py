"""How the cells of `package_cells.py` are built, called, and what they begin with; their source is untouched."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.nn import Module

from bench import torch_engine

Step = Callable[[Any, Any, Any], tuple[Any, Any]]
UNITS = 4  # at the end of a wired or spiking net


@dataclass(frozen=True)
class Built:
    """A cell, how a step calls it, its states for N rows, and how many features it takes.

    Args:
        batch_axis: of the states.
        assume: answers to `if tensor:` in the step.
    """

    cell: Module
    step: Step
    states: Callable[[int], Any]
    features: int
    batch_axis: int = 0
    assume: tuple[bool, ...] = ()


def state_first(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
    """A cell that gives its new states, of which the first is the output."""
    carry = cell(x, carry)
    return carry, carry if isinstance(carry, Tensor) else carry[0]


def output_first(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
    """A cell that gives an output, then its new states."""
    output, carry = cell(x, carry)
    return carry, output


def timed(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
    """A cell of ncps, a unit of time after the step before."""
    output, carry = cell(x, carry, 1.0)
    return carry, output


def rows(*widths: int) -> Callable[[int], Any]:
    """States `[N, width]`; one is not a tuple."""

    def states(N: int) -> Any:
        made = tuple(0.3 * torch.randn(N, width) for width in widths)
        return made if len(made) > 1 else made[0]

    return states


def plain(name: str, states: int, D: int, H: int) -> Built:
    """A cell as users write it, which takes its input, then its states of H units; its parameters are random."""
    return Built(getattr(torch_engine, name)(D, H), state_first, rows(*[H] * states), D)


def named(module: str, name: str, states: int, D: int, H: int, step: Step = state_first) -> Built:
    """The same by its name in a module, with small parameters: some begin with zeros, some with chaos."""
    cell = getattr(import_module(module), name)(D, H)
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -0.6 * H**-0.5, 0.6 * H**-0.5)
    return Built(cell, step, rows(*[H] * states), D)


def stacked_lstm(D: int, H: int) -> Built:
    """Two layers, one step of each at a time."""

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
        ys, carry = cell(x[None], carry)
        return carry, ys[0]

    return Built(nn.LSTM(D, H, 2), step, lambda N: (torch.randn(2, N, H), torch.randn(2, N, H)), D, batch_axis=1)


def cfc(D: int, H: int, mode: str = "default") -> Built:
    """A closed-form continuous-time cell with a backbone of one layer."""
    options = {"mode": mode, "backbone_units": H, "backbone_layers": 1, "backbone_dropout": 0.0}
    return Built(import_module("ncps.torch").CfCCell(D, H, **options), timed, rows(H), D)


def wired_cfc(D: int, H: int) -> Built:
    """A closed-form cell whose neurons are wired in layers."""
    cell = import_module("ncps.torch").WiredCfCCell(D, import_module("ncps.wirings").AutoNCP(max(16, H), UNITS))
    return Built(cell, timed, rows(cell.state_size), D)


def ltc(D: int, H: int, wiring: str = "AutoNCP") -> Built:
    """A liquid time-constant cell, which takes small steps of a solver within each of its own; H / 4 neurons."""
    features, kind = max(5, D // 8), getattr(import_module("ncps.wirings"), wiring)
    wired = kind(max(12, H // 4), UNITS)
    wired.build(features)
    return Built(import_module("ncps.torch").LTCCell(wired), timed, rows(wired.units), features)


def snn(kind: str, states: int, D: int, H: int, **options: Any) -> Built:
    """A spiking layer of snntorch behind a linear one."""
    if kind.startswith("R"):
        options["linear_features"] = H
    if kind == "SLSTM":
        options |= {"input_size": H, "hidden_size": H}
    neurons = getattr(import_module("snntorch"), kind)(**options)

    def step(cell: Any, carry: Any, x: Tensor) -> tuple[Any, Any]:
        given = carry if isinstance(carry, tuple) else (carry,)
        spikes, *new = cell[1](cell[0](x), *given)
        new = [spikes, *new] if kind.startswith("R") else new
        return tuple(new) if isinstance(carry, tuple) else new[0], spikes

    return Built(nn.Sequential(nn.Linear(D, H), neurons), step, rows(*[H] * states), D)


class SpikingNet(Module):
    """Two layers of leaky neurons; the first may have its own spikes fed back."""

    def __init__(self, is_recurrent: bool, D: int, H: int) -> None:
        super().__init__()
        neurons = import_module("snntorch")
        self.first, self.second = nn.Linear(D, H), nn.Linear(H, UNITS)
        recurrent = partial(neurons.RLeaky, linear_features=H) if is_recurrent else neurons.Leaky
        self.hidden, self.last = recurrent(beta=0.9, learn_beta=True), neurons.Leaky(beta=0.9)

    def forward(self, x: Tensor, carry: tuple[Tensor, ...]) -> tuple[Any, Any]:
        *hidden, last = carry
        spikes, potential = self.hidden(self.first(x), *hidden)
        out, last = self.last(self.second(spikes), last)
        return (out, last), (spikes, potential, last) if len(hidden) > 1 else (potential, last)


def spiking_net(is_recurrent: bool, D: int, H: int) -> Built:
    """A net that steps itself."""
    return Built(SpikingNet(is_recurrent, D, H), output_first, rows(*[H] * (1 + is_recurrent), UNITS), D)


def spiking_conv_lstm(D: int, H: int) -> Built:
    """A convolutional LSTM of snntorch on images, whose spikes are pooled."""
    cell = import_module("snntorch").SConv2dLSTM(1, 3, 3, max_pool=2)

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Tensor]:
        spikes, *carry = cell(x.unflatten(1, (1, 4, -1)), *carry)
        return tuple(carry), spikes

    return Built(cell, step, lambda N: tuple(torch.rand(N, 3, 4, H) for _ in range(2)), 4 * H)


def norse_cell(kind: str, D: int, H: int, is_recurrent: bool = False) -> Built:
    """A cell of norse, whose states are named tuples; without a recurrence it has as many units as features."""
    norse = import_module("norse.torch")
    method = [norse.functional.izhikevich.tonic_spiking] if kind.startswith("Izhikevich") else []
    cell = getattr(norse, kind)(*[D, H] * is_recurrent, *method)
    given, tree = pytree.tree_flatten(cell(torch.zeros(1, D))[1])

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
        spikes, new = cell(x, pytree.tree_unflatten(list(carry), tree))
        return tuple(pytree.tree_leaves(new)), spikes

    return Built(cell, step, lambda N: tuple(0.3 * torch.randn(N, *state.shape[1:]) for state in given), D)


def of_speechbrain() -> Any:
    """The recurrent layers of speechbrain. Its package imports torchaudio, which nothing here uses."""
    if "torchaudio" not in sys.modules and importlib.util.find_spec("torchaudio") is None:
        sys.modules["torchaudio"] = ModuleType("torchaudio")
    return import_module("speechbrain.nnet.RNN")


def speechbrain_layer(kind: str, D: int, H: int, **options: Any) -> Built:
    """One layer of speechbrain, a step at a time."""
    layer = getattr(of_speechbrain(), kind)
    cell = layer(D, H, num_layers=1, batch_size=4, dropout=0.0, nonlinearity="relu", **options)

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
        carry = cell(x[:, None], carry)[:, 0]
        return carry, carry

    return Built(cell.eval(), step, rows(H), D)


def speechbrain_cell(kind: str, states: int, D: int, H: int) -> Built:
    """Two cells of PyTorch, one over the other, as speechbrain's decoders hold them."""
    cell = getattr(of_speechbrain(), kind)(hidden_size=H, input_size=D, num_layers=2)

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Tensor]:
        y, carry = cell(x, carry)
        return carry, y

    def made(N: int) -> Any:
        one = tuple(0.3 * torch.randn(2, N, H) for _ in range(states))
        return one if states > 1 else one[0]

    return Built(cell, step, made, D, batch_axis=1)


def slstm(D: int, H: int) -> Built:
    """The scalar LSTM of xlstm by its own plain code, with exponential gates and four heads."""
    module, width = import_module("xlstm.blocks.slstm.cell"), H + -H % 4
    options = {"hidden_size": width, "num_heads": 4, "backend": "vanilla", "dtype": "float32"}
    cell = module.sLSTMCell(module.sLSTMCellConfig(**options))
    cell.reset_parameters()

    def step(cell: Any, carry: Any, x: Tensor) -> tuple[Any, Any]:
        states = cell._impl_step(cell.training, cell._permute_input(x[:, None]), torch.stack(carry))[:, 0]
        return tuple(states.unbind(0)), states[0]

    return Built(cell, step, lambda N: tuple(torch.rand(N, width) for _ in range(4)), 4 * width, assume=(False,))


def mlstm(D: int, H: int) -> Built:
    """The matrix LSTM of xlstm behind linear layers, a step at a time, with two heads."""
    module, d = import_module("xlstm.blocks.mlstm.cell"), (H + 1) // 2
    cell = module.mLSTMCell(module.mLSTMCellConfig(context_length=8, embedding_dim=2 * d, num_heads=2))
    cell.reset_parameters()

    def step(cell: Any, carry: Any, x: Tensor) -> tuple[Any, Tensor]:
        y, carry = cell[3].step(*[layer(x[:, None]) for layer in cell[:3]], carry)
        return carry, y[:, 0]

    def states(N: int) -> Any:
        return 0.1 * torch.randn(N, 2, d, d), torch.rand(N, 2, d, 1), torch.zeros(N, 2, 1, 1)

    return Built(nn.Sequential(*[nn.Linear(D, 2 * d) for _ in range(3)], cell), step, states, D)


def mamba(D: int, H: int) -> Built:
    """A block of mambapy a step at a time: a short convolution, then its selective state."""
    module = import_module("mambapy.mamba")
    config = module.MambaConfig(d_model=D, n_layers=1, d_state=4)

    def states(N: int) -> Any:
        wide = config.d_inner
        return 0.1 * torch.randn(N, wide, config.d_state), torch.randn(N, wide, config.d_conv - 1)

    def step(cell: Any, carry: Any, x: Tensor) -> tuple[Any, Tensor]:
        y, carry = cell.step(x, carry)
        return carry, y

    return Built(module.ResidualBlock(config), step, states, D)


def min_gru(D: int, H: int) -> Built:
    """One step of a layer that is made for whole sequences; it has as many units as features."""

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
        y, carry = cell(x[:, None], carry, return_next_prev_hidden=True)
        return carry, y[:, 0]

    return Built(import_module("minGRU_pytorch").minGRU(D), step, lambda N: torch.rand(N, 1, D) + 0.1, D)


def jelly(kind: str, D: int, H: int, memories: tuple[str, ...] = ("v",), **options: Any) -> Built:
    """A neuron of spikingjelly, which keeps its states as attributes."""
    neuron = getattr(import_module("spikingjelly.activation_based.neuron"), kind)(**options)

    def step(cell: Any, carry: Any, x: Tensor) -> tuple[Any, Any]:
        for name, state in zip(memories, carry, strict=True):
            setattr(cell[1], name, state)
        spikes = cell[1](cell[0](x))
        return tuple(getattr(cell[1], name) for name in memories), spikes

    return Built(nn.Sequential(nn.Linear(D, H), neuron), step, lambda N: (*torch.randn(len(memories), N, H) * 0.3,), D)


def recurrent(name: str, states: int, D: int, H: int) -> Built:
    """A cell of torchrecurrent; some have a state as wide as the input, or give an output beside their state."""
    if name == "IntersectionRNN":
        return named("torchrecurrent", "IntersectionRNNCell", 1, H, H, output_first)
    built = named("torchrecurrent", f"{name}Cell", states, D, H)
    return Built(built.cell, built.step, rows(H, D), D) if name == "TGRU" else built
