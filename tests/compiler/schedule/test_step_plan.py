"""Step plans: rows of the batch on their own or all as one and why, what is stored where, what is summed how."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from devices import DEVICES
from scan_cases import recurrent, training_scans

import rnnops as ro
from rnnops.compiler.lower.scan import Role, StepPlan
from rnnops.compiler.lower.statements import Contraction, Statement
from rnnops.compiler.run.compiled_scan import CompiledScan

T, N, H = 4, 3, 3
Build = Callable[..., ro.Blob]


def net_of(build: Build, *references: str) -> ro.Net:
    """`h_t = build(x, h, *references)`."""
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=build(x, h, *(cell.input(name) for name in references)))
    return recurrent(cell, {"x": "xs"}, {"h": "h_t"})


def passes(build: Build, steps: int = T, rows: int = N, **references: tuple[int, ...]) -> tuple[CompiledScan, ...]:
    kinds = {"xs": (steps, rows, H), "h0": (rows, H), **references}
    forward, backward = training_scans(net_of(build, *references), **kinds)
    return forward[0].compiled, backward[0].compiled


def texts(plan: StepPlan) -> list[str]:
    return [str(node) for stage in plan.stages for node in stage.nodes]


BY_ROWS: dict[str, tuple[Build, dict[str, tuple[int, ...]]]] = {
    "elementwise": (lambda x, h, w: ro.tanh(x + h * w), {"w": (H,)}),
    "products": (lambda x, h, w, u: ro.tanh(x @ w + h @ u), {"w": (H, H), "u": (H, H)}),
    "softmax over features": (lambda x, h, w: ro.softmax(x + h * w, axis=-1), {"w": (H,)}),
    "encoder of rows": (
        lambda x, h, e: x + ro.reduce_sum(ro.tanh(ro.unsqueeze(h, [0]) + e), axes=[0], keepdims=0), {"e": (2, N, H)},
    ),
    "a scalar for all": (lambda x, h, s: ro.tanh(x * s + h), {"s": ()}),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_are_independent(name: str) -> None:
    build, references = BY_ROWS[name]
    assert [scan.plan.whole for scan in passes(build, **references)] == ["", ""]


WHOLE: dict[str, tuple[Build, dict[str, tuple[int, ...]], str, str]] = {
    "turned": (lambda x, h: ro.tanh(x + ro.transpose(h, perm=[1, 0])), {}, "reads across rows", "reads across rows"),
    "mean of rows": (
        lambda x, h: x - ro.reduce_mean(h, axes=[0]), {}, "a sum over rows is used", "a sum over rows is stored",
    ),
    "largest of rows": (lambda x, h: x - ro.reduce_max(h, axes=[0]), {}, "is not a sum", "is not a sum"),
    "a look-up of rows": (
        lambda x, h, i: x + ro.gather(h, ro.cast(i, "int32"), axis=0), {"i": (N,)}, "reads across", "reads across",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_where_rows_mix_all_are_one(name: str) -> None:
    build, references, *reasons = WHOLE[name]
    for scan, reason in zip(passes(build, **references), reasons, strict=True):
        assert reason in scan.plan.whole
        assert bool(scan.plan.batch_axes) is not bool(reason)


def test_one_row_is_whole() -> None:
    forward, _ = passes(BY_ROWS["elementwise"][0], rows=1, w=(H,))
    assert forward.plan.whole == "the batch is one row"


def test_gradients_of_weights_are_products_over_a_tile() -> None:
    _, backward = passes(BY_ROWS["products"][0], **BY_ROWS["products"][1])
    sums = [node for stage in backward.plan.stages for node in stage.nodes if isinstance(node, Contraction)]
    assert {(c.rows, c.columns, c.inner) for c in sums} == {(H, H, N)}
    assert all(not by_row for by_row in backward.plan.accumulators.values())


def test_other_sums_over_rows_are_gathered_row_by_row() -> None:
    """What threads add up they add up in rows of their own, in an order that does not depend on threads."""
    _, backward = passes(BY_ROWS["elementwise"][0], w=(H,))
    ((owner, by_row),) = backward.plan.accumulators.items()
    assert by_row
    assert backward.plan.types[owner].shape == (N, H)


LATE: dict[str, tuple[Build, dict[str, tuple[int, ...]], set[str]]] = {
    "a sum of sums": (lambda x, h, w, v: ro.tanh(x * w + h * (v + w).named("a")), {"w": (H,), "v": (H,)}, {"Add"}),
    "scaled by a reference": (lambda x, h, s: ro.tanh(h * ro.exp(s).named("a") + x), {"s": (H,)}, {"Mul"}),
    "scaled by a number": (lambda x, h, w: ro.tanh(h * (w * 0.5).named("a") + x), {"w": (H,)}, {"Mul"}),
    "a part of a reference": (
        lambda x, h, w: ro.tanh(h * ro.slice(w, [1], [4], [0]) + x), {"w": (5,)}, {"Pad"},
    ),
    "every other number of one": (
        lambda x, h, w: ro.tanh(h * ro.slice(w, [0], [5], [0], [2]) + x), {"w": (5,)}, {"ScatterSlice"},
    ),
    "parts side by side": (
        lambda x, h, w, v: ro.tanh(h * ro.concat([w, v], axis=0).named("a") + x), {"w": (1,), "v": (2,)}, {"Split"},
    ),
    "by way of a product": (
        lambda x, h, w, m: ro.tanh(h * (w @ m).named("a") + x), {"w": (2,), "m": (2, H)}, {"MatMul"},
    ),
    "the larger of two": (lambda x, h, w: ro.tanh(h * ro.max(w, 0.1).named("a") + x), {"w": (H,)}, {"Where"}),
}  # fmt: skip


@pytest.mark.parametrize("name", LATE)
def test_what_is_linear_in_sums_runs_once(name: str) -> None:
    """The way from a sum over rows to the gradient of a reference is taken behind the last step; rows stay apart."""
    build, references, wanted = LATE[name]
    _, backward = passes(build, **references)
    assert backward.plan.whole == ""
    late = {call.op.type for call in backward.plan.epilogue}
    assert late >= wanted
    rng = np.random.default_rng(0)
    feeds = {key: rng.normal(size=shape) for key, shape in {"xs": (T, N, H), "h0": (N, H), **references}.items()}
    ro.testing.check_devices(net_of(build, *references), feeds, {"plain": DEVICES["plain"]})


NOT_LATE: dict[str, Build] = {
    "what is added is there at every step": lambda x, h, w: x + (ro.reduce_sum(h * w, axes=[0]) + 1.0),
    "a product of two sums": lambda x, h, w: x + ro.reduce_sum(h, axes=[0]) * ro.reduce_sum(x, axes=[0]),
    "a fill that is not zero": lambda x, h, w: x + ro.pad(ro.reduce_sum(h, axes=[0, 1]), [0, 2], 1.0, axes=[1]),
}


@pytest.mark.parametrize("name", NOT_LATE)
def test_other_functions_of_sums_are_not_late(name: str) -> None:
    forward, _ = passes(NOT_LATE[name], w=(H,))
    assert forward.plan.whole


def test_a_gradient_that_is_zero_is_summed_by_nobody() -> None:
    _, backward = passes(lambda x, h, w: x + h * ro.cast(ro.less(h, w), "float"), w=(H,))
    assert backward.plan.whole == ""
    assert not any("total" in text for text in texts(backward.plan))


def test_a_contraction_needs_rows_of_each_step() -> None:
    """A reference `[N, S, H]` is the same at every step: its product with what changes is summed row by row."""
    build = lambda x, h, e, w: x + ro.reduce_sum(ro.tanh(e @ w) * ro.unsqueeze(h, [1]), axes=[1], keepdims=0)  # noqa: E731
    net, rng = net_of(build, "e", "w"), np.random.default_rng(0)
    feeds = {
        name: rng.normal(size=shape)
        for name, shape in {"xs": (T, N, H), "h0": (N, H), "e": (N, 2, H), "w": (H, H)}.items()
    }
    ro.testing.check_devices(net, feeds, {"plain": DEVICES["plain"]})


def test_stored_blobs_lie_in_their_tensors() -> None:
    """A state that is computed lies where the next step reads it; a stored view is copied there."""
    forward, _ = passes(BY_ROWS["elementwise"][0], w=(H,))
    assert [name for name, slot in forward.plan.slots.items() if slot.tensor == Role.STATE.of("h")] == ["h", "tanh_0"]
    turned, _ = passes(lambda x, h: ro.transpose(x, perm=[1, 0]))
    assert "transpose_0/stored.0[3, 3] = copy(x)" in texts(turned.plan)


def test_a_constant_state_is_stored_row_by_row() -> None:
    forward, _ = passes(lambda x, h: ro.expand(x.net.constant(0.25), [N, H]))
    (node,) = (n for stage in forward.plan.stages for n in stage.nodes if isinstance(n, Statement))
    assert node.row_axis == 0


def test_a_fold_that_all_rows_share_is_not_added_to_by_each() -> None:
    """Additions to what has no rows would come once for every row: such steps are whole."""
    cell = ro.Net("shared")
    h, t = cell.input("h"), cell.input("t", "int32")
    every = ro.reduce_max(ro.cast(t, "float") * ro.cast(cell.constant(np.arange(3), "int64"), "float"), keepdims=0)
    cell.outputs(h_t=h * 0.5 + every, every=every)
    net = ro.Net("outer")
    results = ro.recurrent_net(net, cell, [], [("h", net.input("h0"))], {"h": "h_t"}, timestep="t", steps=T)
    net.outputs(**{blob.name: blob for blob in results})
    ro.testing.check_devices(net, {"h0": np.ones((N, H))}, {"plain": DEVICES["plain"]})


# -- sums over steps as products of whole tiles ----------------------------------------------------------------------


def sums_of(build: Build, rows: int = N, **references: tuple[int, ...]) -> list[Contraction]:
    _, backward = passes(build, rows=rows, **references)
    return [node for stage in backward.plan.stages for node in stage.nodes if isinstance(node, Contraction)]


@pytest.mark.parametrize("rows", [1, N])
@pytest.mark.parametrize("turned", [False, True])
def test_weight_gradients_are_products_of_whole_tiles(turned: bool, rows: int) -> None:
    """Also with one row, and where the weight is used transposed: then it is summed in the layout that is wanted."""

    def build(x: ro.Blob, h: ro.Blob, w: ro.Blob) -> ro.Blob:
        return ro.tanh(x + h @ (ro.transpose(w, perm=[1, 0]) if turned else w))

    shape = (H, H + 0)
    (contraction,) = sums_of(build, rows, w=shape)
    _, backward = passes(build, rows=rows, w=shape)
    assert not backward.plan.epilogue
    assert contraction.left.startswith("grad/") == turned
    net = net_of(build, "w")
    rng = np.random.default_rng(0)
    feeds = {"xs": rng.normal(size=(T, rows, H)), "h0": rng.normal(size=(rows, H)), "w": rng.normal(size=shape)}
    ro.testing.check_devices(net, feeds, {name: DEVICES[name] for name in ("plain", "cpu")})
