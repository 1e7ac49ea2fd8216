"""Work that is done while blocks wait: sums over steps, of what lies in memory and nobody else changes."""

from __future__ import annotations

from typing import Any

import pytest
from scan_cases import training_scans

import rnnops as ro
from rnnops.compiler.lower.statements import node_reads
from rnnops.compiler.targets.cuda.kernel_parts import deferred
from rnnops.compiler.targets.cuda.loop import Loop
from rnnops.compiler.targets.cuda.share_blocks import Blocks, share_loop

T, N, H = 5, 2, 8


def backward(cell: Any, split: bool, **options: Any) -> tuple[Loop, Any]:
    """The loop over steps, and its plan."""
    net = ro.Net("preset")
    net.outputs(h=cell(net, net.input("x"), None, None, H, H, **options)[0])
    scans = training_scans(net, x=(T, N, H), **{spec.name: spec.shape for spec in net.parameters})
    one = scans[1][0].compiled
    (stage,) = (stage for stage in one.plan.stages if stage.cyclic)
    return share_loop(one.scan, one.plan, stage, Blocks(4, 8, 1 << 20, split), "float64", "float64"), one.plan


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize(("cell", "count"), [(ro.LSTM, 1), (ro.MILSTM, 1)])
def test_sums_over_steps_come_late(cell: Any, count: int, split: bool) -> None:
    """Before the wait is what the product reads, and what it takes to compute that."""
    loop, plan = backward(cell, split)
    early, late = deferred(loop, plan, 0)
    assert late is not None
    assert len(late.written) == count
    assert late.written <= set(plan.accumulators)
    assert sorted(map(id, (*early.nodes, *late.nodes))) == sorted(map(id, loop.regions[0].nodes))
    needed = {owner for node in early.nodes for owner in node_reads(node)} - early.written
    assert loop.products[0].left in early.written
    assert not late.written & needed


def test_nothing_comes_late_without_a_wait_behind_it() -> None:
    loop, plan = backward(ro.LSTM, True)
    (wait,) = loop.waits
    assert deferred(loop, plan, wait) == (loop.regions[wait], None)
    apart = Loop(loop.regions, frozenset({0}), True, 1, 1)
    assert deferred(apart, plan, 0) == (loop.regions[0], None)


def test_what_a_product_changes_is_read_before_it() -> None:
    """GRU's product adds to what elementwise work has begun: nothing that reads it may come late."""
    loop, plan = backward(ro.GRU, False, linear_before_reset=True)
    for number, region in enumerate(loop.regions):
        late = deferred(loop, plan, number)[1]
        changed = {one.product.target for one in loop.regions if one.product}
        assert late is None or not changed & {owner for node in late.nodes for owner in node_reads(node)}
        assert region.product is None or late is None


def test_rows_are_done_at_once() -> None:
    loop, plan = backward(ro.LayerNormLSTM, False)
    assert deferred(loop, plan, 0) == (loop.regions[0], None)
