"""Weights that a net transposes before a recurrence are read as they lie; what has more axes stays outside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rnnops as ro
from rnnops.interpreter import prepare
from rnnops.recurrent.cell_rewrites import sink_views
from rnnops.types import Type

T, N, H = 4, 3, 8
Around = Callable[[ro.Blob], ro.Blob]

SUNK: dict[str, tuple[tuple[int, ...], Around, list[str]]] = {
    "transposed": ((H, H), lambda w: ro.transpose(w, [1, 0]), ["Transpose"]),
    "as ONNX has it": (
        (1, H, H), lambda w: ro.transpose(ro.squeeze(w, [0]), [1, 0]), ["Squeeze", "Transpose"],
    ),
    "computed before": ((H, H), lambda w: ro.transpose(ro.tanh(w), [1, 0]), ["Transpose"]),
}  # fmt: skip


def net_of(around: Around, read_outside: bool = False) -> ro.Net:
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=ro.tanh(x + h @ w))
    net = ro.Net("model")
    xs, h0, weight = net.inputs("xs", "h0", "weight")
    made = around(weight)
    results = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, references={"w": made})
    net.outputs(y=results[0], **({"sum": ro.reduce_sum(made, keepdims=0)} if read_outside else {}))
    return net


def sunk(around: Around, shape: tuple[int, ...]) -> list[str]:
    """The types of the ops that the cell has behind the pass."""
    shapes = {"xs": (T, N, H), "h0": (N, H), "weight": shape}
    net = sink_views(prepare(net_of(around), {n: Type("float64", s) for n, s in shapes.items()}, "float64"))
    (op,) = (op for op in net.ops if op.holds_net)
    return [one.type for one in op.attributes["cell"].ops]


@pytest.mark.parametrize("name", SUNK)
def test_views_go_into_the_cell(name: str) -> None:
    shape, around, views = SUNK[name]
    assert sunk(around, shape)[: len(views)] == views


def test_views_of_more_axes_stay() -> None:
    around: Around = lambda w: ro.squeeze(ro.transpose(w, [1, 2, 0]), [2])  # noqa: E731
    assert "Transpose" not in sunk(around, (1, H, H))


@pytest.mark.parametrize("read_outside", [False, True])
@pytest.mark.parametrize("name", SUNK)
def test_results_and_gradients(name: str, read_outside: bool) -> None:
    shape, around, _ = SUNK[name]
    net, rng = net_of(around, read_outside), np.random.default_rng(0)
    feeds = {n: rng.normal(size=s) / 2 for n, s in {"xs": (T, N, H), "h0": (N, H), "weight": shape}.items()}
    found = {}
    for device in ("reference", "cpu"):
        out, pullback = ro.compile(net, device=device).vjp(feeds)
        dys = {blob: np.ones_like(array) for blob, array in out.items()}
        found[device] = {**out, **{f"grad {blob}": grad for blob, grad in pullback(dys).items()}}
    h, weight = feeds["h0"], feeds["weight"].reshape(H, H)
    for x in feeds["xs"]:
        h = np.tanh(x + h @ (np.tanh(weight) if name == "computed before" else weight).T)
    np.testing.assert_allclose(found["cpu"]["y"][-1], h, 1e-12)
    for blob, wanted in found["reference"].items():
        np.testing.assert_allclose(found["cpu"][blob], wanted, 1e-10, 1e-12, err_msg=blob)
