"""Exported plans: built by the system's C compiler, they give the bits that Python gives."""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import check_each
from masked_presets import PRESETS, D, H, preset
from native_programs import CC, Arrays, Program, exported, needs_compiler, pointer
from rejection import rejects

import rnnops as ro
from rnnops.compiler.run.c_source import Argument, header
from rnnops.compiler.run.export_native import FUNCTIONS, HEADERS_OF_C, WORDS_OF_C, WORDS_OF_CPP, c_names
from rnnops.types import Type

NOT_IN_CPP = ("stdatomic", "threads", "tgmath", "stdnoreturn", "stdalign", "iso646", "stdbool", "complex")
ROOT = Path(__file__).parents[3]
pytestmark = needs_compiler


def check(run: ro.Run, feeds: Arrays, folder: Path) -> Program:
    """The program's outputs have the bits of the run's."""
    wanted = run(feeds)
    program = exported(run, folder, feeds)
    for _ in range(2):
        outputs = {name: np.full(array.shape, 7).astype(array.dtype) for name, array in wanted.items()}
        assert program(feeds, outputs) == 0
        for name, array in wanted.items():
            np.testing.assert_array_equal(outputs[name], array, err_msg=name)
    return program


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str, tmp_path: Path) -> None:
    net = preset(name, dim_out=[H, D])
    dtype = "float64" if name == "GRU" else "float32"
    run = ro.compile(net, threads=2).bind(**ro.init_params(net, 0, dtype))
    x = np.random.default_rng(1).normal(size=(5, 4, D)).astype(dtype)
    check(run, {"x": x, "lengths": np.array([3, 0, 5, 1], "int32")}, tmp_path)


def lookup_net() -> ro.Net:
    net = ro.Net("*/ evil name")
    ids, flag, scale = net.input("a b", "int64"), net.input("*/int", "bool"), net.input("restrict")
    table = net.parameter("table", (7, D))
    h_all, h_last, _, _ = ro.LSTM(net, ro.gather(table, ids, axis=0), None, None, D, H)
    net.outputs(**{"h": h_all * scale, "9": ro.where(flag, h_last, h_last * 2.0), "not": ids + 1})
    return net


def test_an_object_may_be_asked_for_by_its_name(tmp_path: Path) -> None:
    net = lookup_net()
    run = ro.compile(net).bind(**ro.init_params(net, 0, "float32"))
    shapes = {"a b": (2, 2), "*/int": (1,), "restrict": ()}
    named, left_out = (run.export_native(tmp_path / str(source), shapes, source=source) for source in ("object", None))
    assert named.object is not None
    assert left_out.object is not None
    assert named.object.read_bytes() == left_out.object.read_bytes()


def test_dtypes_names_and_wrong_indices(tmp_path: Path) -> None:
    net = lookup_net()
    run = ro.compile(net).bind(**ro.init_params(net, 0, "float32"))
    feeds = {"a b": np.array([[1, 2], [3, 6]]), "*/int": np.array([True]), "restrict": np.array(2.0, "f")}
    program = check(run, feeds, tmp_path)
    text = program.files.header.read_text()
    assert "evil" not in text
    assert [*program.files.inputs.values()] == ["a_b", "int_2", "restrict_2"]
    assert [*program.files.outputs.values()] == ["h", "_9", "not_2"]
    outputs = {name: np.zeros_like(array) for name, array in run(feeds).items()}
    assert program({**feeds, "a b": feeds["a b"] + 7}, outputs) == 1
    assert program(feeds, outputs) == 0
    np.testing.assert_array_equal(outputs["h"], run(feeds)["h"])


def test_weights_are_packed_though_zeros_are_out_of_range(tmp_path: Path) -> None:
    """A call with zeros packs them, for which it need not succeed."""
    net = ro.Net("offset")
    x = ro.gather(net.parameter("table", (7, D)), net.input("ids", "int64") - 10, axis=0)
    net.outputs(h=ro.LSTM(net, x, None, None, D, H)[0])
    run = ro.compile(net).bind(**ro.init_params(net, 0, "float32"))
    check(run, {"ids": np.array([[10, 12], [16, 11]])}, tmp_path)


