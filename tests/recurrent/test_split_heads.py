"""Products with a matrix for each head: texts before and after, the same results and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.interpreter import prepare
from rnnops.recurrent.cell_rewrites import MOST, SMALLEST, split_in_step
from rnnops.types import Type

G, D, N, T = 3, SMALLEST, 2, 4
TEXT = """
net n(x, w)
    a = Exp(w)
    *y = MatMul(x, a)
    return y
"""


def split(x: tuple[int, ...], w: tuple[int, ...], text: str = TEXT) -> list[str]:
    """The ops of a step after the pass, one a line."""
    program = prepare(ro.parse_net(text), {"x": Type("float32", x), "w": Type("float32", w)}, "float32")
    return [line.strip() for line in str(split_in_step(program, {"w"})).splitlines()[1:-1]]


def test_each_head_has_a_product() -> None:
    assert split((N, 2, 1, D), (2, D, 2 * D)) == [
        "a = Exp(w)",
        "y/slice = Slice(x, starts=[0], ends=[1], axes=[1])",
        "y/head = Squeeze(y/slice, axes=[1])",
        "y/slice_1 = Slice(a, starts=[0], ends=[1], axes=[0])",
        "y/head_1 = Squeeze(y/slice_1, axes=[0])",
        "y/product = MatMul(y/head, y/head_1)",
        "y/part = Unsqueeze(y/product, axes=[1])",
        "y/slice_2 = Slice(x, starts=[1], ends=[2], axes=[1])",
        "y/head_2 = Squeeze(y/slice_2, axes=[1])",
        "y/slice_3 = Slice(a, starts=[1], ends=[2], axes=[0])",
        "y/head_3 = Squeeze(y/slice_3, axes=[0])",
        "y/product_1 = MatMul(y/head_2, y/head_3)",
        "y/part_1 = Unsqueeze(y/product_1, axes=[1])",
        "*y = Concat(y/part, y/part_1, axis=1)",
    ]


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ((N, D), (D, D)),
        ((N, 1, 1, D), (1, D, D)),
        ((G, 1, D), (G, D, D)),
        ((N, 1, 1, D), (G, D, D)),
        ((N, G, 2, D), (G, D, D)),
        ((N, G, 1, D - 1), (G, D - 1, D)),
        ((N, G, 1, D), (G, D, D - 1)),
        ((N, MOST + 1, 1, D), (MOST + 1, D, D)),
        ((2, N, G, 1, D), (2, 1, G, D, D)),
    ],
)
def test_what_stays_whole(x: tuple[int, ...], w: tuple[int, ...]) -> None:
    """One matrix, one head, one for each row, heads that share rows, several rows, small or many, heads of heads."""
    assert len(split(x, w)) == 2


def test_what_is_computed_of_rows_is_no_weight() -> None:
    assert len(split((N, G, D, D), (G, D, D), TEXT.replace("MatMul(x, a)", "MatMul(a, x)"))) == 2


def heads_net(rows_of_a_head: int) -> ro.Net:
    """A state in heads, each with a matrix of its own."""
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    state = ro.reshape(h, [-1, G, rows_of_a_head, D])
    cell.outputs(h_t=ro.tanh(x + ro.reshape(state @ w, [-1, G * rows_of_a_head * D])))
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"})[0])
    return net


@pytest.mark.parametrize("rows_of_a_head", [1, 2])
@pytest.mark.parametrize("tuning", [None, Options(compiled=False, tile=2)], ids=["cpu", "plain"])
def test_results_and_gradients(tuning: Options | None, rows_of_a_head: int) -> None:
    net, H, rng = heads_net(rows_of_a_head), G * rows_of_a_head * D, np.random.default_rng(0)
    feeds = {"xs": rng.normal(size=(T, N, H)), "h0": rng.normal(size=(N, H)), "w": rng.normal(size=(G, D, D)) / 4}
    run = ro.compile(net, tuning=tuning)
    (out, pullback), (wanted, reference) = run.vjp(feeds), ro.compile(net, "reference").vjp(feeds)
    np.testing.assert_allclose(out["y"], wanted["y"], 1e-12, 1e-12)
    dy = rng.normal(size=out["y"].shape)
    for (name, grad), right in zip(pullback({"y": dy}).items(), reference({"y": dy}).values(), strict=True):
        np.testing.assert_allclose(grad, right, 1e-10, 1e-10, err_msg=name)
    if rows_of_a_head == 1:
        assert run.plan(feeds).describe().count(f"[{N}, {D}] @ [{D}, {D}]") >= G


def test_heads_are_rounded_as_the_whole_product_is() -> None:
    net, rng = heads_net(1), np.random.default_rng(1)
    shapes = {"xs": (T, N, G * D), "h0": (N, G * D), "w": (G, D, D)}
    feeds = {name: (rng.normal(size=shape) / 2).astype("float32") for name, shape in shapes.items()}
    found, wanted = (ro.compile(net, device, precision="bfloat16")(feeds)["y"] for device in ("cpu", "reference"))
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
    assert abs(found - ro.compile(net)(feeds)["y"]).max() > 1e-4
    described = ro.compile(net, precision="bfloat16").plan(feeds).describe()
    assert described.count(f"[{N}, {D}] @ [{D}, {D}]") >= G
