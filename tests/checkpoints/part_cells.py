"""A cell with all that parts must carry: three states, a window, dropout, lengths, a timestep, a step output."""

from __future__ import annotations

import numpy as np

import rnnops as ro

D, H = 3, 4
Arrays = dict[str, np.ndarray]


def busy_net(reverse: bool = False, window: int = 1) -> ro.Net:
    """The cell over a sequence; all results are outputs."""
    cell = ro.Net("busy")
    x, h, c, past, w, u = cell.inputs("x", "h", "c", "past", "w", "u")
    t, lengths = cell.input("t", "int32"), cell.input("lengths", "int32")
    seen = past if window == 1 else ro.reduce_sum(past, axes=[0], keepdims=0)
    drive = ro.dropout(x, 0.4) @ w + h @ u + seen
    c_new = ro.select_valid(ro.sigmoid(drive) * c + ro.tanh(drive), c, lengths, t)
    clock = ro.cast(t, "float") * 0.05
    h_new = ro.select_valid(ro.tanh(c_new) * ro.sigmoid(drive) + clock, h, lengths, t)
    cell.outputs(h_t=h_new, c_t=c_new, s_t=ro.tanh(drive * 0.3), seen=drive * drive)
    net = ro.Net("outer")
    blobs = ro.recurrent_net(
        net,
        cell,
        [("x", net.input("xs"))],
        [("h", net.input("h0")), ("c", net.input("c0")), ("past", net.input("s0"))],
        {"h": "h_t", "c": "c_t", "past": ro.Link("s_t", window=window)},
        timestep="t",
        reverse=reverse,
        references={"lengths": net.input("lengths", "int32")},
    )
    net.outputs(**{blob.name: blob for blob in blobs})
    return net


def busy_feeds(T: int, N: int = 3, window: int = 1, dtype: str = "float64") -> Arrays:
    """One initial state for all rows, one for each row, one for each step of the window; rows of all lengths."""
    rng = np.random.default_rng(T)
    shapes = {"xs": (T, N, D), "h0": (H,), "c0": (N, H), "s0": (window, N, H), "w": (D, H), "u": (H, H)}
    feeds = {name: rng.uniform(-1, 1, shape).astype(dtype) for name, shape in shapes.items()}
    return {**feeds, "lengths": rng.integers(0, T + 1, N).astype("int32")}


def results(run: ro.Run, feeds: Arrays) -> tuple[Arrays, int | None]:
    """Outputs and gradients, and the forward steps that the pass in parts took, None where it took none."""
    out, pullback = run.vjp(feeds, seed=5)
    parts = [value for value in (pullback._held or {}).values() if hasattr(value, "forward_steps")]
    rng = np.random.default_rng(1)
    grads = pullback({name: np.asarray(rng.normal(size=a.shape), a.dtype) for name, a in out.items()})
    steps = parts[0].forward_steps if parts else None
    return {**out, **{f"grad {name}": grad for name, grad in grads.items()}}, steps
