"""Cells and presets: values against hand-written steps, signatures, initial states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import random_arrays
from cell_loops import basic_rnn, gru, lstm, milstm, over_sequence
from cell_runs import CELLS, LENGTHS, D, H, N, T, X, all_cells, random_params, run_of
from devices import on_device

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

STEPS = {"BasicRNN": (basic_rnn, 1), "LSTM": (lstm, 2), "MILSTM": (milstm, 2), "GRU": (gru, 1)}
PRESETS = [ro.BasicRNN, ro.LSTM, ro.MILSTM, ro.LayerNormLSTM, ro.LayerNormMILSTM, ro.GRU]


# -- values -----------------------------------------------------------------------------------------------------


@pytest.mark.covering(3)  # what is dropped depends on the cell and on lengths
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kind", STEPS)
def test_presets_against_hand_written_steps(kind: str, layers: int, lengths: np.ndarray | None, drop: bool) -> None:
    net = ro.Net("preset")
    seq_lengths = None if lengths is None else net.input("lengths", "int32")
    results = getattr(ro, kind)(
        net,
        net.input("x"),
        seq_lengths,
        None,
        D,
        H if layers == 1 else [H] * layers,
        scope="s",
        drop_states=drop,
        return_last_layer_only=False,
    )
    net.outputs(**{f"{i}": blob for i, blob in enumerate(results)})
    feeds, out, _ = run_of(net, x=X, **({} if lengths is None else {"lengths": lengths}))
    step, count = STEPS[kind]
    names = ["s"] if layers == 1 else [f"s/layer_{i}" for i in range(layers)]

    def whole_step(x: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        new: list[np.ndarray] = []
        for layer, name in enumerate(names):
            own = states[layer * count : (layer + 1) * count]
            made = step(feeds, name, x, *own, i2h="s/i2h" if layer == 0 else None)
            if lengths is not None:
                valid = (timestep[0] < lengths)[:, None]
                made = [np.where(valid, a, 0 * b if drop else b) for a, b in zip(made, own, strict=True)]
            x = made[0]
            new += made
        timestep[0] += 1
        return new

    timestep = [0]
    starts = [np.tile(feeds[name], (N, 1)) for name in sorted(feeds, key=initial_order) if "initial" in name]
    wanted = over_sequence(whole_step, X, starts)
    assert len(results) == 2 * count * layers
    for i, every in enumerate(wanted):
        np.testing.assert_allclose(out[f"{2 * i}"], every, rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(out[f"{2 * i + 1}"], out[f"{2 * i}"][-1:])


def initial_order(name: str) -> tuple[str, bool]:
    """By layer, hidden before cell."""
    prefix, _, state = name.rpartition("/")
    return prefix, "cell" in state


def stack_of(residual: list[int] | None) -> ro.cells.RNNCell:
    cells = [ro.cells.LSTMCell(D if i == 0 else H, H, name=f"layer_{i}") for i in range(4)]
    return ro.cells.MultiRNNCell(cells, residual_output_layers=residual)


@pytest.mark.covering(1)
@pytest.mark.parametrize("residual", [None, [1], [3], [2, 3], [1, 3], [1, 2, 3]])
def test_residual_layers(residual: list[int] | None) -> None:
    net = ro.Net("residual")
    output, states = stack_of(residual).apply_over_sequence(net, net.input("x"))
    net.outputs(output=output, **{f"{i}": blob for i, blob in enumerate(states)})
    feeds, out, grads = run_of(net, x=X)

    def step(x: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        new: list[np.ndarray] = []
        for layer in range(4):
            h, c = lstm(feeds, f"layer_{layer}", x, *states[2 * layer : 2 * layer + 2])
            x = h + x if layer in (residual or []) else h
            new += [h, c]
        return [*new, x]

    starts = [
        np.tile(feeds[f"layer_{i}/initial_{kind}_state"], (N, 1)) for i in range(4) for kind in ("hidden", "cell")
    ]
    *wanted, last = over_sequence(step, X, [*starts, np.zeros((N, H))])
    np.testing.assert_allclose(out["output"], last, rtol=1e-12)
    for i, every in enumerate(wanted):
        np.testing.assert_allclose(out[f"{2 * i}"], every, rtol=1e-12)
    assert all(grad.any() for grad in grads.values())


@pytest.mark.covering(2)
@pytest.mark.parametrize("kind", ["regular", "recurrent", "dot", "soft_coverage"])
@pytest.mark.parametrize("cell_class", [ro.cells.LSTMWithAttentionCell, ro.cells.MILSTMWithAttentionCell])
def test_attention_against_hand_written_steps(cell_class: Any, kind: str) -> None:
    S, E = 6, 3
    net = ro.Net("attention")
    x, encoder, lengths = net.input("x"), net.input("encoder"), net.input("lengths", "int32")
    cell = cell_class(E, encoder, lengths, D, H, kind, name="att")
    output, states = cell.apply_over_sequence(net, x)
    net.outputs(output=output, **{f"{i}": blob for i, blob in enumerate(states)})
    encoded, encoder_lengths = random_arrays(5, e=(S, N, E))["e"], np.array([6, 0, 3], "int32")
    feeds, out, grads = run_of(net, x=X, encoder=encoded, lengths=encoder_lengths)
    assert out["output"].shape == (T, N, H + E)
    decoder = lstm if cell_class is ro.cells.LSTMWithAttentionCell else milstm
    enc = encoded.transpose(1, 0, 2)

    def weighted(name: str, value: np.ndarray) -> np.ndarray:
        return value @ feeds[f"att/{name}_w"].T + feeds[f"att/{name}_b"]

    def step(x: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        h, c, context, coverage = states
        params = {**feeds, "zero": np.zeros(0)}
        h, c = decoder(params, "att/decoder", x, np.concatenate([h, context], axis=-1), c)
        if kind == "dot":
            energies = (enc * weighted("weighted_decoder_hidden_state", h)[:, None]).sum(axis=-1)
        else:
            total = weighted("weighted_encoder_outputs", enc) + weighted("weighted_decoder_hidden_state", h)[:, None]
            if kind == "recurrent":
                total = total + weighted("weighted_prev_attention_context", context)[:, None]
            if kind == "soft_coverage":
                total = total + coverage[..., None] * weighted("coverage_weights", enc)
            energies = np.tanh(total) @ feeds["att/attention_logits_w"][0]
        powers = np.exp(energies) * (np.arange(S) < encoder_lengths[:, None])
        weights = powers / np.maximum(powers.sum(axis=-1, keepdims=True), 1e-300)
        return [h, c, (weights[..., None] * enc).sum(axis=1), coverage + weights]

    names = [
        "att/decoder/initial_hidden_state",
        "att/decoder/initial_cell_state",
        "att/initial_attention_weighted_encoder_context_state",
    ]
    h, c, context, coverage = over_sequence(
        step, X, [*(np.tile(feeds[name], (N, 1)) for name in names), np.zeros((N, S))]
    )
    np.testing.assert_allclose(out["output"], np.concatenate([h, context], axis=-1), rtol=1e-10)
    for i, every in enumerate([h, c, context, coverage][: len(states) // 2]):
        np.testing.assert_allclose(out[f"{2 * i}"], every, rtol=1e-10, atol=1e-14)
    assert not context[:, 1].any()
    assert all(np.isfinite(grad).all() for grad in grads.values())


@pytest.mark.parametrize("residual", [None, [1]])
def test_attention_around_a_stack(residual: list[int] | None) -> None:
    """The context goes to the bottom layer, the energies are those of the stack's output."""
    net = ro.Net("attention")
    x, encoder = net.inputs("x", "encoder")
    decoder = stack_of(residual)
    output, _ = ro.cells.AttentionCell(H, encoder, None, decoder, H, "dot", name="att").apply_over_sequence(net, x)
    net.outputs(output=output)
    encoded = random_arrays(5, e=(6, N, H))["e"]
    feeds, out, grads = run_of(net, x=X, encoder=encoded)
    enc = encoded.transpose(1, 0, 2)

    def step(x: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        new: list[np.ndarray] = []
        for layer in range(4):
            h, c = states[2 * layer : 2 * layer + 2]
            joined = np.concatenate([h, states[8]], axis=-1) if layer == 0 else h
            h, c = lstm(feeds, f"layer_{layer}", x, joined, c)
            x = h + x if layer in (residual or []) else h
            new += [h, c]
        powers = np.exp((enc * x[:, None]).sum(axis=-1))
        context = (powers / powers.sum(axis=-1, keepdims=True))[:, None] @ enc
        return [*new, context[:, 0], x]

    starts = [
        np.zeros((N, H)) + feeds[f"layer_{i}/initial_{kind}_state"] for i in range(4) for kind in ("hidden", "cell")
    ]
    start = feeds["att/initial_attention_weighted_encoder_context_state"] + np.zeros((N, H))
    *_, context, last = over_sequence(step, X, [*starts, start, np.zeros((N, H))])
    np.testing.assert_allclose(out["output"], np.concatenate([last, context], axis=-1), rtol=1e-10)
    assert all(grad.any() for grad in grads.values())


# -- signatures and results -------------------------------------------------------------------------------------


@pytest.mark.covering(1)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("last_only", [True, False])
def test_results_of_a_stack(preset: Any, last_only: bool) -> None:
    net = ro.Net("stack")
    results = preset(net, net.input("x"), None, None, D, [3, 4, H], scope="s", return_last_layer_only=last_only)
    states = 1 if preset in (ro.BasicRNN, ro.GRU) else 2
    sizes = [H] if last_only else [3, 4, H]
    assert results[0].name == f"s/layer_{2 if last_only else 0}/hidden_t_all"
    net.outputs(*results)
    _, out, _ = run_of(net, x=X)
    wanted = [shape for size in sizes for _ in range(states) for shape in ((T, N, size), (1, N, size))]
    assert [array.shape for array in out.values()] == wanted


@pytest.mark.covering(1)
@pytest.mark.parametrize("preset", PRESETS)
def test_outputs_with_grads_count_in_the_last_layer(preset: Any) -> None:
    for dim_out in (H, [H, H]):
        net = ro.Net("stack")
        results = preset(
            net, net.input("x"), None, None, D, dim_out, outputs_with_grads=[1], return_last_layer_only=False
        )
        net.outputs(**{f"{i}": blob for i, blob in enumerate(results)})
        run, feeds = on_device(net), {**random_params(net), "x": X}
        allowed = len(results) - (2 if preset in (ro.BasicRNN, ro.GRU) else 4) + 1
        for i in range(len(results)):
            out, pullback = run.vjp(feeds)
            if i == allowed:
                assert pullback({f"{i}": np.ones_like(out[f"{i}"])})["x"].any()
            else:
                with pytest.raises(ro.GradientError, match="outputs_with_grads"):
                    pullback({f"{i}": np.ones_like(out[f"{i}"])})


@pytest.mark.covering(1)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("preset", PRESETS)
def test_return_params(preset: Any, layers: int) -> None:
    net = ro.Net("params")
    *results, params = preset(net, net.input("x"), None, None, D, [H] * layers, scope="s", return_params=True)
    net.outputs(results[0])
    assert params["input"][0].name == "s/i2h_w"
    _, _, grads = run_of(net, x=X)
    blobs = [*params["input"], *params["recurrent"]]
    assert all(blob.net is net and grads[blob.name].any() for blob in blobs)
    assert len({blob.name for blob in blobs}) == len(blobs)


@pytest.mark.parametrize("cell_class", CELLS)
def test_what_cells_say_of_themselves(cell_class: Any) -> None:
    cell = cell_class(D, H, name="my/cell")
    states = cell.get_state_names()
    assert states[0] == "my/cell/hidden_t"
    assert cell.get_state_dims() == [H] * len(states)
    assert cell.get_output_dim() == H
    assert cell.get_output_state_index() == 0
    assert cell.get_input_params() == ["my/cell/i2h_w", "my/cell/i2h_b"]
    stack = ro.cells.MultiRNNCell([cell, cell_class(H, 3, name="other")])
    assert stack.get_output_dim() == 3
    assert stack.get_output_state_index() == len(states)
    assert stack.get_state_names() == [*states, *(name.replace("my/cell", "other") for name in states)]
    wrapped = ro.cells.DropoutCell(stack, 0.5)
    assert wrapped.get_state_names() == stack.get_state_names()
    assert wrapped.get_output_dim() == 3


# -- initial states ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(all_cells(ro.Net("names"))))
def test_initial_states_left_out_are_trainable_zeros(name: str) -> None:
    net = ro.Net("zeros")
    cell = all_cells(net)[name]
    output, _ = cell.apply_over_sequence(net, net.input("x"))
    net.outputs(output=output)
    starts = [spec.name for spec in net.parameters if "/initial_" in spec.name]
    trained = [state for state in cell.get_state_names() if not state.endswith("coverage_t")]
    assert len(starts) == len(trained)
    feeds = {**ro.init_params(net, 0, "float64"), "x": X, "encoder": np.ones((2, N, H))}
    assert all(feeds[start].shape == (H,) and not feeds[start].any() for start in starts)
    out, pullback = on_device(net).vjp(feeds)
    grads = pullback(np.ones_like(out["output"]))
    assert all(grads[start].any() for start in starts)


def test_initializers_of_inner_cells_are_used() -> None:
    def initializer(net: ro.Net, cell: ro.cells.RNNCell) -> list[ro.Blob]:
        return [net.input(f"{cell.name}/start_{i}") for i in range(len(cell.get_state_names()))]

    low, high = ro.cells.LSTMCell(D, H, name="low"), ro.cells.GRUCell(H, H, name="high", initializer=initializer)
    net = ro.Net("inner")
    ro.cells.MultiRNNCell([low, high]).apply_over_sequence(net, net.input("x"))
    assert {"low/initial_hidden_state", "low/initial_cell_state", "high/start_0"} < set(net.input_names)
    net = ro.Net("wrapped")
    decoder = ro.cells.DropoutCell(ro.cells.LSTMCell(D, H, name="dec", initializer=initializer), 0.5)
    cell = ro.cells.AttentionCell(H, net.input("encoder"), None, decoder, H, "dot", name="att")
    cell.apply_over_sequence(net, net.input("x"))
    assert {"dec/start_0", "dec/start_1"} < set(net.input_names)
    assert "dec/initial_hidden_state" not in net.input_names


@pytest.mark.parametrize("given", [True, False])
def test_coverage_may_be_given_or_starts_at_zero(given: bool) -> None:
    results = []
    for explicit in (given, False):
        net = ro.Net("coverage")
        x, encoder, h0, c0, context0 = net.inputs("x", "encoder", "h0", "c0", "context0")
        states = [h0, c0, context0, *([net.input("coverage0")] if explicit else [])]
        cell = ro.cells.LSTMWithAttentionCell(H, encoder, None, D, H, "soft_coverage", name="att")
        net.outputs(output=cell.apply_over_sequence(net, x, None, states)[0])
        feeds = random_arrays(2, encoder=(6, N, H), h0=(N, H), c0=(N, H), context0=(N, H))
        feeds |= {"coverage0": np.zeros((N, 6))} if explicit else {}
        results.append(run_of(net, x=X, **feeds)[1]["output"])
    assert np.array_equal(*results)
    assert not np.array_equal(results[0][0], results[0][1])


@pytest.mark.covering(2)
@pytest.mark.parametrize("unrolled", [False, True])
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "lengths"])
def test_a_cell_from_the_end(lengths: np.ndarray | None, unrolled: bool) -> None:
    """Each row runs from its own end: as forward over the row turned round."""

    def outputs(x: np.ndarray, reverse: bool) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        net = ro.Net("net")
        cell: ro.cells.RNNCell = ro.cells.GRUCell(D, H, name="gru")
        if unrolled:
            cell = ro.cells.UnrolledCell(cell, T)
        seq_lengths = None if lengths is None else net.input("lengths", "int32")
        y, states = cell.apply_over_sequence(net, net.input("x"), seq_lengths, None, reverse=reverse)
        net.outputs(y=y, last=states[1])
        feeds, out, _ = run_of(net, x=x, **({} if lengths is None else {"lengths": lengths}))
        return feeds, out

    turned = X.copy()
    ends = [T] * N if lengths is None else list(lengths)
    for row, end in enumerate(ends):
        turned[:end, row] = X[:end, row][::-1]
    came, wanted = outputs(X, True)[1], outputs(turned, False)[1]
    for row, end in enumerate(ends):
        np.testing.assert_allclose(came["y"][:end, row], wanted["y"][:end, row][::-1], rtol=1e-10)
    np.testing.assert_allclose(came["last"], wanted["last"], rtol=1e-10)
