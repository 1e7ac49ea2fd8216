"""A run that goes on where another one stopped: whatever kills it, one case is lost; what does not fit is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command, resume, watch as watching
from bench.cases import cases_of
from bench.first_minutes import harness
from bench.first_minutes.harness import FirstMinutes
from bench.first_minutes.steps import Part, Step
from bench.record import write_both
from bench.resume import Found, ResumeError, find, paths_of, revision
from bench.run import run_cases

ROOT = Path(__file__).parents[2]
MACHINE, SOURCES = {"gpu": "NVIDIA H200", "driver": "570"}, {"commit": "abc", "sources": "0123"}
DAY = "2030-01-31"
WORKER = """
import json, sys, time
def emit(event, **words): print(json.dumps({"event": event, **words}), flush=True)
listen = lambda: json.loads(sys.stdin.readline())
listen()
emit("machine", machine=MACHINE, rates={"sync_seconds": 1e-6})
for number, case in enumerate(listen()["cases"]):
    emit("turn", case=case, label="rnnops")
    if number == KILLED_AT:
        time.sleep(60)
    emit("case", case=case, measured=[{"label": "rnnops", "value": 1e-3, "rounds": [1e-3]}], error="")
"""
KILLED = """
import sys
from bench import __main__ as command, watch as watching
watching.COMMAND = (sys.executable, "-c", sys.argv[1])
sys.exit(command.main(sys.argv[2:]))
"""


def worker(killed_at: int = -1, machine: Any = MACHINE) -> str:
    return WORKER.replace("KILLED_AT", str(killed_at)).replace("MACHINE", repr(machine))


def full(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str, machine: Any = MACHINE, device: str = "cuda"
) -> int:
    monkeypatch.setattr(watching, "COMMAND", (sys.executable, "-c", worker(machine=machine)))
    given = ["--device", device, "--full", "--output", str(folder), *words]
    return run_cases(command.parser().parse_args(given), cases_of(device)[:5], given)


# which file


def test_a_new_run_has_a_file_of_its_own_and_one_that_goes_on_the_newest(tmp_path: Path) -> None:
    assert find(MACHINE, SOURCES, DAY, tmp_path, "cuda", True, False) == Found(
        tmp_path / f"cuda-nvidia-h200-{DAY}.json"
    )
    saved = {"machine": MACHINE, "revision": SOURCES}
    for name in ("2029-12-31", "2030-01-30", "2030-01-30-2", "2030-01-30-10"):
        write_both(tmp_path / f"cuda-nvidia-h200-{name}.json", saved, "page")
    (tmp_path / "cuda-nvidia-h200-nvl-2030-01-31.json").write_text("of another machine")
    newest = tmp_path / "cuda-nvidia-h200-2030-01-30-10.json"
    assert find(MACHINE, SOURCES, DAY, tmp_path, "cuda", True, False) == Found(newest, saved)
    assert find(MACHINE, SOURCES, DAY, tmp_path, "cuda", False, False).path.name == f"cuda-nvidia-h200-{DAY}.json"
    assert paths_of(MACHINE, "2030-01-30", tmp_path)[1].name == "cuda-nvidia-h200-2030-01-30-3.json"


@pytest.mark.parametrize(
    ("saved", "reason"),
    [
        ({"machine": MACHINE, "revision": {"commit": "fff", "sources": "9999"}}, "sources 9999 .commit fff.*0123"),
        ({"machine": {**MACHINE, "driver": "560"}, "revision": SOURCES}, "its driver was 560, and is 570 now"),
        ({"machine": MACHINE}, "it was measured by sources unknown"),
        ([], "it is not a file of a run"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, saved: Any, reason: str) -> None:
    path = tmp_path / f"cuda-nvidia-h200-{DAY}.json"
    path.write_text(json.dumps(saved))
    with pytest.raises(ResumeError, match=rf"cannot go on in {path}: .*{reason}.*; --restart begins a new file"):
        find(MACHINE, SOURCES, DAY, tmp_path, "cuda", True, False)
    assert find(MACHINE, SOURCES, DAY, tmp_path, "cuda", True, True).path.name == f"cuda-nvidia-h200-{DAY}-2.json"


def test_sources_decide_and_the_commit_is_for_people(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder in resume.SOURCES:
        (tmp_path / folder).mkdir()
    source = tmp_path / "kernels" / "a.py"
    source.write_text("x = 1")
    monkeypatch.setattr(resume, "ROOT", tmp_path)
    before = revision()
    assert before["commit"] == "unknown"
    source.write_text("x = 2")
    assert revision()["sources"] != before["sources"]
    source.write_text("x = 1")
    (tmp_path / "bench" / "results.md").write_text("a page")
    assert revision() == before


def test_a_write_that_is_cut_leaves_what_was_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_both(path, {"a": 1}, "page")

    def cut(number: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", cut)
    with pytest.raises(KeyboardInterrupt):
        write_both(path, {"a": 2}, "page")
    assert json.loads(path.read_text()) == {"a": 1}


# the benchmark


def test_a_run_that_is_killed_loses_one_case_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--device", "cuda", "--full", "--output", str(tmp_path)]
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, worker(killed_at=2), *given], cwd=ROOT, text=True, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert killed.stderr
    assert any(line.startswith("[2/80]") for line in killed.stderr)  # the third case begins, and does not end
    (path,) = tmp_path.glob("*.json")
    until = time.monotonic() + 20
    while not json.loads(path.read_text())["begun"] and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    killed.stderr.close()
    saved = json.loads(path.read_text())
    names = [case.name for case in cases_of("cuda")[:5]]
    assert [one["name"] for one in saved["cases"]] == names[:2]
    assert saved["begun"] == names[2]
    saved["cases"][0]["when"] = "long ago"
    path.write_text(json.dumps(saved))
    assert full(monkeypatch, tmp_path) == 0
    said = capsys.readouterr().err
    assert "has 2 of 5 cases" in said
    order = [said.index(f"] {name}: ") for name in (names[3], names[4], names[2])]
    assert order == sorted(order)  # what the first run has ended with comes last
    again = json.loads(path.read_text())
    assert again["begun"] == ""
    assert [one["name"] for one in again["cases"]] == names
    assert [one["when"] == "long ago" for one in again["cases"]] == [True, *[False] * 4]
    assert len(again["runs"]) == 2
    assert "long ago" in path.with_suffix(".md").read_text()


def test_what_was_measured_in_another_way_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert full(monkeypatch, tmp_path) == 0
    assert full(monkeypatch, tmp_path, "--rounds", "3") == 0
    assert "has 0 of 5 cases" in capsys.readouterr().err
    assert full(monkeypatch, tmp_path, "--rounds", "3") == 0
    assert "has 5 of 5 cases" in capsys.readouterr().err


def test_another_machine_is_refused_and_restart_begins_a_new_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert full(monkeypatch, tmp_path) == 0
    newer = {**MACHINE, "driver": "580"}
    assert full(monkeypatch, tmp_path, machine=newer) == 2
    assert "its driver was 570, and is 580 now; --restart begins a new file" in capsys.readouterr().err
    assert full(monkeypatch, tmp_path, "--restart", machine=newer) == 0
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_processors_have_one_file_and_go_on_in_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = {"processor": "a processor", "threads": "2"}
    for known in (0, 5):
        full(monkeypatch, tmp_path, machine=machine, device="cpu")
        assert (f"has {known} of 5 cases" in capsys.readouterr().err) == bool(known)
    other = {**machine, "threads": "4"}
    assert full(monkeypatch, tmp_path, machine=other, device="cpu") == 2
    assert "its threads was 2, and is 4 now; --restart begins a new file, in its place" in capsys.readouterr().err
    full(monkeypatch, tmp_path, "--restart", machine=other, device="cpu")
    assert json.loads((tmp_path / "bench.json").read_text())["machine"] == other


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--full", "--quick"], "--full is all cases"),
        (["--full", "--only", "lstm"], "--full is all cases"),
        (["--restart"], "--restart says what to do"),
        (["--first-minutes"], "--first-minutes is for --device cuda"),
    ],
)
def test_words_that_do_not_go_together(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == 2
    assert capsys.readouterr().err.startswith(why)


# the first minutes


def minutes(monkeypatch: pytest.MonkeyPatch, folder: Path, *codes: str, words: tuple[str, ...] = ()) -> FirstMinutes:
    told = 'print(\'RESULT {"device": "fake", "missing": "", "machine": {"gpu": "NVIDIA H200"}}\')'
    look = Step("the machine", 5, (Part("look", (sys.executable, "-c", told)),))
    parts = tuple(Part(str(i), (sys.executable, "-c", code)) for i, code in enumerate(codes))
    monkeypatch.setattr(harness, "all_steps", lambda tiny, output: (look, Step("step", 60, parts)))
    given = ["--device", "cuda", "--first-minutes", "--output", str(folder), *words]
    return FirstMinutes(command.parser().parse_args(given), given)


class KilledError(BaseException):
    """Nobody catches it."""


def killed_at(label: str, run: FirstMinutes, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The outcomes on the disk of a run that is killed at a part."""
    real = run.outcome

    def outcome(step: Step, part: Part, *given: Any) -> Any:
        if part.label == label:
            raise KilledError
        return real(step, part, *given)

    monkeypatch.setattr(run, "outcome", outcome)
    with pytest.raises(KilledError):
        run.go()
    found: list[dict[str, Any]] = json.loads(run.path.read_text())["outcomes"]
    return found


