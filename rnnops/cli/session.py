"""A training run from its options: its progress on standard error, and when it stops.

**How many threads NumPy's matrix products use**. The products of one step are small: on two idle cores a second thread
makes a step 10 to 30 % faster, and where another process holds that core the library waits for it at every product and
a step takes ten times as long. One thread also makes a curve independent of how many cores there are.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

from rnnops.cli import trainer as states
from rnnops.cli.corpus import DEFAULT_BYTES, Corpus, baselines, load_text
from rnnops.cli.language_model import LanguageModel, Settings, SettingsError, check_agreement, is_own
from rnnops.cli.trainer import TextSource, Trainer
from rnnops.errors import SaveError
from rnnops.model import store
from rnnops.util import is_terminal, tqdm_or_none


def limit_product_threads(threads: int) -> bool:
    """Set the number of threads; False, and nothing done, without threadpoolctl, which comes with the extra `demo`."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return False
    threadpool_limits(threads, user_api="blas")
    return True


Result = TypeVar("Result")


class Compiling:
    """Nets that are compiled when they run for the first time, which takes from seconds to minutes.

    Args:
        say: prints a line; None on a device that compiles nothing.
        seconds: that compiling took so far, with the first run of each net.
    """

    def __init__(self, say: Callable[[str], None] | None) -> None:
        self.seconds = 0.0
        self._say, self._compiled = say, set[str]()

    def run(self, what: str, function: Callable[[], Result]) -> Result:
        """Run a net, and if it is for the first time, say so."""
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


LINE_SECONDS = 10.0
BITS_STEPS = 50  # the bits shown are the mean of so many steps


class Lines:
    """A line every few seconds.

    Args:
        done: characters that were seen before.
        seconds: between two lines.
    """

    def __init__(self, done: int = 0, seconds: float = LINE_SECONDS) -> None:
        self.done, self.seconds = done, seconds
        self._last = time.monotonic(), done
        self._bits: deque[float] = deque(maxlen=BITS_STEPS)

    def advance(self, characters: int, bits: float) -> None:
        self.done += characters
        self._bits.append(bits)
        now, (then, before) = time.monotonic(), self._last
        if now - then >= self.seconds:
            rate = (self.done - before) / (now - then)
            self.say(f"{self.done:,} characters, {rate:,.0f} a second, {mean(self._bits):.3f} bits per character")
            self._last = now, self.done

    def say(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        pass


class Bar:
    """A tqdm bar that counts characters."""

    def __init__(self, tqdm: Any, done: int, total: int | None) -> None:
        self._bar = tqdm(initial=done, total=total, unit=" characters", unit_scale=True, mininterval=0.5, leave=False)
        self._bits: deque[float] = deque(maxlen=BITS_STEPS)

    def advance(self, characters: int, bits: float) -> None:
        self._bits.append(bits)
        self._bar.set_postfix_str(f"{mean(self._bits):.3f} bits per character", refresh=False)
        self._bar.update(characters)

    def say(self, text: str) -> None:
        self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        self._bar.close()


Progress = Lines | Bar


def show_progress(done: int = 0, total: int | None = None) -> Progress:
    """A bar or lines, for `total` characters, some of them done."""
    tqdm = tqdm_or_none()
    return Bar(tqdm, done, total) if tqdm is not None and is_terminal() else Lines(done)


def say(text: str) -> None:
    """Print a line on standard error, above the bar if there is one."""
    tqdm = tqdm_or_none() if is_terminal() else None
    if tqdm is None:
        print(text, file=sys.stderr, flush=True)
    else:
        tqdm.write(text, file=sys.stderr)


def mean(values: deque[float]) -> float:
    return sum(values) / len(values)


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
        closing: seconds that the end takes besides the evaluation.
    """

    def __init__(self, limit: float | None, closing: float = 0.0, started: float | None = None) -> None:
        self.started = time.monotonic() if started is None else started
        self.limit, self.closing, self.evaluation = limit, closing, 0.0

    def expect_evaluation(self, seconds: float) -> None:
        """Keep time for an evaluation that is expected to take so long; the latest figure counts."""
        self.evaluation = seconds

    def is_over(self) -> bool:
        """True if what is left is needed for the end."""
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
        tables: what the model is compared with, computed during the training.
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
    """A file's word never decides by itself which code is run."""
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
