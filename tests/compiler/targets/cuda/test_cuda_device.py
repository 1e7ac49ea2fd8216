"""The CUDA device in the simulator, all blocks at once: golden values, random nets, cells of all kinds, no races."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

import golden_cases
import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda, own_products
from test_golden import results as golden_results
from whole_grid import RaceError, whole_grid
from word_nets import feeds_of as word_feeds, words_net

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda.target import Cuda, Launches
from rnnops.kernels.cuda import lane_functions
from rnnops.testing import random_net

pytestmark = on_cuda
H, N, T = 8, 2, 4
BLOCKS = Cuda(lanes=3, blocks=3)
STEP_BY_STEP = Cuda(lanes=2, blocks=3, shared_bytes=0)


@pytest.fixture(autouse=True)
def _all_blocks_at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """With a look for races, but where a test says `quick`: it takes three times as long."""
    with whole_grid(check="quick" not in request.fixturenames, seed=1, same_value_is_fine=True):
        yield


@pytest.fixture
def quick() -> None:
    """Nobody looks for races."""


def device(blocks: Cuda = BLOCKS, **options: Any) -> Callable[[ro.Net], ro.Run]:
    """Several tiles, all ops that can be fused, several blocks of some lanes."""
    tuning = Options(tile=2, around="rows", device=blocks)
    return lambda net: ro.compile(net, device="cuda", tuning=tuning, **options)


@pytest.mark.parametrize("name", golden_cases.NAMES)
@pytest.mark.usefixtures("quick")
def test_agrees_with_caffe2(name: str) -> None:
    golden_results(golden_cases.load(name), device())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["lstm_drop", "attention_dot"])
def test_agrees_with_caffe2_step_by_step(name: str) -> None:
    golden_results(golden_cases.load(name), device(STEP_BY_STEP))


@pytest.mark.slow
@pytest.mark.parametrize("name", golden_cases.NAMES)
def test_agrees_with_caffe2_without_races(name: str) -> None:
    golden_results(golden_cases.load(name), device(Cuda(lanes=5, blocks=4)))


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6])
def test_random_nets(seed: int) -> None:
    random = random_net(seed)
    ro.testing.check_devices(random.net, random.feeds, {"cuda": device()}, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10, 110, 10))
def test_many_random_nets(first: int) -> None:
    for seed in range(first, first + 10):
        random = random_net(seed)
        ro.testing.check_devices(random.net, random.feeds, {"cuda": device(STEP_BY_STEP)}, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(5000, 5100, 10))
def test_many_random_nets_whose_rows_blocks_share(first: int) -> None:
    for seed in range(first, first + 10):
        random, blocks = random_net(seed), Cuda(lanes=1 + seed % 3, blocks=2 + seed % 7)
        ro.testing.check_devices(random.net, random.feeds, {"cuda": device(blocks)}, seed=1)


def lstm_net(cell: Any = ro.LSTM, padded: bool = True, **options: Any) -> ro.Net:
    net = ro.Net("lstm")
    outputs = cell(net, net.input("xs"), net.input("lengths", "int32") if padded else None, None, 2, H, **options)
    net.outputs(**dict(zip(("h_all", "h_last", "c_all", "c_last"), outputs, strict=False)))
    return net


def lstm_feeds(net: ro.Net) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    given = {"xs": random.normal(size=(T, N, 2)), "lengths": np.array([4, 2], "int32")}
    feeds = {**{spec.name: random.normal(size=spec.shape) for spec in net.parameters}, **given}
    return {name: feeds[name] for name in net.input_names}


@pytest.mark.parametrize(("lanes", "blocks"), [(1, 1), (2, 8), (7, 3), (16, 2)])
def test_lengths_and_recompute_for_any_lanes_and_blocks(lanes: int, blocks: int) -> None:
    net = lstm_net(memory_optimization=True)
    ro.testing.check_devices(net, lstm_feeds(net), {"cuda": device(Cuda(lanes, blocks))})


def test_lanes_change_no_bit_but_of_sums_within_a_row() -> None:
    net = lstm_net()
    feeds = lstm_feeds(net)
    one, several = (device(Cuda(lanes, blocks))(net)(feeds) for lanes, blocks in ((1, 1), (5, 1)))
    for name, array in one.items():
        assert several[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("options", [{"memory_budget": 0.6}, {"checkpoints": ro.checkpoints.Slots(2, steps=2)}])
def test_budgets(options: dict[str, Any]) -> None:
    net = lstm_net()
    ro.testing.check_devices(net, lstm_feeds(net), {"cuda": device(**options)})


@pytest.mark.parametrize("blocks", [Cuda(lanes=3, blocks=1), BLOCKS])
def test_sums_over_more_rows_than_there_are_parts(blocks: Cuda) -> None:
    """Several rows add to one sum: they are gone through in order."""
    net = ro.Net("sums")
    x, b, scale = net.inputs("x", "b", "scale")
    net.outputs(y=ro.reduce_sum(x * x, axes=[0]), z=ro.layer_normalization(ro.tanh(x * b), scale, b, axis=1))
    random = np.random.default_rng(0)
    feeds = {"x": random.normal(size=(70, 3)), "b": random.normal(size=3), "scale": random.normal(size=3)}
    ro.testing.check_devices(net, feeds, {"cuda": device(blocks)})


def test_recurrences_within_cells() -> None:
    ro.testing.check_devices(words_net(), word_feeds(), {"cuda": device()})


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Launches]:
    """The launches of each scan that runs."""
    made: list[Launches] = []
    start = Launches.__init__

    def remember(self: Launches, *given: Any) -> None:
        start(self, *given)
        made.append(self)

    monkeypatch.setattr(Launches, "__init__", remember)
    return made


CELLS = [ro.LSTM, ro.MILSTM, ro.LayerNormLSTM, ro.GRU]
LAUNCHES = [(cell, again, tile) for cell in CELLS for again in (False, True) for tile in (1, 2, T)]
LAUNCHES.remove((ro.GRU, True, 1))  # its reset gate lies between two products: two launches a tile more


@own_products
@pytest.mark.parametrize(("cell", "recompute", "tile"), LAUNCHES)
def test_launches_of_persistent_loops(cell: Any, recompute: bool, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 4 and 3 for each tile, in each direction."""
    check_launches(lstm_net(cell, padded=False, memory_optimization=recompute), tile, 3, monkeypatch)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_masks_of_padding_are_one_launch_a_tile(cell: Any, recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    check_launches(lstm_net(cell, memory_optimization=recompute), 2, 4, monkeypatch)


def check_launches(net: ro.Net, tile: int, of_tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 4 and so many for each tile, in each direction."""
    run, feeds = ro.compile(net, device="cuda", tuning=Options(tile=tile, device=BLOCKS)), lstm_feeds(net)
    made = counted(monkeypatch)
    out, pullback = run.vjp(feeds)
    pullback({name: np.ones_like(array) for name, array in out.items()})
    assert len(made) == len(run.plan(feeds).plan.compiled.kernels)
    assert max(launches.count for launches in made) <= 4 + of_tile * ceil(T / tile)
    assert sum(launches.count for launches in made) <= 2 * (4 + of_tile * ceil(T / tile))


@own_products
def test_launches_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two a step, and products of tiles."""
    net = lstm_net()
    run, feeds = device(STEP_BY_STEP)(net), lstm_feeds(net)
    made = counted(monkeypatch)
    out, pullback = run.vjp(feeds)
    pullback({name: np.ones_like(array) for name, array in out.items()})
    assert max(launches.count for launches in made) <= 2 * T + 4 + 3 * ceil(T / 2)


@pytest.mark.parametrize(("cell", "waits"), [(ro.LSTM, 1), (ro.MILSTM, 1), (ro.LayerNormLSTM, 2)])
def test_waits_of_a_step(cell: Any, waits: int) -> None:
    """A wait before each product, and one before what looks at whole rows of it; two where a group's rows end."""
    net = lstm_net(cell)
    source = device()(net).plan(lstm_feeds(net)).source
    kernels = [part.split("\n\n\n")[0] for part in source.split("@scan_kernel")[1:]]
    loops = [kernel for kernel in kernels if "step_product(" in kernel]
    assert [loop.count("await_group(counters, ") for loop in loops] == [waits + 2, waits + 2]
    assert "cuda.shared.array(0, types.float64" in source


def delayed_net() -> ro.Net:
    """A state that is the input, read a step later, of which the last alone is kept: no cycle, but steps in order."""
    cell = ro.Net("cell")
    x, before = cell.inputs("x_t", "s_prev")
    cell.outputs(s_t=ro.tanh(x), y_t=ro.identity(before))
    net = ro.Net("delayed")
    xs, start = net.inputs("xs", "s0")
    y_all, s_last = recurrent_outputs(net, cell, xs, start)
    net.outputs(y=y_all, last=s_last)
    return net


def recurrent_outputs(net: ro.Net, cell: ro.Net, xs: ro.Blob, start: ro.Blob) -> tuple[ro.Blob, ro.Blob]:
    _, last, y_all, _ = ro.recurrent_net(
        net, cell, inputs=[("x_t", xs)], initial_cell_inputs=[("s_prev", start)], links={"s_prev": "s_t"}
    )
    return y_all, last


@pytest.mark.parametrize("tile", [1, 3, 6])
def test_states_without_a_cycle_go_in_order_where_steps_meet(tile: int) -> None:
    random = np.random.default_rng(0)
    feeds = {"xs": random.normal(size=(6, N, H)), "s0": random.normal(size=(N, H))}
    tuning = Options(tile=tile, around="rows", device=BLOCKS)
    device = {"cuda": lambda net: ro.compile(net, device="cuda", tuning=tuning)}
    ro.testing.check_devices(delayed_net(), feeds, device)


@in_simulator
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if members > 1", "if members > 99"),
        ("add_release(counters, line, ", "cuda.atomic.add(counters, line, "),
        ("while np.int64(load_acquire(counters, line))", "while np.int64(cuda.atomic.add(counters, line, 0))"),
    ],
    ids=["no wait", "no release", "no acquire"],
)
def test_without_waits_blocks_race(right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where blocks wait, and nothing makes what they wrote visible."""
    text = lane_functions.groups_source()
    assert right in text
    monkeypatch.setattr(lane_functions, "groups_source", lambda: text.replace(right, wrong))
    net = lstm_net()
    with pytest.raises(RaceError):
        device()(net)(lstm_feeds(net))


def test_a_wrong_index_is_an_error() -> None:
    net = ro.Net("table")
    net.outputs(y=ro.gather(net.input("table"), net.input("rows", "int64"), axis=0))
    with pytest.raises(ro.TypeRuleError, match="out of range"):
        device()(net)(table=np.ones((3, 2)), rows=np.array([0, 7]))


def test_nan_reaches_its_row_alone() -> None:
    net = lstm_net()
    feeds = lstm_feeds(net)
    clean = device()(net)(feeds)["h_all"]
    feeds["xs"][1, 0, 0] = np.nan
    came = device()(net)(feeds)["h_all"]
    assert np.isnan(came[1:, 0]).all()
    np.testing.assert_array_equal(came[:, 1:], clean[:, 1:])


@in_simulator
def test_devices_are_listed() -> None:
    names = {one.name: one for one in ro.devices()}
    assert list(names) == ["reference", "cpu", "cuda"]
    assert str(names["cuda"]).startswith("cuda: simulator")
    assert "bits" in str(names["cpu"])


@pytest.mark.parametrize("lanes", [0, 257])
def test_numbers_of_lanes_that_shared_memory_does_not_hold(lanes: int) -> None:
    with pytest.raises(ro.DeviceError, match="from 1 to 256"):
        Cuda(lanes)


def test_without_simulator_or_device_an_error_says_so() -> None:
    code = """
import rnnops as ro
net = ro.Net("n")
net.outputs(y=ro.tanh(net.input("x")))
try:
    ro.compile(net, device="cuda")
except ro.DeviceError as error:
    print(error)
print(*ro.devices(), sep="\\n")
"""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    error, _, cpu, cuda = done.stdout.splitlines()
    assert error.startswith("net 'n': no CUDA device")
    assert cpu.startswith("cpu: ")
    assert "driver" in cuda
