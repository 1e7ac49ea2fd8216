"""Files of models: what comes back, models that go on, older versions, and that a failed save leaves the old file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import ARRAYS, STATE, Exploit, assert_is_original, metadata_of, with_metadata
from old_model_file import CURVE, FILE, old_arrays, write
from safetensors.numpy import load_file
from small_models import PERCEPTRON, TAGGER, Perceptron, Tagger, perceptron_batch, tagger_batch

import rnnops as ro
from rnnops.model import SGD, Adam, store
from rnnops.model.store import load, save


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "model.safetensors"
    save(target, ARRAYS, STATE)
    return target


# -- what comes back ---------------------------------------------------------------------------------------------------


def test_what_is_saved_comes_back(path: Path) -> None:
    assert_is_original(load(path))
    assert os.listdir(path.parent) == [path.name]
    for array in load(path)[0].values():
        assert array.flags.writeable
        assert array.flags.aligned


def test_other_programs_read_the_arrays(path: Path) -> None:
    arrays = load_file(path)
    np.testing.assert_array_equal(arrays["encoder.w"], ARRAYS["encoder.w"])
    assert metadata_of(path)["format"] == "rnnops model"
    assert json.loads(metadata_of(path)["document"])["best"] == 2.25


def test_who_may_read_it(path: Path) -> None:
    """A new file is as any other the user makes; one that is replaced stays as it was."""
    other = path.with_name("other")
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode
    path.chmod(0o600)
    save(path, ARRAYS, STATE)
    assert path.stat().st_mode & 0o777 == 0o600


def test_equal_content_gives_equal_bytes(path: Path) -> None:
    again = path.with_name("again")
    save(again, dict(reversed(ARRAYS.items())), dict(reversed(STATE.items())))
    assert load(again)[0].keys() == ARRAYS.keys()
    assert metadata_of(again) == metadata_of(path)


def test_nothing_at_all(tmp_path: Path) -> None:
    save(tmp_path / "empty", {}, {})
    assert load(tmp_path / "empty") == ({}, {})


def test_big_endian_arrays_come_back_little_endian(tmp_path: Path) -> None:
    save(str(tmp_path / "a"), {"a": np.arange(3, dtype=">i4")}, {})
    np.testing.assert_array_equal(load(str(tmp_path / "a"))[0]["a"], np.arange(3, dtype="<i4"))


def test_a_link_keeps_pointing_at_the_file(path: Path) -> None:
    link = path.with_name("latest")
    link.symlink_to(path)
    save(link, {}, {"position": 1})
    assert link.is_symlink()
    assert load(path)[1] == {"position": 1}


# -- models ------------------------------------------------------------------------------------------------------------


def tagger(**options: Any) -> Tagger:
    model = Tagger()
    model.set_optimizer(Adam(0.05, max_norm=1.0))
    model.compile(TAGGER, use_graph=False, **options)
    return model


def losses(model: Tagger, first: int, count: int) -> list[float]:
    return [float(model(*tagger_batch(seed=seed))) for seed in range(first, first + count)]


def test_training_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Dropout masks, both of Adam's moments and its step must all be right."""
    undisturbed = losses(tagger(seed=4), 0, 8)
    model = tagger(seed=4)
    assert losses(model, 0, 5) == undisturbed[:5]
    model.save(tmp_path / "m", {"epoch": 5, "curve": np.array(undisturbed[:5])})
    resumed = tagger(seed=4)
    state = resumed.load(tmp_path / "m")
    assert state["epoch"] == 5
    np.testing.assert_array_equal(state["curve"], undisturbed[:5])
    assert losses(resumed, 5, 3) == undisturbed[5:]


def test_parameters_alone(tmp_path: Path) -> None:
    model, other = tagger(), Tagger()
    losses(model, 0, 2)
    model.save(tmp_path / "m", {"epoch": 1})
    other.compile(TAGGER, use_graph=False, seed=9)
    assert other.load(tmp_path / "m", include_state=False) == {"epoch": 1}
    assert all((other.get_params()[name] == array).all() for name, array in model.get_params().items())
    with pytest.raises(ro.SaveError, match=r"(?s)optimizer\.mean\.blocks\.0\.dense\.b: unknown.*include_state"):
        other.load(tmp_path / "m")


