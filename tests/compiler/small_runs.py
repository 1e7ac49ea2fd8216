"""Two small nets, feeds for them, and what tests of runs compare."""

from __future__ import annotations

import numpy as np
from by_hand import random_arrays

import rnnops as ro

T, N, D, H = 3, 2, 4, 5


def lstm_net() -> ro.Net:
    net = ro.Net("lstm")
    x, lengths = net.input("x"), net.input("lengths", "int32")
    h_all, h_last, c_all, _ = ro.LSTM(net, x, lengths, None, D, H, scope="s")
    net.outputs(h_all=h_all, h_last=h_last, c_all=c_all)
    return net


def lstm_feeds(dtype: str = "float64", steps: int = T, rows: int = N) -> dict[str, np.ndarray]:
    x = random_arrays(x=(steps, rows, D))["x"].astype(dtype)
    return {**ro.init_params(lstm_net(), 0, dtype), "x": x, "lengths": np.arange(rows, dtype="int32") + 1}


def product_net() -> ro.Net:
    net = ro.Net("product")
    x, w = net.inputs("x", "w")
    net.outputs(y=ro.tanh(x @ w))
    return net


def same(came: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert came.keys() == wanted.keys()
    for name, array in wanted.items():
        assert came[name].tobytes() == array.tobytes(), name
