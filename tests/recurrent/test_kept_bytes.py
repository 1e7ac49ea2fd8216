"""What backward keeps, in units U = T N H floats, measured from outside at T and at 2T, never by a formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from memory_probe import freed_with_pullback, growth

import rnnops as ro

T, N, H, S = 4, 128, 128, 6
UNIT = T * N * H * 4
SLACK = 0.02  # headers of arrays and dicts, of each unit
Build = Callable[[ro.Net, ro.Blob], ro.Blob]


def kept_units(build: Build, shapes: Mapping[str, tuple[int, ...]] | None = None) -> float:
    """Units kept by the net that `build` makes of an input `x`, with lengths where it declares `lengths`."""
    net = ro.Net("measured")
    net.outputs(y=build(net, net.inputs("x")))
    fixed = {**ro.init_params(net, 0), **{name: np.ones(shape, "float32") for name, shape in (shapes or {}).items()}}

    def feeds_at(steps: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(0)
        feeds = {**fixed, "x": rng.standard_normal((steps, N, H)).astype("float32")}
        return {**feeds, "lengths": np.full(N, steps, "int32")} if "lengths" in net else feeds

    return growth(freed_with_pullback, net, feeds_at, T) / UNIT


def preset(function: Any, lengths: bool = False, layers: int = 1, **options: Any) -> Build:
    def build(net: ro.Net, x: ro.Blob) -> ro.Blob:
        seq_lengths = net.input("lengths", "int32") if lengths else None
        return function(net, x, seq_lengths, None, H, H if layers == 1 else [H] * layers, **options)[0]

    return build


def applied(make_cell: Callable[[], ro.cells.RNNCell]) -> Build:
    return lambda net, x: make_cell().apply_over_sequence(net, x)[0]


def check(build: Build, units: float, **more: Any) -> None:
    came = kept_units(build, **more)
    assert units <= came <= units + SLACK * max(units, 1), f"{came} units kept instead of {units}"


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize(
    ("function", "options", "default"),
    [
        (ro.LSTM, {}, 6),
        (ro.LSTM, {"forget_bias": 1.0}, 6),
        (ro.LSTM, {"drop_states": True}, 6),
        (ro.GRU, {}, 4),
        (ro.GRU, {"linear_before_reset": True}, 5),
        (ro.MILSTM, {}, 10),
    ],
)
def test_gated_presets_keep_what_the_table_says(
    function: Any, options: dict[str, Any], default: int, lengths: bool
) -> None:
    check(preset(function, lengths, **options), default)
    states = 1 if function is ro.GRU else 2
    check(preset(function, lengths, memory_optimization=True, **options), states)


@pytest.mark.parametrize(("function", "default"), [(ro.LayerNormLSTM, 6), (ro.LayerNormMILSTM, 10)])
def test_layer_norm_adds_row_statistics_only(function: Any, default: int) -> None:
    statistics = 2 / H  # mean and deviation of each row
    check(preset(function), default + statistics)
    check(preset(function, memory_optimization=True), 2)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_basic_rnn_keeps_its_state(activation: str) -> None:
    check(preset(ro.BasicRNN, activation=activation), 1)
    check(preset(ro.BasicRNN, activation=activation, memory_optimization=True), 1)


def test_basic_rnn_with_lengths_keeps_the_unmasked_state_too() -> None:
    check(preset(ro.BasicRNN, lengths=True), 2)
    check(preset(ro.BasicRNN, lengths=True, memory_optimization=True), 1)


def written_lstm(net: ro.Net, xs: ro.Blob, recompute: list[str] | None) -> ro.Blob:
    """The LSTM of the design's first page: ops that a user wrote down."""
    cell = ro.Net("my_lstm")
    x_t, h_prev, c_prev, w_x, w_h, b = cell.inputs("x_t", "h_prev", "c_prev", "w_x", "w_h", "b")
    gates = (x_t @ w_x + h_prev @ w_h + b).named("gates")
    i, f, o, g = ro.split(gates, 4, axis=-1)
    c = ro.sigmoid(f) * c_prev + ro.sigmoid(i) * ro.tanh(g)
    cell.outputs(h_t=ro.sigmoid(o) * ro.tanh(c), c_t=c)
    h0, c0 = net.inputs("h0", "c0")
    return ro.recurrent_net(
        net,
        cell,
        inputs=[("x_t", xs)],
        initial_cell_inputs=[("h_prev", h0), ("c_prev", c0)],
        links={"h_prev": "h_t", "c_prev": "c_t"},
        recompute_blobs_on_backward=recompute,
    )[0]


WRITTEN = {"h0": (H,), "c0": (H,), "w_x": (H, 4 * H), "w_h": (H, 4 * H), "b": (4 * H,)}


def test_a_cell_of_ones_own_keeps_what_the_preset_keeps() -> None:
    check(lambda net, xs: written_lstm(net, xs, None), 6, shapes=WRITTEN)
    check(lambda net, xs: written_lstm(net, xs, ["gates"]), 2, shapes=WRITTEN)


