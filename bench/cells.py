"""Cells as a user writes them, each once: functions of a namespace of ops, which rnnops, PyTorch and JAX all give.

A cell takes the namespace `m`, then one step of its sequences, its states and all else it reads, by position, and gives
its new states. Input projections are inside the step: what is timed is what anybody gets for a cell of their own.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import rnnops as ro

EPSILON = 1e-4  # of layer normalization, in all contenders
States = tuple[Any, ...]

RNNOPS = SimpleNamespace(
    sigmoid=ro.sigmoid, tanh=ro.tanh, exp=ro.exp, sqrt=ro.sqrt, softsign=ro.softsign, maximum=ro.max,
    split=lambda x, parts: ro.split(x, parts, axis=-1), softmax=lambda x: ro.softmax(x, axis=-1),
    mean=lambda x: ro.reduce_mean(x, axes=[-1]), named=lambda x, name: x.named(name),
    layer_norm=lambda x, scale, shift: ro.layer_normalization(x, scale, shift, axis=-1, epsilon=EPSILON),
    expand=lambda x: ro.unsqueeze(x, [1]), squeeze=lambda x, axis: ro.squeeze(x, [axis]),
    swap=lambda x: ro.transpose(x, perm=[1, 0, 2]), select_valid=ro.select_valid,
)  # fmt: skip


def lstm_states(m: Any, gates: Any, c_prev: Any) -> States:
    """h_t and c_t from the four gates side by side, input, forget, output, candidate."""
    i, f, o, g = m.split(gates, 4)
    c_t = m.sigmoid(f) * c_prev + m.sigmoid(i) * m.tanh(g)
    return m.sigmoid(o) * m.tanh(c_t), c_t


def lstm(m: Any, x_t: Any, h_prev: Any, c_prev: Any, w_x: Any, w_h: Any, b: Any) -> States:
    return lstm_states(m, m.named(x_t @ w_x + h_prev @ w_h + b, "gates"), c_prev)


def lstm_with_lengths(
    m: Any, x_t: Any, h_prev: Any, c_prev: Any, w_x: Any, w_h: Any, b: Any, seq_lengths: Any, t: Any
) -> States:
    """Rows that are over keep their states."""
    h_t, c_t = lstm(m, x_t, h_prev, c_prev, w_x, w_h, b)
    return m.select_valid(h_t, h_prev, seq_lengths, t), m.select_valid(c_t, c_prev, seq_lengths, t)


def milstm(
    m: Any, x_t: Any, h_prev: Any, c_prev: Any,
    w_x: Any, b_x: Any, w_h: Any, b_h: Any, alpha: Any, beta1: Any, beta2: Any, b: Any,
) -> States:  # fmt: skip
    """LSTM with multiplicative integration (Wu and others 2016)."""
    x, p = x_t @ w_x + b_x, h_prev @ w_h + b_h
    return lstm_states(m, m.named((alpha * x + beta1) * p + (beta2 * x + b), "gates"), c_prev)


def layer_norm_lstm(
    m: Any, x_t: Any, h_prev: Any, c_prev: Any, w_x: Any, w_h: Any, b: Any, scale: Any, shift: Any
) -> States:
    """LSTM whose gates are normalized over all 4H (Ba and others 2016)."""
    gates = m.named(x_t @ w_x + h_prev @ w_h + b, "gates")
    return lstm_states(m, m.layer_norm(gates, scale, shift), c_prev)


def gru(m: Any, x_t: Any, h_prev: Any, w_x: Any, b_x: Any, w_h: Any, b_h: Any) -> States:
    """Gated recurrent unit (Cho and others 2014), reset after the recurrent product as in cuDNN and PyTorch."""
    x_reset, x_update, x_new = m.split(x_t @ w_x + b_x, 3)
    h_reset, h_update, h_new = m.split(h_prev @ w_h + b_h, 3)
    reset, update = m.sigmoid(x_reset + h_reset), m.sigmoid(x_update + h_update)
    return (update * h_prev + (1.0 - update) * m.tanh(x_new + reset * h_new),)


def coupled(m: Any, x_t: Any, h_prev: Any, c_prev: Any, w_x: Any, w_h: Any, b: Any) -> States:
    """README's cell: an LSTM whose one gate both forgets and admits (Greff and others 2017, "CIFG")."""
    keep, out, new = m.split(m.named(x_t @ w_x + h_prev @ w_h + b, "gates"), 3)
    keep = m.sigmoid(keep)
    c_t = keep * c_prev + (1.0 - keep) * m.tanh(new)
    return m.sigmoid(out) * m.tanh(c_t), c_t


def encoder_rows(m: Any, encoder: Any, w_encoder: Any, b_encoder: Any) -> States:
    """Before all steps: the encoder [S, N, H] batch first, and the part of the energies that no step changes."""
    rows = m.swap(encoder)
    return rows, rows @ w_encoder + b_encoder


def attention_decoder(
    m: Any, x_t: Any, h_prev: Any, c_prev: Any, context_prev: Any, encoder_rows: Any, weighted_rows: Any,
    w_x: Any, w_h: Any, w_context: Any, b: Any, w_query: Any, b_query: Any, v: Any,
) -> States:  # fmt: skip
    """LSTM that reads a context of the encoder; additive attention (Bahdanau and others 2014)."""
    gates = m.named(x_t @ w_x + h_prev @ w_h + context_prev @ w_context + b, "gates")
    h_t, c_t = lstm_states(m, gates, c_prev)
    query = m.expand(h_t @ w_query + b_query)
    energies = m.squeeze(m.tanh(weighted_rows + query) @ v, 2)
    return h_t, c_t, m.squeeze(m.expand(m.softmax(energies)) @ encoder_rows, 1)