def test_first_minutes_that_are_killed_twice_keep_what_they_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    codes = ("", "", "print('RESULT {\"last\": true}')")
    first = killed_at("2", minutes(monkeypatch, tmp_path, *codes), monkeypatch)
    assert [one["label"] for one in first] == ["look", "0", "1"]
    second = killed_at("0", minutes(monkeypatch, tmp_path, *codes, words=("--resume",)), monkeypatch)
    assert second[1:] == first[1:]  # though it had come to none of them
    run = minutes(monkeypatch, tmp_path, *codes, words=("--resume",))
    assert run.go() == 0
    third = json.loads(run.path.read_text())["outcomes"]
    assert third[1:3] == first[1:]
    assert third[3]["result"] == {"last": True}


def test_first_minutes_of_other_sources_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert minutes(monkeypatch, tmp_path, "").go() == 0
    (path,) = tmp_path.glob("*.json")
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, "revision": {"commit": "fff", "sources": "9999"}}))
    assert minutes(monkeypatch, tmp_path, "", words=("--resume",)).go() == 2
    assert "measured by sources 9999 (commit fff)" in capsys.readouterr().err
    assert minutes(monkeypatch, tmp_path, "", words=("--resume", "--restart")).go() == 0
    assert path.with_name(f"first-minutes-nvidia-h200-{time.strftime('%Y-%m-%d')}-2.json").exists()
