"""Nets whose cells hold recurrences: letters of words, words of a text."""

from __future__ import annotations

from typing import Any

import numpy as np

import rnnops as ro

T, S, N, D, H = 4, 3, 2, 3, 5


def words_net(mixes_rows: bool = False, **options: Any) -> ro.Net:
    """Letters of a word are read by an inner recurrence, from and to the state of the outer one."""
    letter = ro.Net("letter")
    x, a, w, u = letter.inputs("x", "a", "w", "u")
    letter.outputs(a_t=ro.tanh((x @ w + a @ u).named("pre")))
    word = ro.Net("word")
    letters, h, v = word.inputs("letters", "h", "v")
    steps = ro.transpose(letters, perm=[1, 0, 2])
    every, last = ro.recurrent_net(word, letter, [("x", steps)], [("a", h)], {"a": "a_t"}, **options)
    shown = ro.softmax(ro.reduce_max(every, axes=[0], keepdims=0) @ v)
    if mixes_rows:
        shown = shown - ro.reduce_max(shown, axes=[0])
    word.outputs(h_t=0.5 * (ro.squeeze(last, [0]) + h), shown=shown)
    net = ro.Net("text")
    words, h0 = net.inputs("words", "h0")
    net.outputs(*ro.recurrent_net(net, word, [("letters", words)], [("h", h0)], {"h": "h_t"})[:3])
    return net


def feeds_of(dtype: str = "float64", steps: int = S) -> dict[str, np.ndarray]:
    shapes = {"words": (T, N, steps, D), "h0": (N, H), "w": (D, H), "u": (H, H), "v": (H, 4)}
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def stacks_net(layers: int = 2, **options: Any) -> ro.Net:
    """Words of different lengths, read by a stack of recurrences; what is shown follows from the place in the text."""
    word = ro.Net("word")
    letters, h = word.inputs("letters", "h")
    count, t = word.input("count", "int32"), word.input("t", "int32")
    steps = ro.transpose(letters, perm=[1, 0, 2])
    every, last = ro.BasicRNN(word, steps, count, [h] * layers, D, [H] * layers, scope="letters")
    shown = ro.softmax(ro.reduce_max(every, axes=[0], keepdims=0)) * ro.cast(t, to="float")
    word.outputs(h_t=0.5 * (ro.squeeze(last, [0]) + h), shown=shown)
    net = ro.Net("text")
    words, h0, counts = net.input("words"), net.input("h0"), net.input("counts", "int32")
    inputs = [("letters", words), ("count", counts)]
    net.outputs(*ro.recurrent_net(net, word, inputs, [("h", h0)], {"h": "h_t"}, timestep="t", **options)[:3])
    return net


def stacks_feeds(net: ro.Net, dtype: str = "float64") -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    shapes = {"words": (T, N, S, D), "h0": (N, H), **{spec.name: spec.shape for spec in net.parameters}}
    feeds = {name: generator.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    return {**feeds, "counts": np.array([[3, 1], [2, 3], [0, 2], [1, 1]], "int32")}
