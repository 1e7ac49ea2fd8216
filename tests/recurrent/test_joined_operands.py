"""Products of inputs and states that a cell joins are split; what comes of it, and when it is left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

import rnnops as ro
from rnnops.interpreter import prepare
from rnnops.recurrent.cell_rewrites import split_products
from rnnops.types import Type

T, N, D, H = 5, 3, 4, 6
Step = Callable[[ro.Blob, ro.Blob, ro.Blob], ro.Blob]


def joined(x: ro.Blob, h: ro.Blob, w: ro.Blob) -> ro.Blob:
    return ro.tanh(ro.concat([x, h], axis=-1) @ w)


STEPS: dict[str, tuple[Step, tuple[int, int]]] = {
    "x and h": (joined, (D + H, H)),
    "h and x": (lambda x, h, w: ro.tanh(ro.concat([h, x], axis=-1) @ w), (D + H, H)),
    "as a linear layer": (
        lambda x, h, w: ro.tanh(ro.concat([x, h], axis=-1) @ ro.transpose(w, [1, 0])), (H, D + H),
    ),
    "more operands": (
        lambda x, h, w: ro.tanh(ro.concat([x, ro.exp(x), h, h * 0.5, x], axis=-1) @ w), (3 * D + 2 * H, H),
    ),
    "read by others": (
        lambda x, h, w: (lambda a: ro.tanh(a @ w) + ro.reduce_sum(a, axes=[-1]))(ro.concat([x, h], axis=-1)),
        (D + H, H),
    ),
    "computed weight": (lambda x, h, w: ro.tanh(ro.concat([x, h], axis=-1) @ ro.tanh(w)), (D + H, H)),
}  # fmt: skip
WHOLE: dict[str, tuple[Step, tuple[int, int]]] = {
    "states only": (lambda x, h, w: ro.tanh(x[:, :1] + ro.concat([h, h * 0.5], axis=-1) @ w), (2 * H, H)),
    "inputs only": (lambda x, h, w: ro.tanh(h + ro.concat([x, ro.exp(x)], axis=-1) @ w), (2 * D, H)),
    "few inputs": (
        lambda x, h, w: ro.tanh(ro.concat([x[:, :1], h, h * 0.5], axis=-1) @ w), (1 + 2 * H, H),
    ),
}  # fmt: skip


def net_of(step: Step, recompute: tuple[str, ...] = ()) -> ro.Net:
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=step(x, h, w))
    net = ro.Net("model")
    xs, h0, weight = net.inputs("xs", "h0", "weight")
    results = ro.recurrent_net(
        net,
        cell,
        [("x", xs)],
        [("h", h0)],
        {"h": "h_t"},
        references={"w": weight},
        recompute_blobs_on_backward=recompute,
    )
    net.outputs(y=results[0])
    return net


def feeds_of(shape: tuple[int, int], rows: int = N) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"xs": (T, rows, D), "h0": (rows, H), "weight": shape}
    return {name: rng.normal(size=size) / 2 for name, size in shapes.items()}


def products(step: Step, shape: tuple[int, int], recompute: tuple[str, ...] = ()) -> list[str]:
    """Products of the cell behind the pass, and what is to be computed again."""
    kinds = {name: Type("float64", array.shape) for name, array in feeds_of(shape).items()}
    net = split_products(prepare(net_of(step, recompute), kinds, "float64"))
    (op,) = (op for op in net.ops if op.holds_net)
    again = op.attributes.get("recompute", ())
    return [*(one.type for one in op.attributes["cell"].ops if one.type == "MatMul"), *again]


@pytest.mark.parametrize("name", STEPS)
def test_products_are_split(name: str) -> None:
    assert len(products(*STEPS[name])) == (3 if name == "more operands" else 2)


@pytest.mark.parametrize("name", WHOLE)
def test_products_that_stay(name: str) -> None:
    assert products(*WHOLE[name]) == ["MatMul"]


def test_the_inputs_before_are_known_for_all_steps() -> None:
    """Both halves of a window over inputs are one product for all steps at once, as in a QRNN."""
    cell = ro.Net("cell")
    x, before, first, h, w = cell.inputs("x", "before", "first", "h", "w")
    cell.outputs(h_t=ro.tanh(ro.concat([x, before, first], axis=-1) @ w + h), before_t=x, first_t=before)
    net = ro.Net("model")
    xs, h0, weight = net.inputs("xs", "h0", "weight")
    zeros = xs[0] * 0.0
    results = ro.recurrent_net(
        net, cell, [("x", xs)], [("h", h0), ("before", zeros), ("first", zeros)],
        {"h": "h_t", "before": "before_t", "first": "first_t"}, references={"w": weight},
    )  # fmt: skip
    net.outputs(y=results[0])
    kinds = {"xs": (T, N, D), "h0": (N, H), "weight": (3 * D, H)}
    net = split_products(prepare(net, {name: Type("float64", shape) for name, shape in kinds.items()}, "float64"))
    (op,) = (op for op in net.ops if op.holds_net)
    assert [one.type for one in op.attributes["cell"].ops if one.type == "MatMul"] == ["MatMul"]


@pytest.mark.parametrize(("read_by_others", "parts"), [(False, 2), (True, 1)])
def test_a_product_behind_the_loop_is_split_where_that_saves_the_joining(read_by_others: bool, parts: int) -> None:
    """No state follows from it, but from the state `g`, which only another output reads."""
    cell = ro.Net("cell")
    x, h, g, w = cell.inputs("x", "h", "g", "w")
    a = ro.concat([x, h], axis=-1)
    product = a @ w
    total = {"total": ro.reduce_sum(a, axes=[-1])} if read_by_others else {}
    cell.outputs(h_t=ro.tanh(h + x[:, :1]), g_t=g * 0.5 + product, y=ro.exp(g), **total)
    net = ro.Net("model")
    xs, h0, g0, weight = net.inputs("xs", "h0", "g0", "weight")
    states = [("h", h0), ("g", g0)]
    results = ro.recurrent_net(net, cell, [("x", xs)], states, {"h": "h_t", "g": "g_t"}, references={"w": weight})
    net.outputs(*(blob for blob in results if blob.name.endswith("_all")))
    kinds = {"xs": (T, N, D), "h0": (N, H), "g0": (N, H), "weight": (D + H, H)}
    split = split_products(prepare(net, {name: Type("float64", shape) for name, shape in kinds.items()}, "float64"))
    (op,) = (op for op in split.ops if op.holds_net)
    assert [one.type for one in op.attributes["cell"].ops].count("MatMul") == parts


def test_a_joined_operand_that_somebody_asked_for_stays() -> None:
    """By its name, or by `net.checkpoint`: it is kept for the backward pass, and can be looked at."""

    def named(x: ro.Blob, h: ro.Blob, w: ro.Blob) -> ro.Blob:
        return ro.tanh(ro.exp(ro.concat([x, h], axis=-1).named("a") @ w))

    assert products(named, (D + H, H)) == ["MatMul"]
    feeds = feeds_of((D + H, H))
    _, pullback = ro.compile(net_of(named), checkpoints=["a"]).vjp(feeds)
    assert pullback.step_blobs("a").shape == (T, N, D + H)


def test_patterns_of_names_find_no_parts_of_weights() -> None:
    feeds = feeds_of((D + H, H))
    net = net_of(lambda x, h, w: ro.tanh(ro.exp(ro.concat([x, h], axis=-1) @ w)))
    total = ro.compile(net, checkpoints=["mat_mul*"]).saved_residuals(feeds).total
    assert total == ro.compile(net, checkpoints=["mat_mul_0"]).saved_residuals(feeds).total


def test_what_is_gone_is_not_computed_again() -> None:
    assert products(joined, (D + H, H), ("concat_0", "mat_mul_0")) == ["MatMul", "MatMul", "mat_mul_0"]


@pytest.mark.parametrize(("rows", "wrt"), [(1, None), (N, ["weight"])])
@pytest.mark.parametrize("name", [*STEPS, *WHOLE])
def test_results_and_gradients(name: str, rows: int, wrt: list[str] | None) -> None:
    step, shape = {**STEPS, **WHOLE}[name]
    net, feeds = net_of(step), feeds_of(shape, rows)
    found: dict[str, Mapping[str, np.ndarray]] = {}
    for device in ("reference", "cpu"):
        run = ro.compile(net, device=device)
        for _ in range(3):  # the third one is a list of jobs
            out, pullback = run.vjp(feeds, wrt=wrt)
            found[device] = {**out, **{f"grad {k}": v for k, v in pullback({"y": np.ones_like(out["y"])}).items()}}
    for blob, wanted in found["reference"].items():
        np.testing.assert_allclose(found["cpu"][blob], wanted, 1e-10, 1e-12, err_msg=blob)


@pytest.mark.parametrize("rows", [1, N])
@pytest.mark.parametrize("name", ["x and h", "h and x", "as a linear layer"])
def test_gradients_of_parts_are_written_side_by_side(name: str, rows: int) -> None:
    """Both products add to the gradient of the weight where their part lies, and nothing is left to join."""
    step, shape = STEPS[name]
    text = str(ro.compile(net_of(step)).plan(feeds_of(shape, rows), wrt=["weight"]))
    assert "computed from sums, once" not in text
    assert text.count("^T @ ") - text.count("]^T @ ") == 2
