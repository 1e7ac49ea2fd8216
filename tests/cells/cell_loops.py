"""One step of every cell by hand, in NumPy, from the cells' parameters by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from by_hand import sigmoid

Params = Mapping[str, np.ndarray]
Step = Callable[..., list[np.ndarray]]


def linear(params: Params, name: str, x: np.ndarray) -> np.ndarray:
    return x @ params[f"{name}_w"].T + params[f"{name}_b"]


def basic_rnn(params: Params, name: str, x: np.ndarray, h: np.ndarray, i2h: str | None = None) -> list[np.ndarray]:
    return [np.tanh(linear(params, i2h or f"{name}/i2h", x) + linear(params, f"{name}/gates_t", h))]


def lstm(
    params: Params, name: str, x: np.ndarray, h: np.ndarray, c: np.ndarray, i2h: str | None = None
) -> list[np.ndarray]:
    gates = linear(params, i2h or f"{name}/i2h", x) + linear(params, f"{name}/gates_t", h)
    return lstm_unit(gates, c)


def lstm_unit(gates: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    i, f, o, g = np.split(gates, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def milstm(
    params: Params, name: str, x: np.ndarray, h: np.ndarray, c: np.ndarray, i2h: str | None = None
) -> list[np.ndarray]:
    x, p = linear(params, i2h or f"{name}/i2h", x), linear(params, f"{name}/prev_t", h)
    alpha, beta1, beta2, b = (params[f"{name}/{key}"] for key in ("alpha", "beta1", "beta2", "b"))
    return lstm_unit(alpha * x * p + beta1 * p + beta2 * x + b, c)


def gru(params: Params, name: str, x: np.ndarray, h: np.ndarray, i2h: str | None = None) -> list[np.ndarray]:
    x_r, x_u, x_o = np.split(linear(params, i2h or f"{name}/i2h", x), 3, axis=-1)
    r = sigmoid(linear(params, f"{name}/reset_gate_t", h) + x_r)
    u = sigmoid(linear(params, f"{name}/update_gate_t", h) + x_u)
    return [u * h + (1 - u) * np.tanh(linear(params, f"{name}/output_gate_t", r * h) + x_o)]


def over_sequence(
    step: Callable[[np.ndarray, list[np.ndarray]], list[np.ndarray]],
    xs: np.ndarray,
    states: list[np.ndarray],
    lengths: np.ndarray | None = None,
    drop: bool = False,
) -> list[np.ndarray]:
    """Every state at every step, `[T, N, ...]`; past a row's end its states stay, or are zero with `drop`."""
    columns: list[list[np.ndarray]] = [[] for _ in states]
    for t, x in enumerate(xs):
        new = step(x, states)
        if lengths is not None:
            valid = (t < lengths)[:, None]
            new = [
                np.where(valid, after, 0 * before if drop else before)
                for after, before in zip(new, states, strict=True)
            ]
        states = new
        for column, state in zip(columns, states, strict=True):
            column.append(state)
    return [np.stack(column) for column in columns]
