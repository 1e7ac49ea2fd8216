"""`pullback.layers` on the CUDA device: gradients of the whole pullback, where feeds were, and memory given back."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_marks import in_simulator, on_cuda
from cuda_runs import TUNING, assert_same, on_device, staying
from elsewhere import Elsewhere
from whole_grid import whole_grid

import rnnops as ro
from rnnops.compiler.api import cuda_run
from rnnops.compiler.memory.memory import on_host
from rnnops.kernels.cuda import device_array, memory
from rnnops.kernels.cuda.device_array import DeviceArray

pytestmark = on_cuda
T, N, D, H = 3, 2, 3, 4


@pytest.fixture(autouse=True)
def _all_blocks_at_once() -> Iterator[None]:
    with whole_grid():
        yield


def stacked() -> ro.Net:
    """A layer by name, a stack, and one that shares a parameter with the first."""
    net = ro.Net("stacked")
    v = net.parameter("v", (D, D))
    with net.layer("below"):
        x = ro.tanh(net.input("x") @ v)
    h, *_ = ro.LSTM(net, x, net.input("lengths", "int32"), None, D, [H, D], scope="s")
    with net.layer("top"):
        y = ro.tanh(h @ ro.transpose(v, [1, 0])) @ net.parameter("w", (D, 2))
        net.outputs(y=y - ro.reduce_max(y, axes=[0, 1, 2]))  # which is not row by row
    return net


def feeds_of(net: ro.Net) -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(T, N, D))
    return {**ro.init_params(net, 0, "float64"), "x": x, "lengths": np.array([3, 2], "int32")}


def by_layers(run: ro.Run, feeds: dict[str, Any], **options: Any) -> tuple[list[list[str]], dict[str, Any], list[Any]]:
    """Names, gradients and layer gradients; what is yielded is spoilt, as an optimizer may."""
    out, pullback = run.vjp(feeds)
    ones = np.ones(out["y"].shape)
    names, grads, of_inputs = [], {}, []
    for params, values, found, inputs in pullback.layers({"y": ones}, **options):
        assert all(feeds[name] is value for name, value in zip(params, values, strict=True))
        names.append(params)
        grads.update({name: grad.copy() for name, grad in zip(params, found, strict=True)})
        of_inputs.append({name: grad.copy() for name, grad in inputs.items()})
        for array in (*values, *found, *inputs.values()):
            array[...] = np.nan
    return names, grads, of_inputs


@pytest.mark.parametrize("place", [dict, on_device])
def test_gradients_are_those_of_the_whole_pullback_and_of_the_reference(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = stacked()
    feeds, kind = feeds_of(net), np.ndarray if place is dict else DeviceArray
    run = ro.compile(net, device="cuda", tuning=TUNING)
    copies = {name: array.copy() for name, array in feeds.items()}
    wanted = by_layers(ro.compile(net, device="reference"), copies, output=["top", "below"])
    out, pullback = run.vjp(place(feeds))
    whole = pullback({"y": np.ones(out["y"].shape)})
    if place is dict:
        names, grads, of_inputs = by_layers(run, dict(feeds), output=["top", "below"])
    else:
        given = place(feeds)
        with staying(monkeypatch):
            names, grads, of_inputs = by_layers(run, given, output=["top", "below"])
    assert names == wanted[0]
    assert [list(found) for found in of_inputs] == [list(found) for found in wanted[2]]
    assert_same(grads, wanted[1], kind)
    assert_same(grads, {name: on_host(grad) for name, grad in whole.items()}, kind)
    for came, exact in zip(of_inputs, wanted[2], strict=True):
        assert_same(came, exact, kind)


@pytest.mark.parametrize("options", [{"checkpoints": ro.checkpoints.Slots(2)}, {"checkpoints": "memory"}], ids=str)
def test_with_less_kept(options: dict[str, Any]) -> None:
    net = ro.Net("kept")
    h, *_ = ro.LSTM(net, net.input("x"), None, None, D, [H, D], scope="s")
    net.outputs(y=h)
    feeds = {name: array for name, array in feeds_of(net).items() if name in net.input_names}
    copies = {name: array.copy() for name, array in feeds.items()}
    wanted = by_layers(ro.compile(net, device="reference", **options), copies)
    names, grads, _ = by_layers(ro.compile(net, device="cuda", tuning=TUNING, **options), on_device(feeds))
    assert names == wanted[0]
    assert_same(grads, wanted[1], DeviceArray)


@in_simulator
def test_arrays_of_other_libraries_are_yielded_as_they_were_fed() -> None:
    """They may be written in place: what is still to be read of their memory (by another name) is copied before."""
    net = ro.Net("product")
    x, w = net.inputs("x", "w")
    with net.layer("below"):
        h = ro.tanh(x @ w)
    with net.layer("above"):
        net.outputs(y=h @ net.parameter("v", (D, D)))
    random = np.random.default_rng(0)
    feeds = {name: random.normal(size=(D, D)) for name in ("x", "w")}
    feeds["v"] = feeds["w"]
    wanted = by_layers(ro.compile(net, device="reference"), {name: array.copy() for name, array in feeds.items()})
    given = {name: Elsewhere(array) for name, array in feeds.items()}
    out, pullback = ro.compile(net, device="cuda", tuning=TUNING).vjp(given)
    grads = {}
    for names, values, found, _ in pullback.layers({"y": np.ones(out["y"].shape)}):
        for name, value, grad in zip(names, values, found, strict=True):
            assert value is given[name]
            grads[name] = grad
            value.array[...] = np.nan
    assert_same(grads, wanted[1], DeviceArray)


@in_simulator
def test_what_no_layer_below_reads_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a loop that deletes what it got, the gradients of one layer are there; kept activations become fewer."""
    rows, width, layers = 1, 16, 4
    net = ro.Net("chain")
    h = net.input("x")
    for k in range(layers):
        with net.layer(f"fc{k}"):
            h = ro.tanh(h @ net.parameter(f"w{k}", (width, width)))
    net.outputs(y=h)
    feeds = on_device({**ro.init_params(net, 0, "float64"), "x": np.ones((rows, width))})
    run = ro.compile(net, device="cuda", tuning=TUNING)
    alive: weakref.WeakSet[memory.MemoryPiece] = weakref.WeakSet()
    held: list[int] = []

    class Watched(memory.MemoryPiece):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            alive.add(self)
            held.append(sum(one.nbytes for one in alive))

    def most(use: Any) -> int:
        use(run.vjp(feeds, wrt=[f"w{k}" for k in range(layers)])[1])  # plans are made
        _, pullback = run.vjp(feeds, wrt=[f"w{k}" for k in range(layers)])
        alive.clear()
        held[:] = [0]
        with monkeypatch.context() as patch:
            patch.setattr(device_array, "MemoryPiece", Watched)
            use(pullback)
        return max(held)

    def loop(pullback: Any) -> None:
        for step in pullback.layers(np.ones((rows, width))):
            del step

    one, slack = width * width * 8, 1024  # activations, numbers that kernels read
    assert most(lambda pullback: pullback(np.ones((rows, width)))) >= layers * one
    assert most(loop) <= one + slack


