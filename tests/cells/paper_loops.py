"""One step of one row of the cells of papers, in NumPy, straight from the papers' equations; parameters by their names.

Each takes parameters, the cell's name, x `[D]` and the states of a row, and gives the output and the new states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def lem(p: Params, n: str, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> Result:
    fed, own = np.split(affine(p, f"{n}/i2h", x), 4), np.split(p[f"{n}/gates_t_w"] @ y, 3)
    z_step, y_step = sigmoid(fed[0] + own[0]), sigmoid(fed[1] + own[1])
    z = z + z_step * (np.tanh(fed[2] + own[2]) - z)
    y = y + y_step * (np.tanh(fed[3] + p[f"{n}/slow_w"] @ z) - y)
    return y, [y, z]


def fast_grnn(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    zeta, nu = sigmoid(p[f"{n}/enter"]), sigmoid(p[f"{n}/leak"])
    both = p[f"{n}/i2h_w"] @ x + p[f"{n}/gates_t_w"] @ h
    z, candidate = sigmoid(both + p[f"{n}/update_b"]), np.tanh(both + p[f"{n}/i2h_b"])
    h = (zeta * (1 - z) + nu) * candidate + z * h
    return h, [h]


def complex_matrices(p: Params, n: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """B, C and D of a state space of complex numbers."""
    (b_re, b_im), (c_re, c_im) = np.split(p[f"{n}/i2h_w"], 2), np.split(p[f"{n}/read_w"], 2, axis=1)
    return b_re + 1j * b_im, c_re - 1j * c_im, p[f"{n}/skip_w"]


def lru(p: Params, n: str, x: np.ndarray, re: np.ndarray, im: np.ndarray) -> Result:
    B, C, D = complex_matrices(p, n)
    nu_log, theta_log, gamma_log = p[f"{n}/eigenvalues"]
    A = np.diag(np.exp(-np.exp(nu_log) + 1j * np.exp(theta_log)))
    s = A @ (re + 1j * im) + np.exp(gamma_log) * (B @ x)
    return (C @ s).real + D @ x, [s.real, s.imag]


def s5(p: Params, n: str, x: np.ndarray, re: np.ndarray, im: np.ndarray) -> Result:
    """With conjugate pairs in full, held for a step: the integral of `exp(A t)` by Simpson's rule on 800 parts."""
    B, C, D = complex_matrices(p, n)
    values, step = p[f"{n}/eigenvalue_re"] + 1j * p[f"{n}/eigenvalue_im"], np.exp(p[f"{n}/log_step"])
    values, step, B = np.append(values, values.conj()), np.append(step, step), np.concatenate([B, B.conj()])
    times, parts = np.linspace(0.0, 1.0, 801), np.ones(801)
    parts[1:-1:2], parts[2:-1:2] = 4, 2
    held = np.exp(values * step * times[:, None]).T @ parts * step / 2400
    s = np.exp(values * step) * np.append(re + 1j * im, re - 1j * im) + held * (B @ x)
    y, half = np.append(C, C.conj(), axis=1) @ s, len(re)
    return y.real + D @ x, [s.real[:half], s.imag[:half]]


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


# -- states by head: two heads -----------------------------------------------------------------------

HEADS = 2


def log_sigmoid(x: np.ndarray) -> np.ndarray:
    return -np.log(1.0 + np.exp(-x))


def swish(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def split_heads(x: np.ndarray) -> np.ndarray:
    return x.reshape(HEADS, -1)


def layer_norm(x: np.ndarray, epsilon: float) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + epsilon)


def slstm(p: Params, n: str, x: np.ndarray, h: np.ndarray, c: np.ndarray, norm: np.ndarray, m: np.ndarray) -> Result:
    i, f, o, z = (split_heads(gate) for gate in np.split(affine(p, f"{n}/i2h", x), 4))
    for head, own in enumerate(split_heads(h)):
        for gate, part in zip((i, f, o, z), np.split(p[f"{n}/gates_{head}_w"] @ own, 4), strict=True):
            gate[head] += part
    i, f, o, z = (gate.ravel() for gate in (i, f, o, z))
    top = np.maximum(log_sigmoid(f) + m, i)
    c = np.exp(log_sigmoid(f) + m - top) * c + np.exp(i - top) * np.tanh(z)
    norm = np.exp(log_sigmoid(f) + m - top) * norm + np.exp(i - top)
    h = sigmoid(o) * (c / norm)
    return h, [h, c, norm, top]


