"""The cells in PyTorch, as a user writes them: one step, (x_t, *states, *parameters) -> states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bench.cells import EPSILON

Tensors = Mapping[str, Tensor]


def lstm_states(gates: Tensor, c_prev: Tensor) -> tuple[Tensor, Tensor]:
    i, f, o, g = gates.chunk(4, dim=-1)
    c_t = torch.sigmoid(f) * c_prev + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c_t), c_t


def lstm(x_t: Tensor, h_prev: Tensor, c_prev: Tensor, w_x: Tensor, w_h: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return lstm_states(x_t @ w_x + h_prev @ w_h + b, c_prev)


def milstm(
    x_t: Tensor,
    h_prev: Tensor,
    c_prev: Tensor,
    w_x: Tensor,
    b_x: Tensor,
    w_h: Tensor,
    b_h: Tensor,
    alpha: Tensor,
    beta1: Tensor,
    beta2: Tensor,
    b: Tensor,
) -> tuple[Tensor, ...]:
    x = x_t @ w_x + b_x
    p = h_prev @ w_h + b_h
    return lstm_states((alpha * x + beta1) * p + (beta2 * x + b), c_prev)


def layer_norm_lstm(
    x_t: Tensor,
    h_prev: Tensor,
    c_prev: Tensor,
    w_x: Tensor,
    w_h: Tensor,
    b: Tensor,
    scale: Tensor,
    shift: Tensor,
) -> tuple[Tensor, ...]:
    gates = x_t @ w_x + h_prev @ w_h + b
    return lstm_states(functional.layer_norm(gates, gates.shape[-1:], scale, shift, EPSILON), c_prev)


def gru(x_t: Tensor, h_prev: Tensor, w_x: Tensor, b_x: Tensor, w_h: Tensor, b_h: Tensor) -> tuple[Tensor, ...]:
    x_reset, x_update, x_new = (x_t @ w_x + b_x).chunk(3, dim=-1)
    h_reset, h_update, h_new = (h_prev @ w_h + b_h).chunk(3, dim=-1)
    reset, update = torch.sigmoid(x_reset + h_reset), torch.sigmoid(x_update + h_update)
    return (update * h_prev + (1.0 - update) * torch.tanh(x_new + reset * h_new),)


def attention_decoder(
    x_t: Tensor,
    h_prev: Tensor,
    c_prev: Tensor,
    context_prev: Tensor,
    encoder: Tensor,
    weighted: Tensor,
    w_x: Tensor,
    w_h: Tensor,
    w_context: Tensor,
    b: Tensor,
    w_query: Tensor,
    b_query: Tensor,
    v: Tensor,
) -> tuple[Tensor, ...]:
    """encoder, weighted: [N, S, H]."""
    gates = x_t @ w_x + h_prev @ w_h + context_prev @ w_context + b
    h_t, c_t = lstm_states(gates, c_prev)
    energies = (torch.tanh(weighted + (h_t @ w_query + b_query)[:, None]) @ v)[:, :, 0]
    context_t = (torch.softmax(energies, dim=-1)[:, None] @ encoder)[:, 0]
    return h_t, c_t, context_t


def nothing_before(feeds: Tensors) -> Tensors:
    return feeds


def encoder_rows(feeds: Tensors) -> Tensors:
    """The encoder batch first, and the part of the energies that no step changes."""
    rows = feeds["encoder"].transpose(0, 1)
    return {**feeds, "encoder_rows": rows, "weighted": rows @ feeds["w_encoder"] + feeds["b_encoder"]}


@dataclass(frozen=True)
class TorchCell:
    """A step, the names of what it is given after x_t and its states, and what is computed before all steps."""

    step: Callable[..., tuple[Tensor, ...]]
    parameters: tuple[str, ...]
    before: Callable[[Tensors], Tensors] = nothing_before


LSTM = ("w_x", "w_h", "b")
CELLS = {
    "lstm": TorchCell(lstm, LSTM),
    "milstm": TorchCell(milstm, ("w_x", "b_x", "w_h", "b_h", "alpha", "beta1", "beta2", "b")),
    "layer_norm_lstm": TorchCell(layer_norm_lstm, (*LSTM, "scale", "shift")),
    "gru": TorchCell(gru, ("w_x", "b_x", "w_h", "b_h")),
    "attention_decoder": TorchCell(
        attention_decoder,
        ("encoder_rows", "weighted", "w_x", "w_h", "w_context", "b", "w_query", "b_query", "v"),
        encoder_rows,
    ),
}
