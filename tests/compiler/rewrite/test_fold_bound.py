"""What follows from bound inputs alone leaves a net, and all else stays."""

from __future__ import annotations

import numpy as np

import rnnops as ro
from rnnops.compiler.rewrite.bound_weights import split_bound
from rnnops.interpreter import prune


def model() -> ro.Net:
    net = ro.Net("model")
    x, w, b = net.inputs("x", "w", "b")
    v = ro.transpose(w, perm=[1, 0]).named("v")
    net.outputs(y=x @ v + ro.exp(b), w_out=ro.tanh(w), x_out=ro.exp(x))
    return net


def test_ops_on_bound_inputs_leave() -> None:
    split = split_bound(model(), {"w", "b"})
    assert split is not None
    assert [op.type for op in split.once.ops] == ["Transpose", "Exp"]
    w, b = np.ones((4, 3), "f"), np.zeros(4, "f")
    arrays = {"w": w, "b": b, **{name: w.T if name == "v" else np.exp(b) for name in split.once.output_blobs}}
    net, bound = split.with_bound(arrays)
    assert [op.type for op in net.ops] == ["MatMul", "Add", "Tanh", "Exp"]  # an output is made in every call
    assert set(net.input_names) == {"x", *bound}
    assert "b" not in bound
    assert "w" in bound


def test_a_turned_weight_is_turned_once() -> None:
    net = ro.Net("dense")
    x, w, b = net.inputs("x", "w", "b")
    net.outputs(y=ro.tanh(ro.gemm(x, w, b, transB=1)), z=ro.exp(x))
    split = split_bound(net, {"w", "b"})
    assert split is not None
    assert [op.type for op in split.once.ops] == ["Transpose"]
    random = np.random.default_rng(0)
    params = {"w": random.normal(size=(5, 3)).astype("f"), "b": random.normal(size=5).astype("f")}
    run = ro.compile(net).bind(**params)
    for x_value in (random.normal(size=(5, 3)).astype("f") for _ in range(4)):
        wanted = ro.compile(net, device="reference")({**params, "x": x_value})
        for name, array in run(x=x_value).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-6)
    assert "Transpose" not in str(run.plan(x=(5, 3), backward=False)).split("fused")[0]


def test_nothing_to_do() -> None:
    net = ro.Net("plain")
    x, w = net.inputs("x", "w")
    net.outputs(x @ w)
    assert split_bound(net, {"w"}) is None
    assert split_bound(model(), set()) is None


def test_random_ops_and_recurrences_stay() -> None:
    net = ro.Net("dropped")
    x, w = net.inputs("x", "w")
    net.outputs(x @ ro.dropout(w, 0.5))
    assert split_bound(net, {"w"}) is None


def test_what_is_drawn_stays_the_same() -> None:
    net = ro.Net("dropped")
    x, w = net.inputs("x", "w")
    net.outputs(a=ro.dropout(x @ ro.transpose(w, perm=[1, 0]), 0.5), b=ro.dropout(x, 0.5))
    split = split_bound(net, {"w"})
    assert split is not None
    assert [op.type for op in split.rest] == ["MatMul", "Dropout", "Dropout"]
    random = np.random.default_rng(0)
    x_value, weights = random.normal(size=(4, 3)), random.normal(size=(5, 3))
    run = ro.compile(net)
    wanted = run(x=x_value, w=weights, seed=3, training=True)
    for name, array in run.bind(w=weights)(x=x_value, seed=3, training=True).items():
        np.testing.assert_array_equal(array == 0, wanted[name] == 0)
        np.testing.assert_allclose(array, wanted[name], rtol=1e-12)


def test_what_is_drawn_does_not_hang_on_ops_that_nobody_reads() -> None:
    net = ro.Net("dropped")
    x, w = net.inputs("x", "w")
    ro.dropout(x, 0.5)
    net.outputs(y=ro.dropout(x @ ro.transpose(w, perm=[1, 0]), 0.5))
    random = np.random.default_rng(0)
    x_value, weights = random.normal(size=(4, 3)), random.normal(size=(5, 3))
    run = ro.compile(net)
    wanted = run(x=x_value, w=weights, seed=3, training=True)["y"]
    np.testing.assert_allclose(run.bind(w=weights)(x=x_value, seed=3, training=True)["y"], wanted, rtol=1e-12)


def test_large_constants_become_inputs() -> None:
    net = ro.Net("large")
    x = net.input("x")
    table = net.constant(np.arange(2048.0).reshape(32, 64))
    net.outputs(y=x @ ro.exp(table), z=x * ro.tanh(net.constant(np.arange(32.0))))
    split = split_bound(net, set())
    assert split is not None
    sizes = {name: 64 * 32 if "exp" in name else 32 for name in split.once.output_blobs}
    _, bound = split.with_bound({name: np.zeros(size, "float32") for name, size in sizes.items()})
    assert [array.size for array in bound.values()] == [2048]


def test_whole_numbers_become_constants() -> None:
    net = ro.Net("sizes")
    x, w = net.inputs("x", "w")
    indices = net.input("indices", "int32")
    net.outputs(ro.gather(x, indices + 1, axis=0) * ro.exp(w))
    split = split_bound(net, {"w", "indices"})
    assert split is not None
    once = {name: np.array([1, 2], "int32") if "add" in name else np.ones(2, "f") for name in split.once.output_blobs}
    rest, bound = split.with_bound({"w": np.zeros(2, "f"), "indices": np.array([0, 1], "int32"), **once})
    assert [op.type for op in prune(rest).ops] == ["Constant", "Gather", "Mul"]
    assert all(array.dtype == np.float32 for array in bound.values())
