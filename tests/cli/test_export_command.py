"""`rnnops export`: ONNX files and checkpoints of `rnnops train` as programs, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from native_programs import Program, needs_compiler
from onnx_command_files import HEAD, by_window, saved
from train_runs import TINY, train, write_text

import rnnops as ro
from rnnops.cli.main import main, read_model
from rnnops.compiler.run.export_native import ExportedFiles


def export(*arguments: object) -> int:
    """Run the command in this process and return its exit code."""
    return main(["export", *map(str, arguments)])


def program(folder: Path, name: str, given: str, made: str) -> Program:
    """What the command has written as C99, built and loaded."""
    files = [folder / f"{name}{ending}" for ending in (".c", ".h", ".weights", ".json")]
    return Program(ExportedFiles(None, *files, {given: given}, {made: made}), name)


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    net = ro.Net("tagger")
    x, h, c = net.input("x"), net.input("h", shape=(1, 5)), net.input("c=", shape=(1, 5))
    _, h_last, _, c_last = ro.LSTM(net, x, None, (h, c), 3, 5, scope="encoder")
    net.outputs(scores=ro.softmax(h_last @ net.parameter("w_out", (5, 2))), h_last=h_last, c_last=c_last)
    params = ro.init_params(net, seed=0, dtype="float64")
    ro.onnx.export(net, tmp_path / "tagger.onnx", params=params, shapes={"x": ("T", 1, 3)})
    return tmp_path / "tagger.onnx"


@needs_compiler
def test_onnx_file(onnx_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = ("--state", "h_last=h", "--state", "c_last=c=")
    assert export(onnx_file, tmp_path / "made", "--shape", "x=4,1,3", *states, "--source", "c99", "--name", "tag") == 0
    printed = capsys.readouterr().out
    assert "tag.c, tag.h, tag.weights and tag.json" in printed
    assert "int tag_run(void *memory, const double *x, double *scores);" in printed
    assert "the file has floats of float64, and so has the program\n" in printed
    made = program(tmp_path / "made", "tag", "x", "scores")
    model = ro.onnx.load_model(onnx_file)
    run = ro.compile(model.net, "reference").bind(**model.params)
    values, scores = {"h": np.zeros((1, 5)), "c=": np.zeros((1, 5))}, np.zeros((1, 1, 2))
    for x in np.random.default_rng(0).normal(size=(3, 4, 1, 3)):
        out = run({**values, "x": x})
        values = {"h": out["h_last"][0], "c=": out["c_last"][0]}
        assert made({"x": x}, {"scores": scores}) == 0
        np.testing.assert_allclose(scores, out["scores"], rtol=1e-12)


@needs_compiler
def test_a_file_for_whole_sequences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """g (float[1,2,T] x) => (float[1,2,T] y) <float[2,2,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}>
        { a = Conv<pads = [1, 1]>(x, w) y = Sigmoid(a) }"""
    path = saved(tmp_path / "a.onnx", HEAD + text)
    given = ("--shape", "x=1,2,2", "--source", "c99", "--name", "seen")
    assert export(path, tmp_path / "made", *given, "--steps", "T") == 0
    printed = capsys.readouterr().out
    assert "stream_fed: int64_t[1], 0 to 2: frames of this call, 0 behind the last\n" in printed
    assert "y: float[1, 2, 2], whose first frames mean nothing: 1 */" in printed
    files = [tmp_path / "made" / f"seen{ending}" for ending in (".c", ".h", ".weights", ".json")]
    inputs, x = {"x": "x", "stream/fed": "stream_fed"}, np.random.default_rng(0).normal(size=(1, 2, 4))
    made = Program(ExportedFiles(None, *files, inputs, {"y": "y"}), "seen")
    parts = []
    for begin in (0, 2, 4):
        part = np.ascontiguousarray(x[..., begin : begin + 2] if begin < 4 else np.zeros((1, 2, 2)), "float32")
        feeds, out = {"x": part, "stream/fed": np.full(1, 2 * (begin < 4))}, {"y": np.zeros((1, 2, 2), "float32")}
        assert made(feeds, out) == 0
        parts.append(out["y"])
    model = ro.onnx.load_model(path)
    whole = ro.compile(model.net, device="reference").bind(**model.params)(x=x.astype("float32"))["y"]
    np.testing.assert_allclose(np.concatenate(parts, 2)[..., 1:5], whole, rtol=1e-5)
    assert export(path, tmp_path / "made", *given, "--steps", "S") == 2
    assert "--steps names no open size; wanted T; got S. A file that fixes" in capsys.readouterr().err
    fixed = saved(tmp_path / "fixed.onnx", HEAD + text.replace("1,2,T", "1,2,9"))
    assert export(fixed, tmp_path / "made", "--steps", "T") == 2
    assert "wanted none; got T. A file that fixes the axis of frames is exported anew" in capsys.readouterr().err


def test_a_frame_in_each_call_without_steps_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Windows over the frames get zeros in place of earlier ones; the net is right where it is called whole."""
    text = """g (float[1,2,T] x) => (float[1,2,T] y) <float[2,2,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}>
        { a = Conv<pads = [1, 1]>(x, w) y = Sigmoid(a) }"""
    path = saved(tmp_path / "a.onnx", HEAD + text)
    cases = [("1", [], True), ("4", [], False), ("1", ["--steps", "T"], False)]
    for frames, steps, warned in cases:
        assert export(path, tmp_path / "made", "--shape", f"x=1,2,{frames}", *steps, "--source", "c99") == 0
        printed = capsys.readouterr().out
        assert ("warning: net 'g': these ops see the frames of one call" in printed) == warned, (frames, steps)
        assert ("calls: Conv -> a." in printed) == warned


