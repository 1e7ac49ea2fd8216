"""Runs on the CUDA device with arrays that stay there: the same numbers, no copies unasked for, clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from cuda_runs import TUNING, D, H, N, T, assert_same, feeds_of, model, on_device
from elsewhere import Elsewhere
from whole_grid import whole_grid

import rnnops as ro
from rnnops.compiler.api import cuda_run
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.targets.cuda.target import Cuda
from rnnops.kernels.cuda import device_array, facade, memory
from rnnops.kernels.cuda.device_array import DeviceArray

pytestmark = on_cuda


@pytest.fixture(autouse=True)
def _all_blocks_at_once() -> Iterator[None]:
    with whole_grid():
        yield


@pytest.mark.parametrize("place", [on_device, dict], ids=["device", "host"])
def test_results_are_where_feeds_were(place: Any) -> None:
    net = model()
    feeds, kind = feeds_of(net), DeviceArray if place is on_device else np.ndarray
    wanted, pullback = ro.compile(net, device="reference").vjp(feeds)
    ones = {name: np.ones_like(array) for name, array in wanted.items()}
    run = ro.compile(net, device="cuda", tuning=TUNING)
    assert_same(run(place(feeds)), wanted, kind)
    came, back = run.vjp(place(feeds))
    assert_same(came, wanted, kind)
    assert_same(back(place(ones)), pullback(ones), kind)


def test_gradients_may_come_from_either_side() -> None:
    net = model()
    feeds = feeds_of(net)
    out, pullback = ro.compile(net, device="reference").vjp(feeds)
    wanted = pullback({"y": np.ones_like(out["y"])})
    run = ro.compile(net, device="cuda", tuning=TUNING)
    assert_same(run.vjp(feeds)[1]({"y": ro.on_device(np.ones_like(out["y"]))}), wanted, np.ndarray)
    assert_same(run.vjp(on_device(feeds))[1]({"y": np.ones_like(out["y"])}), wanted, DeviceArray)


@in_simulator
def test_arrays_of_other_libraries_are_not_copied() -> None:
    net = ro.Net("double")
    net.outputs(y=net.input("x") * 2.0)
    run, x = ro.compile(net, device="cuda"), np.ones((2, 3))
    given = Elsewhere(x)
    assert (run(x=given)["y"].to_host() == 2).all()
    x[...] = 5
    assert (run(x=given)["y"].to_host() == 10).all()


def test_outputs_are_the_callers_own() -> None:
    net = ro.Net("same")
    x = net.input("x")
    net.outputs(x=x, again=x, part=ro.slice(x, [0], [1], [0]))
    x_fed = ro.on_device(np.ones((2, 3)))
    out = ro.compile(net, device="cuda")(x=x_fed)
    for name, array in out.items():
        array.fill(7)
        assert (x_fed.to_host() == 1).all(), name
    assert all((array.to_host() == 7).all() for array in out.values())


def test_a_mixture_is_an_error_that_names_what_is_where() -> None:
    net = model()
    feeds = feeds_of(net)
    run = ro.compile(net, device="cuda", tuning=TUNING)
    mixed = {**feeds, "x": ro.on_device(feeds["x"])}
    for call in (run, run.vjp):
        with pytest.raises(ro.FeedError, match=r"net 'model', blob 'x': some feeds are on the host"):
            call(mixed)
    with pytest.raises(ro.FeedError, match=r"blob 'lengths'.*on the host: lengths; on the device: .*ro.on_device"):
        run({**on_device(feeds), "lengths": feeds["lengths"]})
    with pytest.raises(ro.FeedError, match="not an array"):
        run({**feeds, "x": [1.0]})
    with pytest.raises(ro.FeedError, match="float64"):
        run({**on_device(feeds), "x": ro.on_device(feeds["x"].astype("float32"))})


def test_bound_parameters_are_on_neither_side() -> None:
    net = model()
    feeds = feeds_of(net)
    params = {spec.name: feeds[spec.name] for spec in net.parameters}
    rest = {name: array for name, array in feeds.items() if name not in params}
    wanted = ro.compile(net, device="reference")(feeds)
    bound = ro.compile(net, device="cuda", tuning=TUNING).bind(**params)
    params["a/i2h_w"][...] = 0  # copies were taken
    assert_same(bound(rest), wanted, np.ndarray)
    assert_same(bound(on_device(rest)), wanted, DeviceArray)
    with pytest.raises(ro.FeedError, match="no input"):
        bound.bind(nothing=params["a/i2h_w"])
    with pytest.raises(ro.errors.DeviceError, match=r"no products with weights of int8; .* weights='float16'"):
        bound.bind(weights="int8")


def test_plans_of_bound_runs_and_of_arrays_on_the_device() -> None:
    net = model()
    feeds = feeds_of(net)
    given = {name: feeds[name] for name in ("x", "lengths")}
    params = {name: array for name, array in feeds.items() if name not in given}
    run = ro.compile(net, device="cuda", tuning=TUNING)
    wanted = str(run.plan(feeds))
    assert str(run.bind(**params).plan(given)) == wanted
    assert str(run.plan(on_device(feeds))) == wanted
    assert run.memory_estimates(on_device(feeds)) == run.memory_estimates(feeds)


@pytest.mark.parametrize("place", [on_device, dict], ids=["device", "host"])
def test_lent_arrays_are_looked_at_where_they_are(place: Any) -> None:
    net = model()
    run, feeds = ro.testing.checked_loans(ro.compile(net, device="cuda", tuning=TUNING)), place(feeds_of(net))
    out, pullback = run.vjp(feeds)
    pullback({"y": np.ones(out["y"].shape)})
    _, pullback = run.vjp(feeds)
    feeds["x"][0] = 3.0
    with pytest.raises(ro.testing.CheckError, match="'x' was changed"):
        pullback({"y": np.ones(out["y"].shape)})


@in_simulator
@pytest.mark.parametrize(
    ("changes", "lacking", "problem"),
    [({"data": (0, False)}, None, "no address for 18 elements"), ({}, "data", "without data")],
)
def test_interfaces_that_tell_too_little(changes: dict[str, Any], lacking: str | None, problem: str) -> None:
    net = model()
    feeds = {name: Elsewhere(array) for name, array in feeds_of(net).items()}
    feeds["x"].__cuda_array_interface__ |= changes
    feeds["x"].__cuda_array_interface__.pop(lacking, None)
    with pytest.raises(ro.FeedError, match=f"blob 'x'.*{problem}"):
        ro.compile(net, device="cuda")(feeds)


class Negated(Elsewhere):
    """Its sign is a bit beside its memory, as PyTorch makes them."""

    def __init__(self, array: np.ndarray) -> None:
        super().__init__(-array)
        self.values = array

    def is_neg(self) -> bool:
        return True

    def resolve_neg(self) -> Elsewhere:
        return Elsewhere(self.values)


def test_signs_beside_the_memory_count() -> None:
    net = model()
    feeds = feeds_of(net)
    run = ro.compile(net, device="cuda")
    wanted, pullback = run.vjp(on_device(feeds))
    grads = pullback({"y": on_device({"y": np.ones(wanted["y"].shape)})["y"]})
    negated = {name: Negated(array) for name, array in feeds.items()}
    came, back = run.vjp(negated)
    assert (came["y"].to_host() == wanted["y"].to_host()).all()
    for name, grad in back({"y": Negated(np.ones(wanted["y"].shape))}).items():
        assert (grad.to_host() == grads[name].to_host()).all(), name
    bound = run.bind(x=negated["x"])({name: array for name, array in negated.items() if name != "x"})
    assert (bound["y"].to_host() == wanted["y"].to_host()).all()
    assert (ro.on_device(negated["x"]).to_host() == feeds["x"]).all()


def test_indices_are_checked_on_the_device() -> None:
    net = ro.Net("table")
    net.outputs(y=ro.gather(net.input("table"), net.input("rows", "int64"), axis=0))
    run = ro.compile(net, device="cuda")
    with pytest.raises(ro.TypeRuleError, match=r"op 'Gather.*7"):
        run(on_device({"table": np.ones((3, 2)), "rows": np.array([0, 7])}))
    out = run(on_device({"table": np.ones((3, 2)), "rows": np.array([0, 2])}))  # the next run knows nothing of it
    assert (out["y"].to_host() == 1).all()


def test_float16_weights_on_chip() -> None:
    net = ro.Net("half")
    h, *_ = ro.LSTM(net, net.input("x"), None, None, D, H)
    net.outputs(h=h)
    feeds = {name: array for name, array in feeds_of(net, "float32").items() if name in net.input_names}
    wanted, pullback = ro.compile(net, device="reference").vjp(feeds)
    ones = {"h": np.ones_like(wanted["h"])}
    exact = pullback(ones)
    for weights, least, most in (("float16", 2e-6, 2e-3), ("", 0, 2e-6)):
        tuning = Options(tile=2, device=Cuda(3, 2, weights=weights))
        came, back = ro.compile(net, device="cuda", tuning=tuning).vjp(feeds)
        grads = back(ones)
        errors = [np.abs(came["h"] - wanted["h"]).max()]
        errors += [np.abs(grads[name] - grad).max() / np.abs(grad).max() for name, grad in exact.items()]
        assert least <= max(errors) <= most


def test_float16_weights_are_for_float32_on_the_cuda_device() -> None:
    net = model()
    with pytest.raises(ro.DeviceError, match=r"net 'model': .*float32 feeds.*Leave weights="):
        ro.compile(net, device="cuda", weights="float16")(feeds_of(net))
    with pytest.raises(ro.DeviceError, match="'bfloat16'"):
        ro.compile(net, device="cuda", weights="bfloat16")
    with pytest.raises(ro.DeviceError, match="only for the CUDA device"):
        ro.compile(net, weights="float16")


@in_simulator
def test_streams_are_addresses_or_those_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facade, "SIMULATED", False)
    monkeypatch.setattr(facade.cuda, "external_stream", lambda ptr: SimpleNamespace(handle=ptr), raising=False)
    given = 7, SimpleNamespace(cuda_stream=8), SimpleNamespace(ptr=9)
    assert [facade.stream_of(one).handle for one in given] == [7, 8, 9]
    assert facade.stream_of(None) == facade.stream_of(0) == facade.stream_of(SimpleNamespace(cuda_stream=0)) == 0
    own = SimpleNamespace(handle=3, synchronize=print)
    assert facade.stream_of(own) is own
    for wrong, came in (("stream", "str"), (-1, "-1")):
        with pytest.raises(ro.DeviceError, match=f"not a stream.*got {came}"):
            facade.stream_of(wrong)


def test_a_stream_that_is_none_names_the_net() -> None:
    net = model()
    run, feeds = ro.compile(net, device="cuda"), feeds_of(net)
    with pytest.raises(ro.DeviceError, match="net 'model': not a stream"):
        run(feeds, stream="fast")
    out, pullback = run.vjp(feeds)
    with pytest.raises(ro.DeviceError, match="net 'model': not a stream"):
        pullback({"y": np.ones_like(out["y"])}, stream="fast")


def test_a_device_without_memory_is_an_error_that_names_the_net(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model()
    feeds = feeds_of(net)
    run = ro.compile(net, device="cuda", tuning=TUNING)

    def none_left(nbytes: int) -> Any:
        raise ro.DeviceError("the device is out of memory", wanted=f"{nbytes} bytes")

    monkeypatch.setattr(memory, "_allocated", none_left)
    with pytest.raises(ro.DeviceError, match=r"net 'model': the device is out of memory; wanted \d+ bytes"):
        run(feeds)
    monkeypatch.undo()
    run(feeds)  # and nothing is left of it


def test_profiles_and_blobs_of_steps() -> None:
    net = ro.Net("profiled")
    h, *_ = ro.LSTM(net, net.input("x"), None, None, D, H)
    net.outputs(h=ro.reshape(h, [T, N * H]))
    feeds = {name: array for name, array in feeds_of(net).items() if name in net.input_names}
    run = ro.compile(net, device="cuda", tuning=TUNING)
    for given in (feeds, on_device(feeds)):
        profile = run.profile(given, rounds=1, warm_up=0)
        assert "RecurrentNetworkGradient" in str(profile)
    kept = [name for name in run.vjp(feeds)[1].held_arrays() if "sigmoid" in name]
    blob = kept[0].split(":")[-1]
    on_host = run.vjp(feeds)[1].step_blobs(blob)
    there = run.vjp(on_device(feeds))[1].step_blobs(blob)
    assert type(on_host) is np.ndarray
    assert type(there) is DeviceArray
    np.testing.assert_array_equal(there.to_host(), on_host)


def test_a_cpu_run_refuses_arrays_of_the_device() -> None:
    net = model()
    with pytest.raises(ro.FeedError, match="a CUDA array is fed to a run on the CPU"):
        ro.compile(net)(on_device(feeds_of(net)))
    ro.testing.check_devices(net, on_device(feeds_of(net)), {"cuda": lambda n: ro.compile(n, "cuda", tuning=TUNING)})


def test_what_backward_reads_is_read_only() -> None:
    net = model()
    feeds = feeds_of(net)
    out, pullback = ro.compile(net, device="cuda", tuning=TUNING).vjp(on_device(feeds))
    with pytest.raises(ValueError, match="read-only"):
        out["y"].fill(9)
    pullback({"y": np.ones(out["y"].shape)})
    out["y"].fill(9)  # then it is the caller's


@in_simulator
def test_what_is_lent_is_given_to_other_libraries_and_a_change_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch takes nothing that is read-only, and knows no array that is: checksums find out."""
    net = model()
    run = ro.testing.checked_loans(ro.compile(net, device="cuda", tuning=TUNING))
    out, pullback = run.vjp(on_device(feeds_of(net)))
    assert not out["y"].flags.writeable
    with monkeypatch.context() as patch:
        patch.setattr(device_array, "SIMULATED", False)
        interface = out["y"].__cuda_array_interface__
    assert interface["data"] == (out["y"].pointer, False)
    out["y"].on_simulated_device()[0] = 3.0  # as another library would
    with pytest.raises(ro.testing.CheckError, match=r"kept blob .* was changed"):
        pullback({"y": np.ones(out["y"].shape)})


