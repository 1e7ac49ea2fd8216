"""Nets whose memory is measured, at sizes at which arrays outweigh Python's own objects."""

from __future__ import annotations

import numpy as np

import rnnops as ro

T, N, D, H = 100, 32, 256, 256
SHAPES = {"x": (T, N, D), "h0": (N, H), "c0": (N, H), "s0": (3, N, H), "encoder": (8, N, D)}


def recurrent_model(cell: str, recompute: bool, lengths: bool, rank: int) -> ro.Net:
    """One preset over a sequence."""
    net = ro.Net("model")
    x = net.input("x")
    states = [net.inputs(name) for name in ("h0", "c0")[: 1 if cell == "GRU" else 2]] if rank == 2 else None
    ends = net.input("lengths", "int32") if lengths else None
    results = getattr(ro, cell)(net, x, ends, states, D, H, scope="s", memory_optimization=recompute)
    net.outputs(y=results[0], last=results[-1])
    return net


def feeds_of(net: ro.Net) -> dict[str, np.ndarray]:
    feeds = {name: np.zeros(shape, "float32") for name, shape in SHAPES.items() if name in net.input_names}
    if "lengths" in net.input_names:
        feeds["lengths"] = np.full(N, T, "int32")
    return {**ro.init_params(net, 0, "float32"), **feeds}


def stack_and_product() -> ro.Net:
    """Two layers, and a product in the outer net."""
    net = ro.Net("stack")
    h_all, *_ = ro.LSTM(net, net.input("x"), None, None, D, [H, H], scope="s")
    net.outputs(y=ro.reshape(h_all, [-1, H]) @ net.parameter("w", (H, D), ("xavier", H)), first=h_all)
    return net


def attention() -> ro.Net:
    net = ro.Net("attention")
    x, encoder = net.inputs("x", "encoder")
    cell = ro.cells.LSTMWithAttentionCell(D, encoder, None, D, H, "regular", name="decoder")
    net.outputs(y=cell.apply_over_sequence(net, x)[0])
    return net


def window(reverse: bool) -> ro.Net:
    """A state of which a step sees three, an output that is not a state, a parameter that is changed once, a name."""
    cell = ro.Net("cell")
    x_t, seen, w = cell.inputs("x_t", "seen", "w")
    cell.outputs(
        s=ro.reduce_sum(seen, axes=[0], keepdims=0) * 0.1 + x_t @ ro.tanh(w).named("changed"), extra=ro.exp(x_t)
    )
    net = ro.Net("window")
    x, s0 = net.inputs("x", "s0")
    net.parameter("w", (D, H), ("xavier", D))
    links = {"seen": ro.Link("s", window=3)}
    results = ro.recurrent_net(net, cell, [("x_t", x)], [("seen", s0)], links, scope="r", reverse=reverse)
    net.outputs(last=results[1], extra=results[2], extra_last=results[3])
    return net


def mixed_rows() -> ro.Net:
    """Every row sees the mean of all rows."""
    cell = ro.Net("cell")
    x_t, h = cell.inputs("x_t", "h")
    cell.outputs(h_t=ro.tanh(x_t + ro.reduce_mean(h, axes=[0])))
    net = ro.Net("mixed")
    x, h0 = net.inputs("x", "h0")
    net.outputs(y=ro.recurrent_net(net, cell, [("x_t", x)], [("h", h0)], {"h": "h_t"})[0], fed=x)
    return net


NETS = {
    "stack": stack_and_product,
    "attention": attention,
    "window": lambda: window(False),
    "window in reverse": lambda: window(True),
    "mixed rows": mixed_rows,
}
