"""Recurrences inside cells: values, gradients, references through both levels, recompute and random ops."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import assert_agrees, random_arrays
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

T, S, N, D = 3, 2, 2, 2


def inner_cell(noisy: bool = False) -> ro.Net:
    """`a = tanh(x + a w)`, with `pre` before the tanh."""
    cell = ro.Net("inner")
    x, a, w = cell.inputs("x", "a", "w")
    pre = (x + a * w).named("pre")
    cell.outputs(a_t=ro.tanh(ro.dropout(pre, 0.5) if noisy else pre))
    return cell


def outer_cell(noisy: bool = False, **options) -> ro.Net:
    """Runs the inner cell over the S steps of its input [N, S, D], from and to its own state."""
    cell = ro.Net("outer_cell")
    sequence, h = cell.inputs("sequence", "h")
    steps = ro.transpose(sequence, perm=[1, 0, 2])
    every, last = ro.recurrent_net(cell, inner_cell(noisy), [("x", steps)], [("a", h)], {"a": "a_t"}, **options)
    summed = ro.reduce_sum(every, axes=[0], keepdims=0).named("summed")
    cell.outputs(h_t=ro.squeeze(last, [0]) * 0.5 + h, y=summed, every=every)
    return cell


def nested_net(cell: ro.Net, last: bool = True, **options) -> ro.Net:
    net = ro.Net("outer")
    sequences, h0 = net.inputs("sequences", "h0")
    results = ro.recurrent_net(net, cell, [("sequence", sequences)], [("h", h0)], {"h": "h_t"}, **options)
    net.outputs(*(blob for blob in results if last or blob.name.endswith("_all")))
    return net


def nested_loop(sequences: np.ndarray, h0: np.ndarray, w: np.ndarray, reverse: bool = False) -> dict[str, np.ndarray]:
    h, rows = h0, []
    for sequence in sequences.transpose(0, 2, 1, 3):
        a, every = h, np.zeros_like(sequence)
        for s in range(len(sequence))[:: -1 if reverse else 1]:
            a = every[s] = np.tanh(sequence[s] + a * w)
        h = a * 0.5 + h
        rows.append((h, every.sum(axis=0), every))
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    return {
        f"{name}_{part}": column if part == "all" else column[-1:]
        for name, column in zip(("h_t", "y", "every"), columns, strict=True)
        for part in ("all", "last")
    }


FEEDS = {"sequences": random_arrays(x=(T, N, S, D))["x"], **random_arrays(1, h0=(N, D), w=(D,))}


@pytest.mark.parametrize("reverse", [False, True])
def test_values_and_gradients(reverse: bool) -> None:
    net = nested_net(outer_cell(reverse=reverse))
    assert "w <- w" in str(net)
    assert_agrees(net, FEEDS, lambda **feeds: nested_loop(**feeds, reverse=reverse))


@pytest.mark.covering(2)
@pytest.mark.parametrize("inner", [None, ["pre"]])
@pytest.mark.parametrize("outer", [None, ["summed"], ["a_t_all"], ["a_t_last"]])
def test_recompute_in_both_levels_changes_no_bit(inner: list[str] | None, outer: list[str] | None) -> None:
    results = []
    for lists in ((None, None), (inner, outer)):
        net = nested_net(outer_cell(recompute_blobs_on_backward=lists[0]), recompute_blobs_on_backward=lists[1])
        out, pullback = on_device(net).vjp(FEEDS)
        results.append(pullback({name: np.ones_like(array) for name, array in out.items()}))
    for name, grad in results[0].items():
        assert grad.tobytes() == results[1][name].tobytes(), name


@pytest.mark.parametrize("outer", [None, ["summed"], ["a_t_last"]])
def test_random_ops_inside_draw_anew_at_every_outer_step_and_replay(outer: list[str] | None) -> None:
    feeds = {"sequences": np.ones((6, 1, 4, 32)), "h0": np.zeros((1, 32)), "w": np.zeros(32)}
    net = nested_net(outer_cell(noisy=True), recompute_blobs_on_backward=outer)
    out, pullback = on_device(net).vjp(feeds, seed=3)
    masks = out["every_all"] != 0
    assert len({masks[t, s].tobytes() for t in range(6) for s in range(4)}) == 24
    grads = pullback({"every_all": np.ones_like(out["every_all"])})
    slopes = np.where(masks, 2 * (1 - np.tanh(2.0) ** 2), 0)
    np.testing.assert_allclose(grads["sequences"].transpose(0, 2, 1, 3), slopes, rtol=1e-12)


def test_forward_only_inside_is_an_error_for_a_pullback_only() -> None:
    run = on_device(nested_net(outer_cell(forward_only=True)))
    np.testing.assert_allclose(run(FEEDS)["y_all"], nested_loop(**FEEDS)["y_all"], rtol=1e-12)
    with pytest.raises(ro.GradientError, match="forward_only"):
        run.vjp(FEEDS)


def test_no_outer_and_no_inner_steps() -> None:
    run = on_device(nested_net(outer_cell(), last=False))
    for shape in ((0, N, S, D), (T, N, 0, D), (T, 0, S, D)):
        feeds = {"sequences": np.ones(shape), "h0": np.ones((shape[1], D)), "w": np.ones(D)}
        out, pullback = run.vjp(feeds, wrt=["w", "h0"])
        grads = pullback({name: np.ones_like(array) for name, array in out.items()})
        assert not grads["w"].any()
        assert out["h_t_all"].shape == (shape[0], shape[1], D)
        assert grads["h0"].shape == (shape[1], D)


def test_three_levels() -> None:
    """A counter in a counter in a counter: gradients of all levels add up on one shared reference."""
    cell = ro.Net("level_0")
    cell.outputs(h_t=cell.input("h") + cell.input("w"))
    for level in (1, 2):
        outer = ro.Net(f"level_{level}")
        last = ro.recurrent_net(outer, cell, [], [("h", outer.input("h"))], {"h": "h_t"}, steps=2)[1]
        outer.outputs(h_t=ro.squeeze(last, [0]) + outer.blob("w"))
        cell = outer
    net = ro.Net("outer")
    net.outputs(y=ro.recurrent_net(net, cell, [], [("h", net.input("h0"))], {"h": "h_t"}, steps=2)[1])
    out, pullback = on_device(net).vjp(h0=np.zeros((N, D)), w=np.ones(D))
    additions = 2 * (2 * (2 + 1) + 1)
    assert np.all(out["y"] == additions)
    grads = pullback(np.ones((1, N, D)))
    assert np.all(grads["w"] == additions * N)
    assert np.all(grads["h0"] == 1)


def test_step_blobs_and_listing_of_the_outer_level() -> None:
    net = nested_net(outer_cell())
    assert str(ro.parse_net(str(net))) == str(net)
    _, pullback = on_device(net).vjp(FEEDS)
    with pytest.raises(ro.GradientError, match="not kept") as caught:
        pullback.step_blobs("h_t")
    assert "workspaces" not in str(caught.value.wanted)
