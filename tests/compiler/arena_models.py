"""Models whose memory is planned: language models, an attention decoder, a chain of layers."""

from __future__ import annotations

from collections.abc import Callable

import rnnops as ro
from bench import language_model

T, N, H = 20, 8, 64
Shapes = dict[str, tuple[int, ...]]


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
    return lambda: (language_model.build(vocabulary, H), {"tokens": (T, N), "labels": (T, N)})


MODELS: dict[str, Callable[[], tuple[ro.Net, Shapes]]] = {
    "256 words": words(256),
    "10 000 words": words(10_000),
    "attention": lambda: (attention_decoder(), {"x": (T, N, H), "encoder": (9, N, H)}),
    "perceptron": lambda: (perceptron(), {"x": (N * T, H)}),
}
