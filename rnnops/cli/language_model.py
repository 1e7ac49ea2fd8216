"""The character language model as nets: embedding, a cell or a stack over time, projection, cross entropy.

    characters [T, N] -> Gather -> [T, N, E] -> cell -> [T, N, H] -> [T*N, V] -> SoftmaxCrossEntropyLoss with targets

States are carried by the caller: inputs `h0`, `h1`, ... `[N, D]`, outputs `h0_last`, `h1_last`, ... `[1, N, D]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rnnops import gather, init_params, reshape, softmax_cross_entropy_loss
from rnnops.blob import Blob
from rnnops.cells import DropoutCell, MultiRNNCell, RNNCell
from rnnops.cli.cells import build_cell
from rnnops.cli.settings import Settings
from rnnops.compiler import Run, compile as compile_net
from rnnops.net import Net

EMBEDDING = 64  # features of a character

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]


class LanguageModel:
    """The compiled nets of one model: `loss` for training and evaluation, `scores` for sampling.

    Args:
        symbols: size of the alphabet.
        recompute: compute the cells' gates again on the backward pass instead of storing them.
        threads: of the device, None for its default.
    """

    def __init__(
        self,
        settings: Settings,
        symbols: int,
        recompute: bool = False,
        threads: int | None = None,
    ) -> None:
        self.settings, self.symbols = settings, symbols
        cell = build_stack(settings, recompute)
        self.state_sizes = {f"h{place}": size for place, size in enumerate(cell.get_state_dims())}
        self.loss: Run = compile_net(loss_net(cell, symbols), settings.device, threads)
        self.scores: Run = compile_net(scores_net(cell, symbols), settings.device, threads)

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter, by name."""
        return {spec.name: spec.shape or () for spec in self.loss.net.parameters}

    def start_params(self) -> Arrays:
        """Parameters before the first step; they follow from the seed."""
        return init_params(self.loss.net, self.settings.seed, self.settings.dtype)

    def start_states(self, streams: int) -> Arrays:
        """The states of streams that begin: zeros `[N, D]`."""
        return {name: np.zeros((streams, size), self.settings.dtype) for name, size in self.state_sizes.items()}

    def last_states(self, outputs: Mapping[str, Array]) -> Arrays:
        """The states after a window as those before the next, copied."""
        return {name: outputs[f"{name}_last"][0].copy() for name in self.state_sizes}


def build_stack(settings: Settings, recompute: bool = False) -> RNNCell:
    """The cell, or a stack of `--layers` of them, with dropout on each output where it is wanted."""
    stack: list[RNNCell] = []
    size = EMBEDDING
    for layer in range(settings.layers):
        cell = build_cell(settings.cell, size, settings.hidden, f"layer_{layer}", recompute)
        size = cell.get_output_dim()
        stack.append(DropoutCell(cell, settings.dropout) if settings.dropout else cell)
    return stack[0] if len(stack) == 1 else MultiRNNCell(stack, name="stack")


def loss_net(cell: RNNCell, symbols: int) -> Net:
    """The net whose output `loss` is the mean cross entropy of the targets, in nats."""
    net = Net("language_model")
    characters, targets = net.input("characters", "int32"), net.input("targets", "int32")
    scores, lasts = _scores(net, cell, characters, symbols)
    net.outputs(loss=softmax_cross_entropy_loss(scores, reshape(targets, [-1])), **lasts)
    return net


def scores_net(cell: RNNCell, symbols: int) -> Net:
    """The net whose output `scores` [T*N, V] are the logits of the characters that follow."""
    net = Net("language_model_scores")
    scores, lasts = _scores(net, cell, net.input("characters", "int32"), symbols)
    net.outputs(scores=scores, **lasts)
    return net


def _scores(net: Net, cell: RNNCell, characters: Blob, symbols: int) -> tuple[Blob, dict[str, Blob]]:
    """Logits `[T*N, V]`, and the last states by output name."""
    table = net.parameter("embedding", (symbols, EMBEDDING), ("normal", 0.0, 0.1))
    states = [net.input(f"h{place}") for place in range(len(cell.get_state_names()))]
    output, results = cell.apply_over_sequence(net, gather(table, characters), initial_states=states)
    lasts: Sequence[Blob] = results[1::2]
    weight = net.parameter("projection_w", (cell.get_output_dim(), symbols), ("xavier", cell.get_output_dim()))
    bias = net.parameter("projection_b", (symbols,), "zeros")
    scores = reshape(output, [-1, cell.get_output_dim()]) @ weight + bias
    return scores, {f"h{place}_last": blob for place, blob in enumerate(lasts)}
