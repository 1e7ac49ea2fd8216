"""Bad input to cells and presets: each a RnnopsError that names the net or the cell, what was wanted and what came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cell_runs import CELLS, LENGTHS, D, H, N, T
from devices import on_device
from rejection import rejects

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

PRESETS = [ro.BasicRNN, ro.LSTM, ro.MILSTM, ro.LayerNormLSTM, ro.LayerNormMILSTM, ro.GRU]


def net_with_x() -> tuple[ro.Net, ro.Blob]:
    net = ro.Net("bad")
    return net, net.input("x")


@pytest.mark.parametrize("cell_class", CELLS)
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_wrong_number_of_initial_states(cell_class: Any, count: int) -> None:
    net, x = net_with_x()
    cell = cell_class(D, H, name="c")
    states = [net.input(f"s{i}") for i in range(count)]
    if count == len(cell.get_state_names()):
        cell.apply_over_sequence(net, x, None, states)
        return
    rejects(
        ro.NetError, lambda: cell.apply_over_sequence(net, x, None, states), "'bad'", "'c'", "states", f"got {count}"
    )
    rejects(ro.NetError, lambda: cell.apply(net, x, None, states), "'bad'", "'c'", "states", f"got {count}")


@pytest.mark.parametrize("states", [3, "ab", [3, 4], [None, None], np.ones((2, 2))])
def test_states_that_are_no_blobs(states: Any) -> None:
    net, x = net_with_x()
    rejects(ro.NetError, lambda: ro.LSTM(net, x, None, states, D, H, scope="c"), "'bad'", "'c'", "list of blobs")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_with_wrong_arguments(preset: Any) -> None:
    net, x = net_with_x()
    rejects(ro.NetError, lambda: preset(x, net, None, None, D, H), "not a net", "Blob")
    rejects(ro.RecurrentError, lambda: preset(net, "x", None, None, D, H), "pair", "'x'")
    rejects(ro.NetError, lambda: preset(net, x, None, None, D, []), "dim_out")
    for size in (-1, 2.5, None, "ab", [3, None], [True]):
        rejects(ro.NetError, lambda size=size: preset(net, x, None, None, D, size), "'bad'", "shape")
    for place in (-1, 99, "a", None):
        rejects(
            ro.NetError, lambda place=place: preset(net, x, None, None, D, [H, H], outputs_with_grads=[place]), "0 to"
        )
    rejects(ro.NetError, lambda: preset(net, x, None, None, D, H, banana=1), "'bad'", "banana")
    for scope in ("", " ", 3):
        rejects(ro.NetError, lambda scope=scope: preset(net, x, None, None, D, H, scope=scope), "'bad'", "scope")
    for steps in (0, -1, 2.5, "3", True):
        rejects(
            ro.NetError, lambda steps=steps: preset(net, x, None, None, D, H, static_rnn_unroll_size=steps), "steps"
        )
    assert preset(net, x, None, None, D, H, scope="good")


def test_activations() -> None:
    net, x = net_with_x()
    for activation in ("sigmoid", None, 3, ["tanh"]):
        rejects(ro.NetError, lambda a=activation: ro.BasicRNN(net, x, None, None, D, H, activation=a), "tanh or relu")
    rejects(ro.NetError, lambda: ro.LSTM(net, x, None, None, D, H, activation="tanh"), "activation")


def test_blobs_of_another_net() -> None:
    net, x = net_with_x()
    other = ro.Net("other")
    foreign = [other.input("h0"), other.input("c0")]
    rejects(ro.RecurrentError, lambda: ro.LSTM(net, x, None, foreign, D, H), "'bad'", "'other'", "'h0'")
    lengths = other.input("lengths", "int32")
    rejects(ro.RecurrentError, lambda: ro.LSTM(net, x, lengths, None, D, H), "'bad'", "'other'", "'lengths'")
    for preset in PRESETS:
        rejects(ro.RecurrentError, lambda p=preset: p(net, other.input(p.__name__), None, None, D, H), "'other'")


def test_lengths_of_a_wrong_kind() -> None:
    for dtype in ("int64", "float"):
        net, x = net_with_x()
        lengths = net.input("lengths", dtype)
        rejects(ro.NetError, lambda net=net, x=x, n=lengths: ro.GRU(net, x, n, None, D, H), "lengths", "int32", dtype)
    for dtype, shape in (("int32", (N + 1,)), ("int32", (N, 1))):
        net, x = net_with_x()
        lengths = net.input("lengths", dtype)
        net.outputs(y=ro.GRU(net, x, lengths, None, D, H)[0])
        feeds = {**ro.init_params(net, 0), "x": np.ones((T, N, D), "float32"), "lengths": np.zeros(shape, dtype)}
        rejects(
            ro.TypeRuleError,
            lambda net=net, feeds=feeds: on_device(net)(feeds),
            "SelectValid",
            "seq_lengths",
            "int32[3]",
        )
    net, x = net_with_x()
    rejects(ro.NetError, lambda: ro.GRU(net, x, LENGTHS, None, D, H), "'bad'", "lengths")
    rejects(ro.NetError, lambda: ro.GRU(net, x, [4, 0, 2], None, D, H), "'bad'", "lengths")


def test_timestep_and_lengths_go_together() -> None:
    net, x = net_with_x()
    h, lengths = net.input("h"), net.input("lengths", "int32")
    cell = ro.cells.GRUCell(D, H, name="c")
    rejects(ro.NetError, lambda: cell.apply(net, x, lengths, [h]), "'bad'", "'c'", "timestep")
    rejects(ro.NetError, lambda: cell.apply(net, x, None, [h], net.input("t", "int32")), "'bad'", "timestep")


def test_two_unnamed_cells() -> None:
    for second in (lambda: ro.cells.GRUCell(H, H), lambda: ro.cells.DropoutCell(ro.cells.GRUCell(H, H), 0.5)):
        net, x = net_with_x()
        cell = ro.cells.GRUCell(D, H)
        h = cell.apply_over_sequence(net, x)[0]
        rejects(ro.NetError, lambda net=net, h=h, make=second: make().apply_over_sequence(net, h), "'gru'", "name=")
        cell.apply_over_sequence(net, x)
        ro.cells.DropoutCell(cell, 0.5).apply_over_sequence(net, x)
        ro.cells.GRUCell(H, H, name="other").apply_over_sequence(net, h)


def test_unnamed_cell_does_not_take_the_weights_of_a_named_one() -> None:
    """An unnamed cell's default name may be that of a preset, of a named cell, or of a layer of a stack."""
    for first in (
        lambda net, x: ro.GRU(net, x, None, None, D, H)[0],
        lambda net, x: ro.cells.GRUCell(D, H, name="gru").apply_over_sequence(net, x)[0],
        lambda net, x: ro.cells.MultiRNNCell([ro.cells.GRUCell(D, H)]).apply_over_sequence(net, x)[0],
    ):
        net, x = net_with_x()
        first(net, x)
        rejects(ro.NetError, lambda net=net, x=x: ro.cells.GRUCell(D, H).apply_over_sequence(net, x), "'gru'", "name=")


