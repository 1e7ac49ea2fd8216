"""One step of training after another: truncated back-propagation with carried states, clipping, Adam, averaging.

What a step does follows from the settings, the text and the state before it, never from time, so that a resumed run
takes the very steps of one that was not disturbed. The learning rate rises over the first steps and then falls with
the root of the step; no end has to be known. What is evaluated, sampled and shown is not the last parameters but their
running average over about the last 200 steps (Polyak and Juditsky 1992), which does what a decay to zero would do.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from rnnops.cli.batches import Streams, Window
from rnnops.cli.corpus import Corpus
from rnnops.cli.evaluate import Score, evaluate
from rnnops.cli.language_model import Arrays, LanguageModel
from rnnops.cli.optimizer import Adam, clip_by_global_norm
from rnnops.cli.state import TrainingState

WARM_UP, DECAY = 50, 200  # steps
AVERAGE_DECAY, AVERAGE_START = 0.995, 10
POINT_STEPS = 20  # steps in one point of the training curve
HELD_OUT_CHARACTERS = 100_000  # of one point of the held-out curve


class Trainer:
    """A model, its text, and a state that `step` moves on."""

    def __init__(self, model: LanguageModel, corpus: Corpus, state: TrainingState | None = None) -> None:
        self.model, self.corpus, self.settings = model, corpus, model.settings
        self.streams = Streams(corpus.train, self.settings.seq_length, self.settings.batch)
        self.optimizer = Adam(self.settings.learning_rate)
        self.state = state or self._start()

    @property
    def characters(self) -> int:
        """How many characters were trained on so far."""
        return self.state.step * self.streams.characters_per_window

    def step(self) -> float:
        """Train on the next window and return its bits per character, as they were before the update."""
        window = self.streams.window(self.state.step)
        bits, grads = self._gradients(window)
        self._update(grads)
        self._record(bits)
        return bits

    def evaluate(self, limit: int | None = None) -> Score:
        """Score the held-out text, or its part of about `limit` characters, with the averaged parameters."""
        return evaluate(self.model, self.state.average, self.corpus.held_out, limit)

    def record_held_out(self) -> Score:
        """Add a point to the held-out curve."""
        score = self.evaluate(HELD_OUT_CHARACTERS)
        self.state.held_out.append([self.characters, score.bits])
        return score

    def _start(self) -> TrainingState:
        params = self.model.start_params()
        carried = self.model.start_states(self.settings.batch)
        return TrainingState(params, self.optimizer.start(params), dict(params), carried)

    def _gradients(self, window: Window) -> tuple[float, Arrays]:
        state = self.state
        carried = self.model.start_states(self.settings.batch) if window.reset else state.carried
        feeds = {"characters": window.inputs, "targets": window.targets}
        seed = step_seed(self.settings.seed, state.step)
        out, pullback = self.model.loss.vjp(state.params, carried, feeds, seed=seed, wrt=list(state.params))
        grads = pullback({"loss": np.ones((), self.settings.dtype)})
        state.carried = self.model.last_states(out)
        return float(out["loss"]) / math.log(2), {name: grads[name] for name in state.params}

    def _update(self, grads: Arrays) -> None:
        state = self.state
        clipped, _ = clip_by_global_norm(grads, self.settings.clip)
        rate = self.settings.learning_rate * rate_factor(state.step)
        state.params, state.optimizer = self.optimizer.update(state.params, clipped, state.optimizer, rate)
        state.average = moved_average(state.average, state.params, state.step)

    def _record(self, bits: float) -> None:
        state = self.state
        state.step += 1
        state.recent.append(bits)
        if len(state.recent) == POINT_STEPS:
            state.training.append([self.characters, sum(state.recent) / POINT_STEPS])
            state.recent.clear()


def rate_factor(step: int) -> float:
    """What the learning rate is multiplied with in step 0, 1, ..."""
    return min(1.0, (step + 1) / WARM_UP) / math.sqrt(1 + step / DECAY)


def moved_average(average: Arrays, params: Arrays, step: int) -> Arrays:
    """The running average after step 0, 1, ...; it forgets faster at the beginning."""
    keep = min(AVERAGE_DECAY, step / (step + AVERAGE_START))
    return {name: np.asarray(keep * average[name] + (1 - keep) * value) for name, value in params.items()}


def step_seed(seed: int, step: int) -> int:
    """The seed of dropout in one step."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step}".encode()).digest()[:8], "little")
