"""Which results may get a gradient (`outputs_with_grads`), and recurrences without any (`forward_only`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from by_hand import assert_agrees, random_arrays
from devices import DEVICES, device_name, on_device
from memory_probe import freed_with_pullback, growth, peak_of_run

import rnnops as ro
from rnnops.testing import check_devices, check_gradient

pytestmark = pytest.mark.usefixtures("device")

T, N, D = 4, 3, 2
FEEDS = random_arrays(xs=(T, N, D), a0=(N, D), b0=(N, D))


def pair(net: ro.Net, **options) -> tuple[ro.Blob, ...]:
    """Two states and a step output: results a_t_all, a_t_last, b_t_all, b_t_last, y_all, y_last."""
    cell = ro.Net("pair")
    x, a, b = cell.inputs("x", "a", "b")
    cell.outputs(a_t=ro.tanh(x + b), b_t=a * b + x, y=a * x)
    xs, a0, b0 = net.inputs("xs", "a0", "b0")
    return ro.recurrent_net(net, cell, [("x", xs)], [("a", a0), ("b", b0)], {"a": "a_t", "b": "b_t"}, **options)


def loop(xs: np.ndarray, a0: np.ndarray, b0: np.ndarray) -> dict[str, np.ndarray]:
    a, b, rows = a0, b0, []
    for x in xs:
        y = a * x
        a, b = np.tanh(x + b), a * b + x
        rows.append((a, b, y))
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    return {
        f"{name}_{part}": column if part == "all" else column[-1:]
        for name, column in zip(("a_t", "b_t", "y"), columns, strict=True)
        for part in ("all", "last")
    }


def all_outputs(**options) -> ro.Net:
    net = ro.Net("outer")
    net.outputs(*pair(net, **options))
    return net


def test_left_out_whatever_receives_a_gradient_has_one() -> None:
    assert_agrees(all_outputs(), FEEDS, loop)


def scalar_outputs(shown: tuple[str, ...], reverse: bool) -> ro.Net:
    """A recurrence with step outputs without axes: a function of the step, and one of a reference only."""
    cell = ro.Net("scalars")
    x, a, w = cell.inputs("x", "a", "w")
    new = ro.tanh(x + a)
    cell.outputs(a_t=new, step=ro.reduce_sum(new, keepdims=0), same=ro.reduce_max(w, keepdims=0))
    net = ro.Net("outer")
    xs, a0, w = net.inputs("xs", "a0", "w")
    options = {"references": {"w": w}, "reverse": reverse}
    results = ro.recurrent_net(net, cell, [("x", xs)], [("a", a0)], {"a": "a_t"}, **options)
    named = dict(zip(("a_all", "a_last", "step_all", "step_last", "same_all", "same_last"), results, strict=True))
    net.outputs(**{name: named[name] for name in shown})
    return net


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shown", [("step_last",), ("same_last",), ("step_all", "step_last", "same_all", "same_last")])
def test_gradients_of_the_last_step_of_outputs_without_axes(shown: tuple[str, ...], reverse: bool) -> None:
    net, feeds = scalar_outputs(shown, reverse), random_arrays(xs=(T, N, D), a0=(N, D), w=(2, D))
    if device_name() == "reference":
        check_gradient(net, feeds)
    else:
        check_devices(net, feeds, {device_name(): DEVICES[device_name()]})
    run = on_device(net)
    dys = {name: np.full_like(array, 0.5) for name, array in run(feeds).items()}
    first, *others = (run.vjp(feeds)[1](dys) for _ in range(4))  # later ones may be replayed
    for grads in others:
        np.testing.assert_equal(grads, first)


@pytest.mark.parametrize("allowed", [(0,), (3,), (1, 4), ("b_t_last",), (2, "y_all"), [0, 1, 2, 3, 4, 5]])
def test_given_outputs_have_their_gradients_and_others_are_errors(allowed: tuple[int | str, ...]) -> None:
    net = all_outputs(outputs_with_grads=allowed)
    names = list(net.output_blobs)
    permitted = [name for i, name in enumerate(names) if i in allowed or name in allowed]
    assert_agrees(net, FEEDS, loop, permitted)
    for name in set(names) - set(permitted):
        out, pullback = on_device(net).vjp(FEEDS)
        with pytest.raises(ro.GradientError, match="outputs_with_grads") as caught:
            pullback({name: np.ones_like(out[name])})
        assert caught.value.blob == name
        assert caught.value.net == "outer"
        assert "RecurrentNetwork" in caught.value.op


@pytest.mark.parametrize("later", [lambda b: b, lambda b: ro.tanh(b * 2.0), lambda b: ro.reduce_sum(b)])
def test_gradient_through_later_ops_is_an_error_and_others_still_pull_back(later: Callable[[ro.Blob], ro.Blob]) -> None:
    net = ro.Net("outer")
    a_all, a_last, b_all, *_ = pair(net, outputs_with_grads=(0,))
    net.outputs(a_t_all=a_all, through=later(b_all), mixed=later(a_last) + 1.0)
    run = on_device(net)
    for name in ("through", "mixed"):
        out, pullback = run.vjp(FEEDS)
        with pytest.raises(ro.GradientError, match="outputs_with_grads"):
            pullback({name: np.ones(out[name].shape)})
    _, pullback = run.vjp(FEEDS)
    grads = pullback({"a_t_all": np.ones((T, N, D))})
    plain = on_device(all_outputs()).vjp(FEEDS)[1]({"a_t_all": np.ones((T, N, D))})
    for name, grad in plain.items():
        assert np.array_equal(grads[name], grad), name


def test_output_beside_one_that_takes_no_gradient_may_be_used_with_it() -> None:
    """A comparison stops gradients, so that a value behind it is no way back."""
    net = ro.Net("outer")
    a_all, _, b_all, *_ = pair(net, outputs_with_grads=(0,))
    net.outputs(gated=ro.where(b_all > 0.0, a_all, 0.0))
    assert_agrees(net, FEEDS, lambda **feeds: {"gated": loop(**feeds)["a_t_all"] * (loop(**feeds)["b_t_all"] > 0)})


def nested(allowed: tuple[int, ...] | None, use: str) -> ro.Net:
    """A cell with a recurrence inside, one of whose results becomes a state or a step output."""
    cell = ro.Net("with_inner")
    sequence, h = cell.inputs("sequence", "h")
    inner = ro.Net("inner")
    x, a = inner.inputs("x", "a")
    inner.outputs(a_t=ro.tanh(x + a))
    every, last = ro.recurrent_net(cell, inner, [("x", sequence)], [("a", h)], {"a": "a_t"}, outputs_with_grads=allowed)
    summed = ro.reduce_sum(every, axes=[0], keepdims=0)
    flat = ro.squeeze(last, [0])
    cell.outputs(h_t=summed if use == "state" else flat, y=summed)
    net = ro.Net("outer")
    sequences, h0 = net.inputs("sequences", "h0")
    net.outputs(*ro.recurrent_net(net, cell, [("sequence", sequences)], [("h", h0)], {"h": "h_t"}))
    return net


NESTED_FEEDS = {"sequences": random_arrays(x=(2, 3, N, D))["x"], "h0": FEEDS["a0"]}


def test_gradient_to_a_forbidden_output_of_an_inner_recurrence_is_an_error() -> None:
    run = on_device(nested((1,), "output"))
    out, pullback = run.vjp(NESTED_FEEDS)
    with pytest.raises(ro.GradientError, match="outputs_with_grads"):
        pullback({"y_all": np.ones(out["y_all"].shape)})
    allowed, plain = (
        on_device(nested(outputs, "output")).vjp(NESTED_FEEDS)[1]({"h_t_all": np.ones(out["h_t_all"].shape)})
        for outputs in ((1,), None)
    )
    assert all(np.array_equal(allowed[name], plain[name]) for name in plain)
    with pytest.raises(ro.GradientError, match="outputs_with_grads"):
        on_device(nested((1,), "state")).vjp(NESTED_FEEDS)


def lstm(forward_only: bool, steps: bool = True) -> ro.Net:
    net = ro.Net("lstm")
    h_all, h_last, *_ = ro.LSTM(net, net.input("x"), None, None, 128, 128, forward_only=forward_only)
    net.outputs(y=h_all if steps else h_last)
    return net


def lstm_feeds(steps: int) -> dict[str, np.ndarray]:
    return {**ro.init_params(lstm(False), 0), "x": np.ones((steps, 256, 128), "float32")}


def test_forward_only_has_no_pullback() -> None:
    net = all_outputs(forward_only=True)
    run = on_device(net)
    with pytest.raises(ro.GradientError, match="forward_only") as caught:
        run.vjp(FEEDS)
    assert caught.value.net == "outer"
    for name, array in loop(**FEEDS).items():
        np.testing.assert_allclose(run(FEEDS)[name], array, rtol=1e-12)


def test_forward_only_beside_a_part_that_is_differentiated() -> None:
    net = ro.Net("outer")
    frozen = pair(net, forward_only=True)[1]
    v = net.input("v")
    net.outputs(y=v * 3.0 + frozen)
    run = on_device(net)
    _, pullback = run.vjp({**FEEDS, "v": np.ones((N, D))}, wrt=["v"])
    assert np.all(pullback(np.ones((1, N, D)))["v"] == 3)
    with pytest.raises(ro.GradientError, match="forward_only"):
        run.vjp({**FEEDS, "v": np.ones((N, D))})


@pytest.mark.parametrize("forward_only", [True, False])
@pytest.mark.parametrize("steps", [True, False])
def test_plain_run_has_no_more_than_its_outputs_however_long(forward_only: bool, steps: bool) -> None:
    """Neither states of which only the last step is an output, nor anything of a step, pile up with T."""
    unit = 4 * 256 * 128 * 4
    grown = growth(peak_of_run, lstm(forward_only, steps), lstm_feeds, 4) / unit
    assert grown == pytest.approx(1.0 if steps else 0.0, abs=0.05)


def test_states_and_outputs_that_backward_does_not_read_are_the_callers() -> None:
    """A running sum keeps nothing, its outputs stay writable, and dropping them frees them."""
    cell = ro.Net("running_sum")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=x + h, twice=x * 2.0)
    net = ro.Net("outer")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(*ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}))
    feeds = {"xs": np.ones((8, 64, 64)), "h0": np.zeros((64, 64))}
    out, pullback = on_device(net).vjp(feeds)
    assert all(array.flags.writeable for array in out.values())
    out["h_t_all"][...] = np.nan
    assert np.all(pullback({"h_t_last": np.ones((1, 64, 64))})["xs"] == 1)
    assert freed_with_pullback(net, feeds) < 64 * 64 * 8
