"""Cells whose state is a matrix, as a user writes them: nets over time, and feeds for them."""

from __future__ import annotations

import numpy as np

import rnnops as ro
from rnnops.types import Array

Feeds = dict[str, Array]


def over_time(cell: ro.Net, sequences: str, states: dict[str, tuple[int, ...]], **options: object) -> ro.Net:
    """A cell over sequences `seq_q` of inputs `q`, with states from `C0` for `C` to `C_t`; its output is y."""
    net = ro.Net("net")
    ro.recurrent_net(
        net,
        cell,
        inputs=[(name, net.input(f"seq_{name}")) for name in sequences],
        initial_cell_inputs=[(name, net.input(f"{name}0")) for name in states],
        links={name: f"{name}_t" for name in states},
        state_shapes=states,
        **options,  # type: ignore[arg-type]
    )
    last = {f"last_{name}": net.blob(f"{name}_t_last") for name in states}
    net.outputs(y=net.blob("y_all"), **last)
    return net


def mlstm(heads: int, width: int, **options: object) -> ro.Net:
    """A matrix memory with exponential gates (Beck and others 2024)."""
    cell = ro.Net("mlstm")
    q, k, v, i, f, o, C, n, m = cell.inputs("q", "k", "v", "i", "f", "o", "C", "n", "m")
    kept = m - ro.softplus(-f)
    top = ro.max(kept, i)
    forget, enter = ro.exp(kept - top), ro.exp(i - top)
    C_t = ro.unsqueeze(forget, [3]) * C + ro.unsqueeze(enter * k, [3]) * ro.unsqueeze(v, [2])
    n_t = forget * n + enter * k
    seen = ro.reduce_sum(C_t * ro.unsqueeze(q, [3]), axes=[2], keepdims=0)
    y = ro.sigmoid(o) * seen / ro.max(ro.abs(ro.reduce_sum(n_t * q, axes=[2], keepdims=1)), 1.0)
    cell.outputs(y=y, C_t=C_t, n_t=n_t, m_t=top)
    return over_time(cell, "qkvifo", {"C": (heads, width, width), "n": (heads, width), "m": (heads, 1)}, **options)


def delta_net(heads: int, width: int, **options: object) -> ro.Net:
    """A gated delta net (Yang and others 2024)."""
    cell = ro.Net("delta_net")
    q, k, v, a, b, S = cell.inputs("q", "k", "v", "a", "b", "S")
    left = ro.unsqueeze(ro.sigmoid(a), [3]) * S
    new = ro.sigmoid(b) * (v - ro.reduce_sum(left * ro.unsqueeze(k, [3]), axes=[2], keepdims=0))
    S_t = left + ro.unsqueeze(k, [3]) * ro.unsqueeze(new, [2])
    cell.outputs(y=ro.reduce_sum(S_t * ro.unsqueeze(q, [3]), axes=[2], keepdims=0), S_t=S_t)
    return over_time(cell, "qkvab", {"S": (heads, width, width)}, **options)


def selective(channels: int, states: int, **options: object) -> ro.Net:
    """A selective state space (Gu and Dao 2023) with a parameter A `[channels, states]`."""
    cell = ro.Net("selective")
    x, d, b, c, A, h = cell.inputs("x", "d", "b", "c", "A", "h")
    step = ro.softplus(d)
    h_t = ro.exp(ro.unsqueeze(step, [2]) * A) * h + ro.unsqueeze(step * x, [2]) * ro.unsqueeze(b, [1])
    cell.outputs(y=ro.reduce_sum(h_t * ro.unsqueeze(c, [1]), axes=[2], keepdims=0), h_t=h_t)
    return over_time(cell, "xdbc", {"h": (channels, states)}, **options)


