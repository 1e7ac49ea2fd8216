"""One step of training after another: truncated back-propagation with carried states, and averaging.

What a step does follows from the settings, the text and the state before it, never from time, so that a resumed run
takes the very steps of one that was not disturbed. What is evaluated, sampled and shown is not the last parameters but
their running average over about the last 200 steps (Polyak and Juditsky 1992), which does what a learning rate that
decays to zero would do.
"""

from __future__ import annotations

import math

import numpy as np

from rnnops.cli.batches import Streams
from rnnops.cli.corpus import Corpus
from rnnops.cli.evaluate import Score, evaluate, run_each_length
from rnnops.cli.language_model import LanguageModel, carried
from rnnops.cli.sample import sample
from rnnops.cli.state import TrainingState
from rnnops.model.arrays import Arrays
from rnnops.types import Array

AVERAGE_DECAY, AVERAGE_START = 0.995, 10
POINT_STEPS = 20  # steps in one point of the training curve
HELD_OUT_CHARACTERS = 100_000  # of one point of the held-out curve
PROMPT = "\n"


class Trainer:
    """A model, its text, and a state that `step` moves on."""

    def __init__(self, model: LanguageModel, corpus: Corpus, state: TrainingState | None = None) -> None:
        self.model, self.corpus, self.settings = model, corpus, model.settings
        self.streams = Streams(corpus.train, self.settings.seq_length, self.settings.batch)
        self.state = state or TrainingState(model.get_params(), model.start_states(self.settings.batch))

    @property
    def characters(self) -> int:
        """How many characters were trained on so far."""
        return self.model.step_count * self.streams.characters_per_window

    def step(self) -> float:
        """Train on the next window and return its bits per character, as they were before the update."""
        state, step = self.state, self.model.step_count
        window = self.streams.window(step)
        states = self.model.start_states(self.settings.batch) if window.reset else state.carried
        loss, last = self.model(window.inputs, window.targets, states)
        state.carried = carried(last)
        state.average = moved_average(state.average, self.model.get_params(), step)
        bits = float(loss) / math.log(2)
        self._record(bits)
        return bits

    def evaluate(self, limit: int | None = None, weights: str | None = None) -> Score:
        """Score the held-out text, or its part of about `limit` characters, with the averaged parameters.

        Args:
            weights: as of `evaluate`.
        """
        with self.model.using_params(self.state.average):
            return evaluate(self.model, self.corpus.held_out, limit, weights)

    def prepare_evaluation(self) -> None:
        """Run what an evaluation runs, so that it is compiled."""
        run_each_length(self.model, self.corpus.held_out)

    def record_held_out(self) -> Score:
        """Add a point to the held-out curve."""
        score = self.evaluate(HELD_OUT_CHARACTERS)
        self.state.held_out.append([self.characters, score.bits])
        return score

    def sample(self, length: int, temperature: float) -> Array:
        """Characters that follow the beginning of a line, drawn with the averaged parameters."""
        with self.model.using_params(self.state.average):
            return sample(self.model, self.corpus.encode(PROMPT), length, temperature, self.settings.seed)

    def _record(self, bits: float) -> None:
        state = self.state
        state.recent.append(bits)
        if len(state.recent) == POINT_STEPS:
            state.training.append([self.characters, sum(state.recent) / POINT_STEPS])
            state.recent.clear()


def moved_average(average: Arrays, params: Arrays, step: int) -> Arrays:
    """The running average after step 0, 1, ...; it forgets faster at the beginning."""
    keep = min(AVERAGE_DECAY, step / (step + AVERAGE_START))
    return {name: np.asarray(keep * average[name] + (1 - keep) * value) for name, value in params.items()}
