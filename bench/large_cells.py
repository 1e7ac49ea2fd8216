"""Cells of hundreds of ops, for the time that compilers take: what grows with the number of ops, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

States = tuple[Any, ...]
LINEARS, OPS, LAYERS = 100, 300, 30
PER_GRU = 4  # parameters of a layer


def chained_linear(m: Any, x: Any, h: Any, *parameters: Any) -> States:
    """Linear and tanh, over and over, each with parameters of its own."""
    h = h + x
    for w, b in each(parameters, 2):
        h = m.tanh(h @ w + b)
    return (h,)


def elementwise(m: Any, x: Any, h: Any, p: Any) -> States:
    """A random choice of ops without a product; each reads the result before it, so that none is left out."""
    choose = Random(0)
    unary = (m.tanh, m.sigmoid, lambda a: 1.0 - a)
    binary: tuple[Callable[[Any, Any], Any], ...] = (
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        m.maximum,
    )
    values = [x, h, p * h]
    for k in range(3, OPS):
        if k % 3 == 0:
            values.append(choose.choice(unary)(values[-1]))
        else:
            values.append(choose.choice(binary)(values[-1], choose.choice(values[-8:-1] or values)))
    return (m.tanh(values[-1]),)


def stacked_gru(m: Any, x: Any, *given: Any) -> States:
    """Layers of a GRU, one above the other; a state and parameters each."""
    layers = len(given) // (1 + PER_GRU)
    new: list[Any] = []
    for h, (w_x, w_h, b_x, b_h) in zip(given[:layers], each(given[layers:], PER_GRU), strict=True):
        x_reset, x_update, x_new = m.split(x @ w_x + b_x, 3)
        h_reset, h_update, h_new = m.split(h @ w_h + b_h, 3)
        reset, update = m.sigmoid(x_reset + h_reset), m.sigmoid(x_update + h_update)
        x = update * h + (1.0 - update) * m.tanh(x_new + reset * h_new)
        new.append(x)
    return tuple(new)


def each(parameters: tuple[Any, ...], kinds: int) -> Iterator[tuple[Any, ...]]:
    """Parameters of one layer after the other, from all of the first kind, all of the second, and so on."""
    count = len(parameters) // kinds
    return zip(*(parameters[k * count : (k + 1) * count] for k in range(kinds)), strict=True)
