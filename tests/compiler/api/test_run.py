"""Runs and pullbacks: which gradients there are, step blobs, bound parameters, threads, shapes that change."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from by_hand import random_arrays, sigmoid
from devices import on_device
from small_runs import D, H, N, T, lstm_feeds, lstm_net, product_net, same

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")


def test_unused_integer_and_unwanted_inputs() -> None:
    net = ro.Net("mixed")
    x, _ = net.inputs("x", "unused")
    n = net.input("n", "int32")
    net.outputs(y=x * ro.cast(n, "float"), count=n + 1)
    feeds = {**random_arrays(x=(3,), unused=(2, 2)), "n": np.array([1, 2, 3], "int32")}
    run = on_device(net)
    grads = run.vjp(feeds)[1](np.ones(3))
    assert list(grads) == ["x", "unused"]
    assert grads["x"].tolist() == [1, 2, 3]
    assert grads["unused"].shape == (2, 2)
    assert not grads["unused"].any()
    for wrt, names in ((["x"], ["x"]), ("unused", ["unused"]), (("unused", "x"), ["x", "unused"]), ([], [])):
        assert list(run.vjp(feeds, wrt=wrt)[1]({"y": np.ones(3)})) == names
    assert all(not grad.any() for grad in run.vjp(feeds)[1]({}).values())


def test_wrt_of_a_part_of_a_recurrence() -> None:
    run, feeds = on_device(lstm_net()), lstm_feeds()
    every = run.vjp(feeds)[1]({"h_all": np.ones((T, N, H))})
    for name in every:
        grads = run.vjp(feeds, wrt=[name])[1]({"h_all": np.ones((T, N, H))})
        same(grads, {name: every[name]})


def test_outputs_and_gradients_without_axes() -> None:
    net = ro.Net("scalars")
    a, x = net.inputs("a", "x")
    net.outputs(loss=ro.reduce_sum(x * a, keepdims=0), twice=a * 2.0)
    out, pullback = on_device(net).vjp(a=np.array(3.0), x=np.array([1.0, 2.0]))
    assert out["loss"].shape == out["twice"].shape == ()
    assert out["loss"] == 9
    grads = pullback({"loss": np.float64(2.0), "twice": np.array(1.0)})
    assert grads["a"].shape == ()
    assert grads["a"] == 8
    assert grads["x"].tolist() == [6, 6]
    alone = ro.Net("alone")
    alone.outputs(alone.input("x") * 2.0)
    assert on_device(alone).vjp(x=np.array(1.0))[1](np.float64(1))["x"] == 2


def test_step_blobs() -> None:
    net = ro.Net("two")
    x = net.input("x")
    lower = ro.LSTM(net, x, None, None, D, H, scope="lower")[0]
    net.outputs(y=ro.LSTM(net, lower, None, None, H, H, scope="upper")[0], lower=lower)
    feeds = {**ro.init_params(net, 0, "float64"), "x": random_arrays(x=(T, N, D))["x"]}
    out, pullback = on_device(net).vjp(feeds)
    hidden = pullback.step_blobs("lower/hidden_t")
    assert np.array_equal(hidden, out["lower"])
    assert not np.shares_memory(hidden, out["lower"])
    previous = np.concatenate([np.zeros((1, N, H)), out["y"][:-1]])
    gates = out["lower"] @ feeds["upper/i2h_w"].T + previous @ feeds["upper/gates_t_w"].T
    forget = pullback.step_blobs("upper/hidden_t_all:sigmoid_0")
    np.testing.assert_allclose(forget, sigmoid(gates)[..., H : 2 * H], rtol=1e-12)
    with pytest.raises(ro.GradientError, match="not kept") as caught:
        pullback.step_blobs("lower/input")
    assert "lower/hidden_t_all:sigmoid_0" in str(caught.value.wanted)


def test_step_blobs_of_two_recurrences_over_one_cell() -> None:
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh(x + h))
    net = ro.Net("two")
    xs, h0 = net.inputs("xs", "h0")
    blobs = [
        ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, scope=s, reverse=s == "b")[0] for s in "ab"
    ]
    net.outputs(a=blobs[0], b=blobs[1])
    out, pullback = on_device(net).vjp(random_arrays(xs=(T, N, D), h0=(D,)))
    name = cell.output_blobs["h_t"]
    with pytest.raises(ro.GradientError, match="several"):
        pullback.step_blobs(name)
    for scope in "ab":
        assert np.array_equal(pullback.step_blobs(f"{scope}/h_t_all:{name}"), out[scope])


def test_bind_copies() -> None:
    run, feeds = on_device(product_net()), random_arrays(x=(3, 2), w=(2, 4))
    wanted = run(feeds)
    w = feeds["w"].copy()
    bound = run.bind(w=w)
    w[...] = 0
    same(bound(x=feeds["x"]), wanted)
    same(bound.bind(w=feeds["w"] * 0)(x=feeds["x"]), {"y": np.zeros((3, 4))})
    out, pullback = bound.vjp(x=feeds["x"])
    assert set(pullback(np.ones_like(out["y"]))) == {"x", "w"}
    same(run(feeds), wanted)


def test_shapes_may_change_from_call_to_call_and_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rnnops.compiler.api.run.PLANS", 8)
    run = on_device(lstm_net())
    first = run.vjp(lstm_feeds())[1]({"h_all": np.ones((T, N, H))})
    for steps, rows in product(range(4), range(1, 4)):
        feeds = lstm_feeds(steps=steps, rows=rows)
        out, pullback = run.vjp(feeds)
        assert out["h_all"].shape == run(feeds)["h_all"].shape == (steps, rows, H)
        pullback({"h_all": np.ones_like(out["h_all"])})
    assert len(run._training) <= 8
    assert len(run._forward) <= 8
    same(run.vjp(lstm_feeds())[1]({"h_all": np.ones((T, N, H))}), first)


def test_float32_and_float64_in_one_run() -> None:
    run = on_device(product_net())
    for dtype in ("float32", "float64", "float32"):
        x, w = np.ones((1, 2), dtype), np.ones((2, 1), dtype)
        assert run(x=x, w=w)["y"].dtype == dtype
        assert run.vjp(x=x, w=w)[1](np.ones((1, 1), dtype))["w"].dtype == dtype


def test_threads_may_share_a_run() -> None:
    run = on_device(lstm_net())
    fed = [{**lstm_feeds(steps=1 + k % 4), "x": random_arrays(k, x=(1 + k % 4, N, D))["x"]} for k in range(8)]
    barrier = threading.Barrier(4)

    def work(k: int) -> dict[str, np.ndarray]:
        if k < 4:
            barrier.wait()
        out, pullback = run.vjp(fed[k % 8])
        return {**out, **pullback({"h_last": np.ones((1, N, H))}), **run(fed[k % 8])}

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(16)))
    fresh = on_device(lstm_net())
    for k, came in enumerate(results):
        out, pullback = fresh.vjp(fed[k % 8])
        same(came, {**out, **pullback({"h_last": np.ones((1, N, H))})})


def test_one_of_two_threads_gets_the_pullback() -> None:
    _, pullback = on_device(product_net()).vjp(random_arrays(x=(3, 2), w=(2, 4)))

    def use(_: int) -> str:
        try:
            return str(len(pullback(np.ones((3, 4)))))
        except ro.GradientError as error:
            return error.problem

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(use, range(4)))
    assert sorted(results)[0] == "2"
    assert results.count("this pullback was used already") == 3


def test_a_number_is_the_gradient_of_an_output_without_axes() -> None:
    net = ro.Net("loss")
    x = net.input("x")
    net.outputs(loss=ro.reduce_sum(x * x, keepdims=0), y=x + 1.0)
    feeds = {name: array.astype("float32") for name, array in random_arrays(x=(3,)).items()}
    run = on_device(net)
    for grad in (2, 2.0, np.float32(2.0), np.array(2.0, "float32")):
        grads = run.vjp(feeds)[1]({"loss": grad})
        assert grads["x"].dtype == np.float32
        np.testing.assert_allclose(grads["x"], 4 * feeds["x"], rtol=1e-6)
    for output, wrong in (("loss", True), ("loss", np.float64(2.0)), ("loss", [2.0]), ("y", 2.0)):
        with pytest.raises(ro.GradientError, match=output):
            run.vjp(feeds)[1]({output: wrong})
