"""A training run from its options: one step after another, and the state that a checkpoint holds.

**Checkpoints** (`TrainingState`, `Saved`). A checkpoint is a file of the model. Its user state has:

arrays    average/<name>, carried/<place>
document  program, settings, text (paths, size limit, SHA-256, alphabet), seconds, curves, baselines

**Steps** (`Trainer`): truncated back-propagation with carried states, and averaging. A step depends on the settings,
the text and the state before it, never on time. So a resumed run takes the same steps as one that was not stopped.
Evaluation, samples and pictures use the running average of parameters over about the last 200 steps (Polyak and
Juditsky 1992). It has the effect of a learning rate that decays to zero.

**Threads of NumPy's matrix products** (`limit_product_threads`): one by default. The products of one step are small. On
two idle cores a second thread makes a step 10 to 30 % faster. If another process uses that core, the library waits for
it at every product, and a step takes ten times as long. With one thread a curve also does not depend on the number of
cores.

**A session** (`open_session`) is a run that is ready to train.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rnnops.cli import language_model
from rnnops.cli.corpus import DEFAULT_BYTES, Corpus, Streams, baselines, load_text
from rnnops.cli.language_model import LanguageModel, Score, Settings, SettingsError, carried
from rnnops.errors import SaveError
from rnnops.model import store
from rnnops.model.store import Arrays, check_arrays
from rnnops.types import Array, Type, type_of
from rnnops.util import is_terminal, tqdm_or_none

PROGRAM = "rnnops train"
AVERAGE, CARRIED = "average/", "carried/"
LISTS = ("recent", "training", "held_out")


@dataclass
class TrainingState:
    """The state of a training run other than the model, and its results so far.

    Args:
        average: the parameters' running average.
        carried: the recurrent states `[1, N, H]` after the last window.
        seconds: time of training and of points of the held-out curve, without compiling.
        recent: bits per character of the steps since the last point of the training curve.
        training, held_out: curves, as pairs (characters seen, bits per character).
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
    """A checkpoint of `rnnops train`. Its arrays are not compared with a model yet.

    Args:
        state: the user state of the model's file.
    """

    path: Path
    settings: Settings
    source: TextSource
    sha256: str
    alphabet: str
    baselines: dict[str, float]
    state: Mapping[str, Any]

    def check_text(self, corpus: Corpus) -> None:
        """Raise SaveError if this is not the text that the run was trained on."""
        if corpus.sha256 != self.sha256 or corpus.alphabet != self.alphabet:
            raise SaveError(
                f"the checkpoint {self.path} was trained on another text",
                wanted=f"SHA-256 {self.sha256[:12]}...",
                came=f"{corpus.sha256[:12]}... from {corpus.source}",
                hint="Give the same TEXT and --max-bytes; a text that has changed needs a new run.",
            )

    def restore(self, model: LanguageModel) -> TrainingState:
        """Load the model's arrays. Raises SaveError if they do not fit the model."""
        model.load(self.path)
        arrays = {name: value for name, value in self.state.items() if isinstance(value, np.ndarray)}
        check_arrays(arrays, expected_arrays(model), f"the run in {self.path}", SaveError)
        average = {name: arrays[AVERAGE + name] for name in model.get_params()}
        states = tuple(arrays[f"{CARRIED}{place}"] for place in range(len(arrays) - len(average)))
        return TrainingState(average, states, self.state["seconds"], *(list(self.state[name]) for name in LISTS))


def load(path: Path) -> Saved:
    """Read a checkpoint of `rnnops train`. Raises SaveError or SettingsError for anything else."""
    _, state = store.load(path)
    if state.get("program") != PROGRAM:
        hint = "A file of Model.save is read by model.load; `run` of one of model.graphs is exported from Python."
        raise SaveError(f"{path} is the file of a model, but not one of `{PROGRAM}`", hint=hint)
    settings = language_model.read_settings(state.get("settings"))
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
HELD_OUT_CHARACTERS = 100_000  # characters that are scored for a point of the held-out curve
PROMPT = "\n"


