"""PyTorch's own layers: `nn.LSTM`, `nn.GRU`, and `nn.LSTM` on a packed sequence.

A layer has its weights transposed, `[4H, D]`, the gates of an LSTM in the order input, forget, candidate, output, and
two biases. Weights are brought into that layout before the clock runs, gradients back after it has stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn.utils import rnn

from bench.contender import Contender, Settings, gradient_of
from bench.layouts import TORCH_GRU, TORCH_LSTM, reorder
from bench.nets import make_feeds, user_net
from bench.problems import Arrays, Problem
from bench.torch_engine import Outputs, named_results, pass_over, to_tensors

W_X, W_H, B_X, B_H = "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"
LSTM_NAMES = {"w_x": W_X, "w_h": W_H, "b": B_X}  # the second bias of the layer is zero
GRU_NAMES = {"w_x": W_X, "w_h": W_H, "b_x": B_X, "b_h": B_H}


def lstm(problem: Problem, mode: str, settings: Settings) -> Contender:
    layer = nn.LSTM(problem.size.H, problem.size.H)
    return _contender(problem, mode, settings, layer, partial(layer_outputs, layer))


def packed_lstm(problem: Problem, mode: str, settings: Settings) -> Contender:
    """From a padded sequence to a padded sequence, as sequences are in a batch."""
    layer = nn.LSTM(problem.size.H, problem.size.H)

    def outputs_of(feeds: Outputs) -> Outputs:
        packed = rnn.pack_padded_sequence(feeds["xs"], feeds["seq_lengths"].long(), enforce_sorted=False)
        y, (_, c_last) = layer(packed, (feeds["h0"][None], feeds["c0"][None]))
        return {"y": rnn.pad_packed_sequence(y, total_length=problem.size.T)[0], "c_last": c_last}

    return _contender(problem, mode, settings, layer, outputs_of)


def gru(problem: Problem, mode: str, settings: Settings) -> Contender:
    layer = nn.GRU(problem.size.H, problem.size.H)
    return _contender(problem, mode, settings, layer, partial(layer_outputs, layer))


def layer_outputs(layer: nn.RNNBase, feeds: Outputs) -> Outputs:
    """What a layer puts out, by our names."""
    if isinstance(layer, nn.GRU):
        return {"y": layer(feeds["xs"], feeds["h0"][None])[0]}
    y, (_, c_last) = layer(feeds["xs"], (feeds["h0"][None], feeds["c0"][None]))
    return {"y": y, "c_last": c_last}


def _contender(
    problem: Problem, mode: str, settings: Settings, layer: nn.RNNBase, outputs_of: Callable[[Outputs], Outputs]
) -> Contender:
    torch.set_num_threads(settings.threads)
    arrays, output_gradients = make_feeds(problem)
    names, order = (LSTM_NAMES, TORCH_LSTM) if isinstance(layer, nn.LSTM) else (GRU_NAMES, TORCH_GRU)
    load(layer, arrays, names, order)
    ours = user_net(problem.net).parameters(problem.size.H)
    feeds = to_tensors({name: array for name, array in arrays.items() if name not in ours})
    floats = {name: feed for name, feed in feeds.items() if feed.is_floating_point()}
    leaves = {**floats, **{name: getattr(layer, name) for name in (W_X, W_H, B_X, B_H)}}
    call = pass_over(mode, lambda: outputs_of(feeds), leaves, output_gradients)
    return Contender(call, lambda returned: unload(named_results(*returned), names, order))


def load(layer: nn.RNNBase, arrays: Arrays, names: dict[str, str], order: tuple[int, ...]) -> None:
    """Our parameters into a layer."""
    with torch.no_grad():
        getattr(layer, B_H).zero_()
        for ours, theirs in names.items():
            value = np.ascontiguousarray(reorder(arrays[ours], order).T)
            getattr(layer, theirs).copy_(torch.from_numpy(value))


def unload(results: Arrays, names: dict[str, str], order: tuple[int, ...]) -> Arrays:
    """Gradients of a layer's parameters under our names and in our layout."""
    renamed = {gradient_of(theirs): gradient_of(ours) for ours, theirs in names.items()}
    layer = {gradient_of(theirs) for theirs in (W_X, W_H, B_X, B_H)}
    rest = {name: array for name, array in results.items() if name not in layer}
    return {**rest, **{renamed[name]: reorder(results[name].T, order) for name in renamed if name in results}}
