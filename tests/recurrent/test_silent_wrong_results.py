"""What Caffe2's RecurrentNetwork got wrong without a word is right here, or an error that says what is wrong.

Section numbers are those of the project's notes on Caffe2 (`caffe2.md`).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from by_hand import assert_agrees, random_arrays
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

T, N, D = 4, 3, 2


def step_net(net: ro.Net, cell: ro.Net, states: dict[str, str], inputs: tuple[str, ...] = ("x",), **options):
    """`recurrent_net` with sequences and initial states named after the cell's inputs (`x` -> `xs`, `h` -> `h0`)."""
    sequences = [(name, net.input(f"{name}s")) for name in inputs]
    initial = [(name, net.input(f"{name}0")) for name in states]
    return ro.recurrent_net(net, cell, sequences, initial, states, **options)


def product_cell() -> ro.Net:
    """`h = tanh(x) * h'`, the cell of most of the notes' probes."""
    cell = ro.Net("product")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh(x).named("t") * h)
    return cell


def product_loop(xs: np.ndarray, h0: np.ndarray, **others: np.ndarray) -> dict[str, np.ndarray]:
    h, steps = h0 + np.zeros((N, D)), []
    for x in xs:
        h = np.tanh(x) * h
        steps.append(h)
    return {"h_all": np.stack(steps), "h_last": h[None]}


def net_of(cell: ro.Net, states: dict[str, str], **options) -> ro.Net:
    net = ro.Net("outer")
    blobs = step_net(net, cell, states, **options)
    net.outputs(**{blob.name: blob for blob in blobs})
    return net


def test_outer_blob_with_the_name_of_a_cell_internal_blob_is_left_alone() -> None:
    """1.7, 5.1: all steps silently wrote to the outer blob; gradients came out wrong."""
    net = ro.Net("outer")
    t = net.inputs("t")
    h_all, h_last = step_net(net, product_cell(), {"h": "h_t"})
    net.outputs(h_all=h_all, h_last=h_last, t_out=t * 2.0)

    def loop(t: np.ndarray, **feeds: np.ndarray) -> dict[str, np.ndarray]:
        return {**product_loop(**feeds), "t_out": t * 2}

    assert_agrees(net, random_arrays(t=(N, D), xs=(T, N, D), h0=(N, D)), loop)


def test_outer_op_output_is_not_captured_unless_it_is_named() -> None:
    """1.7, 5.1: any outer blob was captured; here only inputs, parameters and `.named` blobs are."""
    cell = ro.Net("reads_w")
    x, h, w = cell.inputs("x", "h", "mul_0")
    cell.outputs(h_t=x * h + w)
    net = ro.Net("outer")
    a = net.inputs("a")
    assert (a * 3.0).name == "mul_0"
    with pytest.raises(ro.RnnopsError, match="mul_0"):
        step_net(net, cell, {"h": "h_t"})


def test_recompute_reruns_producers_that_are_not_listed() -> None:
    """1.8: recompute was not transitive; a listed blob whose producers are unlisted, and not stored, is right here."""
    cell = ro.Net("chain")
    x, h, w = cell.inputs("x", "h", "w")
    first = ro.tanh(x @ w).named("first")
    second = ro.sigmoid(first * h).named("second")
    cell.outputs(h_t=(second @ w) * first)

    def loop(xs: np.ndarray, h0: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
        h, steps = h0, []
        for x in xs:
            first = np.tanh(x @ w)
            h = ((1 / (1 + np.exp(-first * h))) @ w) * first
            steps.append(h)
        return {"h_t_all": np.stack(steps), "h_t_last": h[None]}

    feeds = random_arrays(xs=(T, N, D), h0=(N, D), w=(D, D))
    results = [
        assert_agrees(net_of(cell, {"h": "h_t"}, recompute_blobs_on_backward=listed), feeds, loop)[1]
        for listed in (None, ["second"], ["first"], ["first", "second"])
    ]
    for name, grad in results[0].items():
        assert all(other[name].tobytes() == grad.tobytes() for other in results[1:]), name


def test_recompute_stays_right_after_a_longer_and_a_shorter_run() -> None:
    """1.8: workspaces were shared between runs of different T."""
    run = on_device(net_of(product_cell(), {"h": "h_t"}, recompute_blobs_on_backward=["t"]))
    for steps in (7, 4, 7, 1):
        feeds = random_arrays(steps, xs=(steps, N, D), h0=(N, D))
        grads = run.vjp(feeds)[1]({"h_t_last": np.ones((1, N, D))})
        rest = np.prod(np.tanh(feeds["xs"]), axis=0)
        np.testing.assert_allclose(grads["h0"], rest, rtol=1e-12)


def dropout_cell() -> ro.Net:
    cell = ro.Net("noisy")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh(ro.dropout(x * h + x, 0.5).named("dropped")) + h)
    return cell


