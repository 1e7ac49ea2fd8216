"""Recurrent cells of public packages, their source untouched: how each is built, called, and what it begins with."""

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
from torch import Tensor, nn
from torch.nn import Module

D, H = 5, 6
Step = Callable[[Any, Any, Any], tuple[Any, Any]]


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
    features: int = D
    batch_axis: int = 0
    assume: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Case:
    """A cell of a package.

    Args:
        package: what must be installed.
        dtypes: those in which it can be compared; `why` says what keeps it from the other.
    """

    package: str
    build: Callable[[], Built]
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)
    why: str = ""


SINGLE = (torch.float32,)
MIXES = "its own code makes float32 tensors"


def state_first(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
    """A cell that gives its new states, of which the first is the output."""
    carry = cell(x, carry)
    return carry, carry if isinstance(carry, Tensor) else carry[0]


def output_first(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
    """A cell that gives an output, then its new states."""
    output, carry = cell(x, carry)
    return carry, output


def rows(*widths: int) -> Callable[[int], Any]:
    """States `[N, width]`; one is no tuple."""

    def states(N: int) -> Any:
        made = tuple(0.3 * torch.randn(N, width) for width in widths)
        return made if len(made) > 1 else made[0]

    return states


def cell_of(module: str, name: str, *widths: int, step: Step = state_first, features: int = D) -> Built:
    """A cell that is built as those of PyTorch are, with states of these widths."""
    cell = getattr(import_module(module), name)(features, H)
    for parameter in cell.parameters():  # some begin with zeros, which tell nothing
        nn.init.normal_(parameter, 0.0, 0.4)
    return Built(cell, step, rows(*(widths or (H,))), features)


def stacked_lstm() -> Built:
    """Two layers, one step of each at a time."""

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
        ys, carry = cell(x[None], carry)
        return carry, ys[0]

    return Built(nn.LSTM(D, H, 2), step, lambda N: (torch.randn(2, N, H), torch.randn(2, N, H)), batch_axis=1)


def timed(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
    """A cell of ncps, a unit of time after the step before."""
    output, carry = cell(x, carry, 1.0)
    return carry, output


def cfc() -> Built:
    options = {"backbone_units": 8, "backbone_layers": 1, "backbone_dropout": 0.0}
    return Built(import_module("ncps.torch").CfCCell(D, H, **options), timed, rows(H))


def wired_cfc() -> Built:
    cell = import_module("ncps.torch").WiredCfCCell(D, import_module("ncps.wirings").AutoNCP(16, 4))
    return Built(cell, timed, rows(cell.state_size))


def ltc() -> Built:
    wiring = import_module("ncps.wirings").AutoNCP(12, 4)
    wiring.build(D)
    return Built(import_module("ncps.torch").LTCCell(wiring), timed, rows(wiring.units))


def snn(kind: str, states: int, **options: Any) -> Built:
    """A spiking layer of snntorch behind a linear one."""
    neurons = getattr(import_module("snntorch"), kind)(**options)

    def step(cell: Any, carry: Any, x: Tensor) -> tuple[Any, Any]:
        given = carry if isinstance(carry, tuple) else (carry,)
        spikes, *new = cell[1](cell[0](x), *given)
        new = [spikes, *new] if kind.startswith("R") else new
        return tuple(new) if isinstance(carry, tuple) else new[0], spikes

    return Built(nn.Sequential(nn.Linear(D, H), neurons), step, rows(*[H] * states))


def norse_cell(kind: str, state: str, module: str, *arguments: int) -> Built:
    """A cell of norse, whose states are a named tuple."""
    package = import_module("norse.torch")
    state_type = getattr(import_module(f"norse.torch.functional.{module}"), state)
    count, width = len(state_type._fields), arguments[-1] if arguments else D

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
        spikes, new = cell(x, state_type(*carry) if count > 1 else state_type(carry))
        return tuple(new) if count > 1 else new[0], spikes

    return Built(getattr(package, kind)(*arguments), step, rows(*[width] * count))


def speechbrain_layer(kind: str, **options: Any) -> Built:
    """One layer of speechbrain, a step at a time. Its package imports torchaudio, which nothing here uses."""
    if "torchaudio" not in sys.modules and importlib.util.find_spec("torchaudio") is None:
        sys.modules["torchaudio"] = ModuleType("torchaudio")
    layer = getattr(import_module("speechbrain.nnet.RNN"), kind)
    cell = layer(D, H, num_layers=1, batch_size=4, dropout=0.0, nonlinearity="relu", **options)

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
        carry = cell(x[:, None], carry)[:, 0]
        return carry, carry

    return Built(cell.eval(), step, rows(H))


def slstm() -> Built:
    """The scalar LSTM of xlstm by its own plain code, with exponential gates and four heads."""
    module = import_module("xlstm.blocks.slstm.cell")
    cell = module.sLSTMCell(module.sLSTMCellConfig(hidden_size=8, num_heads=4, backend="vanilla", dtype="float32"))
    cell.reset_parameters()

    def step(cell: Any, carry: Any, x: Tensor) -> tuple[Any, Any]:
        states = cell._impl_step(cell.training, cell._permute_input(x[:, None]), torch.stack(carry))[:, 0]
        return tuple(states.unbind(0)), states[0]

    return Built(cell, step, lambda N: tuple(torch.rand(N, 8) for _ in range(4)), 32, assume=(False,))


def min_gru() -> Built:
    """One step of a layer that is made for whole sequences."""

    def step(cell: Module, carry: Any, x: Tensor) -> tuple[Any, Any]:
        y, carry = cell(x[:, None], carry, return_next_prev_hidden=True)
        return carry, y[:, 0]

    return Built(import_module("minGRU_pytorch").minGRU(D), step, lambda N: torch.rand(N, 1, D) + 0.1)


def jelly(kind: str, **options: Any) -> Built:
    """A neuron of spikingjelly, which keeps its potential as an attribute."""
    neuron = getattr(import_module("spikingjelly.activation_based.neuron"), kind)(**options)

    def step(cell: Any, carry: Any, x: Tensor) -> tuple[Any, Any]:
        cell[1].v = carry
        spikes = cell[1](cell[0](x))
        return cell[1].v, spikes

    return Built(nn.Sequential(nn.Linear(D, H), neuron), step, rows(H))


ONE_STATE = [
    "ATR", "AntisymmetricRNN", "BR", "CFN", "FastGRNN", "FastRNN", "GatedAntisymmetricRNN", "IndRNN", "LiGRU",
    "LightRU", "MGU", "MUT1", "MUT2", "MUT3", "MiRU1", "MiRU2", "MinimalRNN", "NBR", "SGRN", "STAR", "TRNN", "UGRNN",
    "tauGRU",
]  # fmt: skip
TWO_STATES = [
    "JANET", "LEM", "MultiplicativeLSTM", "NAS", "OriginalLSTM", "PeepholeLSTM", "RAN", "ResLSTM", "SCRN",
    "UnICORNN", "WMCLSTM", "coRNN",
]  # fmt: skip
ROUNDED = "PyTorch's gradient of hardsigmoid has a factor that is rounded to float32"

CASES = {
    "torch LSTMCell": Case("torch", partial(cell_of, "torch.nn", "LSTMCell", H, H)),
    "torch GRUCell": Case("torch", partial(cell_of, "torch.nn", "GRUCell")),
    "torch RNNCell": Case("torch", partial(cell_of, "torch.nn", "RNNCell")),
    "torch LSTM of two layers": Case("torch", stacked_lstm),
    "ncps CfCCell": Case("ncps", cfc),
    "ncps WiredCfCCell": Case("ncps", wired_cfc),
    "ncps LTCCell": Case("ncps", ltc),
    "snntorch Leaky": Case("snntorch", partial(snn, "Leaky", 1, beta=0.9, learn_beta=True), SINGLE, MIXES),
    "snntorch Synaptic": Case("snntorch", partial(snn, "Synaptic", 2, alpha=0.9, beta=0.8), SINGLE, MIXES),
    "snntorch RLeaky": Case("snntorch", partial(snn, "RLeaky", 2, beta=0.9, linear_features=H), SINGLE, MIXES),
    "norse LIFCell": Case("norse", partial(norse_cell, "LIFCell", "LIFFeedForwardState", "lif"), SINGLE, MIXES),
    "norse LICell": Case("norse", partial(norse_cell, "LICell", "LIState", "leaky_integrator"), SINGLE, MIXES),
    "norse LIFRecurrentCell": Case(
        "norse", partial(norse_cell, "LIFRecurrentCell", "LIFState", "lif", D, H), SINGLE, MIXES
    ),
    "speechbrain LiGRU": Case("speechbrain", partial(speechbrain_layer, "LiGRU_Layer", normalization="layernorm")),
    "speechbrain SLiGRU": Case("speechbrain", partial(speechbrain_layer, "SLiGRU_Layer")),
    "xlstm sLSTM": Case("xlstm", slstm),
    "torchrl LSTMCell": Case("torchrl", partial(cell_of, "torchrl.modules.tensordict_module.rnn", "LSTMCell", H, H)),
    "torchrl GRUCell": Case("torchrl", partial(cell_of, "torchrl.modules.tensordict_module.rnn", "GRUCell")),
    "minGRU": Case("minGRU_pytorch", min_gru),
    "spikingjelly LIFNode": Case("spikingjelly", partial(jelly, "LIFNode"), SINGLE, MIXES),
    "spikingjelly ParametricLIFNode": Case("spikingjelly", partial(jelly, "ParametricLIFNode"), SINGLE, MIXES),
    **{
        f"torchrecurrent {name}": Case("torchrecurrent", partial(cell_of, "torchrecurrent", f"{name}Cell", *widths))
        for widths, names in (((H,), ONE_STATE), ((H, H), TWO_STATES), ((H, D), ["TGRU"]))
        for name in names
    },
    "torchrecurrent IntersectionRNN": Case(
        "torchrecurrent", partial(cell_of, "torchrecurrent", "IntersectionRNNCell", step=output_first, features=H)
    ),
    "torchrecurrent SGU": Case("torchrecurrent", partial(cell_of, "torchrecurrent", "SGUCell"), SINGLE, ROUNDED),
    "torchrecurrent DSGU": Case("torchrecurrent", partial(cell_of, "torchrecurrent", "DSGUCell"), SINGLE, ROUNDED),
}