def test_header_is_c_and_cpp(tmp_path: Path) -> None:
    net = lookup_net()
    run = ro.compile(net).bind(**ro.init_params(net, 0, "float32"))
    files = run.export_native(tmp_path, {"a b": (2, 1), "*/int": (1,), "restrict": ()}, name="m")
    for language in ("c", "c++"):
        if language == "c++" and shutil.which("c++") is None:
            continue
        command = [CC if language == "c" else "c++", "-x", language, "-Wall", "-Werror", "-pedantic", "-fsyntax-only"]
        subprocess.run([*command, str(files.header)], check=True)


def test_macros_of_c_are_no_names_of_arguments(tmp_path: Path) -> None:
    net = ro.Net("macros")
    net.outputs(I=net.input("linux") + net.input("NULL"), errno=net.input("EOF") * 2.0)
    shapes = {"linux": (2,), "NULL": (2,), "EOF": (1,)}
    files = ro.compile(net).export_native(tmp_path, shapes, name="macros", source="c99")
    (tmp_path / "user.c").write_text(
        '#include <errno.h>\n#include <complex.h>\n#include <stdio.h>\n#include "macros.h"\n'
    )
    subprocess.run([CC, "-fsyntax-only", str(tmp_path / "user.c"), str(files.source)], check=True)


def test_a_net_that_c_cannot_call_by_its_name_is_called_model(tmp_path: Path) -> None:
    """Keywords of C and C++, macros, what the library's headers and functions are called, and what is not a word."""
    names = (
        "int",
        "main",
        "class",
        "NULL",
        "errno",
        "int32_t",
        "_X",
        "sem",
        "stdint",
        "String",
        "9",
        "\u00e9",
        "a b",
        "x" * 500,
    )

    def check(name: str) -> None:
        net = ro.Net(name)
        net.outputs(y=ro.tanh(net.input("x", shape=(2,))))
        files = ro.compile(net, threads=1).export_native(tmp_path, source="c99")
        assert (files.header.name, files.source and files.source.name) == ("model.h", "model.c")

    check_each(names, check)


def test_words_that_nobody_has_taken_stay(tmp_path: Path) -> None:
    net = ro.Net("start")
    net.outputs(y=ro.tanh(net.input("W_f", shape=(2,))) + net.input("printf", shape=(2,)))
    files = ro.compile(net, threads=1).export_native(tmp_path)
    assert (files.header.name, files.inputs) == ("start.h", {"W_f": "W_f", "printf": "printf"})


@pytest.mark.parametrize("language", ["c", "c++"])
def test_headers_go_behind_those_of_the_library(language: str, tmp_path: Path) -> None:
    """No macro that a header of C defines is the name of an argument."""
    if language == "c++" and shutil.which("c++") is None:
        pytest.skip("no compiler for C++")
    compiler = [CC if language == "c" else "c++", "-x", language, "-D_GNU_SOURCE", "-fsyntax-only"]
    headers = [one for one in HEADERS_OF_C.split() if language == "c" or one not in NOT_IN_CPP]
    lines = [f"#if __has_include(<{one}.h>)\n#include <{one}.h>\n#endif\n" for one in headers]
    (tmp_path / "all.h").write_text("".join(lines))
    listed = subprocess.run(
        [*compiler[:-1], "-dM", "-E", str(tmp_path / "all.h")], check=True, capture_output=True, text=True
    )
    macros = re.findall(r"#define ([A-Za-z]\w*) ", listed.stdout)
    assert len(macros) > 300
    own = [f"net_{word}" for word in (*FUNCTIONS, "model", "MEMORY", "WEIGHTS", "DIGEST", "other")]
    names = c_names([*macros, *WORDS_OF_CPP.split(), *WORDS_OF_C.split(), *own, "RNNOPS_net_H", "ready"], "net")
    assert "net_other" in names
    arguments = [Argument(name, Type("float32", (2,)), False) for name in names]
    (tmp_path / "net.h").write_text(header("net", arguments, 0, 64, 64, "0", "here"))
    (tmp_path / "user.c").write_text('#include "all.h"\n#include "net.h"\n')
    built = subprocess.run([*compiler, str(tmp_path / "user.c")], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:500]


