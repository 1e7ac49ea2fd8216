"""Text from a model: one character at a time, each drawn from the model's distribution and fed back."""

from __future__ import annotations

import numpy as np

from rnnops.cli.language_model import LanguageModel, States, carried
from rnnops.types import Array


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
