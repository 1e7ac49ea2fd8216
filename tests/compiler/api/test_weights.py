"""`weights=` of `run.bind`: what it is called on, what is refused, and what plans say."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from rnnops.errors import DeviceError, FeedError, GradientError
from rnnops.kernels.cpu.processor import lanes, vector_width

W, V = (np.random.default_rng(seed).standard_normal((40, 50)).astype("f") for seed in (0, 1))
X = np.ones((2, 40), "f")


def model(name: str = "w") -> ro.Net:
    net = ro.Net("model")
    x, w, b = net.inputs("x", name, "b")
    net.outputs(y=ro.tanh(x @ w + b))
    return net


def test_an_input_may_be_called_weights() -> None:
    run = ro.compile(model("weights"), "reference")
    b = np.zeros(50, "f")
    plain = run.bind(weights=W, b=b)(x=X)["y"]
    np.testing.assert_array_equal(plain, np.tanh(X @ W))
    narrow = run.bind(weights=W, b=b).bind(weights="int8")
    assert 0 < np.abs(narrow(x=X)["y"] - plain).max() < 0.1


def test_what_is_bound_later_is_kept_so_too() -> None:
    b = np.zeros(50, "f")
    first = ro.compile(model()).bind(w=W, weights="int8")
    wanted = ro.compile(model()).bind(w=V, b=b, weights="int8")(x=X)["y"]
    assert first.bind(w=V, b=b)(x=X)["y"].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_what_is_refused(device: str) -> None:
    run = ro.compile(model(), device)
    with pytest.raises(FeedError, match="no such format of weights; wanted 'int8', or None; got 'int4'"):
        run.bind(w=W, weights="int4")
    with pytest.raises(FeedError, match="no bound input is a weight of a product"):
        run.bind(b=W[0], weights="int8")
    with pytest.raises(FeedError, match=r"net 'model', op 'MatMul -> mat_mul_0', blob 'w': .* Not finite: w"):
        run.bind(w=np.full_like(W, np.nan), weights="int8")
    with pytest.raises(FeedError, match="wanted float32; got float64"):
        run.bind(w=W.astype("d"), weights="int8")
    with pytest.raises(FeedError, match="bind names no input"):
        run.bind(u=W, weights="int8")
    with pytest.raises(DeviceError, match="weights of int8 do not go with another precision"):
        ro.compile(model(), device, precision="bfloat16").bind(w=W, weights="int8")
    with pytest.raises(DeviceError, match=r"weights= is only for the CUDA.*run\.bind\(\*\*params, weights='int8'\)"):
        ro.compile(model(), device, weights="int8")


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_there_are_no_gradients(device: str) -> None:
    run = ro.compile(model(), device).bind(w=W, b=W[0], weights="int8")
    for work in (run.vjp, run.plan, run.saved_residuals, run.memory_estimates, run.profile):
        with pytest.raises(GradientError, match="weights that are kept as int8 have no gradient"):
            work(x=X)


def test_the_reference_is_not_exported() -> None:
    with pytest.raises(DeviceError, match="only the CPU device is exported"):
        ro.compile(model(), "reference").bind(w=W, b=W[0], weights="int8").export_native("nowhere", x=X)


def test_errors_name_feeds_of_the_net_as_it_is() -> None:
    run = ro.compile(model()).bind(w=W, weights="int8")
    with pytest.raises(FeedError, match="'b'"):
        run(x=X)
    with pytest.raises(FeedError, match="no such input; wanted one of x, w, b"):
        run(x=X, b=W[0], z=X)


def test_plans_say_how_weights_are_kept() -> None:
    run = ro.compile(model()).bind(w=W, b=W[0], weights="int8")
    text = str(run.plan(x=X, backward=False))
    assert "weights: whole numbers of a byte (int8), a scale for each column" in text
    assert "[2, 40] @ [40, 50] of int8" in text
    rows, columns = W.shape
    count = lanes(vector_width(), "float32")  # columns are packed in whole vectors
    assert f"packed once, as it is bound: w/int8 {rows * -(-columns // count) * count / 1024:.4g} KiB" in text
    assert "int8" not in str(ro.compile(model()).bind(w=W, b=W[0]).plan(x=X, backward=False))
    profiled = run.profile(x=X, backward=False, rounds=1)
    assert profiled is not None