def test_a_model_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    tagger().save(tmp_path / "m")
    other = Tagger(words=12)
    other.set_optimizer(Adam(0.05))
    other.compile(TAGGER, use_graph=False, seed=9)
    before = other.get_states()
    with pytest.raises(ro.SaveError) as caught:
        other.load(tmp_path / "m")
    assert "embedding.table: float32[11, 6] instead of float32[12, 6]" in str(caught.value)
    assert "optimizer.square.embedding.table" in str(caught.value)
    assert all((other.get_states()[name] == array).all() for name, array in before.items())
    other.set_optimizer(SGD(0.1))
    with pytest.raises(ro.SaveError, match=r"optimizer\.mean\.heads\.tags\.w: unknown, .*\n  and \d+ more"):
        other.load(tmp_path / "m")


def test_the_optimizer_must_be_the_same_kind(tmp_path: Path) -> None:
    model = Perceptron()
    model.set_optimizer(SGD(0.1, momentum=0.5))
    model.compile(PERCEPTRON, use_graph=False)
    model.save(tmp_path / "m")
    model.set_optimizer(SGD(0.1))
    with pytest.raises(ro.SaveError, match=r"optimizer\.velocity\.hidden\.w: unknown"):
        model.load(tmp_path / "m")


# -- older versions ----------------------------------------------------------------------------------------------------


def test_a_file_of_version_1_goes_on(tmp_path: Path) -> None:
    model, x = Perceptron(), perceptron_batch()
    model.set_optimizer(Adam(0.1))
    model.compile(PERCEPTRON, use_graph=False)
    state = model.load(FILE)
    assert state.pop("curve").tolist() == CURVE.tolist()
    assert state == {"epoch": 3}
    for name, array in old_arrays().items():
        if name != "state.curve":
            np.testing.assert_array_equal(model.get_states()[name.replace("/", ".")], array)
    model(*x)
    assert model.step_count == 4
    assert int(model.get_states()["optimizer.updates.hidden.w"]) == 4


def test_the_fixture_is_what_its_writer_writes(tmp_path: Path) -> None:
    write(tmp_path / "again")
    assert load(tmp_path / "again")[0].keys() == load(FILE)[0].keys()
    assert metadata_of(tmp_path / "again") == metadata_of(FILE)


def test_every_older_version_has_a_migration() -> None:
    assert sorted(store.MIGRATIONS) == list(range(1, store.VERSION))
    with pytest.raises(ro.SaveError, match="two arrays of a file of version 1 have one name"):
        store.migrated({"a/b": CURVE, "a.b": CURVE}, 1)
    with pytest.raises(ro.SaveError, match=r"a file of version 1 lacks the array 'optimizer\.step'"):
        store.migrated({"optimizer/mean/b": CURVE}, 1)
    assert list(store.migrated({"state.a/b": CURVE, "a/b": CURVE}, 1)) == ["state.a/b", "a.b"]


@pytest.mark.parametrize(("version", "words"), [("3", "Update"), ("99", "Update"), ("0", ""), ("1.0", ""), ("", "")])
def test_versions_that_are_not_known(path: Path, version: str, words: str) -> None:
    with_metadata(path, version=version)
    with pytest.raises(ro.SaveError, match=f"unknown version; wanted 1 to 2.*{words}"):
        load(path)


# -- saves that fail ---------------------------------------------------------------------------------------------------


class BrokenDiskError(OSError):
    """What a full disk looks like."""


