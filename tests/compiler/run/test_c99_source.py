"""Plans exported as C99: built by the system's compiler, they give the reference's numbers."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from masked_presets import PRESETS, D, H, preset
from native_programs import CC, SOURCE_FLAGS, Arrays, Program, exported, needs_compiler, pointer

import rnnops as ro

pytestmark = needs_compiler


def params_of(net: ro.Net, dtype: str = "float32") -> dict[str, Any]:
    return ro.init_params(net, 0, dtype)


def check(net: ro.Net, params: Arrays, feeds: Arrays, folder: Path) -> Program:
    """The program's outputs are those of the reference device, twice."""
    wanted = ro.compile(net, "reference")({**params, **feeds})
    program = exported(ro.compile(net).bind(**params), folder, feeds, source="c99")
    for _ in range(2):
        outputs = {name: np.full(array.shape, 7).astype(array.dtype) for name, array in wanted.items()}
        assert program(feeds, outputs) == 0
        for name, array in wanted.items():
            eps = 200 * np.finfo(array.dtype).eps if array.dtype.kind == "f" else 0
            np.testing.assert_allclose(outputs[name], array, rtol=eps, atol=eps, err_msg=name)
    return program


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str, tmp_path: Path) -> None:
    net = preset(name, dim_out=[H, D])
    dtype = "float64" if name == "GRU" else "float32"
    x = np.random.default_rng(1).normal(size=(5, 4, D)).astype(dtype)
    check(net, params_of(net, dtype), {"x": x, "lengths": np.array([3, 0, 5, 1], "int32")}, tmp_path)


def test_gradient_nets_of_rows_that_end(tmp_path: Path) -> None:
    """What the first recurrence hands to the second is not there in rows that are over."""
    net = preset("LSTM")
    feeds = {"x": np.random.default_rng(1).normal(size=(5, 4, D)), "lengths": np.array([3, 0, 5, 1], "int32")}
    params = params_of(net, "float64")
    shapes = {name: array.shape for name, array in {**params, **feeds}.items()}
    twin = ro.gradient_net(net, **shapes)
    grads = {spec.name: np.ones(spec.shape) for spec in twin.input_specs if spec.name not in shapes}
    check(twin, params, {**feeds, **grads}, tmp_path)


def test_rows_that_last_as_long(tmp_path: Path) -> None:
    """Eight rows: what lies behind the table of their order in the weights is something else."""
    net = preset("GRU")
    feeds = {"x": np.random.default_rng(1).normal(size=(3, 8, D)).astype("f"), "lengths": np.arange(8, dtype="i") % 4}
    program = check(net, params_of(net), feeds, tmp_path)
    for lengths in ([9, 1] * 4, [0] * 8, [2] * 8):
        feeds["lengths"] = np.array(lengths, "int32")
        wanted = ro.compile(net, "reference")(params_of(net), feeds)
        found = {name: np.zeros_like(array) for name, array in wanted.items()}
        assert program(feeds, found) == 0
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_sums_over_rows(tmp_path: Path) -> None:
    net = ro.Net("rows")
    x, i = net.input("x"), net.input("i", "int8")
    net.outputs(ro.softmax(x, axis=0), ro.reduce_sum(i, axes=[0]))
    check(net, {}, {"x": np.eye(9, 4), "i": np.full((70, 2), 99, "int8")}, tmp_path)


def test_copies_of_what_lies_apart_along_many_axes(tmp_path: Path) -> None:
    net = ro.Net("views")
    x = net.input("x")
    net.outputs(ro.transpose(x, perm=[3, 1, 0, 2, 4]), ro.transpose(x, perm=[4, 3, 2, 1, 0]))
    check(net, {}, {"x": np.arange(2 * 3 * 4 * 5 * 2, dtype="f").reshape(2, 3, 4, 5, 2)}, tmp_path)