def mlstm(p: Params, n: str, x: np.ndarray, C: np.ndarray, norm: np.ndarray, m: np.ndarray) -> Result:
    """In the paper's form without a largest exponent: equations 19 to 25, on states that it scales."""
    q, k, v, o = np.split(affine(p, f"{n}/i2h", x), 4)
    q, k, v = map(split_heads, (q, k, v))
    i, f = np.split(p[f"{n}/gates_t_w"] @ x, 2)
    i, f = i + p[f"{n}/enter_b"], f + p[f"{n}/forget_b"]
    out, new = [], []
    for head in range(HEADS):
        scale = np.exp(m[head])
        key = k[head] / np.sqrt(len(k[head]))
        memory = sigmoid(f[head]) * scale * C[head] + np.exp(i[head]) * np.outer(key, v[head])
        weights = sigmoid(f[head]) * scale * norm[head] + np.exp(i[head]) * key
        out.append(memory.T @ q[head] / max(abs(weights @ q[head]), 1.0))
        top = np.maximum(log_sigmoid(f[head]) + m[head], i[head])
        new.append((memory / np.exp(top), weights / np.exp(top), top))
    return sigmoid(o) * np.concatenate(out), [np.stack(parts) for parts in zip(*new, strict=True)]


def rms_norm(x: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean() + epsilon)


def mlstm_sigmoid(p: Params, n: str, x: np.ndarray, C: np.ndarray) -> Result:
    q, k, v, o = np.split(affine(p, f"{n}/i2h", x), 4)
    q, k, v = map(split_heads, (q, k, v))
    i, f = np.split(sigmoid(p[f"{n}/gates_t_w"] @ x + np.append(p[f"{n}/enter_b"], p[f"{n}/forget_b"])), 2)
    C = np.stack([f[head] * C[head] + i[head] * np.outer(k[head], v[head]) for head in range(HEADS)])
    seen = [rms_norm(memory.T @ query / np.sqrt(len(query)), 1e-6) for memory, query in zip(C, q, strict=True)]
    return sigmoid(o) * np.concatenate(seen) * p[f"{n}/norm_scale"], [C]


