"""What runs around loops, beside the reference or the CPU on the same numbers, for `first_minutes.py`.

Cells that hold recurrences, schedules of slots, rows that end, backward passes by layers, and a model that is trained.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import rnnops as ro
from bench.contender import Settings, gradient_of
from bench.data import make_feeds
from bench.first_minutes.steps import compiled_run, passes, tell
from bench.place import relative_error
from bench.problems import Problem, Size
from bench.rnnops_engine import compile_net
from rnnops.model import RNN, SGD, Dense, Model, Placeholder, softmax_cross_entropy

LETTERS, STEPS_OF_MODEL = 3, 3
AGREES = 1e-4  # norm of a difference / norm, of float32 that was summed in another order


def whole(options: argparse.Namespace) -> None:
    """One of them; what a device refuses by name is not there."""
    start = time.perf_counter()
    try:
        told = WHOLE[options.net](options.size)
    except ro.errors.DeviceError as error:
        tell(not_there=" ".join(str(error).split()))
        return
    except ro.testing.CheckError as error:
        tell(wrong=" ".join(str(error).split()))
        return
    tell(**told, seconds=round(time.perf_counter() - start, 2))


def nested(size: Size) -> dict[str, Any]:
    """An inner recurrence over the letters of a word, in a cell over words."""
    letter = ro.Net("letter")
    x, a, w, u = letter.inputs("x", "a", "w", "u")
    letter.outputs(a_t=ro.tanh(x @ w + a @ u))
    word = ro.Net("word")
    letters, h, v = word.inputs("letters", "h", "v")
    steps = ro.transpose(letters, perm=[1, 0, 2])
    every, last = ro.recurrent_net(word, letter, [("x", steps)], [("a", h)], {"a": "a_t"})
    shown = ro.softmax(ro.reduce_max(every, axes=[0], keepdims=0) @ v)
    word.outputs(h_t=0.5 * (ro.squeeze(last, [0]) + h), shown=shown)
    net = ro.Net("text")
    words, h0 = net.inputs("words", "h0")
    net.outputs(*ro.recurrent_net(net, word, [("letters", words)], [("h", h0)], {"h": "h_t"})[:3])
    T, N, H = size.T, size.N, size.H
    shapes = {"words": (T, N, LETTERS, H), "h0": (N, H), "w": (H, H), "u": (H, H), "v": (H, 4)}
    random = np.random.default_rng(0)
    feeds = {name: (random.normal(size=shape) / np.sqrt(H)).astype(np.float32) for name, shape in shapes.items()}
    return compared(net, feeds, lambda net: ro.compile(net, device="cuda"))


def slots(size: Size) -> dict[str, Any]:
    """States at two of the steps alone; the others are computed again."""
    problem = Problem("lstm", size)
    feeds, _ = make_feeds(problem)
    schedule = ro.checkpoints.Slots(2, steps=1)
    run = compile_net(problem, Settings("cuda"), checkpoints=schedule)
    return compared(run.net, feeds, lambda net: ro.compile(net, device="cuda", checkpoints=schedule))


def rows(size: Size) -> dict[str, Any]:
    """Rows that end at all steps, longest first, so that whole groups of rows are over long before the others."""
    problem = Problem("lstm_with_lengths", size)
    feeds, _ = make_feeds(problem)
    feeds["seq_lengths"] = np.linspace(size.T, 1, size.N).round().astype(np.int32)
    net = compile_net(problem, Settings("cuda"), device="reference").net
    return compared(net, feeds, lambda net: ro.compile(net, device="cuda"))


def compared(net: ro.Net, feeds: Mapping[str, Any], make: Callable[[ro.Net], ro.Run]) -> dict[str, Any]:
    """Outputs and gradients beside the reference. Raises CheckError."""
    report = ro.testing.check_devices(net, feeds, {"cuda": make})
    return {"worst": str(max(report.rows, key=lambda row: row.error / max(row.limit, 1e-30)))}


def layers(size: Size) -> dict[str, Any]:
    """Gradients layer by layer beside those of the whole pullback."""
    options = argparse.Namespace(net="lstm", size=size, weights="float32")
    run, (feeds, heads) = compiled_run(options), make_feeds(Problem("lstm", size))
    wanted = passes(run, feeds, heads)
    _, pullback = run.vjp({name: array.copy() for name, array in feeds.items()})
    count, worst = 0, 0.0
    for names, _, grads, _ in pullback.layers(heads):
        for name, grad in zip(names, grads, strict=True):
            error = relative_error(np.asarray(grad), np.asarray(wanted[gradient_of(name)]))
            worst, count = (error if error != error else max(worst, error)), count + 1
    return judged(worst, f"{count} gradients of {len(feeds)}") if count else {"wrong": "no layer gave a gradient"}


class Reader(Model):
    """An LSTM and what is read from it."""

    def __init__(self, width: int, labels: int) -> None:
        self.rnn = RNN("lstm", width)
        self.scores = Dense(labels)

    def forward(self, xs: Any) -> Any:
        output, _ = self.rnn(xs)
        return self.scores(output)

    def train_one_batch(self, xs: Any, labels: Any) -> Any:
        return self.minimize(softmax_cross_entropy(self.forward(xs), labels))


def model(size: Size) -> dict[str, Any]:
    """A few steps of training: losses and parameters beside those of the CPU."""
    random, labels = np.random.default_rng(0), 5
    xs = random.normal(size=(size.T, size.N, size.H)).astype(np.float32)
    wanted = random.integers(0, labels, (size.T, size.N)).astype(np.int32)
    found = {}
    for device in ("cpu", "cuda"):
        one = Reader(size.H, labels)
        one.set_optimizer(SGD(0.1))
        shapes = [Placeholder(xs.shape, "float32"), Placeholder(wanted.shape, "int32")]
        one.compile(shapes, device=device, threads=1, seed=0)
        losses = [float(np.asarray(one(xs, wanted))) for _ in range(STEPS_OF_MODEL)]
        found[device] = {"losses": np.array(losses), **{name: np.asarray(one.arrays[name]) for name in one.arrays}}
    errors = {name: relative_error(array, found["cpu"][name]) for name, array in found["cuda"].items()}
    name, worst = max(errors.items(), key=lambda pair: pair[1] if pair[1] == pair[1] else np.inf)
    return judged(worst, f"{name}, after {STEPS_OF_MODEL} steps of training")


def judged(worst: float, what: str) -> dict[str, Any]:
    """An error as it is told; NaN is wrong."""
    text = f"{what}: off by {worst:.1e} of the norm at most"
    return {"worst": text} if worst <= AGREES else {"wrong": f"{text}, allowed {AGREES:.0e}"}


WHOLE: dict[str, Callable[[Size], dict[str, Any]]] = {
    "nested": nested, "slots": slots, "rows": rows, "layers": layers, "model": model,
}  # fmt: skip
