"""A language model's training step: tokens, an embedding, four LSTM layers, scores of all words, cross entropy."""

from __future__ import annotations

import numpy as np

import rnnops as ro
from bench.problems import Arrays, Problem

LAYERS = 4
PREFIX = "language_model_"  # and the number of words


def build(words: int, width: int, layers: int = LAYERS) -> ro.Net:
    """The model as a net."""
    net = ro.Net(f"{PREFIX}{words}")
    tokens, labels = net.input("tokens", "int32"), net.input("labels", "int32")
    x = ro.gather(net.parameter("table", (words, width), ("xavier", width)), tokens, axis=0)
    h_all, *_ = ro.LSTM(net, x, None, None, width, [width] * layers, scope="lstm")
    scores = ro.reshape(h_all, [-1, width]) @ net.parameter("w", (width, words), ("xavier", width))
    scores = scores + net.parameter("b", (words,), "zeros")
    net.outputs(loss=ro.softmax_cross_entropy_loss(scores, ro.reshape(labels, [-1])))
    return net


def net_of(problem: Problem) -> ro.Net:
    return build(words_of(problem), problem.size.H)


def words_of(problem: Problem) -> int:
    return int(problem.net.removeprefix(PREFIX))


def feeds_of(problem: Problem) -> Arrays:
    """Parameters, tokens and the tokens that follow."""
    rng, size = np.random.default_rng(0), problem.size
    text = rng.integers(0, words_of(problem), (size.T + 1, size.N)).astype(np.int32)
    return {**ro.init_params(net_of(problem), 0, "float32"), "tokens": text[:-1], "labels": text[1:]}
