"""Rows that several blocks share: what they share out, where they wait, and that results are those of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from scan_cases import recurrent, training_scans
from whole_grid import RaceError, whole_grid

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda import share_rows as sharing
from rnnops.compiler.targets.cuda.lane_nests import EVERY, FIRST
from rnnops.compiler.targets.cuda.share_blocks import Blocks, Loop, share_loop
from rnnops.compiler.targets.cuda.share_rows import share_rows
from rnnops.compiler.targets.cuda.target import Cuda

pytestmark = on_cuda
T, D, H, S, E = 3, 2, 4, 7, 5


def attention(
    kind: str, N: int, decoder: Any = ro.cells.GRUCell, features: int = E
) -> tuple[ro.Net, dict[str, np.ndarray]]:
    """A decoder with attention, lengths of its encoder and what it is fed."""
    net = ro.Net("decoder")
    x, encoded, lengths = net.input("x"), net.input("encoded"), net.input("encoder_lengths", "int32")
    cell = ro.cells.AttentionCell(features, encoded, lengths, decoder(D, H, name="decoder"), H, kind)
    net.outputs(y=cell.apply_over_sequence(net, x)[0])
    random = np.random.default_rng(0)
    given = {"x": (T, N, D), "encoded": (S, N, features), **{spec.name: spec.shape for spec in net.parameters}}
    feeds = {name: random.normal(size=shape) for name, shape in given.items()}
    return net, {**feeds, "encoder_lengths": random.integers(0, S + 1, N).astype("int32")}


def normalised(N: int) -> tuple[ro.Net, dict[str, np.ndarray]]:
    """A layer norm LSTM, some rows over early, one before the first step."""
    net = ro.Net("normalised")
    net.outputs(h=ro.LayerNormLSTM(net, net.input("x"), net.input("lengths", "int32"), None, D, 6)[0])
    random = np.random.default_rng(0)
    given = {"x": (T, N, D), **{spec.name: spec.shape for spec in net.parameters}}
    feeds = {name: random.normal(size=shape) for name, shape in given.items()}
    return net, {**feeds, "lengths": np.resize([T, 0, 1], N).astype("int32")}


def weighed(N: int) -> tuple[ro.Net, dict[str, np.ndarray]]:
    """A state that is a softmax of itself and an input; it is kept, and read as a whole."""
    cell = ro.Net("cell")
    h, x = cell.input("h"), cell.input("x_t")
    weights = ro.softmax(h * x, axis=1)
    total = ro.reduce_sum(ro.tanh(ro.unsqueeze(weights, [1]) * ro.unsqueeze(x, [2])), axes=[2], keepdims=0)
    cell.outputs(h_next=total, weights=weights)
    random = np.random.default_rng(0)
    net = recurrent(cell, {"x_t": "x"}, {"h": "h_next"})
    return net, {"x": random.normal(size=(T, N, 9)), "h0": random.normal(size=(N, 9))}


def remembering(N: int) -> tuple[ro.Net, dict[str, np.ndarray]]:
    """A state that is read two steps long; what a step writes is in the later one of them at the next step."""
    cell = ro.Net("cell")
    h, x = cell.input("h"), cell.input("x_t")
    late = ro.squeeze(ro.slice(h, starts=[-1], ends=[99], axes=[0]), [0])
    cell.outputs(h_next=ro.reduce_max(ro.unsqueeze(late, [1]) * ro.unsqueeze(x, [2]), axes=[2], keepdims=0))
    random = np.random.default_rng(0)
    net = recurrent(cell, {"x_t": "x"}, {"h": ro.Link("h_next", window=2)})
    return net, {"x": random.normal(size=(4, N, 5)), "h0": random.normal(size=(2, N, 5))}


def device(lanes: int, blocks: int, tile: int = 2, **options: Any) -> Callable[[ro.Net], ro.Run]:
    tuning = Options(tile=tile, around="rows", device=Cuda(lanes=lanes, blocks=blocks, **options))
    return lambda net: ro.compile(net, device="cuda", tuning=tuning)


def check(net: ro.Net, feeds: dict[str, np.ndarray], made: Callable[[ro.Net], ro.Run]) -> None:
    ro.testing.check_devices(net, {name: feeds[name] for name in net.input_names}, {"cuda": made})


CASES = {
    "attention, 2 rows": (attention("regular", 2), 2, 8),
    "recurrent attention": (attention("recurrent", 2, ro.cells.LSTMCell), 2, 7),
    "attention by products, 1 row": (attention("dot", 1), 3, 8),
    "coverage": (attention("soft_coverage", 3), 3, 16),
    "coverage, 1 row": (attention("soft_coverage", 1), 2, 5),
    "attention, 16 rows": (attention("regular", 16), 2, 80),
    "attention, 17 rows": (attention("dot", 17), 2, 85),
    "normalised": (normalised(2), 2, 13),
    "normalised, 3 rows": (normalised(3), 3, 24),
    "softmax, 1 row": (weighed(1), 2, 5),
    "softmax, 3 rows": (weighed(3), 2, 8),
    "softmax, 17 rows": (weighed(17), 2, 40),
    "two steps of a state, 1 row": (remembering(1), 1, 4),
    "two steps of a state, 2 rows": (remembering(2), 1, 8),
    "sums over steps of one number": (attention("regular", 1, features=1), 2, 4),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_reference(name: str) -> None:
    (net, feeds), lanes, blocks = CASES[name]
    made = device(lanes, blocks)
    assert " blocks a row" in str(made(net).plan(feeds))
    with whole_grid(seed=1):
        check(net, feeds, made)


@pytest.mark.parametrize("blocks", [3, 8])
def test_step_by_step(blocks: int) -> None:
    """Each region is a launch, of all blocks."""
    net, feeds = attention("regular", 2)
    made = device(2, blocks, shared_bytes=0)
    assert "step by step" in str(made(net).plan(feeds))
    check(net, feeds, made)


RACES = {
    "softmax": (weighed(2), 2, 6),
    "attention": (attention("regular", 2), 2, 8),
    "coverage": (attention("soft_coverage", 2), 2, 10),
    "normalised": (normalised(2), 2, 13),
}


@in_simulator
@pytest.mark.parametrize("name", RACES)
def test_blocks_of_a_row_do_not_race(name: str) -> None:
    (net, feeds), lanes, blocks = RACES[name]
    run = device(lanes, blocks)(net)
    with whole_grid(check=True, seed=1, same_value_is_fine="coverage" in name):  # a number of all rows, beside
        out, pullback = run.vjp(feeds)
        pullback({one: np.ones_like(array) for one, array in out.items()})


@in_simulator
@pytest.mark.parametrize("name", ["softmax", "attention"])
def test_no_wait_can_be_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward; without any one of its waits the loop has a race."""
    (net, feeds), lanes, blocks = RACES[name]
    waits = waits_of(device(lanes, blocks)(net).plan(feeds).source)
    assert waits
    place = sharing.place_barriers
    for left_out in range(waits):

        def fewer(*known: Any, n: int = left_out) -> frozenset[int]:
            return frozenset(wait for i, wait in enumerate(sorted(place(*known))) if i != n)

        monkeypatch.setattr(sharing, "place_barriers", fewer)
        with pytest.raises(RaceError), whole_grid(check=True, seed=1):
            device(lanes, blocks, tile=T)(net)(feeds)


