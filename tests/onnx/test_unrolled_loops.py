"""Unrolled loops: which of them become recurrences, values and gradients, and that all others stay as they are."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from each import check_each
from loop_checks import check_gradients, check_runtime, check_values, check_written_again, read, saved
from rejection import rejects
from unrolled_loops import EITHER, LEFT, ROLLED, STEPS, random_model

import rnnops as ro
from rnnops.interpreter import prune
from rnnops.onnx import OnnxModel, load_model
from rnnops.onnx.unrolled import FOLDED

LOAD = importlib.import_module("rnnops.onnx.load")
RANDOM_NUMBERS = "random numbers"
FIRST_STEP_STAYS = {  # Tanh and Sigmoid of the first step
    "another first step": 1,
    "a first value that is repeated": 1,
    "states that are equal in the first step": 2,
}
COMPARED = {**ROLLED, **LEFT, **EITHER}
del COMPARED[RANDOM_NUMBERS]


def recurrences(model: OnnxModel) -> int:
    return sum(op.type == "RecurrentNetwork" for op in model.net.ops)


def as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> OnnxModel:
    """The model of a file whose loops are not rolled up."""
    with monkeypatch.context() as patch:
        patch.setattr(LOAD, "with_loops", lambda model, opset: None)
        return load_model(path)


def test_copies_of_a_step_are_a_recurrence(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, _ = read(ROLLED[name], tmp_path)
        assert recurrences(model) == 1
        assert sum(op.type in ("Tanh", "Sigmoid") for op in model.net.ops) == FIRST_STEP_STAYS.get(name, 0)

    check_each(ROLLED, check)


def test_other_loops_stay(tmp_path: Path) -> None:
    check_each(LEFT, lambda name: _assert_stays(LEFT[name], tmp_path))


def _assert_stays(text: str, folder: Path) -> None:
    assert recurrences(load_model(saved(text, folder))) == 0


@pytest.mark.parametrize("device", ["reference", "plain", "cpu"])
def test_values(device: str, tmp_path: Path) -> None:
    def check(name: str) -> None:
        check_values(COMPARED[name], tmp_path, device, T=STEPS, N=4)

    check_each(COMPARED, check)


def test_gradients(tmp_path: Path) -> None:
    fixed = {name: text.replace("[T, ", f"[{STEPS}, ") for name, text in COMPARED.items()}
    check_each(fixed, lambda name: check_gradients(fixed[name], tmp_path))


def test_onnx_runtime_gives_the_same_numbers(tmp_path: Path) -> None:
    check_each(ROLLED, lambda name: check_runtime(ROLLED[name], tmp_path, T=STEPS))


def test_written_again_it_is_the_same_net(tmp_path: Path) -> None:
    check_each(ROLLED, lambda name: check_written_again(ROLLED[name], tmp_path))


def test_parameters_with_equal_numbers_are_parameters_of_their_own(tmp_path: Path) -> None:
    for text, own in (
        (ROLLED["weights of one step that are equal"], {"w0", "w1", "w2", "w3"}),
        (ROLLED["biases of zeros"], {"b0", "b1"}),
        (LEFT["weights of each step that are equal"], {f"w{t}" for t in range(STEPS)}),
    ):
        model, _ = read(text, tmp_path)
        assert model.params.keys() >= own


@pytest.mark.parametrize("sources", [1, 2])
def test_a_weight_that_an_exporter_computed_for_each_step_is_one_parameter(sources: int, tmp_path: Path) -> None:
    """PyTorch's exporter writes a transposed weight for each step, and names what each came from."""
    path = saved(LEFT["weights of each step that are equal"], tmp_path)
    proto = onnx.load(path)
    for t in range(STEPS):
        made = onnx.helper.make_tensor_value_info(f"w{t}", onnx.TensorProto.FLOAT, [2, 3])
        made.metadata_props.add(key=FOLDED, value=f"['weight_{t % sources}']")
        proto.graph.value_info.append(made)
    onnx.save(proto, path)
    model = load_model(path)
    assert recurrences(model) == (sources == 1)


def test_a_weight_that_nodes_of_each_step_turn_is_one_parameter(tmp_path: Path) -> None:
    model, _ = read(ROLLED["a turned weight"], tmp_path)
    assert sorted(model.params) == ["b", "u", "w"]


def test_layers_that_begin_with_the_same_weights_have_parameters_of_their_own(tmp_path: Path) -> None:
    model, _ = read(ROLLED["two layers that begin with the same weights"], tmp_path)
    assert sorted(model.params) == ["b", "u", "v", "w"]


def test_an_array_of_other_steps(tmp_path: Path) -> None:
    """Further places are not read, as the file says; an array that has too few is an error."""
    text = ROLLED["an open size"]
    check_values(text, tmp_path, "cpu", T=STEPS + 2)
    model, feeds = read(text, tmp_path, T=STEPS - 1)
    rejects(ro.TypeRuleError, lambda: ro.compile(model.net)(model.params, feeds), "")


