"""`rnnops train`: the training loop, and what follows it."""

from __future__ import annotations

import time

from rnnops.cli import report
from rnnops.cli.language_model import SettingsError
from rnnops.cli.progress import Progress, show_progress
from rnnops.cli.report import check_plot, save_learning_curve
from rnnops.cli.session import Clock, StopSignals, TrainingSession, TrainOptions, open_session

SAMPLE_SECONDS, PLOT_SECONDS, OTHER_SECONDS = 0.003, 2.0, 0.7  # what the end takes: by character, and as a whole


def train(options: TrainOptions, started: float | None = None) -> int:
    """Train, save, evaluate, sample and plot as the options say; return the exit code."""
    if options.plot is not None:
        check_plot(options.plot)
    clock = Clock(options.time_limit, _closing_seconds(options), started)
    session = open_session(options, report.print_text)
    _check_weights(session, options)
    report.print_model(session)
    session.save()
    with StopSignals() as signals:
        reason = train_until(session, options, clock, signals)
        session.save()
    report.print_training(session, reason)
    finish(session, options)
    return 0


def train_until(session: TrainingSession, options: TrainOptions, clock: Clock, signals: StopSignals) -> str:
    """Train until something says stop, and say what did."""
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
    """Print the held-out figure beside the tables' and a sample, and draw the curves."""
    trainer = session.trainer
    _compile_evaluation(session)
    score, tables = trainer.evaluate(), session.tables.result()
    rounded = trainer.evaluate(weights=options.weights) if options.weights else None
    report.print_held_out(score, tables, rounded)
    if options.sample:
        _compile_sampling(session)
        drawn = trainer.sample(options.sample, options.temperature)
        report.print_sample(session.corpus.decode(drawn), options.temperature)
    if options.plot is not None:
        held_out = [*trainer.state.held_out, [trainer.characters, score.bits]]
        save_learning_curve(options.plot, trainer.state.training, held_out, tables, report.model_text(session))
        report.show(f"curves: {options.plot}")


def _check_weights(session: TrainingSession, options: TrainOptions) -> None:
    settings = session.settings
    if options.weights and (settings.dtype, settings.precision) != ("float32", "float32"):
        came = f"--dtype {settings.dtype} --precision {settings.precision}"
        raise SettingsError(f"--weights {options.weights} is for float32 alone", wanted="both float32", came=came)


def _timed_step(session: TrainingSession, clock: Clock, progress: Progress) -> float:
    """One step of training and, where it is time, a point of the held-out curve."""
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
    """Compile what the end runs, and tell the clock what its evaluation will take, from one window of it."""
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