def test_cells_of_one_name_and_different_sizes() -> None:
    net, x = net_with_x()
    h = ro.cells.LSTMCell(D, H, name="c").apply_over_sequence(net, x)[0]
    rejects(
        ro.NetError,
        lambda: ro.cells.LSTMCell(H, H, name="c").apply_over_sequence(net, h),
        "'c/i2h_w'",
        "(20, 2)",
        "(20, 5)",
    )
    rejects(ro.NetError, lambda: ro.LSTM(net, h, None, None, H, 3, scope="c"), "'c/")


def test_stacks() -> None:
    low, high = ro.cells.LSTMCell(D, H, name="low"), ro.cells.LSTMCell(H, 3, name="high")
    rejects(ro.NetError, lambda: ro.cells.MultiRNNCell([]), "at least one")
    for cells in (3, None, [3], [low, None], low):
        rejects(ro.NetError, lambda cells=cells: ro.cells.MultiRNNCell(cells), "list of cells")
    rejects(ro.NetError, lambda: ro.cells.MultiRNNCell([low, low]), "share a name", "low")
    rejects(
        ro.NetError, lambda: ro.cells.MultiRNNCell([ro.cells.LSTMCell(D, H), ro.cells.LSTMCell(H, H)]), "share a name"
    )
    for layer in (0, 2, -1, "1", None):
        rejects(
            ro.NetError,
            lambda layer=layer: ro.cells.MultiRNNCell([low, high], residual_output_layers=[layer]),
            "residual",
        )
    rejects(
        ro.NetError, lambda: ro.cells.MultiRNNCell([low, high], residual_output_layers=[1]), "differs in size", "5", "3"
    )
    for cell in (3, None, "lstm"):
        rejects(ro.NetError, lambda cell=cell: ro.cells.DropoutCell(cell, 0.5), "not a cell")
        rejects(ro.NetError, lambda cell=cell: ro.cells.UnrolledCell(cell, 3), "not a cell")