class Trainer:
    """A model, its text, and a state that `step` moves on."""

    def __init__(self, model: LanguageModel, corpus: Corpus, state: TrainingState | None = None) -> None:
        self.model, self.corpus, self.settings = model, corpus, model.settings
        self.streams = Streams(corpus.train, self.settings.seq_length, self.settings.batch)
        self.state = state or TrainingState(model.get_params(), model.start_states(self.settings.batch))

    @property
    def characters(self) -> int:
        """The number of characters that were trained on so far."""
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
            weights: as for the function `evaluate`.
        """
        with self.model.using_params(self.state.average):
            return language_model.evaluate(self.model, self.corpus.held_out, limit, weights)

    def prepare_evaluation(self) -> None:
        """Run all nets of an evaluation once, so that they are compiled."""
        language_model.run_each_length(self.model, self.corpus.held_out)

    def record_held_out(self) -> Score:
        """Add a point to the held-out curve."""
        score = self.evaluate(HELD_OUT_CHARACTERS)
        self.state.held_out.append([self.characters, score.bits])
        return score

    def sample(self, length: int, temperature: float) -> Array:
        """Characters of a new line of text, drawn with the averaged parameters."""
        with self.model.using_params(self.state.average):
            prompt = self.corpus.encode(PROMPT)
            return language_model.sample(self.model, prompt, length, temperature, self.settings.seed)

    def _record(self, bits: float) -> None:
        state = self.state
        state.recent.append(bits)
        if len(state.recent) == POINT_STEPS:
            state.training.append([self.characters, sum(state.recent) / POINT_STEPS])
            state.recent.clear()


def moved_average(average: Arrays, params: Arrays, step: int) -> Arrays:
    """The running average after step 0, 1, ... Old values lose weight faster at the beginning."""
    keep = min(AVERAGE_DECAY, step / (step + AVERAGE_START))
    return {name: np.asarray(keep * average[name] + (1 - keep) * value) for name, value in params.items()}


def limit_product_threads(threads: int) -> bool:
    """Set the number of threads of NumPy's products. Without threadpoolctl (extra `demo`) returns False and does
    nothing."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return False
    threadpool_limits(threads, user_api="blas")
    return True


def say(text: str) -> None:
    """Print a line on standard error, above the bar if there is one."""
    tqdm = tqdm_or_none() if is_terminal() else None
    if tqdm is None:
        print(text, file=sys.stderr, flush=True)
    else:
        tqdm.write(text, file=sys.stderr)


Result = TypeVar("Result")


class Compiling:
    """Reports the compiling of nets, which happens when they run for the first time, and may take minutes.

    Args:
        say: prints a line; None on a device that compiles nothing.

    Attributes:
        seconds: time of compiling so far, with the first run of each net.
    """

    def __init__(self, say: Callable[[str], None] | None) -> None:
        self.seconds = 0.0
        self._say, self._compiled = say, set[str]()

    def run(self, what: str, function: Callable[[], Result]) -> Result:
        """Run a net. If it is the first time, print that it is compiled."""
        first = what not in self._compiled
        self._compiled.add(what)
        if self._say is None or not first:
            return function()
        self._say(f"compiling {what} ...")
        began = time.monotonic()
        result = function()
        took = time.monotonic() - began
        self.seconds += took
        self._say(f"compiled {what} in {took:.1f} s")
        return result

    def ahead(self, what: str, function: Callable[[], object]) -> None:
        """Run a net so that it is compiled and planned, unless it ran before."""
        if what not in self._compiled:
            self.run(what, function)