def lookup_net() -> ro.Net:
    """Names are words that the source itself uses."""
    net = ro.Net("*/ evil name")
    ids, flag, scale = net.input("jobs", "int64"), net.input("*/int", "bool"), net.input("memmove")
    table = net.parameter("table", (7, D))
    h_all, h_last, _, _ = ro.LSTM(net, ro.gather(table, ids, axis=0), None, None, D, H)
    net.outputs(perform=h_all * scale, NUMBER=ro.where(flag, h_last, h_last * 2.0), bases=ids + 1)
    return net


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes_names_and_wrong_indices(dtype: str, tmp_path: Path) -> None:
    net = lookup_net()
    feeds = {"jobs": np.array([[1, 2], [3, 6]]), "*/int": np.array([True]), "memmove": np.array(2.0, dtype)}
    params = params_of(net, dtype)
    program = check(net, params, feeds, tmp_path)
    assert "evil" not in program.files.source.read_text() + program.files.header.read_text()
    wanted = ro.compile(net, "reference")({**params, **feeds})
    outputs = {name: np.zeros_like(array) for name, array in wanted.items()}
    for wrong in (7, -100):
        assert program({**feeds, "jobs": feeds["jobs"] + wrong}, outputs) == 1
    assert program(feeds, outputs) == 0
    np.testing.assert_array_equal(outputs["bases"], feeds["jobs"] + 1)
    np.testing.assert_allclose(outputs["perform"], wanted["perform"], rtol=1e-5)


def test_symbols_are_those_of_the_header(tmp_path: Path) -> None:
    net = lookup_net()
    run = ro.compile(net).bind(**params_of(net))
    shapes = {"jobs": (2, 1), "*/int": (1,), "memmove": ()}
    files = run.export_native(tmp_path, shapes, name="int_", source="c99")
    command = [CC, *SOURCE_FLAGS, "-c", str(files.source), "-o", str(tmp_path / "made.o")]
    subprocess.run(command, check=True)
    listed = subprocess.run(["nm", "--defined-only", "-g", str(tmp_path / "made.o")], capture_output=True, check=True)
    found = {line.split()[-1] for line in listed.stdout.decode().splitlines()}
    assert found == {f"int__{function}" for function in ("init", "set_weights", "reset", "run")}


def state_net() -> ro.Net:
    net = ro.Net("stream")
    x, h, c = net.input("x", shape=(1, 2, D)), net.input("h", shape=(2, H)), net.input("c", shape=(2, H))
    _, h_last, _, c_last = ro.LSTM(net, x, None, (h, c), D, H)
    net.outputs(y=ro.tanh(h_last), h_last=h_last, c_last=c_last)
    return net


def test_states_stay_in_memory(tmp_path: Path) -> None:
    net = state_net()
    run = ro.compile(net).bind(**params_of(net))
    program = exported(run, tmp_path, {}, states={"h_last": "h", "c_last": "c"}, source="c99")
    assert (list(program.files.inputs), list(program.files.outputs)) == (["x"], ["y"])
    other = program.new_memory()
    zeros = {"h": np.zeros((2, H), "f"), "c": np.zeros((2, H), "f")}
    states, y = dict(zeros), np.zeros((1, 2, H), "f")
    frames = np.random.default_rng(2).normal(size=(6, 1, 2, D)).astype("f")
    for t, x in enumerate(frames):
        if t == 3:
            program.function("reset")(pointer(program.memory))
            states = dict(zeros)
        found = run(x=x, **states)
        states = {"h": found["h_last"][0], "c": found["c_last"][0]}
        assert program({"x": x}, {"y": y}) == 0
        np.testing.assert_allclose(y, found["y"], rtol=1e-5, atol=1e-6)
    assert program({"x": frames[0]}, {"y": y}, other) == 0  # a stream of its own
    np.testing.assert_allclose(y, run(x=frames[0], **zeros)["y"], rtol=1e-5, atol=1e-6)


def test_an_output_may_lie_where_another_output_is_read_from(tmp_path: Path) -> None:
    net = ro.Net("swap")
    a, b = net.input("a", shape=(3,)), net.input("b", shape=(3,))
    net.outputs(a=b, b=a, sum=a + b)  # names of inputs too: they are arguments of their own
    program = exported(ro.compile(net), tmp_path, {}, source="c99", dtype="float32")
    first, second, total = np.arange(3, dtype="f"), np.arange(5, 8, dtype="f"), np.zeros(3, "f")
    assert program({"a": first, "b": second}, {"a": first, "b": second, "sum": total}) == 0
    np.testing.assert_array_equal([first, second, total], [[5, 6, 7], [0, 1, 2], [5, 7, 9]])


