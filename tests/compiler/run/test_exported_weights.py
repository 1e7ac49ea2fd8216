"""Exported programs take weights of their net only, put back initial states, and say what they are."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_programs import SOURCE_FLAGS, Program, aligned, needs_compiler, pointer
from rejection import rejects

import rnnops as ro

pytestmark = needs_compiler
D, H = 3, 5
SOURCES = ["object", "c99"]
CPP = """\
#include <cstdio>
#include <cstdlib>
#include "unit.h"
alignas(64) static unsigned char weights[unit_WEIGHTS];
int main(int, char **arguments) {
    FILE *file = std::fopen(arguments[1], "rb");
    if (!file || std::fread(weights, 1, unit_WEIGHTS, file) != unit_WEIGHTS) return 2;
    std::fclose(file);
    unit_model one(weights), other(weights);
    const float x[3] = {1, 2, 3};
    float y[5], z[5];
    if (!one.ready || !one.run(x, y) || !one.run(x, y) || !other.run(x, z)) return 3;
    one.reset();
    if (!one.run(x, y) || !one.set_weights(weights)) return 4;
    for (int i = 0; i < 5; i++)
        if (y[i] != z[i]) return 5;
    weights[unit_WEIGHTS - 1] ^= 1;
    unit_model third(weights);
    return third.ready || third.run(x, y) || one.set_weights(weights) ? 6 : 0;
}
"""


def unit(hidden: int = H) -> ro.Net:
    net = ro.Net("unit")
    x, h = net.input("x", shape=(1, D)), net.input("h", shape=(1, hidden))
    new = ro.tanh(x @ net.parameter("w", (D, hidden)) + h @ net.parameter("u", (hidden, hidden)))
    net.outputs(y=new * 2.0, h_next=new)
    return net


def program(folder: Path, source: str, seed: int = 0, hidden: int = H, **options: Any) -> Program:
    net = unit(hidden)
    run = ro.compile(net, threads=1).bind(**ro.init_params(net, seed))
    return Program(run.export_native(folder, states={"h_next": "h"}, source=source, **options), "unit")


def steps(made: Program, xs: np.ndarray, hidden: int = H) -> np.ndarray:
    ys = np.empty((len(xs), 1, hidden), "float32")
    for x, y in zip(xs, ys, strict=True):
        assert made({"x": x}, {"y": y}) == 0
    return ys


XS = np.random.default_rng(0).normal(size=(4, 1, D)).astype("float32")


@pytest.mark.parametrize("source", SOURCES)
def test_weights_of_another_seed_are_taken_and_states_stay(source: str, tmp_path: Path) -> None:
    first, second = (program(tmp_path / str(seed), source, seed) for seed in (0, 1))
    before = steps(first, XS)
    assert first.function("set_weights")(pointer(first.memory), pointer(second.weights)) == 0
    net, state = unit(), before[-1] / 2
    wanted = ro.compile(net)({"x": XS[0], "h": state, **ro.init_params(net, 1)})["y"]
    np.testing.assert_allclose(steps(first, XS[:1])[0], wanted, rtol=1e-6)


@pytest.mark.parametrize("source", SOURCES)
def test_weights_of_another_net_are_refused(source: str, tmp_path: Path) -> None:
    made, other = program(tmp_path / "a", source), program(tmp_path / "b", source, hidden=H + 1)
    before = steps(made, XS[:1])
    memory, room = made.memory.copy(), aligned(max(made.weights.nbytes, other.weights.nbytes))
    room[: other.weights.nbytes] = other.weights
    for function in ("init", "set_weights"):
        assert made.function(function)(pointer(made.memory), pointer(room)) == 1
    np.testing.assert_array_equal(made.memory, memory)
    made.function("reset")(pointer(made.memory))
    np.testing.assert_array_equal(steps(made, XS[:1]), before)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("byte", [0, 255])
def test_a_memory_that_is_not_prepared_is_refused(byte: int, source: str, tmp_path: Path) -> None:
    made = program(tmp_path, source)
    memory, x, y = aligned(made.memory_bytes), aligned(D * 4), aligned(H * 4)
    memory[:], y[:] = byte, 7
    assert made.function("run")(pointer(memory), pointer(x), pointer(y)) == 2
    assert made.function("set_weights")(pointer(memory), pointer(made.weights)) == 2
    made.function("reset")(pointer(memory))
    assert (memory == byte).all()
    assert (y == 7).all()


@pytest.mark.parametrize("source", SOURCES)
def test_states_lie_where_the_manifest_says(source: str, tmp_path: Path) -> None:
    made = program(tmp_path, source)
    (state,) = json.loads(made.files.manifest.read_text())["states"]
    place = slice(state["offset"], state["offset"] + 4 * H)
    steps(made, XS[:2])
    kept = made.memory[place].copy()
    wanted = steps(made, XS[2:])
    made.memory[place] = kept
    np.testing.assert_array_equal(steps(made, XS[2:]), wanted)


@pytest.mark.parametrize("source", SOURCES)
def test_states_begin_with_what_is_given(source: str, tmp_path: Path) -> None:
    initial = np.linspace(-1, 1, H)
    made = program(tmp_path, source, initial={"h": initial})
    net, found = unit(), steps(made, XS)
    stream = ro.compile(net, threads=1).bind(**ro.init_params(net, 0)).stream(
        {"h_next": "h"}, initial={"h": initial[None].astype("float32")}
    )  # fmt: skip
    np.testing.assert_allclose(found, [stream(x=x)["y"] for x in XS], rtol=1e-5, atol=1e-6)
    made.function("reset")(pointer(made.memory))
    np.testing.assert_array_equal(steps(made, XS), found)


def test_the_manifest(tmp_path: Path) -> None:
    made = program(tmp_path, "c99", initial={"h": np.ones(H)})
    told = json.loads(made.files.manifest.read_text())
    assert told["inputs"] == [{"name": "x", "c": "x", "dtype": "float32", "shape": [1, D]}]
    assert told["outputs"] == [{"name": "y", "c": "y", "dtype": "float32", "shape": [1, H]}]
    state = {"output": "h_next", "input": "h", "dtype": "float32", "shape": [1, H], "initial": "given", "offset": 64}
    assert told["states"] == [state]
    assert (told["memory"], told["weights"]) == (made.memory_bytes, made.weights.nbytes)
    assert told["digest"].encode() == made.files.weights.read_bytes()[-32:]
    assert f'unit_DIGEST "{told["digest"]}"' in made.files.header.read_text()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("compiler", ["c++", "clang++"])
def test_the_class_of_the_header(compiler: str, source: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    files = program(tmp_path, source, initial={"h": np.full(H, 0.5)}).files
    code = tmp_path / "main.cpp"
    code.write_text(CPP)
    flags = ["-std=c++17", *SOURCE_FLAGS[1:], "-Wshadow"]
    built = [str(files.object)] if files.source is None else ["-x", "c++", str(files.source)]
    command = [compiler, *flags, f"-I{tmp_path}", str(code), *built, "-o", str(tmp_path / "main"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([str(tmp_path / "main"), str(files.weights)]).returncode == 0


def test_initial_states_that_do_not_fit(tmp_path: Path) -> None:
    net = unit()
    run = ro.compile(net, threads=1).bind(**ro.init_params(net, 0))

    def export(**initial: Any) -> Any:
        return lambda: run.export_native(tmp_path, states={"h_next": "h"}, initial=initial)

    rejects(ro.FeedError, export(x=np.zeros(D)), "initial= names no state", "one of h")
    rejects(
        ro.FeedError, export(h=[[1.0], [1.0, 2.0]]), "an initial state of another shape", "'h'", "rows of different"
    )
    rejects(ro.FeedError, lambda: run.export_native(tmp_path, states={"h_next": "h"}, initial=[1.0]), "not a dict")
    rejects(ro.FeedError, export(h=np.zeros(H + 1)), "an initial state of another shape", "'h'", "float64[6]")
    rejects(ro.FeedError, export(h=np.zeros(H, "complex64")), "an initial state of another dtype", "'h'")
    assert not [*tmp_path.iterdir()]