def block_gru(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    """With the blocks in one matrix of all units."""
    size, d = len(h), len(h) // HEADS
    U = np.zeros((3, size, size))
    for head in range(HEADS):
        own = slice(head * d, head * d + d)
        U[:, own, own] = p[f"{n}/gates_{head}_w"].reshape(3, d, d)
    gates = layer_norm(affine(p, f"{n}/i2h", x) + U.reshape(-1, size) @ h, 1e-5)
    reset, candidate, update = np.split(gates * p[f"{n}/gates_t_norm_scale"] + p[f"{n}/gates_t_norm_bias"], 3)
    update = sigmoid(update - 1)
    h = update * np.tanh(sigmoid(reset) * candidate) + (1 - update) * h
    return h, [h]


def hgrn2(p: Params, n: str, x: np.ndarray, S: np.ndarray) -> Result:
    out, f, value = map(split_heads, np.split(affine(p, f"{n}/i2h", x), 3))
    f = 0.25 + 0.75 * sigmoid(f)
    S = np.stack([np.diag(f[head]) @ S[head] + np.outer(1 - f[head], value[head]) for head in range(HEADS)])
    seen = np.concatenate([memory.T @ swish(query) for memory, query in zip(S, out, strict=True)])
    return rms_norm(seen, 1e-5) * p[f"{n}/norm_scale"], [S]


def mamba2(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    size, states = len(p[f"{n}/norm_scale"]), h.shape[1]
    z, u, B, C, dt = np.split(affine(p, f"{n}/i2h", x), np.cumsum([size, size, states, states]))
    u, B, C, dt = split_heads(swish(u)), swish(B), swish(C), softplus(dt + p[f"{n}/step_b"])
    A, out, new = -np.exp(p[f"{n}/decay_log"]), [], []
    for head in range(HEADS):
        state = np.exp(A[head] * dt[head]) * h[head].T + dt[head] * np.outer(u[head], B)
        out.append(state @ C + p[f"{n}/pass_w"][head] * u[head])
        new.append(state.T)
    return rms_norm(np.concatenate(out) * swish(z), 1e-5) * p[f"{n}/norm_scale"], [np.stack(new)]


def retention(p: Params, n: str, x: np.ndarray, S: np.ndarray) -> Result:
    return attention(p, n, x, S, [np.full(S.shape[1], 1 - 2.0 ** (-5 - head)) for head in range(HEADS)])


def gla(p: Params, n: str, x: np.ndarray, S: np.ndarray) -> Result:
    decay = sigmoid(affine(p, f"{n}/decay", p[f"{n}/low_w"] @ x)) ** (1 / 16)
    return attention(p, n, x, S, split_heads(decay))


def attention(p: Params, n: str, x: np.ndarray, S: np.ndarray, decay: Any) -> Result:
    q, k, v, gate = np.split(affine(p, f"{n}/i2h", x), 4)
    S = np.stack(
        [np.diag(a) @ s + np.outer(k, v) for a, s, k, v in zip(decay, S, *map(split_heads, (k, v)), strict=True)]
    )
    seen = [layer_norm(s.T @ q / np.sqrt(len(q)), 1e-5) for s, q in zip(S, split_heads(q), strict=True)]
    return swish(gate) * np.concatenate(seen) * p[f"{n}/norm_scale"], [S]


def delta_net(p: Params, n: str, x: np.ndarray, S: np.ndarray) -> Result:
    y, S = corrected(p, n, np.split(affine(p, f"{n}/i2h", x), 3), x, S, np.ones(HEADS))
    return y, [S]


def gated_delta_net(p: Params, n: str, x: np.ndarray, S: np.ndarray) -> Result:
    *parts, gate = np.split(affine(p, f"{n}/i2h", x), 4)
    step = softplus(affine(p, f"{n}/decay", x))
    y, S = corrected(p, n, parts, x, S, np.exp(-np.exp(p[f"{n}/decay_log"]) * step))
    return swish(gate) * y, [S]


def corrected(
    p: Params, n: str, parts: list[np.ndarray], x: np.ndarray, S: np.ndarray, decay: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's product of matrices, `S (a (I - b k k^T)) + b v k^T`, values by rows."""
    q, k, v = map(split_heads, (swish(parts[0]), swish(parts[1]), parts[2]))
    beta, new, out = sigmoid(affine(p, f"{n}/beta", x)), [], []
    for head in range(HEADS):
        key, query = (one[head] / np.sqrt((one[head] ** 2).sum() + 1e-6) for one in (k, q))
        left = S[head].T @ (decay[head] * (np.eye(len(key)) - beta[head] * np.outer(key, key)))
        memory = left + beta[head] * np.outer(v[head], key)
        new.append(memory.T)
        seen = memory @ query
        out.append(seen / np.sqrt((seen**2).mean() + 1e-5))
    return np.concatenate(out) * p[f"{n}/norm_scale"], np.stack(new)


def kda(p: Params, n: str, x: np.ndarray, S: np.ndarray) -> Result:
    q, k, v = map(split_heads, np.split(swish(affine(p, f"{n}/i2h", x)), 3))
    step = split_heads(softplus(p[f"{n}/decay_w"] @ (p[f"{n}/decay_low_w"] @ x) + p[f"{n}/decay_b"]))
    gate = sigmoid(p[f"{n}/gate_w"] @ (p[f"{n}/gate_low_w"] @ x) + p[f"{n}/gate_b"])
    beta, new, out = sigmoid(affine(p, f"{n}/beta", x)), [], []
    for head in range(HEADS):
        key, query = (one[head] / np.sqrt((one[head] ** 2).sum() + 1e-6) for one in (k, q))
        left = np.diag(np.exp(-np.exp(p[f"{n}/decay_log"][head]) * step[head])) @ S[head]
        new.append((np.eye(len(key)) - beta[head] * np.outer(key, key)) @ left + beta[head] * np.outer(key, v[head]))
        out.append(rms_norm(new[-1].T @ query, 1e-5))
    return gate * np.concatenate(out) * p[f"{n}/norm_scale"], [np.stack(new)]


def gated_delta_product(p: Params, n: str, x: np.ndarray, S: np.ndarray) -> Result:
    """With the product of all transitions, generalized Householder matrices, written out."""
    q, *parts, gate = np.split(affine(p, f"{n}/i2h", x), 8)
    decay = np.exp(-np.exp(p[f"{n}/decay_log"]) * softplus(affine(p, f"{n}/decay", x)))
    betas, new, out = 2 * sigmoid(affine(p, f"{n}/beta", x)).reshape(3, HEADS), [], []
    for head in range(HEADS):
        (query, *keys), values = ([split_heads(part)[head] for part in some] for some in ([q, *parts[:3]], parts[3:]))
        A, B = decay[head] * np.eye(len(query)), np.zeros((len(query), len(query)))
        for key, value, beta in zip(map(swish, keys), values, betas[:, head], strict=True):
            key = key / np.sqrt((key**2).sum() + 1e-6)
            turn = np.eye(len(key)) - beta * np.outer(key, key)
            A, B = turn @ A, turn @ B + beta * np.outer(key, value)
        new.append(A @ S[head] + B)
        query = swish(query)
        out.append(rms_norm(new[-1].T @ query / np.sqrt((query**2).sum() + 1e-6), 1e-5))
    return swish(gate) * np.concatenate(out) * p[f"{n}/norm_scale"], [np.stack(new)]


def ttt_linear(p: Params, n: str, x: np.ndarray, S: np.ndarray) -> Result:
    """The gradient of the inner loss by complex steps."""
    q, k, v = map(split_heads, np.split(affine(p, f"{n}/i2h", x), 3))
    scale, shift = split_heads(p[f"{n}/norm_scale"]), split_heads(p[f"{n}/norm_bias"])
    rate, new, out = sigmoid(affine(p, f"{n}/rate", x)), [], []
    for head in range(HEADS):

        def model(W: np.ndarray, x: np.ndarray, head: int = head) -> np.ndarray:
            return x + layer_norm(W.T @ x, 1e-5) * scale[head] + shift[head]

        W, slope = p[f"{n}/start_w"][head] + S[head], np.empty_like(S[head])
        for place in np.ndindex(slope.shape):
            moved = W.astype(complex)
            moved[place] += 1e-30j
            slope[place] = (0.5 * ((model(moved, k[head]) - v[head]) ** 2).sum()).imag / 1e-30
        new.append(S[head] - rate[head] / len(q[head]) * slope)
        out.append(model(p[f"{n}/start_w"][head] + new[-1], q[head]))
    return np.concatenate(out), [np.stack(new)]


def selective_ssm(p: Params, n: str, x: np.ndarray, h: np.ndarray) -> Result:
    u = affine(p, f"{n}/i2h", x)
    low, B, C = np.split(p[f"{n}/select_w"] @ u, [p[f"{n}/delta_w"].shape[1], -16])
    step = softplus(p[f"{n}/delta_w"] @ low + p[f"{n}/delta_b"])
    new = np.empty_like(h)
    for channel in range(len(u)):
        for s in range(16):
            A = -np.exp(p[f"{n}/decay_log"][channel, s]) * (s + 1)
            new[channel, s] = np.exp(step[channel] * A) * h[channel, s] + step[channel] * B[s] * u[channel]
    return new @ C + p[f"{n}/pass_w"] * u, [new]


def rwkv7(p: Params, n: str, x: np.ndarray, S: np.ndarray, before: np.ndarray) -> Result:
    """With the transition matrix written out, `S (diag(w) - z^T (a z)) + v^T k`, values by rows."""
    at = {
        mix: x + (before - x) * p[f"{n}/{mix}_mix"] for mix in ("receptance", "decay", "key", "value", "rate", "gate")
    }
    r, k, v = (p[f"{n}/{mix}_w"] @ at[mix] for mix in ("receptance", "key", "value"))
    low = {mix: p[f"{n}/{mix}_low_w"] @ at[mix] for mix in ("decay", "rate", "gate")}
    w = np.exp(-np.exp(-0.5) * sigmoid(p[f"{n}/decay_w"] @ np.tanh(low["decay"]) + p[f"{n}/decay_b"]))
    a = sigmoid(p[f"{n}/rate_w"] @ low["rate"] + p[f"{n}/rate_b"])
    removal, key = k * p[f"{n}/removal_scale"], k * (1 + (a - 1) * p[f"{n}/replace_scale"])
    new, out = [], []
    for head in range(HEADS):
        own = slice(head * len(r) // HEADS, (head + 1) * len(r) // HEADS)
        z = removal[own] / np.sqrt((removal[own] ** 2).sum() + 1e-6)
        memory = S[head].T @ (np.diag(w[own]) - np.outer(z, a[own] * z)) + np.outer(v[own], key[own])
        seen = layer_norm(memory @ r[own], 1e-5 * len(z)) * p[f"{n}/norm_scale"][own] + p[f"{n}/norm_bias"][own]
        out.append(seen + (r[own] * p[f"{n}/bonus"][own] * key[own]).sum() * v[own])
        new.append(memory.T)
    return np.concatenate(out) * (p[f"{n}/gate_w"] @ sigmoid(low["gate"])), [np.stack(new), x]


# -- neurons, and a machine with a memory -----------------------------------------------------------------------------


def lif(p: Params, n: str, x: np.ndarray, z: np.ndarray, v: np.ndarray) -> Result:
    v = 0.9512 * v + 0.0488 * (affine(p, f"{n}/i2h", x) + p[f"{n}/spikes_w"] @ z) - 1.0 * z
    z = np.where(v > 1.0, 1.0, 0.0)
    return z, [z, v]


def alif(p: Params, n: str, x: np.ndarray, z: np.ndarray, v: np.ndarray, u: np.ndarray) -> Result:
    v = 0.9512 * v + 0.0488 * (affine(p, f"{n}/i2h", x) + p[f"{n}/spikes_w"] @ z) - (1.0 + 1.8 * u) * z
    u = 0.995 * u + 0.005 * z
    z = np.where(v > 1.0 + 1.8 * u, 1.0, 0.0)
    return z, [z, v, u]


def ntm(p: Params, n: str, x: np.ndarray, h: np.ndarray, c: np.ndarray, M: np.ndarray, *places: np.ndarray) -> Result:
    reading, writing, seen = places
    gates = affine(p, f"{n}/i2h", x) + p[f"{n}/gates_t_w"] @ np.concatenate([h, seen])
    i, f, o, g = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    W = len(seen)
    rows = affine(p, f"{n}/heads", h)
    writing = head_place(rows[W + 6 :], M, writing)
    erase, add = sigmoid(rows[2 * W + 12 : 3 * W + 12]), np.tanh(rows[3 * W + 12 :])
    M = np.stack([row * (1 - w * erase) + w * add for row, w in zip(M, writing, strict=True)])
    reading = head_place(rows, M, reading)
    seen = reading @ M
    return np.concatenate([h, seen]), [h, c, M, reading, writing, seen]


def head_place(rows: np.ndarray, M: np.ndarray, before: np.ndarray) -> np.ndarray:
    slots, W = M.shape
    key, (strength, gate), shift, power = np.tanh(rows[:W]), rows[W : W + 2], rows[W + 2 : W + 5], rows[W + 5]
    likeness = np.array([key @ row / np.sqrt((key @ key) * (row @ row) + 1e-8) for row in M])
    weights = np.exp(softplus(strength) * likeness)
    mixed = sigmoid(gate) * weights / weights.sum() + (1 - sigmoid(gate)) * before
    by = np.exp(shift) / np.exp(shift).sum()
    shifted = [sum(mixed[(k - s) % slots] * by[s + 1] for s in (-1, 0, 1)) for k in range(slots)]
    sharp = (np.array(shifted) + 1e-8) ** (1 + softplus(power))
    return sharp / sharp.sum()
