"""The character language model: embedding, a cell or a stack over time, projection, cross entropy.

    characters [T, N] -> Embedding -> [T, N, E] -> RNN -> [T, N, H] -> Dense -> scores [T, N, V] -> loss with targets

States are carried by the caller: what a call gives back is what the next one takes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from rnnops.blob import Blob
from rnnops.cells import RNNCell
from rnnops.cli.cells import build_cell
from rnnops.cli.settings import Settings
from rnnops.model import RNN, Adam, Dense, Dropout, Embedding, InverseRoot, Model, Placeholder, WarmUp
from rnnops.model.losses import softmax_cross_entropy
from rnnops.types import Array

EMBEDDING = 64  # features of a character
WARM_UP, DECAY = 50, 200  # steps

States = tuple[Any, ...]


class LanguageModel(Model):
    """A compiled model with Adam, whose rate rises over the first steps and then falls with the root of the step.

    Args:
        symbols: size of the alphabet, V.
        recompute: compute the cells' gates again on the backward pass instead of storing them.
        threads: of the device, None for its default.
    """

    def __init__(self, settings: Settings, symbols: int, recompute: bool = False, threads: int | None = None) -> None:
        self.settings = settings
        cell = partial(_cell, settings.cell, recompute)
        self.embedding = Embedding(symbols, EMBEDDING)
        self.stack = RNN(cell, settings.hidden, settings.layers, dropout=settings.dropout)
        self.dropout = Dropout(settings.dropout)
        self.projection = Dense(symbols)
        self.set_optimizer(Adam(WarmUp(WARM_UP, InverseRoot(settings.learning_rate, DECAY)), max_norm=settings.clip))
        window = Placeholder((settings.seq_length, settings.batch), "int32")
        states = tuple(Placeholder(state.shape) for state in self.start_states(settings.batch))
        run = {"dtype": settings.dtype, "device": settings.device, "precision": settings.precision, "threads": threads}
        self.compile([window, window, states], seed=settings.seed, **run)  # type: ignore[arg-type]

    def forward(self, characters: Blob, states: States) -> tuple[Blob, States]:
        """Scores of the characters that follow, [T, N, V], and the last states."""
        output, last = self.stack(self.embedding(characters), None, states)
        return self.projection(self.dropout(output)), last

    def train_one_batch(self, characters: Blob, targets: Blob, states: States) -> tuple[Blob, States]:
        """The mean cross entropy of the targets, in nats, and the last states."""
        scores, last = self.forward(characters, states)
        return self.minimize(softmax_cross_entropy(scores, targets)), last

    def start_states(self, streams: int) -> tuple[Array, ...]:
        """The states of streams that begin: zeros `[1, N, H]`, or of more axes, as the cell has it."""
        shapes = self.stack.state_shapes(EMBEDDING)
        return tuple(np.zeros((1, streams, *shape), self.settings.dtype) for shape in shapes)


def carried(states: States) -> tuple[Array, ...]:
    """Last states for the next call: copies, which keep nothing else alive."""
    return tuple(state.copy() for state in states)


def _cell(spec: str, recompute: bool, input_size: int, hidden_size: int, name: str) -> RNNCell:
    return build_cell(spec, input_size, hidden_size, name, recompute)