@pytest.mark.parametrize(("function", "default", "optimized"), [(ro.LSTM, 18, 6), (ro.GRU, 12, 3), (ro.MILSTM, 30, 6)])
def test_stacks_collect_the_recompute_lists_of_their_layers(function: Any, default: int, optimized: int) -> None:
    check(preset(function, layers=3), default)
    check(preset(function, layers=3, memory_optimization=True), optimized)


def test_residual_stacks_collect_them_too() -> None:
    def stack(memory: bool) -> ro.cells.RNNCell:
        cells = [ro.cells.LSTMCell(H, H, memory_optimization=memory, name=f"layer_{i}") for i in range(2)]
        return ro.cells.MultiRNNCell(cells, residual_output_layers=[1])

    check(applied(lambda: stack(False)), 12)
    check(applied(lambda: stack(True)), 4)


def test_dropout_collects_the_list_of_the_cell_inside_and_adds_its_mask() -> None:
    def cell(memory: bool) -> ro.cells.RNNCell:
        return ro.cells.DropoutCell(ro.cells.LSTMCell(H, H, memory_optimization=memory), 0.5)

    mask = 1 / 4  # a byte beside a float
    check(applied(lambda: cell(False)), 6 + mask)
    check(applied(lambda: cell(True)), 2 + mask)


def attention(kind: str, lstm_memory: bool, attention_memory: bool) -> float:
    def build(net: ro.Net, x: ro.Blob) -> ro.Blob:
        encoder = net.input("encoder")
        cell = ro.cells.LSTMWithAttentionCell(
            H,
            encoder,
            None,
            H,
            H,
            kind,
            lstm_memory_optimization=lstm_memory,
            attention_memory_optimization=attention_memory,
        )
        return cell.apply_over_sequence(net, x)[0]

    return kept_units(build, {"encoder": (S, N, H)})


@pytest.mark.parametrize(
    ("kind", "units"),
    [("regular", (8, 7, 4, 3)), ("recurrent", (8, 7, 4, 3)), ("dot", (7, 7, 3, 3)), ("soft_coverage", (8, 7, 4, 3))],
)
def test_attention_decoders_collect_both_lists(kind: str, units: tuple[int, ...]) -> None:
    """Three states (hidden, cell, context), the gates, the query; never the S N E energies before their sum."""
    came = [attention(kind, lstm, attention_) for lstm in (False, True) for attention_ in (False, True)]
    weights = 4 * S / H  # energies, their softmax, coverage: [N, S]
    assert came == [pytest.approx(unit + weights / 2, abs=weights / 2 + 0.1) for unit in units]


def test_part_of_a_product_keeps_nothing_of_the_rest() -> None:
    """A kept view must not hold the whole array that it is a part of."""

    def build(net: ro.Net, xs: ro.Blob) -> ro.Blob:
        cell = ro.Net("quarter")
        x_t, h_prev, w = cell.inputs("x_t", "h_prev", "w")
        a, b, c, d = ro.split(x_t @ w, 4, axis=-1)
        cell.outputs(h_t=h_prev * a + b + c + d)
        return ro.recurrent_net(net, cell, [("x_t", xs)], [("h_prev", net.input("h0"))], {"h_prev": "h_t"})[0]

    check(build, 2, shapes={"h0": (H,), "w": (H, 4 * H)})


def test_feeds_are_the_callers_and_do_not_count() -> None:
    net = ro.Net("feeds")
    x, w = net.inputs("x", "w")
    net.outputs(y=x @ w)
    feeds = {"x": np.ones((500, 200), "float32"), "w": np.ones((200, 3), "float32")}
    assert freed_with_pullback(net, feeds) < 5000


def test_more_state_than_needed_is_noticed() -> None:
    """The measurement itself: a cell whose product is kept twice shows."""

    def build(net: ro.Net, xs: ro.Blob) -> ro.Blob:
        cell = ro.Net("wasteful")
        x_t, h_prev, w = cell.inputs("x_t", "h_prev", "w")
        product = x_t @ w + h_prev
        cell.outputs(h_t=ro.tanh(product) * ro.sigmoid(h_prev @ w))
        return ro.recurrent_net(net, cell, [("x_t", xs)], [("h_prev", net.input("h0"))], {"h_prev": "h_t"})[0]

    check(build, 3, shapes={"h0": (H,), "w": (H, H)})


def test_an_output_that_is_a_state_as_well_is_kept_once() -> None:
    def doubled(net: ro.Net, x: ro.Blob) -> ro.Blob:
        cell = ro.Net("doubled")
        x_t, h = cell.inputs("x_t", "h")
        state = ro.tanh(x_t + h)
        cell.outputs(h_t=state, y=state)
        return ro.recurrent_net(net, cell, [("x_t", x)], [("h", net.input("h0"))], {"h": "h_t"})[0]

    check(doubled, 1, shapes={"h0": (N, H)})
