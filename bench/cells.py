"""Cells as a user writes them: one step, ops over named blobs, the input projection inside the step.

They are nets, not the presets of `rnnops.cells`: what is timed is what anybody gets for a cell of their own.
"""

from __future__ import annotations

import rnnops as ro

EPSILON = 1e-4  # of layer normalization, in all contenders


def lstm_states(gates: ro.Blob, c_prev: ro.Blob) -> tuple[ro.Blob, ro.Blob]:
    """h_t and c_t from the four gates side by side, input, forget, output, candidate."""
    i, f, o, g = ro.split(gates, 4, axis=-1)
    c_t = ro.sigmoid(f) * c_prev + ro.sigmoid(i) * ro.tanh(g)
    return ro.sigmoid(o) * ro.tanh(c_t), c_t


def lstm() -> ro.Net:
    cell = ro.Net("lstm_step")
    x_t, h_prev, c_prev, w_x, w_h, b = cell.inputs("x_t", "h_prev", "c_prev", "w_x", "w_h", "b")
    gates = (x_t @ w_x + h_prev @ w_h + b).named("gates")
    h_t, c_t = lstm_states(gates, c_prev)
    cell.outputs(h_t=h_t, c_t=c_t)
    return cell


def lstm_with_lengths() -> ro.Net:
    """Rows that are over keep their states."""
    cell = ro.Net("lstm_with_lengths_step")
    x_t, h_prev, c_prev, w_x, w_h, b = cell.inputs("x_t", "h_prev", "c_prev", "w_x", "w_h", "b")
    seq_lengths, t = cell.input("seq_lengths", "int32"), cell.input("t", "int32")
    gates = (x_t @ w_x + h_prev @ w_h + b).named("gates")
    h_t, c_t = lstm_states(gates, c_prev)
    cell.outputs(
        h_t=ro.select_valid(h_t, h_prev, seq_lengths, t),
        c_t=ro.select_valid(c_t, c_prev, seq_lengths, t),
    )
    return cell


def milstm() -> ro.Net:
    """LSTM with multiplicative integration (Wu and others 2016)."""
    cell = ro.Net("milstm_step")
    x_t, h_prev, c_prev, w_x, b_x, w_h, b_h = cell.inputs("x_t", "h_prev", "c_prev", "w_x", "b_x", "w_h", "b_h")
    alpha, beta1, beta2, b = cell.inputs("alpha", "beta1", "beta2", "b")
    x = x_t @ w_x + b_x
    p = h_prev @ w_h + b_h
    gates = ((alpha * x + beta1) * p + (beta2 * x + b)).named("gates")
    h_t, c_t = lstm_states(gates, c_prev)
    cell.outputs(h_t=h_t, c_t=c_t)
    return cell


def layer_norm_lstm() -> ro.Net:
    """LSTM whose gates are normalized over all 4H (Ba and others 2016)."""
    cell = ro.Net("layer_norm_lstm_step")
    x_t, h_prev, c_prev, w_x, w_h, b = cell.inputs("x_t", "h_prev", "c_prev", "w_x", "w_h", "b")
    scale, shift = cell.inputs("scale", "shift")
    gates = (x_t @ w_x + h_prev @ w_h + b).named("gates")
    h_t, c_t = lstm_states(ro.layer_normalization(gates, scale, shift, axis=-1, epsilon=EPSILON), c_prev)
    cell.outputs(h_t=h_t, c_t=c_t)
    return cell


def gru() -> ro.Net:
    """Gated recurrent unit (Cho and others 2014), reset after the recurrent product as in cuDNN and PyTorch."""
    cell = ro.Net("gru_step")
    x_t, h_prev, w_x, b_x, w_h, b_h = cell.inputs("x_t", "h_prev", "w_x", "b_x", "w_h", "b_h")
    x_reset, x_update, x_new = ro.split(x_t @ w_x + b_x, 3, axis=-1)
    h_reset, h_update, h_new = ro.split(h_prev @ w_h + b_h, 3, axis=-1)
    reset, update = ro.sigmoid(x_reset + h_reset), ro.sigmoid(x_update + h_update)
    new = ro.tanh(x_new + reset * h_new)
    cell.outputs(h_t=update * h_prev + (1.0 - update) * new)
    return cell


def attention_decoder() -> ro.Net:
    """LSTM that reads a context of the encoder; additive attention (Bahdanau and others 2014).

    encoder, weighted: [N, S, H], the same at every step.
    """
    cell = ro.Net("attention_decoder_step")
    x_t, h_prev, c_prev, context_prev = cell.inputs("x_t", "h_prev", "c_prev", "context_prev")
    w_x, w_h, w_context, b, w_query, b_query, v = cell.inputs("w_x", "w_h", "w_context", "b", "w_query", "b_query", "v")
    encoder, weighted = cell.inputs("encoder_rows", "weighted_rows")
    gates = (x_t @ w_x + h_prev @ w_h + context_prev @ w_context + b).named("gates")
    h_t, c_t = lstm_states(gates, c_prev)
    query = ro.unsqueeze(h_t @ w_query + b_query, [1])
    energies = ro.squeeze(ro.tanh(weighted + query) @ v, [2])
    context_t = ro.squeeze(ro.unsqueeze(ro.softmax(energies, axis=-1), [1]) @ encoder, [1])
    cell.outputs(h_t=h_t, c_t=c_t, context_t=context_t)
    return cell
