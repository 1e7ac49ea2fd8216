"""Large products: which ones are blocked, how sums of them build up in one place, folds of folds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from scan_cases import lowered_step, recurrent, training_scans

import rnnops as ro
from rnnops.compiler.lower.scan import Lowered
from rnnops.compiler.lower.statements import Access, Layout, StepProduct, read_counts
from rnnops.compiler.schedule.products import Packing, Rules, as_product, packing_of, sum_products
from rnnops.compiler.schedule.sums import merged

N, D, H = 3, 2, 5
Build = Callable[..., ro.Blob]


def lowered_cell(build: Build, **kinds: tuple[int, ...]) -> Lowered:
    cell = ro.Net("cell")
    cell.outputs(y=build(*cell.inputs(*kinds)) if len(kinds) > 1 else build(cell.inputs(*kinds)))
    return lowered_step(cell, **kinds)


def products_of(lowered: Lowered, invariant: Collection[str]) -> dict[str, StepProduct]:
    sizes = {owner: kind.size for owner, kind in lowered.types.items()}
    found = [as_product(s, sizes, {*invariant, *lowered.constants}) for s in lowered.statements]
    return {product.target: product for product in found if product is not None}


def summed(
    lowered: Lowered,
    invariant: Collection[str],
    carried: Collection[str] = (),
    used: bool = True,
    in_place: float = inf,
) -> list[str]:
    products = products_of(lowered, invariant)
    if in_place < inf:
        products = {name: replace(product, rounding="bfloat16") for name, product in products.items()}
    reads = read_counts(lowered.statements)
    reads.update([lowered.statements[-1].target.owner] if used else [])
    nodes = sum_products(
        lowered.statements, Rules(products, [], invariant, carried, reads, in_place), "{}/products".format
    )
    return [str(node) for node in nodes]


BLOCKED: dict[str, tuple[Build, dict[str, tuple[int, ...]]]] = {
    "rows times a matrix": (lambda x, w: x @ w, {"x": (N, D), "w": (D, H)}),
    "times a transposed matrix": (lambda x, w: x @ ro.transpose(w, perm=[1, 0]), {"x": (N, D), "w": (H, D)}),
    "times a part of the columns": (lambda x, w: x @ ro.slice(w, [1], [4], [1]), {"x": (N, D), "w": (D, H)}),
    "times a part of the rows": (lambda x, w: x @ ro.slice(w, [1], [3], [0]), {"x": (N, D), "w": (4, H)}),
    "a part of the features": (lambda x, w: ro.slice(x, [1], [3], [1]) @ w, {"x": (N, 4), "w": (D, H)}),
    "several rows each": (lambda x, w: x @ w, {"x": (N, 4, D), "w": (D, H)}),
}


@pytest.mark.parametrize("name", BLOCKED)
def test_blocked_products(name: str) -> None:
    build, kinds = BLOCKED[name]
    (product,) = products_of(lowered_cell(build, **kinds), ["w"]).values()
    assert product.left == "x"
    assert product.right.owner == "w"


OTHERS: dict[str, tuple[Build, dict[str, tuple[int, ...]], list[str]]] = {
    "an outer product": (lambda x, w: x @ w, {"x": (N, 1), "w": (1, H)}, ["w"]),
    "a matrix that changes": (lambda x, w: x @ w, {"x": (N, D), "w": (D, H)}, []),
    "two fixed matrices": (lambda x, w: x @ w, {"x": (N, D), "w": (D, H)}, ["x", "w"]),
    "one column": (lambda x, w: x @ w, {"x": (N, D), "w": (D, 1)}, ["w"]),
    "a stack of matrices": (lambda x, w: x @ w, {"x": (N, N, D), "w": (N, D, H)}, ["w"]),
    "every other feature": (lambda x, w: ro.slice(x, [0], [4], [1], [2]) @ w, {"x": (N, 4), "w": (D, H)}, ["w"]),
    "features from behind": (lambda x, w: ro.slice(x, [-1], [-9], [1], [-1]) @ w, {"x": (N, D), "w": (D, H)}, ["w"]),
    "some of the rows": (lambda x, w: ro.slice(x, [0], [2], [0]) @ w, {"x": (N, D), "w": (D, H)}, ["w"]),
    "turned rows": (lambda x, w: ro.transpose(x, perm=[1, 0]) @ w, {"x": (D, N), "w": (D, H)}, ["w"]),
    "every other column": (lambda x, w: x @ ro.slice(w, [0], [4], [1], [2]), {"x": (N, D), "w": (D, 4)}, ["w"]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_products_stay_statements(name: str) -> None:
    build, kinds, invariant = OTHERS[name]
    assert products_of(lowered_cell(build, **kinds), invariant) == {}


def test_packing() -> None:
    def packing(offset: int, shape: tuple[int, int], strides: tuple[int, int]) -> Packing | None:
        return packing_of(Access("w", Layout(offset, shape, strides)))

    assert packing(0, (2, 5), (5, 1)) == Packing(0, 5, 0, False)
    assert packing(0, (2, 5), (1, 2)) == Packing(0, 2, 0, True)
    assert packing(7, (2, 3), (5, 1)) == Packing(5, 5, 2, False), "from row 1, column 2 on"
    assert packing(0, (2, 2), (6, 3)) is None
    assert packing(1, (2, 3), (-5, 1)) is None


AFFINE = {"x": (N, D), "h": (N, H), "w": (D, H), "u": (H, H), "b": (H,), "c": (N, H)}


def test_products_of_one_sum_build_up_in_one_place() -> None:
    """The first brings the bias along."""
    lowered = lowered_cell(lambda x, h, w, u, b, c: x @ w + b + h @ u, **AFFINE)
    assert summed(lowered, ["w", "u", "b"]) == [
        "add_1 = x @ w + b: [3, 2] @ [2, 5]",
        "add_1 += h @ u: [3, 5] @ [5, 5]",
    ]


def test_of_the_first_two_products_the_one_that_waits_comes_last() -> None:
    lowered = lowered_cell(lambda x, h, w, u, b, c: h @ u + x @ w, **AFFINE)
    assert summed(lowered, ["w", "u", "b"], carried=["h"]) == [
        "add_0 = x @ w: [3, 2] @ [2, 5]",
        "add_0 += h @ u: [3, 5] @ [5, 5]",
    ]


def test_operands_are_added_in_the_order_of_the_sum() -> None:
    """A bias behind two products stays behind them; only the first two operands may be exchanged."""
    lowered = lowered_cell(lambda x, h, w, u, b, c: x @ w + h @ u + b, **AFFINE)
    assert summed(lowered, ["w", "u", "b"]) == [
        "add_1/products = x @ w: [3, 2] @ [2, 5]",
        "add_1/products += h @ u: [3, 5] @ [5, 5]",
        "add_1[3, 5] = sum(add_1/products, b)",
    ]
    lowered = lowered_cell(lambda x, h, w, u, b, c: c + (x @ w + b) + h @ u, **AFFINE)
    assert summed(lowered, ["w", "u", "b"]) == [
        "mat_mul_1 = h @ u: [3, 5] @ [5, 5]",
        "add_2/products = x @ w + b: [3, 2] @ [2, 5]",
        "add_2[3, 5] = sum(add_2/products, c, mat_mul_1)",
    ]


def test_a_long_product_of_rounded_operands_adds_to_nothing() -> None:
    """It is added up block by block: in place of another, the blocks would be added to that one by one."""
    lowered = lowered_cell(lambda x, h, w, u, b, c: x @ w + h @ u, **AFFINE)
    assert summed(lowered, ["w", "u"], in_place=4) == [
        "mat_mul_1 = h @ u: [3, 5] @ [5, 5] of bfloat16",
        "add_0/products = x @ w: [3, 2] @ [2, 5] of bfloat16",
        "add_0[3, 5] = sum(add_0/products, mat_mul_1)",
    ]
    lowered = lowered_cell(lambda x, h, w, u, b, c: h @ u + b, **AFFINE)
    assert summed(lowered, ["w", "u", "b"], in_place=4) == [
        "add_0/products = h @ u: [3, 5] @ [5, 5] of bfloat16",
        "add_0[3, 5] = sum(add_0/products, b)",
    ]


def test_a_sum_that_its_step_does_not_use_starts_from_the_rest() -> None:
    lowered = lowered_cell(lambda x, h, w, u, b, c: c + x @ w + h @ u, **AFFINE)
    assert summed(lowered, ["w", "u", "b"], used=False) == [
        "add_1[3, 5] = copy(c)",
        "add_1 += x @ w: [3, 2] @ [2, 5]",
        "add_1 += h @ u: [3, 5] @ [5, 5]",
    ]


def test_a_product_that_is_read_twice_stays_alone() -> None:
    def build(x: ro.Blob, h: ro.Blob, w: ro.Blob, u: ro.Blob, b: ro.Blob, c: ro.Blob) -> ro.Blob:
        p = x @ w
        return (p + h @ u) * p

    texts = summed(lowered_cell(build, **AFFINE), ["w", "u", "b"])
    assert texts[0] == "mat_mul_0 = x @ w: [3, 2] @ [2, 5]"
    assert texts[1:] == [
        "add_0/products = h @ u: [3, 5] @ [5, 5]",
        "add_0[3, 5] = sum(add_0/products, mat_mul_0)",
        "mul_0[3, 5] = Mul(add_0, mat_mul_0)",
    ]


def test_a_scaled_product_is_no_part_of_a_sum() -> None:
    texts = summed(lowered_cell(lambda x, h, w, u, b, c: x @ w * 2.0 + h @ u, **AFFINE), ["w", "u", "b"])
    assert texts[:2] == ["mat_mul_0 = x @ w: [3, 2] @ [2, 5]", "mul_0[3, 5] = Mul(mat_mul_0, 2.0)"]


def test_a_product_that_is_broadcast_is_no_part_of_the_sum() -> None:
    lowered = lowered_cell(lambda x, w, c: x @ w + c, x=(N, 1, D), w=(D, H), c=(N, 4, H))
    assert summed(lowered, ["w"]) == ["mat_mul_0 = x @ w: [3, 2] @ [2, 5]", "add_0[3, 4, 5] = Add(mat_mul_0, c)"]


def test_folds_of_folds_are_one() -> None:
    """A product `[N, 1, H]`, summed over N, never exists."""

    def build(x: ro.Blob, y: ro.Blob) -> ro.Blob:
        return ro.reduce_sum(ro.transpose(x, perm=[0, 2, 1]) @ y, axes=[0], keepdims=0)

    lowered = lowered_cell(build, x=(N, 4, D), y=(N, 4, H))
    (both,) = merged(lowered.statements, [])
    assert str(both) == "reduce_sum_0[3, 2, 5, 4] add= product(x, y)"
    assert both.folded_axes() == (0, 3)
    assert len(merged(lowered.statements, ["mat_mul_0"])) == 2, "the product is stored"


def test_a_product_that_is_used_elsewhere_is_not_folded_away() -> None:
    def build(x: ro.Blob, y: ro.Blob) -> ro.Blob:
        product = ro.transpose(x, perm=[0, 2, 1]) @ y
        return ro.reduce_sum(product, axes=[0], keepdims=0) + product

    lowered = lowered_cell(build, x=(N, 4, D), y=(N, 4, H))
    assert merged(lowered.statements, []) == lowered.statements


def test_scattered_sums_of_products_stay_two() -> None:
    """An index moves the target: the product is not a sum over its inner axis there."""
    cell = ro.Net("cell")
    x, w, i = cell.input("x"), cell.input("w"), cell.input("i", "int32")
    cell.outputs(y=cell.append("ScatterAdd", [x @ w, i], {"axis": 0, "size": 4})[0])
    lowered = lowered_step(cell, x=(N, D), w=(D, H), i=("int32", (N,)))
    assert len(merged(lowered.statements, [])) == 3


def window_cell() -> ro.Net:
    cell = ro.Net("window")
    h, w, u = cell.inputs("h", "w", "u")
    last, first = (ro.squeeze(ro.slice(h, [i], [i + 1], [0]), [0]) for i in (1, 0))
    cell.outputs(h_t=ro.tanh(last @ w + first @ u))
    return cell


@pytest.mark.parametrize("reverse", [False, True])
def test_steps_of_a_window_are_rows_of_products(reverse: bool) -> None:
    """Windows overlap: from one step to the next lie as many numbers as one of their steps has."""
    net = recurrent(window_cell(), {}, {"h": ro.Link("h_t", window=2)}, steps=4, reverse=reverse)
    (forward,), (backward,) = training_scans(net, h0=(2, N, H), w=(H, H), u=(H, H))
    texts = [str(node) for stage in forward.compiled.plan.stages for node in stage.nodes]
    assert sum("h @" in text for text in texts) == 2
    sums = [str(node) for stage in backward.compiled.plan.stages for node in stage.nodes if "^T" in str(node)]
    assert len(sums) == 2


@pytest.mark.parametrize("rows", [1, N])
def test_a_sum_that_goes_on_with_other_axes(rows: int) -> None:
    """A sum of products that is read with an axis more is no beginning of the sum behind it."""

    def step(x: ro.Blob, h: ro.Blob, w: ro.Blob, v: ro.Blob) -> ro.Blob:
        return ro.tanh(ro.squeeze(ro.unsqueeze(x @ w + h @ v, [1]) + ro.unsqueeze(h, [1]), [1]))

    cell = ro.Net("cell")
    cell.outputs(h_t=step(*cell.inputs("x", "h", "w", "v")))
    net = ro.Net("net")
    xs, h0, w, v = net.inputs("xs", "h0", "w", "v")
    made = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, references={"w": w, "v": v})
    net.outputs(y=made[0])
    rng = np.random.default_rng(0)
    shapes = {"xs": (4, rows, H), "h0": (rows, H), "w": (H, H), "v": (H, H)}
    ro.testing.check_devices(net, {name: rng.normal(size=shape) for name, shape in shapes.items()}, ["cpu"])
