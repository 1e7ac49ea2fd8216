"""Steps that mean nothing are told, and by which pass they were made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from scan_cases import recurrent, training_scans

import rnnops as ro
from rnnops.compiler.lower.scan import LoweredStep, Scan
from rnnops.compiler.lower.statements import Node, Statement, StepProduct
from rnnops.compiler.schedule import plan_step
from rnnops.compiler.schedule.plan_step import PlanError, verify_plan, verify_step


def scan() -> Scan:
    cell = ro.Net("cell")
    x, h, w, b = cell.inputs("x", "h", "w", "b")
    cell.outputs(h_t=ro.tanh(x + h @ w + b))
    net = recurrent(cell, {"x": "xs"}, {"h": "h_t"})
    forward, _ = training_scans(net, xs=(4, 3, 2), h0=(3, 2), w=(2, 2), b=(2,))
    return forward[0].compiled.scan


def lowered() -> LoweredStep:
    return plan_step.first_step(scan(), plan_step.lowered_step(scan()), "")


def with_last(step: LoweredStep, change: Callable[[Statement], Node]) -> LoweredStep:
    *nodes, last = step.nodes
    assert isinstance(last, Statement)
    return replace(step, nodes=(*nodes, change(last)))


def shifted(statement: Statement) -> Statement:
    layout = replace(statement.target.layout, offset=1)
    return replace(statement, target=replace(statement.target, layout=layout))


BROKEN: dict[str, tuple[Callable[[LoweredStep], LoweredStep], str]] = {
    "the first node gone": (lambda s: replace(s, nodes=s.nodes[1:]), "reads 'mat_mul_0', which nothing has written"),
    "another order": (lambda s: replace(s, nodes=s.nodes[::-1]), "which nothing has written"),
    "an element behind the last": (lambda s: with_last(s, shifted), "'tanh_0' has 6 numbers, not 1 to 6"),
    "other extents": (lambda s: with_last(s, lambda n: replace(n, extents=(2, 3))), "its extents are not those"),
    "a weight written": (
        lambda s: with_last(s, lambda n: replace(n, target=replace(n.target, owner="w"))), "the same at every step",
    ),
    "an owner of no type": (
        lambda s: with_last(s, lambda n: replace(n, target=replace(n.target, owner="new"))), "has no type",
    ),
    "an axis of no rows": (
        lambda s: replace(with_last(s, lambda n: replace(n, row_axis=1)), batch_axes={"x": 0}), "2 rows, not 3",
    ),
    "a sum that goes on behind what reads it": (
        lambda s: replace(s, nodes=(*s.nodes, s.nodes[0])), "which was read before, by add_0",
    ),
    "a sum of nothing": (lambda s: replace(s, sums={"w": "new"}), "new: is a sum, but not an accumulator"),
    "a slot of nothing": (lambda s: replace(s, slots={**s.slots, "new": s.slots["x"]}), "new: is stored"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_steps(name: str) -> None:
    change, problem = BROKEN[name]
    verify_step(lowered())
    with pytest.raises(PlanError) as caught:
        verify_step(change(lowered()))
    assert problem in str(caught.value)


def test_products_have_their_targets_size() -> None:
    step = plan_step.run_passes(plan_step.ROWS_APART, lowered())
    nodes = tuple(replace(n, columns=3) if isinstance(n, StepProduct) else n for n in step.nodes)
    with pytest.raises(PlanError, match="its target is"):
        verify_step(replace(step, nodes=nodes))


def test_plans_whose_loops_hold_no_steps() -> None:
    plan = plan_step.plan_step(scan())
    verify_plan(scan(), plan)
    stages = tuple(replace(stage, loop=False) for stage in plan.stages)
    with pytest.raises(PlanError, match="statements must run step by step"):
        verify_plan(scan(), replace(plan, stages=stages))


def test_the_pass_is_named() -> None:
    def forget(step: LoweredStep) -> LoweredStep:
        return replace(step, nodes=step.nodes[1:])

    with pytest.raises(PlanError, match=r"net 'cell': after forget: .*mat_mul_0.*device='reference'"):
        plan_step.run_passes([forget], lowered())
