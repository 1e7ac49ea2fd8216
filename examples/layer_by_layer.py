"""Trains a stack of LSTMs with the optimizer inside the backward pass, and prints the peak bytes of gradients.

The plain way holds the gradients of all layers before it uses any. By layers, an optimizer takes those of one layer
before the next is computed: at most two layers are there at a time, one if the loop deletes what it got. Parameters
have the same bits both ways.

    python examples/layer_by_layer.py
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np

import rnnops as ro

T, N, D, H, LAYERS = 10, 4, 128, 128, 6
RATE, KEEP, STEPS = 0.05, 0.9, 5
Arrays = dict[str, np.ndarray]


class Momentum:
    """Gradient descent with momentum, one parameter at a time, in place."""

    def __init__(self) -> None:
        self.speeds: Arrays = {}

    def update(self, name: str, value: np.ndarray, grad: np.ndarray) -> None:
        speed = self.speeds.setdefault(name, np.zeros_like(value))
        speed *= KEEP
        grad *= RATE  # yielded gradients are the loop's own
        speed -= grad
        value += speed


def model() -> ro.Net:
    """A stack that learns to repeat its input one step late."""
    net = ro.Net("late")
    x, target = net.inputs("x", "target")
    h_all, *_ = ro.LSTM(net, x, None, None, D, [H] * LAYERS, scope="stack")
    with net.layer("head"):
        error = h_all @ net.parameter("w", (H, D), ("xavier", H)) - target
        loss = ro.reduce_mean(error * error, keepdims=0)
    net.outputs(loss=loss)
    return net


def update_after(pullback: ro.Pullback, params: Arrays, optimizer: Momentum) -> None:
    for name, grad in pullback(np.ones((), "float32")).items():
        optimizer.update(name, params[name], grad)


def update_inside(pullback: ro.Pullback, params: Arrays, optimizer: Momentum) -> None:
    for names, values, grads, _ in pullback.layers(np.ones((), "float32")):
        while names:
            optimizer.update(names.pop(), values.pop(), grads.pop())


def train(update: Callable[[ro.Pullback, Arrays, Momentum], None]) -> tuple[Arrays, int, float]:
    """Parameters after some steps, the most bytes that a backward pass had at once, and the last loss."""
    net = model()
    run, params, optimizer = ro.compile(net, threads=1), ro.init_params(net, 0, "float32"), Momentum()
    x = np.random.default_rng(0).normal(size=(T, N, D)).astype("float32")
    feeds = {"x": x, "target": np.concatenate([np.zeros_like(x[:1]), x[:-1]])}
    peak = 0
    for step in range(STEPS):
        out, pullback = run.vjp(params, feeds, wrt=list(params))
        if step == STEPS - 1:  # plans and speeds are there
            tracemalloc.start()
        update(pullback, params, optimizer)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return params, peak, float(out["loss"])


def main() -> None:
    after, bytes_after, loss = train(update_after)
    inside, bytes_inside, _ = train(update_inside)
    total = sum(value.nbytes for value in after.values())
    layer = sum(value.nbytes for name, value in after.items() if name.startswith("stack/layer_1/"))
    assert all(after[name].tobytes() == inside[name].tobytes() for name in after)
    print(f"loss {loss:.4f}; gradients of all parameters {total:,} bytes, of one layer {layer:,}")
    print(f"peak of a backward pass, optimizer after it:  {bytes_after:,} bytes")
    print(f"peak of a backward pass, optimizer inside it: {bytes_inside:,} bytes")


if __name__ == "__main__":
    main()
