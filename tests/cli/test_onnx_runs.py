"""`rnnops onnx` with `--draw`, `--plan`, `--check`, `--speed` and `--stream`, beside a stand-in for ONNX Runtime."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_command_files import HEAD, StandIn, by_window, command, counter, saved, tagger
from saturating import MatMulInteger

import rnnops as ro
from rnnops.cli import onnx_command
from rnnops.onnx import compare
from rnnops.onnx.compare import Session

QUANTISED = """g (float[N,4] x) => (float y) { q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z) }"""


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_command, "Session", StandIn)
    timed = compare.time_in_turns
    monkeypatch.setattr(compare, "time_in_turns", lambda calls: timed(calls, block=0.0, rounds=1))


@pytest.fixture
def factor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets how much larger the stand-in's results are."""
    return lambda value: monkeypatch.setattr(StandIn, "factor", value)


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str], factor: Any) -> None:
    path = tagger(tmp_path)
    assert command(path, "--check") == 0
    printed = capsys.readouterr().out
    assert "sizes: T=2 (made up), N=7 (made up)" in printed
    assert re.search(r"beside ONNX Runtime, over the largest value:\n  scores  \S+e-0[789]\n  h_last ", printed)
    factor(1.01)
    assert command(path, "--check", "--sizes", "T=4", "--sizes", "N=1") == 1
    printed = capsys.readouterr().out
    assert "sizes: T=4, N=1\n" in printed
    assert re.search(r"scores  9\.9e-03  more than 0\.0001", printed)
    assert command(path, "--check", "--tolerance", "0.1") == 0


def test_feeds_follow_seed_and_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str], factor: Any) -> None:
    path = saved(tmp_path / "a.onnx", HEAD + "g (int64[N] x, float[3,2] w) => (float[N,2] y) { y = Gather(w, x) }")
    factor(1.5)
    found = []
    for arguments in ((), ("--seed", "0"), ("--seed", "1"), ("--range", "x=0,2"), ("--range", "w=1,1")):
        assert command(path, "--check", "--sizes", "N=50", *arguments) == 1
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]
    assert command(path, "--check", "--range", "x=3,9") == 2
    assert "3" in capsys.readouterr().err
    assert command(path, "--check", "--range", "v=0,1") == 2
    assert "ranges of unknown inputs; wanted x, w; got v" in capsys.readouterr().err


MIXED = """g (float[T,N,4] x) => (float[N,4] z) {
    m = ReduceMean<axes = [1]>(x) y = Sub(x, m) z = ReduceMax<axes = [0], keepdims = 0>(y) }"""
FLAT = "g (float[T,N,4] x) => (float[R,4] z) <int64[2] s = {-1, 4}> { y = Tanh(x) z = Reshape(y, s) }"


def test_rows_that_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tagger(tmp_path), "--rows", "3", "--steps", "T") == 0
    printed = capsys.readouterr().out
    assert "N=3\n" in printed
    assert "3 rows at once beside 3 calls of one row each" in printed
    assert printed.endswith("rows do not mix\n")
    assert command(saved(tmp_path / "a.onnx", HEAD + FLAT), "--rows", "N=3") == 0  # steps and rows are one axis there


def test_an_op_that_mixes_rows_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a.onnx", HEAD + MIXED)
    assert command(path, "--rows", "N=3") == 1
    assert "rows are mixed by op 'ReduceMean -> m'\n" in capsys.readouterr().out
    assert command(path, "--rows", "3") == 2
    assert "--rows needs the size that counts rows; got T, N. Say --rows NAME=3." in capsys.readouterr().err
    assert command(path, "--rows", "N=3", "--sizes", "N=2") == 2
    assert "'N' is one size; wanted one number; got [2] and [3]" in capsys.readouterr().err
    assert command(path, "--rows", "M=3") == 2
    assert "these are not open sizes; wanted T, N; got M" in capsys.readouterr().err


def test_a_width_that_weights_fix_is_fed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "g (float[N,W] x) => (float[N,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }"
    assert command(saved(tmp_path / "a.onnx", HEAD + text), "--check", "--rows", "4") == 2
    capsys.readouterr()
    assert command(tmp_path / "a.onnx", "--check", "--rows", "N=4") == 0
    assert "sizes: N=4, W=3\n" in capsys.readouterr().out


def test_sizes_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tagger(tmp_path)
    for arguments, problem in {
        ("--sizes", "M=4"): "these are not open sizes; wanted T, N; got M",
        ("--sizes", "T=4,5"): "'T' is one size",
        ("--sizes", "T=4", "--sizes", "T=5"): "'T' is one size; wanted one number; got [4] and [5]",
        ("--sizes", "T=0"): "size 'T' is wrong; wanted a positive whole number; got 0",
        ("--sizes", "T=99999", "--sizes", "N=99999"): "a feed would be too large",
    }.items():
        assert command(path, "--check", *arguments) == 2
        assert problem in capsys.readouterr().err


