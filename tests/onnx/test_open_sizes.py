"""Sizes that a caller gives for those that a file leaves open: branches by them, shapes, and what is refused."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from devices import DEVICES
from each import check_each
from if_models import (
    BY_OPEN_SIZE,
    BY_WINDOW,
    BY_WINDOW_WITHOUT_NAMES,
    OF_OTHER_WIDTHS,
    OF_OTHER_WIDTHS_INSIDE,
    ROWS_OF_TWO_NAMES,
    SQUEEZED,
    SQUEEZED_BY_MANY,
    SQUEEZED_BY_OPPOSITES,
    SQUEEZED_BY_RANK,
    SQUEEZED_TWICE,
    model_of,
)
from onnx.reference import ReferenceEvaluator
from rejection import rejects

import rnnops as ro
from rnnops.errors import FeedError, RnnopsError
from rnnops.onnx import OnnxError, export, load, load_model
from rnnops.onnx.open_sizes import sizes_of_weights

ONE, OTHER = {"N": 2, "window": 6}, {"x.0": 2, "x.1": 6, "h.1": 2}


def written(graph: str, folder: Path) -> Path:
    """A file with a graph."""
    onnx.save(model_of(graph), folder / "model.onnx")
    return folder / "model.onnx"


def feeds_of(rows: int = 2, window: int = 6) -> dict[str, np.ndarray[Any, Any]]:
    """Random feeds for the models of windows."""
    random = np.random.default_rng(0)
    return {
        "x": random.normal(size=(rows, window)).astype("float32"),
        "h": random.normal(size=(1, rows, 2)).astype("float32"),
    }


def wanted_of(path: Path, feeds: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """What ONNX's own evaluator computes."""
    evaluator = ReferenceEvaluator(str(path))
    return dict(zip(evaluator.output_names, evaluator.run(None, feeds), strict=True))


READ = {"all": (BY_WINDOW, ONE), "one": (BY_WINDOW, {"window": 6}), "no names": (BY_WINDOW_WITHOUT_NAMES, OTHER)}


@pytest.mark.parametrize("device", ["reference", "plain"])
def test_a_branch_by_a_size(device: str, tmp_path: Path) -> None:
    def check(name: str) -> None:
        text, sizes = READ[name]
        path, feeds = written(text, tmp_path), feeds_of()
        model = load_model(path, sizes=sizes)
        out = DEVICES[device](model.net)(model.params, feeds)
        for key, wanted in wanted_of(path, feeds).items():
            np.testing.assert_allclose(out[key], wanted, rtol=1e-5, atol=1e-6)

    check_each(READ, check)


def test_gradients(tmp_path: Path) -> None:
    def check(name: str) -> None:
        text, sizes = READ[name]
        model = load_model(written(text, tmp_path), sizes=sizes)
        arrays = {**model.params, **feeds_of()}
        ro.testing.check_gradient(model.net, {key: array.astype("float64") for key, array in arrays.items()})

    check_each(READ, check)


def test_shapes_have_the_numbers(tmp_path: Path) -> None:
    path = written(BY_WINDOW, tmp_path)
    assert load_model(path, sizes={"window": 6}).shapes == {"x": ("N", 6), "h": (1, "N", 2)}
    model = load_model(path, None, {"window": np.int64(6), "N": 2})
    assert model.shapes == {"x": (2, 6), "h": (1, 2, 2)}
    assert [spec.shape for spec in model.net.input_specs if spec.name in "xh"] == [(2, 6), (1, 2, 2)]
    rejects(FeedError, lambda: ro.compile(model.net)(model.params, feeds_of(window=5)), "'x'", "[2, 6]", "[2, 5]")
    assert str(load(path, sizes=ONE)) == str(model.net)


