"""Nets of ours as ONNX files: what they mean is what `onnx.reference`, ONNX Runtime and our own import compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from rejection import rejects
from scan_models import evaluate

import rnnops as ro
from rnnops.onnx import OnnxError, export, load, load_model

T, N, D, H = 4, 7, 2, 5
Case = tuple[ro.Net, dict[str, Any]]
SKIPPED = {  # random nets that ONNX Runtime has no kernel for
    "Could not find an implementation for OneHot",
    "Pad reflect requires axis length >= 2",
    "Pad should be smaller than kernel",
}


def random_feeds(net: ro.Net, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    generator = np.random.Generator(np.random.PCG64(5))
    shapes = {**{spec.name: spec.shape for spec in net.input_specs if spec.shape is not None}, **shapes}
    feeds = {name: generator.uniform(-1, 1, shape).astype("float32") for name, shape in shapes.items()}
    return {**feeds, **({"lengths": np.array([2, T, 1, 3, T, 2, 1], "int32")} if "lengths" in net.input_names else {})}


def preset(kind: Callable[..., Any], lengths: bool = False, states: int = 0, **options: Any) -> Case:
    """A preset over a sequence."""
    net = ro.Net("preset")
    x = net.input("x")
    given = [net.input(f"s{k}") for k in range(states)] or None
    results = kind(net, x, net.input("lengths", "int32") if lengths else None, given, D, H, scope="p", **options)
    net.outputs(**{f"r{k}": blob for k, blob in enumerate(results[:2])}, last=results[-1])
    return net, random_feeds(net, {"x": (T, N, D), **{f"s{k}": (N, H) for k in range(states)}})


def my_cell() -> Case:
    """The cell of the README."""
    cell = ro.Net("my_lstm")
    x_t, h_prev, c_prev, w_x, w_h, b = cell.inputs("x_t", "h_prev", "c_prev", "w_x", "w_h", "b")
    i, f, o, g = ro.split((x_t @ w_x + h_prev @ w_h + b).named("gates"), 4, axis=-1)
    c = ro.sigmoid(f) * c_prev + ro.sigmoid(i) * ro.tanh(g)
    cell.outputs(h_t=ro.sigmoid(o) * ro.tanh(c), c_t=c)
    net = ro.Net("model")
    xs, h0, c0 = net.inputs("xs", "h0", "c0")
    states = {"initial_cell_inputs": [("h_prev", h0), ("c_prev", c0)], "links": {"h_prev": "h_t", "c_prev": "c_t"}}
    h_all, _, _, c_last = ro.recurrent_net(
        net, cell, inputs=[("x_t", xs)], recompute_blobs_on_backward=["gates"], **states
    )
    net.outputs(y=h_all, c_last=c_last)
    sizes = {"xs": (T, N, D), "h0": (N, H), "c0": (H,), "w_x": (D, 4 * H), "w_h": (H, 4 * H), "b": (4 * H,)}
    return net, random_feeds(net, sizes)


def windowed(reverse: bool) -> Case:
    """A state with a window, one with an offset, the timestep, an output that is not a state, and its last value."""
    cell = ro.Net("windows")
    x, wide, late = cell.inputs("x", "wide", "late")
    t = cell.input("t", "int32")
    new = ro.tanh(x + ro.reduce_sum(wide, axes=[0], keepdims=0)) * 0.5
    cell.outputs(h=new, g=late * 0.5 + x, e=x * ro.cast(t, "float"))
    net = ro.Net("net")
    x0, h0, g0 = net.inputs("x0", "h0", "g0")
    links = {"wide": ro.Link("h", window=2), "late": ro.Link("g", offset=1)}
    results = ro.recurrent_net(
        net, cell, [("x", x0)], [("wide", h0), ("late", g0)], links, timestep="t", reverse=reverse
    )
    names = ("h_all", "h_last", "g_all", "g_last", "e_all", "e_last")
    net.outputs(**dict(zip(names, results, strict=True)))
    return net, random_feeds(net, {"x0": (T, N, D), "h0": (2, N, D), "g0": (3, N, D)})


def steps_alone() -> Case:
    """No sequence: `steps=` says how many, and N is that of the state."""
    cell = ro.Net("clock")
    h = cell.input("h")
    t = cell.input("t", "int32")
    cell.outputs(h_t=ro.cos(h) + ro.cast(t, "float"))
    net = ro.Net("net")
    h_all, h_last = ro.recurrent_net(net, cell, [], [("h", net.input("h0"))], {"h": "h_t"}, timestep="t", steps=3)
    net.outputs(h_all=h_all, h_last=h_last)
    return net, random_feeds(net, {"h0": (N, D)})


def attention() -> Case:
    """An attention decoder with lengths on both sides."""
    net = ro.Net("net")
    x, encoded = net.inputs("x", "encoded")
    lengths = net.input("lengths", "int32")
    cell = ro.cells.AttentionCell(D, encoded, lengths, ro.cells.LSTMCell(D, H, name="d"), H, "regular", name="a")
    states = [net.input("h0"), net.input("c0"), net.input("context0")]
    output, _ = cell.apply_over_sequence(net, x, lengths, states)
    net.outputs(y=output)
    return net, random_feeds(
        net, {"x": (T, N, D), "encoded": (T, N, D), "h0": (N, H), "c0": (N, H), "context0": (N, D)}
    )


CASES: dict[str, Callable[[], Case]] = {
    "my cell": my_cell,
    "windows": lambda: windowed(False),
    "windows backwards": lambda: windowed(True),
    "steps alone": steps_alone,
    "attention": attention,
    "LSTM": lambda: preset(ro.LSTM, return_last_layer_only=True),
    "LSTM forget bias": lambda: preset(ro.LSTM, forget_bias=1.5, states=2),
    "LSTM lengths": lambda: preset(ro.LSTM, lengths=True),
    "LSTM dropped": lambda: preset(ro.LSTM, lengths=True, drop_states=True),
    "GRU": lambda: preset(ro.GRU),
    "GRU linear": lambda: preset(ro.GRU, linear_before_reset=True, states=1),
    "GRU lean": lambda: preset(ro.GRU, memory_optimization=True),
    "BasicRNN": lambda: preset(ro.BasicRNN),
    "BasicRNN relu": lambda: preset(ro.BasicRNN, activation="relu", states=1),
    "MILSTM": lambda: preset(ro.MILSTM),
    "LayerNormLSTM": lambda: preset(ro.LayerNormLSTM, lengths=True),
}
OPS = {
    "LSTM": "LSTM", "LSTM forget bias": "LSTM", "GRU": "GRU", "GRU linear": "GRU", "GRU lean": "GRU", "BasicRNN": "RNN",
    "BasicRNN relu": "RNN",
}  # fmt: skip


def written(name: str, path: Path) -> tuple[ro.Net, dict[str, Any], dict[str, Any]]:
    """Export a case; its net, feeds and results."""
    net, feeds = CASES[name]()
    weights = {spec.name: feeds[spec.name] for spec in net.parameters}
    export(
        net,
        path,
        params=weights,
        shapes={key: opened(key, array) for key, array in feeds.items() if key not in weights},
    )
    return net, feeds, ro.compile(net, device="reference")(feeds)


def opened(key: str, array: np.ndarray[Any, Any]) -> tuple[int | str, ...]:
    """The array's shape with names for the sizes that differ from run to run."""
    steps = {"x": "T", "xs": "T", "x0": "T", "encoded": "S"}
    return tuple(
        "N" if size == N else steps[key] if axis == 0 and key in steps else size
        for axis, size in enumerate(array.shape)
    )


