"""Regions of a loop, what features they own, and where blocks wait: LSTM and its kin, and cells made to need waits."""

from __future__ import annotations

from typing import Any

import pytest
from scan_cases import recurrent, training_scans

import rnnops as ro
from rnnops.compiler.targets.cuda.lane_nests import FIRST_PART, PartShare
from rnnops.compiler.targets.cuda.loop import BY_ROWS, EVERYTHING, Loop, Positions, periods, place_barriers, regions_of
from rnnops.compiler.targets.cuda.share_blocks import Blocks, share_loop
from rnnops.compiler.targets.cuda.target import Cuda

T, N, D, H = 5, 2, 3, 8
BLOCKS = Blocks(4, 8, 1 << 20)


def loops(net: ro.Net, **kinds: Any) -> list[Loop]:
    """The loops over steps, forward and backward, as blocks share them out."""
    scans = training_scans(net, **kinds)
    made = [scan.compiled for passes in scans for scan in passes]
    return [
        share_loop(one.scan, one.plan, stage, BLOCKS, "float64", "float64")
        for one in made
        for stage in one.plan.stages
        if stage.cyclic
    ]


def preset(cell: Any) -> list[Loop]:
    net = ro.Net("preset")
    net.outputs(h=cell(net, net.input("x"), None, None, H, H)[0])
    return loops(net, x=(T, N, H), **{spec.name: spec.shape for spec in net.parameters})


@pytest.mark.parametrize("cell", [ro.LSTM, ro.MILSTM])
def test_masks_of_padding_need_no_wait(cell: Any) -> None:
    net = ro.Net("preset")
    lengths = net.input("lengths", "int32")
    net.outputs(h=cell(net, net.input("x"), lengths, None, D, H)[0])
    kinds = {"x": (T, N, D), "lengths": ("int32", (N,)), **{spec.name: spec.shape for spec in net.parameters}}
    found = loops(net, device=Cuda(), **kinds)
    assert [len(loop.waits) for loop in found] == [1, 1]


@pytest.mark.parametrize(
    ("cell", "waits", "period"),
    [
        (ro.LSTM, [1, 1], H),
        (ro.MILSTM, [1, 1], H),
        (ro.BasicRNN, [1, 1], H),
        (ro.GRU, [2, 2], H),
        (ro.LayerNormLSTM, [2, 2], 4 * H),
    ],
)
def test_waits_of_presets(cell: Any, waits: list[int], period: int) -> None:
    found = preset(cell)
    assert [len(loop.waits) for loop in found] == waits
    assert {region.period for loop in found for region in loop.regions if region.product} <= {H, period}


def cell_of(build: Any, **inputs: tuple[int, ...]) -> ro.Net:
    """A net around a cell with state h: `build` makes the next state of the state and the inputs."""
    cell = ro.Net("cell")
    h = cell.input("h")
    new = build(h, *(cell.input(name) for name in inputs))
    cell.outputs(h_next=new)
    return recurrent(cell, {}, {"h": "h_next"}, steps=T)


def forward(build: Any, **inputs: tuple[int, ...]) -> Loop:
    net = cell_of(build, **inputs)
    return loops(net, h0=(N, H), **inputs)[0]


def test_elementwise_states_need_no_wait() -> None:
    loop = forward(lambda h, w: ro.tanh(h * w), w=(H,))
    assert not loop.waits
    assert [region.period for region in loop.regions] == [H]


def test_a_shift_of_features_needs_waits() -> None:
    """Feature u reads feature u + 1 of the step before: another block's."""
    loop = forward(lambda h: ro.concat(ro.slice(h, [1], [H], [1]), ro.slice(h, [0], [1], [1]), axis=1) * 0.5)
    assert loop.waits or all(region.period == BY_ROWS for region in loop.regions)


def test_sums_over_features_go_by_rows() -> None:
    loop = forward(lambda h: ro.softmax(h, axis=1))
    assert [region.period for region in loop.regions] == [BY_ROWS]
    assert not loop.waits


def test_what_a_block_has_of_several_steps_it_has_at_the_next_step_too_or_blocks_wait() -> None:
    """Of a state that is read three steps long, every third number is another step's at the next step."""
    cell = ro.Net("cell")
    h = cell.input("h")
    cell.outputs(h_next=ro.tanh(h.sum(axis=0)))
    net = recurrent(cell, {}, {"h": ro.Link("h_next", window=3)}, steps=T)
    made = training_scans(net, h0=(3, N, H))[0][0].compiled
    shares = H, PartShare(1, H), FIRST_PART, BY_ROWS, 3, PartShare(N * H, 3)
    touched = [Positions(made.scan, made.plan).touch("h", share, True) for share in shares]
    assert [touch.share for touch in touched] == [*shares[:4], EVERYTHING, EVERYTHING]
    assert {touch.last - touch.first for touch in touched} == {2}


def test_two_products_in_a_row_wait_between() -> None:
    loop = forward(lambda h, w, v: ro.tanh((h @ w) @ v), w=(H, H), v=(H, H))
    assert [bool(region.product) for region in loop.regions] == [True, True, False]
    assert loop.waits == {0, 1}


def test_periods_are_sizes_of_elementwise_work() -> None:
    net = ro.Net("preset")
    net.outputs(h=ro.LSTM(net, net.input("x"), None, None, H, H)[0])
    kinds = {"x": (T, N, H), **{spec.name: spec.shape for spec in net.parameters}}
    scan = training_scans(net, **kinds)[0][0].compiled
    stage = next(stage for stage in scan.plan.stages if stage.cyclic)
    assert H in periods(stage)
    for period, waits in ((H, 1), (4 * H, 2), (BY_ROWS, 2)):
        assert len(place_barriers(scan.scan, scan.plan, regions_of(stage, scan.plan, period))) == waits


@pytest.mark.parametrize(
    ("count", "shared", "rows", "wanted"),
    [
        (132, 220 * 1024, 16, (True, 4, 8)),  # as many members as there are features
        (2, 1 << 20, 2, (True, 1, 2)),
        (1, 1 << 20, 64, (True, 1, 1)),
        (4, 100, 16, (False, 4, 1)),
    ],
)
def test_groups_and_members(count: int, shared: int, rows: int, wanted: tuple[bool, int, int]) -> None:
    net = ro.Net("preset")
    net.outputs(h=ro.LSTM(net, net.input("x"), None, None, H, H)[0])
    kinds = {"x": (T, rows, H), **{spec.name: spec.shape for spec in net.parameters}}
    scan = training_scans(net, **kinds)[0][0].compiled
    stage = next(stage for stage in scan.plan.stages if stage.cyclic)
    loop = share_loop(scan.scan, scan.plan, stage, Blocks(count, 4, shared), "float64", "float64")
    assert (loop.persistent, loop.groups, loop.members) == wanted
    assert not loop.persistent or loop.numbers * 8 <= shared
