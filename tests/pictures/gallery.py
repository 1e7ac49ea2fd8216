"""Nets whose pictures are looked at: LSTM, layers, lengths, attention, a matrix as a state, a loss, hostile names."""

from __future__ import annotations

from collections.abc import Callable

import rnnops as ro

Shapes = dict[str, tuple[int, ...]]
D, H = 32, 64
HOSTILE = "<script>window.ran=true</script>&amp;<b>'x'</b>"


def lstm() -> tuple[ro.Net, Shapes]:
    net = ro.Net("lstm")
    net.outputs(y=ro.LSTM(net, net.input("x"), None, None, D, H, scope="lstm")[0])
    return net, {"x": (50, 16, D)}


def stack() -> tuple[ro.Net, Shapes]:
    net = ro.Net("stack")
    net.outputs(y=ro.LSTM(net, net.input("x"), None, None, D, [H, H], scope="s")[0])
    return net, {"x": (200, 8, D)}


def gru_with_lengths() -> tuple[ro.Net, Shapes]:
    net = ro.Net("gru")
    x, lengths = net.input("x"), net.input("lengths", "int32")
    net.outputs(last=ro.GRU(net, x, lengths, None, D, H, scope="g", memory_optimization=True)[1])
    return net, {"x": (60, 8, D), "lengths": (8,)}


def attention() -> tuple[ro.Net, Shapes]:
    net = ro.Net("attention")
    x, encoder = net.inputs("x", "encoder")
    cell = ro.cells.LSTMWithAttentionCell(H, encoder, None, D, H, "regular", name="decoder")
    net.outputs(y=cell.apply_over_sequence(net, x)[0])
    return net, {"x": (40, 8, D), "encoder": (16, 8, H)}


def mlstm() -> tuple[ro.Net, Shapes]:
    net = ro.Net("mlstm")
    net.outputs(y=ro.cells.MLSTMCell(D, H, heads=2, name="m").apply_over_sequence(net, net.input("x"))[0])
    return net, {"x": (256, 4, D)}


def tagger() -> tuple[ro.Net, Shapes]:
    net = ro.Net("tagger")
    x, labels = net.input("x"), net.input("labels", "int32")
    h, *_ = ro.LSTM(net, x, None, None, D, H, scope="lstm")
    scores = (ro.reshape(h, [-1, H]) @ net.parameter("w", (H, 200), ("xavier", H))).named("scores")
    net.outputs(loss=ro.softmax_cross_entropy_loss(scores, ro.reshape(labels, [-1])))
    return net, {"x": (50, 16, D), "labels": (50, 16)}


def hostile() -> tuple[ro.Net, Shapes]:
    """Names that would be markup, and letters that are wide, many or combined."""
    cell = ro.Net("cell " + HOSTILE)
    x_t, h = cell.inputs("x_t", HOSTILE)
    cell.outputs(h_t=ro.tanh(x_t + h).named("状態の名前 ẍ̈ ñ 🎈" + 12 * "長い名前"))
    net = ro.Net(HOSTILE)
    x, h0 = net.inputs("x", "h0 " + HOSTILE)
    results = ro.recurrent_net(net, cell, [("x_t", x)], [(HOSTILE, h0)], {HOSTILE: "h_t"})
    net.outputs(results[0])
    return net, {"x": (30, 8, H), "h0 " + HOSTILE: (8, H)}


GALLERY: dict[str, Callable[[], tuple[ro.Net, Shapes]]] = {
    "lstm": lstm,
    "stack": stack,
    "gru": gru_with_lengths,
    "attention": attention,
    "mlstm": mlstm,
    "tagger": tagger,
    "hostile": hostile,
}