@pytest.mark.parametrize("name", CASES)
def test_read_again_it_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    net, feeds, wanted = written(name, tmp_path / "net.onnx")
    again = load_model(tmp_path / "net.onnx")
    assert set(again.net.input_names) == set(net.input_names)
    out = ro.compile(again.net, device="reference")(feeds)
    for key, array in wanted.items():
        np.testing.assert_allclose(out[key], array, rtol=1e-5, atol=1e-6)
    export(again, tmp_path / "twice.onnx")
    assert str(load(tmp_path / "twice.onnx")) == str(again.net)


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    _, feeds, wanted = written(name, tmp_path / "net.onnx")
    session = runtime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    results = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
    for value, result in zip(session.get_outputs(), results, strict=True):
        np.testing.assert_allclose(result, wanted[value.name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in CASES if name not in OPS])
def test_the_standard_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    _, feeds, wanted = written(name, tmp_path / "net.onnx")
    results = evaluate(onnx.load(tmp_path / "net.onnx"), feeds)
    for key, array in wanted.items():
        np.testing.assert_allclose(results[key], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "op"), OPS.items())
def test_presets_are_ops_of_onnx(name: str, op: str, tmp_path: Path) -> None:
    written(name, tmp_path / "net.onnx")
    found = {node.op_type for node in onnx.load(tmp_path / "net.onnx").graph.node}
    assert op in found
    assert "Scan" not in found


