"""Lengths, reverse order and empty sizes of a recurrence against NumPy loops: outputs and all gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import assert_agrees, assert_alone, random_arrays
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

T, N, D = 5, 4, 2
LENGTHS = np.array([5, 3, 0, 1], "int32")


def masked_net(drop: bool | None, reverse: bool = False, listed: list[str] | None = None) -> ro.Net:
    """`h = tanh(x w + h)`, with lengths unless `drop` is None; a step output `y = h * h` beside the state."""
    cell = ro.Net("masked")
    x, h, w = cell.inputs("x", "h", "w")
    new = ro.tanh((x @ w + h).named("sum"))
    if drop is not None:
        lengths, timestep = cell.input("lengths", "int32"), cell.input("timestep", "int32")
        new = ro.select_valid(new, h, lengths, timestep, drop=drop)
    cell.outputs(h_t=new, y=new * new)
    net = ro.Net("outer")
    xs, h0 = net.inputs("xs", "h0")
    blobs = ro.recurrent_net(
        net,
        cell,
        [("x", xs)],
        [("h", h0)],
        {"h": "h_t"},
        reverse=reverse,
        recompute_blobs_on_backward=listed,
        timestep=None if drop is None else "timestep",
    )
    net.outputs(h_all=blobs[0], h_last=blobs[1], y_all=blobs[2], y_last=blobs[3])
    return net


def masked_loop(drop: bool | None, reverse: bool = False) -> Any:
    def loop(xs: np.ndarray, h0: np.ndarray, w: np.ndarray, lengths: np.ndarray | None = None) -> dict[str, np.ndarray]:
        steps, h = np.zeros((*xs.shape[:2], len(w))), h0
        for t in range(len(xs))[:: -1 if reverse else 1]:
            new = np.tanh(xs[t] @ w + h)
            if lengths is not None:
                new = np.where((t < lengths)[:, None], new, 0 * h if drop else h)
            h = steps[t] = new
        return {"h_all": steps, "h_last": h[None], "y_all": steps**2, "y_last": h[None] ** 2}

    return loop


def feeds(lengths: bool) -> dict[str, np.ndarray]:
    arrays = random_arrays(xs=(T, N, D), h0=(N, D), w=(D, D))
    return {**arrays, "lengths": LENGTHS} if lengths else arrays


@pytest.mark.covering(2)
@pytest.mark.parametrize("listed", [None, ["sum"]])
@pytest.mark.parametrize(
    ("drop", "reverse"), [(None, False), (False, False), (True, False), (None, True), (False, True)]
)
def test_lengths_and_reverse(drop: bool | None, reverse: bool, listed: list[str] | None) -> None:
    assert_agrees(masked_net(drop, reverse, listed), feeds(drop is not None), masked_loop(drop, reverse))


def test_past_the_end_a_state_is_what_it_was_and_with_drop_zero() -> None:
    kept, dropped = (on_device(masked_net(drop))(feeds(True))["h_all"] for drop in (False, True))
    for row, length in enumerate(LENGTHS):
        before = feeds(True)["h0"][row] if length == 0 else kept[length - 1, row]
        assert np.array_equal(kept[length:, row], np.broadcast_to(before, (T - length, D)))
        assert not dropped[length:, row].any()
        assert np.array_equal(kept[:length, row], dropped[:length, row])


def test_reversed_row_starts_at_its_own_end() -> None:
    """Row n of a reversed run with lengths is that of the row alone, cut to its length."""
    arrays = feeds(True)
    whole = on_device(masked_net(False, reverse=True))(arrays)
    for row, length in enumerate(LENGTHS):
        alone = {"xs": arrays["xs"][:length, row : row + 1], "h0": arrays["h0"][row : row + 1], "w": arrays["w"]}
        if length:
            out = on_device(masked_net(None, reverse=True))(alone)
            np.testing.assert_allclose(whole["h_all"][:length, row], out["h_all"][:, 0], rtol=1e-14)
            np.testing.assert_allclose(whole["h_last"][0, row], out["h_all"][0, 0], rtol=1e-14)
        else:
            assert np.array_equal(whole["h_last"][0, row], arrays["h0"][row])


def test_reversed_results_belong_to_their_time_and_last_to_the_last_executed_step() -> None:
    out = on_device(masked_net(None, reverse=True))(feeds(False))
    assert np.array_equal(out["h_last"][0], out["h_all"][0])
    assert np.array_equal(out["y_last"][0], out["y_all"][0])
    forward = on_device(masked_net(None))({**feeds(False), "xs": feeds(False)["xs"][::-1]})
    assert np.array_equal(out["h_all"], forward["h_all"][::-1])


def test_reversed_timestep_is_the_time() -> None:
    cell = ro.Net("timed")
    h, t = cell.input("h"), cell.input("t", "int32")
    cell.outputs(h_t=h * 1.0, time=t)
    net = ro.Net("outer")
    blobs = ro.recurrent_net(net, cell, [], [("h", net.input("h0"))], {"h": "h_t"}, timestep="t", steps=3, reverse=True)
    net.outputs(time=blobs[2], last=blobs[3])
    out = on_device(net)(h0=np.zeros((1, 1)))
    assert out["time"].tolist() == [[0], [1], [2]]
    assert out["last"].tolist() == [[0]]


def test_reverse_with_a_dropped_state_is_an_error() -> None:
    with pytest.raises(ro.RecurrentError, match="initial state") as caught:
        masked_net(True, reverse=True)
    assert caught.value.hint


def test_both_directions_in_one_net() -> None:
    cell = ro.Net("direction")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=ro.tanh(x @ w + h))
    net = ro.Net("bidirectional")
    xs, h0 = net.inputs("xs", "h0")
    forward, backward = (
        ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, scope=scope, reverse=reverse)[0]
        for scope, reverse in (("forward", False), ("backward", True))
    )
    net.outputs(joined=ro.concat([forward, backward], axis=-1))

    def loop(xs: np.ndarray, h0: np.ndarray, forward_w: np.ndarray, backward_w: np.ndarray) -> dict[str, np.ndarray]:
        first = masked_loop(None)(xs, h0, forward_w)["h_all"]
        return {"joined": np.concatenate([first, masked_loop(None, True)(xs, h0, backward_w)["h_all"]], axis=-1)}

    arrays = random_arrays(xs=(T, N, D), h0=(N, D))
    arrays |= {f"{scope}/w": w for scope, w in random_arrays(3, forward=(D, D), backward=(D, D)).items()}
    assert_agrees(net, arrays, loop)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(D,), (N, D), (1, N, D)])
def test_no_steps(shape: tuple[int, ...], reverse: bool) -> None:
    """T = 0: `_all` is empty, `_last` the initial state, which alone has a gradient."""
    net = ro.Net("outer")
    xs, h0, w = net.inputs("xs", "h0", "w")
    cell = ro.Net("step")
    x, h, weight = cell.inputs("x", "h", "weight")
    cell.outputs(h_t=ro.tanh(x @ weight + h), y=h * 2.0)
    blobs = ro.recurrent_net(
        net,
        cell,
        [("x", xs)],
        [("h", h0)],
        {"h": "h_t"},
        references={"weight": w},
        reverse=reverse,
    )
    net.outputs(h_all=blobs[0], h_last=blobs[1], y_all=blobs[2])
    arrays = random_arrays(xs=(0, N, D), h0=shape, w=(D, D))
    run = on_device(net)
    out, pullback = run.vjp(arrays)
    assert out["h_all"].shape == out["y_all"].shape == (0, N, D)
    assert np.array_equal(out["h_last"], np.broadcast_to(arrays["h0"], (1, N, D)))
    assert_alone(run, "h_last", arrays, out["h_last"])
    grads = pullback({"h_all": np.ones((0, N, D)), "h_last": np.ones((1, N, D)), "y_all": np.ones((0, N, D))})
    assert grads["xs"].shape == (0, N, D)
    assert not grads["w"].any()
    assert np.array_equal(grads["h0"], np.full(shape, N if shape == (D,) else 1.0))


def test_no_rows() -> None:
    """N = 0: everything about rows is empty, gradients of what rows share are zero."""
    net = masked_net(False)
    arrays = {**random_arrays(xs=(T, 0, D), h0=(0, D), w=(D, D)), "lengths": np.zeros(0, "int32")}
    out, pullback = on_device(net).vjp(arrays)
    assert out["h_all"].shape == (T, 0, D)
    assert out["h_last"].shape == (1, 0, D)
    grads = pullback({"h_all": np.ones((T, 0, D))})
    assert grads["xs"].shape == (T, 0, D)
    assert not grads["w"].any()


@pytest.mark.covering(2)
@pytest.mark.parametrize(("steps", "rows"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("preset", [ro.LSTM, ro.MILSTM, ro.LayerNormLSTM, ro.LayerNormMILSTM, ro.GRU, ro.BasicRNN])
def test_empty_sizes_of_every_preset(preset: Any, steps: int, rows: int) -> None:
    net = ro.Net("empty")
    x, lengths = net.input("x"), net.input("lengths", "int32")
    h_all, h_last, *_ = preset(net, x, lengths, None, D, 3, memory_optimization=True)
    net.outputs(h_all=h_all, h_last=h_last)
    arrays = {**ro.init_params(net, 0), "x": np.ones((steps, rows, D), "float32"), "lengths": np.zeros(rows, "int32")}
    out, pullback = on_device(net).vjp(arrays)
    assert out["h_all"].shape == (steps, rows, 3)
    assert out["h_last"].shape == (1, rows, 3)
    assert not out["h_last"].any()
    grads = pullback({"h_all": np.ones((steps, rows, 3), "float32")})
    assert all(not grad.any() for grad in grads.values())
