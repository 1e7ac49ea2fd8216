"""The first minutes on a GPU, as far as they go without one: the plan, limits, tools, files, a simulated run."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench.first_minutes import harness, steps as tools
from bench.first_minutes.harness import (
    FAILED,
    HUNG,
    MISSING,
    OK,
    UNREACHED,
    FirstMinutes,
    Outcome,
    judged,
    page,
)
from bench.first_minutes.jobs import JOBS
from bench.first_minutes.steps import CELLS, CHECKS, SANITIZED, Part, Step, all_steps
from bench.kinds_of_cells import KINDS

PYTHON = sys.executable
LOOK = """print('RESULT {"device": "fake", "missing": ""}')"""
MACHINE = """print('RESULT {"machine": {"gpu": "NVIDIA H200"}}')"""
FAKE_TOOL = f"""#!{PYTHON}
import subprocess, sys
words = sys.argv[sys.argv.index({PYTHON!r}):]
status = subprocess.call(words)
print("========= ERROR SUMMARY: 0 errors")
sys.exit(status)
"""


def python(label: str, code: str, seconds: float = 20.0, **words: Any) -> Part:
    return Part(label, (PYTHON, "-c", code), seconds, **words)


def run_of(monkeypatch: pytest.MonkeyPatch, folder: Path, *steps: Step, words: tuple[str, ...] = ()) -> FirstMinutes:
    look = Step("the machine", 60, (python("look", LOOK), python("versions", MACHINE)))
    monkeypatch.setattr(harness, "all_steps", lambda tiny, output: (look, *steps))
    options = command.parser().parse_args(["--device", "cuda", "--first-minutes", "--output", str(folder), *words])
    return FirstMinutes(options, ["--first-minutes"])


def statuses(run: FirstMinutes) -> dict[str, str]:
    return {one.label: one.status for one in run.outcomes}


# the plan


def test_all_steps_fit_into_ten_minutes() -> None:
    steps = all_steps(False, Path("results"))
    assert [step.seconds for step in steps] == [15, 45, 25, 45, 75, 60, 75, 60, 80, 40, 0]
    assert sum(step.seconds for step in steps) + 60 < harness.SECONDS <= 600 - harness.GRACE
    agreements, sanitized = ([part.label for part in steps[i].first] for i in (4, 7))
    assert len(agreements) == len(CELLS) * 2 * 2
    assert all(part.seconds == 60 for part in steps[4].first)
    assert steps[6].first[0].label == "kinds 0 to 4"
    assert len(steps[6].first) * 5 >= len(KINDS)
    assert sorted(sanitized) == sorted(f"{check} {net}" for check in CHECKS for net in SANITIZED)
    for step in steps:
        labels = [part.label for part in (*step.first, *step.parts)]
        assert len(labels) == len(set(labels))


def test_the_tiny_plan_has_all_steps_and_every_job() -> None:
    steps, tiny = all_steps(False, Path()), all_steps(True, Path())
    assert [step.title for step in tiny] == [step.title for step in steps]
    assert all((*step.first, *step.parts) for step in tiny)
    for plan in (steps, tiny):
        commands = [part.command for step in plan for part in (*step.first, *step.parts)]
        jobs = {
            words[words.index("bench.first_minutes.jobs") + 1]
            for words in commands
            if "bench.first_minutes.jobs" in words
        }
        assert jobs == set(JOBS)


def test_what_is_compiled_beforehand_is_what_is_run() -> None:
    steps = all_steps(False, Path())
    there = [part.command for part in steps[3].first]
    for part in (*steps[4].first, *steps[7].first, *steps[9].parts):
        words = part.command[part.command.index("bench.first_minutes.jobs") + 2 :]
        size = next(word for word in words if word.startswith("--size=")).removeprefix("--size=")
        kept = next((word for word in words if word.startswith("--weights=")), "--weights=float32")
        assert any({words[0], kept} <= set(one) and any(word.endswith(f"={size}") for word in one) for one in there)


# tools


def test_tools_are_found_beside_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(tools, "_by_pathfinder", lambda name: "")
    monkeypatch.setattr(tools, "FOLDERS", (str(tmp_path / "nsight" / "*"),))
    assert tools.find_tool("ncu") == ""
    for folder in ("nsight/2025.1", "nsight/2026.2", "bin"):
        tool = tmp_path / folder / "ncu"
        tool.parent.mkdir(parents=True)
        tool.write_text("")
        assert tools.find_tool("ncu") in ("", *map(str, tmp_path.rglob("ncu")))
        tool.chmod(0o755)
        assert tools.find_tool("ncu") == str(tool)


@pytest.mark.parametrize(
    ("tool", "status", "text", "wanted"),
    [
        ("", 0, "", (OK, "")),
        ("", 3, "Traceback\nValueError: wrong", (FAILED, "it ended with 3: ValueError: wrong")),
        ("", "", "", (HUNG, "still running after 7 s")),
        ("", "no such file", "", (MISSING, "no such file")),
        ("compute-sanitizer", 0, "ERROR SUMMARY: 0 errors", (OK, "")),
        ("compute-sanitizer", 9, "ERROR SUMMARY: 2 errors", (FAILED, "2 errors")),
        ("compute-sanitizer", 9, "RACECHECK SUMMARY: 4 hazards displayed (4 errors)", (FAILED, "4 errors")),
        ("compute-sanitizer", 1, "ERROR SUMMARY: 0 errors", (FAILED, "it ended with 1: ERROR SUMMARY: 0 errors")),
        ("compute-sanitizer", 1, "what?", (MISSING, "compute-sanitizer came to no result: what?")),
        (
            "compute-sanitizer",
            1,
            "Device not supported",
            (MISSING, "compute-sanitizer does not work here: Device not s"),
        ),
        ("ncu", 0, "==ERROR== ERR_NVGPUCTRPERM - no", (MISSING, "ncu does not work here: the driver lets only root")),
        ("ncu", 0, "Duration", (OK, "")),
        ("pytest", 0, "=== 3 passed, 1 skipped in 2 s ===", (OK, "")),
        ("pytest", 0, "=== 4 skipped in 2 s ===", (MISSING, "4 skipped in 2 s")),
        ("pytest", 5, "=== 9 deselected in 2 s ===", (MISSING, "there are no such tests")),
        ("pytest", 1, "=== 1 failed, 4 skipped in 2 s ===", (FAILED, "it ended with 1: === 1 failed")),
    ],
)
def test_last_words_are_understood(tool: str, status: int | str, text: str, wanted: tuple[str, str]) -> None:
    outcome = Outcome("step", "part", "command", UNREACHED, tail=text.splitlines())
    found, why = judged(Part("part", (), tool=tool), status, text, outcome, 7.0)
    assert found == wanted[0]
    assert why.startswith(wanted[1])


def test_a_result_that_is_wrong_fails_its_part() -> None:
    for result, why in (({"wrong": "y is off"}, "y is off"), ({"finite": False}, "results are not finite")):
        outcome = Outcome("step", "part", "command", UNREACHED, result=result)
        assert judged(Part("part", ()), 0, "", outcome, 7.0) == (FAILED, why)


# limits and files


def test_a_process_that_hangs_is_ended_with_what_it_has_started_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    hangs = f"{start}; print(f'RESULT {{{{\"child\": {{child.pid}}}}}}', flush=True); child.wait()"
    step = Step("step", 60, (python("hangs", hangs, 3.0), python("next", "print('RESULT {\"y\": 2}')")))
    run = run_of(monkeypatch, tmp_path, step)
    assert run.go() == 1
    assert statuses(run) == {"look": OK, "versions": OK, "hangs": HUNG, "next": OK}
    hung, following = (one.result for one in run.outcomes[2:])
    assert following == {"y": 2}
    status = Path(f"/proc/{hung['child']}/status")  # what was told before is kept
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_results_are_written_after_each_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(
        "import json, pathlib\n"
        "(path,) = pathlib.Path(__file__).parent.glob('first-minutes-nvidia-h200-*.json')\n"
        "print('RESULT', json.dumps({'before': len(json.loads(path.read_text())['outcomes'])}))\n"
    )
    parts = [Part(label, (PYTHON, str(tmp_path / "reads.py")), 20.0) for label in "ab"]
    run = run_of(monkeypatch, tmp_path, Step("step", 60, tuple(parts)))
    assert run.go() == 0
    path = run.path
    assert path.name == f"first-minutes-nvidia-h200-{run.today}.json"
    assert [one.result for one in run.outcomes[2:]] == [{"before": 2}, {"before": 3}]
    saved = json.loads(path.read_text())
    assert saved["machine"] == {"gpu": "NVIDIA H200"}
    assert saved["command"] == "python -m bench --first-minutes"
    assert "# First minutes on a GPU: NVIDIA H200" in path.with_suffix(".md").read_text()


def test_time_that_is_up_leaves_the_rest_and_resume_goes_on_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = tuple(python(name, "import time; time.sleep(0.6)") for name in "abc")
    short, late = Step("short", 30.0, parts[:1]), Step("late", 30.0, parts[1:])
    run = run_of(monkeypatch, tmp_path, short, late, words=("--seconds", "2"))
    assert run.go() == 1
    assert statuses(run)["c"] == UNREACHED
    again = run_of(monkeypatch, tmp_path, short, late, words=("--resume",))
    assert again.go() == 0
    assert again.path == run.path
    assert set(statuses(again).values()) == {OK}
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_steps_hand_on_the_time_they_leave(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    late = python("late", "")
    run = run_of(monkeypatch, tmp_path, Step("step", 0.5, (late,)))  # the machine has left most of its minute
    assert run.go() == 0


def test_the_last_step_is_told_how_long_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = python("told", "import sys; print('RESULT {\"words\": \"' + ' '.join(sys.argv[1:]) + '\"}')", 90, told=True)
    run = run_of(monkeypatch, tmp_path, Step("rest", 0, (told,), rest=True))
    assert run.go() == 0
    assert run.outcomes[-1].result == {"words": f"--seconds {90 - harness.GRACE:.0f}"}


def test_without_a_device_nothing_else_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(monkeypatch, tmp_path, Step("step", 30, (python("a", "raise SystemExit(1)"),)))
    none = python("look", 'print(\'RESULT {"missing": "no CUDA driver"}\')')
    run.steps = Step("the machine", 5, (none,)), *run.steps[1:]
    assert run.go() == 2
    assert statuses(run) == {"look": OK, "a": UNREACHED}
    assert "no usable GPU: no CUDA driver" in capsys.readouterr().err
    assert list(tmp_path.glob("first-minutes-none-*.json"))


def test_a_tool_that_is_missing_is_told_and_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    part = Part("ncu forward", ("ncu",), tool="ncu", missing="ncu is not on the path")
    run = run_of(monkeypatch, tmp_path, Step("ncu", 30, (part,)))
    assert run.go() == 0
    assert "- ncu: ncu forward: missing: ncu is not on the path" in run.save()


def test_the_page_begins_with_what_went_wrong() -> None:
    outcomes = [
        Outcome("cells", "lstm", "", OK, seconds=2.0, when="12:00 UTC", result={"worst": "y | 1e-7"}),
        Outcome("cells", "gru", "", HUNG, "still running after 30 s"),
    ]
    head = {"date": "2030-01-31", "command": "python", "seconds": 9.0, "machine": {"gpu": "H200"}}
    text = page({**head, "revision": {"commit": "abc"}}, outcomes)
    assert "gpu H200, commit abc" in text
    assert "1 ok, 1 hung" in text
    assert text.index("**hung**: still running") < re.sub(" +", " ", text).index(
        "| lstm | ok | 2.0 | 12:00 UTC | worst: y / 1e-7 |"
    )


# the command


def test_the_command_is_for_cuda_and_lists_its_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--first-minutes"]) == 2
    assert command.main(["--device", "cuda", "--first-minutes", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "-m bench.first_minutes.jobs agree attention_decoder --size=8,16,768" in listed
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in listed.splitlines() if line.startswith("| ")]
    assert len(table) == 12
    assert sum(int(row[2]) for row in table[1:]) == int(table[-1][3]) == harness.SECONDS
    assert int(table[-1][2]) >= 60  # for the benchmark


@pytest.mark.cuda
def test_all_steps_in_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tool stands in for compute-sanitizer, and none for ncu."""
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text(FAKE_TOOL)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    words = ["--device", "cuda", "--first-minutes", "--scale", "tiny", "--output", str(tmp_path)]
    status = command.main(words)
    said = capsys.readouterr()
    assert status == 0, said.out
    (path,) = tmp_path.glob("first-minutes-simulator-*.json")
    by_step: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(path.read_text())["outcomes"]:
        by_step.setdefault(one["step"], []).append(one)
    assert len(by_step) == 11
    found = {one["label"]: one for outcomes in by_step.values() for one in outcomes}
    missing = {label for label, one in found.items() if one["status"] == MISSING}
    assert missing <= {"ncu forward", "ncu backward", "tensor-cores", "tests/pytorch", "flashrnn lstm --size=3,2,4"}
    assert {found[label]["result"].get("from 4") for label in ("copies",)} == {"equal bits"}
    assert found["barriers"]["result"]["waits"] == 9
    assert found["look"]["result"]["torch_was_there"] is False
    agreement = next(one for label, one in found.items() if label.startswith("agree lstm"))
    assert agreement["result"]["equal_bits"] is True
    assert agreement["result"]["in_memory_of_nan"] == "equal bits"
    assert found["memcheck lstm"]["result"] == {"finite": True, "errors": 0}
    rates = next(one for label, one in found.items() if label.startswith("rates"))
    assert rates["result"]["graphs"].keys() == {"recorded", "refused", "launches", "seconds of runs"}
    loops = next(one for label, one in found.items() if label.startswith("loops"))
    assert {name.split()[0] for name in loops["result"]["N 2"]} == {"forward", "backward"}
    assert any("loop_" in name for name in loops["result"]["N 2"])
    model = loops["result"]["model, H 2, N 2"]
    assert model["for"] == "1755 MHz, as nobody tells, 1 multiprocessors"
    assert model["forward"]["predicted"] > 0
    assert model["backward"]["ratio"] is not None
    assert "## Cost model beside the device" in path.with_suffix(".md").read_text()
    assert list(tmp_path.glob("cuda-simulator-*.json"))
