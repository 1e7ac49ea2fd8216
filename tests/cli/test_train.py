"""`rnnops train` from end to end, on tiny models and texts: what it learns, prints, draws and refuses."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from train_runs import COMMAND, TINY, outcome, steps_of, train, write_text

from rnnops.cells import CELLS
from rnnops.cli.trainer import TrainOptions, open_session
from rnnops.model import store

OWN_CELL = '''
"""A user's own cell: a minimal gated unit, in ops, without a derivative."""

import rnnops as ro
from rnnops.cells import RNNCell


class MinimalGatedUnit(RNNCell):
    def __init__(self, input_size, hidden_size, name):
        super().__init__(name)
        self.input_size, self.hidden_size = input_size, hidden_size

    def get_state_names(self):
        return [f"{self.name}/h"]

    def get_state_dims(self):
        return [self.hidden_size]

    def get_output_dim(self):
        return self.hidden_size

    def step(self, step, x_t, states, extra=()):
        (h,) = states
        gate = ro.sigmoid(self.product(step, "gate", x_t, h))
        new = ro.softsign(self.product(step, "new", x_t, gate * h))
        h_t = step.masked((1.0 - gate) * h + gate * new, h, False)
        return h_t, [h_t]

    def product(self, step, name, x_t, h):
        joined = ro.concat([x_t, h], axis=-1)
        return step.linear(joined, f"{self.name}/{name}", self.input_size + self.hidden_size, self.hidden_size)


def build(input_size, hidden_size, name):
    return MinimalGatedUnit(input_size, hidden_size, name)


def wrong(input_size, hidden_size, name):
    return "no cell"


def broken(input_size, hidden_size, name):
    return [][hidden_size]


