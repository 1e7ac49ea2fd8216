"""Work apart: what has nothing to do with a loop over steps goes before it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from test_stages import product, shape_of, statement

from rnnops.compiler.lower.scan import split_stages
from rnnops.compiler.lower.statements import Node
from rnnops.compiler.schedule.plan_step import set_apart

CARRIED = [("h", "h_t")]


def stages(*nodes: Node) -> list[str]:
    return shape_of(list(set_apart(split_stages(nodes, CARRIED), CARRIED)))


def test_work_for_a_later_product_goes_before_the_loop() -> None:
    nodes = [statement("u", "x"), statement("v", "u"), statement("h_t", "h"), product("a", "v", True)]
    assert stages(*nodes) == ["steps u,v", "loop h_t", "products a"]


@pytest.mark.parametrize(
    "nodes",
    [
        [statement("u", "x"), statement("h_t", "h", "u")],
        [statement("h_t", "h"), statement("u", "h_t")],
        [statement("h_t", "h"), statement("s", "x", add=True), statement("s", "h_t", add=True)],
        [product("a", "h"), statement("h_t", "a")],
    ],
)
def test_what_the_loop_makes_or_reads_stays(nodes: Sequence[Node]) -> None:
    assert stages(*nodes) == shape_of(split_stages(nodes, CARRIED))
