"""What comparisons with other runtimes are made of: states found and opened, steps, feeds, turns."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from recurrent_models import Variant, feeds_of, model_of
from rejection import rejects
from scan_models import scan_model

from rnnops.onnx import OnnxError
from rnnops.onnx.compare import (
    HandedOn,
    choose_sizes,
    distances_of_steps,
    join_steps,
    random_feeds,
    split_steps,
    state_pairs,
    time_in_turns,
)

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
WEIGHTS = "float[1,8,3] w, float[1,8,2] r, float[2,1,2] zeros"
STACKED = f"""g (float[1,N,3] x, float[2,N,2] state, {WEIGHTS}) => (float[N,2] y, float[2,N,2] next) {{
    h, c = Split(state)
    all, hn, cn = LSTM<hidden_size = 2>(x, w, r, "", "", h, c)
    next = Concat<axis = 0>(hn, cn)
    y = Squeeze(hn) }}"""
IN_A_BRANCH = f"""g (float[1,N,3] x, float[2,N,2] state, bool b, {WEIGHTS}) => (float[2,N,2] next, float[1,N,2] hn) {{
    h, c = Split(state)
    h0, c0 = Split(zeros)
    next, hn = If(b) <
        then_branch = t() => (float[2,N,2] one, float[1,N,2] two) {{
            all, two, cn = LSTM<hidden_size = 2>(x, w, r, "", "", h, c)
            one = Concat<axis = 0>(two, cn) }},
        else_branch = e() => (float[2,N,2] one, float[1,N,2] two) {{
            all, two, cn = LSTM<hidden_size = 2>(x, w, r, "", "", h0, c0)
            one = Concat<axis = 0>(two, cn) }}> }}"""
NOTHING = f"""g (float[1,N,3] x, float[1,N,2] h, {WEIGHTS}) => (float[1,N,2] y) {{
    all, hn = GRU<hidden_size = 2>(x, w, r, "", "", h)
    y = Relu(hn) }}"""
LOOP = """g (float[2] h, float[2] c) => (float[2] hn, float[2] cn) {
    n = Constant<value = int64 {4}>()
    b = Constant<value = bool {1}>()
    hn, cn = Loop(n, b, h, c) <body = step(int64 i, bool go, float[2] p, float[2] q) =>
        (bool on, float[2] r, float[2] s) { on = Identity(go) r = Tanh(p) s = Add(q, r) }> }"""


def pairs(text: str) -> dict[str, str]:
    return state_pairs(onnx.parser.parse_model(HEAD + text).graph)


def test_states_are_found() -> None:
    assert pairs(STACKED) == {"next": "state"}
    assert pairs(IN_A_BRANCH) == {"next": "state"}
    assert pairs(NOTHING) == {}
    assert pairs(
        NOTHING.replace("=> (float[1,N,2] y)", "=> (float[N,2] y, float[1,N,2] hn)").replace("Relu", "Squeeze")
    ) == {"hn": "h"}
    assert pairs(LOOP) == {"hn": "h", "cn": "c"}
    variant = Variant("LSTM", {"direction": "bidirectional"}, ("B", "initial_h", "initial_c"))
    assert state_pairs(model_of(variant, feeds_of(variant)).graph) == {"Y_h": "initial_h", "Y_c": "initial_c"}
    scan = scan_model("running sum").graph
    assert state_pairs(scan) == {scan.output[0].name: scan.input[0].name}


WINDOW = """g (float[N,2,T] x, float[N,2,3] cache, float[1,N,2] h) =>
    (float[N,2,T] y, float[N,2,3] kept, float[1,N,2] hn)
    <float[1,6,2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, float[1,6,2] r = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3},
     int64[1] axis = {2}, int64[1] from = {-3}, int64[1] to = {99}> {
    all = Concat<axis = 2>(cache, x)
    kept = Slice(all, from, to, axis)
    s = Transpose<perm = [2, 0, 1]>(all)
    z, hn = GRU<hidden_size = 2>(s, w, r, "", "", h)
    y = Relu(x) }"""


def test_windows_are_found() -> None:
    assert pairs(WINDOW) == {"hn": "h", "kept": "cache"}
    assert pairs(WINDOW.replace("(cache, x)", "(x, cache)")) == {"hn": "h", "kept": "x"}
    assert pairs(WINDOW.replace("kept = Slice(all, from, to, axis)", "kept = Identity(all)")) == {"hn": "h"}
    assert pairs(WINDOW.replace('"", "", h)', '"", "", "")')) == {}  # states that the file has inside are opened
    shifted = "g (float[2,4] x) => (float[2,4] y) <float[2,1] o = {0, 0}, int64[1] a = {1}, int64[1] b = {5}>"
    assert pairs(f"{shifted} {{ all = Concat<axis = 1>(x, o) y = Slice(all, a, b, a) }}") == {}


def two_outputs_that_may_be_the_state() -> str:
    return STACKED.replace("float[2,N,2] next)", "float[2,N,2] next, float[2,N,2] same)").replace(
        "y = Squeeze", "same = Identity(next) y = Squeeze"
    )


def test_states_that_are_not_sure_are_left_out() -> None:
    assert pairs(two_outputs_that_may_be_the_state()) == {}


def test_steps() -> None:
    x, other = np.arange(12.0).reshape(2, 3, 2), np.ones(2)
    steps = split_steps({"x": x, "other": other}, {"x": 1})
    assert [step["x"].shape for step in steps] == [(2, 1, 2)] * 3
    assert all(step["other"] is other for step in steps)
    assert [step["x"].shape for step in split_steps({"x": x}, {"x": 1}, 2)] == [(2, 2, 2), (2, 1, 2)]
    assert np.array_equal(join_steps([step["x"] for step in steps], x), x)
    assert join_steps([other, other], other) is other
    rejects(OnnxError, lambda: split_steps({"x": x, "z": x}, {"x": 0, "z": 1}), "different numbers of steps")
    made = [{"x": step["x"]} for step in steps]
    made[-1]["last"] = other * 1.5
    found = distances_of_steps(made, {"x": x, "last": other})
    assert found == {"x": 0.0, "last": 0.5}
    assert distances_of_steps(made[:2], {"x": x})["x"] == float("inf")


def test_states_are_handed_on() -> None:
    call = HandedOn(
        lambda feeds: {"y": feeds["x"], "h_out": feeds["h"] + feeds["x"]}, {"h_out": "h"}, {"h": np.zeros(1)}
    )
    assert [list(call({"x": np.ones(1)})) for _ in range(3)] == [["y"]] * 3
    assert call.last() == {"h_out": np.array([3.0])}


def test_sizes() -> None:
    sizes = choose_sizes({"x": ("N", None, 3), "h": ("N", "H"), "v": None}, {"H": [9], "v": [4, 4]})
    assert sizes.shapes == {"x": (2, 7, 3), "h": (2, 9), "v": (4, 4)}
    assert sizes.text() == "N=2 (made up), x.1=7 (made up), H=9"
    rejects(OnnxError, lambda: choose_sizes({"x": (3,)}, {"N": [1]}), "none: the file gives them all")


def test_random_feeds() -> None:
    types, shapes = {"x": "float32", "i": "int32", "b": "bool"}, dict.fromkeys("xib", (500,))
    one, two = (random_feeds(types, shapes, {}, np.random.default_rng(seed)) for seed in (0, 0))
    assert all(np.array_equal(one[name], two[name]) for name in types)
    assert {name: array.dtype.name for name, array in one.items()} == types
    assert set(one["i"].tolist()) == {0, 1}
    assert abs(one["x"].std() - 1) < 0.1
    ranged = random_feeds(types, shapes, {"x": (2, 3), "i": (5, 7)}, np.random.default_rng(0))
    assert set(ranged["i"].tolist()) == {5, 6, 7}
    assert ranged["x"].min() >= 2
    assert ranged["x"].max() <= 3
    with pytest.raises(OnnxError, match="too large"):
        random_feeds({"x": "float32"}, {"x": (2**20, 2**20)}, {}, np.random.default_rng(0))


def test_turns_are_medians_of_means() -> None:
    now, log = [0.0], list[str]()
    seconds = {"a": iter([1.0] * 3 + [2.0] * 4 + [50.0] + [3.0] * 9), "b": iter([0.5] * 99)}

    def call(name: str) -> None:
        log.append(name)
        now[0] += next(seconds[name])

    found = time_in_turns({name: lambda name=name: call(name) for name in seconds}, 2.5, 3, lambda: now[0])
    assert found["b"] == 0.5
    assert found["a"] == 3.0  # of turns of 2, 2 and 2 .. 50, and of 3 .. 3
    assert "".join(log).startswith("aaabbb")
    assert "ab" in "".join(log[6:])
    assert "ba" in "".join(log[6:])