number = 3
'''


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "sums.txt")


@pytest.fixture
def own_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's module in the working directory, under a name that no test shares."""
    module = f"my_cells_{abs(hash(tmp_path))}"
    (tmp_path / f"{module}.py").write_text(OWN_CELL)
    monkeypatch.chdir(tmp_path)
    return module


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a refused command prints."""
    assert train(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rnnops: error: ")
    return line


def test_the_loss_falls(text: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.npz"
    assert train(text, *TINY, "--hidden", 24, "--steps", 100, "--save", target) == 0
    _, state = store.load(target)
    assert [point[0] for point in state["training"]] == [64 * 20 * k for k in range(1, 6)]
    assert [point[0] for point in state["held_out"]] == [64 * 10 * k for k in range(1, 11)]
    for curve in (state["training"], state["held_out"]):
        assert curve[-1][1] < 0.75 * curve[0][1]


def test_prints_the_held_out_figure_beside_the_tables(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(text, *TINY, "--steps", 3) == 0
    out = capsys.readouterr().out
    figures = dict(re.findall(r"^  (\w.*?\w) {2,}(\d+\.\d+)(?:  <--)?$", out, re.M))
    tables = [f"order {order} characters" for order in range(4)]
    assert set(figures) == {*tables, "lzma", "bz2", "this model"}
    assert list(map(float, figures.values())) == sorted(map(float, figures.values()), reverse=True)
    assert "stopped after the last step: 3 steps, 192 characters" in out
    assert "characters a second" in out


@pytest.mark.parametrize("cell", CELLS)
def test_every_preset_trains_alone_and_stacked(cell: str, text: Path, tmp_path: Path) -> None:
    for layers in (1, 2):
        target = tmp_path / f"{layers}.npz"
        options = ("--cell", cell, "--layers", layers, "--dropout", 0.2 * (layers - 1), "--steps", 1, "--save", target)
        assert train(text, *TINY, *options) == 0
        names = {name.split(".")[1] for name in store.load(target)[0] if name.startswith("stack.layer")}
        assert names == {f"layer_{layer}" for layer in range(layers)}


@pytest.mark.parametrize("cell", ["gru", "layer_norm_milstm"])
def test_recompute_changes_no_bit(cell: str, text: Path, tmp_path: Path) -> None:
    plain, recomputed = tmp_path / "plain.npz", tmp_path / "recomputed.npz"
    options = (*TINY, "--cell", cell, "--layers", 2, "--dropout", 0.3, "--steps", 12)
    assert train(text, *options, "--save", plain) == 0
    assert train(text, *options, "--recompute", "--save", recomputed) == 0
    assert outcome(plain) == outcome(recomputed)


def test_float64(text: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.npz"
    assert train(text, *TINY, "--dtype", "float64", "--steps", 2, "--save", target) == 0
    arrays, _ = store.load(target)
    assert {array.dtype.name for array in arrays.values()} == {"float64", "int64"}


def test_products_of_bfloat16(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another learning curve, as good as that of float32; the checkpoint knows which, and is held to it."""
    bits = []
    for precision in ("float32", "bfloat16"):
        target = tmp_path / f"{precision}.npz"
        options = (*TINY, "--hidden", 24, "--steps", 60, "--precision", precision, "--save", target)
        assert train(text, *options) == 0
        bits.append(store.load(target)[1]["held_out"][-1][1])
    assert "24, products of bfloat16," in capsys.readouterr().out
    assert bits[0] != bits[1]
    assert abs(bits[0] - bits[1]) < 0.05
    wanted = "--precision contradicts the checkpoint; wanted 'bfloat16'; got 'float32'"
    assert wanted in refused(capsys, "--resume", target, "--precision", "float32")


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_held_out_figure_with_weights_of_int8(
    device: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the other one and near to it, of a run that goes on for no step."""
    target = tmp_path / "model.npz"
    assert train(text, *TINY, "--hidden", 24, "--device", device, "--steps", 60, "--save", target) == 0
    assert "int8" not in capsys.readouterr().out
    assert train("--resume", target, "--steps", 0, "--sample", 0, "--weights", "int8") == 0
    found = dict(re.findall(r"^  (this model.*?) {2,}(\d+\.\d+)  <--$", capsys.readouterr().out, re.M))
    assert set(found) == {"this model", "this model, int8"}
    assert abs(float(found["this model"]) - float(found["this model, int8"])) < 0.02
    trainer = open_session(TrainOptions(resume=target), lambda _: None).trainer
    exact, rounded = trainer.evaluate(), trainer.evaluate(weights="int8")
    assert exact.characters == rounded.characters
    assert exact.bits != rounded.bits


def test_a_cell_of_ones_own(own_cell: str, text: Path, tmp_path: Path) -> None:
    target, path_before = tmp_path / "model.npz", list(sys.path)
    options = (*TINY, "--hidden", 24, "--layers", 2, "--steps", 60)
    assert train(text, *options, "--cell", f"{own_cell}:build", "--save", target) == 0
    arrays, state = store.load(target)
    assert arrays["stack.layer_1.gate_w"].shape == (24, 48)
    assert state["held_out"][-1][1] < 0.8 * state["held_out"][0][1]
    assert sys.path == path_before


def test_a_cell_of_ones_own_from_a_console(own_cell: str, text: Path, tmp_path: Path) -> None:
    command = [*COMMAND, str(text), *TINY, "--steps", "1", "--cell", f"{own_cell}:build"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert f"model: {own_cell}:build, 1 layer of 6" in result.stdout


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("lstmm", "unknown cell; wanted gru, lstm"),
        ("no_such_module:build", "cannot be imported (ModuleNotFoundError"),
        (":build", "cannot be imported"),
        ("MODULE:", "has no function ''"),
        ("MODULE:nothing", "has no function 'nothing'"),
        ("MODULE:number", "has no function 'number'"),
        ("MODULE:wrong", "no cell came back; wanted an rnnops.cells.RNNCell; got str"),
        ("MODULE:broken", "the function failed (IndexError"),
    ],
)
def test_wrong_cells(spec: str, words: str, own_cell: str, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(capsys, text, *TINY, "--cell", spec.replace("MODULE", own_cell))


def test_recompute_needs_a_cell_that_knows_it(own_cell: str, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, text, *TINY, "--recompute", "--cell", f"{own_cell}:build")
    assert "has no memory_optimization" in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hidden", 0], "--hidden is out of range; wanted 1 to 1000000; got 0"),
        (["--layers", -1], "--layers is out of range"),
        (["--learning-rate", "nan"], "--learning-rate is out of range"),
        (["--clip", 0], "--clip is out of range"),
        (["--dropout", 1], "--dropout is out of range; wanted 0 <= dropout < 1"),
        (["--dtype", "float16"], "--dtype is out of range; wanted float32 or float64"),
        (["--seed", -1], "--seed is out of range"),
        (["--device", "abacus"], "no such device"),
        (["--precision", "half"], "no such precision; wanted float32 or bfloat16 or float16 or tfloat32; got"),
        (["--precision", "float16", "--device", "cpu"], "device 'cpu' does not have this precision"),
        (["--precision", "bfloat16", "--dtype", "float64"], "--dtype is out of range; wanted float32 with --precision"),
        (["--weights", "int8", "--dtype", "float64"], "--weights int8 is only for float32; wanted both float32"),
        (["--weights", "int8", "--precision", "bfloat16"], "got --dtype float32 --precision bfloat16"),
        (["--learning-rate", 1e30, "--steps", 30], "the gradient norm is not finite"),
        (["--batch", 10_000], "the text is too short for 10000 streams"),
        (["--resume", "nothing.npz"], "nothing.npz does not exist"),
        (["--plot", "no/such/folder/curve.png"], "its directory does not exist"),
        (["--max-bytes", 100], "is too short"),
    ],
)
def test_bad_options(options: list[object], words: str, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(capsys, text, *TINY, *options)


@pytest.mark.parametrize(
    "arguments",
    [["--steps", "-1"], ["--sample", "x"], ["--threads", "0"], ["--time-limit", "inf"], ["--no-such-option"]],
)
def test_what_the_parser_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        train(*arguments)
    assert stop.value.code == 2
    assert "usage: rnnops" in capsys.readouterr().err


def test_a_missing_text_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no_such_text" in refused(capsys, "no_such_text.txt")


def test_saving_spares_other_files(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("a letter")
    assert "would be overwritten" in refused(capsys, text, *TINY, "--save", precious)
    assert precious.read_text() == "a letter"
    old = tmp_path / "old.npz"
    store.save(old, {}, {"program": "rnnops train"})
    assert train(text, *TINY, "--steps", 1, "--save", old) == 0
    assert steps_of(old) == 1


def test_a_directory_that_cannot_be_written_is_found_at_once(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    line = refused(capsys, text, *TINY, "--time-limit", 100, "--save", tmp_path / "no" / "model.npz")
    assert "cannot be written" in line
    assert time.monotonic() - began < 50


def test_plot_writes_a_png(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "curve.png"
    assert train(text, *TINY, "--steps", 21, "--plot", target) == 0
    assert target.read_bytes().startswith(b"\x89PNG\r\n")
    assert f"curves: {target}" in capsys.readouterr().out


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_sample_has_as_many_characters_as_asked(
    temperature: float, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = (*TINY, "--steps", 5, "--sample", 37, "--temperature", temperature)
    samples = []
    for _ in range(2):
        assert train(text, *options) == 0
        _, _, drawn = capsys.readouterr().out.partition(f"sample of 37 characters at temperature {temperature}:\n")
        samples.append(drawn.removesuffix("\n"))
    assert [len(drawn) for drawn in samples] == [37, 37]
    assert samples[0] == samples[1]


def test_the_time_limit_is_for_the_whole_command(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert train(text, *TINY, "--time-limit", 2) == 0
    assert 0.5 < time.monotonic() - began < 12  # machines are busy
    assert "stopped at the time limit" in capsys.readouterr().out


def test_import_rnnops_loads_none_of_this() -> None:
    code = "import rnnops, sys; print([name for name in sys.modules if name.startswith('rnnops.cli')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_default_run_reaches_its_figure() -> None:
    """At most 2.8 bits per held-out character, and better than the order-2 table, within 150 s on two cores."""
    began = time.monotonic()
    result = subprocess.run([*COMMAND, "--time-limit", "150"], capture_output=True, text=True, check=True)
    elapsed = time.monotonic() - began
    figures = {name: float(bits) for name, bits in re.findall(r"^  (\w.*?\w) {2,}(\d+\.\d+)", result.stdout, re.M)}
    print(result.stdout)
    assert figures["this model"] <= 2.8
    assert figures["this model"] < figures["order 2 characters"]
    assert elapsed < 170


def test_the_package_is_the_command() -> None:
    for arguments, code in ((["--version"], 0), (["trian"], 2)):
        ran = subprocess.run([sys.executable, "-m", "rnnops", *arguments], capture_output=True, text=True, check=False)
        assert ran.returncode == code
        assert "rnnops" in ran.stdout + ran.stderr
