"""Checks of the first minutes can fail: barriers that do not wait, copies that lose numbers, errors that are told."""

from __future__ import annotations

import json
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from cuda_marks import in_simulator, on_cuda
from whole_grid import whole_grid

import rnnops as ro
from bench.cuda_assembly import beside_measured, loops_written, predicted
from bench.first_minutes import checks, models
from bench.first_minutes.harness import FAILED, HUNG, MISSING, OK, Outcome, judged, page
from bench.first_minutes.steps import MODEL, RESULT, Part
from bench.problems import Size
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda.share_blocks import CLOCK
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.kernels.cuda import lane_functions

pytestmark = [*on_cuda, in_simulator]
HEAD = {
    "date": "2030-01-31",
    "command": "python",
    "seconds": 9.0,
    "machine": {"gpu": "H200"},
    "revision": {"commit": "a"},
}
TINY = Namespace(tiny=True, size=Size(2, 2, 2), net="")


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """All that was told, as the first minutes read it."""
    lines = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = {}
    for line in lines:
        found.update(json.loads(line.removeprefix(RESULT)))
    return found


# what kernels are made of


@pytest.fixture
def _four_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of two blocks, as on a device of four multiprocessors."""
    monkeypatch.setattr(checks, "SIMULATED", False)
    monkeypatch.setattr(checks, "card", lambda: SimpleNamespace(multiprocessors=4))


@pytest.mark.usefixtures("_four_blocks")
def test_members_of_a_group_read_what_neighbours_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    with whole_grid(blocks=4, check=True, seed=1):
        checks.barriers(TINY)
    assert told(capsys) == {"groups": 2, "members": 2, "waits": 9}


@pytest.mark.usefixtures("_four_blocks")
def test_a_barrier_that_waits_for_nobody_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hurried = lane_functions.groups_source().replace("def await_group(", "def real_await_group(")
    hurried += "\n\n@device_function\ndef await_group(counters, line, members, turn):\n    pass\n"
    monkeypatch.setattr(lane_functions, "groups_source", lambda: hurried)
    with whole_grid(blocks=4, seed=1):
        checks.barriers(TINY)
    assert "are not those that a neighbour wrote" in told(capsys)["wrong"]


def test_copies_are_those_of_a_plain_copy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    checks.copies(TINY)
    found = told(capsys)
    assert (found["from 0"], found["from 4"]) == ("equal bits", "equal bits")
    assert found["cp.async, GB/s"] >= 0
    monkeypatch.setattr(checks, "copies_done", lambda: None)
    checks.copies(TINY)
    assert told(capsys)["wrong"].startswith("48 of 48 numbers from 0 on are not those")


@pytest.mark.parametrize(("right", "key"), [(True, "tf32"), (False, "wrong")])
def test_tensor_cores_are_told_instruction_by_instruction(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], right: bool, key: str
) -> None:
    class Compared(SimpleNamespace):
        def __str__(self) -> str:
            return "tf32: 3 wrong elements"

    one = Compared(instruction=SimpleNamespace(short="tf32"), is_right=right)
    module = SimpleNamespace(compare_tensor_cores=lambda: [one])
    monkeypatch.setattr(checks, "import_module", lambda name: module)
    checks.tensor_cores(TINY)
    assert told(capsys) == {key: "tf32: 3 wrong elements"}


# what runs around loops


def test_rows_that_end_agree_with_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    models.whole(Namespace(net="rows", size=Size(2, 2, 2)))
    assert told(capsys)["worst"].startswith("cuda: ")


@pytest.mark.parametrize("name", ["nested", "slots", "model", "layers"])
def test_the_others_do(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    models.whole(Namespace(net=name, size=Size(2, 2, 2)))
    found = told(capsys)
    assert "worst" in found or (name == "layers" and "run on the CPU only" in found["not_there"])


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ro.errors.DeviceError("no such thing", net="n"), {"not_there": "net 'n': no such thing."}),
        (ro.testing.CheckError("y is off"), {"wrong": "y is off"}),
    ],
)
def test_what_a_device_refuses_and_what_differs_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, wanted: dict[str, str]
) -> None:
    def fails(size: Size) -> dict[str, Any]:
        raise error

    monkeypatch.setitem(models.WHOLE, "rows", fails)
    models.whole(Namespace(net="rows", size=Size(2, 2, 2)))
    found = told(capsys)
    assert found.keys() == wanted.keys()
    assert all(found[key].startswith(words.rstrip(".")) for key, words in wanted.items())


def test_numbers_that_are_off_or_none_are_wrong() -> None:
    assert "worst" in models.judged(1e-5, "w")
    assert "allowed 1e-04" in models.judged(1e-3, "w")["wrong"]
    assert "wrong" in models.judged(float("nan"), "w")


# the cost model


def test_predictions_are_of_the_loops_that_are_written_and_of_the_clock() -> None:
    net = ro.Net("n")
    h, *_ = ro.GRU(net, net.input("x"), None, None, 4, 4, scope="g")
    net.outputs(h=h)
    feeds = {"x": (3, 2, 4), **{name: array.shape for name, array in ro.init_params(net, 0, "float32").items()}}

    def times(shared_bytes: int, clock: float = CLOCK) -> dict[str, float | None]:
        options = Options(around="rows", device=Cuda(lanes=4, blocks=2, shared_bytes=shared_bytes))
        with loops_written() as written:
            plan = ro.compile(net, device="cuda", tuning=options).plan(feeds, dtype="float32").plan
        return predicted([kernel.compiled for kernel in plan.compiled.kernels], written, 2, clock)

    found, half = times(48 * 1024), times(48 * 1024, CLOCK / 2)
    assert found.keys() == {"forward", "backward"}
    assert all(half[name] == pytest.approx(2 * time) for name, time in found.items() if time)
    assert all(found.values())
    assert times(0) == {"forward": None, "backward": None}  # weights leave the chip


def test_the_page_shows_the_model_beside_the_device_and_errors() -> None:
    slopes = {"forward": 9.0, "forward loop_1": 3.0, "forward loop_2": 1.0, "backward loop_0": 5.0}
    found = beside_measured(slopes, {"forward": 2.0, "backward": None})
    assert found["forward"] == {"measured": 4.0, "predicted": 2.0, "ratio": 2.0}
    assert found["backward"] == {"measured": 5.0, "predicted": None, "ratio": None}
    told = {f"{MODEL} H 768, N 16": {"for": "1980 MHz", **found}, f"{MODEL} H 9, N 9": "not measured: KeyError"}
    outcomes = [
        Outcome("loops", "loops lstm --size=8,16,768", "", OK, result=told),
        Outcome("copies", "copies", "", FAILED, "3 of 9 numbers"),
    ]
    text = page(HEAD, outcomes)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert ["lstm, H 768, N 16 forward", "4", "2", "2", "1980 MHz"] in rows
    assert ["lstm, H 768, N 16 backward", "5", "-", "-", "1980 MHz"] in rows
    assert "- copies: copies: **failed**: 3 of 9 numbers" in text
    assert "not measured: KeyError" in text


# how a process went


def test_what_is_not_there_is_missing_and_what_is_optional_does_not_hang() -> None:
    outcome = Outcome("s", "p", "", OK, result={"not_there": "no such kernels"})
    assert judged(Part("p", ()), 0, "", outcome, 7.0) == (MISSING, "no such kernels")
    assert judged(Part("p", ()), 1, "", outcome, 7.0)[0] == FAILED
    assert judged(Part("p", (), optional=True), "", "", outcome, 7.0) == (MISSING, "still running after 7 s")
    assert judged(Part("p", ()), "", "", outcome, 7.0)[0] == HUNG