@in_simulator
def test_layers_go_into_their_stream_and_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net = stacked()
    out, pullback = ro.compile(net, device="cuda", tuning=TUNING).vjp(on_device(feeds_of(net)))
    waits: list[tuple[Any, Any]] = []
    monkeypatch.setattr(cuda_run, "wait_for", lambda before, stream: waits.append((before, stream)))
    pullback.stream = "forward"
    steps = pullback.layers({"y": np.ones(out["y"].shape)}, stream=0)
    assert waits == [("forward", 0)]
    next(steps)
    assert waits == [("forward", 0), (0, "forward")], "memory that was freed is used again in the stream of vjp"
    assert memory.current_stream() == 0
    steps.close()


def test_a_loop_that_stops_gives_back_what_was_lent() -> None:
    net = ro.Net("lent")
    h, *_ = ro.LSTM(net, net.input("x"), None, None, D, [H, D], scope="s")
    net.outputs(y=h)
    feeds = on_device({name: array for name, array in feeds_of(net).items() if name in net.input_names})
    run = ro.compile(net, device="cuda", tuning=TUNING)
    for use in (next, lambda steps: None):
        out, pullback = run.vjp(feeds)
        assert not out["y"].flags.writeable
        steps = pullback.layers({"y": np.ones(out["y"].shape)})
        del pullback
        use(steps)
        assert not out["y"].flags.writeable
        del steps
        assert out["y"].flags.writeable


def test_wrong_names_and_a_second_use_are_errors_before_the_loop() -> None:
    net = stacked()
    out, pullback = ro.compile(net, device="cuda", tuning=TUNING).vjp(feeds_of(net))
    ones = {"y": np.ones_like(out["y"])}
    with pytest.raises(ro.GradientError, match="'nowhere': freeze names no layer"):
        pullback.layers(ones, freeze="nowhere")
    assert len(list(pullback.layers(ones, freeze="top"))) == 1
    with pytest.raises(ro.GradientError, match="used already"):
        pullback.layers(ones)
