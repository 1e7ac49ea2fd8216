"""The benchmark from the command line to its files, on the reference device at tiny sizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bench import __main__ as command, contender, rnnops_engine
from bench.case import CUDA, HOST, Case, Entry, entries
from bench.cases import all_cases
from bench.child_runs import ChildError, run_child
from bench.contender import Bench, Contender, Engine, Settings
from bench.environment import THREAD_VARIABLES, describe_machine, limit_threads
from bench.goals import Figure, Measured, ratio, speedup
from bench.judge import CaseResult
from bench.load import OtherLoad, Quiet
from bench.measure import Measurement
from bench.problems import Problem, Size
from bench.record import result_of
from bench.report import page
from bench.timing import HostBlock, time_in_turn

SIZE = Size(3, 2, 4)
PROBLEM = Problem("lstm", SIZE)
FAST = Settings(device="reference", threads=1, rounds=1, settle=0.0, counted=0.001, patience=0.0)
MACHINE = {"processor": "a processor", "threads": "2"}


def measured(case: Case) -> CaseResult:
    it = Measurement(case, FAST)
    rows = [asdict(row) for row in it.measured()]
    return result_of(case, rows, "; ".join(it.wrong), it.quiet.processors)


@pytest.fixture
def _own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the tests keeps its threads and processors."""
    monkeypatch.setattr(command, "limit_threads", lambda threads: None)


def test_threads_are_settled_for_every_library(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[int]] = []
    for variable in THREAD_VARIABLES:
        monkeypatch.setenv(variable, "7")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 3, 4}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, processors: kept.append(processors), raising=False)
    limit_threads(2)
    assert {os.environ[variable] for variable in THREAD_VARIABLES} == {"2"}
    assert kept == [[3, 4]]


def test_the_machine_is_named() -> None:
    machine = describe_machine(2)
    assert machine["processor"]
    assert machine["threads"] == "2"
    assert machine["numpy"] == np.__version__


def test_cases_have_names_of_their_own_and_known_engines() -> None:
    cases = list(all_cases())
    assert len({case.name for case in cases}) == len(cases)
    assert {case.devices for case in cases} == {HOST, CUDA}
    assert {entry.engine for case in cases for entry in case.entries} == contender.ENGINES.keys()
    labels = [[entry.label for entry in case.entries] for case in cases]
    assert all(len(set(row)) == len(row) for row in labels)


@pytest.mark.usefixtures("_own_threads")
def test_one_case_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--device", "reference", "--scale", "tiny", "--quick", "--patience", "0", "--only", "a call"]
    words += ["--output", str(tmp_path)]
    assert command.main([*words, "--check"]) == 1  # an interpreter is slower than the goal
    printed = capsys.readouterr()
    assert "| a call | rnnops " in printed.out
    assert "failed: a call 1,1,4: rnnops bound" in printed.err
    saved = json.loads((tmp_path / "bench.json").read_text())
    assert [case["name"] for case in saved["cases"]] == ["a call 1,1,4"]
    assert saved["cases"][0]["figures"][0]["met"] is False
    assert saved["cases"][0]["measured"][0]["work"]["elements"] > 0
    assert "processor " in (tmp_path / "bench.md").read_text()
    assert (tmp_path / "bench.png").exists()
    assert command.main([*words, "--resume"]) == 0  # what is measured is not measured again
    again = json.loads((tmp_path / "bench.json").read_text())
    assert (again["cases"], len(again["runs"])) == (saved["cases"], 2)


@pytest.mark.usefixtures("_own_threads")
def test_a_wrong_pattern_and_a_wrong_device_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "no such case"]) == 2
    assert "no case has 'no such case' in its name" in capsys.readouterr().err
    assert command.main(["--device", "abacus"]) == 2
    assert "no device 'abacus'; wanted one of cpu, reference, cuda" in capsys.readouterr().err
    assert command.main(["--list", "--only", "*lengths*training*"]) == 0
    assert capsys.readouterr().out == "lengths training 1000,64,256\n"
    assert command.main(["--list", "--only", "lstm training 50,16,128"]) == 0
    assert capsys.readouterr().out == "lstm training 50,16,128\n"  # and not those of milstm


def test_a_missing_peer_is_named_and_its_figure_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(contender.ENGINES, "JAX", Engine("jax_engine", "scan", ("no_such_library",)))
    case = Case("g", "s", entries(PROBLEM, "training", "rnnops", "JAX"), (speedup(("JAX",), 1.0),))
    result = measured(case)
    assert not result.error
    assert [one.value is None for one in result.measured] == [False, True]
    assert not result.figures[0].met
    text = page([result], MACHINE, {}, [], [])
    assert "- not judged: g s: JAX / rnnops is not measured, wanted at least 1.000" in text
    assert "- JAX: JAX is not measured: wanted the library no_such_library" in text
    assert "pip install '.[bench]'" in text


def test_a_contender_that_computes_something_else_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(entry: Entry, bench: Bench) -> Contender:
        right = rnnops_engine.plain(entry, bench)
        assert right.results
        return Contender(right.call, lambda returned: {**right.results(returned), "gradient of b": np.zeros(16)})

    monkeypatch.setattr(rnnops_engine, "wrong", wrong, raising=False)
    monkeypatch.setitem(contender.ENGINES, "JAX", Engine("rnnops_engine", "wrong"))
    result = measured(Case("g", "s", entries(PROBLEM, "training", "rnnops", "JAX")))
    assert result.error.startswith("JAX and rnnops differ: gradient of b is off by")
    assert result.measured == ()
    assert "## Wrong\n\n- g s: JAX and" in page([result], MACHINE, {}, [], [])


