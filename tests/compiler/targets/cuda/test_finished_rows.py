"""Groups of blocks whose rows are all over leave products and waits: the same bits as if they had not, and no races."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from whole_grid import OrderedMemory, RaceError, whole_grid

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda import module, share_rows, target
from rnnops.compiler.targets.cuda.target import Cuda

pytestmark = on_cuda
T, D, H = 4, 2, 3
LENGTHS = {
    "mixed": [2, 4, 1, 0, 3, 0, 0, 1, 2],
    "sorted": [4, 4, 3, 2, 2, 1, 1, 0, 0],
    "all over": [0] * 9,
    "none over": [T] * 9,
    "one step": [1] * 9,
}
CELLS: dict[str, Callable[..., Any]] = {
    "LSTM": ro.LSTM,
    "LSTM that drops": lambda *given: ro.LSTM(*given, drop_states=True),
    "MILSTM": ro.MILSTM,
    "GRU": ro.GRU,
    "LayerNormLSTM": ro.LayerNormLSTM,
    "LSTM again": lambda *given: ro.LSTM(*given, memory_optimization=True),
}


def net_of(cell: str, lengths: str, N: int = 9) -> tuple[ro.Net, dict[str, np.ndarray]]:
    net = ro.Net("cell")
    outputs = CELLS[cell](net, net.input("x"), net.input("lengths", "int32"), None, D, H)
    net.outputs(**{f"y{i}": blob for i, blob in enumerate(outputs) if blob is not None})
    random = np.random.default_rng(0)
    given = {"x": (T, N, D), **{spec.name: spec.shape for spec in net.parameters}}
    feeds = {name: random.normal(size=shape) for name, shape in given.items()}
    return net, {**feeds, "lengths": np.array(LENGTHS[lengths][:N], "int32")}


def device(blocks: int = 6, tile: int = 3, **options: Any) -> Callable[[ro.Net], ro.Run]:
    tuning = Options(tile=tile, around="rows", device=Cuda(lanes=2, blocks=blocks, **options))
    return lambda net: ro.compile(net, device="cuda", tuning=tuning)


def results(run: ro.Run, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs and gradients."""
    out, pullback = run.vjp(feeds)
    return {**out, **pullback({name: np.ones_like(array) for name, array in out.items()})}


def check_bits(net: ro.Net, feeds: dict[str, np.ndarray], made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a device whose groups leave nothing, bit for bit, but for zeros' signs."""
    with whole_grid(seed=1):
        found = results(made(net), feeds)
        monkeypatch.setattr(target, "let_finished_rows_leave", lambda scan, plan, number, loop: loop)
        wanted = results(made(net), feeds)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, name)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("cell", CELLS)
def test_results_have_the_same_bits(cell: str, lengths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, feeds = net_of(cell, lengths)
    made = device()
    assert str(made(net).plan(feeds)).count("skip products and waits") == 2
    check_bits(net, feeds, made, monkeypatch)


@pytest.mark.parametrize(("cell", "N", "blocks"), [("LSTM", 3, 3), ("LayerNormLSTM", 2, 8)])
def test_results_are_those_of_the_reference(cell: str, N: int, blocks: int) -> None:
    """Also where blocks share rows."""
    net, feeds = net_of(cell, "mixed", N)
    with whole_grid(seed=1):
        ro.testing.check_devices(net, {name: feeds[name] for name in net.input_names}, {"cuda": device(blocks)})


@in_simulator
@pytest.mark.parametrize("cell", ["LSTM", "LayerNormLSTM"])
def test_groups_that_leave_do_not_race(cell: str) -> None:
    net, feeds = net_of(cell, "mixed", 8)
    with whole_grid(check=True, seed=1):
        results(device(4)(net), feeds)


@in_simulator
@pytest.mark.parametrize("cell", ["LSTM", "LayerNormLSTM"])
def test_without_a_wait_between_the_two_kinds_of_steps_blocks_race(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks tell that they have come, and do not wait for the others."""
    net, feeds = net_of(cell, "one step", 4)
    two_kinds = share_rows.two_kinds
    monkeypatch.setattr(module, "two_kinds", lambda steps, over, wait: two_kinds(steps, over, wait[:1]))
    with pytest.raises(RaceError), whole_grid(check=True, seed=1):
        results(device(4, tile=T)(net), feeds)


@in_simulator
@pytest.mark.parametrize(("lengths", "waits"), [("all over", 0), ("one step", 2), ("none over", T)])
def test_groups_that_have_left_do_not_wait(lengths: str, waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward: at each step with a row that is not over, and once more when they leave."""
    net, feeds = net_of("LSTM", lengths, 3)
    counted: list[int] = []
    release = OrderedMemory.add_release

    def counting(memory: OrderedMemory, counters: Any, place: int, value: Any) -> None:
        counted.append(place)
        release(memory, counters, place, value)

    monkeypatch.setattr(OrderedMemory, "add_release", counting)
    with whole_grid():
        device(4, tile=T)(net)(feeds)
    blocks = 3  # of a group: a feature each
    assert len(counted) == waits * blocks


def test_nan_beyond_the_end_reaches_nothing() -> None:
    net, feeds = net_of("LSTM", "mixed")
    made = device()
    with whole_grid():
        clean = results(made(net), feeds)
        for row, length in enumerate(feeds["lengths"]):
            feeds["x"][length:, row] = np.nan
        found = results(made(net), feeds)
    for name, array in clean.items():
        np.testing.assert_array_equal(found[name], array, name)


def test_a_context_that_goes_on_keeps_all_rows() -> None:
    """Attention has a product at every step of every row."""
    net = ro.Net("decoder")
    x, encoded, lengths = net.input("x"), net.input("encoded"), net.input("lengths", "int32")
    cell = ro.cells.AttentionCell(D, encoded, None, ro.cells.GRUCell(D, H, name="decoder"), H, "dot")
    net.outputs(y=cell.apply_over_sequence(net, x, seq_lengths=lengths)[0])
    kinds = {"x": (T, 2, D), "encoded": (3, 2, D), **{spec.name: spec.shape for spec in net.parameters}}
    feeds = {**{name: np.ones(shape) for name, shape in kinds.items()}, "lengths": np.array([1, 0], "int32")}
    assert "skip products" not in str(device()(net).plan(feeds))