@pytest.mark.parametrize("ratio", [1.0, 1.5, -0.1, "half", [0.5]])
def test_dropout_ratios(ratio: Any) -> None:
    rejects(ro.NetError, lambda: ro.cells.DropoutCell(ro.cells.GRUCell(D, H), ratio), "ratio", "0 <= ratio < 1")


def test_attention() -> None:
    net, x = net_with_x()
    encoder, decoder = net.input("encoder"), ro.cells.LSTMCell(D, H, name="dec")

    def cell(*arguments: Any, **options: Any) -> ro.cells.RNNCell:
        return ro.cells.AttentionCell(*arguments, name="att", **options)

    for kind in ("banana", None, 3, ["dot"]):
        rejects(
            ro.NetError, lambda kind=kind: cell(H, encoder, None, decoder, H, kind), "'att'", "regular, recurrent, dot"
        )
    rejects(ro.NetError, lambda: cell(H, encoder, None, decoder, H + 1, "dot"), "'att'", "decoder_state_dim", "5", "6")
    rejects(ro.NetError, lambda: cell(H, encoder, None, "dec", H, "dot"), "not a cell")
    rejects(ro.NetError, lambda: cell(H, "encoder", None, decoder, H, "dot"), "'att'", "encoder_outputs")
    rejects(ro.NetError, lambda: cell(H, encoder, LENGTHS, decoder, H, "dot"), "'att'", "encoder_lengths")
    rejects(
        ro.NetError, lambda: cell(H, encoder, None, decoder, H, "dot", weighted_encoder_outputs=3), "'att'", "weighted"
    )
    foreign = ro.Net("other").input("encoder")
    rejects(ro.NetError, lambda: cell(H, foreign, None, decoder, H, "regular").apply_over_sequence(net, x), "'other'")
    states = [net.input(name) for name in ("h", "c")]
    rejects(
        ro.NetError,
        lambda: cell(H, encoder, None, decoder, H, "dot").apply_over_sequence(net, x, None, states),
        "3 (",
        "got 2",
    )


@pytest.mark.parametrize("name", ["", " ", 3, "a\n", b"x"])
def test_names_of_cells(name: Any) -> None:
    rejects(ro.NetError, lambda: ro.cells.GRUCell(D, H, name=name), "not a name for a cell")
    rejects(ro.NetError, lambda: ro.cells.MultiRNNCell([ro.cells.GRUCell(D, H)], name=name), "not a name for a cell")


def test_unrolled_cell_needs_its_number_of_steps() -> None:
    net, x = net_with_x()
    net.outputs(y=ro.GRU(net, x, None, None, D, H, static_rnn_unroll_size=T)[0])
    feeds = {**ro.init_params(net, 0), "x": np.ones((T + 1, N, D), "float32")}
    rejects(ro.TypeRuleError, lambda: on_device(net)(feeds), "'bad'", "Split")
    other, x = net_with_x()
    rejects(
        ro.NetError,
        lambda: ro.GRU(other, x, None, None, D, H, static_rnn_unroll_size=T, outputs_with_grads=[0]),
        "outputs_with_grads",
    )