def test_sizes_without_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = {"x": [None, 3], "z": [3, None], "v": None, "y": None}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    nodes = [helper.make_node("MatMul", ["x", "z"], ["a"]), helper.make_node("Add", ["a", "v"], ["y"])]
    (tmp_path / "a.onnx").write_bytes(
        helper.make_model(
            helper.make_graph(nodes, "g", values[:3], values[3:]), opset_imports=[helper.make_opsetid("", 17)]
        ).SerializeToString()
    )
    sizes = ("--sizes", "x.0=4", "--sizes", "z.1=6")
    assert command(tmp_path / "a.onnx", "--check", *sizes) == 2
    assert "input 'v'" in capsys.readouterr().err.replace("blob", "input")
    assert command(tmp_path / "a.onnx", "--check", *sizes, "--sizes", "v=4,6") == 0
    assert "sizes: x.0=4, z.1=6" in capsys.readouterr().out


def test_sizes_that_do_not_fit_are_told_to_be_made_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a.onnx", HEAD + "g (float[N] x, float[M] z) => (float[N] y) { y = Add(x, z) }")
    assert command(path, "--speed") == 2
    assert "Sizes are made up: say --sizes N=... --sizes M=..." in capsys.readouterr().err
    assert command(path, "--speed", "--sizes", "M=2") == 0


def test_sizes_decide_branches(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    path, sizes = by_window(tmp_path), ("--sizes", "window=6", "--sizes", "N=4")
    assert command(path) == 0
    assert "  x  float32 [N, window]\n" in capsys.readouterr().out
    assert command(path, *sizes[:2]) == 0
    printed = capsys.readouterr().out
    assert "  x  float32 [N, 6]\n" in printed
    assert "  hn  float32 [1, rows, 2]\n" in printed
    monkeypatch.setattr(StandIn, "sizes", {"window": 6})
    picture = tmp_path / "net.svg"
    assert command(path, *sizes, "--check", "--speed", "--stream", "--plan", "--draw", picture) == 0
    printed = capsys.readouterr().out
    assert "  x  float32 [4, 6]\n" in printed
    assert "  y   float32 [4, 2]\n" in printed
    assert "sizes: N=4, window=6\n" in printed
    assert "x float32[4, 6]" in printed.partition("plan:")[2]
    assert "8 calls beside ONNX Runtime" in printed
    assert "states: hn -> h" in printed
    assert "[4, 6]" in picture.read_text()
    assert command(path, "--check", *sizes[:2]) == 0
    assert "sizes: N=2 (made up), window=6\n" in capsys.readouterr().out


def test_the_size_that_counts_steps_stays_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--sizes", "T=5", "--sizes", "N=4")
    assert command(tagger(tmp_path), "--stream", "--steps", "T", *sizes, "--tolerance", "1e-6") == 0
    printed = capsys.readouterr().out
    assert "  x   float32 [T, 4, 3]\n" in printed
    assert "5 steps beside one call of them all" in printed


def test_sizes_of_a_constant(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    path = saved(tmp_path / "a.onnx", HEAD + "g (float[N] x, int64[K] s) => (float y) { y = Reshape(x, s) }")
    constant = ("--constants", "s=2,-1")
    assert command(path, *constant, "--sizes", "K=2", "--sizes", "N=6", "--plan") == 0
    printed = capsys.readouterr().out
    assert "  s  int64 [2]" in printed
    assert "sizes: N=6\n" in printed
    assert command(path, *constant, "--sizes", "K=3") == 2
    assert "constants and sizes do not agree" in capsys.readouterr().err
    assert command(path, *constant, "--sizes", "N=7") == 3
    assert "sizes={'N': 7}, which may not fit" in capsys.readouterr().out


def test_a_constant_is_fed_to_the_other_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    path = saved(tmp_path / "a.onnx", HEAD + "g (float[N] x, int64[2] s) => (float y) { y = Reshape(x, s) }")
    fed: dict[str, Any] = {}

    class Noting:
        def __init__(self, path: Path) -> None: ...

        def __call__(self, feeds: Any) -> Any:
            fed.update(feeds)
            return {"y": feeds["x"].reshape(feeds["s"])}

    monkeypatch.setattr(onnx_command, "Session", Noting)
    assert command(path, "--constants", "s=2,-1", "--check", "--sizes", "N=6") == 0
    assert fed["s"].tolist() == [2, -1]
    assert fed["s"].dtype == np.int64
    assert "0.0e+00" in capsys.readouterr().out


def test_quantised_files_may_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str], factor: Any) -> None:
    path = saved(tmp_path / "a.onnx", HEAD + QUANTISED)
    assert command(path, "--check") == 0
    assert "the file is quantised" not in capsys.readouterr().out
    factor(1.01)
    assert command(path, "--check") == 1
    assert "(--tolerance 0.05)" in capsys.readouterr().out
    assert command(path, "--check", "--tolerance", "0.05") == 0


