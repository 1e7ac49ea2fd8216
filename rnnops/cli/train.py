"""`rnnops train`: report, learning curve, progress on standard error, conditions to stop, and the training loop."""

from __future__ import annotations

import importlib.util
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from rnnops.cli.corpus import Corpus
from rnnops.cli.language_model import Score, SettingsError
from rnnops.cli.trainer import TrainingSession, TrainOptions, open_session, say
from rnnops.errors import RnnopsError
from rnnops.util import is_terminal, tqdm_or_none

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OWN_NAME, ROUNDED_NAME = "this model", "this model, int8"


def show(text: str) -> None:
    """Print a text; characters that the terminal's encoding does not have become question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)


def print_text(corpus: Corpus) -> None:
    """Print the facts of the text."""
    show(f"text: {corpus.source}")
    sizes = f"{len(corpus.train):,} to train on, {len(corpus.held_out):,} held out, {len(corpus.alphabet)} different"
    show(f"characters: {sizes}")


def print_model(session: TrainingSession) -> None:
    """Print the facts of the model."""
    step, arrays = session.trainer.model.step_count, session.trainer.model.arrays
    show(f"model: {model_text(session)}, {sum(array.size for array in arrays.values()):,} parameters")
    if step:
        show(f"resumed: step {step:,}, {session.trainer.characters:,} characters seen")


def print_training(session: TrainingSession, reason: str) -> None:
    """Print what was trained, how long it took, and why it stopped."""
    trainer, compiling = session.trainer, session.compiling.seconds
    characters, seconds = trainer.characters, trainer.state.seconds
    timed = characters - (trainer.streams.characters_per_window if compiling else 0)
    rate = f", {timed / seconds:,.0f} characters a second" if timed and seconds else ""
    compiled = f"; compiling, with the first step, took {compiling:.1f} s" if compiling else ""
    steps = trainer.model.step_count
    show(f"stopped {reason}: {steps:,} steps, {characters:,} characters in {seconds:.1f} s{rate}{compiled}")
    if session.target is not None:
        show(f"saved: {session.target}")


def print_held_out(score: Score, tables: Mapping[str, float], rounded: Score | None = None) -> None:
    """Print the model's bits per held-out character among those of tables and compressors, worst first.

    Args:
        rounded: the score of the model with weights of int8.
    """
    show(f"\nbits per held-out character ({score.characters:,} characters)")
    own = {OWN_NAME: score.bits} | ({ROUNDED_NAME: rounded.bits} if rounded else {})
    digits = 4 if rounded else 3  # the two scores differ in the fourth digit
    rows = sorted({**tables, **own}.items(), key=lambda row: -row[1])
    for name, bits in rows:
        kind = " characters" if name.startswith("order") else ""
        show(f"  {name + kind:<20}{bits:{digits + 4}.{digits}f}{'  <--' if name in own else ''}")


def model_text(session: TrainingSession) -> str:
    """`gru, 2 layers of 128`, with the format that products are rounded to, if they are."""
    settings = session.settings
    products = "" if settings.precision == "float32" else f", products of {settings.precision}"
    layers = "1 layer" if settings.layers == 1 else f"{settings.layers} layers"
    return f"{settings.cell}, {layers} of {settings.hidden}{products}"


Curve: TypeAlias = Sequence[Sequence[float]]  # pairs of characters seen and bits per character
BASELINE_COLORS = ("tab:green", "tab:purple", "tab:brown", "tab:cyan", "tab:olive", "tab:gray")


class PlotError(RnnopsError):
    """A plot cannot be drawn or written."""


def check_plot(path: Path) -> None:
    """Raise PlotError early, before the training, if a plot cannot be drawn or its directory does not exist."""
    if importlib.util.find_spec("matplotlib") is None:
        raise _missing()
    if not path.resolve().parent.is_dir():
        raise PlotError(f"the plot {path} cannot be written: its directory does not exist")


def save_learning_curve(
    path: Path | str, training: Curve, held_out: Curve, baselines: Mapping[str, float], title: str = ""
) -> None:
    """Draw bits per character against characters seen, with a horizontal line for each baseline."""
    if not training and not held_out:
        raise PlotError("there is nothing to plot", wanted="at least one point of training or held-out text")
    figure, axes = _figure()
    _draw(axes, training, held_out, baselines)
    axes.set_title(title)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise PlotError(f"the plot {path} cannot be written ({error})") from error


def _figure() -> tuple[Figure, Axes]:
    """Return a figure of the Agg backend, without pyplot and its global state."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError as error:
        raise _missing() from error
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.xaxis.set_major_formatter(EngFormatter())
    return figure, axes