def test_files_of_others_stay(tmp_path: Path) -> None:
    net = ro.Net("start")
    net.outputs(y=ro.tanh(net.input("x", shape=(2,))))
    run = ro.compile(net, threads=1)
    run.export_native(tmp_path, source="c99")
    run.export_native(tmp_path, source="c99")  # an old export is replaced
    (tmp_path / "start.c").write_text("int main(void) { return 0; }\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    rejects(
        ro.SaveError, lambda: run.export_native(tmp_path, source="c99"), "start.c' was not written by rnnops", "name="
    )
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def state_net() -> ro.Net:
    net = ro.Net("stream")
    x, h, c = net.input("x", shape=(1, 2, D)), net.input("h", shape=(2, H)), net.input("c", shape=(2, H))
    _, h_last, _, c_last = ro.LSTM(net, x, None, (h, c), D, H)
    net.outputs(y=ro.tanh(h_last), h_last=h_last, c_last=c_last)
    return net


@needs_compiler
@pytest.mark.parametrize("source", [None, "c99"])
def test_memory_and_weights_that_are_not_aligned_are_refused(source: str | None, tmp_path: Path) -> None:
    """A processor that stores no number there would stop, or write it elsewhere."""
    run = ro.compile(state_net()).bind(**ro.init_params(state_net(), 0, "float32"))
    program = exported(run, tmp_path, {}, states={"h_last": "h", "c_last": "c"}, source=source)
    room, weights = np.full(program.memory_bytes + 128, 0xFF, np.uint8), pointer(program.weights)
    skewed = room[-room.ctypes.data % 64 + 4 :]
    assert program.function("init")(pointer(skewed), weights) == 2
    assert (room == 0xFF).all()
    copy = np.append(np.zeros(68, np.uint8), program.weights)
    copy = copy[-copy.ctypes.data % 64 + 4 :]
    for function in ("init", "set_weights"):
        assert program.function(function)(pointer(program.memory), pointer(copy)) == 2
        assert program.function(function)(pointer(program.memory), weights) == 0


def test_states_stay_in_memory(tmp_path: Path) -> None:
    net = state_net()
    run = ro.compile(net).bind(**ro.init_params(net, 0, "float32"))
    program = exported(run, tmp_path, {}, states={"h_last": "h", "c_last": "c"})
    assert (list(program.files.inputs), list(program.files.outputs)) == (["x"], ["y"])
    rng, other = np.random.default_rng(2), program.new_memory()
    zeros = {"h": np.zeros((2, H), "f"), "c": np.zeros((2, H), "f")}
    states, frames = dict(zeros), rng.normal(size=(6, 1, 2, D)).astype("f")
    y = np.zeros((1, 2, H), "f")
    for t, x in enumerate(frames):
        if t == 3:
            program.function("reset")(pointer(program.memory))
            states = dict(zeros)
        found = run(x=x, **states)
        states = {"h": found["h_last"][0], "c": found["c_last"][0]}
        assert program({"x": x}, {"y": y}) == 0
        np.testing.assert_array_equal(y, found["y"])
    assert program({"x": frames[0]}, {"y": y}, other) == 0  # a stream of its own
    np.testing.assert_array_equal(y, run(x=frames[0], **zeros)["y"])


def test_weights_hold_no_matrix_twice(tmp_path: Path) -> None:
    net = ro.Net("wide")
    net.outputs(ro.LSTM(net, net.input("x"), None, None, 64, 64)[1])
    params = ro.init_params(net, 0, "float32")
    run = ro.compile(net).bind(**params)
    program = check(run, {"x": np.ones((2, 1, 64), "f")}, tmp_path)
    nbytes = sum(array.nbytes for array in params.values())
    assert nbytes <= program.files.weights.stat().st_size < 1.1 * nbytes + 8192