def test_sums_that_stop_at_16_bits_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """By node, with the pairs that leave 16 bits; a result that is exact is not called wrong."""
    weights = f"int8[4,3] w = {{{', '.join(['127'] * 12)}}}, int8[4,2] v = {{{', '.join(['1'] * 8)}}}"
    text = f"g (uint8[2,4] x) => (int32[2,3] a, int32[2,2] b) <{weights}> "
    path = saved(tmp_path / "a.onnx", f"{HEAD}{text}{{ a = MatMulInteger(x, w) b = MatMulInteger(x, v) }}")

    class Saturating:
        new_ops: ClassVar[Any] = [MatMulInteger]

        def __init__(self, path: Path, model: Any = None) -> None:
            self.model = ReferenceEvaluator(onnx.load(path) if model is None else model, new_ops=self.new_ops)

        def __call__(self, feeds: Any) -> Any:
            return dict(zip(self.model.output_names, self.model.run(None, feeds), strict=True))

    monkeypatch.setattr(onnx_command, "Session", Saturating)
    arguments = ("--check", "--range", "x=255,255")
    assert command(path, *arguments) == 1
    printed = capsys.readouterr().out
    assert "'a' (MatMulInteger)  off by 4.9e-01, rnnops by 0.0e+00  12 of 12 pairs beyond 16 bits\n" in printed
    assert "'b' (MatMulInteger)  off by 0.0e+00, rnnops by 0.0e+00  0 of 8 pairs beyond 16 bits\n" in printed
    assert "on processors without VNNI" in printed
    Saturating.new_ops = None
    assert command(path, *arguments) == 0
    assert "16 bits" not in capsys.readouterr().out


def test_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tagger(tmp_path), "--speed") == 0
    number = r"[\d.e+-]+"
    wanted = rf"time of a call, one thread: rnnops {number} ms, ONNX Runtime {number} ms, ratio \d+\.\d\d\n"
    assert re.search(wanted, capsys.readouterr().out)


def test_plan_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tagger(tmp_path), "--plan", "--draw", tmp_path / "net.svg", "--sizes", "N=3") == 0
    printed = capsys.readouterr().out
    assert "\nplan:\n" in printed
    assert "recurrence" in printed.partition("plan:")[2]
    assert f"picture: {tmp_path / 'net.svg'}" in printed
    assert "[2, 3, 5]" in (tmp_path / "net.svg").read_text()
    assert command(tagger(tmp_path), "--draw", tmp_path / "nowhere" / "net.svg") == 2
    assert "cannot be written" in capsys.readouterr().err


def test_stream_of_a_file_with_states(tmp_path: Path, capsys: pytest.CaptureFixture[str], factor: Any) -> None:
    path = tagger(tmp_path)
    assert command(path, "--stream", "--steps", "T", "--sizes", "T=5", "--tolerance", "1e-6") == 0
    printed = capsys.readouterr().out
    assert "states: h_last -> h, c_last -> c=" in printed
    assert "5 steps beside one call of them all" in printed
    assert re.search(r"time of a step, one thread: rnnops .* ratio", printed)
    assert command(path, "--stream") == 0
    assert "8 calls beside ONNX Runtime" in capsys.readouterr().out
    factor(1.01)
    assert command(path, "--stream") == 1
    assert "more than 0.0001" in capsys.readouterr().out


def test_states_that_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tagger(tmp_path)
    crossed = ("--state", "h_last=c=", "--state", "c_last=h")
    assert command(path, "--stream", "--steps", "T", *crossed) == 1  # not what one call does
    assert "states: h_last -> c=, c_last -> h" in capsys.readouterr().out
    for arguments, problem in {
        ("--state", "h_last=x"): "does not fit the input that it feeds",
        ("--state", "h_last"): "net 'tagger': --state names no pair; wanted OUTPUT=INPUT of outputs scores, h_last",
        ("--steps", "M"): "--steps names no open size; wanted T, N; got M",
    }.items():
        assert command(path, "--stream", *arguments) == 2
        assert problem in capsys.readouterr().err