@dataclass(frozen=True)
class TrainOptions:
    """The command line of `rnnops train`.

    Args:
        settings: the settings that were given, by name.
        max_bytes: limit for the text; 0 for no limit, None if it was not given.
        time_limit: seconds for the whole command; None for no limit.
        steps: stop at this step, counted from the start of the run, not from the resume.
        sample: number of characters to print at the end.
        weights: the format of weights for a second score of the held-out text; None for no second score.
        threads: threads of the kernels, or of NumPy's products on the reference device; None for the default.
    """

    text: tuple[Path, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    max_bytes: int | None = None
    recompute: bool = False
    threads: int | None = None
    time_limit: float | None = None
    steps: int | None = None
    save: Path | None = None
    resume: Path | None = None
    checkpoint_every: float = 10.0
    sample: int = 0
    temperature: float = 0.7
    plot: Path | None = None
    weights: str | None = None


@dataclass
class TrainingSession:
    """A run that is ready to train.

    Args:
        tables: the baselines, which are computed during the training.
        target: the checkpoint file; None if there is none.
        compiling: reports compiling.
    """

    settings: Settings
    source: TextSource
    corpus: Corpus
    trainer: Trainer
    tables: Future[dict[str, float]]
    target: Path | None
    saved_at: float = field(default_factory=time.monotonic)
    compiling: Compiling = field(init=False)

    def __post_init__(self) -> None:
        self.compiling = Compiling(None if self.settings.device == "reference" else say)

    def save(self) -> None:
        """Write the checkpoint, if one is wanted. An old file is replaced as a whole or not at all."""
        if self.target is None:
            return
        model, state, source = self.trainer.model, self.trainer.state, self.source
        text = {"paths": list(source.paths), "max_bytes": source.max_bytes}
        document = {
            "program": PROGRAM,
            "settings": model.settings.as_dict(),
            "text": {**text, "sha256": self.corpus.sha256, "alphabet": self.corpus.alphabet},
            **{name: getattr(state, name) for name in ("seconds", *LISTS)},
            "baselines": self.tables.result() if self.tables.done() else {},
        }
        average = {AVERAGE + name: array for name, array in state.average.items()}
        states = {f"{CARRIED}{place}": array for place, array in enumerate(state.carried)}
        model.save(self.target, {**document, **average, **states})
        self.saved_at = time.monotonic()

    def save_if_due(self, every: float) -> None:
        """Write the checkpoint if the last one is `every` seconds old."""
        if time.monotonic() - self.saved_at >= every:
            self.save()


def open_session(options: TrainOptions, tell: Callable[[Corpus], None]) -> TrainingSession:
    """Read the checkpoint to resume, or start anew. Reads the text and builds the model.

    Args:
        tell: called with the text when it is read.

    Raises an RnnopsError for anything that does not fit, before training begins.
    """
    if options.resume is not None:
        return _resumed(options, load(options.resume), tell)
    if options.save is not None:
        _check_target(options.save)
    settings = Settings(**options.settings)
    source = TextSource(_absolute(options.text), _byte_limit(options.max_bytes))
    corpus = _read(source)
    tell(corpus)
    model = _model(settings, corpus, options)
    return TrainingSession(settings, source, corpus, Trainer(model, corpus), _compute_tables(corpus), options.save)


def _model(settings: Settings, corpus: Corpus, options: TrainOptions) -> LanguageModel:
    limit_product_threads((options.threads or 1) if settings.device == "reference" else 1)
    return LanguageModel(settings, len(corpus.alphabet), options.recompute, options.threads)


def _resumed(options: TrainOptions, saved: Saved, tell: Callable[[Corpus], None]) -> TrainingSession:
    _check_own_cell(options, saved.settings)
    language_model.check_agreement(saved.settings, options.settings)
    paths = _absolute(options.text) or saved.source.paths
    limit = saved.source.max_bytes if options.max_bytes is None else _byte_limit(options.max_bytes)
    source = TextSource(paths, limit)
    corpus = _read(source)
    saved.check_text(corpus)
    tell(corpus)
    model = _model(saved.settings, corpus, options)
    trainer = Trainer(model, corpus, saved.restore(model))
    tables = _known(saved.baselines) if saved.baselines else _compute_tables(corpus)
    return TrainingSession(saved.settings, source, corpus, trainer, tables, options.save or saved.path)


def _check_own_cell(options: TrainOptions, settings: Settings) -> None:
    """Raise SettingsError unless the command line names the checkpoint's own cell: a file never decides which code
    runs.
    """
    if language_model.is_own(settings.cell) and "cell" not in options.settings:
        hint = f"Give --cell {settings.cell} again: code is imported only where the command line names it."
        raise SettingsError(f"the checkpoint {options.resume} has a cell of your own", hint=hint)


def _check_target(path: Path) -> None:
    """Raise SaveError if saving would overwrite a file that is not a checkpoint."""
    if path.exists() and path.stat().st_size > 0:
        try:
            store.load(path)
        except SaveError as error:
            hint = "Choose another name for --save, or remove the file."
            raise SaveError(f"{path} exists and would be overwritten: {error.problem}", hint=hint) from error


def _absolute(paths: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(os.path.abspath(path) for path in paths)


def _byte_limit(given: int | None) -> int | None:
    return DEFAULT_BYTES if given is None else given or None


def _read(source: TextSource) -> Corpus:
    return load_text([Path(path) for path in source.paths], source.max_bytes)


def _compute_tables(corpus: Corpus) -> Future[dict[str, float]]:
    """Start the tables and compressors in another thread. Most of their work does not hold Python's lock."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(baselines, corpus)
    pool.shutdown(wait=False)
    return future


def _known(tables: dict[str, float]) -> Future[dict[str, float]]:
    future: Future[dict[str, float]] = Future()
    future.set_result(tables)
    return future
