"""The parts of `rnnops train`: nets, evaluation, sampling, schedule, average, stopping, progress."""

from __future__ import annotations

import math
import re
import signal
import threading
from typing import Any

import numpy as np
import pytest

from rnnops.cli import train
from rnnops.cli.corpus import Corpus, corpus_of
from rnnops.cli.language_model import LanguageModel, Settings, draw, evaluate, run_each_length, sample, window_size
from rnnops.cli.train import Bar, Clock, Lines, StopSignals, show_progress
from rnnops.cli.trainer import Trainer, moved_average
from rnnops.testing import check_gradient

SETTINGS = Settings(device="reference", hidden=5, batch=3, seq_length=4, dtype="float64", dropout=0.4, layers=2)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    generator = np.random.default_rng(3)
    return corpus_of("".join("abcde fgh\n"[i] for i in generator.integers(0, 10, 3000)))


@pytest.fixture
def model(corpus: Corpus) -> LanguageModel:
    return LanguageModel(SETTINGS, len(corpus.alphabet))


def test_gradient_of_the_whole_model(model: LanguageModel, corpus: Corpus) -> None:
    window = corpus.train[:13].astype(np.int32)
    states = {f"states_{place}": state for place, state in enumerate(model.start_states(3))}
    feeds = {"characters": window[:-1].reshape(4, 3), "targets": window[1:].reshape(4, 3), **states, **model.arrays}
    check_gradient(model.graphs["train_one_batch"].traced.net, feeds, seed=1, sample=3)


def test_a_model_that_knows_nothing_pays_for_every_symbol_the_same(model: LanguageModel, corpus: Corpus) -> None:
    model.set_params({name: np.zeros_like(value) for name, value in model.get_params().items()})
    score = evaluate(model, corpus.held_out)
    assert score.bits == pytest.approx(math.log2(len(corpus.alphabet)))
    assert score.characters == len(corpus.held_out) - 1


def test_evaluation_carries_states_and_drops_nothing_out(model: LanguageModel, corpus: Corpus) -> None:
    """A text in windows scores as in one piece, twice the same although the model has dropout."""
    text = corpus.held_out.astype(np.int32)
    assert window_size(len(text)) == (64, 1)
    loss, _ = model.run(model.train_one_batch, text[:-1, None], text[1:, None], model.start_states(1))
    score = evaluate(model, text)
    assert score.bits == pytest.approx(float(loss) / math.log(2))
    assert evaluate(model, text) == score
    assert evaluate(model, text, limit=1).characters == 64


