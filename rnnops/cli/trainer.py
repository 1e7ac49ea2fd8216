"""One training step after another, and the state that a checkpoint holds.

**The state of a training run besides its model, and the place of both in a checkpoint**. A checkpoint is a file of
the model. Its user state holds here:

arrays    average/<name>, carried/<place>
document  program, settings, text (paths, size limit, SHA-256, alphabet), seconds, curves, baselines

**One step of training after another**: truncated back-propagation with carried states, and averaging. What a step does
follows from the settings, the text and the state before it, never from time, so that a resumed run takes the very steps
of one that was not disturbed. What is evaluated, sampled and shown is not the last parameters but their running average
over about the last 200 steps (Polyak and Juditsky 1992), which does what a learning rate that decays to zero would do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnnops.cli.corpus import Corpus, Streams
from rnnops.cli.language_model import (
    LanguageModel,
    Score,
    Settings,
    carried,
    evaluate,
    read_settings,
    run_each_length,
    sample,
)
from rnnops.errors import SaveError
from rnnops.model import store
from rnnops.model.store import Arrays, check_arrays
from rnnops.types import Array, Type, type_of

PROGRAM = "rnnops train"
AVERAGE, CARRIED = "average/", "carried/"
LISTS = ("recent", "training", "held_out")


@dataclass
class TrainingState:
    """The state of a training run other than the model, and its results so far.

    Args:
        average: the parameters' running average.
        carried: the recurrent states `[1, N, H]` after the last window.
        seconds: spent on training and on points of the held-out curve, without compiling.
        recent: bits per character of the steps since the training curve's last point.
        training, held_out: curves, pairs of characters seen and bits per character.
    """

    average: Arrays
    carried: tuple[Array, ...]
    seconds: float = 0.0
    recent: list[float] = field(default_factory=list)
    training: list[list[float]] = field(default_factory=list)
    held_out: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class TextSource:
    """Where a text was read from: paths (none: the default text) and the size limit in bytes (None: none)."""

    paths: tuple[str, ...] = ()
    max_bytes: int | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint of `rnnops train` whose arrays are not checked against a model yet.

    Args:
        state: what the model's file holds of the user's.
    """

    path: Path
    settings: Settings
    source: TextSource
    sha256: str
    alphabet: str
    baselines: dict[str, float]
    state: Mapping[str, Any]

    def check_text(self, corpus: Corpus) -> None:
        """Raise SaveError where the text is not the one that the run was trained on."""
        if corpus.sha256 != self.sha256 or corpus.alphabet != self.alphabet:
            raise SaveError(
                f"the checkpoint {self.path} was trained on another text",
                wanted=f"SHA-256 {self.sha256[:12]}...",
                came=f"{corpus.sha256[:12]}... from {corpus.source}",
                hint="Give the same TEXT and --max-bytes; a text that has changed needs a new run.",
            )

    def restore(self, model: LanguageModel) -> TrainingState:
        """Load the model. Raises SaveError where arrays are not those of the model."""
        model.load(self.path)
        arrays = {name: value for name, value in self.state.items() if isinstance(value, np.ndarray)}
        check_arrays(arrays, expected_arrays(model), f"the run in {self.path}", SaveError)
        average = {name: arrays[AVERAGE + name] for name in model.get_params()}
        states = tuple(arrays[f"{CARRIED}{place}"] for place in range(len(arrays) - len(average)))
        return TrainingState(average, states, self.state["seconds"], *(list(self.state[name]) for name in LISTS))


def save(
    path: Path,
    model: LanguageModel,
    state: TrainingState,
    corpus: Corpus,
    source: TextSource,
    tables: Mapping[str, float],
) -> None:
    """Write a checkpoint; the file holds the old or the new one, whatever happens."""
    text = {"paths": list(source.paths), "max_bytes": source.max_bytes}
    document = {
        "program": PROGRAM,
        "settings": model.settings.as_dict(),
        "text": {**text, "sha256": corpus.sha256, "alphabet": corpus.alphabet},
        **{name: getattr(state, name) for name in ("seconds", *LISTS)},
        "baselines": dict(tables),
    }
    average = {AVERAGE + name: array for name, array in state.average.items()}
    states = {f"{CARRIED}{place}": array for place, array in enumerate(state.carried)}
    model.save(path, {**document, **average, **states})


def load(path: Path) -> Saved:
    """Read a checkpoint of `rnnops train`. Raises SaveError or SettingsError for anything else."""
    _, state = store.load(path)
    if state.get("program") != PROGRAM:
        raise SaveError(f"{path} is the file of a model, but not one of `{PROGRAM}`")
    settings = read_settings(state.get("settings"))
    if not _is_complete(state):
        raise SaveError(f"{path} is not a checkpoint of `{PROGRAM}`: its document is not complete")
    text = state["text"]
    source = TextSource(tuple(text["paths"]), text["max_bytes"])
    return Saved(path, settings, source, text["sha256"], text["alphabet"], state["baselines"], state)


def expected_arrays(model: LanguageModel) -> dict[str, Type]:
    """The arrays of a run of this model."""
    states = enumerate(model.start_states(model.settings.batch))
    average = {AVERAGE + name: type_of(array) for name, array in model.get_params().items()}
    return average | {f"{CARRIED}{place}": type_of(array) for place, array in states}


def _is_complete(document: Mapping[str, Any]) -> bool:
    """True if a document has all fields of a training state, each of its type."""
    text, tables = document.get("text"), document.get("baselines")
    return (
        type(document.get("seconds")) is float
        and _are_numbers(document.get("recent"))
        and _is_curve(document.get("training"))
        and _is_curve(document.get("held_out"))
        and isinstance(tables, dict)
        and _are_numbers(list(tables.values()))
        and isinstance(text, dict)
        and _is_text(text)
    )


def _is_text(text: Mapping[str, Any]) -> bool:
    paths, limit = text.get("paths"), text.get("max_bytes")
    strings = [text.get("sha256"), text.get("alphabet"), *(paths if isinstance(paths, list) else [None])]
    return all(isinstance(value, str) for value in strings) and (limit is None or type(limit) is int)


def _are_numbers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) in (int, float) and np.isfinite(value) for value in values)


def _is_curve(points: object) -> bool:
    return isinstance(points, list) and all(_are_numbers(point) and len(point) == 2 for point in points)


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