# the LSTM with one thing changed; none may cost more than it has to


def renamed(m: Any, seen: Any, memory: Any, carry: Any, kernel: Any, recurrent: Any, offset: Any) -> States:
    """Every blob has another name."""
    enter, leave, show, value = m.split(m.named(seen @ kernel + memory @ recurrent + offset, "four"), 4)
    kept = m.sigmoid(leave) * carry + m.sigmoid(enter) * m.tanh(value)
    return m.sigmoid(show) * m.tanh(kept), kept


def permuted(m: Any, x_t: Any, h_prev: Any, c_prev: Any, w_x: Any, w_h: Any, b: Any) -> States:
    """Candidate, output, input, forget."""
    g, o, i, f = m.split(x_t @ w_x + h_prev @ w_h + b, 4)
    c_t = m.sigmoid(f) * c_prev + m.sigmoid(i) * m.tanh(g)
    return m.sigmoid(o) * m.tanh(c_t), c_t


def softsign(m: Any, x_t: Any, h_prev: Any, c_prev: Any, w_x: Any, w_h: Any, b: Any) -> States:
    """Softsign for tanh."""
    i, f, o, g = m.split(x_t @ w_x + h_prev @ w_h + b, 4)
    c_t = m.sigmoid(f) * c_prev + m.sigmoid(i) * m.softsign(g)
    return m.sigmoid(o) * m.softsign(c_t), c_t


def one_more_op(m: Any, x_t: Any, h_prev: Any, c_prev: Any, w_x: Any, w_h: Any, b: Any) -> States:
    i, f, o, g = m.split(x_t @ w_x + h_prev @ w_h + b, 4)
    c_t = m.softsign(m.sigmoid(f) * c_prev + m.sigmoid(i) * m.tanh(g))
    return m.sigmoid(o) * m.tanh(c_t), c_t


def second_sequence(
    m: Any, x_t: Any, z_t: Any, h_prev: Any, c_prev: Any, w_x: Any, w_z: Any, w_h: Any, b: Any
) -> States:
    """The gates read a second sequence; a third product, so that half as many flops again are allowed for."""
    return lstm_states(m, x_t @ w_x + z_t @ w_z + h_prev @ w_h + b, c_prev)


# cells that are timed from nothing to their first results


def rnn(m: Any, x: Any, h: Any, w: Any, w_h: Any, b: Any) -> States:
    return (m.tanh(x @ w + h @ w_h + b),)


def peephole_lstm(m: Any, x: Any, h: Any, c: Any, w: Any, w_h: Any, b: Any, p: Any, q: Any) -> States:
    i, f, o, g = m.split(x @ w + h @ w_h + b, 4)
    new = m.sigmoid(f + p * c) * c + m.sigmoid(i + q * c) * m.tanh(g)
    return m.sigmoid(o + p * new) * m.tanh(new), new


def normalized_lstm(m: Any, x: Any, h: Any, c: Any, w: Any, w_h: Any, b: Any, scale: Any) -> States:
    """A layer norm LSTM whose normalization is written out."""
    z = x @ w + h @ w_h
    z = z - m.mean(z)
    return lstm_states(m, z / m.sqrt(m.mean(z * z) + EPSILON) * scale + b, c)


def plain_milstm(m: Any, x: Any, h: Any, c: Any, w: Any, w_h: Any, b: Any, alpha: Any, beta: Any) -> States:
    z, r = x @ w, h @ w_h
    return lstm_states(m, alpha * z * r + beta * (z + r) + b, c)


def slstm(m: Any, x: Any, h: Any, c: Any, n: Any, top: Any, w: Any, w_h: Any, b: Any) -> States:
    """Exponential gates, which the largest exponent so far keeps small."""
    i, f, o, g = m.split(x @ w + h @ w_h + b, 4)
    new = m.maximum(f + top, i)
    forget, enter = m.exp(f + top - new), m.exp(i - new)
    c, n = forget * c + enter * m.tanh(g), forget * n + enter
    return m.sigmoid(o) * c / n, c, n, new


def minimal_gated(m: Any, x: Any, h: Any, w: Any, w_v: Any, w_h: Any, w_q: Any) -> States:
    f = m.sigmoid(x @ w + h @ w_h)
    return ((1.0 - f) * h + f * m.tanh(x @ w_v + (f * h) @ w_q),)


def gru_of_six(m: Any, x: Any, h: Any, w: Any, w_v: Any, w_y: Any, w_h: Any, w_q: Any, w_s: Any) -> States:
    reset, update = m.sigmoid(x @ w + h @ w_h), m.sigmoid(x @ w_v + h @ w_q)
    return (update * h + (1.0 - update) * m.tanh(x @ w_y + reset * (h @ w_s)),)


def independent(m: Any, x: Any, h: Any, w: Any, p: Any, b: Any) -> States:
    return (m.maximum(x @ w + p * h + b, 0.1 * h),)


def attentive(m: Any, x: Any, h: Any, w: Any, w_h: Any, w_q: Any, w_s: Any) -> States:
    seen = m.softmax(h @ w_q) * x
    return (m.tanh(seen @ w + h @ w_h + m.exp(-(h * h)) @ w_s),)
