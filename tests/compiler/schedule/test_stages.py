"""Loops over time: products that need no earlier step leave the loop, elementwise work stays with what uses it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from scan_cases import recurrent, training_scans

import rnnops as ro
from rnnops.compiler.lower.scan import dependencies, live_nodes, split_stages
from rnnops.compiler.lower.statements import Access, Layout, Stage, Statement, StepProduct, dense

T, N, D, H = 4, 3, 2, 5


def statement(target: str, *reads: str, add: bool = False) -> Statement:
    operands = tuple(Access(name, dense((2,))) for name in reads)
    return Statement(target, (2,), Access(target, dense((2,))), operands, "sum", None, "float64", "add" if add else "")


def product(target: str, left: str, accumulate: bool = False) -> StepProduct:
    return StepProduct(target, left, 1, 2, 2, 0, 2, Access("w", Layout(0, (2, 2), (2, 1))), target, accumulate)


def shape_of(stages: Sequence[Stage]) -> list[str]:
    kinds = {(True, True): "loop", (True, False): "steps", (False, False): "products"}
    names = [",".join(getattr(n, "blob", "") for n in stage.nodes) for stage in stages]
    return [f"{kinds[stage.loop, stage.cyclic]} {own}" for stage, own in zip(stages, names, strict=True)]


def test_a_product_that_needs_no_step_before_leaves_the_loop() -> None:
    nodes = [product("a", "x"), product("b", "h"), statement("h_t", "a", "b")]
    assert shape_of(split_stages(nodes, [("h", "h_t")])) == ["products a", "loop b,h_t"]


def test_a_product_of_results_comes_after_the_loop() -> None:
    nodes = [statement("h_t", "x", "h"), product("y", "h_t")]
    assert shape_of(split_stages(nodes, [("h", "h_t")])) == ["loop h_t", "products y"]


def test_elementwise_work_moves_to_what_uses_it() -> None:
    nodes = [statement("u", "x"), product("a", "x"), statement("v", "a"), statement("h_t", "u", "v", "h")]
    assert shape_of(split_stages(nodes, [("h", "h_t")])) == ["products a", "loop u,v,h_t"]


def test_elementwise_work_before_a_product_is_a_loop_of_its_own() -> None:
    nodes = [statement("u", "x"), product("a", "u"), statement("h_t", "a", "h")]
    assert shape_of(split_stages(nodes, [("h", "h_t")])) == ["steps u", "products a", "loop h_t"]


def test_two_layers_are_two_loops() -> None:
    nodes = [product("a", "x"), statement("h_t", "a", "h"), product("b", "h_t"), statement("g_t", "b", "g")]
    stages = split_stages(nodes, [("h", "h_t"), ("g", "g_t")])
    assert shape_of(stages) == ["products a", "loop h_t", "products b", "loop g_t"]


def test_layers_that_feed_each_other_are_one_loop() -> None:
    nodes = [product("a", "g"), statement("h_t", "a", "h"), product("b", "h_t"), statement("g_t", "b", "g")]
    assert shape_of(split_stages(nodes, [("h", "h_t"), ("g", "g_t")])) == ["loop a,h_t,b,g_t"]


def test_a_layer_that_reads_the_step_before_of_a_lower_one_comes_after_it() -> None:
    """g reads h of the step before: h's loop runs first, though nothing in a step says so."""
    nodes = [product("b", "h"), statement("g_t", "b", "g"), statement("h_t", "x", "h")]
    assert shape_of(split_stages(nodes, [("h", "h_t"), ("g", "g_t")])) == ["loop h_t", "products b", "loop g_t"]


def test_sums_that_build_up_stay_in_order() -> None:
    nodes = [statement("s", "x"), product("s", "x", True), product("s", "h", True), statement("h_t", "s")]
    assert dependencies(nodes) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert shape_of(split_stages(nodes, [("h", "h_t")])) == ["steps s", "products s", "loop s,h_t"]


def test_memory_is_not_written_again_before_it_is_read() -> None:
    nodes = [statement("u", "x"), statement("y", "u"), statement("u", "y")]
    assert dependencies(nodes) == [(0, 1), (0, 2), (1, 2)]


def test_no_carried_state_is_no_loop() -> None:
    assert shape_of(split_stages([statement("y", "x")], [])) == ["steps y"]


def test_live_nodes_are_those_that_something_wanted_needs() -> None:
    nodes = [statement("u", "x"), statement("v", "x"), statement("y", "u"), statement("total", "y", add=True)]
    assert [node.blob for node in live_nodes(nodes, ["total"])] == ["u", "y", "total"]
    assert live_nodes(nodes, []) == []


def stack_cell() -> ro.Net:
    cell = ro.Net("two_layers")
    x, h, g, w, u, v, r = cell.inputs("x", "h", "g", "w", "u", "v", "r")
    low = ro.tanh(x @ w + h @ u)
    cell.outputs(h_t=low, g_t=ro.tanh(low @ v + g @ r))
    return cell


KINDS = {"xs": (T, N, D), "h0": (N, H), "g0": (N, H), "w": (D, H), "u": (H, H), "v": (H, H), "r": (H, H)}


def test_a_stack_in_one_cell_forward_and_backward() -> None:
    """Product, loop, product, loop; and the other way round, with the gradients of the weights behind."""
    net = recurrent(stack_cell(), {"x": "xs"}, {"h": "h_t", "g": "g_t"})
    (forward,), (backward,) = training_scans(net, **KINDS)
    assert [stage.head for stage in forward.compiled.plan.stages] == [
        "all steps of a tile at once", "loop over steps", "all steps of a tile at once", "loop over steps",
    ]  # fmt: skip
    heads = [stage.head for stage in backward.compiled.plan.stages]
    assert heads[:4] == ["loop over steps", "all steps of a tile at once"] * 2
    sums = [str(node) for stage in backward.compiled.plan.stages if not stage.loop for node in stage.nodes]
    assert sum("^T @" in text for text in sums) == 4, "each weight's gradient is one product a tile"
    assert not any("^T @" in str(node) for stage in backward.compiled.plan.stages if stage.loop for node in stage.nodes)


@pytest.mark.parametrize("memory", [False, True])
def test_recomputed_products_are_batched(memory: bool) -> None:
    """States are stored, so gates that are computed again need no chain over time."""
    net = ro.Net("gru")
    results = ro.GRU(net, net.input("xs"), None, None, D, H, memory_optimization=memory)
    net.outputs(y=results[0])
    kinds = {spec.name: spec.shape for spec in net.parameters}
    (_,), (backward,) = training_scans(net, xs=(T, N, D), **kinds)
    first, *_ = backward.compiled.plan.stages
    batched = [str(node) for stage in backward.compiled.plan.stages if not stage.loop for node in stage.nodes]
    assert any("+=" not in text and "products" in text for text in batched) is memory
    assert first.cyclic is not memory