def test_states_of_other_sizes_at_the_run() -> None:
    net, x = net_with_x()
    net.outputs(y=ro.GRU(net, x, None, [net.input("h0")], D, H)[0])
    params, x_ = ro.init_params(net, 0), np.ones((T, N, D), "float32")
    for shape in ((H + 1,), (N + 1, H), (2, N, H), (1, 1, N, H), ()):
        feeds = {**params, "x": x_, "h0": np.ones(shape, "float32")}
        with pytest.raises((ro.RecurrentError, ro.TypeRuleError)) as caught:
            on_device(net)(feeds)
        assert caught.value.net in ("bad", "gru/step")
    with pytest.raises(ro.TypeRuleError):
        on_device(net)({**params, "x": np.ones((T, N, D + 1), "float32"), "h0": np.ones(H, "float32")})


def test_arguments_that_cells_do_not_have() -> None:
    for cell in ro.cells.CELLS.values():
        rejects(ro.ArgumentError, lambda c=cell: c(D, H, forget_bia=1.0), cell.__name__, "Did you mean forget_bias")
        rejects(ro.ArgumentError, lambda c=cell: c(D), cell.__name__, "hidden_size")
    gru = ro.cells.GRUCell(D, H)
    rejects(ro.ArgumentError, lambda: ro.cells.DropoutCell(gru), "DropoutCell", "ratio")
    rejects(ro.ArgumentError, lambda: ro.cells.MultiRNNCell([gru], residual=[0]), "MultiRNNCell", "residual")
    rejects(ro.ArgumentError, lambda: ro.cells.CfCCell(D, H, elapse=1.0), "CfCCell", "Did you mean elapsed")


def test_a_wrong_call_within_a_cell_of_a_users_own_stays_a_plain_type_error() -> None:
    class Mine(ro.cells.LSTMCell):
        def __init__(self, size: int) -> None:
            super().__init__(size, size, nothing=1)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="'nothing'") as caught:
        Mine(3)
    assert not isinstance(caught.value, ro.RnnopsError)


SIZES: dict[str, tuple[str, ...]] = {
    "cfc": ("backbone_size",),
    "gated_delta_product": ("products",),
    "lmu": ("order",),
    "lru": ("state_size",),
    "ltc": ("unfolds",),
    "mamba2": ("state_size",),
    "ntm": ("slots", "width"),
    "projected_lstm": ("proj_size",),
    "rwkv7": ("rank",),
    "s5": ("state_size",),
    "selective_ssm": ("rank", "state_size"),
}


@pytest.mark.parametrize("size", [0, -1, 2.5, "ab", True])
def test_options_that_are_no_sizes(size: Any) -> None:
    for name, options in SIZES.items():
        for option in options:
            make = ro.cells.CELLS[name]
            rejects(ro.NetError, lambda c=make, one=option: c(D, H, name="c", **{one: size}), "'c'", option)


@pytest.mark.parametrize("size", [2.5, "ab", None])
def test_hidden_sizes_of_cells_that_compute_with_them(size: Any) -> None:
    for name in ("projected_lstm", "lru", "selective_ssm", "mlstm", "rwkv7", "gla"):
        make = ro.cells.CELLS[name]
        rejects(ro.NetError, lambda c=make: c(D, size, name="c"), "'c'", "hidden_size is not a size", repr(size))


def test_other_options_of_cells_out_of_range() -> None:
    rejects(ro.NetError, lambda: ro.cells.LSTMCell(D, H, initializer=3), "'lstm'", "initializer is not a function")
    rejects(ro.NetError, lambda: ro.cells.SRUCell(D, H, highway_bias=1e3), "'sru'", "at most 80")
    rejects(ro.NetError, lambda: ro.cells.LMUCell(D, H, theta=float("nan")), "'lmu'", "positive")
    rejects(ro.NetError, lambda: ro.cells.HGRN2Cell(D, H, lower_bound=1.0), "'hgrn2'", "lower_bound is out of range")
    rejects(ro.NetError, lambda: ro.cells.LEMCell(D, H, dt="ab"), "'lem'", "dt")
    for heads, told in ((0, "heads is not a size"), (True, "heads is not a size"), (3, "wanted a divisor of 4; got 3")):
        rejects(ro.NetError, lambda n=heads: ro.cells.KDACell(D, 4, heads=n), "'kda'", told)
    ro.cells.KDACell(D, 4, heads=np.int64(2))
