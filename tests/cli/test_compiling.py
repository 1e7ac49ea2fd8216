"""What `rnnops train` says of compiling: each net once, before and after, and how long it took."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from train_runs import TINY, train, write_text

import rnnops as ro
from rnnops.cli import trainer
from rnnops.cli.trainer import Compiling


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "sums.txt")


def test_the_first_run_of_each_net_is_told_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines, runs = [10.0], list[str](), list[str]()
    monkeypatch.setattr(trainer.time, "monotonic", lambda: now[0])

    def work(name: str) -> str:
        runs.append(name)
        now[0] += 2.5
        return name

    told = Compiling(lines.append)
    assert [told.run("a", lambda: work("a")) for _ in range(2)] == ["a", "a"]
    for what in ("a", "b", "b"):
        told.ahead(what, lambda what=what: work(what))
    assert runs == ["a", "a", "b"]
    assert lines == ["compiling a ...", "compiled a in 2.5 s", "compiling b ...", "compiled b in 2.5 s"]
    assert told.seconds == 5.0


def test_where_nothing_is_compiled_nothing_is_said() -> None:
    quiet, runs = Compiling(None), list[str]()
    quiet.ahead("a", lambda: runs.append("a"))
    quiet.run("a", lambda: runs.append("a"))
    quiet.ahead("a", lambda: runs.append("a"))
    assert (runs, quiet.seconds) == (["a", "a"], 0.0)


def told(err: str) -> list[str]:
    """What was compiled, in order; each is told when it begins, then when it is done, with nothing between."""
    lines = [line for line in err.splitlines() if line.startswith("compil")]
    begun = [match[1] for line in lines[::2] if (match := re.fullmatch(r"compiling (.*) \.\.\.", line))]
    done = [match[1] for line in lines[1::2] if (match := re.fullmatch(r"compiled (.*) in \d+\.\d s", line))]
    assert begun == done
    assert len(lines) == 2 * len(begun)
    return begun


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--device", "cpu"], ["a step of training", "the evaluation", "the sampling"]),
        (["--device", "cpu", "--sample", 0, "--evaluate-every", 1], ["a step of training", "the evaluation"]),
        (["--device", "cpu", "--time-limit", 600], ["the sampling", "the evaluation", "a step of training"]),
        (["--time-limit", 600], []),  # on the reference device
    ],
)
def test_nets_are_told_in_the_order_in_which_they_run(
    options: list[object], wanted: list[str], text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(text, *TINY, "--steps", 2, "--sample", 3, *options) == 0
    out, err = capsys.readouterr()
    assert told(err) == wanted
    assert [line.split(":")[0] for line in out.splitlines()[:3]] == ["text", "characters", "model"]
    assert bool(re.search(r"a second; compiling, with the first step, took \d+\.\d s$", out, re.M)) == bool(wanted)


def test_one_step_that_was_compiled_has_no_rate(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(text, *TINY, "--steps", 1, "--device", "cpu") == 0
    out = capsys.readouterr().out
    assert re.search(r"1 steps, 64 characters in \d+\.\d s; compiling, with the first step, took", out)
    assert "a second" not in out


def test_the_text_is_told_before_the_model_is_built(
    text: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise ro.ModelError("no model")

    monkeypatch.setattr(trainer, "LanguageModel", broken)
    assert train(text, *TINY, "--steps", 2) == 2
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["text", "characters"]