def _missing() -> PlotError:
    hint = "Install it: pip install matplotlib"
    return PlotError("drawing needs matplotlib, which the extra `demo` installs", hint=hint)


def _draw(axes: Axes, training: Curve, held_out: Curve, baselines: Mapping[str, float]) -> None:
    if training:
        axes.plot(*_columns(training), color="tab:blue", alpha=0.5, linewidth=1, label="training")
    if held_out:
        label = f"held out: {held_out[-1][1]:.3f}"
        axes.plot(*_columns(held_out), color="tab:red", marker=".", linewidth=1.5, label=label)
    ranked = sorted(baselines.items(), key=lambda item: -item[1])
    for place, (name, bits) in enumerate(ranked):
        color = BASELINE_COLORS[place % len(BASELINE_COLORS)]
        axes.axhline(bits, color=color, linestyle="--", linewidth=1, label=f"{name}: {bits:.3f}")
    axes.set_xlabel("characters seen")
    axes.set_ylabel("bits per character")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize="small")


def _columns(curve: Curve) -> tuple[list[float], list[float]]:
    return [point[0] for point in curve], [point[1] for point in curve]


LINE_SECONDS = 10.0
BITS_STEPS = 50  # the shown bits are the mean of the last 50 steps


class Lines:
    """Progress as a line every few seconds.

    Args:
        done: number of characters that were seen before.
        seconds: seconds between two lines.
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


def mean(values: deque[float]) -> float:
    return sum(values) / len(values)


SAFETY = 1.25  # an evaluation may take 1.25 times as long as expected
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """A context in which the first Ctrl-C or SIGTERM sets `received`, and the second raises KeyboardInterrupt.

    It does nothing outside of the main thread, because Python allows no handlers there.
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
    """The time limit of a command, from its start, minus the time that its end will take.

    Args:
        limit: seconds; None for no limit.
        closing: seconds that the end takes without the evaluation.
    """

    def __init__(self, limit: float | None, closing: float = 0.0, started: float | None = None) -> None:
        self.started = time.monotonic() if started is None else started
        self.limit, self.closing, self.evaluation = limit, closing, 0.0

    def expect_evaluation(self, seconds: float) -> None:
        """Reserve time for the evaluation at the end. The latest figure counts."""
        self.evaluation = seconds

    def is_over(self) -> bool:
        """True if the rest of the time is needed for the end."""
        if self.limit is None:
            return False
        return time.monotonic() - self.started + SAFETY * self.evaluation + self.closing >= self.limit


SAMPLE_SECONDS, PLOT_SECONDS, OTHER_SECONDS = 0.003, 2.0, 0.7  # times of the end; the first is for each character


def train(options: TrainOptions, started: float | None = None) -> int:
    """Train, save, evaluate, sample and plot as the options say; return the exit code."""
    if options.plot is not None:
        check_plot(options.plot)
    clock = Clock(options.time_limit, _closing_seconds(options), started)
    session = open_session(options, print_text)
    _check_weights(session, options)
    print_model(session)
    session.save()
    with StopSignals() as signals:
        reason = train_until(session, options, clock, signals)
        session.save()
    print_training(session, reason)
    finish(session, options)
    return 0


