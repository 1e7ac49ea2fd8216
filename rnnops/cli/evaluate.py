"""Bits per character of a text under a model: carried states, no dropout, parallel streams that start from zeros."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rnnops.cli.batches import Streams
from rnnops.cli.language_model import LanguageModel, States, carried
from rnnops.compiler import compile as compile_net
from rnnops.types import Array

STREAMS, STREAM_CHARACTERS = 128, 250  # no more streams than that, none shorter than that
STEPS = 64
Step = Callable[[Array, Array, States], tuple[Array, States]]  # characters, targets, states -> loss, last states


@dataclass(frozen=True)
class Score:
    """Mean bits per character, and of how many characters."""

    bits: float
    characters: int


def evaluate(model: LanguageModel, text: Array, limit: int | None = None, weights: str | None = None) -> Score:
    """Score a text under the parameters that the model has now.

    Args:
        text: [characters], indices.
        limit: score only the first part of every stream, about so many characters in all.
        weights: what weights of products are kept as, as `Run.bind` says; None for what they are.
    """
    read = _model_step(model) if weights is None else _bound_step(model, weights)
    streams = Streams(text, *window_size(len(text)))
    states = model.start_states(streams.streams)
    bits, scored = 0.0, 0
    for window in streams.one_epoch(partial=True):
        loss, last = read(window.inputs, window.targets, states)
        states = carried(last)
        bits, scored = bits + float(loss) / math.log(2) * window.targets.size, scored + window.targets.size
        if limit is not None and scored >= limit:
            break
    return Score(bits / scored, scored)


def _model_step(model: LanguageModel) -> Step:
    """What a model gives for a window."""
    return lambda *window: model.run(model.train_one_batch, *window)


def _bound_step(model: LanguageModel, weights: str) -> Step:
    """The same, with parameters bound, and weights of products kept as something else."""
    net, arrays = model.graphs["train_one_batch"].traced.net, model.arrays
    params = {name: arrays[name] for name in net.input_names if name in arrays}
    run = compile_net(net, model.settings.device).bind(**params, weights=weights)
    fed = [name for name in net.input_names if name not in params]
    last = [name for name in net.output_blobs if name.startswith("output_1")]

    def read(inputs: Array, targets: Array, states: States) -> tuple[Array, States]:
        out = run(dict(zip(fed, (inputs, targets, *states), strict=True)))
        return out["loss"], tuple(out[name] for name in last)

    return read


def run_each_length(model: LanguageModel, text: Array) -> None:
    """Run one window of each length that scoring a text takes, so that all is compiled."""
    streams = Streams(text, *window_size(len(text)))
    windows = {len(window.inputs): window for window in streams.one_epoch(partial=True)}
    for window in windows.values():
        model.run(model.train_one_batch, window.inputs, window.targets, model.start_states(streams.streams))


def window_size(characters: int) -> tuple[int, int]:
    """Steps and streams for a text: many streams for long texts, one for short ones."""
    streams = max(1, min(STREAMS, characters // STREAM_CHARACTERS))
    return max(1, min(STEPS, (characters - 1) // streams)), streams
