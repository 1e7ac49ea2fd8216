"""How lanes share out a nest: what is allowed, and what is cheapest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scan_cases import lowered_step

import rnnops as ro
from rnnops.compiler.schedule.loop_nests import fuse_nests
from rnnops.compiler.targets.cuda.lane_nests import Share, share_lanes

CASES: dict[str, tuple[Callable[..., ro.Blob], dict[str, Any], Share]] = {
    "elementwise": (ro.tanh, {"x": (512,)}, Share(lanes=0)),
    "columns that are read across rows": (lambda x, w: x * w, {"x": (1, 512), "w": (40, 512)}, Share(1)),
    "a sum of each row": (lambda x: ro.reduce_sum(x, axes=[1]), {"x": (50, 512)}, Share(lanes=1, teams=0)),
    "a sum of short rows": (lambda x: ro.reduce_sum(x, axes=[1]), {"x": (4096, 2)}, Share(0)),
    "a sum over rows": (lambda x: ro.reduce_sum(x, axes=[0]), {"x": (50, 512)}, Share(lanes=0)),
    "a sum of all": (lambda x: ro.reduce_sum(x), {"x": (512,)}, Share(lanes=0)),
    "narrow rows": (lambda x, w: x * w, {"x": (64, 1), "w": (64, 32)}, Share(lanes=1, teams=0)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cheapest_way(name: str) -> None:
    build, kinds, wanted = CASES[name]
    cell = ro.Net("cell")
    cell.outputs(y=build(**{name: cell.input(name) for name in kinds}))
    nests = fuse_nests(lowered_step(cell, **kinds).statements, folds_last=True)
    assert share_lanes(nests[0]) == wanted


def scattered(width: int) -> Share:
    """The gradient of a look-up of rows."""
    cell = ro.Net("cell")
    dy, i = cell.input("dy"), cell.input("i", "int32")
    cell.outputs(y=ro.ops.base.scatter_add(dy, i, 0, 9))
    statements = lowered_step(cell, dy=(5, width), i=("int32", (5,))).statements
    return share_lanes(fuse_nests(statements, folds_last=True)[-1])


def test_rows_that_may_meet_are_shared_out_by_columns() -> None:
    assert scattered(512) == Share(lanes=1)


def test_numbers_that_may_meet_are_written_by_one_lane() -> None:
    assert scattered(1) == Share()