def test_steps_and_rows_are_open(tmp_path: Path) -> None:
    net, feeds, _ = written("my cell", tmp_path / "net.onnx")
    again = load_model(tmp_path / "net.onnx")
    assert again.shapes["xs"] == ("T", "N", D)
    feeds = {**feeds, "xs": np.ones((9, 3, D), "float32"), "h0": np.ones((3, H), "float32")}
    runs = [ro.compile(each, device="reference")(feeds)["y"] for each in (net, again.net)]
    np.testing.assert_allclose(*runs, rtol=1e-6, atol=1e-7)


def oldest_opset(net: ro.Net, path: Path, feeds: dict[str, Any]) -> int:
    """The default op set, or the one that an error asks for: 22 tells where last windows of pools begin."""
    try:
        export(net, path, shapes=feeds)
    except OnnxError as error:
        if "wanted opset=22 or later" in str(error):
            return 22
        raise
    return 20


def check_random_net(seed: int, path: Path) -> None:
    case = ro.testing.random_net(seed)
    feeds = {key: array.astype("float32") if array.dtype.kind == "f" else array for key, array in case.feeds.items()}
    wanted = ro.compile(case.net, device="reference")(feeds, seed=seed)
    opset = oldest_opset(case.net, path, feeds)
    export(case.net, path, shapes=feeds, opset=opset)
    again = load_model(path)
    out = ro.compile(again.net, device="reference")(feeds, seed=seed)
    for key, array in wanted.items():
        np.testing.assert_allclose(out[key], array, rtol=1e-4, atol=1e-5)
    export(again, path, opset=opset)
    assert str(load(path)) == str(again.net)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_nets(seed: int, tmp_path: Path) -> None:
    check_random_net(seed, tmp_path / "net.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 400))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_more_random_nets(seed: int, tmp_path: Path) -> None:
    check_random_net(seed, tmp_path / "net.onnx")


@pytest.mark.parametrize("seed", range(40))
def test_random_nets_in_onnx_runtime(seed: int, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    case = ro.testing.random_net(seed)
    if "RandomUniformLike" in str(case.net):
        pytest.skip("it draws numbers, other ones there")
    feeds = {key: array.astype("float32") if array.dtype.kind == "f" else array for key, array in case.feeds.items()}
    export(case.net, tmp_path / "net.onnx", shapes=feeds)
    results = in_onnx_runtime(runtime, tmp_path / "net.onnx", feeds)
    wanted = ro.compile(case.net, device="reference")(feeds)
    if not all(map(is_near, results.values(), map(wanted.get, results))):
        plain = in_onnx_runtime(runtime, tmp_path / "net.onnx", feeds, optimized=False)
        if not all(map(is_near, results.values(), plain.values())):
            pytest.skip("ONNX Runtime gives other numbers where it does not optimize")
    for name, result in results.items():
        np.testing.assert_allclose(result, wanted[name], rtol=1e-3, atol=1e-4)


def is_near(one: Any, other: Any) -> bool:
    return np.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)


def in_onnx_runtime(runtime: Any, path: Path, feeds: dict[str, Any], optimized: bool = True) -> dict[str, Any]:
    """Results of a file by name; a test of what ONNX Runtime has no kernel for is skipped."""
    options, levels = runtime.SessionOptions(), runtime.GraphOptimizationLevel
    options.log_severity_level = 4
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        results = session.run(None, {value.name: feeds[value.name] for value in session.get_inputs()})
    except Exception as error:
        pytest.skip(next(reason for reason in SKIPPED if reason in str(error)))  # StopIteration: another reason
    return {value.name: result for value, result in zip(session.get_outputs(), results, strict=True)}


EDGES = np.array([1e-30, -1e-30, 1e-8, -3e-5, 0.0, -0.0, 0.7, -0.999, -1.0, 3.0, 80.0, 1e30, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("function", ["log1p", "expm1"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_that_onnx_lacks_keep_the_digits_of_a_small_operand(
    function: str, dtype: str, tmp_path: Path
) -> None:
    net, x = ro.Net("net"), EDGES.astype(dtype)
    net.outputs(y=getattr(ro, function)(net.input("x")))
    export(net, tmp_path / "net.onnx", shapes={"x": x}, dtype=dtype)
    with np.errstate(all="ignore"):
        wanted = getattr(np, function)(x)
        came = evaluate(onnx.load(tmp_path / "net.onnx"), {"x": x})["y"]
        read = ro.compile(load(tmp_path / "net.onnx"), device="reference")(x=x)["y"]
    for result in (came, read):
        np.testing.assert_allclose(result, wanted, rtol=4 * np.finfo(dtype).eps)


def test_what_gradients_are_is_not_written(tmp_path: Path) -> None:
    net = ro.Net("net")
    x = net.input("x")
    net.outputs(y=ro.with_gradient(ro.stop_gradient(ro.exp(x)), x, ro.stop_gradient(x)))
    export(net, tmp_path / "net.onnx", shapes={"x": (3,)})
    again, x = load(tmp_path / "net.onnx"), np.array([0.5, 1.0, -2.0], "float32")
    np.testing.assert_array_equal(ro.compile(again, device="reference")(x=x)["y"], np.exp(x))
    assert {op.type for op in again.ops} == {"Exp", "Identity"}


def test_an_op_that_onnx_lacks_is_named(tmp_path: Path) -> None:
    net = ro.Net("system")
    net.outputs(x=ro.solve(net.input("a"), net.input("b")))
    shapes = {"a": (3, 3), "b": (3, 1)}
    rejects(OnnxError, lambda: export(net, tmp_path / "net.onnx", shapes=shapes), "Solve -> solve_0", "no way to write")


def test_what_has_a_net_and_params_is_accepted(tmp_path: Path) -> None:
    net, feeds = CASES["GRU"]()

    class Model:
        def __init__(self) -> None:
            self.net = net

        def get_params(self) -> dict[str, Any]:
            return {spec.name: feeds[spec.name] for spec in net.parameters}

    export(Model(), tmp_path / "net.onnx", shapes={"x": ("T", "N", D)})
    assert set(load_model(tmp_path / "net.onnx").params) == {spec.name for spec in net.parameters}


def test_missing_shapes_are_listed(tmp_path: Path) -> None:
    net, _ = my_cell()
    rejects(OnnxError, lambda: export(net, tmp_path / "net.onnx"), "xs, h0, c0, w_x", "shapes=")


@pytest.mark.parametrize(
    ("change", "mentioned"),
    [
        ({"opset": 17}, "opset=18"),
        ({"opset": 999}, "opset=18"),
        ({"shapes": {"nothing": (1,)}}, "nothing"),
        ({"shapes": {"x": ("T", -1)}}, "x"),
        ({"shapes": {"x": ("T", "N", "D", "E")}}, "x"),
        ({"params": {"p/i2h_w": np.zeros((3 * H, D), "int32")}}, "p/i2h_w"),
        ({"params": {"p/i2h_w": np.zeros((3 * H, D + 1), "float32")}}, "declared"),
        ({"params": 3}, "params"),
        ({"dtype": "float16"}, "float16"),
        ({"model": 3}, "ro.Net"),
        ({"path": 3}, "path"),
    ],
)
def test_senseless_arguments_are_named_errors(change: dict[str, Any], mentioned: str, tmp_path: Path) -> None:
    net, _ = CASES["GRU"]()
    arguments = {"model": net, "path": tmp_path / "net.onnx", "shapes": {"x": ("T", "N", D)}, **change}
    rejects(OnnxError, lambda: export(**arguments), mentioned)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "net.onnx"
    target.write_bytes(b"before")
    net = ro.Net("net")
    net.outputs(y=net.append("SumTo", [net.input("x", shape=(2, 3))], {"shape": (1, 3)})[0])
    rejects(OnnxError, lambda: export(net, target), "net.onnx", "SumTo")
    assert target.read_bytes() == b"before"
    rejects(
        OnnxError, lambda: export(CASES["GRU"]()[0], tmp_path / "no" / "net.onnx", shapes={"x": (T, N, D)}), "written"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx"]


def test_names_are_kept(tmp_path: Path) -> None:
    written("my cell", tmp_path / "net.onnx")
    graph = onnx.load(tmp_path / "net.onnx").graph
    assert [value.name for value in graph.input] == ["xs", "h0", "c0", "w_x", "w_h", "b"]
    (scan,) = [node for node in graph.node if node.op_type == "Scan"]
    body = next(attribute.g for attribute in scan.attribute if attribute.name == "body")
    assert body.name == "my_lstm"
    assert {"gates", "h_t", "c_t"} <= {name for node in body.node for name in node.output}


def test_an_output_may_have_the_name_of_another_blob(tmp_path: Path) -> None:
    net = ro.Net("net")
    x = net.input("x", shape=(2,))
    y = ro.exp(x).named("y")
    net.outputs(y=ro.sin(y), z=y)
    export(net, tmp_path / "net.onnx")
    feeds = {"x": np.array([0.5, 1.0], "float32")}
    out = ro.compile(load(tmp_path / "net.onnx"), device="reference")(feeds)
    np.testing.assert_array_equal(out["y"], np.sin(out["z"]))


def test_a_layer_that_somebody_looks_into_is_no_node(tmp_path: Path) -> None:
    net, feeds, _ = written("GRU linear", tmp_path / "net.onnx")
    inside = load_model(tmp_path / "net.onnx")
    blob = next(op.outputs[0] for op in inside.net.ops if op.type == "RecurrentNetwork")
    weights = next(op.inputs[-1] for op in inside.net.ops if op.type == "RecurrentNetwork")
    inside.net.outputs(looked_at=inside.net.blob(weights))
    export(inside, tmp_path / "again.onnx")
    assert "GRU" not in {node.op_type for node in onnx.load(tmp_path / "again.onnx").graph.node}
    again = load_model(tmp_path / "again.onnx")
    out = ro.compile(again.net, device="reference")(feeds)
    wanted = ro.compile(net, device="reference")(feeds)
    np.testing.assert_allclose(out["r0"], wanted["r0"], rtol=1e-5, atol=1e-6)
    assert blob


def test_a_cell_whose_name_lies_is_written_as_a_scan(tmp_path: Path) -> None:
    cell = ro.Net("LSTM Sigmoid Tanh Tanh")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh(x + h))
    net = ro.Net("net")
    xs = net.input("xs", shape=(T, N, D))
    h_all, _ = ro.recurrent_net(net, cell, [("x", xs)], [("h", net.input("h0", shape=(N, D)))], {"h": "h_t"})
    net.outputs(y=h_all)
    export(net, tmp_path / "net.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "net.onnx").graph.node if node.op_type != "Identity"] == [
        "Scan"
    ]


def test_sizes_that_a_file_names_differently_may_be_given_one_name(tmp_path: Path) -> None:
    """tf2onnx gives each open size of each input a name of its own."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[unk1, 3] x, float[unk2, 3] z) => (float[unk3, 3] y)'
    onnx.save(onnx.parser.parse_model(f"{text} {{ y = Add (x, z) }}"), tmp_path / "names.onnx")
    model = load_model(tmp_path / "names.onnx")
    rejects(OnnxError, lambda: export(model, tmp_path / "again.onnx"), "names (unk1, unk2) differ")
    export(model, tmp_path / "again.onnx", shapes={"x": ("N", 3), "z": ("N", 3)})
    assert load_model(tmp_path / "again.onnx").shapes == {"x": ("N", 3), "z": ("N", 3)}


def test_bools_are_chosen_where_onnx_runtime_runs_them(tmp_path: Path) -> None:
    net = ro.Net("net")
    x = net.input("x", shape=(2, 3))
    net.outputs(y=ro.where(x > 0.0, x < 0.5, ro.reduce_max(x, [1]) > 0.9))
    export(net, tmp_path / "net.onnx")
    feeds = {"x": np.array([[-1.0, 0.2, 0.7], [-1.0, 0.2, 1.0]], "float32")}
    made = onnx.load(tmp_path / "net.onnx")
    assert not {node.op_type for node in made.graph.node} & {"Where"}
    wanted = np.array([[False, True, False], [True, True, False]])
    np.testing.assert_array_equal(evaluate(made, feeds)["y"], wanted)
    np.testing.assert_array_equal(ro.compile(load(tmp_path / "net.onnx"), device="reference")(feeds)["y"], wanted)


@pytest.mark.parametrize("places", [40, 9])
def test_open_sizes_may_have_a_limit(places: int, tmp_path: Path) -> None:
    """As a table of places has it, of which a sequence takes the first ones."""
    net = ro.Net("net")
    x, table = net.input("x"), net.parameter("table", (places, 2))
    net.outputs(y=x + ro.slice(table, [0], ro.shape(x, 0, 1), [0]))
    params = {"table": np.arange(places * 2, dtype="float32").reshape(places, 2)}
    export(net, tmp_path / "net.onnx", params=params, shapes={"x": ("T", 2)})
    read = load_model(tmp_path / "net.onnx")
    assert read.shapes == {"x": ("T", 2)}
    for steps in (1, 5, places):
        x = np.ones((steps, 2), "float32")
        made = ro.compile(read.net, device="reference")(read.params, x=x)["y"]
        np.testing.assert_array_equal(made, x + params["table"][:steps])


def test_sizes_that_must_fit_are_asked_for(tmp_path: Path) -> None:
    net = ro.Net("net")
    net.outputs(y=net.input("x") + net.constant(np.ones((5, 2), "float32")))
    hint = "give those that the net fixes as numbers: shapes={...}"
    rejects(OnnxError, lambda: export(net, tmp_path / "net.onnx", shapes={"x": ("T", 2)}), "do not broadcast", hint)
    export(net, tmp_path / "net.onnx", shapes={"x": (5, 2)})