def test_a_contender_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(contender.ENGINES, "JAX", Engine("rnnops_engine", "plain", options={"checkpoints": "nobody"}))
    result = measured(Case("g", "s", entries(PROBLEM, "training", "rnnops", "JAX")))
    assert result.error.startswith("JAX: CheckpointError: ")
    assert result.measured == ()


def test_a_contender_that_has_ended_its_process_is_an_error() -> None:
    case = Case("g", "s", entries(PROBLEM, "training", "rnnops", "JAX"))
    it = Measurement(case, FAST, reasons={"JAX": "its process ended with 7"})
    assert it.measured() == []
    assert it.wrong == ["JAX: its process ended with 7"]


def test_recomputed_bound_and_reference_agree_with_the_default() -> None:
    contenders = (
        Entry("reference", "reference", PROBLEM, timed=False),
        Entry("rnnops", "rnnops", PROBLEM),
        Entry("gates", "rnnops", Problem("lstm", SIZE, ("gates",))),
        Entry("bound", "rnnops bound", PROBLEM, "forward"),
    )
    result = measured(Case("g", "s", contenders, (ratio("gates", "rnnops", 1000.0),)))
    assert not result.error
    assert [one.label for one in result.measured] == ["rnnops", "gates", "bound"]
    assert result.figures[0].met


def test_kept_numbers_are_six_and_two_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Size, "tiny", lambda size: Size(40, 2, 4))
    (case,) = (case for case in all_cases(tiny=True) if case.measure == "kept")
    values = [one.value for one in measured(case).measured]
    assert values == [pytest.approx(6, abs=0.1), pytest.approx(2, abs=0.1)]


def test_a_child_measures_and_a_child_that_fails_is_named() -> None:
    clock, processor = run_child("compile", Entry("rnnops", "rnnops", PROBLEM), FAST, {})
    assert 0 < clock < 60
    assert 0 < processor < 60
    with pytest.raises(ChildError, match=r"memory nobody .* lstm .* ended with 1: .*KeyError: 'nobody'"):
        run_child("memory", Entry("nobody", "nobody", PROBLEM), FAST, {})


def test_contenders_take_turns() -> None:
    seen: list[str] = []
    settings = replace(FAST, counted=0.0)
    blocks = {name: HostBlock(Contender(lambda k, name=name: seen.append(name)), settings, Quiet(0.0)) for name in "ab"}
    times = time_in_turn(blocks, 3, lambda label: None, lambda label, error: None)
    assert seen == list("ababab")
    assert [len(row) for row in times.values()] == [3, 3]


def test_disturbed_blocks_are_repeated_while_patience_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    others = iter([5.0, 5.0, 0.0])
    monkeypatch.setattr(OtherLoad, "seconds", lambda self: next(others))
    monkeypatch.setattr("bench.load.PAUSE", 0.0)
    values = iter([3.0, 2.0, 1.0])
    quiet = Quiet(patience=60.0)
    assert quiet.block(lambda: next(values)) == 1.0
    assert quiet.processors == 0.0


def test_without_patience_the_disturbance_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherLoad, "seconds", lambda self: 5.0)
    quiet = Quiet(patience=0.0)
    assert quiet.block(lambda: 3.0) == 3.0
    assert quiet.processors > 1


def test_the_report_has_one_table_a_group() -> None:
    measured = (Measured("rnnops", 1e-3), Measured("JAX", 2.5e-3))
    results = [
        CaseResult("lstm training", setting, measured, (Figure("JAX / rnnops", 2.5, goal),))
        for setting, goal in (("1,2,3", 2.0), ("4,5,6", 3.0))
    ]
    lines = page(results, MACHINE, {}, [], []).splitlines()
    assert "| lstm training | rnnops  | JAX            |" in lines
    assert "| 1,2,3         | 1.00 ms | 2.50 ms (2.50) |" in lines
    assert lines.index("- **missed**: lstm training 4,5,6: JAX / rnnops 2.500, wanted at least 3.000") < lines.index(
        "- met: lstm training 1,2,3: JAX / rnnops 2.500, wanted at least 2.000"
    )
    assert "## Goals: 1 of 2 met" in lines


def test_many_contenders_go_down_the_page() -> None:
    measured = tuple(Measured(f"random_{k}", 1e-3) for k in range(12))
    lines = page([CaseResult("random", "1,2,3", measured)], MACHINE, {}, [], []).splitlines()
    assert "| random    | 1,2,3   |" in lines
    assert "| random_1  | 1.00 ms |" in lines


def test_two_versions_are_compared() -> None:
    """One with itself."""
    command = [sys.executable, "-m", "bench.versions", "--quick", "--only", "lstm forward 50,1,128"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()[1:]
    assert [line.rsplit("  ", 1)[1] for line in lines] == [
        "lstm forward 50,1,128, rnnops",
        "lstm forward 50,1,128, rnnops bound",
    ]
    assert all("same bits" in line for line in lines)
