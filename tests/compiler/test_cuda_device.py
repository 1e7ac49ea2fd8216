"""The CUDA device in numba's simulator: golden values, random nets, cells of all kinds, for any number of lanes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import golden_cases
import numpy as np
import pytest
from test_golden import results as golden_results
from word_nets import feeds_of as word_feeds, words_net

import rnnops as ro
from rnnops.compiler import cuda_target
from rnnops.compiler.cuda_target import Cuda
from rnnops.compiler.scan.compiled_scan import Options
from rnnops.kernels.cuda import facade
from rnnops.testing import random_net

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not facade.SIMULATED, reason="scans run in the simulator so far")]
H, N, T = 4, 3, 4


def device(lanes: int = 3, **options: Any) -> Callable[[ro.Net], ro.Run]:
    """Several tiles, all ops that can be fused, blocks of some lanes."""
    tuning = Options(tile=2, least_work=0, device=Cuda(lanes))
    return lambda net: ro.compile(net, device="cuda", tuning=tuning, **options)


@pytest.mark.parametrize(
    "name", ["basic_rnn_tanh_drop", "lstm", "lstm_state1d", "milstm", "gru_lbr", "layer_norm_lstm", "attention_dot_mem"]
)
def test_agrees_with_caffe2(name: str) -> None:
    golden_results(golden_cases.load(name), device())


@pytest.mark.slow
@pytest.mark.parametrize("name", golden_cases.NAMES)
def test_every_cell_agrees_with_caffe2(name: str) -> None:
    golden_results(golden_cases.load(name), device(lanes=5))


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 6])
def test_random_nets(seed: int) -> None:
    random = random_net(seed)
    ro.testing.check_devices(random.net, random.feeds, {"cuda": device()}, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10, 110, 10))
def test_many_random_nets(first: int) -> None:
    for seed in range(first, first + 10):
        random = random_net(seed)
        ro.testing.check_devices(random.net, random.feeds, {"cuda": device(lanes=2)}, seed=1)


def lstm_net(**options: Any) -> ro.Net:
    net = ro.Net("lstm")
    outputs = ro.LSTM(net, net.input("xs"), net.input("lengths", "int32"), None, 2, H, **options)
    net.outputs(**dict(zip(("h_all", "h_last", "c_all", "c_last"), outputs, strict=True)))
    return net


def lstm_feeds(net: ro.Net) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    given = {"xs": random.normal(size=(T, N, 2)), "lengths": np.array([4, 0, 2], "int32")}
    return {**{spec.name: random.normal(size=spec.shape) for spec in net.parameters}, **given}


@pytest.mark.parametrize("lanes", [1, 2, 7, 16])
def test_lengths_and_recompute_for_any_lanes(lanes: int) -> None:
    net = lstm_net(memory_optimization=True)
    ro.testing.check_devices(net, lstm_feeds(net), {"cuda": device(lanes)})


def test_lanes_change_no_bit_but_of_sums_within_a_row() -> None:
    net = lstm_net()
    feeds = lstm_feeds(net)
    one, several = (device(lanes)(net)(feeds) for lanes in (1, 5))
    for name, array in one.items():
        assert several[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("options", [{"memory_budget": 0.6}, {"checkpoints": ro.checkpoints.Slots(2, steps=2)}])
def test_budgets(options: dict[str, Any]) -> None:
    net = lstm_net()
    ro.testing.check_devices(net, lstm_feeds(net), {"cuda": device(**options)})


def test_recurrences_within_cells() -> None:
    ro.testing.check_devices(words_net(), word_feeds(), {"cuda": device(2)})


def test_a_scan_is_one_launch_and_its_kernel_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[Any] = []
    launch = cuda_target.launch
    monkeypatch.setattr(cuda_target, "launch", lambda *given: launches.append(given) or launch(*given))
    net = lstm_net()
    run, feeds = device()(net), lstm_feeds(net)
    plan = run.plan(feeds)
    assert "@cuda.jit\ndef scan(" in plan.source
    out, pullback = run.vjp(feeds)
    assert len(launches) == len(plan.plan.compiled.forward)
    pullback({name: np.ones_like(array) for name, array in out.items()})
    assert len(launches) == len(plan.plan.compiled.kernels)


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
