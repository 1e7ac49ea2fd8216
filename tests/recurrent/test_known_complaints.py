"""What users and authors of Caffe2's recurrent operators complained of: right here, or an error that says why.

Section numbers are those of the project's notes on Caffe2 (`caffe2.md`): section 5 numbers its wishes 1 to 10. Memory
options that were ignored (5.2) and what is stored (5.3) are measured in `test_kept_bytes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import assert_agrees, random_arrays
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

T, N, D, H = 4, 3, 2, 5


def sum_cell() -> ro.Net:
    cell = ro.Net("sum")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=x + h)
    return cell


@pytest.mark.parametrize(
    "link", [ro.Link("h_t", offset=40), ro.Link("h_t", window=2), ro.Link("h_t", window=9, offset=1)]
)
def test_link_out_of_range(link: ro.Link) -> None:
    """1.3, 5.1: offset 40 on T = 4 ran and returned garbage."""
    net = ro.Net("outer")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.recurrent_net(net, sum_cell(), [("x", xs)], [("h", h0)], {"h": link})[0])
    with pytest.raises(ro.RecurrentError, match="does not fit the initial state") as caught:
        on_device(net)(random_arrays(xs=(T, N, D), h0=(N, D)))
    assert caught.value.blob == "h"


def test_several_initial_steps() -> None:
    """1.4, 5.5: with L = 2, `_all` had one step too many, `_last` was never written, and gradients assumed L = 1."""
    net = ro.Net("fibonacci")
    xs, h0 = net.inputs("xs", "h0")
    cell = ro.Net("fibonacci_step")
    x, h = cell.inputs("x", "h")
    older, newer = ro.split(h, 2, axis=0)
    cell.outputs(h_t=ro.squeeze(older * newer, [0]) + x)
    h_all, h_last = ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": ro.Link("h_t", window=2)})
    net.outputs(h_all=h_all, h_last=h_last)

    def loop(xs: np.ndarray, h0: np.ndarray) -> dict[str, np.ndarray]:
        steps = list(h0)
        for x in xs:
            steps.append(steps[-2] * steps[-1] + x)
        return {"h_all": np.stack(steps[2:]), "h_last": steps[-1][None]}

    assert_agrees(net, random_arrays(xs=(T, N, D), h0=(2, N, D)), loop)


def test_outputs_are_not_overwritten_by_the_next_run() -> None:
    """1.5: outputs were views that the next run overwrote."""
    net = ro.Net("outer")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(y=ro.recurrent_net(net, sum_cell(), [("x", xs)], [("h", h0)], {"h": "h_t"})[0])
    run = on_device(net)
    first = run(xs=np.ones((T, N, D)), h0=np.zeros((N, D)))["y"]
    before = first.copy()
    run(xs=np.full((T, N, D), 9.0), h0=np.zeros((N, D)))
    assert np.array_equal(first, before)


def test_nets_share_no_names() -> None:
    """5, opening: blobs of one net that another one expected by name, found or not by chance."""
    nets = []
    for factor in (2.0, 3.0):
        net = ro.Net("same_name")
        net.outputs(y=net.inputs("x") * factor)
        nets.append(on_device(net))
    x = np.ones(2)
    assert [run(x=x)["y"][0] for run in (*nets, *nets)] == [2, 3, 2, 3]


def test_sequences_outputs_and_steps_of_any_kind() -> None:
    """5.4: one sequence only, outputs that are states only, T from a fake input, states of float32 and rank 1 only."""
    cell = ro.Net("free")
    h = cell.input("h")
    count = cell.input("count", "int32")
    cell.outputs(h_t=h * 0.5, count_t=count + 1, doubled=h * 2.0)
    net = ro.Net("no_sequence")
    h0, count0 = net.input("h0"), net.input("count0", "int32")
    blobs = ro.recurrent_net(
        net,
        cell,
        [],
        [("h", h0), ("count", count0)],
        {"h": "h_t", "count": "count_t"},
        steps=3,
        state_shapes={"h": (2, 2)},
    )
    net.outputs(h_last=blobs[1], count_all=blobs[2], doubled_all=blobs[4])
    feeds = {"h0": np.ones((N, 2, 2)), "count0": np.zeros((N, 1), "int32")}
    out, pullback = on_device(net).vjp(feeds)
    assert np.all(out["h_last"] == 0.125)
    assert out["h_last"].shape == (1, N, 2, 2)
    assert out["count_all"].dtype == np.int32
    assert out["count_all"][:, 0, 0].tolist() == [1, 2, 3]
    assert out["doubled_all"][:, 0, 0, 0].tolist() == [2.0, 1.0, 0.5]
    grads = pullback({"doubled_all": np.ones((3, N, 2, 2))})
    assert set(grads) == {"h0"}
    assert np.all(grads["h0"] == 2 + 1 + 0.5)


@pytest.mark.parametrize("preset", [ro.GRU, ro.BasicRNN])
def test_stacks_of_cells_with_one_state(preset: Any) -> None:
    """5.6: helpers took every cell for one with two states: stacks of GRU returned nothing."""
    net = ro.Net("stack")
    h_all, h_last = preset(net, net.inputs("x"), None, None, D, [H, H], scope="s", outputs_with_grads=[1])
    net.outputs(h_all=h_all, h_last=h_last)
    feeds = {**ro.init_params(net, 0), "x": np.ones((T, N, D), "float32")}
    out, pullback = on_device(net).vjp(feeds)
    assert np.array_equal(out["h_all"][-1:], out["h_last"])
    grads = pullback({"h_last": np.ones((1, N, H), "float32")})
    assert all(grads[name].any() for name in grads if name.endswith("_w"))
    with pytest.raises(ro.GradientError, match="outputs_with_grads"):
        on_device(net).vjp(feeds)[1]({"h_all": np.ones((T, N, H), "float32")})


PRESETS = [ro.LSTM, ro.MILSTM, ro.LayerNormLSTM, ro.LayerNormMILSTM, ro.GRU, ro.BasicRNN]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("preset", PRESETS)
def test_return_params_everywhere(preset: Any, layers: int) -> None:
    """5.6: `return_params` failed for stacks and for layer norm."""
    net = ro.Net("params")
    *_, params = preset(net, net.inputs("x"), None, None, D, [H] * layers, scope="s", return_params=True)
    names = [blob.name for kind in ("input", "recurrent") for blob in params[kind]]
    states = {spec.name for spec in net.parameters if "/initial_" in spec.name}
    assert sorted(names) == sorted({spec.name for spec in net.parameters} - states)


def test_initializer_of_basic_rnn_is_used() -> None:
    """5.6: BasicRNN dropped its initializer."""
    net = ro.Net("initialized")
    x = net.inputs("x")
    cell = ro.cells.BasicRNNCell(D, H, initializer=lambda net, cell: [net.input("my_start")])
    net.outputs(y=cell.apply_over_sequence(net, x)[0])
    assert "my_start" in net.input_names
    assert not any("initial" in name for name in net.input_names)


def test_dropped_states_and_the_last_valid_state_are_both_there() -> None:
    """5.7: `drop_states` zeroed `_last`; the last valid state is what a run without it gives."""
    feeds = random_arrays(x=(T, N, D))
    feeds["lengths"] = np.array([4, 2, 1], "int32")
    results = []
    for drop in (False, True):
        net = ro.Net("dropped")
        x, lengths = net.input("x"), net.input("lengths", "int32")
        h_all, h_last = ro.BasicRNN(net, x, lengths, None, D, H, scope="s", drop_states=drop)
        net.outputs(h_all=h_all, h_last=h_last)
        results.append(on_device(net)({**feeds, **ro.init_params(net, 0, "float64")}))
    kept, dropped = results
    for row, length in enumerate(feeds["lengths"]):
        assert np.array_equal(kept["h_last"][0, row], kept["h_all"][length - 1, row])
        assert np.array_equal(dropped["h_all"][:length, row], kept["h_all"][:length, row])
        assert not dropped["h_all"][length:, row].any()
    assert not dropped["h_last"][0, 1:].any()


@pytest.mark.parametrize("kind", ["regular", "recurrent", "dot", "soft_coverage"])
def test_encoder_rows_of_length_zero(kind: str) -> None:
    """5.7: NaN; here a context of zeros and finite gradients."""
    net = ro.Net("attended")
    x, encoder, lengths = net.input("x"), net.input("encoder"), net.input("lengths", "int32")
    cell = ro.cells.LSTMWithAttentionCell(H, encoder, lengths, D, H, kind)
    output, _ = cell.apply_over_sequence(net, x)
    net.outputs(output=output)
    feeds = {**random_arrays(x=(T, N, D), encoder=(6, N, H)), "lengths": np.array([6, 0, 2], "int32")}
    out, pullback = on_device(net).vjp({**feeds, **ro.init_params(net, 0, "float64")})
    assert not out["output"][:, 1, H:].any()
    assert out["output"][:, 0, H:].all()
    grads = pullback({"output": np.ones((T, N, 2 * H))})
    assert all(np.isfinite(grad).all() for grad in grads.values())
    assert not grads["encoder"][:, 1].any()
    assert not grads["encoder"][2:, 2].any()
    assert grads["encoder"][:2, 2].all()


def test_layer_norm_of_values_far_from_zero() -> None:
    """5.9: the variance as mean(v^2) - mean(v)^2 is noise, or negative, for values far from 0."""
    net = ro.Net("far")
    x, scale = net.inputs("x", "scale")
    net.outputs(y=ro.layer_normalization(x, scale))
    near = np.linspace(-1, 1, 8, dtype="float32")[None]
    run, scale_ = on_device(net), np.ones(8, "float32")
    expected = run(x=near, scale=scale_)["y"]
    np.testing.assert_allclose(run(x=near + np.float32(4096), scale=scale_)["y"], expected, atol=2e-3)


def test_tanh_of_small_values() -> None:
    """5.9: tanh computed as 2 s(2x) - 1 loses all digits of small values."""
    net = ro.Net("small")
    net.outputs(y=ro.tanh(net.inputs("x")))
    x = np.float32([1e-4, -1e-6, 1e-8])
    np.testing.assert_allclose(on_device(net)(x=x)["y"], np.tanh(x.astype("float64")), rtol=1e-6)


def test_two_attention_cells_in_one_net() -> None:
    """2.3: `masked_attention_logits` was the one name without a scope, so that two cells collided."""
    net = ro.Net("two")
    x, encoder, lengths = net.input("x"), net.input("encoder"), net.input("lengths", "int32")
    outputs = [
        ro.cells.LSTMWithAttentionCell(H, encoder, lengths, D, H, "regular", name=name).apply_over_sequence(net, x)[0]
        for name in ("first", "second")
    ]
    net.outputs(a=outputs[0], b=outputs[1])
    feeds = {**random_arrays(x=(T, N, D), encoder=(6, N, H)), "lengths": np.array([6, 1, 2], "int32")}
    params = ro.init_params(net, 0, "float64")
    shared = {name: params[name.replace("second", "first")] for name in params}
    out = on_device(net)({**feeds, **shared})
    assert np.array_equal(out["a"], out["b"])


def test_milstm_with_attention_and_without_lengths() -> None:
    """2.2, 2.3: MILSTMWithAttentionCell could not be built, and MILSTM needed lengths."""
    net = ro.Net("mi")
    x, encoder = net.inputs("x", "encoder")
    output, _ = ro.cells.MILSTMWithAttentionCell(H, encoder, None, D, H, "dot").apply_over_sequence(net, x)
    net.outputs(output=output)
    feeds = {**random_arrays(x=(T, N, D), encoder=(6, N, H)), **ro.init_params(net, 0, "float64")}
    out, pullback = on_device(net).vjp(feeds)
    assert out["output"].shape == (T, N, 2 * H)
    assert all(grad.any() for grad in pullback(np.ones((T, N, 2 * H))).values())


def test_step_blobs_that_are_recomputed_or_unknown_are_named_errors() -> None:
    """1.13: recomputed blobs were absent without a word, and forward-only runs gave t mod 4."""
    net = ro.Net("fetched")
    net.outputs(y=ro.LSTM(net, net.inputs("x"), None, None, D, H, scope="s", memory_optimization=True)[0])
    feeds = {**ro.init_params(net, 0), "x": np.ones((T, N, D), "float32")}
    pullback = on_device(net).vjp(feeds)[1]
    with pytest.raises(ro.GradientError, match="not kept") as caught:
        pullback.step_blobs("s/gates_t")
    assert "s/" in str(caught.value.wanted)