@pytest.mark.parametrize("training", [True, False])
def test_recomputed_random_ops_replay_their_masks(training: bool) -> None:
    """1.8, 5.1: random ops were drawn anew on the backward pass, silently."""
    feeds, results = random_arrays(xs=(6, N, D), h0=(N, D)), []
    for listed in (None, ["dropped"]):
        net = net_of(dropout_cell(), {"h": "h_t"}, recompute_blobs_on_backward=listed)
        out, pullback = on_device(net).vjp(feeds, seed=5, training=training)
        results.append({**out, **pullback({"h_t_all": np.ones((6, N, D))})})
    for name, array in results[0].items():
        assert array.tobytes() == results[1][name].tobytes(), name


def test_ops_with_side_outputs_need_not_list_them() -> None:
    """1.8: Dropout's mask and LayerNorm's statistics had to be listed too, or the build failed without a message."""
    cell = ro.Net("normed")
    x, h, scale = cell.inputs("x", "h", "scale")
    cell.outputs(h_t=ro.tanh(ro.layer_normalization(x + h, scale).named("normed")))
    feeds, results = random_arrays(xs=(T, N, 5), h0=(N, 5), scale=(5,)), []
    for listed in (None, ["normed"]):
        out, pullback = on_device(net_of(cell, {"h": "h_t"}, recompute_blobs_on_backward=listed)).vjp(feeds)
        results.append(pullback({"h_t_all": np.ones_like(out["h_t_all"])}))
    for name, grad in results[0].items():
        assert np.abs(grad).max() > 0
        assert grad.tobytes() == results[1][name].tobytes(), name


def test_recompute_of_a_state_is_an_error() -> None:
    """1.8, 5.1: listing a blob that is a state's output gave wrong gradients silently."""
    cell = ro.Net("product")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=(x * h).named("new"))
    with pytest.raises(ro.RecurrentError, match="state cannot be recomputed") as caught:
        net_of(cell, {"h": "h_t"}, recompute_blobs_on_backward=["new"])
    assert caught.value.blob == "new"


def test_gradient_to_an_output_outside_outputs_with_grads_is_an_error() -> None:
    """1.9, 5.1: it was dropped silently, so that weights got a part of their gradient."""
    run = on_device(net_of(product_cell(), {"h": "h_t"}, outputs_with_grads=(0,)))
    feeds = random_arrays(xs=(T, N, D), h0=(N, D))
    with pytest.raises(ro.GradientError, match="outputs_with_grads"):
        run.vjp(feeds)[1]({"h_t_all": np.ones((T, N, D)), "h_t_last": np.ones((1, N, D))})


def state_used_inside(reshaped: bool) -> ro.Net:
    cell = ro.Net("used_twice")
    x, h = cell.inputs("x", "h")
    new = ro.tanh(x + h)
    new = ro.reshape(new, [0, -1]) if reshaped else new
    cell.outputs(h_t=new, y=new * new)
    return cell


@pytest.mark.parametrize("reshaped", [False, True])
def test_blob_with_gradient_through_its_link_and_inside_the_cell(reshaped: bool) -> None:
    """1.11, rows 1 and 2: also where the producer is a view."""

    def loop(xs: np.ndarray, h0: np.ndarray) -> dict[str, np.ndarray]:
        h, steps = h0, []
        for x in xs:
            h = np.tanh(x + h)
            steps.append(h)
        every = np.stack(steps)
        return {"h_t_all": every, "h_t_last": every[-1:], "y_all": every**2, "y_last": every[-1:] ** 2}

    net = net_of(state_used_inside(reshaped), {"h": "h_t"})
    assert_agrees(net, random_arrays(xs=(T, N, D), h0=(N, D)), loop)


def running_sum(xs: np.ndarray, h0: np.ndarray, w: np.ndarray | float = 0.0) -> dict[str, np.ndarray]:
    every = h0 + np.cumsum(xs + w, axis=0)
    return {"h_t_all": every, "h_t_last": every[-1:]}


@pytest.mark.parametrize("batch", [1, 3])
def test_sum_at_the_border_of_the_cell(batch: int) -> None:
    """1.11, rows 3, 5 and 9: `out = x + prev` gave uninitialised gradients; initial states of a batch were wrong."""
    cell = ro.Net("pass_through")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=x + h)
    assert_agrees(net_of(cell, {"h": "h_t"}), random_arrays(xs=(T, batch, D), h0=(batch, D)), running_sum)


