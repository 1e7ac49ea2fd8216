"""Parameters that start from arrays and functions: values, errors, text, pickles, cells, models."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import check_each
from rejection import rejects

import rnnops as ro
from rnnops.net.op import WHOLE

RATES = np.log(np.arange(1.0, 5.0))


@dataclass
class Ring:
    """A function that cannot be hashed: numbers in a ring, as LRU starts from."""

    inner: float
    outer: float

    def __call__(self, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        return rng.uniform(self.inner, self.outer, shape)


class NoArray:
    """As a tensor of PyTorch that autograd follows."""

    def __array__(self, *arguments: Any) -> Any:
        raise RuntimeError("detach it")


def started(init: object, shape: tuple[int, ...] = (4,), dtype: str = "float64", seed: int = 0) -> Any:
    net = ro.Net("n")
    net.parameter("w", shape, init)
    return ro.init_params(net, seed, dtype)["w"]


def test_arrays_are_broadcast_and_cast() -> None:
    def check(case: tuple[object, tuple[int, ...], Any]) -> None:
        init, shape, wanted = case
        for dtype in ("float32", "float64"):
            found = started(init, shape, dtype)
            assert (found.dtype, found.shape, found.flags.c_contiguous) == (dtype, shape, True)
            np.testing.assert_array_equal(found, np.broadcast_to(np.asarray(wanted, dtype), shape))

    cases: list[tuple[object, tuple[int, ...], Any]] = [
        (RATES, (4,), RATES),
        (RATES, (3, 4), RATES),
        (np.arange(4), (4,), np.arange(4)),
        ([[1, 2], [3, 4]], (2, 2), [[1, 2], [3, 4]]),
        (np.array(0.5), (2, 3), 0.5),
        (np.asfortranarray(np.arange(6.0).reshape(2, 3)), (2, 3), np.arange(6.0).reshape(2, 3)),
        (np.array([True, False]), (2,), [1.0, 0.0]),
        (np.array([-np.inf, 0.0]), (2,), [-np.inf, 0.0]),
        (np.zeros((0, 3)), (0, 3), np.zeros((0, 3))),
        (np.zeros, (2, 3), np.zeros((2, 3))),
        (lambda shape: np.full(shape, 2), (2, 3), 2.0),
    ]
    check_each(cases, check)


def test_an_array_is_copied() -> None:
    given, net = RATES.copy(), ro.Net("n")
    net.parameter("w", (4,), given)
    given[:] = 0.0
    found = ro.init_params(net, 0, "float64")["w"]
    found[:] = 1.0
    np.testing.assert_array_equal(ro.init_params(net, 0, "float64")["w"], RATES)


def test_a_function_draws_by_seed_and_name() -> None:
    net = ro.Net("n")
    for name in ("one", "other", "kind"):
        net.parameter(name, (4,), ("uniform", 0.5, 0.9) if name == "kind" else Ring(0.5, 0.9))
    found, again = ro.init_params(net, 3), ro.init_params(net, 3)
    assert all(np.array_equal(found[name], again[name]) for name in found)
    assert not np.array_equal(found["one"], found["other"])
    assert not np.array_equal(found["one"], ro.init_params(net, 4)["one"])
    renamed = ro.Net("m")
    renamed.parameter("kind", (4,), Ring(0.5, 0.9))
    np.testing.assert_array_equal(ro.init_params(renamed, 3)["kind"], found["kind"])


def test_arrays_that_do_not_fit() -> None:
    wrong: list[tuple[object, tuple[str, ...]]] = [
        (np.ones(3), ("another shape", "wanted [4]; got [3]", "broadcast it")),
        (np.ones((2, 4)), ("another shape", "got [2, 4]")),
        (np.array([1.0, np.nan, 2.0, np.nan]), ("wanted no NaN", "2 NaN of 4 values, the first at [1]")),
        (float("nan"), ("nan",)),
        (np.ones(4) * 1j, ("complex", "values.real and values.imag")),
        ([[1.0], [1.0, 2.0]], ("not an array",)),
        (np.array(["a"]), ("wanted an array of floats", "<U1")),
        (np.ma.ones(4), ("MaskedArray",)),
        (np.complex64(1 + 2j), ("unknown initializer", "got (1+2j)")),
        (10**400, ("unknown initializer",)),
        (("uniform", 0, 10**400), ("unknown initializer",)),
        (NoArray(), ("initial values are not an array: detach it",)),
    ]

    def check(case: tuple[object, tuple[str, ...]]) -> None:
        rejects(ro.NetError, lambda: started(case[0]), "net 'n', blob 'w'", *case[1])

    check_each(wrong, check)


def test_functions_that_do_not_fit() -> None:
    def three(a: Any, b: Any, c: Any) -> None: ...

    wrong: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
        (lambda shape: np.ones(3), ("another shape", "wanted [4]; got [3]", "np.broadcast_to(values, shape)")),
        (lambda shape: 1.0, ("another shape", "got []")),
        (lambda shape: np.ones((2, 2)), ("another shape", "got [2, 2]")),
        (lambda shape: None, ("not numbers", "NoneType")),
        (lambda shape: np.full(shape, np.nan), ("4 NaN of 4 values",)),
        (lambda: 1.0, ("fails with TypeError", "function(shape) or function(shape, rng)")),
        (three, ("fails with TypeError", "function(shape, rng)")),
        (lambda shape: 1 / 0, ("fails with ZeroDivisionError: division by zero",)),
    ]

    def check(case: tuple[Callable[..., Any], tuple[str, ...]]) -> None:
        rejects(ro.NetError, lambda: started(case[0]), "net 'n', blob 'w'", *case[1])

    check_each(wrong, check)


def test_numbers_that_are_too_large_for_the_dtype() -> None:
    for init in (np.full(4, 1e300), 1e300, lambda shape: np.full(shape, 1e300)):
        assert started(init)[0] == 1e300
        told = "net 'n', blob 'w'", "do not fit the dtype", "wanted float32; got 1e+300"
        rejects(ro.FeedError, lambda init=init: started(init, dtype="float32"), *told)


def test_text_holds_small_arrays_and_says_briefly_what_else_there_is() -> None:
    net = ro.Net("n")
    net.parameter("small", (2, 4), RATES)
    net.parameter("large", (2, WHOLE + 1), np.arange(WHOLE + 1.0))
    net.parameter("drawn", (4,), Ring(0.5, 0.9))
    net.outputs(y=net.input("x"))
    text = str(net)
    assert 'drawn: param[4] = (function, "Ring")' in text
    assert 'large: param[2, 65] = array(float64, [65], "' in text
    assert len(text) < 300
    again = ro.parse_net(text)
    assert str(again) == text
    assert again.parameters[0] == net.parameters[0]
    assert again.parameters[1] != net.parameters[1]
    for name, shown in (("large", "array(float64, [65]"), ("drawn", '(function, "Ring")')):
        alone = ro.Net("m")
        alone.add_input(next(spec for spec in again.parameters if spec.name == name))
        told = f"blob '{name}': the text of a net does not hold these initial values, {shown}", "Feed its array"
        rejects(ro.NetError, lambda alone=alone: ro.init_params(alone, 0), *told)
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.ones(2)}
    np.testing.assert_array_equal(ro.compile(again)(feeds)["y"], np.ones(2))


@pytest.mark.parametrize(
    "text",
    ["array(float32, [3], [1, 2])", "array(float64, [2], [NaN, 1.0])", "array(float64, [2], 3)", "(function, 1)"],
)
def test_text_that_is_no_initializer(text: str) -> None:
    rejects(ro.ParseError, lambda: ro.parse_net(f"net n(w: param[2] = {text})\n    return w"), "line 1")


def test_a_digest_is_of_initial_values_only() -> None:
    told = "line 2: this cannot be read"
    rejects(ro.ParseError, lambda: ro.parse_net('net n()\n    a = Constant(value=array(int64, [1], "0a"))'), told)


def test_equal_arrays_are_equal() -> None:
    def spec(init: object) -> Any:
        net = ro.Net("n")
        net.parameter("w", (4,), init)
        return net.parameters[0]

    ring = Ring(0.5, 0.9)
    assert spec(RATES) == spec(RATES.copy())
    assert hash(spec(RATES)) == hash(spec(RATES.copy()))
    assert spec(RATES) != spec(RATES.astype("float32"))
    assert spec(RATES) != spec(RATES + 1.0)
    assert spec(np.array([0.0])) != spec(np.array([-0.0]))
    assert spec(ring) == spec(ring)
    assert spec(ring) != spec(lambda shape: 1.0)
    assert spec(RATES) != spec("zeros")


def test_runs_and_nets_are_pickled_and_copied() -> None:
    net = ro.Net("n")
    large = np.arange(2.0 * WHOLE)
    net.outputs(y=net.parameter("w", (2 * WHOLE,), large) + net.parameter("v", (1,), Ring(0.5, 0.9)))
    run = ro.compile(net)
    for again in (pickle.loads(pickle.dumps(run)).net, pickle.loads(pickle.dumps(net))):
        assert str(again) == str(net)
        assert again.parameters[0] == net.parameters[0]
        rejects(ro.NetError, lambda again=again: ro.init_params(again, 0), "blob 'v'", '(function, "Ring")')
    for again in (copy.deepcopy(run).net, copy.deepcopy(net)):
        found, wanted = ro.init_params(again, 0), ro.init_params(net, 0)
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


class Decaying(ro.cells.RNNCell):
    """`h = exp(log_a) * h + x`; a cell that starts as LRU and Mamba do."""

    default_name = "decaying"

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/h_t"]

    def get_state_dims(self) -> list[int]:
        return [4]

    def get_output_dim(self) -> int:
        return 4

    def step(self, step: Any, x_t: Any, states: Any, extra: Any = ()) -> Any:
        log_a = step.parameter(f"{self.name}/log_a", (4,), -RATES)
        gain = step.parameter(f"{self.name}/gain", (4,), Ring(0.5, 0.9))
        new = ro.exp(log_a) * states[0] + gain * x_t
        return new, [new]


def test_cells_and_stacks_start_from_arrays_and_functions() -> None:
    net = ro.Net("n", sizes_for="float64")
    stack = ro.cells.MultiRNNCell([Decaying(name="one"), Decaying(name="other")])
    y, _ = stack.apply_over_sequence(net, net.input("x", shape=(5, 2, 4)))
    net.outputs(y=y)
    params, x = ro.init_params(net, 0, "float64"), np.random.default_rng(0).normal(size=(5, 2, 4))
    np.testing.assert_array_equal(params["one/log_a"], -RATES)
    np.testing.assert_array_equal(params["other/log_a"], -RATES)
    assert not np.array_equal(params["one/gain"], params["other/gain"])
    ro.testing.check_devices(net, {**params, "x": x}, ["cpu"])
    h = np.zeros((2, 2, 4))
    for x_t in x:
        h[0] = np.exp(-RATES) * h[0] + params["one/gain"] * x_t
        h[1] = np.exp(-RATES) * h[1] + params["other/gain"] * h[0]
    np.testing.assert_allclose(ro.compile(net)(params, x=x)["y"][-1], h[1], rtol=1e-12)


class Scaled(ro.model.Layer):
    def __init__(self, init: object) -> None:
        self.init = init

    def forward(self, x: Any) -> Any:
        return x * self.parameter(x.net, "scale", (4,), self.init)


class Small(ro.model.Model):
    def __init__(self) -> None:
        self.layers = [Scaled(RATES), Scaled(Ring(0.5, 0.9)), Scaled(lambda shape: np.full(shape, 2.0))]

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def test_models_save_what_was_drawn(tmp_path: Path) -> None:
    models = []
    for seed in (0, 1):
        model = Small()
        model.compile([np.ones((2, 4), "float32")], is_train=False, seed=seed)
        models.append(model)
    one, other = models
    np.testing.assert_array_equal(one.get_params()["layers.0.scale"], RATES.astype("float32"))
    assert not np.array_equal(one.get_params()["layers.1.scale"], other.get_params()["layers.1.scale"])
    one.save(tmp_path / "saved")
    other.load(tmp_path / "saved")
    for name, array in one.get_params().items():
        np.testing.assert_array_equal(other.get_params()[name], array)


EYES = np.tile(np.eye(4), (4, 1))  # of an LSTM's four gates


def built(make: Callable[[Any], Any]) -> Any:
    """The net of what is made of x, [5, 2, 3]."""
    net = ro.Net("n", sizes_for="float64")
    net.outputs(y=make(net.input("x", shape=(5, 2, 3))))
    return net


def starting() -> list[tuple[Callable[[Any, Any], Any], str, tuple[int, ...]]]:
    """Every kind of thing that takes init=, as a function of x and init; the name of a parameter; its shape."""
    cell = ro.cells.LSTMCell

    def encoded(x: Any, init: Any) -> Any:
        return ro.model.Attention("gru", 4, init=init)(x, x)[0]

    return [
        (lambda x, init: ro.LSTM(x.net, x, None, None, 3, 4, scope="a", init=init)[0], "gates_t_w", (16, 4)),
        (lambda x, init: ro.GRU(x.net, x, None, None, 3, [4, 2], scope="a", init=init)[0], "layer_1/i2h_b", (6,)),
        (lambda x, init: ro.GRU(x.net, x, None, None, 3, [4, 2], scope="a", init=init)[0], "i2h_w", (12, 3)),
        (lambda x, init: cell(3, 4, init=init).apply_over_sequence(x.net, x)[0], "initial_cell_state", (4,)),
        (lambda x, init: ro.cells.RGLRUCell(3, 4, init=init).apply_over_sequence(x.net, x)[0], "recurrent_w", (4,)),
        (
            lambda x, init: ro.cells.UnrolledCell(cell(3, 4, init=init), 5).apply_over_sequence(x.net, x)[0],
            "i2h_b",
            (16,),
        ),
        (lambda x, init: ro.model.Dense(4, init=init)(x), "w", (4, 3)),
        (lambda x, init: ro.model.LayerNorm(init=init)(x), "scale", (3,)),
        (lambda x, init: ro.model.Embedding(7, 4, init=init)(ro.cast(x, "int32")), "table", (7, 4)),
        (lambda x, init: ro.model.RNN("lstm", 4, layers=2, init=init)(x)[0], "layer_1/gates_t_w", (16, 4)),
        (
            lambda x, init: ro.model.RNN("lstm", 4, bidirectional=True, init=init)(x)[0],
            "layer_0_reverse/i2h_b",
            (16,),
        ),
        (encoded, "decoder/i2h_b", (12,)),
    ]


def test_presets_cells_and_layers_start_from_what_is_given() -> None:
    def check(case: tuple[Callable[[Any, Any], Any], str, tuple[int, ...]]) -> None:
        make, name, shape = case
        array = np.arange(float(np.prod(shape))).reshape(shape)
        default = ro.init_params(built(lambda x: make(x, None)), 0, "float64")
        for pattern, given in (
            (name, array),
            (name.replace("/", "."), lambda shape: array),
            (f"{name[:2]}*{name[2:]}", array),
        ):
            found = ro.init_params(built(lambda x, p=pattern, g=given: make(x, {p: g})), 0, "float64")
            assert found.keys() == default.keys()
            changed = [key for key in found if not np.array_equal(found[key], default[key])]
            assert [key.endswith(f"/{name}") for key in changed] == [True]
            np.testing.assert_array_equal(found[changed[0]], array)
        told = "net 'n'", f"/{name}'", f"wanted {list(shape)}; got [9, 9, 9]"
        rejects(ro.NetError, lambda: built(lambda x: make(x, {name: np.ones((9, 9, 9))})), *told)
        told = "net 'n', blob 'gates'", "init= names no parameter of '", name
        rejects(ro.NetError, lambda: built(lambda x: make(x, {"gates": "zeros"})), *told)
        told = "net 'n'", "initial values of parameters have no names", "wanted a dict", "got 'zeros'"
        rejects(ro.NetError, lambda: built(lambda x: make(x, "zeros")), *told)

    check_each(starting(), check)


def test_the_last_pattern_that_fits_counts() -> None:
    init = {"*": "ones", "layer_?.gates_t_w": lambda shape: EYES, "layer_0/i2h_b": 3.0}
    values = ro.init_params(built(lambda x: ro.model.RNN("lstm", 4, 2, init=init)(x)[0]), 0, "float64")
    for name, array in values.items():
        wanted = EYES if name.endswith("gates_t_w") else 3.0 if name == "rnn/layer_0/i2h_b" else 1.0
        np.testing.assert_array_equal(array, np.broadcast_to(wanted, array.shape))


def test_cells_of_one_name_start_from_one_init() -> None:
    def check(make: Callable[[Any, Any], Any]) -> None:
        def pair(one: Any, other: Any) -> Any:
            return built(lambda x: (make(x, one), make(x, other))[0])

        zeros, ones = {"i2h_b": "zeros"}, {"i2h_b": np.ones(16)}
        rejects(ro.NetError, lambda: pair(zeros, ones), "blob 'a'", "different init=; got a/i2h_b. Give init= to one")
        for other in (None, {"*_b": np.ones(16)}, {"gates_t_w": EYES}):
            np.testing.assert_array_equal(ro.init_params(pair(ones, other), 0, "float64")["a/i2h_b"], np.ones(16))

    def stepped(x: Any, init: Any) -> Any:
        cell = ro.cells.LSTMCell(3, 4, name="a", init=init)
        return cell.apply_over_sequence(x.net, cell.apply_over_sequence(x.net, x)[0][..., :3])[0]

    check_each([stepped, lambda x, init: ro.LSTM(x.net, x, None, None, 3, 4, scope="a", init=init)[0]], check)


class Started(ro.model.Model):
    def __init__(self, init: dict[str, object]) -> None:
        self.rnn = ro.model.RNN("lstm", 4, init=init)
        self.dense = ro.model.Dense(1, init={"b": [0.5]})

    def forward(self, x: Any) -> Any:
        return self.dense(self.rnn(x)[0])

    def train_one_batch(self, x: Any) -> Any:
        return self.minimize(ro.reduce_mean(self.forward(x), keepdims=0))


def test_models_start_train_save_and_load_what_layers_are_given(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 2, 3))
    one, other = Started({"layer_0/gates_t_w": EYES}), Started({})
    for model in (one, other):
        model.set_optimizer(ro.model.SGD(0.1))
        model.compile([x], dtype="float64", seed=0)
    first = one.get_params()
    np.testing.assert_array_equal(first["rnn.layer_0.gates_t_w"], EYES)
    np.testing.assert_array_equal(first["dense.b"], [0.5])
    np.testing.assert_array_equal(first["dense.w"], other.get_params()["dense.w"])
    assert not np.array_equal(other.get_params()["rnn.layer_0.gates_t_w"], EYES)
    one(x)
    one.save(tmp_path / "saved")
    other.load(tmp_path / "saved")
    assert not np.array_equal(one.get_params()["rnn.layer_0.gates_t_w"], EYES)
    for name, array in one.get_params().items():
        np.testing.assert_array_equal(other.get_params()[name], array)