def test_what_is_refused(tmp_path: Path) -> None:
    net = state_net()
    run = ro.compile(net).bind(**ro.init_params(net, 0, "float32"))
    wrong: list[Any] = [
        {"h_last": "x"},
        {"nothing": "h"},
        {"h_last": "h", "c_last": "h"},
        {"h_last": ["h"]},
        ["h"],
        [],
        3,
    ]
    for states in wrong:
        with pytest.raises(ro.FeedError, match=r"state|become one input"):
            run.export_native(tmp_path / "new", states=states)
    for folder in (3, None, b"new"):
        with pytest.raises(ro.FeedError, match="folder is not a path; wanted a string or a Path"):
            run.export_native(folder)  # type: ignore[arg-type]
    for name in (
        "",
        "1",
        "a-b",
        "int",
        "x;y",
        3,
        "_net",
        "class",
        "string",
        "Math",
        "sem",
        "x" * 500,
        "n\n",
        "\u00e9",
        "main",
    ):
        with pytest.raises(ro.FeedError, match="word of C"):
            run.export_native(tmp_path / "new", name=name)
    with pytest.raises(ro.FeedError, match="blob 'h': an initial state has NaN; wanted numbers"):
        run.export_native(tmp_path / "new", states={"h_last": "h"}, initial={"h": np.array([np.nan] + [0] * (H - 1))})
    with pytest.raises(ro.FeedError, match="no such input"):
        run.export_native(tmp_path / "new", z=(1,))
    double = ro.Net("double")
    double.outputs(y=double.input("x") * 2.0)
    with pytest.raises(ro.FeedError, match=r"blob 'x': an array without elements is not exported; got float32\[0, 4\]"):
        ro.compile(double).export_native(tmp_path / "new", x=(0, 4))
    with pytest.raises(ro.DeviceError, match="CPU"):
        ro.compile(net, "reference").export_native(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("source", [None, "c99"])
def test_live_random_numbers_are_refused(source: str | None, tmp_path: Path) -> None:
    """A program has no seed; dropout, which only training has, is exported."""
    net = ro.Net("noisy")
    x = net.input("x", shape=(3, 1, 4))
    net.outputs(y=x * ro.random_uniform_like(x))
    words = ("random ops are live", "net 'noisy'", "op 'RandomUniformLike -> ", "Feed the numbers")
    rejects(ro.DeviceError, lambda: ro.compile(net).export_native(tmp_path / "new", source=source), *words)
    assert not (tmp_path / "new").exists()
    quiet = ro.Net("quiet")
    quiet.outputs(y=ro.dropout(quiet.input("x", shape=(3, 1, 4)), ratio=0.5))
    ro.compile(quiet).export_native(tmp_path / "new", source=source)


def keyword_net(keeps: bool) -> tuple[ro.Net, Arrays]:
    """Scores of a GRU over what a convolution sees of the frames."""
    net = ro.Net("keyword")
    x = net.input("x")  # [N, T, F]
    h = net.input("h") if keeps else None
    seen = ro.transpose(x, perm=[0, 2, 1])
    seen = ro.conv(seen, net.parameter("w", (D, D, 3)), pads=[2, 0])
    all_h, last = ro.GRU(net, ro.transpose(seen, perm=[2, 0, 1]), None, h, D, H, scope="gru")
    net.outputs(y=all_h, h_last=last)
    return net, ro.init_params(net, 0, "float32")


def test_an_export_that_sees_one_frame_in_each_call_is_warned_of(tmp_path: Path) -> None:
    """What begins anew is named; a chain of frames, states that are fed, and a streamed net are not."""
    net, params = keyword_net(keeps=False)
    run = ro.compile(net).bind(**params)
    with pytest.warns(UserWarning, match="see the frames of one call.*Conv.*gru.*ro.streamed_net"):
        run.export_native(tmp_path, x=(1, 1, D), source="c99")
    net, params = keyword_net(keeps=True)
    run, states = ro.compile(net).bind(**params), {"h_last": "h"}
    with pytest.warns(UserWarning, match="see the frames of one call") as warned:
        run.export_native(tmp_path, x=(1, 1, D), h=(1, H), states=states, source="c99")
    assert "gru" not in str(warned[0].message)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.export_native(tmp_path, x=(1, 5, D), h=(1, H), states=states, source="c99")
        streamed = ro.streamed_net(
            net, "T", {"x": (1, "T", D), "h": (1, H), **{n: a.shape for n, a in params.items()}}, states
        )
        sizes = {name: tuple(1 if size == "T" else size for size in dims) for name, dims in streamed.shapes.items()}
        inputs = {name: shape for name, shape in sizes.items() if name not in params}
        ro.compile(streamed.net).bind(**params).export_native(tmp_path, inputs, states=streamed.states, source="c99")


def test_files_are_written_all_or_none(tmp_path: Path) -> None:
    net = state_net()
    run = ro.compile(net).bind(**ro.init_params(net, 0, "float32"))
    (tmp_path / "made" / "one.weights").mkdir(parents=True)
    for folder in (tmp_path / "made", tmp_path / "made" / "one.weights"):
        (folder / "two").touch()
    for folder, name in ((tmp_path / "made", "one"), (tmp_path / "made" / "two", "one")):
        with pytest.raises(ro.SaveError, match=r"cannot be written \(.*(one.weights is there and|exists|a directory)"):
            run.export_native(folder, name=name)
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["one.weights", "two"]


@pytest.mark.parametrize("source", [None, "c99"])
def test_the_program_of_the_docs(source: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "export.md").read_text()
    (python,), (program, _) = (re.findall(rf"```{kind}\n(.*?)```", text, re.S) for kind in ("python", "c"))
    of_object, of_source = re.findall(r"`(cc -.*?)`", text)
    assert program.count("\n") <= 30
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    folder = "build" if source is None else "source"
    call, of_c99 = '"build", name="caller"', '"source", name="caller", source="c99"'
    exec(python if source is None else python.replace(call, of_c99), names)
    Path("stream.c").write_text(program)
    command = of_object if source is None else of_source
    subprocess.run([CC, *command.split()[1:], "-Wall", "-Wextra", "-Werror"], check=True)
    frames = np.random.default_rng(3).normal(size=(4, 8)).astype("f")
    given = ["./stream", f"{folder}/caller.weights"]
    done = subprocess.run(given, input=frames.tobytes(), capture_output=True, check=True)
    found = np.array([list(map(float, line.split())) for line in done.stdout.decode().splitlines()], "f")
    h, c = np.zeros((1, 16), "f"), np.zeros((1, 16), "f")
    for frame, score in zip(frames, found, strict=True):
        out = names["run"](frame=frame[None, None], h=h, c=c)
        h, c = out["h_last"].reshape(1, 16), out["c_last"].reshape(1, 16)
        np.testing.assert_allclose(out["score"].ravel(), score, rtol=0 if source is None else 1e-5)


@pytest.mark.parametrize("first", [None, "c99"])
def test_an_object_and_a_source_do_not_share_a_header(tmp_path: Path, first: str | None) -> None:
    net = ro.Net("net")
    net.outputs(y=ro.tanh(net.input("x", shape=(2, 3))))
    run = ro.compile(net)
    files = run.export_native(tmp_path, name="one", source=first)
    before = files.header.read_bytes()
    other = None if first else "c99"
    rejects(ro.SaveError, lambda: run.export_native(tmp_path, name="one", source=other), "one.", "name=")
    assert files.header.read_bytes() == before
    run.export_native(tmp_path, name="one", source=first)
    run.export_native(tmp_path, name="two", source=other)
