"""Functions of a model, as jax2onnx writes one for each module: what they are in place, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from each import check_each
from rejection import rejects

import rnnops as ro
from rnnops.cli.main import main
from rnnops.onnx import OnnxError, export, load, load_model
from rnnops.onnx.functions import FunctionCall, FunctionInliner, NodeCount, key_of

Array = np.ndarray[Any, Any]
HEAD = '<ir_version: 9, opset_import: ["" : 17, "own" : 1]>'
OWN = '<domain: "own", opset_import: ["" : 17{0}]>'.format
USES = ', "own" : 1'
GRAPH = "g (float[4, 3, 2] x, float[3, 2] h) => (float[4, 3, 2] y)"
STEP = OWN("") + " Step (a, u) => (b) { p = Add (a, u) b = Tanh (p) }"
LOOP = """four = Constant <value_int = 4> () go = Constant <value = bool {1}> ()
    last, y = Loop (four, go, h) <body = s (int64 i, bool c, float[3, 2] a) => (bool c, float[3, 2] b, float[3, 2] o)
        { u = Gather (x, i) b = own.Step (a, u) o = Identity (b) }>"""
INSIDE = """Run (x, h) => (y) { four = Constant <value_int = 4> () go = Constant <value = bool {1}> ()
    last, y = Loop (four, go, h) <body = s (int64 i, bool c, float[3, 2] a) => (bool c, float[3, 2] b, float[3, 2] o)
        { u = Gather (x, i) p = Add (a, u) b = Tanh (p) o = Identity (b) }> }"""
TEXTS = {
    "in a Loop": f"{HEAD} {GRAPH} {{ {LOOP} }} {STEP}",
    "a Loop in it, called twice": f"""{HEAD} {GRAPH} {{ p = own.Run (x, h) y = own.Run (p, h) }} {OWN("")} {INSIDE}""",
    "names that are there around it": f"""{HEAD} {GRAPH} {{ b = Sin (x) p = Cos (x) q = own.Step (b, p) y = Mul (q, b)
        }} {STEP}""",
    "from inside another": f"""{HEAD} {GRAPH} {{ y = own.Twice (x) }} {OWN(USES)} Twice (v) => (w)
        {{ p = own.Step (v, v) w = own.Step (p, v) }} {STEP}""",
    "an attribute": f"""{HEAD} {GRAPH} {{ p = own.Leak <slope: float = 0.3> (x) y = own.Leak <slope = 0.5> (p) }}
        {OWN("")} Leak <slope> (v) => (w) {{ w = LeakyRelu <alpha: float = @slope> (v) }}""",
    "names with slashes that a function gives": f"""{HEAD} {GRAPH} {{ y = own.Twice (x) }} {OWN(USES)} Twice (v) => (w)
        {{ "q/p" = Sin (v) q = own.Step (v, v) w = Add (q, "q/p") }} {STEP}""",
    "results that are inputs, or left out": f"""{HEAD} {GRAPH} {{ p, , q = own.Both (x) y = Add (p, q) }}
        {OWN("")} Both (v) => (v, unread, w) {{ unread = Sin (v) w = Cos (v) }}""",
}  # fmt: skip


def steps(x: Array, h: Array) -> Array:
    """All states of `h = tanh(h + x)`."""
    return np.stack([h := np.tanh(h + x_t) for x_t in x])


def leaky(x: Array, slope: float) -> Array:
    return np.where(x < 0, slope * x, x)


WANTED: dict[str, Callable[[Array, Array], Array]] = {
    "in a Loop": steps,
    "a Loop in it, called twice": lambda x, h: steps(steps(x, h), h),
    "names that are there around it": lambda x, h: np.tanh(np.sin(x) + np.cos(x)) * np.sin(x),
    "from inside another": lambda x, h: np.tanh(np.tanh(x + x) + x),
    "an attribute": lambda x, h: leaky(leaky(x, 0.3), 0.5),
    "names with slashes that a function gives": lambda x, h: np.tanh(x + x) + np.sin(x),
    "results that are inputs, or left out": lambda x, h: x + np.cos(x),
}


def written(text: str, folder: Path) -> Path:
    """A file with a model."""
    onnx.save(onnx.parser.parse_model(text), folder / "functions.onnx")
    return folder / "functions.onnx"


def feeds() -> dict[str, Array]:
    """Random inputs."""
    random = np.random.default_rng(0)
    return {"x": random.normal(size=(4, 3, 2)).astype("float32"), "h": random.normal(size=(3, 2)).astype("float32")}


def test_values_and_what_is_written(tmp_path: Path) -> None:
    def check(name: str) -> None:
        path = written(TEXTS[name], tmp_path)
        model, given = load_model(path), feeds()
        out = ro.compile(model.net)(model.params, {key: given[key] for key in model.net.input_names})
        np.testing.assert_allclose(out["y"], WANTED[name](**given), rtol=1e-5, atol=1e-6)
        export(model, tmp_path / "again.onnx")
        assert str(load(tmp_path / "again.onnx")) == str(model.net)

    check_each(TEXTS, check)


def test_onnx_runtime_gives_the_same_numbers(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

    def check(name: str) -> None:
        path = written(TEXTS[name], tmp_path)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        given = feeds()
        (wanted,) = session.run(None, {value.name: given[value.name] for value in session.get_inputs()})
        net = load(path)
        out = ro.compile(net)({key: given[key] for key in net.input_names})
        np.testing.assert_allclose(out["y"], wanted, rtol=1e-5, atol=1e-6)

    check_each([name for name in TEXTS if "left out" not in name], check)  # results that are inputs it refuses


def test_a_loop_in_a_function_is_a_recurrence(tmp_path: Path) -> None:
    net = load(written(TEXTS["a Loop in it, called twice"], tmp_path))
    assert [op.type for op in net.ops].count("RecurrentNetwork") == 2


def test_the_report_tells_of_functions_and_of_what_is_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["onnx", str(written(TEXTS["in a Loop"], tmp_path))]) == 0
    told = capsys.readouterr().out
    assert "functions of its own: own::Step" in told
    assert "Tanh" in told
    assert "own::Step 1" not in told


def test_a_function_that_calls_itself_is_refused(tmp_path: Path) -> None:
    text = f"{HEAD} {GRAPH} {{ y = own.F (x) }} {OWN(USES)} F (v) => (w) {{ w = own.F (v) }}"
    rejects(OnnxError, lambda: load(written(text, tmp_path)), "a function of the model calls itself")
    assert main(["onnx", str(tmp_path / "functions.onnx")]) == 3


def test_functions_that_make_too_many_nodes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """25 functions each of which calls the next one twice are 2^25 nodes, none of which is made."""
    calls = [f"{OWN(USES)} F{k} (v) => (w) {{ p = own.F{k + 1} (v) w = own.F{k + 1} (p) }}" for k in range(25)]
    text = f"{HEAD} {GRAPH} {{ y = own.F0 (x) }} {' '.join(calls)} {OWN('')} F25 (v) => (w) {{ w = Sin (v) }}"
    path, made = written(text, tmp_path), list[str]()
    monkeypatch.setattr(FunctionCall, "placed", lambda call, node: made.append(node.op_type))
    rejects(OnnxError, lambda: load(path), "its functions make too many nodes", "100663295 nodes")
    assert not made


def test_nodes_are_counted_before_they_are_made(tmp_path: Path) -> None:
    """The count of all nodes, calls and what lies in Loops included, is what is put in place."""

    def check(name: str) -> None:
        model = onnx.load(written(TEXTS[name], tmp_path))
        functions = {key_of(one, one.name): one for one in model.functions}
        count = NodeCount(functions).of(model.graph.node)
        places = FunctionInliner(functions, set())
        places.fill(model.graph)
        assert count == places.nodes

    check_each(TEXTS, check)


def test_a_function_of_another_op_set_is_refused(tmp_path: Path) -> None:
    text = f"{HEAD} {GRAPH} {{ y = own.F (x) }} {OWN('').replace('17', '13')} F (v) => (w) {{ w = Sin (v) }}"
    rejects(OnnxError, lambda: load(written(text, tmp_path)), "is written for another op set")


def test_a_call_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    text = f"{HEAD} {GRAPH} {{ y = own.Step (x, x, h) }} {STEP}"
    rejects(OnnxError, lambda: load(written(text, tmp_path)), "inputs and outputs do not fit the function")
