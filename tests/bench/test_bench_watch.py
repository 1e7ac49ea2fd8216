"""Workers that measure are watched: those that hang, die or take too long, and cases that have one each."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from bench import __main__ as command, watch as watching
from bench.cases import cases_of
from bench.contender import Settings
from bench.environment import THREAD_VARIABLES
from bench.run import run_cases
from bench.watch import Watch, WorkerError, environment

FAST = Settings(device="reference", threads=1)

FAKE = """
import json, os, sys, time
def emit(event, **words): print(json.dumps({"event": event, **words}), flush=True)
listen = lambda: json.loads(sys.stdin.readline())
settings = listen()
emit("machine", machine={"threads": os.environ.get("OMP_NUM_THREADS", "none")}, rates={"sync_seconds": 1.0})
job = listen()
for case in job["cases"]:
    for label in ("rnnops", "eager"):
        if label not in job["failed"].get(case, {}):
            emit("turn", case=case, label=label)
            FAULT
    emit("case", case=case, measured=[], error="")
"""
FAULTS = {
    "hangs": "if (case, label) == ('b', 'eager'): time.sleep(60)",
    "dies": "if (case, label) == ('b', 'eager'): os._exit(7)",
    "kills": "if (case, label) == ('b', 'eager'): emit('dead', case=case, label=label, reason='bad'); time.sleep(60)",
}


def watch_of(fault: str, **words: Any) -> tuple[Watch, list[str]]:
    done: list[str] = []
    script = FAKE.replace("FAULT", fault)
    watch = Watch(
        ["a", "b", "c"], FAST, lambda watch, event: done.append(event["case"] + event["error"]), lambda watch: None,
        command=(sys.executable, "-c", script), **words,
    )  # fmt: skip
    return watch, done


@pytest.mark.parametrize(
    ("fault", "words"), [("hangs", "it hangs"), ("dies", "ended with 7"), ("kills", "bad (the device did nothing")]
)
def test_a_contender_that_ends_its_worker_is_left_out_and_the_rest_measured(fault: str, words: str) -> None:
    watch, done = watch_of(FAULTS[fault], hung=1.5)
    watch.run()
    assert done == ["a", "b", "c"]
    assert watch.workers == 2
    assert [*watch.failed] == ["b"]
    assert words in watch.failed["b"]["eager"]
    assert watch.rates == {"sync_seconds": 1.0}


def test_time_that_is_up_ends_the_run_with_what_there_is() -> None:
    watch, done = watch_of("if case == 'b': time.sleep(60)", until=time.monotonic() + 1.5)
    watch.run()
    assert done == ["a"]
    assert watch.cases == ["b", "c"]
    assert watch.failed == {}


def test_a_worker_that_never_starts_is_an_error() -> None:
    watch, _ = watch_of("")
    watch.command = sys.executable, "-c", "raise SystemExit(3)"
    with pytest.raises(WorkerError, match="the first worker measured nothing: its process ended with 3"):
        watch.run()


def test_cases_that_are_apart_have_a_worker_each_that_nobody_tells_a_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    watch, _ = watch_of("", apart=frozenset("b"))
    machines: list[str] = []
    watch.saved = lambda watch, event: machines.append(watch.machine["threads"])
    watch.run()
    assert machines == ["7", "none", "7"]
    assert watch.workers == 3
    assert not environment(FAST, is_apart=True).keys() & {*THREAD_VARIABLES}
    assert {case.name.split()[0] for case in cases_of("cpu") if case.apart} == {"compile", "torch"}


def test_without_a_gpu_one_line_and_two(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = 'print(\'{"event": "no device", "reason": "nothing here"}\')'
    monkeypatch.setattr(watching, "COMMAND", (sys.executable, "-c", script))
    options = command.parser().parse_args(["--device", "cuda", "--only", "gru forward*"])
    assert run_cases(options, cases_of("cuda")[:1], []) == 2
    assert "no usable GPU: nothing here; wanted an NVIDIA GPU" in capsys.readouterr().err