def train_until(session: TrainingSession, options: TrainOptions, clock: Clock, signals: StopSignals) -> str:
    """Train until a condition to stop holds. Returns this condition in words."""
    trainer = session.trainer
    size = trainer.streams.characters_per_window
    progress = show_progress(trainer.characters, None if options.steps is None else options.steps * size)
    _prepare_end(session, options, clock)
    try:
        while options.steps is None or trainer.model.step_count < options.steps:
            bits = _timed_step(session, clock, progress)
            progress.advance(size, bits)
            session.save_if_due(options.checkpoint_every)
            if signals.received:
                return "on request"
            if clock.is_over():
                return "at the time limit"
    finally:
        progress.close()
    return "after the last step"


def finish(session: TrainingSession, options: TrainOptions) -> None:
    """Print the held-out figures of the model and of the tables, and a sample, and draw the curves."""
    trainer = session.trainer
    _compile_evaluation(session)
    score, tables = trainer.evaluate(), session.tables.result()
    rounded = trainer.evaluate(weights=options.weights) if options.weights else None
    print_held_out(score, tables, rounded)
    if options.sample:
        _compile_sampling(session)
        drawn = trainer.sample(options.sample, options.temperature)
        text = session.corpus.decode(drawn)
        show(f"\nsample of {len(text):,} characters at temperature {options.temperature:g}:\n{text}")
    if options.plot is not None:
        held_out = [*trainer.state.held_out, [trainer.characters, score.bits]]
        save_learning_curve(options.plot, trainer.state.training, held_out, tables, model_text(session))
        show(f"curves: {options.plot}")


def _check_weights(session: TrainingSession, options: TrainOptions) -> None:
    settings = session.settings
    if options.weights and (settings.dtype, settings.precision) != ("float32", "float32"):
        came = f"--dtype {settings.dtype} --precision {settings.precision}"
        raise SettingsError(f"--weights {options.weights} is only for float32", wanted="both float32", came=came)


def _timed_step(session: TrainingSession, clock: Clock, progress: Progress) -> float:
    """One step of training and, if it is due, a point of the held-out curve."""
    state, began, compiled = session.trainer.state, time.monotonic(), session.compiling.seconds
    bits = session.compiling.run("a step of training", session.trainer.step)
    if (step := session.trainer.model.step_count) % session.settings.evaluate_every == 0:
        _compile_evaluation(session)
        held_out = _timed_point(session, clock)
        progress.say(f"step {step:,}: {held_out:.3f} held-out bits per character")
    state.seconds += time.monotonic() - began - (session.compiling.seconds - compiled)
    return bits


def _timed_point(session: TrainingSession, clock: Clock) -> float:
    began = time.monotonic()
    score = session.trainer.record_held_out()
    clock.expect_evaluation((time.monotonic() - began) * len(session.corpus.held_out) / score.characters)
    return score.bits


def _compile_evaluation(session: TrainingSession) -> None:
    session.compiling.ahead("the evaluation", session.trainer.prepare_evaluation)


def _compile_sampling(session: TrainingSession) -> None:
    session.compiling.ahead("the sampling", lambda: session.trainer.sample(1, temperature=0.0))


def _prepare_end(session: TrainingSession, options: TrainOptions, clock: Clock) -> None:
    """Compile the runs of the end. One timed window tells the clock how long the evaluation will take."""
    if clock.limit is None:
        return
    if options.sample:
        _compile_sampling(session)
    _compile_evaluation(session)
    began = time.monotonic()
    score = session.trainer.evaluate(limit=1)
    clock.expect_evaluation((time.monotonic() - began) * len(session.corpus.held_out) / score.characters)


def _closing_seconds(options: TrainOptions) -> float:
    plot = PLOT_SECONDS if options.plot is not None else 0.0
    return OTHER_SECONDS + plot + SAMPLE_SECONDS * options.sample
