"""A run that was stopped or killed goes on as if nothing had happened; what cannot go on says so."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from train_runs import COMMAND, TINY, outcome, start, steps_of, train, wait_for_step, write_text

from rnnops.cli import trainer as trainer_module
from rnnops.cli.main import main
from rnnops.model import store

# Two layers with dropout: parameters, both of Adam's moments, carried states and the seeds of masks must all be right.
OPTIONS = (*TINY, "--layers", "2", "--dropout", "0.3")
STEPS = 50  # past the end of an epoch
QUIET = ("--sample", "0")  # what a resumed run samples is printed alone, and takes as long as all else


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "sums.txt")


@pytest.fixture(scope="module")
def undisturbed(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run that nobody stopped."""
    target = tmp_path_factory.mktemp("undisturbed") / "model.npz"
    assert train(text, *OPTIONS, "--steps", STEPS, "--save", target) == 0
    return target


@pytest.fixture(scope="module")
def three_steps(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("stopped") / "model.npz"
    assert train(text, *OPTIONS, "--steps", 3, "--save", target) == 0
    return target


@pytest.fixture
def stopped(three_steps: Path, tmp_path: Path) -> Path:
    """The checkpoint of a run of three steps, for a test to do with as it likes."""
    return Path(shutil.copy(three_steps, tmp_path / "stopped.npz"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert train(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_goes_on_from_any_step(text: Path, undisturbed: Path, tmp_path: Path) -> None:
    """Stops at the start, within and at points of both curves, and behind the end of an epoch."""
    target = tmp_path / "model.npz"
    assert train(text, *OPTIONS, "--steps", 0, "--save", target) == 0
    for step in (1, 7, 20, 46, STEPS):
        assert train("--resume", target, "--steps", step, *QUIET) == 0
        assert steps_of(target) == step
    assert outcome(target) == outcome(undisturbed)


def test_a_resumed_run_may_save_elsewhere(stopped: Path, undisturbed: Path, tmp_path: Path) -> None:
    before, target = stopped.read_bytes(), tmp_path / "other.npz"
    assert train("--resume", stopped, "--steps", STEPS, "--save", target) == 0
    assert stopped.read_bytes() == before
    assert outcome(target) == outcome(undisturbed)


def test_recompute_and_threads_may_change(stopped: Path, undisturbed: Path) -> None:
    assert train("--resume", stopped, "--steps", STEPS, "--recompute", "--checkpoint-every", 0, *QUIET) == 0
    assert outcome(stopped) == outcome(undisturbed)


@pytest.mark.parametrize("step", [2, 23])
def test_killed_at_any_moment(step: int, text: Path, undisturbed: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.npz"
    process = start(text, *OPTIONS, "--steps", 100_000, "--save", target, "--checkpoint-every", 0)
    wait_for_step(target, step, process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    reached = steps_of(target)
    assert train("--resume", target, "--steps", max(STEPS, reached), *QUIET) == 0
    if reached > STEPS:  # the machine was in a hurry
        assert train(text, *OPTIONS, "--steps", reached, "--save", tmp_path / "longer.npz") == 0
        undisturbed = tmp_path / "longer.npz"
    assert outcome(target) == outcome(undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: signal.Signals, text: Path, tmp_path: Path) -> None:
    """The signal ends the training, not the command: it saves, prints the summary and exits with 0."""
    target, whole = tmp_path / "model.npz", tmp_path / "whole.npz"
    process = start(text, *OPTIONS, "--time-limit", 0, "--save", target, "--checkpoint-every", 0.05)
    wait_for_step(target, 1, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    match = re.search(r"stopped on request: ([\d,]+) steps", out)
    assert match
    assert "this model" in out
    steps = int(match[1].replace(",", ""))
    assert steps_of(target) == steps
    assert train("--resume", target, "--steps", steps + 5, *QUIET) == 0
    assert train(text, *OPTIONS, "--steps", steps + 5, "--save", whole) == 0
    assert outcome(target) == outcome(whole)


def test_interrupted_before_the_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer_module, "load_text", interrupt)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "rnnops: interrupted\n"


def test_a_damaged_file(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(stopped.read_bytes())
    data[len(data) // 2] ^= 1
    stopped.write_bytes(bytes(data))
    assert "damaged" in refused(capsys, "--resume", stopped)
    stopped.write_bytes(bytes(data[: len(data) // 2]))
    assert "damaged" in refused(capsys, "--resume", stopped)


def test_a_foreign_file(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "not a file of a model" in refused(capsys, "--resume", text)
    foreign = tmp_path / "foreign"
    save_file({"weights": np.zeros(3)}, foreign)
    assert "not one of a model" in refused(capsys, "--resume", foreign)
    store.save(foreign, {"weights": np.zeros(3)}, {"program": "another"})
    assert "not one of `rnnops train`" in refused(capsys, "--resume", foreign)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("settings", None),
        ("settings", {"cell": "gru"}),
        ("seconds", "long"),
        ("recent", [1.0, "x"]),
        ("training", [[1.0]]),
        ("held_out", {}),
        ("baselines", []),
        ("text", {"paths": "sums.txt", "max_bytes": None, "sha256": "", "alphabet": ""}),
        ("text", {"paths": [], "max_bytes": 1.5, "sha256": "", "alphabet": ""}),
    ],
)
def test_a_document_that_is_not_ours(
    part: str, value: object, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays, state = store.load(stopped)
    store.save(stopped, arrays, {**state, part: value})
    assert "checkpoint" in refused(capsys, "--resume", stopped)


@pytest.mark.parametrize("change", ["missing", "extra", "shape", "dtype"])
@pytest.mark.parametrize("name", ["projection.w", "average/projection.w"])
def test_arrays_that_are_not_the_models(
    name: str, change: str, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays, state = store.load(stopped)
    group = state if name in state else arrays
    if change == "missing":
        del group[name]
    elif change == "extra":
        group[f"{name}.more"] = np.zeros(2, np.float32)
    else:
        group[name] = group[name].T if change == "shape" else group[name].astype(np.float64)
    store.save(stopped, arrays, state)
    assert train("--resume", stopped) == 2
    error = capsys.readouterr().err
    assert "arrays do not fit" in error
    assert name in error


def test_another_text(stopped: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_text(tmp_path / "other.txt", seed=1)
    assert "was trained on another text" in refused(capsys, other, "--resume", stopped)
    assert "was trained on another text" in refused(capsys, "--resume", stopped, "--max-bytes", 2500)
    same = tmp_path / "same.txt"
    same.write_text(text.read_text())
    assert train(same, "--resume", stopped, "--steps", 4, *QUIET) == 0


def test_a_text_that_has_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, target = write_text(tmp_path / "sums.txt"), tmp_path / "model.npz"
    assert train(text, *TINY, "--steps", 1, "--save", target) == 0
    text.write_text(text.read_text() + "one more line\n")
    assert "was trained on another text" in refused(capsys, "--resume", target)


@pytest.mark.parametrize(
    ("option", "value"), [("--hidden", 7), ("--seed", 1), ("--learning-rate", 0.5), ("--cell", "lstm"), ("--batch", 4)]
)
def test_a_setting_that_contradicts(
    option: str, value: object, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{option} contradicts the checkpoint" in refused(capsys, "--resume", stopped, option, value)


def test_a_setting_that_agrees(stopped: Path) -> None:
    assert train("--resume", stopped, "--steps", 4, "--hidden", 6, "--cell", "gru", "--dropout", 0.3, *QUIET) == 0


def test_no_file_decides_which_code_is_run(text: Path, tmp_path: Path) -> None:
    """A checkpoint names the user's function; only the command line makes it run."""
    module = "from rnnops.cells import GRUCell\nopen('ran', 'w').close()\n\n\ndef build(d, h, name):\n"
    (tmp_path / "own.py").write_text(f"{module}    return GRUCell(d, h, name=name)\n")
    target, ran = tmp_path / "model.npz", tmp_path / "ran"
    cell = ["--cell", "own:build"]
    first = [*COMMAND, str(text), *TINY, "--steps", "1", "--save", str(target), *cell]
    again = [*COMMAND, "--resume", str(target), "--steps", "2", *QUIET]
    assert subprocess.run(first, cwd=tmp_path, capture_output=True).returncode == 0
    ran.unlink()
    result = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2
    assert "Give --cell own:build again" in result.stderr
    assert not ran.exists()
    assert subprocess.run([*again, *cell], cwd=tmp_path, capture_output=True).returncode == 0
    assert ran.exists()


def test_the_default_text_is_found_again(tmp_path: Path) -> None:
    target = tmp_path / "model.npz"
    options = ("--hidden", 4, "--batch", 2, "--seq-length", 4, "--sample", 0)
    assert train(*options, "--max-bytes", 20_000, "--steps", 1, "--save", target) == 0
    assert train("--resume", target, "--steps", 2, "--sample", 0) == 0
    assert store.load(target)[1]["text"]["max_bytes"] == 20_000
