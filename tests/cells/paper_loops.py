"""One step of one row of the cells of papers, in NumPy, straight from the papers' equations; parameters by their names.

Each takes parameters, the cell's name, x `[D]` and the states of a row, and gives the output and the new states.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from by_hand import sigmoid

Params = Mapping[str, np.ndarray]
Result = tuple[np.ndarray, list[np.ndarray]]


def affine(p: Params, name: str, *parts: np.ndarray) -> np.ndarray:
    return p[f"{name}_w"] @ np.concatenate(parts) + p.get(f"{name}_b", 0.0)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log(1.0 + np.exp(x))


def peephole_lstm(p: Params, n: str, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> Result:
    i, f, o, g = np.split(affine(p, f"{n}/i2h", x) + affine(p, f"{n}/gates_t", h), 4)
    i, f = sigmoid(i + p[f"{n}/peephole_i"] * c), sigmoid(f + p[f"{n}/peephole_f"] * c)
    c = f * c + i * np.tanh(g)
    h = sigmoid(o + p[f"{n}/peephole_o"] * c) * np.tanh(c)
    return h, [h, c]


def projected_lstm(p: Params, n: str, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> Result:
    i, f, o, g = np.split(affine(p, f"{n}/i2h", x) + affine(p, f"{n}/gates_t", h), 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = p[f"{n}/projection_w"] @ (sigmoid(o) * np.tanh(c))
    return h, [h, c]


def indrnn(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    units = [
        max(0.0, w @ x + u * s + b)
        for w, u, s, b in zip(p[f"{n}/i2h_w"], p[f"{n}/recurrent_w"], h, p[f"{n}/i2h_b"], strict=True)
    ]
    return np.array(units), [np.array(units)]


def min_gru(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    z, value = np.split(affine(p, f"{n}/i2h", x), 2)
    h = (1 - sigmoid(z)) * h + sigmoid(z) * value
    return h, [h]


def positive_min_gru(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    z, value = np.split(affine(p, f"{n}/i2h", x), 2)
    h = (1 - sigmoid(z)) * h + sigmoid(z) * np.where(value >= 0, value + 0.5, sigmoid(value))
    return h, [h]


def min_lstm(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    f, i, value = np.split(affine(p, f"{n}/i2h", x), 3)
    f, i = sigmoid(f), sigmoid(i)
    h = f / (f + i) * h + i / (f + i) * value
    return h, [h]


def sru(p: Params, n: str, x: np.ndarray, c: np.ndarray) -> Result:
    value, f, r, *passed = np.split(p[f"{n}/i2h_w"] @ x, len(p[f"{n}/i2h_w"]) // len(c))
    f = sigmoid(f + p[f"{n}/forget_v"] * c + p[f"{n}/forget_b"])
    r = sigmoid(r + p[f"{n}/highway_v"] * c + p[f"{n}/highway_b"])
    c = f * c + (1 - f) * value
    return r * c + (1 - r) * np.sqrt(3.0) * (passed[0] if passed else x), [c]


def qrnn(p: Params, n: str, x: np.ndarray, c: np.ndarray, before: np.ndarray) -> Result:
    z, f, o = np.split(affine(p, f"{n}/i2h", x, before), 3)
    c = sigmoid(f) * c + (1 - sigmoid(f)) * np.tanh(z)
    return sigmoid(o) * c, [c, x]


def cornn(p: Params, n: str, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> Result:
    force = np.tanh(affine(p, f"{n}/i2h", x) + p[f"{n}/hidden_w"] @ np.concatenate([y, z]))
    z = z + 0.042 * force - 0.042 * 2.7 * y - 0.042 * 4.7 * z
    y = y + 0.042 * z
    return y, [y, z]


def rg_lru(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    u = affine(p, f"{n}/i2h", x)
    r, i = np.split(sigmoid(affine(p, f"{n}/gates_t", u)), 2)
    a = sigmoid(p[f"{n}/recurrent_w"]) ** (8 * r)
    h = a * h + np.sqrt(1 - a**2) * (i * u)
    return h, [h]


def lmu(p: Params, n: str, x: np.ndarray, h: np.ndarray, m: np.ndarray, theta: float = 64.0) -> Result:
    """The memory by 50 small steps of its differential equation (Runge and Kutta), the signal held."""
    d = len(m)
    A = np.array([[(2 * i + 1) * (-1.0 if i < j else (-1.0) ** (i - j + 1)) for j in range(d)] for i in range(d)])
    B = np.array([(2 * i + 1) * (-1.0) ** i for i in range(d)])
    signal = p[f"{n}/signal_x_w"] @ x + p[f"{n}/signal_h_w"] @ h + p[f"{n}/signal_m_w"] @ m
    parts = 50
    for _ in range(parts):
        slopes = [(A @ m + B * signal) / theta]
        for part in (0.5, 0.5, 1.0):
            slopes.append((A @ (m + part / parts * slopes[-1]) + B * signal) / theta)
        m = m + (slopes[0] + 2 * slopes[1] + 2 * slopes[2] + slopes[3]) / (6 * parts)
    h = np.tanh(affine(p, f"{n}/i2h", x) + p[f"{n}/hidden_w"] @ h + p[f"{n}/memory_w"] @ m)
    return h, [h, m]


def ltc(p: Params, n: str, x: np.ndarray, v: np.ndarray) -> Result:
    tau, dt = 1 / softplus(p[f"{n}/leak"]), 1 / 6
    for _ in range(6):
        f = sigmoid(affine(p, f"{n}/i2h", x) + p[f"{n}/gates_t_w"] @ v)
        v = (v + dt * f * p[f"{n}/target"]) / (1 + dt * (1 / tau + f))
    return v, [v]


def cfc(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    b = 1.7159 * np.tanh(0.666 * (affine(p, f"{n}/i2h", x) + p[f"{n}/hidden_w"] @ h))
    g, k, rate, shift = np.split(affine(p, f"{n}/heads", b), 4)
    gate = sigmoid(rate + shift)
    h = np.tanh(g) * (1 - gate) + gate * np.tanh(k)
    return h, [h]