def test_a_state_as_it_was_is_an_output(tmp_path: Path) -> None:
    net = ro.Net("delay")
    x, h = net.input("x", shape=(2,)), net.input("h", shape=(2,))
    net.outputs(h_next=x * 2.0, before=h)
    program = exported(ro.compile(net), tmp_path, {}, source="c99", states={"h_next": "h"}, dtype="float64")
    before = np.ones(2)
    for x_, wanted in (([1.0, 2.0], [0, 0]), ([3.0, 4.0], [2, 4]), ([0.0, 0.0], [6, 8])):
        assert program({"x": np.array(x_)}, {"before": before}) == 0
        np.testing.assert_array_equal(before, wanted)


@pytest.mark.parametrize("width", [64, 61])
def test_weights_hold_no_matrix_twice(width: int, tmp_path: Path) -> None:
    """Packed matrices have no gaps, whatever their columns are."""
    net = ro.Net("wide")
    net.outputs(ro.LSTM(net, net.input("x"), None, None, width, width)[1])
    params = params_of(net)
    program = check(net, params, {"x": np.ones((2, 1, width), "f")}, tmp_path)
    nbytes = sum(array.nbytes for array in params.values())
    assert nbytes <= program.files.weights.stat().st_size < 1.01 * nbytes + 1024


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = state_net()
    run = ro.compile(net).bind(**params_of(net))
    with pytest.raises(ro.FeedError, match='no such source; wanted "object", which None is'):
        run.export_native(tmp_path / "new", source="c89")
    monkeypatch.setattr("sys.byteorder", "big")
    with pytest.raises(ro.DeviceError, match="little-endian"):
        run.export_native(tmp_path / "new", source="c99")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("named", "value", "problem"),
    [("SIZE_MAX", "65535", "addresses"), ("__BYTE_ORDER__ ==", "__ORDER_BIG_ENDIAN__ ==", "little-endian")],
)
def test_processors_that_do_not_fit_are_refused(named: str, value: str, problem: str, tmp_path: Path) -> None:
    net = ro.Net("large")
    net.outputs(ro.tanh(net.input("x") @ net.parameter("w", (200, 200))))
    files = ro.compile(net).bind(**params_of(net)).export_native(tmp_path, x=(2, 200), source="c99")
    for text, errors in ((files.source.read_text(), ""), (files.source.read_text().replace(named, value), problem)):
        files.source.write_text(text)
        done = subprocess.run([CC, "-std=c99", "-fsyntax-only", str(files.source)], capture_output=True)
        assert (done.returncode != 0) == bool(errors)
        assert errors in done.stderr.decode()