def test_loops_that_hang_together_in_nothing_are_recurrences_of_their_own(tmp_path: Path) -> None:
    """Two directions over one array, and a second layer over both."""
    forward, back = "".join(_direction("f", range(STEPS))), "".join(_direction("g", reversed(range(STEPS))))
    join = "y = Concat <axis = 2> (fy, gy)"
    text = ROLLED["the last"]
    nodes = f"zero = Constant <value_ints = [0]> () {forward} {back} {join}"
    text = (
        f"{text[: text.index('=>')]} => (float[6, N, 6] y) {text[text.index('<') : text.index('{ zero')]} {{ {nodes} }}"
    )
    model, _ = read(text, tmp_path)
    assert recurrences(model) == 2
    assert [op.attributes.get("reverse", 0) for op in model.net.ops if op.type == "RecurrentNetwork"] == [0, 1]
    assert "Slice" not in {op.type for op in prune(model.net).ops}
    check_values(text, tmp_path, "cpu")
    check_gradients(text, tmp_path)


def _direction(name: str, order: object) -> list[str]:
    """The nodes of a loop in one direction, stacked in the order of the array."""
    nodes, before = [], "h"
    for t in order:  # type: ignore[attr-defined]
        nodes.append(f"""{name}k{t} = Constant <value_int = {t}> () {name}x{t} = Gather (x, {name}k{t})
            {name}m{t} = MatMul ({name}x{t}, w) {name}r{t} = MatMul ({before}, u)
            {name}q{t} = Add ({name}m{t}, {name}r{t}) {name}h{t} = Tanh ({name}q{t})
            {name}s{t} = Unsqueeze ({name}h{t}, zero) """)
        before = f"{name}h{t}"
    return [*nodes, f"{name}y = Concat <axis = 0> ({', '.join(f'{name}s{t}' for t in range(STEPS))}) "]


def test_a_loop_that_cannot_be_read_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader has the last word: the file is read as it is where a Loop of its steps is refused."""
    path = saved(ROLLED["the last"], tmp_path)

    def refuse(*_: object) -> None:
        raise ro.onnx.OnnxError("no Loop")

    monkeypatch.setattr("rnnops.onnx.read_graph.read_loop", refuse)
    assert recurrences(load_model(path)) == 0


def test_the_outline_lists_them(tmp_path: Path) -> None:
    outline = importlib.import_module("rnnops.onnx.outline").outline
    path = saved(ROLLED["two states"], tmp_path)
    (layer,) = outline(onnx.load(path), path.stat().st_size).layers
    assert (layer.kind, layer.sizes, layer.name) == ("Loop", "2 states, 12 ops a step", "6 steps of h0")


@pytest.mark.parametrize("seed", range(16))
def test_random_cells(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients are those of the net without a recurrence."""
    path = saved(random_model(np.random.default_rng(seed)), tmp_path)
    rolled, plain = load_model(path), as_it_is(path, monkeypatch)
    assert recurrences(rolled) >= 1
    assert recurrences(plain) == 0
    random = np.random.default_rng(seed)
    feeds = {
        name: random.uniform(-1, 1, [2 if dim == "N" else dim for dim in dims]) for name, dims in plain.shapes.items()
    }
    results, gradients = [], []
    for model in (rolled, plain):
        params = {name: array.astype("float64") for name, array in model.params.items()}
        out, pullback = ro.compile(model.net).vjp(params, feeds)
        results.append(out)
        gradients.append(
            pullback({name: np.cos(np.arange(array.size)).reshape(array.shape) for name, array in out.items()})
        )
    for ours, theirs in (results, gradients):
        for name in ours:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9, atol=1e-11, err_msg=name)


def weighted(parts: str, result: str) -> str:
    """A product with weights that nodes put together."""
    values = ", ".join(f"{value / 7:.3f}" for value in range(12))
    return f"""(float[N, 2] x) => ({result}) <float[4, 3] w = {{{values}}}, float[2, 2] v = {{1.0, 2.0, 3.0, 5.0}}> {{
        zero = Constant <value_ints = [0]> () two = Constant <value_ints = [2]> () four = Constant <value_ints = [4]> ()
        one = Constant <value_ints = [1]> () a = Slice (w, zero, two, zero) b = Slice (w, two, four, zero) {parts} }}"""


JOINED = weighted(
    "d = Unsqueeze (b, zero) e = Unsqueeze (a, zero) c = Concat <axis = 0> (d, e) y = MatMul (x, c)", "float y"
)
APART = {
    "one part": weighted("c = Concat <axis = 0> (v, v) y = MatMul (x, a)", "float y"),
    "a part twice": weighted("c = Concat <axis = 1> (a, a) y = MatMul (x, c)", "float y"),
    "a part elsewhere": weighted(
        "c = Concat <axis = 1> (b, a) z = MatMul (x, b) y = MatMul (x, c)", "float y, float z"
    ),
    "a result": weighted("c = Concat <axis = 1> (b, a) y = MatMul (x, c)", "float y, float[2, 3] a"),
}


def test_weights_that_are_put_together_are_so_once(tmp_path: Path) -> None:
    model, _ = read(JOINED, tmp_path)
    assert list(model.params) == ["v", "c"]
    assert [op.type for op in model.net.ops] == ["MatMul"]
    check_values(JOINED, tmp_path, "cpu")
    check_gradients(JOINED, tmp_path)


def test_weights_that_are_read_elsewhere_stay(tmp_path: Path) -> None:
    def check(name: str) -> None:
        model, _ = read(APART[name], tmp_path)
        assert "w" in model.params
        assert model.params["w"].shape == (4, 3)
        check_values(APART[name], tmp_path, "cpu")

    check_each(APART, check)
