"""Bits per character of a text, and samples of text from a model.

Bits per character of a text under a model: carried states, no dropout, parallel streams that start from zeros.

Text from a model: one character at a time, each drawn from the model's distribution and fed back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rnnops.cli.corpus import Streams
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


def sample(model: LanguageModel, prompt: Array, length: int, temperature: float, seed: int) -> Array:
    """Draw `length` characters that follow a prompt, under the parameters that the model has now.

    Args:
        prompt: [characters], indices; at least one.
        temperature: below 1 likely characters become likelier; 0 takes the likeliest each time.

    Returns: [length] int32.
    """
    generator = np.random.default_rng(seed)
    drawn = np.empty(length, np.int32)
    scores, states = _read(model, model.start_states(1), prompt)
    for place in range(length):
        drawn[place] = draw(scores, temperature, generator.random())
        scores, states = _read(model, states, drawn[place : place + 1])
    return drawn


def draw(scores: Array, temperature: float, uniform: float) -> int:
    """The class whose part of the cumulative distribution holds `uniform`, a number in [0, 1)."""
    if temperature == 0:
        return int(scores.argmax())
    logits = (scores - scores.max()).astype(np.float64) / temperature
    cumulative = np.exp(logits).cumsum()
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right").clip(0, len(scores) - 1))


def _read(model: LanguageModel, states: States, text: Array) -> tuple[Array, States]:
    """Feed characters and return the logits of what follows the last, and the states there."""
    scores, last = model.run(model.forward, text.astype(np.int32).reshape(-1, 1), states)
    return scores[-1, 0], carried(last)
