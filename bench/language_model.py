"""A language model's training step: tokens, an embedding, four LSTM layers, scores of all words, cross entropy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import rnnops as ro
from bench.contender import Contender, Settings, gradient_of
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


def make_feeds(net: ro.Net, words: int, problem: Problem) -> Arrays:
    """Parameters, tokens and the tokens that follow."""
    rng = np.random.default_rng(0)
    text = rng.integers(0, words, (problem.size.T + 1, problem.size.N)).astype(np.int32)
    return {**ro.init_params(net, 0, "float32"), "tokens": text[:-1], "labels": text[1:]}


def _contender(recycle: bool, problem: Problem, mode: str, settings: Settings) -> Contender:
    words = int(problem.net.removeprefix(PREFIX))
    net = build(words, problem.size.H)
    feeds = make_feeds(net, words, problem)
    run = ro.compile(net, device=settings.device, threads=settings.threads, recycle=recycle)
    ones = {"loss": np.ones((), np.float32)}

    def training() -> Any:
        outputs, pullback = run.vjp(feeds)
        return outputs, pullback(ones)

    return Contender(training, _results)


def _results(returned: Any) -> Arrays:
    outputs, gradients = returned
    return {**outputs, **{gradient_of(name): array for name, array in gradients.items()}}


recycled, not_recycled = partial(_contender, True), partial(_contender, False)
