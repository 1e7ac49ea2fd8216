"""Blobs behave as arrays do: subscripts, methods and functions of NumPy give what they give of the arrays fed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from each import check_each
from rejection import rejects

import rnnops as ro

X = np.random.default_rng(0).normal(size=(3, 4, 5))
ROWS = np.array([2, 0])
SUBSCRIPTS: list[Any] = [
    0, -1, np.int64(1), np.s_[1:3], np.s_[0, ..., :2], np.s_[..., :2], np.s_[:, 1], np.s_[None, 0], np.s_[..., None],
    np.s_[0, None, ..., 1, None], ..., np.s_[::-1], np.s_[:, 3::-2], np.s_[-2:, 0, 0], [0, 2], np.s_[:, [1, 3]],
    np.s_[..., np.array([1, 3])], np.s_[..., [[0, 1], [2, 3]]], np.s_[0, 1, 2], np.s_[5:9], np.s_[:, :, 4:None:-1],
]  # fmt: skip
FUNCTIONS: list[Callable[[Any], Any]] = [
    np.tanh, np.square, np.negative, np.rint,
    lambda x: np.sum(x, axis=-1), lambda x: np.mean(x, (0, 1), keepdims=True), lambda x: np.sum(x, axis=()),
    lambda x: np.max(x, 1), lambda x: np.min(x), lambda x: np.reshape(x, (2, 30)), lambda x: np.transpose(x, (1, 2, 0)),
    lambda x: np.concatenate([x, X], 1), lambda x: np.stack([x, X], -1), lambda x: np.split(x, 2, axis=1)[1],
    lambda x: np.where(x > 0, x, 0.0), lambda x: np.clip(x, -1, 0.5), lambda x: np.expand_dims(x, (0, -1)),
    lambda x: np.squeeze(x[:1], 0), lambda x: np.broadcast_to(x, (2, 3, 4, 5)), lambda x: np.cumsum(x, 1),
    lambda x: np.take(x, [0, 1], axis=2), lambda x: np.maximum(x, 0), lambda x: np.not_equal(x, X),
    lambda x: np.float64(2) * x, lambda x: X * x, lambda x: X - x, lambda x: X @ np.transpose(x, (0, 2, 1)),
    lambda x: x.T, lambda x: x.sum(), lambda x: x.mean(0), lambda x: x.max(1, keepdims=True), lambda x: x.min((0, 2)),
    lambda x: x.reshape(4, -1), lambda x: x.reshape((4, 15)), lambda x: x[5:].reshape(0, 2),
    lambda x: x % 0.7, lambda x: 0.7 % (x + 9), lambda x: X % -x, lambda x: +x,
    lambda x: x.transpose(1, 0, 2), lambda x: x.transpose([2, 1, 0]), lambda x: x.transpose(),
    lambda x: x.transpose(np.array([1, 2, 0])), lambda x: x.reshape(np.array([4, 15])),
]  # fmt: skip


def net_of(function: Callable[[Any], Any]) -> ro.Net:
    net = ro.Net("like_an_array")
    net.outputs(y=function(net.input("x")))
    return net


def same_as_numpy(function: Callable[[Any], Any]) -> None:
    wanted = function(X)
    for device in ("reference", "cpu"):
        came = ro.compile(net_of(function), device=device)(x=X)["y"]
        np.testing.assert_allclose(came, wanted, rtol=1e-12, atol=1e-12)
        assert came.shape == np.shape(wanted)


def test_subscripts() -> None:
    check_each(SUBSCRIPTS, lambda key: same_as_numpy(lambda x: x[key]))


def test_functions_and_methods() -> None:
    check_each(FUNCTIONS, same_as_numpy)


def test_reshape_takes_the_shape_of_a_blob() -> None:
    for rows in (2, 0):
        net = ro.Net("n")
        x, y = net.inputs("x", "y")
        net.outputs(z=x.reshape(ro.shape(y)))
        feeds = {"x": np.ones(3 * rows), "y": np.ones((rows, 3))}
        assert ro.compile(net, device="reference")(feeds)["z"].shape == (rows, 3)


def test_random_subscripts() -> None:
    """Of any kind, in any order: what NumPy gives, or an error of ours where NumPy has one."""
    random = np.random.default_rng(1)
    bounds: list[int | None] = [None, *range(-6, 7)]

    def item(kind: int) -> Any:
        if kind == 0:
            return int(random.integers(-3, 3))
        start, stop, step = (bounds[i] for i in random.integers(len(bounds), size=3))
        return None if kind == 1 else slice(start, stop, step or None)

    for _ in range(150):
        items = [item(kind) for kind in random.integers(0, 4, size=random.integers(0, 5))]
        if random.random() < 0.5:
            items.insert(int(random.integers(len(items) + 1)), ...)
        key = tuple(items)
        net = net_of(lambda x, key=key: x[key])
        try:
            wanted = X[key]
        except IndexError:
            rejects(ro.TypeRuleError, lambda net=net: ro.compile(net, device="reference")(x=X), "like_an_array")
            continue
        came = ro.compile(net, device="reference")(x=X)["y"]
        np.testing.assert_array_equal(came, wanted, err_msg=str(key))


def test_indices_that_are_fed() -> None:
    net = ro.Net("looked_up")
    x, rows = net.input("x"), net.input("rows", "int64")
    net.outputs(y=x[rows], z=x[:, rows])
    out = ro.compile(net)(x=X, rows=ROWS)
    np.testing.assert_array_equal(out["y"], X[ROWS])
    np.testing.assert_array_equal(out["z"], X[:, ROWS])


def test_gradients_of_subscripts() -> None:
    net = net_of(
        lambda x: np.tanh(x[1:, 0, ..., ::2]) * x[None, :2, 3, 1:4] + x.T[..., 0].sum(axis=0, keepdims=True)[:, :1]
    )
    ro.testing.check_gradient(net, {"x": X})


def test_shapes_follow_from_what_inputs_declare() -> None:
    net = ro.Net("sized")
    x, w, z = net.input("x", shape=(3, 4)), net.parameter("w", (4, 5), "zeros"), net.input("z")
    assert x.shape == (3, 4)
    assert (x @ w).shape == (3, 5)
    assert np.shape(x[0]) == (4,)
    assert np.ndim(x @ w) == 2
    (x @ z).named("product")
    assert w.T.shape == (5, 4), "ops beside it may have any shapes"
    assert "while" not in str(rejects(ro.NetError, lambda: z.shape, "net 'sized'", "blob 'z'", "shape=..."))
    rejects(ro.NetError, lambda: net.blob("product").ndim, "blob 'product'")
    rejects(ro.TypeRuleError, lambda: (x @ x).shape, "sized", "MatMul")


def test_axis_is_another_name_of_axes() -> None:
    for function, axis in ((ro.reduce_sum, 0), (ro.reduce_max, [0, 1]), (ro.unsqueeze, [0]), (ro.squeeze, -1)):
        nets = [net_of(lambda x, f=function, n=name, a=axis: f(x[..., :1], **{n: a})) for name in ("axes", "axis")]
        assert str(nets[0]) == str(nets[1])
    x = ro.Net("twice").input("x")
    rejects(ro.NetError, lambda: ro.reduce_sum(x, axes=[0], axis=0), "ReduceSum", "axes=")
    rejects(ro.NetError, lambda: ro.unsqueeze(x), "Unsqueeze", "axis=")


def test_what_arrays_do_and_blobs_do_not() -> None:
    net = ro.Net("mistakes")
    x, rows = net.input("x"), net.input("rows", "int64")
    mistakes: list[tuple[Callable[[], Any], str]] = [
        (lambda: list(x), "ro.split"), (lambda: len(x), "x.shape"), (lambda: math.tanh(x), "ro.tanh"),
        (lambda: int(x), "number"), (lambda: np.asarray(x), "ro.compile"), (lambda: np.array([x, x]), "ro.compile"),
        (lambda: X[x], "ro.compile"), (lambda: bool(x), "ro.where"), (lambda: max(x, 0), "ro.where"),
        (lambda: sum(x), "ro.split"), (lambda: np.arctan2(x, x), "np.arctan2"), (lambda: np.add.reduce(x), "np.sum"),
        (lambda: np.add(x, x, out=X), "out="), (lambda: np.linalg.norm(x), "np.norm"),
        (lambda: np.sum(x, dtype=int), "'dtype'"),
        (lambda: np.where(x), "wanted (condition, x, y)"), (lambda: x // 2, "ro.floor"), (lambda: 2 // x, "ro.floor"),
        (lambda: np.split(x, [1, 2]), "x[..., a:b]"),
        (lambda: x[x > 0], "masks"), (lambda: x[True], "masks"), (lambda: x[[True, False]], "masks"),
        (lambda: x["a"], "'a'"), (lambda: x[0.5], "0.5"), (lambda: x[rows, 0], "x[:, indices][0]"),
        (lambda: x[..., ...], "one `...`"), (lambda: x[rows:], "ro.slice"), (lambda: x.sum("a"), "axes"),
    ]  # fmt: skip
    for mistake, mentioned in mistakes:
        rejects(ro.NetError, mistake, "mistakes" if mentioned != "axes" else "ReduceSum", mentioned)
    for misspelt, mentioned in (
        (lambda: x.sum(dim=0), "Did you mean axis?"), (lambda: x.mean(keepdim=True), "Did you mean keepdims?"),
        (lambda: x.max(0, 1, 2), "(axis, keepdims)"), (lambda: x.reshape(order="F"), "reshape"),
    ):  # fmt: skip
        rejects(ro.ArgumentError, misspelt, mentioned)
    for method, mentioned in (
        ("cumsum", "np.cumsum"),
        ("swapaxes", "transpose"),
        ("argmax", "ro.argmax"),
        ("astype", "ro.cast"),
    ):
        rejects(ro.UnknownNameError, lambda method=method: getattr(x, method), f"Did you mean {mentioned}?")
    rejects(ro.NetError, lambda: net.outputs(z={"h": x}), "blob 'z'", "z=...['h']")