@in_simulator
def test_a_pullback_in_another_stream_waits_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model()
    out, pullback = ro.compile(net, device="cuda", tuning=TUNING).vjp(on_device(feeds_of(net)))
    waits: list[tuple[Any, Any]] = []
    monkeypatch.setattr(cuda_run, "wait_for", lambda before, stream: waits.append((before, stream)))
    pullback.stream = "forward"
    pullback({"y": np.ones(out["y"].shape)}, stream=0)
    assert waits == [("forward", 0), (0, "forward")]


def test_training_under_a_byte_budget_and_with_dropout() -> None:
    net = ro.Net("dropped")
    h, *_ = ro.LSTM(net, net.input("x"), None, None, D, H, memory_optimization=True)
    net.outputs(loss=ro.reduce_mean(ro.dropout(h, 0.5)))
    feeds = {name: array for name, array in feeds_of(net).items() if name in net.input_names}
    wanted, pullback = ro.compile(net, device="reference").vjp(feeds, seed=3)
    run = ro.compile(net, device="cuda", tuning=TUNING, checkpoints="memory")
    came, back = run.vjp(on_device(feeds), seed=3)
    assert_same(came, wanted, DeviceArray)
    ones = {"loss": np.ones_like(wanted["loss"])}
    assert_same(back(on_device(ones)), pullback(ones), DeviceArray)


def test_a_plan_says_how_loops_run() -> None:
    net = model()
    text = str(ro.compile(net, device="cuda", tuning=TUNING).plan(feeds_of(net)))
    assert "one launch a tile: 1 group of 2 blocks, 1 wait a step" in text
    few = Options(tile=2, device=Cuda(lanes=3, blocks=2, shared_bytes=0))
    assert "weights do not fit on chip" in str(ro.compile(net, device="cuda", tuning=few).plan(feeds_of(net)))
