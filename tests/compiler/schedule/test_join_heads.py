"""Heads as rows: where nothing folds or mixes them."""

from __future__ import annotations

import numpy as np
from matrix_cells import Feeds, case, over_time

import rnnops as ro
from rnnops.compiler.lower.scan import StepPlan
from rnnops.compiler.schedule.batch_axis import join_heads
from rnnops.compiler.schedule.plan_step import scheduled, staged


def joined(net: ro.Net, feeds: Feeds) -> StepPlan:
    """The forward steps of a net with heads as rows."""
    (runner,) = ro.compile(net).plan(feeds, backward=False).plan.compiled.forward.values()
    scan = runner.compiled.scan
    return join_heads(scan, staged(scheduled(scan)))


def test_rows_and_heads_become_one_axis() -> None:
    for N in (1, 3):
        plan = joined(*case("mlstm", N=N))
        assert plan.heads == 2
        assert plan.types["C"].shape == (2 * N, 32, 32)
        assert plan.types["n"].shape == (2 * N, 32)
        assert {node.extents[node.row_axis] for stage in plan.stages for node in stage.nodes} == {2 * N}


def test_heads_that_a_step_mixes_stay_within_the_row() -> None:
    cell = ro.Net("cell")
    q, S = cell.inputs("q", "S")
    mean = ro.reduce_mean(S, axes=[1], keepdims=1)
    S_t = ro.tanh(S) * 0.5 + mean * ro.unsqueeze(q, [3])
    cell.outputs(y=ro.reduce_sum(S_t, axes=[3], keepdims=0), S_t=S_t)
    net = over_time(cell, "q", {"S": (2, 32, 32)})
    rng = np.random.default_rng(0)
    for N in (1, 3):
        feeds = {"seq_q": rng.normal(size=(9, N, 2, 32)), "S0": rng.normal(size=(N, 2, 32, 32))}
        plan = joined(net, feeds)
        assert (plan.heads, plan.types["S"].shape) == (1, (N, 2, 32, 32))