def ending(
    T: int = 20, N: int = 3, heads: int = 2, width: int = 16, drop: int = 0, masked: bool = False, **options: object
) -> tuple[ro.Net, Feeds]:
    """Linear attention whose rows end, among them one at once and one at the last step, and its feeds.

    Args:
        masked: whether the output reads the state behind the mask.
    """
    cell = ro.Net("ending")
    q, k, v, f, C = cell.inputs("q", "k", "v", "f", "C")
    new = ro.unsqueeze(ro.sigmoid(f), [3]) * C + ro.unsqueeze(k, [3]) * ro.unsqueeze(v, [2])
    C_t = ro.select_valid(new, C, cell.input("lengths", "int32"), cell.input("t", "int32"), drop=drop)
    seen = C_t if masked else new
    cell.outputs(y=ro.reduce_sum(seen * ro.unsqueeze(q, [3]), axes=[2], keepdims=0), C_t=C_t)
    net = over_time(cell, "qkvf", {"C": (heads, width, width)}, timestep="t", **options)
    rng = np.random.default_rng(0)
    shapes = dict.fromkeys(("seq_q", "seq_k", "seq_v"), (T, N, heads, width))
    shapes |= {"seq_f": (T, N, heads, 1), "C0": (N, heads, width, width)}
    lengths = np.array([T // 2, 0, T, *(1 + 7 * n % T for n in range(N - 3))][:N], np.int32)
    return net, {**{name: rng.normal(size=shape) for name, shape in shapes.items()}, "lengths": lengths}


def feeds_of(net: ro.Net, T: int, N: int, first: int, second: int, dtype: str = "float32") -> Feeds:
    """Random feeds: heads and width, or channels and states."""
    rng = np.random.default_rng(0)
    if "A" in net.input_names:
        kinds = {"seq_x": (T, N, first), "seq_d": (T, N, first), "seq_b": (T, N, second), "seq_c": (T, N, second)}
        kinds |= {"A": (first, second), "h0": (N, first, second)}
    else:
        kinds = dict.fromkeys(("seq_q", "seq_k", "seq_v", "seq_o"), (T, N, first, second))
        kinds |= dict.fromkeys(("seq_i", "seq_f", "seq_a", "seq_b"), (T, N, first, 1))
        kinds |= {"C0": (N, first, second, second), "n0": (N, first, second), "m0": (N, first, 1)}
        kinds |= {"S0": (N, first, second, second)}
    found = {name: rng.normal(size=kinds[name]) for name in net.input_names}
    found = {
        name: -np.exp(a) if name == "A" else a / second**0.5 if name == "seq_k" else a for name, a in found.items()
    }
    return {name: array.astype(dtype) for name, array in found.items()}


CELLS = {"mlstm": (mlstm, (2, 32)), "delta_net": (delta_net, (2, 32)), "selective": (selective, (72, 16))}


def case(name: str, T: int = 20, N: int = 3, dtype: str = "float32", **options: object) -> tuple[ro.Net, Feeds]:
    """A cell of the table over time, and feeds."""
    make, sizes = CELLS[name]
    net = make(*sizes, **options)
    return net, feeds_of(net, T, N, *sizes, dtype)


def results(net: ro.Net, feeds: Feeds, **options: object) -> Feeds:
    """Outputs, and gradients of all inputs."""
    outputs, pullback = ro.compile(net, **options).vjp(feeds)  # type: ignore[arg-type]
    rng = np.random.default_rng(1)
    heads = {name: rng.normal(size=array.shape).astype(array.dtype) for name, array in outputs.items()}
    return {**outputs, **{f"grad {name}": array for name, array in pullback(heads).items()}}


def assert_close(found: Feeds, wanted: Feeds, tolerance: float) -> None:
    """All arrays agree, each by its largest number."""
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        limit = tolerance * max(1.0, np.abs(array).max(initial=0.0))
        np.testing.assert_allclose(found[name], array, rtol=0, atol=limit, err_msg=name)


def assert_equal(found: Feeds, wanted: Feeds) -> None:
    """All arrays have the same bits."""
    assert found.keys() == wanted.keys()
    assert [name for name, array in wanted.items() if found[name].tobytes() != array.tobytes()] == []
