"""A net whose cell holds a recurrence: letters of words, words of a text."""

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
