"""A training run from its options, and when it stops.

When training stops: enough steps, the time limit, or a signal that asks for it.

A training run from its options: new or resumed, with its text, its model, its trainer and its checkpoint file.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from rnnops.cli import trainer as states
from rnnops.cli.corpus import DEFAULT_BYTES, Corpus, baselines, load_text
from rnnops.cli.language_model import LanguageModel, Settings, SettingsError, check_agreement, is_own
from rnnops.cli.progress import Compiling, limit_product_threads, say
from rnnops.cli.trainer import TextSource, Trainer
from rnnops.errors import SaveError
from rnnops.model import store

SAFETY = 1.25  # an evaluation may take so much longer than expected
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """While it is entered, the first Ctrl-C or SIGTERM sets `received` and the second raises KeyboardInterrupt.

    Outside the main thread, where Python allows no handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True


class Clock:
    """The time limit of a command, counted from its start, less what its end will take.

    Args:
        limit: in seconds, None for none.
        closing: seconds that the end takes beside the evaluation.
    """

    def __init__(self, limit: float | None, closing: float = 0.0, started: float | None = None) -> None:
        self.started = time.monotonic() if started is None else started
        self.limit, self.closing, self.evaluation = limit, closing, 0.0

    def expect_evaluation(self, seconds: float) -> None:
        """Keep time for an evaluation that is expected to take so long; the latest figure counts."""
        self.evaluation = seconds

    def is_over(self) -> bool:
        """Whether what is left is needed for the end."""
        if self.limit is None:
            return False
        return time.monotonic() - self.started + SAFETY * self.evaluation + self.closing >= self.limit


@dataclass(frozen=True)
class TrainOptions:
    """The command line of `rnnops train`.

    Args:
        settings: those settings that were given, by name.
        max_bytes: of text, 0 for no limit, None where it was not given.
        time_limit: seconds for the whole command, None for no limit.
        steps: stop at this step, counted from the run's start, not from the resume.
        sample: how many characters to print at the end.
        weights: how the weights of products are kept where the held-out text is scored a second time; None for once.
        threads: of the kernels, or of NumPy's products on the reference device; None for the device's default.
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
        tables: what the model is compared with, computed beside the training.
        target: the checkpoint file, None for none.
        compiling: says what is compiled; nothing is on the reference device.
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
        """Write the checkpoint, where there is to be one."""
        if self.target is not None:
            tables = self.tables.result() if self.tables.done() else {}
            states.save(self.target, self.trainer.model, self.trainer.state, self.corpus, self.source, tables)
            self.saved_at = time.monotonic()

    def save_if_due(self, every: float) -> None:
        """Write the checkpoint if the last one is so many seconds old."""
        if time.monotonic() - self.saved_at >= every:
            self.save()


def open_session(options: TrainOptions, tell: Callable[[Corpus], None]) -> TrainingSession:
    """Read the checkpoint to resume, or start anew; read the text and build the model.

    Args:
        tell: called with the text once it is read.

    Raises an RnnopsError for whatever does not fit, before anything is computed.
    """
    if options.resume is not None:
        return _resumed(options, states.load(options.resume), tell)
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


def _resumed(options: TrainOptions, saved: states.Saved, tell: Callable[[Corpus], None]) -> TrainingSession:
    _check_own_cell(options, saved.settings)
    check_agreement(saved.settings, options.settings)
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
    """A file's word alone never decides which code is run."""
    if is_own(settings.cell) and "cell" not in options.settings:
        hint = f"Give --cell {settings.cell} again: code is imported only where the command line names it."
        raise SettingsError(f"the checkpoint {options.resume} has a cell of your own", hint=hint)


def _check_target(path: Path) -> None:
    """Raise SaveError where saving would overwrite something else."""
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
    """Start the tables and compressors in a thread of their own; most of their time is spent without Python's lock."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(baselines, corpus)
    pool.shutdown(wait=False)
    return future


def _known(tables: dict[str, float]) -> Future[dict[str, float]]:
    future: Future[dict[str, float]] = Future()
    future.set_result(tables)
    return future