def test_question_marks_are_no_name(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[a, b] x) => (float[a, b] y) { y = Tanh(x) }'
    proto = onnx.parser.parse_model(text)
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = "?"  # as converters write it for each open size
    onnx.save(proto, tmp_path / "model.onnx")
    assert load_model(tmp_path / "model.onnx").shapes == {"x": (None, None)}
    assert load_model(tmp_path / "model.onnx", sizes={"x.0": 2, "x.1": 3}).shapes == {"x": (2, 3)}


def test_it_is_as_though_the_file_had_them(tmp_path: Path) -> None:
    fixed = BY_WINDOW.replace("window", "6").replace("N", "2")
    nets = [load(written(text, tmp_path), sizes=sizes) for text, sizes in ((BY_WINDOW, ONE), (fixed, None))]
    assert str(nets[0]) == str(nets[1])


def test_a_branch_by_a_size_in_an_input_that_stays_open_is_guarded(tmp_path: Path) -> None:
    """Other sizes are right where they take the same branch, and refused where they do not."""
    path = written(BY_WINDOW, tmp_path)
    model = load_model(path, sizes={"window": 6})
    for rows, window in ((1, 6), (3, 6), (2, 7)):
        feeds = feeds_of(rows, window)
        out = ro.compile(model.net, device="reference")(model.params, feeds)
        np.testing.assert_allclose(out["hn"], wanted_of(path, feeds)["hn"], rtol=1e-5, atol=1e-6)
    with pytest.raises(RnnopsError, match="guarded"):
        ro.compile(model.net, device="reference")(model.params, feeds_of(2, 9))


def test_the_other_branch(tmp_path: Path) -> None:
    path = written(BY_OPEN_SIZE, tmp_path)
    x = np.ones((1, 3), "float32")
    assert ro.compile(load(path, sizes={"N": 1}), device="reference")(x=x)["y"].shape == (3,)
    assert "Squeeze" not in {op.type for op in load(path, sizes={"N": 4}).ops}


def test_steps_are_one_call(tmp_path: Path) -> None:
    model, feeds = load_model(written(BY_WINDOW, tmp_path), sizes=ONE), feeds_of()
    run = ro.compile(model.net).bind(**model.params)
    stream = run.stream({"hn": "h"}, shapes=model.shapes, initial={"h": feeds["h"]})
    state = feeds["h"]
    for _ in range(3):
        wanted = run(x=feeds["x"], h=state)
        np.testing.assert_array_equal(stream({"x": feeds["x"]})["y"], wanted["y"])
        state = wanted["hn"]
    np.testing.assert_array_equal(stream.states["h"], state)


def test_written_again_with_the_sizes(tmp_path: Path) -> None:
    path, feeds = written(BY_WINDOW, tmp_path), feeds_of()
    for sizes in (ONE, {"window": 6}):
        model = load_model(path, sizes=sizes)
        export(model, tmp_path / "again.onnx")
        again = load_model(tmp_path / "again.onnx")
        assert (again.shapes, str(again.net)) == (model.shapes, str(model.net))
        np.testing.assert_allclose(wanted_of(tmp_path / "again.onnx", feeds)["y"], wanted_of(path, feeds)["y"], 1e-5)


THERE = "wanted N, window"
REFUSED: dict[str, tuple[dict[Any, Any] | list[str], tuple[str, ...]]] = {
    "no such name": ({"M": 3, "K": 1}, ("these are not open sizes", THERE, "got K, M", "model.shapes", "INPUT.AXIS")),
    "an axis with a name": ({"x.1": 6}, (THERE, "got x.1")),
    "an axis with a number": ({"h.0": 1}, (THERE, "got h.0")),
    "a name of an output": ({"rows": 2}, (THERE, "got rows")),
    "no name": ({6: 6}, (THERE, "got 6")),
    "zero": ({"N": 0}, ("size 'N' is wrong", "positive whole number; got 0", "open sizes N, window")),
    "negative": ({"N": -3}, ("positive whole number; got -3",)),
    "a float": ({"N": 2.0}, ("positive whole number; got 2.0",)),
    "a text": ({"N": "2"}, ("positive whole number; got '2'",)),
    "a bool": ({"N": True}, ("positive whole number; got True",)),
    "too large": ({"N": 2**63}, ("positive whole number; got 9223372036854775808",)),
    "two of them": ({"N": (2, 3)}, ("positive whole number; got (2, 3)",)),
    "no dict": (["N"], ("sizes is not a dict", "got list")),
    "another branch": (
        {"window": 9},
        ("wrong number of axes", "sizes={'N': ...}", "sizes={'window': 9}, which may not fit"),
    ),
    "another branch, nothing open": ({**ONE, "window": 9}, ("wrong number of axes", "sizes={'N': 2, 'window': 9}")),
}


