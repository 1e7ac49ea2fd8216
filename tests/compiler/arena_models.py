"""Models whose memory is planned: language models, an attention decoder, a chain of layers."""

from __future__ import annotations

from collections.abc import Callable

import rnnops as ro

T, N, H = 20, 8, 64
Shapes = dict[str, tuple[int, ...]]


def language_model(vocabulary: int, layers: int = 4, width: int = H) -> ro.Net:
    """Tokens to the loss of a stack of LSTMs."""
    net = ro.Net("language_model")
    tokens, labels = net.input("tokens", "int32"), net.input("labels", "int32")
    x = ro.gather(net.parameter("table", (vocabulary, width), ("xavier", width)), tokens, axis=0)
    h_all, *_ = ro.LSTM(net, x, None, None, width, [width] * layers, scope="lstm")
    scores = ro.reshape(h_all, [-1, width]) @ net.parameter("w", (width, vocabulary), ("xavier", width))
    scores = scores + net.parameter("b", (vocabulary,), "zeros")
    net.outputs(loss=ro.softmax_cross_entropy_loss(scores, ro.reshape(labels, [-1])))
    return net


def attention_decoder() -> ro.Net:
    net = ro.Net("decoder")
    x, encoder = net.inputs("x", "encoder")
    cell = ro.cells.LSTMWithAttentionCell(H, encoder, None, H, H, "regular", name="decoder")
    y = cell.apply_over_sequence(net, x)[0]
    error = y @ net.parameter("w", (2 * H, H), ("xavier", 2 * H)) - x
    net.outputs(loss=ro.reduce_mean(error * error, keepdims=0))
    return net


def perceptron(layers: int = 8) -> ro.Net:
    net = ro.Net("perceptron")
    h = x = net.inputs("x")
    for number in range(layers):
        weights = net.parameter(f"w{number}", (H, H), ("xavier", H))
        h = ro.tanh(h @ weights + net.parameter(f"b{number}", (H,), "zeros"))
    net.outputs(loss=ro.reduce_mean((h - x) * (h - x), keepdims=0))
    return net


def words(vocabulary: int) -> Callable[[], tuple[ro.Net, Shapes]]:
    return lambda: (language_model(vocabulary), {"tokens": (T, N), "labels": (T, N)})


MODELS: dict[str, Callable[[], tuple[ro.Net, Shapes]]] = {
    "256 words": words(256),
    "10 000 words": words(10_000),
    "attention": lambda: (attention_decoder(), {"x": (T, N, H), "encoder": (9, N, H)}),
    "perceptron": lambda: (perceptron(), {"x": (N * T, H)}),
}
