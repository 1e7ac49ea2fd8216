"""`run.jvp` and `run.hvp` beside central differences of `run` and `run.vjp`, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import DEVICES
from random_feeds import random_feeds
from test_gradient_net import NETS, SEED

import rnnops as ro
from bench.preset_engine import PREFIX, feeds_of, net_of
from bench.problems import Problem, Size
from rnnops.testing import CheckError, check_forward_mode
from rnnops.testing.gradient_check import rotation

Array = np.ndarray
Arrays = dict[str, Array]
SMALL = 1e-6


def directions(feeds: Arrays) -> Arrays:
    return {n: rotation(a.shape, 3 * i) for i, (n, a) in enumerate(feeds.items()) if a.dtype.kind == "f"}


def moved_by(feeds: Arrays, vectors: Arrays, step: float) -> Arrays:
    return {name: array + step * vectors[name] if name in vectors else array for name, array in feeds.items()}


def assert_right(run: ro.Run, feeds: Arrays, vectors: Arrays, fed: Arrays | None = None, **options: Any) -> None:
    """Compare `jvp` and `hvp` with central differences.

    Args:
        fed: what calls take, if some inputs are bound.
    """
    fed = feeds if fed is None else fed
    plain = ro.compile(run.net, device="reference")
    outputs, moved = run.jvp(fed, vectors, **options)
    weights = {name: rotation(array.shape, i) for i, (name, array) in enumerate(moved.items())}
    found, grads, products = run.hvp(fed, vectors, weights, **options)

    def both(step: float) -> tuple[Arrays, Arrays]:
        results, pullback = plain.vjp(moved_by(feeds, vectors, step), wrt=[*vectors], **options)
        return {name: array.copy() for name, array in results.items()}, pullback(weights)

    (values, slopes), ahead, behind = (both(step) for step in (0.0, SMALL, -SMALL))
    assert list(outputs) == list(found) == list(values)
    assert set(grads) == set(products) == set(vectors)
    for name, array in values.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(found[name], array, rtol=1e-11, atol=1e-11)
    for name, array in slopes.items():
        np.testing.assert_allclose(grads[name], array, rtol=1e-10, atol=1e-11)
    for came, place in ((moved, 0), (products, 1)):
        for name, array in came.items():
            slope = (ahead[place][name] - behind[place][name]) / (2 * SMALL)
            np.testing.assert_allclose(array, slope, rtol=1e-6, atol=3e-8, err_msg=name)


def case(name: str) -> tuple[ro.Net, Arrays]:
    net, given = NETS[name]()
    return net, random_feeds(net, **given)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["LSTM", "LayerNormLSTM", "coupled", "dropped", "window of 2 of 3"])
def test_beside_differences(name: str, device: str) -> None:
    net, feeds = case(name)
    run = DEVICES[device](net)
    assert_right(run, feeds, directions(feeds), seed=SEED)
    some = dict([*directions(feeds).items()][:1])
    assert_right(run, feeds, some, seed=SEED)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["GRU", "dropped", "nested"])
def test_jvp_is_the_transpose_of_vjp(name: str, device: str, dtype: str) -> None:
    net, feeds = case(name)
    fed = {n: array.astype(dtype) if array.dtype.kind == "f" else array for n, array in feeds.items()}
    check_forward_mode(net, fed, DEVICES[device], seed=SEED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ro.cells.CELLS)
def test_every_preset_at_full_size(name: str) -> None:
    """Steps, rows and units as of a model that is trained, in float32: no difference quotient could tell so much."""
    problem = Problem(f"{PREFIX}{name}", Size(100, 32, 256))
    assert check_forward_mode(net_of(problem), feeds_of(problem)[0]) < 1e-8


def test_a_budget_and_checkpoints_change_nothing() -> None:
    net, feeds = case("LSTM")
    vectors = directions(feeds)
    for options in ({"memory_budget": 0.5}, {"checkpoints": "memory"}, {"check_numerics": True}):
        assert_right(ro.compile(net, **options), feeds, vectors)


def test_bound_inputs_move_too() -> None:
    net, feeds = case("coupled")
    bound = {name: feeds[name] for name in ("w_x", "w_h", "b")}
    free = {name: array for name, array in feeds.items() if name not in bound}
    for device in ("reference", "cpu"):
        assert_right(ro.compile(net, device=device).bind(**bound), feeds, directions(feeds), free)
    small = {name: array.astype("float32") for name, array in feeds.items()}
    run = ro.compile(net).bind(weights="int8", **{name: small[name] for name in bound})
    with pytest.raises(ro.GradientError, match="have no gradient"):
        run.jvp({name: small[name] for name in free}, {"xs": small["xs"]})


def test_a_second_call_makes_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    net, feeds = case("coupled")
    run, vectors = ro.compile(net), directions(feeds)
    weights = {"y": np.ones((4, 2, 4)), "c": np.ones((2, 4))}
    first = run.jvp(feeds, vectors)[1], run.hvp(feeds, vectors, weights)[2]
    monkeypatch.setattr("rnnops.compiler.api.derivative_nets.tangent_of", None)
    monkeypatch.setattr("rnnops.compiler.run.pipeline.forward_structure", None)
    again = run.jvp(feeds, dict([*vectors.items()][::-1]))[1], run.hvp(feeds, vectors, weights)[2]
    for one, other in zip(first, again, strict=True):
        for name, array in one.items():
            np.testing.assert_array_equal(other[name], array)


def test_the_numbers_of_dropout_need_a_seed_and_training() -> None:
    net, feeds = case("dropped")
    run = ro.compile(net)
    with pytest.raises(ro.FeedError, match="seed"):
        run.jvp(feeds, {})
    one, other = (run.jvp(feeds, directions(feeds), seed=seed)[1]["y"] for seed in (1, 2))
    assert (one != other).any()


def test_what_does_not_move_and_inputs_of_any_name() -> None:
    net = ro.Net("names")
    wrt, shapes = net.inputs("wrt", "net")
    k = net.input("d_k", "int32")
    net.outputs(outputs=wrt * shapes, t_k=k)
    feeds: dict[str, Any] = {"wrt": np.ones(2), "net": np.full(2, 3.0), "d_k": np.ones(2, "int32")}
    run = ro.compile(net)
    assert {n: a.tolist() for n, a in run.jvp(feeds, {})[1].items()} == {"outputs": [0.0, 0.0]}
    assert run.jvp(feeds, {"wrt": np.ones(2)})[1]["outputs"].tolist() == [3.0, 3.0]
    outputs, grads, products = run.hvp(feeds, {"wrt": np.ones(2)}, np.full(2, 2.0), wrt=["net"])
    assert list(outputs) == ["outputs", "t_k"]
    assert grads["net"].tolist() == products["net"].tolist() == [2.0, 2.0]
    assert run.hvp(feeds, {"wrt": np.ones(2)}, {})[1]["wrt"].tolist() == [0.0, 0.0]


def test_errors_name_the_input() -> None:
    net, feeds = case("coupled")
    run = ro.compile(net)
    with pytest.raises(ro.FeedError, match="tangents names no float input") as caught:
        run.jvp(feeds, {"x": feeds["xs"]})
    assert (caught.value.net, caught.value.blob) == ("coupled", "x")
    with pytest.raises(ro.FeedError, match="a tangent of a wrong type") as caught:
        run.jvp(feeds, {"xs": feeds["xs"][:2]})
    assert (caught.value.blob, caught.value.came) == ("xs", "float64[2, 2, 3]")
    with pytest.raises(ro.FeedError, match="a tangent of a wrong type"):
        run.jvp(feeds, {"xs": feeds["xs"].astype("float32")})
    with pytest.raises(ro.FeedError, match="vectors are not a dict"):
        run.hvp(feeds, feeds["xs"])
    with pytest.raises(ro.FeedError, match="an input is not fed"):
        run.jvp({}, {})
    with pytest.raises(ro.GradientError, match="several float outputs"):
        run.hvp(feeds, {"xs": feeds["xs"]})
    with pytest.raises(ro.GradientError, match="outputs names no float output"):
        run.hvp(feeds, {"xs": feeds["xs"]}, {"z": 1.0})
    with pytest.raises(ro.GradientError, match="the gradient of an array must be an array"):
        run.hvp(feeds, {"xs": feeds["xs"]}, {"y": 1.0})
    with pytest.raises(ro.GradientError, match=r"a gradient is not an array; .* Leave it out"):
        run.hvp(feeds, {"xs": feeds["xs"]}, {"y": None})
    with pytest.raises(ro.FeedError, match=r"a tangent is not an array; .* Leave it out"):
        run.jvp(feeds, {"xs": None})
    with pytest.raises(ro.FeedError, match="wrt names no float input"):
        run.hvp(feeds, {}, {}, wrt="z")
    whole = ro.Net("whole")
    whole.outputs(k=whole.input("k", "int32"))
    with pytest.raises(ro.GradientError, match="there are no float outputs; wanted an empty dict"):
        ro.compile(whole).hvp({"k": np.ones(2, "int32")}, {})


def test_a_wrong_tangent_is_found() -> None:
    """The checker sees a derivative that is off by 0.1 %."""
    net, feeds = case("coupled")

    class Wrong:
        def __init__(self, net: ro.Net) -> None:
            self.run = ro.compile(net)
            self.vjp = self.run.vjp

        def jvp(self, *arguments: Any, **options: Any) -> tuple[Arrays, Arrays]:
            outputs, moved = self.run.jvp(*arguments, **options)
            return outputs, {name: 1.001 * array for name, array in moved.items()}

    assert check_forward_mode(net, feeds) < 1e-13
    with pytest.raises(CheckError, match="disagree"):
        check_forward_mode(net, feeds, Wrong)