def test_refused(tmp_path: Path) -> None:
    path = written(BY_WINDOW, tmp_path)

    def check(name: str) -> None:
        sizes, mentioned = REFUSED[name]
        rejects(OnnxError, lambda: load(path, sizes=sizes), "model.onnx", *mentioned)  # type: ignore[arg-type]

    check_each(REFUSED, check)
    rejects(
        OnnxError,
        lambda: load(written("(float[2] x) => (float[2] y) { y = Neg(x) }", tmp_path), sizes={"N": 2}),
        "wanted none: the file gives them all",
    )


def test_sizes_that_contradict_a_constant_or_the_graph(tmp_path: Path) -> None:
    path = written("(float[N] x, int64[K] s) => (float y) { y = Reshape(x, s) }", tmp_path)
    constants = {"s": [2, -1]}
    rejects(
        OnnxError,
        lambda: load(path, constants, {"K": 3}),
        "contradict",
        "'s'",
        "K=3",
        "sizes [2]",
        "Give K the number 2",
    )
    assert load_model(path, constants, {"K": 2, "N": 6}).shapes == {"x": (6,)}
    rejects(OnnxError, lambda: load(path, constants, {"N": 7}), "'y' (Reshape)", "sizes={'N': 7}", "may not fit")


WITHOUT_SIZES = {  # text, sizes of x that fit, sizes that take the other branch
    "windows": (BY_WINDOW, [(2, 6), (1, 6), (3, 7)], (2, 9)),
    "windows without names": (BY_WINDOW_WITHOUT_NAMES, [(2, 6), (3, 8)], (2, 9)),
    "an axis of size 1": (SQUEEZED, [(2, 1, 3), (1, 1, 3), (5, 1, 3)], (2, 2, 3)),
    "one condition twice": (SQUEEZED_TWICE, [(2, 1, 3), (1, 1, 3)], (2, 2, 3)),
    "a condition and its opposite": (SQUEEZED_BY_OPPOSITES, [(2, 1, 3), (1, 1, 3)], (2, 2, 3)),
    "a rank that follows": (SQUEEZED_BY_RANK, [(2, 1, 3), (1, 1, 3)], (2, 2, 3)),
}


def random_feeds(shape: tuple[int, ...], names: Collection[str]) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(1)
    feeds = {"x": random.normal(size=shape), "h": random.normal(size=(1, shape[0], 2))}
    return {name: feeds[name].astype("float32") for name in feeds if name in names}


