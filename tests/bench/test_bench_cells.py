"""The benchmark's cells compute what their names say: beside the presets, and beside each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rnnops as ro
from bench.data import make_feeds
from bench.layouts import reorder
from bench.nets import build_net, user_net
from bench.problems import Arrays, Problem, Size

SIZE = Size(5, 3, 4)
OFF = 1e-12


def doubled(problem: Problem) -> tuple[Arrays, Arrays]:
    """Feeds and output gradients in float64, so that nothing hides in rounding."""
    feeds, output_gradients = make_feeds(problem)
    return wide(feeds), wide(output_gradients)


def wide(arrays: Arrays) -> Arrays:
    return {name: a.astype("float64") if a.dtype.kind == "f" else a for name, a in arrays.items()}


def outputs_of(name: str, feeds: Arrays) -> Arrays:
    return ro.compile(build_net(Problem(name, SIZE)), device="reference")(feeds)


def rows(weight: np.ndarray) -> np.ndarray:
    """[D, 4H] as presets have it, [4H, D]."""
    return np.ascontiguousarray(weight.T)


def lstm_parameters(feeds: Arrays) -> Arrays:
    zeros = np.zeros_like(feeds["b"])
    return {"i2h_w": rows(feeds["w_x"]), "i2h_b": feeds["b"], "gates_t_w": rows(feeds["w_h"]), "gates_t_b": zeros}


def layer_norm_parameters(feeds: Arrays) -> Arrays:
    norm = {"gates_t_norm_scale": feeds["scale"], "gates_t_norm_bias": feeds["shift"]}
    return {**lstm_parameters(feeds), **norm}


def milstm_parameters(feeds: Arrays) -> Arrays:
    products = {"i2h_w": rows(feeds["w_x"]), "i2h_b": feeds["b_x"]}
    recurrent = {"prev_t_w": rows(feeds["w_h"]), "prev_t_b": feeds["b_h"]}
    return {**products, **recurrent, **{name: feeds[name] for name in ("alpha", "beta1", "beta2", "b")}}


def gru_parameters(feeds: Arrays) -> Arrays:
    parameters = {"i2h_w": rows(feeds["w_x"]), "i2h_b": feeds["b_x"]}
    weights, biases = np.split(rows(feeds["w_h"]), 3), np.split(feeds["b_h"], 3)
    for gate, weight, bias in zip(("reset", "update", "output"), weights, biases, strict=True):
        parameters |= {f"{gate}_gate_t_w": weight, f"{gate}_gate_t_b": bias}
    return parameters


PRESETS = {
    "lstm": (ro.LSTM, lstm_parameters, {}),
    "lstm_with_lengths": (ro.LSTM, lstm_parameters, {}),
    "milstm": (ro.MILSTM, milstm_parameters, {}),
    "layer_norm_lstm": (ro.LayerNormLSTM, layer_norm_parameters, {}),
    "gru": (ro.GRU, gru_parameters, {"linear_before_reset": True}),
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_cell_is_its_preset(name: str) -> None:
    preset, parameters_of, options = PRESETS[name]
    feeds, _ = doubled(Problem(name, SIZE))
    net = ro.Net("preset")
    states = [net.input(state.initial) for state in user_net(name).states]
    lengths = net.input("seq_lengths", "int32") if "seq_lengths" in feeds else None
    results = preset(net, net.input("xs"), lengths, states, SIZE.H, SIZE.H, scope="p", **options)
    net.outputs(y=results[0])
    given = {name: feeds[name] for name in net.input_names if name in feeds}
    parameters = {f"p/{key}": value for key, value in parameters_of(feeds).items()}
    wanted = ro.compile(net, device="reference")(given, parameters)["y"]
    assert np.abs(outputs_of(name, feeds)["y"] - wanted).max() < OFF


def test_the_attention_decoder_is_the_regular_one() -> None:
    feeds, _ = doubled(Problem("attention_decoder", SIZE))
    H, net = SIZE.H, ro.Net("preset")
    xs, encoder, *states = net.inputs("xs", "encoder", "h0", "c0", "context0")
    cell = ro.cells.LSTMWithAttentionCell(H, encoder, None, H, H, "regular", name="a")
    output, _ = cell.apply_over_sequence(net, xs, None, states)
    net.outputs(y=output)
    parameters = {
        "decoder/i2h_w": rows(feeds["w_x"]),
        "decoder/i2h_b": feeds["b"],
        "decoder/gates_t_w": rows(np.concatenate([feeds["w_h"], feeds["w_context"]])),
        "decoder/gates_t_b": np.zeros(4 * H),
        "weighted_encoder_outputs_w": rows(feeds["w_encoder"]),
        "weighted_encoder_outputs_b": feeds["b_encoder"],
        "weighted_decoder_hidden_state_w": rows(feeds["w_query"]),
        "weighted_decoder_hidden_state_b": feeds["b_query"],
        "attention_logits_w": rows(feeds["v"]),
    }
    given = {name: feeds[name] for name in ("xs", "encoder", "h0", "c0", "context0")}
    wanted = ro.compile(net, device="reference")(given, {f"a/{k}": v for k, v in parameters.items()})["y"]
    came = outputs_of("attention_decoder", feeds)
    assert np.abs(np.concatenate([came["y"], came["context"]], axis=-1) - wanted).max() < OFF


def test_renamed_and_permuted_are_the_lstm() -> None:
    feeds, _ = doubled(Problem("lstm", SIZE))
    wanted = outputs_of("lstm", feeds)["y"]
    names = {"w_x": "kernel", "w_h": "recurrent", "b": "offset"}
    renamed = {names.get(name, name): array for name, array in feeds.items()}
    permuted = {name: reorder(array, (3, 2, 0, 1)) if name in names else array for name, array in feeds.items()}
    assert np.array_equal(outputs_of("renamed", renamed)["y"], wanted)
    assert np.array_equal(outputs_of("permuted", permuted)["y"], wanted)


def test_a_second_sequence_is_the_lstm_of_both_joined() -> None:
    feeds, _ = doubled(Problem("second_sequence", SIZE))
    joined = {
        **{name: feeds[name] for name in ("h0", "c0", "w_h", "b")},
        "xs": np.concatenate([feeds["xs"], feeds["zs"]], axis=-1),
        "w_x": np.concatenate([feeds["w_x"], feeds["w_z"]]),
    }
    assert np.abs(outputs_of("second_sequence", feeds)["y"] - outputs_of("lstm", joined)["y"]).max() < OFF


@pytest.mark.parametrize(
    ("name", "squash", "more"),
    [("softsign", lambda x: x / (1 + abs(x)), lambda c: c), ("one_more_op", np.tanh, lambda x: x / (1 + abs(x)))],
)
def test_other_ops_by_hand(
    name: str, squash: Callable[[np.ndarray], np.ndarray], more: Callable[[np.ndarray], np.ndarray]
) -> None:
    feeds, _ = doubled(Problem(name, SIZE))
    h, c = feeds["h0"], feeds["c0"]
    for x_t, y_t in zip(feeds["xs"], outputs_of(name, feeds)["y"], strict=True):
        gates = x_t @ feeds["w_x"] + h @ feeds["w_h"] + feeds["b"]
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in np.split(gates, 4, axis=-1)[:3])
        c = more(f * c + i * squash(np.split(gates, 4, axis=-1)[3]))
        h = o * squash(c)
        assert np.abs(y_t - h).max() < OFF


@pytest.mark.parametrize("name", ["lstm", "lstm_with_lengths", "milstm", "layer_norm_lstm", "attention_decoder"])
def test_recomputed_gates_change_no_bit(name: str) -> None:
    feeds, output_gradients = doubled(Problem(name, SIZE))
    plain, recomputed = (
        ro.compile(build_net(Problem(name, SIZE, gates)), device="reference").vjp(feeds)[1](output_gradients)
        for gates in ((), ("gates",))
    )
    assert all(np.array_equal(plain[key], recomputed[key]) for key in plain)