def test_what_an_evaluation_needs_is_compiled_ahead(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """One window of each length, the short one at the end too."""
    model = LanguageModel(SETTINGS, len(corpus.alphabet))
    lengths: list[int] = []
    run = model.run

    def recorded(function: Any, inputs: Any, *others: Any) -> Any:
        lengths.append(len(inputs))
        return run(function, inputs, *others)

    monkeypatch.setattr(model, "run", recorded)
    evaluate(model, corpus.held_out)
    wanted = sorted(set(lengths))
    lengths.clear()
    run_each_length(model, corpus.held_out)
    assert sorted(lengths) == wanted
    assert len(wanted) == 2


@pytest.mark.parametrize(("characters", "wanted"), [(2, (1, 1)), (100, (64, 1)), (500, (64, 2)), (10**6, (64, 128))])
def test_window_size(characters: int, wanted: tuple[int, int]) -> None:
    assert window_size(characters) == wanted


def test_a_sample_follows_the_model(model: LanguageModel, corpus: Corpus) -> None:
    """At temperature 0 each character is the likeliest after all before it."""
    prompt = corpus.encode("ab")
    drawn = sample(model, prompt, 6, 0.0, seed=1)
    text = np.concatenate([prompt, drawn]).astype(np.int32)
    scores, _ = model.run(model.forward, text[:-1, None], model.start_states(1))
    np.testing.assert_array_equal(drawn, scores[1:, 0].argmax(axis=1))


def test_a_sample_depends_on_its_seed_alone(model: LanguageModel, corpus: Corpus) -> None:
    prompt = corpus.encode("a")
    first, again, other = (sample(model, prompt, 30, 1.0, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_draws_have_the_models_distribution() -> None:
    scores = np.log(np.array([0.1, 0.0, 0.6, 0.3]), where=[True, False, True, True], out=np.full(4, -1e9))
    uniforms = (np.arange(1000) + 0.5) / 1000
    counts = np.bincount([draw(scores, 1.0, uniform) for uniform in uniforms], minlength=4)
    np.testing.assert_array_equal(counts, [100, 0, 600, 300])
    sharper = np.bincount([draw(scores, 0.5, uniform) for uniform in uniforms], minlength=4)
    np.testing.assert_allclose(sharper / 1000, np.array([0.01, 0, 0.36, 0.09]) / 0.46, atol=2e-3)
    assert draw(scores, 1.0, 1 - 2**-53) == 3


def test_one_step_moves_everything_on(model: LanguageModel, corpus: Corpus) -> None:
    trainer = Trainer(model, corpus)
    before = model.get_params()
    trainer.step()
    assert (model.step_count, trainer.characters) == (1, 12)
    assert all((before[name] != value).any() for name, value in model.get_params().items())
    assert all(state.any() for state in trainer.state.carried)


def test_an_epoch_starts_from_fresh_states(corpus: Corpus) -> None:
    """What was carried from the end of the text does not reach its beginning."""
    losses = []
    for carried in (0.0, 5.0):
        model = LanguageModel(SETTINGS, len(corpus.alphabet))
        trainer = Trainer(model, corpus)
        model.set_states({"optimizer.step": np.array(trainer.streams.windows_per_epoch)})
        trainer.state.carried = tuple(state + carried for state in trainer.state.carried)
        losses.append(trainer.step())
    assert losses[0] == losses[1]


def test_the_average_starts_at_the_first_parameters_and_settles() -> None:
    average = moved_average({"w": np.zeros(2, np.float32)}, {"w": np.ones(2, np.float32)}, 0)
    np.testing.assert_array_equal(average["w"], [1, 1])
    for step in range(1, 3000):
        average = moved_average(average, {"w": np.full(2, step % 2, np.float32)}, step)
    np.testing.assert_allclose(average["w"], 0.5, atol=0.01)
    assert average["w"].dtype == np.float32


def test_stop_signals() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        assert not signals.received
        signal.raise_signal(signal.SIGINT)
        assert signals.received
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_stop_signals_in_another_thread() -> None:
    received: list[bool] = []

    def enter() -> None:
        with StopSignals() as signals:
            received.append(signals.received)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert received == [False]


def test_the_clock_keeps_time_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(train.time, "monotonic", lambda: now)
    clock, endless = Clock(50.0, closing=5.0), Clock(None)
    clock.expect_evaluation(30.0)
    clock.expect_evaluation(8.0)
    for now, over in ((100.0, False), (134.9, False), (135.1, True), (200.0, True)):  # noqa: B007 - read by the lambda
        assert clock.is_over() is over
        assert not endless.is_over()


def test_lines_tell_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    quiet, busy = Lines(seconds=1000.0), Lines(done=500, seconds=0.0)
    quiet.advance(10, 2.0)
    assert capsys.readouterr().err == ""
    busy.advance(10, 2.0)
    busy.advance(10, 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"510 characters, [\d,]+ a second, 2\.000 bits per character", lines[0])
    assert re.fullmatch(r"520 characters, [\d,]+ a second, 1\.500 bits per character", lines[1])


def test_the_bar_tells_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    tqdm = pytest.importorskip("tqdm").tqdm
    bar = Bar(tqdm, 0, 2000)
    bar.advance(1000, 2.0)
    bar.say("step 1: 2.100 held-out bits per character")
    bar.close()
    err = capsys.readouterr().err
    assert "1.00k/2.00k" in err
    assert "2.000 bits per character" in err
    assert "\nstep 1: 2.100 held-out bits per character\n" in err or err.count("step 1: 2.100") == 1


def test_no_terminal_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(show_progress(), Lines)