def test_state_that_is_only_passed_on() -> None:
    """1.11, row 5, and 1.10: no op at all between the links, and a sequence that nobody reads."""
    cell = ro.Net("wires")
    x, a, b = cell.inputs("x", "a", "b")
    cell.outputs(a_t=b, b_t=a, x_t=x)

    def loop(xs: np.ndarray, a0: np.ndarray, b0: np.ndarray) -> dict[str, np.ndarray]:
        pairs = [(a0, b0) if t % 2 else (b0, a0) for t in range(T)]
        a_all, b_all = (np.stack(column) for column in zip(*pairs, strict=True))
        return {
            "a_t_all": a_all,
            "a_t_last": a_all[-1:],
            "b_t_all": b_all,
            "b_t_last": b_all[-1:],
            "x_t_all": xs,
            "x_t_last": xs[-1:],
        }

    assert_agrees(net_of(cell, {"a": "a_t", "b": "b_t"}), random_arrays(xs=(T, N, D), a0=(N, D), b0=(N, D)), loop)


def test_parameter_whose_gradient_is_the_states_own() -> None:
    """1.11, row 4: the parameter's gradient shared memory with that of a Sum."""
    cell = ro.Net("drift")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(h_t=x + h + w)
    net = net_of(cell, {"h": "h_t"})
    assert_agrees(net, random_arrays(xs=(T, N, D), h0=(N, D), w=(N, D)), running_sum)
    assert_agrees(net, random_arrays(xs=(T, N, D), h0=(N, D), w=(D,)), running_sum)


def test_one_blob_in_several_places() -> None:
    """1.11, row 6: one blob as two initial states, as two sequences, and as a reference."""
    cell = ro.Net("twins")
    x, y, a, b, w = cell.inputs("x", "y", "a", "b", "w")
    cell.outputs(a_t=a * x + w, b_t=b * y * a)
    net = ro.Net("outer")
    xs, s0 = net.inputs("xs", "s0")
    blobs = ro.recurrent_net(
        net, cell, [("x", xs), ("y", xs)], [("a", s0), ("b", s0)], {"a": "a_t", "b": "b_t"}, references={"w": s0}
    )
    net.outputs(a_all=blobs[0], b_last=blobs[3])

    def loop(xs: np.ndarray, s0: np.ndarray) -> dict[str, np.ndarray]:
        a, b, steps = s0, s0, []
        for x in xs:
            a, b = a * x + s0, b * x * a
            steps.append(a)
        return {"a_all": np.stack(steps), "b_last": b[None]}

    assert_agrees(net, random_arrays(xs=(T, N, D), s0=(N, D)), loop)


OUTPUTS = ("a_t_all", "a_t_last", "b_t_all", "b_t_last")


@pytest.mark.covering(1)
@pytest.mark.parametrize("weighted", [c for k in range(1, 5) for c in combinations(OUTPUTS, k)], ids="+".join)
def test_gradient_on_any_combination_of_outputs(weighted: tuple[str, ...]) -> None:
    """1.11, row 8: earlier only output 0 could have a gradient."""
    cell = ro.Net("pair")
    x, a, b = cell.inputs("x", "a", "b")
    cell.outputs(a_t=ro.tanh(x + b), b_t=a * b + x)

    def loop(xs: np.ndarray, a0: np.ndarray, b0: np.ndarray) -> dict[str, np.ndarray]:
        a, b, rows = a0, b0, []
        for x in xs:
            a, b = np.tanh(x + b), a * b + x
            rows.append((a, b))
        a_all, b_all = (np.stack(column) for column in zip(*rows, strict=True))
        return {"a_t_all": a_all, "a_t_last": a_all[-1:], "b_t_all": b_all, "b_t_last": b_all[-1:]}

    net = net_of(cell, {"a": "a_t", "b": "b_t"})
    assert_agrees(net, random_arrays(xs=(3, 2, 2), a0=(2, 2), b0=(2, 2)), loop, weighted)


def test_unused_inputs_and_states_have_zero_gradients() -> None:
    """1.10: an unused state or input of the cell was a bare KeyError."""
    cell = ro.Net("idle")
    _, h, _, _ = cell.inputs("x", "h", "idle", "w")
    cell.outputs(h_t=h * 2.0, idle_t=ro.constant(cell, np.ones((N, D))))
    net = net_of(cell, {"h": "h_t", "idle": "idle_t"})
    _, pullback = on_device(net).vjp(random_arrays(xs=(T, N, D), h0=(N, D), idle0=(N, D), w=(D,)))
    grads = pullback({"h_t_last": np.ones((1, N, D))})
    assert np.all(grads["h0"] == 2.0**T)
    assert not any(grads[name].any() for name in ("xs", "idle0", "w"))
