"""Cases of CUDA as far as they go without a GPU: table, floors, judgement, files, a simulated run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import __main__ as command
from bench.agreement import norm_differences
from bench.case import Case, Entry
from bench.contender import ENGINES, Bench, Contender, MissingPeerError, Settings, make_contender
from bench.counting import count_work
from bench.cuda_cases import (
    FIRST_SIZES,
    OTHER_SIZES,
    PER_STEP,
    PERSISTENT,
    SMALL,
    cuda_cases,
    cudnn_algorithm,
    rough_seconds,
)
from bench.floor import Floor, Rates, bytes_moved, floor_of
from bench.goals import Measured
from bench.measure import DeadDeviceError, Measurement, reason_of
from bench.place import HostPlace, NoDeviceError, find_place, relative_error
from bench.problems import Problem, Size
from bench.record import Record, load_record, result_of, save_record
from bench.report import page
from bench.resume import paths_of
from bench.run import estimate, settings_of
from bench.timing import DeviceBlock, time_in_turn

CASES = {case.name: case for case in cuda_cases()}
TINY = {case.name: case for case in cuda_cases(tiny=True)}
FAST = Settings("cuda", threads=1, rounds=1, counted=0.0, sets=2, tiny=True)
MACHINE = {"gpu": "NVIDIA H200", "torch": "2.9"}
LSTM, CUSTOM = "lstm training 1024,16,768", "milstm training 1024,64,256"
RATES = Rates(1e-6, 1e12, {"fp32": 1e13})


def entry(net: str, size: Size, mode: str, precision: str = "fp32") -> Entry:
    return Entry("rnnops", "rnnops", Problem(net, size), mode, precision=precision)


def measured(case: Case, **seconds: float) -> list[dict[str, Any]]:
    """Rows as a worker sends them, for labels with underscores in place of blanks."""
    return [{"label": label.replace("_", " "), "value": value, "rounds": [value]} for label, value in seconds.items()]


# the table


def test_the_grid_is_complete_and_starts_with_what_tells_most() -> None:
    sizes = {(size.N, size.H) for size in (*FIRST_SIZES, *OTHER_SIZES)}
    assert sizes == {(N, H) for N in (16, 64) for H in (256, 512, 768, 1024)}
    assert len(CASES) == 5 * 2 * 8
    assert next(iter(CASES)) == "lstm forward 1024,16,768"
    assert {case.group for case in TINY.values()} == {case.group for case in CASES.values()}


def test_every_case_has_known_engines_and_labels_of_its_own() -> None:
    for case in CASES.values():
        labels = [one.label for one in case.entries]
        assert len(set(labels)) == len(labels)
        assert labels[0] == "rnnops"
        assert {one.engine for one in case.entries} <= ENGINES.keys()
        assert rough_seconds(case, 5) > 0


@pytest.mark.parametrize(
    ("net", "size", "mode", "precision", "algorithm"),
    [
        ("lstm", Size(1024, 16, 768), "forward", "fp16", PERSISTENT),
        ("lstm", Size(1024, 16, 768), "forward", "bf16", PER_STEP),
        ("lstm", Size(1024, 16, 768), "training", "fp32", PER_STEP),
        ("gru", Size(1024, 16, 768), "forward", "fp16", PER_STEP),
        ("lstm", Size(1024, 12, 768), "forward", "fp16", PER_STEP),
        ("lstm", Size(1024, 16, 800), "forward", "fp16", PER_STEP),
        ("lstm", Size(1024, 16, 192), "forward", "fp32", SMALL),
        ("lstm", Size(1024, 16, 192), "training", "fp32", PER_STEP),
        ("gru", Size(1024, 16, 128), "training", "fp32", SMALL),
    ],
)
def test_the_algorithm_of_cudnn(net: str, size: Size, mode: str, precision: str, algorithm: str) -> None:
    assert cudnn_algorithm(Problem(net, size), mode, precision) == algorithm


@pytest.mark.parametrize(
    ("name", "seconds", "missed"),
    [
        ("lstm forward 1024,16,768", {"rnnops": 0.8, "nn.LSTM": 1.0, "nn.LSTM_fp16": 0.32}, []),
        ("lstm forward 1024,16,768", {"rnnops": 0.81, "nn.LSTM": 1.0, "nn.LSTM_fp16": 0.32}, ["rnnops / nn.LSTM"] * 2),
        (LSTM, {"rnnops": 0.9, "nn.LSTM": 1.0, "nn.LSTM_fp16": 0.36, "rnnops_recompute": 1.01, "products": 0.1}, []),
        (
            LSTM,
            {"rnnops": 0.9, "nn.LSTM": 1.0, "nn.LSTM_fp16": 0.36, "rnnops_recompute": 1.02, "products": 0.1},
            ["(rnnops recompute - rnnops) / products"],
        ),
        (CUSTOM, {"rnnops": 1.0, "eager": 20.0, "nn.LSTM": 0.4, "rnnops_bf16": 0.5, "nn.LSTM_bf16": 0.2}, []),
        (CUSTOM, {"rnnops": 1.0, "eager": 19.9, "nn.LSTM": 0.4, "rnnops_bf16": 0.5, "nn.LSTM_bf16": 0.2}, ["eager"]),
        (CUSTOM, {"rnnops": 1.0, "eager": 20.0, "nn.LSTM": 0.3, "rnnops_bf16": 0.5, "nn.LSTM_bf16": 0.2}, ["rnnops /"]),
        (CUSTOM, {"rnnops": 1.0, "rnnops_bf16": 0.5, "nn.LSTM_bf16": 0.1}, ["rnnops / nn", "rnnops bf16 /", "eager /"]),
        ("gru training 1024,64,256", {"rnnops": 9.0, "nn.GRU": 1.0, "eager": 1.0}, []),
    ],
)
def test_goals(name: str, seconds: dict[str, float], missed: list[str]) -> None:
    result = result_of(CASES[name], measured(CASES[name], **seconds), "")
    names = [figure.name for figure in result.figures if not figure.met]
    assert len(names) == len(missed)
    assert all(came.startswith(wanted) for came, wanted in zip(names, missed, strict=True))


def test_flashrnn_is_judged_where_it_is_and_published_figures_stand_beside() -> None:
    case = CASES["milstm forward 1024,16,768"]
    assert [one.label for one in case.entries if one.engine == "FlashRNN"] == ["FlashRNN bf16"]
    assert {one.problem.net for one in case.entries if one.engine in ("FlashRNN", "nn.LSTM")} == {"lstm"}
    name = "FlashRNN bf16 / rnnops bf16"
    for seconds, met in (({}, True), ({"FlashRNN_bf16": 4.9e-3}, True), ({"FlashRNN_bf16": 3.9e-3}, False)):
        result = result_of(case, measured(case, rnnops=1e-2, rnnops_bf16=4e-3, **seconds), "")
        by_name = {figure.name: figure for figure in result.figures}
        assert (by_name[name].met, by_name[name].goal) == (met, 1.0 if seconds else None)
    assert by_name["FlashRNN bf16, published / rnnops bf16"].value == pytest.approx(4.87 / 4)
    again = result_of(case, [asdict(one) for one in result.measured], "")
    assert again == result  # what is published is not read from a file
    text = page([result], MACHINE, {}, [], [])
    assert "4.76" in text
    assert "FlashRNN bf16, published; eager bf16, published: FlashRNN's authors on an H100 SXM" in text
    assert not any(one.published for one in CASES.values() if one.setting != "1024,16,768" or "gru" in one.group)


# floors


def test_bytes_that_move_at_least() -> None:
    problem = Problem("lstm", Size(3, 2, 4))
    fed = 3 * 2 * 4 + 2 * (2 * 4) + 2 * (4 * 16) + 16  # xs, h0 and c0, w_x and w_h, b
    assert bytes_moved(problem, False, 4) == 4 * (fed + 3 * 2 * 4)
    assert bytes_moved(problem, True, 2) == 2 * 2 * (fed + 3 * 2 * 4)


def test_the_floor_is_the_largest_that_is_known() -> None:
    small, large = Size(1024, 1, 8), Size(1024, 64, 1024)
    assert floor_of(entry("lstm", small, "forward"), RATES) == Floor(1e-6, "sync")
    assert floor_of(entry("lstm", small, "training"), RATES) == Floor(2e-6, "sync")
    flops = count_work(Problem("lstm", large), training=False).flops
    assert flops == 1024 * 2 * 2 * 64 * 1024 * 4096
    assert floor_of(entry("lstm", large, "forward"), RATES) == Floor(flops / 1024 / 1e13, "arithmetic")
    moved = bytes_moved(Problem("lstm", large), False, 2) / 1024
    assert floor_of(entry("lstm", large, "forward", "bf16"), Rates(None, 1e9)) == Floor(moved / 1e9, "bytes")
    assert floor_of(entry("lstm", large, "forward"), Rates()) is None


# comparison and timing


def test_errors_are_norms_and_nan_differs() -> None:
    wanted = np.array([3.0, 4.0], "float32")
    assert relative_error(np.array([3.0, 4.5], "float32"), wanted) == pytest.approx(0.1)
    assert relative_error(wanted[:1], wanted) == math.inf
    assert norm_differences("eager", "rnnops", {"y": 9e-4}) == []
    assert norm_differences("eager", "rnnops", {"y": math.nan})[0].startswith("eager and rnnops differ: y by nan")


@pytest.mark.parametrize(("precision", "count"), [("fp32", 1), ("bf16", 0)])
def test_a_contender_is_compared_with_the_first_one(precision: str, count: int) -> None:
    it = Measurement(TINY["lstm forward 3,2,4"], FAST)
    right, wrong = ({"y": np.ones(4, "float32") * scale} for scale in (1.0, 1.01))
    contender = Contender(lambda k: None, lambda returned: returned)
    one, other = entry("lstm", Size(3, 2, 4), "forward"), entry("lstm", Size(3, 2, 4), "forward", precision)
    assert it.compare(one, contender, right) is None
    assert it.compare(other, contender, wrong) == pytest.approx(0.01, rel=1e-3)
    assert len(it.wrong) == count
    assert it.compare(other, contender, {**right, "c": right["y"]}) == math.inf


def test_a_contender_that_fails_leaves_and_the_others_go_on() -> None:
    seen: list[tuple[str, int]] = []
    failed: dict[str, str] = {}

    def call(label: str, last: int) -> Callable[[int], None]:
        def called(k: int) -> None:
            seen.append((label, k))
            if k >= last:
                raise MemoryError("no more")

        return called

    calls = {"good": call("good", 99), "bad": call("bad", 2)}
    blocks = {label: DeviceBlock(Contender(one), FAST, HostPlace()) for label, one in calls.items()}
    times = time_in_turn(blocks, 3, lambda label: None, lambda label, error: failed.update({label: reason_of(error)}))
    first = [("good", 0), ("good", 1), ("bad", 0), ("bad", 1)]  # one call tells how many make a block
    assert seen == [*first, ("good", 2), ("bad", 2), ("good", 3)]
    assert [*times] == ["good"]
    assert len(times["good"]) == 3
    assert failed == {"bad": "MemoryError: no more"}


def test_a_device_that_has_failed_ends_the_case() -> None:
    class Dead(HostPlace):
        def wait(self) -> None:
            raise RuntimeError("illegal address")

    with pytest.raises(DeadDeviceError, match="ValueError: wrong kernel"):
        Measurement(TINY["lstm forward 3,2,4"], FAST, Dead()).fail("rnnops", ValueError("wrong kernel"))


def test_what_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    case = TINY["lstm forward 3,2,4"]
    of_engine = {one.engine: one for one in case.entries}
    with pytest.raises(MissingPeerError, match="JAX is left out of tiny runs"):
        make_contender(of_engine["JAX"], Bench(FAST))

    with pytest.raises(MissingPeerError, match=r"left out by --without 'eag\*'"):
        make_contender(of_engine["eager"], Bench(replace(FAST, without="eag*")))

    def no_import(library: str) -> None:
        raise ImportError(f"No module named '{library}'")

    monkeypatch.setattr("bench.contender.import_module", no_import)
    with pytest.raises(MissingPeerError, match="wanted the library torch, which does not import"):
        make_contender(of_engine["eager"], Bench(FAST))
    monkeypatch.undo()
    blind = HostPlace()
    blind.torch_device = ""
    monkeypatch.setattr("bench.contender.import_module", lambda library: None)
    with pytest.raises(MissingPeerError, match="this build of PyTorch sees no CUDA device"):
        make_contender(of_engine["eager"], Bench(FAST, blind))


def test_without_a_device_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.place.torch_reason", lambda: "PyTorch sees no device")
    monkeypatch.setattr("bench.place.numba_reason", lambda: "numba-cuda sees no device")
    assert isinstance(find_place(on_device=False), HostPlace)
    with pytest.raises(NoDeviceError, match="PyTorch sees no device; numba-cuda sees no device"):
        find_place(on_device=True)


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")  # what other libraries deprecate is not ours to mend
@pytest.mark.parametrize("name", ["lstm training 3,2,4", "gru training 3,2,4"])
def test_contenders_agree_in_the_simulator(name: str) -> None:
    pytest.importorskip("torch")
    left_out = dict.fromkeys(("nn.LSTM fp16", "nn.GRU fp16", "rnnops bf16" if "lstm" in name else ""), "slow")
    it = Measurement(TINY[name], FAST, rates=RATES, reasons=left_out)
    rows = it.measured()
    assert it.wrong == []
    by_label = {row.label: row for row in rows}
    layer = "nn.LSTM" if name.startswith("lstm") else "nn.GRU"
    for label in ("rnnops", layer, f"{layer} tf32", f"{layer} bf16", "eager"):
        assert by_label[label].value, by_label[label].missing
        assert by_label[label].floor_of == "sync"
    assert by_label["eager"].error < 1e-5
    assert by_label[f"{layer} bf16"].error > 1e-3
    one = by_label["rnnops bf16"]
    assert one.missing == "slow" if "lstm" in name else 1e-4 < one.error < 3e-2
    assert (by_label[layer].tf32, by_label[f"{layer} tf32"].tf32, by_label[f"{layer} bf16"].tf32) == ("off", "on", "-")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gru training 3,2,4", "attention_decoder forward 3,2,4"])
def test_jax_agrees_where_it_has_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("torch")
    bench, of_engine = Bench(replace(FAST, tiny=False)), {one.engine: one for one in TINY[name].entries}
    with pytest.raises(MissingPeerError, match="computes on 'cpu'"):
        make_contender(of_engine["JAX"], bench)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    ready = [make_contender(of_engine[engine], bench) for engine in ("eager", "JAX")]
    came, wanted = ([one.results(one.call(k)) for k in range(2)] for one in ready)
    assert came[0].keys() == wanted[0].keys()
    assert all(bench.place.error(came[k][key], wanted[k][key]) < 1e-5 for k in range(2) for key in came[0])
    assert bench.place.error(came[0]["y"], came[1]["y"]) > 0.1
    assert ready[1].planned() > 0


# files and pages


def test_results_survive_the_disk_and_no_run_writes_over_another(tmp_path: Path) -> None:
    table, case = list(CASES.values()), CASES[LSTM]
    newest, path = paths_of(MACHINE, "2030-01-31", tmp_path)
    assert (newest, path.name) == (None, "cuda-nvidia-h200-2030-01-31.json")
    rows = measured(case, rnnops=2.0, nn_LSTM=1.0)
    runs = [{"date": "2030-01-31", "command": "python -m bench"}]
    record = Record(MACHINE, {"commit": "abc", "sources": "def"}, {"sync_seconds": 1e-6}, runs)
    result = result_of(case, rows, "", when="2030-01-31 12:00 UTC", how="5 rounds")
    record.cases[LSTM], record.unreached = result, ["gru forward 1024,16,768"]
    assert "| measured" in save_record(record, path, table)
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name, path.with_suffix(".md").name]
    saved = json.loads(path.read_text())
    assert load_record(saved, table).cases == record.cases
    assert load_record(saved, table).revision == record.revision
    assert load_record(saved, []).cases == {}
    newest, following = paths_of(MACHINE, "2030-01-31", tmp_path)
    assert (newest, following.name) == (path, "cuda-nvidia-h200-2030-01-31-2.json")


def test_the_page_says_what_was_measured_missed_and_missing() -> None:
    case = CASES[LSTM]
    ours = Measured("rnnops", 1024 * 8e-6, memory=3 * 2**20, floor=2e-6, floor_of="sync")
    layer = Measured("nn.LSTM tf32", 1024 * 4e-6, precision="tf32", tf32="on", algorithm=PER_STEP, error=1e-4)
    gone = Measured("JAX", None, missing="the library jax does not import")
    rows = [asdict(one) for one in (ours, layer, gone)]
    result = result_of(case, rows, "eager and rnnops differ: y by 1e-01")
    rates = {"sync_seconds": 1.5e-6, "flops": {"fp32": 5e13}, "missing": ["bytes: no copy"]}
    text = page([result], MACHINE, rates, [{"date": "2030-01-31", "command": "python -m bench"}], ["gru forward"])
    assert "one grid synchronisation 1.50 us; fp32 products 50.0 TFLOP/s; not measured: bytes: no copy" in text
    assert f"- not judged: {LSTM}: rnnops / nn.LSTM is not measured, wanted at most 0.900" in text
    assert f"- {LSTM}: eager and rnnops differ" in text
    assert f"- JAX: the library jax does not import ({LSTM})" in text
    assert "1 cases: gru forward" in text
    text = re.sub(" +", " ", text)
    assert "| 1024,16,768 | 8.00 | 4.00 (0.50) | - |" in text
    assert "| rnnops | fp32 | off | - | 8.00 | 1.00 | 2.00 | sync | 4.0 | 3.0 | - | 0.0 | - |" in text
    assert "| nn.LSTM tf32 | tf32 | on | per step | 4.00 | 0.50 |" in text


# the command


def test_cases_are_listed_with_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--device", "cuda", "--list", "--only", "gru*1024,64,*"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 8
    assert printed.err.startswith("8 cases, very roughly ")
    assert command.main(["--device", "cuda", "--only", "abacus"]) == 2
    quick = command.parser().parse_args(["--quick"])
    assert settings_of(quick).rounds == 2
    assert estimate(CASES.values(), settings_of(quick)).startswith("80 cases")


@pytest.mark.cuda
def test_a_tiny_run_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--device", "cuda", "--scale", "tiny", "--quick", "--only", "gru forward*", "--output", str(tmp_path)]
    assert command.main(words) == 0
    (path,) = tmp_path.glob("cuda-simulator-*.json")
    saved = json.loads(path.read_text())
    (case,) = saved["cases"]
    rows = {row["label"]: row for row in case["measured"]}
    assert rows["rnnops"]["value"] > 0
    assert rows["JAX"]["missing"] == "JAX is left out of tiny runs"
    assert saved["machine"]["gpu"] == "simulator"
    assert "--quick" in saved["runs"][0]["command"]
    with_torch = bool(rows["nn.GRU"]["value"])
    assert with_torch == importable("torch")
    assert "## Microseconds a step" in path.with_suffix(".md").read_text()
    assert "[1/1] gru forward 3,2,4: ok" in capsys.readouterr().err
    assert command.main([*words, "--resume", "--check"]) == 0
    assert len(json.loads(path.read_text())["runs"]) == 2


def importable(library: str) -> bool:
    try:
        return bool(import_module(library))
    except ImportError:
        return False