def test_branches_follow_from_shapes_and_constants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = by_window(tmp_path)
    assert export(path, tmp_path / "made") == 2
    assert "--shape x=N,window --shape h=1,N,2" in capsys.readouterr().err
    assert export(path, tmp_path / "made", "--shape", "x=1,6", "--state", "hn=h") == 0  # N is 1 in the state, too
    assert "x: float[1, 6]" in capsys.readouterr().out
    text = "g (float[N] x, int64[2] s) => (float y) { y = Reshape(x, s) }"
    sized = saved(tmp_path / "sized.onnx", HEAD + text)
    assert export(sized, tmp_path / "sized", "--shape", "x=6", "--constants", "s=2,-1") == 0
    assert "y: float[2, 3]" in capsys.readouterr().out


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    path = folder / "model.safetensors"
    cell = ("--cell", "lstm", "--layers", "2")
    assert train(write_text(folder / "text"), *TINY, *cell, "--steps", "12", "--save", path) == 0
    return path


@needs_compiler
def test_checkpoint(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = read_model(checkpoint)
    free = [name for name in model.net.input_names if name not in model.params]
    outputs = [*model.net.output_blobs]
    given = [text for pair in zip(outputs[1:], free[1:], strict=True) for text in ("--state", "=".join(pair))]
    assert export(checkpoint, tmp_path, *given, "--source", "c99", "--name", "lm") == 0
    printed = capsys.readouterr().out
    (alphabet,) = re.findall(r"characters are numbered by their place in (.*)", printed)
    made = program(tmp_path, "lm", free[0], outputs[0])
    run = ro.compile(model.net, "reference").bind(**model.params)
    values = {name: np.zeros(model.shapes[name], "f") for name in free[1:]}
    scores = np.zeros((1, 1, len(json.loads(alphabet))), "f")
    for character in (3, 0, 7):
        feeds = {free[0]: np.array([[character]], "int32")}
        out = run({**values, **feeds})
        values = {name: out[output] for name, output in zip(free[1:], outputs[1:], strict=True)}
        assert made(feeds, {outputs[0]: scores}) == 0
        np.testing.assert_allclose(scores, out[outputs[0]], rtol=1e-5, atol=1e-5)


def test_weights_of_int8(checkpoint: Path, tmp_path: Path) -> None:
    sizes = {}
    for weights in ((), ("--weights", "int8")):
        assert export(checkpoint, tmp_path, *weights, "--source", "c99", "--name", "lm") == 0
        sizes[weights] = (tmp_path / "lm.weights").stat().st_size
    assert sizes["--weights", "int8"] < sizes[()]


def test_what_is_refused(onnx_file: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = tmp_path / "made", tmp_path / "file"
    file.write_bytes(b"\x08\x08nonsense")
    sized = "--shape", "x=1,1,3"
    wrong: list[tuple[list[object], str]] = [
        ([tmp_path / "none", folder], "cannot be read"),
        ([tmp_path, folder], "cannot be read"),
        ([file, folder], "protobuf"),
        ([onnx_file, folder], r"sizes open.*--shape x=T,1,3, with"),
        ([onnx_file, folder, *sized, "--shape", "y=1"], "no such input"),
        ([onnx_file, folder, "--shape", "xs=1,1,3"], "blob 'xs': --shape: the net has no such input; wanted one of x"),
        ([onnx_file, folder, *sized, "--state", "h_last=x"], "state"),
        ([onnx_file, folder, *sized, "--state", "h_last"], "names no pair"),
        ([onnx_file, folder, *sized, "--name", "a-b"], "word of C"),
        ([onnx_file, file, *sized, "--source", "c99"], "cannot be written"),
    ]
    for arguments, problem in wrong:
        assert export(*arguments) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.startswith("rnnops: error: ")
        assert re.search(problem, said), said
    for shape in ("x", "=", "x=1,a", "x=1,,2", "x=-1"):
        with pytest.raises(SystemExit, match="2"):
            export(onnx_file, folder, "--shape", shape)
    assert not folder.exists()


def test_a_cell_of_ones_own_is_not_imported(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rnnops.cli.main.is_own", lambda spec: True)
    assert export(checkpoint, tmp_path / "made") == 2
    assert not (tmp_path / "made").exists()