def waits_of(source: str) -> int:
    """Of the first loop whose blocks wait."""
    kernels = [part.split("\n\n\n")[0] for part in source.split("@scan_kernel")[1:]]
    return next(count for kernel in kernels if (count := kernel.count("await_group(counters, ")))


def shared_loops(net: ro.Net, blocks: Blocks, **kinds: Any) -> Iterator[tuple[Loop, Loop]]:
    """Loops over steps, forward and backward, with a block a row and with several."""
    for made in (scan.compiled for scans in training_scans(net, device=Cuda(), **kinds) for scan in scans):
        for number, stage in enumerate(made.plan.stages):
            if stage.cyclic:
                alone = share_loop(made.scan, made.plan, stage, blocks, "float64", "float64")
                yield alone, share_rows(made.scan, made.plan, {number: alone}, blocks)[1][number]


def kinds_of(net: ro.Net, feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: (str(feeds[name].dtype), feeds[name].shape) for name in net.input_names}


def test_attention_waits_once_more() -> None:
    """Energies by positions; the softmax by all blocks of a row; the context by features."""
    net, feeds = attention("regular", 2)
    alone, several = next(shared_loops(net, Blocks(8, 2, 48 * 1024), **kinds_of(net, feeds)))
    assert (alone.parts, several.parts) == (1, 2)
    assert len(several.waits) == len(alone.waits) + 1
    work = [one for region in several.regions for one in region.work]
    folded = {
        one.nest.extents: one.axis
        for one in work
        for statement in one.nest.statements
        if statement.fold == "add" and len(statement.extents) == 2
    }
    assert folded == {(S, E): 0, (E, S): 0}
    assert EVERY in {one.axis for one in work if "softmax" in one.nest.statements[-1].blob}
    assert FIRST not in {one.axis for one in work}


def test_rows_of_many_blocks_keep_one_where_waits_cost_more() -> None:
    net, feeds = normalised(2)
    for one, several in shared_loops(net, Blocks(4, 256, 1 << 20), **kinds_of(net, feeds)):
        assert several is one


def test_a_row_has_as_many_blocks_as_there_are_for_it() -> None:
    """A group of 5 blocks for 2 rows: two a row, and one has nothing to do by rows."""
    net, feeds = attention("regular", 2)
    loops = list(shared_loops(net, Blocks(5, 2, 1 << 20), **kinds_of(net, feeds)))
    assert {several.parts for _, several in loops} == {2}
    assert {several.members for _, several in loops} == {5}
