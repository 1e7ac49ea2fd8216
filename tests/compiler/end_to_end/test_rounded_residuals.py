"""`residuals="bfloat16"`: outputs stay, gradients err by a known measure, devices round the same, bytes are half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from devices import DEVICES, PLAIN
from rejection import rejects

import rnnops as ro
from rnnops.checkpoints.policy import Slots
from rnnops.ops.base import bits_of, numbers_of

T, N, D, H = 12, 4, 6, 8
MOST = 2.0**-6  # error of a gradient, as a share of its largest number; one rounding is off by 2^-9
OPTIONS: dict[str, dict[str, Any]] = {
    "reference": {"device": "reference"},
    "plain": {"tuning": PLAIN, "threads": 2},
    "cpu": {"threads": 2},
}
Arrays = dict[str, np.ndarray]


def model(preset: Callable[..., Any], lengths: bool = False) -> tuple[ro.Net, Arrays]:
    net = ro.Net("model")
    given = net.input("lengths", "int32") if lengths else None
    net.outputs(y=preset(net, net.input("x"), given, None, D, H, scope="s")[0])
    feeds = {**ro.init_params(net, 0, "float32"), "x": numbers(T, N, D)}
    return net, {**feeds, **({"lengths": np.array([T, 3, 0, 7], "int32")} if lengths else {})}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def trained(net: ro.Net, feeds: Arrays, **options: Any) -> tuple[Arrays, Arrays]:
    """Outputs and gradients."""
    out, pullback = ro.compile(net, **options).vjp(feeds)
    return out, pullback({name: numbers(*array.shape, seed=1) for name, array in out.items()})


def error(came: Arrays, wanted: Arrays) -> float:
    """The largest, as a share of the largest number of its gradient."""
    assert came.keys() == wanted.keys()
    return max(np.abs(came[name] - wanted[name]).max() / np.abs(wanted[name]).max() for name in wanted)


@pytest.mark.parametrize("preset", [ro.LSTM, ro.GRU, ro.LayerNormMILSTM], ids=lambda preset: preset.__name__)
def test_outputs_stay_and_gradients_err_alike_on_all_devices(preset: Callable[..., Any]) -> None:
    net, feeds = model(preset, lengths=preset is ro.LSTM)
    found = {name: trained(net, feeds, residuals="bfloat16", **options) for name, options in OPTIONS.items()}
    for name, options in OPTIONS.items():
        out, grads = trained(net, feeds, **options)
        assert out["y"].tobytes() == found[name][0]["y"].tobytes()
        assert 2.0**-12 < error(found[name][1], grads) < MOST
        assert error(found[name][1], found["reference"][1]) < 1e-5


def test_what_is_kept_has_half_the_bytes_and_states_all_of_them() -> None:
    net, feeds = model(ro.GRU)
    exact, rounded = (ro.compile(net, residuals=how) for how in ("float32", "bfloat16"))
    table = {blob.name: blob for blob in rounded.saved_residuals(feeds).blobs if blob.status == "kept"}
    bits = {name: blob for name, blob in table.items() if name.endswith("/bits")}
    assert len(bits) == 3
    assert {(blob.dtype, blob.nbytes) for blob in bits.values()} == {("uint16", T * N * H * 2)}
    assert all(blob.dtype == "float32" for name, blob in table.items() if name not in bits)
    saved = 3 * T * N * H * 2
    assert exact.saved_residuals(feeds).total - rounded.saved_residuals(feeds).total == saved
    for part in ("forward", "backward"):
        kept = [getattr(run.plan(feeds).memory(), part).bytes_of("kept") for run in (exact, rounded)]
        assert kept[0] - kept[1] == saved
    assert rounded.memory_estimate("all", feeds).nbytes < exact.memory_estimate("all", feeds).nbytes
    assert "sigmoid_0/bits" in rounded.plan(feeds).describe()


@pytest.mark.parametrize("device", DEVICES)
def test_step_blobs_are_numbers(device: str) -> None:
    net, feeds = model(ro.GRU)
    exact, rounded = (
        ro.compile(net, residuals=how, **OPTIONS[device]).vjp(feeds)[1] for how in ("float32", "bfloat16")
    )
    for name in ("sigmoid_0", "tanh_0"):
        wanted = numbers_of(bits_of(exact.step_blobs(name)))
        assert np.array_equal(rounded.step_blobs(name), wanted)
    assert np.array_equal(rounded.step_blobs("s/hidden_t"), exact.step_blobs("s/hidden_t"))


def test_recurrences_in_parts() -> None:
    net, feeds = model(ro.GRU)
    _, grads = trained(net, feeds, checkpoints=Slots(2, "state", 4), residuals="bfloat16")
    assert error(grads, trained(net, feeds, residuals="bfloat16")[1]) < 1e-5
    assert 2.0**-12 < error(grads, trained(net, feeds)[1]) < MOST


def test_a_budget_for_what_is_rounded_lets_nothing_be_computed_again() -> None:
    net, feeds = model(ro.GRU)
    _, wanted = trained(net, feeds, residuals="bfloat16")
    budget = ro.compile(net, residuals="bfloat16").saved_residuals(feeds).total
    _, rounded = trained(net, feeds, residuals="bfloat16", memory_budget=budget)
    assert all(np.array_equal(rounded[name], wanted[name]) for name in wanted)
    for how, most in (("bfloat16", budget), ("float32", budget - 1)):
        assert ro.compile(net, residuals=how, memory_budget=budget).saved_residuals(feeds).total <= most


def test_what_is_computed_again_is_not_rounded() -> None:
    net, feeds = model(ro.LSTM)
    assert error(trained(net, feeds, checkpoints="memory", residuals="bfloat16")[1], trained(net, feeds)[1]) < 1e-6


def test_layer_by_layer_is_the_plain_pullback() -> None:
    net, feeds = model(ro.GRU)
    run = ro.compile(net, residuals="bfloat16")
    _, wanted = trained(net, feeds, residuals="bfloat16")
    pullback = run.vjp(feeds)[1]
    grads = {}
    for names, _, found, _ in pullback.layers({"y": numbers(T, N, H, seed=1)}):
        grads.update(zip(names, found, strict=True))
    assert all(np.array_equal(grads[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("device", DEVICES)
def test_what_backward_compares_stays_as_it_is(device: str) -> None:
    """A rounded number is not the largest of its row any more, which would then have no gradient at all."""
    cell = ro.Net("cell")
    x_t, h_prev = cell.inputs("x_t", "h_prev")
    z = ro.tanh(x_t + h_prev)
    cell.outputs(h_t=h_prev + z - ro.reduce_max(ro.exp(z) * z, axes=[-1], keepdims=1))
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.recurrent_net(net, cell, [("x_t", xs)], [("h_prev", h0)], {"h_prev": "h_t"})[0])
    feeds = {"xs": numbers(T, N, D), "h0": numbers(N, D)}
    _, exact = trained(net, feeds, checkpoints="all", **OPTIONS[device])
    _, rounded = trained(net, feeds, checkpoints="all", residuals="bfloat16", **OPTIONS[device])
    assert 0 < error(rounded, exact) < MOST
    kept = ro.compile(net, checkpoints="all", residuals="bfloat16", **OPTIONS[device]).saved_residuals(feeds)
    assert {blob.dtype for blob in kept.blobs if blob.status == "kept"} == {"float32", "uint16"}


def test_a_recurrence_inside_a_cell() -> None:
    inner = ro.Net("inner")
    a, s = inner.inputs("a", "s")
    inner.outputs(s_t=ro.tanh(ro.sigmoid(a) * s + a))
    cell = ro.Net("cell")
    x_t, h_prev = cell.inputs("x_t", "h_prev")
    sequence = ro.transpose(x_t, [1, 0, 2])
    steps, last = ro.recurrent_net(cell, inner, [("a", sequence)], [("s", h_prev)], {"s": "s_t"})
    cell.outputs(h_t=ro.tanh(ro.squeeze(last, [0]) + ro.reduce_mean(ro.exp(steps), axes=[0], keepdims=0)))
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.recurrent_net(net, cell, [("x_t", xs)], [("h_prev", h0)], {"h_prev": "h_t"})[0])
    feeds = {"xs": numbers(3, N, 2, D), "h0": numbers(N, D)}
    found = [trained(net, feeds, residuals="bfloat16", **OPTIONS[device])[1] for device in OPTIONS]
    assert 2.0**-12 < error(found[0], trained(net, feeds)[1]) < MOST
    assert max(error(grads, found[0]) for grads in found) < 1e-5


def test_a_name_that_is_taken() -> None:
    cell = ro.Net("cell")
    x_t, h_prev = cell.inputs("x_t", "h_prev")
    z = ro.tanh(x_t * h_prev).named("z")
    cell.outputs(h_t=ro.tanh((z * x_t).named("z/bits") * z))
    net = ro.Net("model")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.recurrent_net(net, cell, [("x_t", xs)], [("h_prev", h0)], {"h_prev": "h_t"})[0])
    feeds = {"xs": numbers(T, N, D), "h0": numbers(N, D)}
    kept = ro.compile(net, checkpoints="all", residuals="bfloat16").saved_residuals(feeds).blobs
    assert {"z/bits_1", "z/bits/bits"} <= {blob.name for blob in kept}
    found = (trained(net, feeds, checkpoints="all", residuals=how)[1] for how in ("bfloat16", "float32"))
    assert error(*found) < 4 * MOST  # of a cell that multiplies what it multiplies


def test_errors() -> None:
    net, feeds = model(ro.GRU)
    for wrong in ("float16", None, 16, np.zeros(2)):
        rejects(ro.CheckpointError, lambda wrong=wrong: ro.compile(net, residuals=wrong), "net 'model'", "residuals=")
    wide = {name: array.astype("float64") for name, array in feeds.items()}
    run = ro.compile(net, residuals="bfloat16")
    rejects(ro.CheckpointError, lambda: run.vjp(wide), "residuals=", "float32", "float64")
    assert run(wide)["y"].dtype == np.float64  # nothing is kept of a call