@pytest.mark.parametrize("failure", [BrokenDiskError("no space left"), KeyboardInterrupt(), RuntimeError("killed")])
@pytest.mark.parametrize("step", ["save_file", "fsync", "replace"])
def test_a_save_that_dies_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, step: str
) -> None:
    before = path.read_bytes()

    def dying(*arguments: object, **options: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(store if step == "save_file" else os, step, dying)
        with pytest.raises(ro.SaveError if isinstance(failure, OSError) else type(failure)) as caught:
            save(path, {"w": np.zeros(1_000)}, {"position": 99})
    if isinstance(failure, OSError):
        assert "cannot be written (no space left)" in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


SAVES = """
import sys
import numpy as np
from rnnops.model.store import save

print("ready", flush=True)
while True:
    for seed in (0, 1):
        save(sys.argv[1], {"w": np.full(500_000, seed, np.float32)}, {"seed": seed})
"""


def test_killed_while_it_saves(path: Path) -> None:
    """Whenever the process dies, the file is one of the two that it writes in turn."""
    for delay in (0.0, 0.01, 0.03):
        save(path, {"w": np.zeros(500_000, np.float32)}, {"seed": 0})
        process = subprocess.Popen([sys.executable, "-c", SAVES, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        arrays, state = load(path)
        assert (arrays["w"] == state["seed"]).all()


def test_the_directory_cannot_be_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that cannot sync a directory does not make a save fail."""
    real, done = os.fsync, []

    def only_files(descriptor: int) -> None:
        done.append(descriptor)
        if len(done) == 2:
            raise OSError("not for directories")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    save(path, {}, {"position": 1})
    assert len(done) == 2
    assert load(path)[1] == {"position": 1}


def test_numpy_scalars_are_numbers(tmp_path: Path) -> None:
    save(tmp_path / "m", {}, {"epoch": np.int64(3), "best": np.float32(0.5)})
    assert load(tmp_path / "m")[1] == {"epoch": 3, "best": 0.5}


def test_what_is_no_path_and_what_is_no_file(tmp_path: Path) -> None:
    for call in (lambda: save(3, {}, {}), lambda: save(b"m", {}, {}), lambda: load(None)):  # type: ignore[arg-type]
        with pytest.raises(ro.SaveError, match="this is not a path"):
            call()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ro.SaveError, match="is there and is not a file"):
        save(tmp_path / "pipe", {}, {})


def test_places_that_cannot_be_written_are_named_errors(tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "missing" / "model", tmp_path / "a\0b"):
        with pytest.raises(ro.SaveError, match="cannot be written"):
            save(target, {}, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("objects", np.array([Exploit()], object)),
        ("text", np.array(["a"])),
        ("records", np.zeros(2, [("a", "<f4")])),
        ("complex", np.zeros(2, np.complex64)),
        ("list", [1.0, 2.0]),
        ("", np.ones(1)),
        ("a\nb", np.ones(1)),
        ("__metadata__", np.ones(1)),
        (3, np.ones(1)),
    ],
)
def test_arrays_that_cannot_be_saved_are_named_errors(path: Path, name: Any, array: Any) -> None:
    with pytest.raises(ro.SaveError, match=r"cannot be saved; wanted|no name for"):
        save(path, {name: array}, {})
    assert_is_original(load(path))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"best": float("nan")}, "'best': a value is neither an array nor JSON"),
        ({"deep": {"array": np.ones(2)}}, "'deep': a value is neither"),
        ({"masked": np.ma.masked_array([1.0], [True])}, r"'state\.masked': an array cannot be saved"),
        ({"pair": (1, 2)}, "'pair': .* something else. Use lists"),
        ({"seen": {1: 2}}, "something else"),
        ({1: 2}, "no name"),
    ],
)
def test_states_that_cannot_be_saved_are_named_errors(path: Path, state: Any, words: str) -> None:
    with pytest.raises(ro.SaveError, match=words):
        save(path, {}, state)
    assert_is_original(load(path))


def test_a_user_array_cannot_pass_as_the_models(tmp_path: Path) -> None:
    with pytest.raises(ro.SaveError, match=r"an array of the model begins with 'state\.'"):
        save(tmp_path / "m", {"state.w": np.ones(1)}, {})
