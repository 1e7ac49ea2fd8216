"""What comes nearer while blocks wait: what is read behind the wait and written by no block in the loop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from whole_grid import whole_grid

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets import target
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.kernels.cuda import lane_functions

pytestmark = on_cuda
T, N, H = 3, 2, 4


@pytest.fixture(autouse=True)
def _all_blocks_at_once() -> Iterator[None]:
    with whole_grid():
        yield


def run_and_feeds(cell: Any, split: bool = False) -> tuple[Any, dict[str, np.ndarray]]:
    net = ro.Net("net")
    net.outputs(h=cell(net, net.input("xs"), None, None, 2, H)[0])
    random = np.random.default_rng(0)
    feeds = {"xs": random.normal(size=(T, N, 2))}
    feeds.update({spec.name: random.normal(size=spec.shape) for spec in net.parameters})
    run = ro.compile(net, device="cuda", tuning=Options(tile=2, around="rows", device=Cuda(3, 2, split=split)))
    return run, {name: feeds[name] for name in net.input_names}


def kernels(cell: Any, split: bool) -> list[str]:
    """The loops, forward and backward."""
    run, feeds = run_and_feeds(cell, split)
    parts = run.plan(feeds).source.split("@scan_kernel")[1:]
    return [part.split("\n\n\n")[0] for part in parts if "await_group(" in part]


def fetched(kernel: str) -> set[str]:
    """Array and address of each fetch, of a row that is called n."""
    found = re.findall(r" fetch_columns\((\w+), (.*), [mn]1 - [mn]0,", kernel)
    return {f"at({array}, {re.sub(r'[mn]0', 'n', place)})" for array, place in found}


def touched(kernel: str) -> set[str]:
    """Arguments of elementwise work."""
    return {
        argument
        for call in re.findall(r"rows_\d+\((.*)\)", kernel)
        for argument in re.findall(r"at\(.*?\)(?=,|$)", call)
    }


@pytest.mark.parametrize("split", [False, True])
def test_backward_fetches_what_forward_kept_for_the_next_step(split: bool) -> None:
    """LSTM: four gates, the gradient that is given and the cell state that no step before has read."""
    _, back = kernels(ro.LSTM, split)
    assert len(fetched(back)) == 6
    assert fetched(back) < touched(back)
    before, after = back.index("arrive(counters"), back.index("await_group(counters")
    inside = back[before:after]
    assert inside.count("fetch_columns(") == back.count("fetch_columns(") == 6
    order = ("if step + 1 < end:", "i = steps - 1 - (step + 1)", "fetch_columns(")
    assert sorted(order, key=inside.index) == list(order)


def test_forward_fetches_what_products_are_added_to() -> None:
    forward, _ = kernels(ro.LSTM, False)
    assert fetched(forward) < touched(forward)
    assert len(fetched(forward)) == 1


def test_rows_are_fetched_whole_where_blocks_own_rows() -> None:
    _, back = kernels(ro.LayerNormLSTM, False)
    assert re.search(r"fetch_columns\(\w+, .*n0.*, n1 - n0, (c\d+), \1, 0, \1\)", back)


@in_simulator
@pytest.mark.parametrize("cell", [ro.LSTM, ro.LayerNormLSTM])
def test_nothing_is_fetched_from_beyond_an_array(cell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[tuple[int, int]] = []
    monkeypatch.setattr(target, "_load", target._load.__wrapped__)  # which would remember what it has imported
    monkeypatch.setattr(lane_functions, "fetch_early", lambda array, place: places.append((place, len(array))))
    run, feeds = run_and_feeds(cell)
    out, pullback = run.vjp(feeds)
    pullback({"h": np.ones_like(out["h"])})
    assert places
    assert all(0 <= place < size for place, size in places)
