"""Nets of one masked preset each, for the tests of rows past their end."""

from __future__ import annotations

from typing import Any

import rnnops as ro

PRESETS = ("BasicRNN", "LSTM", "GRU", "MILSTM", "LayerNormLSTM", "LayerNormMILSTM")
D, H = 3, 5


def preset(name: str, **options: Any) -> ro.Net:
    """The preset over `x: [T, N, D]` and `lengths: [N]`, with all its results as outputs."""
    net = ro.Net("model")
    x, lengths = net.input("x"), net.input("lengths", "int32")
    results = getattr(ro, name)(net, x, lengths, None, D, options.pop("dim_out", H), **options)
    net.outputs(**{f"out{i}": blob for i, blob in enumerate(results)})
    return net