def test_stream_of_a_file_whose_states_are_inside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = counter(tmp_path)
    assert command(path, "--stream", "--steps", "T", "--sizes", "T=6", "--tolerance", "1e-6") == 0
    printed = capsys.readouterr().out
    assert "states: " in printed
    assert "6 steps beside one call of them all" in printed
    assert "ratio" not in printed
    assert command(path, "--stream") == 2
    assert "none of its outputs is a state that an input takes. Say --steps NAME" in capsys.readouterr().err
    assert command(counter(tmp_path, "reverse"), "--stream", "--steps", "T") == 2
    assert "reads its sequence backwards" in capsys.readouterr().err
    text = """g (float[1,2,T] x) => (float[1,2,S] y) <float[2,2,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}>
        { a = Tanh(x) y = Conv<pads = [1, 1], strides = [2]>(a, w) }"""
    path = saved(tmp_path / "a.onnx", HEAD + text)
    assert command(path, "--stream", "--steps", "T", "--sizes", "T=9") == 0
    printed = capsys.readouterr().out
    assert "states: a/frames" in printed
    assert "5 steps beside one call of them all" in printed
    path = saved(tmp_path / "a.onnx", HEAD + "g (float[T,3] x) => (float[T,3] y) { y = Tanh(x) }")
    assert command(path, "--stream", "--steps", "T") == 0
    assert "states: none" in capsys.readouterr().out


def test_without_onnxruntime(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(onnx_command, "Session", Session)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    path = tagger(tmp_path)
    for work in ("--check", "--speed"):
        assert command(path, work) == 2
        said = capsys.readouterr().err
        assert "the package onnxruntime is missing" in said
        assert f"{sys.executable} -m pip install onnxruntime" in said
    assert command(path, "--stream") == 0
    printed = capsys.readouterr().out
    assert "ONNX Runtime is left out: the package onnxruntime is missing" in printed
    assert "8 calls beside the reference device" in printed


def test_beside_onnxruntime_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(onnx_command, "Session", Session)
    assert command(tagger(tmp_path), "--check", "--speed", "--stream") == 0
    printed = capsys.readouterr().out
    assert printed.count("ratio") == 2
    text = "g (float[N] x, float[M] z) => (float y) { y = Add(x, z) }"
    assert command(saved(tmp_path / "a.onnx", HEAD + text), "--check") == 2
    assert re.search("a.onnx: the run fails; got running Add node.* 2 by 7", capsys.readouterr().err)
    path = tagger(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"Split", b"Splot"))
    assert command(path) == 3


def test_stream_of_a_file_with_windows_before_its_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Windows got zeros at each call: a false alarm with --steps, silence without."""
    net = ro.Net("spotter")
    x, h = net.input("x"), net.input("h")
    padded = ro.pad(ro.conv(x, net.parameter("v", (3, 3, 3)), pads=[2, 0]), [0, 0, 2, 0, 0, 0])
    seen = ro.transpose(ro.conv(padded, net.parameter("w", (4, 3, 3))), [2, 0, 1])
    y, h_last = ro.GRU(net, seen, None, h, 4, 5, scope="gru")
    net.outputs(y=y, h_last=ro.squeeze(h_last, [0]))
    path = tmp_path / "spotter.onnx"
    ro.onnx.export(net, path, ro.init_params(net, 0), {"x": ("N", 3, "T"), "h": ("N", 5)})
    given = ("--stream", "--state", "h_last=h")
    assert command(path, *given, "--steps", "T", "--sizes", "T=6", "--tolerance", "1e-6") == 0
    printed = capsys.readouterr().out
    assert re.search("states: h, x/frames, pad_0/frames.*\nfed at each step: x\n", printed)
    assert "6 steps beside one call of them all" in printed
    assert "warning" not in printed
    assert command(path, *given, "--sizes", "T=1") == 0
    warned = "nothing of earlier calls: Conv -> conv_0, Pad -> pad_0."
    assert f"warning: net 'spotter': these ops see the frames of one call and {warned}" in capsys.readouterr().out
    model = ro.onnx.load_model(path)
    run = ro.compile(model.net).bind(**model.params)
    with pytest.warns(UserWarning, match=warned) as found:
        run.stream({"h_last": "h"}, shapes=model.shapes)
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.stream({"h_last": "h"}, shapes=model.shapes, steps="T")
        run.stream({"h_last": "h"}, shapes={"h": ("N", 5)})
        model = ro.onnx.load_model(tagger(tmp_path))
        ro.compile(model.net).bind(**model.params).stream({"h_last": "h", "c_last": "c="}, shapes=model.shapes)
