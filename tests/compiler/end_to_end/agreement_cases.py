"""Nets and feeds for tests of the CPU device as a whole, and what they compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options

T, N, D, H = 9, 7, 3, 6
Arrays = dict[str, np.ndarray]


def lstm_net(lengths: bool = True, **options: Any) -> ro.Net:
    """An LSTM preset with its sequence as feed `xs`; everything it gives is an output."""
    net = ro.Net("lstm")
    xs = net.input("xs")
    results = ro.LSTM(net, xs, net.input("lengths", "int32") if lengths else None, None, D, H, **options)
    net.outputs(**dict(zip(("h_all", "h_last", "c_all", "c_last"), results, strict=False)))
    return net


def own_cell_net(reverse: bool = False) -> ro.Net:
    """A cell of one's own: products, a softmax over features, a step output, a timestep, a fold, two states."""
    cell = ro.Net("own")
    x, h, s, w, u, b = cell.inputs("x", "h", "s", "w", "u", "b")
    t = cell.input("t", "int32")
    pre = x @ w + h @ u + b
    share = ro.softmax(pre, axis=-1)
    total = ro.reduce_sum(share * h, axes=[1])
    clock = ro.cast(t, "float") * 0.1
    cell.outputs(h_t=ro.tanh(pre) * share + total, s_t=s * 0.9 + ro.sigmoid(clock) * share, seen=total)
    net = ro.Net("outer")
    blobs = ro.recurrent_net(
        net,
        cell,
        [("x", net.input("xs"))],
        [("h", net.input("h0")), ("s", net.input("s0"))],
        {"h": "h_t", "s": "s_t"},
        timestep="t",
        reverse=reverse,
    )
    net.outputs(**{blob.name: blob for blob in blobs})
    return net


def feeds_of(net: ro.Net, steps: int = T, rows: int = N, dtype: str = "float64", features: int = H) -> Arrays:
    """Random feeds; lengths from 0 to T."""
    rng = np.random.default_rng(0)
    shapes: Mapping[str, tuple[int, ...]] = {
        "xs": (steps, rows, D), "h0": (rows, features), "s0": (features,), "w": (D, features),
        "u": (features, features), "b": (features,), **{spec.name: spec.shape or () for spec in net.parameters},
    }  # fmt: skip
    feeds = {n: rng.uniform(-1, 1, shapes[n]).astype(dtype) for n in net.input_names if n != "lengths"}
    if "lengths" in net.input_names:
        feeds["lengths"] = rng.integers(0, steps + 1, rows).astype("int32")
    return feeds


def results(net: ro.Net, feeds: Arrays, threads: int = 2, **tuning: Any) -> Arrays:
    """Outputs, and gradients as `grad <feed>` for output gradients that differ in every element."""
    run = ro.compile(net, device="cpu", threads=threads, tuning=replace(Options(), **tuning))
    out, pullback = run.vjp(feeds)
    out = {name: np.array(array) for name, array in out.items()}
    weights = {name: np.cos(np.arange(a.size)).reshape(a.shape).astype(a.dtype) for name, a in out.items()}
    return {**out, **{f"grad {name}": grad for name, grad in pullback(weights).items()}}


def assert_same_bits(came: Arrays, wanted: Arrays, but: tuple[str, ...] = ()) -> None:
    """All arrays have the same bits; those named agree closely."""
    assert came.keys() == wanted.keys()
    for name, array in wanted.items():
        if name in but:
            scale = np.abs(array).max(initial=0.0)
            assert np.abs(came[name] - array).max(initial=0.0) <= 1e-13 * scale + 1e-15, name
        else:
            assert came[name].tobytes() == array.tobytes(), name
