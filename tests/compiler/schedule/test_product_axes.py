"""Axes of products by kind, the calls that kernels of a row make, and rows that are merged with others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from by_hand import assert_gradients_of_the_reference
from scan_cases import recurrent, training_scans

import rnnops as ro
from rnnops.compiler.lower.statements import Access, Layout, Statement, dense
from rnnops.compiler.schedule import plan_step
from rnnops.compiler.schedule.batch_axis import mark_rows
from rnnops.compiler.schedule.plan_step import first_step, run_passes, scheduled, store_results
from rnnops.compiler.schedule.product_axes import (
    LEAST_WORK,
    ProductAxes,
    groups_of,
    matrix_call,
    product_axes,
    within_row,
)
from rnnops.compiler.schedule.rows import cut_merged_rows


def product_of(equation: str, **sizes: int) -> Statement:
    """The statement of an equation of two operands, each of them dense."""
    terms, result = equation.split("->")
    letters = "".join(dict.fromkeys(result + terms.replace(",", "")))
    extents = tuple(sizes[letter] for letter in letters)

    def access(name: str, term: str) -> Access:
        axes = tuple(term.index(letter) if letter in term else None for letter in letters)
        return Access(name, dense(tuple(sizes[letter] for letter in term)).with_axes(axes, extents))

    left, right = (access(name, term) for name, term in zip("ab", terms.split(","), strict=True))
    return Statement("y", extents, access("y", result), (left, right), "product", None, "float32", "add", 0.0)


def test_axes_by_kind() -> None:
    heads = product_of("nhd,hde->nhe", n=3, h=4, e=5, d=6)
    assert product_axes(heads) == ProductAxes(batch=(1,), rows=(0,), columns=(2,), folded=(3,))
    folded = product_of("nkh,khe->ne", n=3, k=4, h=5, e=6)
    assert product_axes(folded) == ProductAxes((), (0,), (1,), (2, 3))
    assert product_axes(product_of("nk,ke->ne", n=1, k=4, e=6)) == ProductAxes((), (), (1,), (2,)), (
        "sizes of 1 are none"
    )
    assert product_axes(product_of("nk,kej->ne", n=3, k=4, e=6, j=2)) is None, "j moves one operand only"


def test_axes_that_lie_as_one() -> None:
    layout = Layout(0, (2, 3, 4, 5), (60, 20, 5, 1))
    assert groups_of((0, 1, 2, 3), layout) == [(0, 1, 2, 3)]
    gap = Layout(0, (2, 3, 4, 5), (120, 40, 5, 1))
    assert groups_of((0, 1, 2, 3), gap) == [(0, 1), (2, 3)], "the largest last"
    assert groups_of((0, 1, 2, 3), layout, gap) == [(0, 1), (2, 3)], "as one in both"


@pytest.mark.parametrize(
    ("equation", "function"),
    [("mk,kn->mn", "gemm_nn"), ("mk,nk->mn", "gemm_nt"), ("km,kn->mn", "gemm_tn"), ("kn,mk->mn", "gemm_nn")],
)
def test_a_kernel_calls_the_product_of_matrices_as_they_lie(equation: str, function: str) -> None:
    found = matrix_call(product_of(equation, m=16, n=24, k=32), "float32")
    assert found is not None
    assert (found.function, found.loops) == (function, ())
    assert [(one.rows, one.columns) for one in found.operands][2] == (16, 24)


def test_other_axes_are_gone_through() -> None:
    found = matrix_call(product_of("hqd,hkd->hqk", h=3, q=16, k=16, d=16), "float32")
    assert found is not None
    assert found.loops == (0,)


@pytest.mark.parametrize(
    "statement",
    [
        product_of("km,nk->mn", m=16, n=16, k=16),  # both the other way round
        product_of("mk,kn->mn", m=16, n=16, k=4),
        product_of("mk,kn->mn", m=8, n=8, k=LEAST_WORK // 64 - 1),
        product_of("mk,kn->mn", m=1, n=64, k=64),
    ],
    ids=str,
)
def test_what_stays_a_loop(statement: Statement) -> None:
    assert matrix_call(statement, "float32") is None


def test_products_of_another_dtype_stay_loops() -> None:
    statement = product_of("mk,kn->mn", m=16, n=16, k=16)
    assert matrix_call(statement, "float32")
    assert matrix_call(statement, "float64") is None
    assert matrix_call(within_row(statement), "float32")


def test_rows_that_are_merged_with_others_are_independent() -> None:
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=x + ro.reshape(ro.reshape(h, [6, 4]) @ w, [3, 2, 4]))
    net = recurrent(cell, {"x": "xs"}, {"h": "h_t"}, state_shapes={"h": (2, 4)})
    (forward,), _ = training_scans(net, xs=(5, 3, 2, 4), h0=(3, 2, 4), w=(4, 4))
    scan = forward.compiled.scan
    step = run_passes([store_results, cut_merged_rows, mark_rows], first_step(scan, plan_step.lowered_step(scan), ""))
    assert [statement.extents for statement in step.statements if statement.form == "product"] == [(3, 2, 4, 4)]
    assert scheduled(scan).whole == ""


def pairs(h: ro.Blob, w: ro.Blob, x: ro.Blob) -> ro.Blob:
    """Products of two by two for each feature, in another order than they are computed in."""
    return ro.reshape(ro.einsum("nik,ijk->nkj", ro.reshape(h, [0, 2, 8]), w), [0, 16]) + x


def repeats(h: ro.Blob, w: ro.Blob, x: ro.Blob) -> ro.Blob:
    """A sum whose gradient is copied to two places for each of its numbers."""
    half = ro.reduce_sum(ro.reshape(h * w, [0, 2, -1]), axes=[1], keepdims=0)
    return ro.concat(half, half, axis=-1) + ro.transpose(ro.tanh(ro.transpose(x, (1, 0))), (1, 0))


@pytest.mark.parametrize(("step", "weights"), [(pairs, (2, 2, 8)), (repeats, (16,))])
def test_statements_write_where_they_are_copied_to(step: Callable[..., ro.Blob], weights: tuple[int, ...]) -> None:
    net, cell = ro.Net("net"), ro.Net("cell")
    cell.outputs(h_t=step(*cell.inputs("h", "w", "x")))
    xs, h0, w = net.inputs("xs", "h0", "w")
    h_all, _ = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, references={"w": w})
    net.outputs(hs=h_all)
    shapes = {"xs": (4, 3, 16), "h0": (3, 16), "w": weights}
    feeds = {name: np.random.default_rng(0).normal(size=shape) for name, shape in shapes.items()}
    dys = {"hs": np.ones((4, 3, 16))}
    assert_gradients_of_the_reference(net, ro.compile(net, threads=1).vjp(feeds)[1](dys), feeds, dys)