@pytest.mark.parametrize("device", ["reference", "plain"])
@pytest.mark.parametrize("name", WITHOUT_SIZES)
def test_the_branch_that_the_rest_needs_is_read_without_sizes(name: str, device: str, tmp_path: Path) -> None:
    """Beside ONNX's own evaluator: ONNX Runtime refuses files in which one branch has other numbers of axes."""
    text, shapes, others = WITHOUT_SIZES[name]
    path = written(text, tmp_path)
    model = load_model(path)
    run = DEVICES[device](model.net)
    for shape in shapes:
        feeds = random_feeds(shape, model.shapes)
        out = run(model.params, feeds)
        for key, wanted in wanted_of(path, feeds).items():
            np.testing.assert_allclose(out[key], wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(RnnopsError, match=r"guarded|Squeeze -> a"):
        run(model.params, random_feeds(others, model.shapes))


@pytest.mark.parametrize("name", WITHOUT_SIZES)
def test_gradients_without_sizes(name: str, tmp_path: Path) -> None:
    text, shapes, _ = WITHOUT_SIZES[name]
    model = load_model(written(text, tmp_path))
    arrays = {**model.params, **random_feeds(shapes[0], model.shapes)}
    ro.testing.check_gradient(model.net, {key: array.astype("float64") for key, array in arrays.items()})


def test_a_choice_that_no_open_size_decides_stays(tmp_path: Path) -> None:
    """With W = 2 the condition is False at any N: a net of the other branch would never run."""
    rejects(OnnxError, lambda: load(written(SQUEEZED, tmp_path), sizes={"W": 2}), "'y' (GRU)", "number of axes")


def test_conditions_of_many_ops_are_not_followed(tmp_path: Path) -> None:
    """Each op doubles the ways to the sizes: following all would take hours for a file of a kilobyte."""
    path = written(SQUEEZED_BY_MANY, tmp_path)
    rejects(OnnxError, lambda: load(path), "'y' (GRU)", "Open sizes decide a branch of If 'z'")
    load(path, sizes={"W": 1})


@pytest.mark.parametrize("device", ["reference", "plain", "cpu"])
@pytest.mark.parametrize("text", [OF_OTHER_WIDTHS, OF_OTHER_WIDTHS_INSIDE])
def test_branches_by_data_that_fit_other_sizes(text: str, device: str, tmp_path: Path) -> None:
    """Both are computed. Data that take the one that sizes do not fit are refused, as by ONNX Runtime."""
    path = written(text, tmp_path)
    model = load_model(path)
    run, x = DEVICES[device](model.net), np.random.default_rng(0).normal(size=(4, 2, 3)).astype("float32")

    def check(feeds: dict[str, np.ndarray]) -> None:
        feeds = {name: array for name, array in feeds.items() if name in model.shapes}
        np.testing.assert_allclose(run(model.params, feeds)["y"], wanted_of(path, feeds)["y"], rtol=1e-5, atol=1e-6)

    for width, c in ((1, True), (2, False), (1, True)):
        feeds = {"x": x[:, :width], "c": np.array(c), "o": np.array(True)}
        check(feeds)
        if "o" in model.shapes:
            check({**feeds, "c": np.array(not c), "o": np.array(False)})
        with pytest.raises(RnnopsError, match="blob 'y/branch_for_other_sizes'"):
            run(model.params, {name: np.array(not c) if name == "c" else feeds[name] for name in model.shapes})


def test_gradients_of_branches_by_data_that_fit_other_sizes(tmp_path: Path) -> None:
    model = load_model(written(OF_OTHER_WIDTHS, tmp_path))
    for width, c in ((1, True), (2, False)):
        x = np.random.default_rng(0).normal(size=(4, width, 3))
        params = {name: array.astype("float64") for name, array in model.params.items()}
        ro.testing.check_gradient(model.net, {**params, "x": x, "c": np.array(c)})


def test_a_branch_by_data_that_is_known_is_read_by_itself(tmp_path: Path) -> None:
    model = load_model(written(OF_OTHER_WIDTHS, tmp_path), {"c": False})
    x = np.ones((4, 2, 3), "float32")
    assert ro.compile(model.net, device="reference")(model.params, x=x)["y"].shape == (1, 1, 2)
    assert sum(op.type == "RecurrentNetwork" for op in model.net.ops) == 1


def test_rows_of_a_state_are_those_of_its_sequence(tmp_path: Path) -> None:
    """A file may have two names for them, so that made-up sizes differ."""
    path = written(ROWS_OF_TWO_NAMES, tmp_path)
    model, feeds = load_model(path), feeds_of()
    feeds["x"] = np.random.default_rng(1).normal(size=(4, 2, 3)).astype("float32")
    out = ro.compile(model.net, device="reference")(model.params, feeds)["y"]
    np.testing.assert_allclose(out, wanted_of(path, feeds)["y"], rtol=1e-5, atol=1e-6)


WIDTHS = """(float[N,W] x, float[1,V] z) => (float[N,4] y, float[1,5] q)
    <float[3,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, float[7,5] v = {35}> {
    y = MatMul(x, w) q = MatMul(z, v) }""".replace("{35}", "{" + ", ".join(["0.5"] * 35) + "}")


def test_sizes_that_weights_fix(tmp_path: Path) -> None:
    """They are found; a size that may be another is not."""
    model = load_model(written(WIDTHS, tmp_path))
    shapes = {**model.shapes, **{name: array.shape for name, array in model.params.items()}}
    assert sizes_of_weights(model.net, shapes, "float32") == {"W": 3, "V": 7}
    export(model, tmp_path / "again.onnx")
    assert load_model(tmp_path / "again.onnx").shapes == {"x": ("N", 3), "z": (1, 7)}
    bias = load_model(written("(float[N,W] x) => (float[N,2] y) <float[2] b = {1, 2}> { y = Add(x, b) }", tmp_path))
    assert sizes_of_weights(bias.net, {**bias.shapes, "b": (2,)}, "float32") == {}
    window = "(float[N,W] x) => (float[N,2] y) <int64[2] two = {0, 2}> { i = Add(two, two) y = Gather<axis = 1>(x, i) }"
    model = load_model(written(window, tmp_path))
    assert sizes_of_weights(model.net, model.shapes, "float32") == {}
    sums = load(written("(float[N] x, float[M] z) => (float[N] y) { y = Add(x, z) }", tmp_path))
    assert sizes_of_weights(sums, {"x": ("N",), "z": ("M",)}, "float32") == {}


def test_a_name_for_a_size_that_the_net_has_is_refused(tmp_path: Path) -> None:
    """A file with a number where a name was asked for would be served with that number only."""
    cell = ro.Net("step")
    cell.outputs(h=ro.reshape(cell.input("x") + cell.input("h"), [5, 2]))
    for inner in (False, True):
        net = ro.Net("net")
        x, h = net.input("x"), net.input("h")
        ys = ro.recurrent_net(net, cell, [("x", x)], [("h", h)], {"h": "h"})[0] if inner else x + ro.reshape(h, [5, 2])
        net.outputs(y=ys)
        shapes: dict[str, Any] = {"x": ("T", "N", 2), "h": ("N", 2)}
        rejects(OnnxError, lambda: export(net, tmp_path / "a.onnx", shapes=shapes), "size 'N' has a number", "wanted 5")  # noqa: B023
        export(net, tmp_path / "a.onnx", shapes={"x": ("T", 5, 2), "h": (5, 2)})
        assert load_model(tmp_path / "a.onnx").shapes == {"x": ("T", 5, 2), "h": (5, 2)}


def test_what_fails_by_an_open_size_says_so(tmp_path: Path) -> None:
    path = written(BY_WINDOW.replace("s = Unsqueeze(x1, first)", "s = Identity(x1)"), tmp_path)
    rejects(
        OnnxError,
        lambda: load(path),
        "wrong number of axes",
        "Open sizes decide a branch of If 'y'",
        "sizes={'N': ..., 'window': ...}",
    )
    text = """(float[N, M] x) => (float y) { s = MatMul(x, x) n = Shape<end = 1>(s) one = Constant<value_ints = [1]>()
        c = Equal(n, one) y = If(c) <then_branch = t() => (float r) { r = Neg(x) },
                                     else_branch = e() => (float r) { r = Shape(x) }> }"""
    rejects(
        OnnxError,
        lambda: load(written(text, tmp_path)),
        "branches give results of different types",
        "sizes={'N': ..., 'M': ...}",
    )
    load(written(text, tmp_path), sizes={"N": 1, "M": 1})


def test_a_branch_by_a_size_of_a_sum_is_guarded(tmp_path: Path) -> None:
    """Made-up sizes of x and z do not broadcast, so that those of their sum are open, too."""
    text = """(float[N] x, float[M] z) => (float y) { s = Add(x, z) n = Shape(s) one = Constant<value_ints = [1]>()
        c = Equal(n, one) y = If(c) <then_branch = t() => (float r) { r = Neg(s) },
                                     else_branch = e() => (float r) { r = Tanh(s) }> }"""
    run = ro.compile(load(written(text, tmp_path)), device="reference")
    for rows, others in ((5, 5), (1, 5), (5, 1)):
        x, z = np.full(rows, 0.5, "float32"), np.full(others, 1.0, "float32")
        np.testing.assert_allclose(run(x=x, z=z)["y"], np.tanh(x + z), rtol=1e-6)
    rejects(ro.TypeRuleError, lambda: run(x=x[:1], z=z), "y/guarded")


def test_what_fails_by_an_input_says_so(tmp_path: Path) -> None:
    """Such as a rate of samples that chooses a branch, each of which needs its own window."""
    text = BY_WINDOW.replace("float[1,N,2] h", "float[1,N,2] h, int64 rate").replace(
        "c = Equal(size, two)", "many = Constant<value_int = 16000>() c = Equal(rate, many)"
    )
    path = written(text, tmp_path)
    rejects(OnnxError, lambda: load(path, sizes=ONE), "wrong number of axes", "If 'y'", "constants={'rate': ...}")
    model, feeds = load_model(path, {"rate": 16000}, ONE), feeds_of()
    out = ro.compile(model.net)(model.params, feeds)
    wanted = wanted_of(path, {**feeds, "rate": np.array(16000)})
    np.testing.assert_allclose(out["hn"], wanted["hn"], rtol=1e-5, atol=1e-6)
    assert set(model.net.input_names) - set(model.params) == {"x", "h"}
    rejects(OnnxError, lambda: load(path, {"rate": 8000}, ONE), "wrong number of axes", "sizes={'N': 2, 'window': 6}")


def test_no_hint_of_an_If_that_is_read(tmp_path: Path) -> None:
    text = """(float[2] x, bool c) => (float y) { z = If(c) <then_branch = t() => (float[2] r) { r = Neg(x) },
        else_branch = e() => (float[2] r) { r = Abs(x) }> y = Neg<odd = 7>(z) }"""
    error = rejects(OnnxError, lambda: load(written(text, tmp_path)))
    assert "If 'z'" not in str(error)
    assert "sizes=" not in str(error)


def test_a_size_that_a_file_fixes_beside_an_open_one_is_named(tmp_path: Path) -> None:
    """Where the net fits other sizes, too, it runs with them; else the error says what the file fixes."""
    text = "(float[1,T,2] x) => (float y) <float[1,1,2] c = {1, 2}> { y = Concat<axis = 1>(x, c) }"
    model, fed = load_model(written(text, tmp_path)), np.ones((3, 4, 2), "float32")
    run = ro.compile(model.net)
    bound = run.bind(**model.params)
    wrong = "op 'Concat", "blob 'x': the file fixes a size that this feed does not have: only axis 1 may differ"
    wrong += ("wanted 1 along axis 0; got [3, 4, 2]. Feed that size, or export the file with this axis open",)
    for call in (bound, lambda **feeds: run(model.params, **feeds)):
        error = rejects(FeedError, lambda call=call: call(x=fed), *wrong)
        assert isinstance(error.__cause__, ro.TypeRuleError)
    rejects(FeedError, lambda: bound.plan(x=(3, 4, 2), backward=False), *wrong)
    rejects(FeedError, lambda: bound.vjp(x=fed), *wrong)
    path = written("(float[1,T,2] x) => (float y) { y = Tanh(x) }", tmp_path)
    np.testing.assert_allclose(ro.compile(load(path))(x=fed)["y"], np.tanh(fed), rtol=1e-6)
