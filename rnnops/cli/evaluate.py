"""Bits per character of a text under a model: carried states, no dropout, parallel streams that start from zeros."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rnnops.cli.batches import Streams
from rnnops.cli.language_model import LanguageModel, carried
from rnnops.types import Array

STREAMS, STREAM_CHARACTERS = 128, 250  # no more streams than that, none shorter than that
STEPS = 64


@dataclass(frozen=True)
class Score:
    """Mean bits per character, and of how many characters."""

    bits: float
    characters: int


def evaluate(model: LanguageModel, text: Array, limit: int | None = None) -> Score:
    """Score a text under the parameters that the model has now.

    Args:
        text: [characters], indices.
        limit: score only the first part of every stream, about so many characters in all.
    """
    streams = Streams(text, *window_size(len(text)))
    states = model.start_states(streams.streams)
    bits, scored = 0.0, 0
    for window in streams.one_epoch(partial=True):
        loss, last = model.run(model.train_one_batch, window.inputs, window.targets, states)
        states = carried(last)
        bits, scored = bits + float(loss) / math.log(2) * window.targets.size, scored + window.targets.size
        if limit is not None and scored >= limit:
            break
    return Score(bits / scored, scored)


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