def whole_numbers(dtype: str) -> ro.Net:
    """All functions of the runtime for one dtype."""
    net = ro.Net("whole")
    a, b = net.input("a", dtype), net.input("b", dtype)
    net.outputs(ro.div(a, b), ro.abs(a), ro.sign(a), ro.pow(a, b), a * b - a, ro.reduce_sum(a, axes=[0]))
    return net


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float32", "float64"])
def test_source_and_header_are_cpp_too(dtype: str, tmp_path: Path) -> None:
    """C++ has no `restrict` and no `_Bool`, and `void *` has to be cast there."""
    net, warnings = whole_numbers(dtype), [flag for flag in SOURCE_FLAGS if flag.startswith("-W")]
    a, b = np.array([[100], [5], [7]], dtype), np.array([[3], [2], [1]], dtype)
    number = dtype if dtype.startswith("float") else "float32"
    files = ro.compile(net).bind().export_native(tmp_path, {"a": a, "b": b}, name="k", source="c99", dtype=number)
    for language, flags in (("c", ["-std=c11", "-pedantic"]), ("c++", ["-std=c++17", "-pedantic"])):
        command = ["g++" if language == "c++" else CC, "-x", language, *flags, *warnings, "-fsyntax-only"]
        done = subprocess.run([*command, str(files.header)], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
    library = tmp_path / "k.so"
    command = ["g++", "-x", "c++", "-std=c++17", *warnings, "-shared", "-fPIC", str(files.source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    program = Program(files, "k")  # of C
    program.library = ctypes.CDLL(str(library))
    wanted = ro.compile(net, "reference")(a=a, b=b)
    found = {name: np.zeros_like(array) for name, array in wanted.items()}
    program.memory = program.new_memory()
    assert program({"a": a, "b": b}, found) == 0
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, err_msg=name)


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "plan.h"
static void *read_bytes(FILE *file, size_t bytes) {
    void *made = NULL;
    if (posix_memalign(&made, 64, bytes) || fread(made, 1, bytes, file) != bytes) exit(3);
    return made;
}
int main(void) {
    void *memory = read_bytes(fopen("/dev/zero", "rb"), plan_MEMORY);
    void *weights = read_bytes(fopen("plan.weights", "rb"), plan_WEIGHTS);
    plan_init(memory, weights);
    GIVEN
    if (plan_run(memory ARGUMENTS) || plan_run(memory ARGUMENTS)) return 4;
    WRITE
    return 0;
}
"""


def sanitized(net: ro.Net, params: Arrays, feeds: Arrays, folder: Path) -> None:
    """A program whose arrays have exactly their bytes gives the reference's numbers and breaks no rule of C."""
    wanted = ro.compile(net, "reference")({**params, **feeds})
    files = ro.compile(net).bind(**params).export_native(folder, feeds, name="plan", source="c99")
    taken = {one: f"a{n}" for n, one in enumerate(files.inputs)}
    made = {one: f"b{n}" for n, one in enumerate(files.outputs)}
    reads = [f"void *{taken[one]} = read_bytes(stdin, {feeds[one].nbytes});" for one in files.inputs]
    reads += [f"void *{made[one]} = read_bytes({_ZERO}, {wanted[one].nbytes});" for one in files.outputs]
    writes = [f"fwrite({made[one]}, 1, {array.nbytes}, stdout);" for one, array in wanted.items()]
    text = MAIN.replace("GIVEN", "\n".join(reads)).replace("WRITE", "\n".join(writes))
    (folder / "main.c").write_text(
        text.replace("ARGUMENTS", "".join(f", {name}" for name in (*taken.values(), *made.values())))
    )
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GNU_SOURCE"]
    flags = [flag for flag in SOURCE_FLAGS if flag not in ("-O2", "-Wconversion")]  # checks hide ranges of numbers
    command = [CC, *flags, "-O1", "-g", *checks, "main.c", "plan.c", "-o", "main", "-lm"]
    built = subprocess.run(command, cwd=folder, capture_output=True)
    if b"cannot find" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr.decode()
    given = b"".join(feeds[one].tobytes() for one in files.inputs)
    done = subprocess.run(
        ["./main"], cwd=folder, input=given, capture_output=True, env={"ASAN_OPTIONS": "detect_leaks=0"}
    )
    assert done.returncode == 0, done.stderr.decode()
    at = 0
    for name, array in wanted.items():
        found = np.frombuffer(done.stdout, array.dtype, array.size, at).reshape(array.shape)
        at += array.nbytes
        np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-5, err_msg=name)


_ZERO = 'fopen("/dev/zero", "rb")'


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    net = preset("LayerNormLSTM", dim_out=[H, D])
    ids, table = net.input("ids", "int32"), net.parameter("table", (7, D))
    net.outputs(looked_up=ro.gather(table, ids, axis=0), seen=ids + 1)
    x, lengths = np.random.default_rng(1).normal(size=(5, 4, D)).astype("f"), np.array([3, 0, 5, 1], "int32")
    sanitized(net, params_of(net), {"x": x, "lengths": lengths, "ids": np.array([6, 0, -7], "int32")}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_sanitizers_find_nothing_in_presets(name: str, tmp_path: Path) -> None:
    net = preset(name)
    x = np.random.default_rng(1).normal(size=(5, 4, D)).astype("f")
    sanitized(net, params_of(net), {"x": x, "lengths": np.array([3, 0, 5, 1], "int32")}, tmp_path)
