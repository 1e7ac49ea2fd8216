"""Random nets of rows: steps and layers full of sums of a row, of any width, in which no row looks at another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import rnnops as ro

WIDTHS = (1, 3, 5, 8, 12, 17, 24, 31, 32, 33, 40, 48, 57, 64, 66, 80, 96, 100, 128, 130)
UNARY: tuple[Callable[[ro.Blob], ro.Blob], ...] = (
    ro.tanh,
    ro.sigmoid,
    ro.softplus,
    ro.erf,
    ro.gelu,
    lambda x: ro.exp(ro.tanh(x)),
    lambda x: x * x,
    lambda x: x / (1.0 + x * x),
    lambda x: ro.sin(x) + ro.log(1.0 + x * x),
    lambda x: ro.sqrt(0.5 + x * x),
)
BINARY: tuple[Callable[[ro.Blob, ro.Blob], ro.Blob], ...] = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x * ro.sigmoid(y) + y * ro.tanh(x),
    lambda x, y: x / (2.0 + ro.tanh(y)),
)


def _mean(x: ro.Blob) -> ro.Blob:
    return ro.reduce_mean(x, axes=[-1], keepdims=1)


SUMS: tuple[Callable[[ro.Blob], ro.Blob], ...] = (  # of a row, as wide as it was
    lambda x: (x - _mean(x)) / ro.sqrt(_mean((x - _mean(x)) * (x - _mean(x))) + 1e-3),
    lambda x: ro.softmax(x, axis=-1) * 3.0,
    lambda x: ro.log_softmax(x, axis=-1) * 0.2,
    lambda x: x / ro.sqrt(_mean(x * x) + 0.1),
    lambda x: x * ro.tanh(ro.reduce_sum(x * ro.sigmoid(x), axes=[-1], keepdims=1)),
    lambda x: ro.tanh(x - ro.reduce_log_sum_exp(x, axes=[-1], keepdims=1)),
    lambda x: x - 0.1 * ro.reduce_max(x, axes=[-1], keepdims=1),
    lambda x: x / (1.0 + ro.reduce_sum_square(x, axes=[-1], keepdims=1)),
)


@dataclass(frozen=True)
class RowNet:
    """A net whose inputs `x` [T, N, D] and `h0` [N, H] have rows that do not mix, and what it is fed with.

    Args:
        parameters: what all rows share.
    """

    net: ro.Net
    feeds: dict[str, np.ndarray]
    parameters: tuple[str, ...]

    def row(self, n: int) -> dict[str, np.ndarray]:
        """What the net is fed with for one row alone."""
        own = {"x": self.feeds["x"][:, n : n + 1], "h0": self.feeds["h0"][n : n + 1]}
        return {**self.feeds, **{name: array.copy() for name, array in own.items()}}

    def __str__(self) -> str:
        shapes = [f"# {name}: {array.dtype}{list(array.shape)}" for name, array in self.feeds.items()]
        return "\n".join([*shapes, str(self.net)])


def row_net(seed: int) -> RowNet:
    """A random net of rows, the same for a seed."""
    choose = Random(seed)
    wide, features, steps = choose.choice(WIDTHS), choose.choice(WIDTHS), choose.randint(1, 7)
    rows, dtype = choose.randint(1, 6), choose.choice(["float32", "float32", "float64"])

    @ro.cell
    def step(x: Any, h: Any, *, w: Any, u: Any, b: Any, g: Any) -> Any:
        gates = x @ w + h @ u
        blobs = _grown(choose, [h * b + g, gates, gates + b, h], choose.randint(3, 9))
        keep = ro.sigmoid(choose.choice(blobs))
        return {"h": keep * h + (1.0 - keep) * ro.tanh(blobs[-1]), "z": choose.choice(blobs[4:])}

    net = ro.Net(f"rows_{seed}")
    last, every = ro.scan(step, net.input("x"), h=net.input("h0"))
    around = _grown(choose, [every["z"], ro.tanh(every["z"])], choose.randint(1, 4))
    net.outputs(y=around[-1], last=last["h"], total=ro.reduce_sum(choose.choice(around), axes=[-1]))
    shapes = {"x": (steps, rows, features), "h0": (rows, wide), "w": (features, wide), "u": (wide, wide)}
    shapes |= {"b": (wide,), "g": (wide,)}
    draw = np.random.default_rng(seed)
    scales = {"w": features**-0.5, "u": wide**-0.5}
    feeds = {name: (draw.normal(size=shapes[name]) * scales.get(name, 1.0)).astype(dtype) for name in net.input_names}
    return RowNet(net, feeds, tuple(name for name in net.input_names if name not in ("x", "h0")))


def _grown(choose: Random, blobs: list[ro.Blob], count: int) -> list[ro.Blob]:
    """Blobs, and so many more that are made of them: at least one of a sum of a row."""
    blobs = list(blobs)
    summed = choose.randrange(count)
    for i in range(count):
        kind, one = choose.random(), choose.choice(blobs[-3:])
        if i == summed or kind < 0.3:
            blobs.append(choose.choice(SUMS)(one))
        elif kind < 0.6:
            blobs.append(choose.choice(UNARY)(one))
        else:
            blobs.append(choose.choice(BINARY)(one, choose.choice(blobs)))
    return blobs
