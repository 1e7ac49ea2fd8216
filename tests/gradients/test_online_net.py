"""`ro.online_net`: traces of elementwise cells are exact, others are refused or left out by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import rnnops as ro

T, N, D, H, S = 200, 3, 4, 5, 2
Shapes = dict[str, tuple[int, ...]]


@ro.cell
def ind_rnn(x, h, *, w, u, b):
    return {"h": np.tanh(x @ w + u * h + b)}


@ro.cell
def min_gru(x, h, *, w, b):
    keep, new = ro.split(x @ w + b, 2, -1)
    keep = ro.sigmoid(keep)
    return {"h": (1.0 - keep) * h + keep * np.tanh(new)}


@ro.cell
def sru(x, c, *, w, v, b):
    new, f, r, skip = ro.split(x @ w, 4, -1)
    (v_f, v_r), (b_f, b_r) = ro.split(v, 2, -1), ro.split(b, 2, -1)
    f, r = ro.sigmoid(f + v_f * c + b_f), ro.sigmoid(r + v_r * c + b_r)
    c = f * c + (1.0 - f) * new
    return {"c": c, "y": r * np.tanh(c) + (1.0 - r) * skip}


@ro.cell
def qrnn(x, c, before, *, w, w_before):
    """A convolution over two steps; the state that holds the last input has no trace."""
    new, f, o = ro.split(x @ w + before @ w_before, 3, -1)
    c = ro.sigmoid(f) * c + (1.0 - ro.sigmoid(f)) * np.tanh(new)
    return {"c": c, "before": ro.identity(x), "y": ro.sigmoid(o) * c}


@ro.cell
def rg_lru(x, h, *, w_r, w_i, decay, w):
    a = ro.exp(-8.0 * ro.softplus(decay) * ro.sigmoid(x @ w_r))
    return {"h": a * h + ro.sqrt(1.0 - a * a) * ro.sigmoid(x @ w_i) * (x @ w)}


@ro.cell
def lif(x, v, z, *, w, b):
    """Spikes with a surrogate gradient; two states that move each other."""
    v = 0.9 * v * (1.0 - z) + x @ w + b
    slope = ro.sigmoid(4.0 * (v - 1.0))
    spike = ro.stop_gradient(ro.cast(v > 1.0, "float"))
    return {"v": v, "z": ro.with_gradient(spike, v, ro.stop_gradient(4.0 * slope * (1.0 - slope)))}


@ro.cell
def selective(x, s, *, w_d, a, b, c):
    """A state space: the product reaches all elements of a row of states."""
    d = ro.unsqueeze(ro.softplus(x @ w_d), [2])
    s = ro.exp(-d * ro.exp(a)) * s + d * b * ro.unsqueeze(x, [2])
    return {"s": s, "y": ro.reduce_sum(s * c, [2], keepdims=0)}


@ro.cell
def complex_pairs(x, re, im, *, nu, theta, b_re, b_im, c):
    size = ro.exp(-ro.exp(nu))
    a, b, scale = size * ro.cos(theta), size * ro.sin(theta), ro.sqrt(1.0 - size * size)
    new = a * re - b * im + scale * (x @ b_re)
    return {"re": new, "im": a * im + b * re + scale * (x @ b_im), "y": new @ c}


@ro.cell
def reversed_columns(x, h, *, w):
    return {"h": 0.9 * h + np.tanh(x @ w)[:, ::-1]}


@ro.cell
def between_bounds(x, h, *, w):
    return {"h": ro.clip(0.9 * h + ro.clip((x @ w)[:, ::-1], None, 0.5), -0.8, 0.8)}


@ro.cell
def of_gemm(x, h, *, w, b):
    return {"h": 0.9 * h + ro.gemm(x, w, b, 0.5, 2.0, transB=1)}


@ro.cell
def expanded(x, h, *, w, u):
    """Views repeat a product, and sizes of 1 leave a state as it is."""
    return {"h": ro.expand(u * h, (1, H)) + ro.expand((x @ w)[:, :1], (1, H))}


@ro.cell
def decayed(a, g):
    return {"g": 0.5 * g + a * a}


@ro.cell
def with_scans(x, h, *, w, v):
    """One recurrence follows from a parameter only, the other one is on the way to an output."""
    initial = np.zeros((1, H))
    of_v, _ = ro.scan(decayed, ro.unsqueeze(v, [0]), g=initial)
    h = ro.tanh(of_v["g"] * h + x @ w)
    last, _ = ro.scan(decayed, ro.unsqueeze(h, [0]), g=h, scope="out")
    return {"h": h, "y": last["g"]}


EXACT: dict[Any, tuple[Shapes, Shapes]] = {
    ind_rnn: ({"h": (N, H)}, {"w": (D, H), "u": (H,), "b": (1, H)}),
    min_gru: ({"h": (N, H)}, {"w": (D, 2 * H), "b": (2 * H,)}),
    sru: ({"c": (N, H)}, {"w": (D, 4 * H), "v": (2 * H,), "b": (2 * H,)}),
    qrnn: ({"c": (N, H), "before": (N, D)}, {"w": (D, 3 * H), "w_before": (D, 3 * H)}),
    rg_lru: ({"h": (N, H)}, {"w_r": (D, H), "w_i": (D, H), "decay": (), "w": (D, H)}),
    lif: ({"v": (N, H), "z": (N, H)}, {"w": (D, H), "b": (H,)}),
    selective: ({"s": (N, D, S)}, {"w_d": (D, D), "a": (D, S), "b": (D, S), "c": (D, S)}),
    complex_pairs: (
        {"re": (N, H), "im": (N, H)},
        {"nu": (H,), "theta": (H,), "b_re": (D, H), "b_im": (D, H), "c": (H, 2)},
    ),
    reversed_columns: ({"h": (N, H)}, {"w": (D, H)}),
    between_bounds: ({"h": (N, H)}, {"w": (D, H)}),
    of_gemm: ({"h": (N, H)}, {"w": (H, D), "b": (H,)}),
    expanded: ({"h": (N, H)}, {"w": (D, H), "u": (H,)}),
    with_scans: ({"h": (N, H)}, {"w": (D, H), "v": (1, H)}),
}


def drawn(seed: int, shapes: Shapes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: np.asarray(0.6 * rng.normal(size=shape)) for name, shape in shapes.items()}


def through_time(cell: Any, xs: Any, states: dict[str, Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """Weights of outputs, and gradients by back-propagation through all steps."""
    net = ro.Net("model")
    initial = {name: net.input(f"{name}_0") for name in states}
    _, ys = ro.scan(cell, net.input("xs"), **initial, state_shapes={n: a.shape[1:] for n, a in states.items()})
    net.outputs(**(ys if isinstance(ys, dict) else {"y": ys}))
    feeds = {"xs": xs, **{f"{name}_0": array for name, array in states.items()}, **params}
    out, pullback = ro.compile(net, device="reference").vjp(feeds, wrt=list(params))
    weights = drawn(7, {name: array.shape for name, array in out.items()})
    return weights, pullback(weights)


def step_by_step(online: Any, xs: Any, states: Any, params: Any, weights: Any, device: str) -> dict[str, Any]:
    """Sums of the gradients of all steps."""
    run, total = ro.compile(online.net, device=device), dict.fromkeys(params, 0.0)
    carried = {**states, **{name: np.zeros(shape) for name, shape in online.traces.items()}}
    for t, x in enumerate(xs):
        given = {f"d_{name}": array[t] for name, array in weights.items()}
        out = run({"x": x, **carried, **params, **given})
        carried = {name: out[output] for output, name in online.states.items()}
        total = {name: total[name] + out[f"d_{name}"] for name in params}
    return total


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("cell", EXACT, ids=lambda cell: cell.name)
def test_gradients_are_those_through_all_steps(cell: Any, device: str) -> None:
    states, params = drawn(1, EXACT[cell][0]), drawn(2, EXACT[cell][1])
    xs = drawn(3, {"xs": (T, N, D)})["xs"]
    weights, wanted = through_time(cell, xs, states, params)
    online = ro.online_net(cell, x=xs[0], **states, **params)
    found = step_by_step(online, xs, states, params, weights, device)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-9, atol=1e-9 * np.abs(array).max(), err_msg=name)


def lstm_gates(read: Callable[[Any], Any]) -> Any:
    @ro.cell
    def lstm(x, h, c, *, w_x, w_h, b):
        i, f, o, new = ro.split(x @ w_x + read(h) @ w_h + b, 4, -1)
        c = ro.sigmoid(f) * c + ro.sigmoid(i) * np.tanh(new)
        return {"h": ro.sigmoid(o) * np.tanh(c), "c": c}

    return lstm


def gru_gates(read: Callable[[Any], Any]) -> Any:
    """One of its outputs is a product of the state, which stays as it is."""

    @ro.cell
    def gru(x, h, *, w, u, w_new, u_new, v):
        z, r = ro.split(ro.sigmoid(x @ w + read(h) @ u), 2, -1)
        new = np.tanh(x @ w_new + read(r * h) @ u_new)
        return {"h": (1.0 - z) * new + z * h, "y": h @ v}

    return gru


APPROXIMATE: dict[Any, tuple[Shapes, Shapes]] = {
    lstm_gates: ({"h": (N, H), "c": (N, H)}, {"w_x": (D, 4 * H), "w_h": (H, 4 * H), "b": (4 * H,)}),
    gru_gates: (
        {"h": (N, H)},
        {"w": (D, 2 * H), "u": (H, 2 * H), "w_new": (D, H), "u_new": (H, H), "v": (H, H)},
    ),
}


@pytest.mark.parametrize("gates", APPROXIMATE)
def test_approximate_gradients_are_those_of_a_cell_that_stops_them(gates: Any) -> None:
    states, params = (drawn(seed, shapes) for seed, shapes in enumerate(APPROXIMATE[gates]))
    xs = drawn(3, {"xs": (40, N, D)})["xs"]
    cell, stopped = gates(lambda blob: blob), gates(ro.stop_gradient)
    with pytest.raises(ro.GradientError, match=r"MatMul.*mixes elements that depend on states .*approximate=True"):
        ro.online_net(cell, x=xs[0], **states, **params)
    weights, wanted = through_time(stopped, xs, states, params)
    for online in (
        ro.online_net(cell, approximate=True, x=xs[0], **states, **params),
        ro.online_net(stopped, x=xs[0], **states, **params),
    ):
        found = step_by_step(online, xs, states, params, weights, "reference")
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-11, atol=1e-12, err_msg=name)


@partial(ro.cell, dtypes={"n": "int32", "t": "int32"})
def until(x, n, t, h, *, w):
    return {"h": ro.select_valid(0.9 * h + x @ w, h, n, t)}


def test_rows_that_end_early() -> None:
    states, params = drawn(1, {"h": (N, H)}), drawn(2, {"w": (D, H)})
    xs, ends = drawn(3, {"xs": (9, N, D)})["xs"], np.array([3, 9, 5], "int32")
    online = ro.online_net(until, x=(N, D), n=(N,), t=(1,), **states, **params)
    run, found = ro.compile(online.net), 0.0
    carried = {**states, "trace_h_w": np.zeros((N, D, H))}
    weights = drawn(7, {"h": (9, N, H)})["h"]
    for t, x in enumerate(xs):
        out = run({"x": x, "n": ends, "t": np.array([t], "int32"), **carried, **params, "d_h": weights[t]})
        carried, found = {"h": out["h"], "trace_h_w": out["trace_h_w"]}, found + out["d_w"]
    net = ro.Net("model")
    _, hs = ro.scan(plain, net.input("xs"), h=net.input("h"), w=net.input("w"))
    net.outputs(h=hs["h"])
    for n, end in enumerate(ends):  # a row by itself; the steps that follow have its last state
        given = np.concatenate([weights[: end - 1, n], weights[end - 1 :, n].sum(0, keepdims=True)])[:, None]
        feeds = {"xs": xs[:end, [n]], "h": states["h"][[n]], **params}
        _, pullback = ro.compile(net, device="reference").vjp(feeds, wrt="w")
        found = found - pullback({"h": given})["w"]
    np.testing.assert_allclose(found, 0.0, atol=1e-12)


@ro.cell
def plain(x, h, *, w):
    return {"h": 0.9 * h + x @ w}


def test_a_state_of_one_number() -> None:
    @ro.cell
    def smooth(x, h, *, a):
        return {"h": a * h + x}

    online = ro.online_net(smooth, x=(), h=(), a=())
    assert dict(online.traces) == {"trace_h_a": ()}
    feeds = {"x": 1.0, "h": 0.5, "a": 0.25, "trace_h_a": 2.0, "d_h": 1.0}
    out = ro.compile(online.net)({name: np.array(number) for name, number in feeds.items()})
    assert (out["trace_h_a"], out["d_a"]) == (1.0, 1.0)


def test_dtypes_that_a_net_declares() -> None:
    sizes = {"x": (N, D), "h": (N, H), "w": (D, H)}
    for kinds in (dict.fromkeys("xhw", "float64"), {"x": "float32", "h": "float64", "w": "float32"}):
        net = ro.Net("declared")
        x, h, w = (net.input(name, dtype=kind) for name, kind in kinds.items())
        net.outputs(h_next=0.5 * h + ro.cast(x @ w, "float64"))
        if kinds["w"] == "float64":
            online = ro.online_net(net, "w", states={"h_next": "h"}, **sizes)
            out = ro.compile(online.net)({spec.name: np.ones(spec.shape) for spec in online.net.input_specs})
            np.testing.assert_array_equal(out["d_w"], np.full((D, H), 1.5 * N))
        else:
            with pytest.raises(
                ro.GradientError, match=r"blob 'h': a state depends .*float64; got 'mat_mul_0', float32"
            ):
                ro.online_net(net, "w", states={"h_next": "h"}, **sizes)


def test_some_parameters_and_the_net_of_a_step() -> None:
    states, params = drawn(1, EXACT[sru][0]), drawn(2, EXACT[sru][1])
    xs = drawn(3, {"xs": (9, N, D)})["xs"]
    weights, wanted = through_time(sru, xs, states, params)
    online = ro.online_net(sru.net, "v", states={"c": "c"}, outputs="y", x=xs[0], **states, **params)
    assert list(online.traces) == ["trace_c_v"]
    assert "d_w" not in online.net.output_blobs
    run, carried, total = ro.compile(online.net), {**states, "trace_c_v": np.zeros((N, H))}, 0.0
    for t, x in enumerate(xs):
        out = run({"x": x, **carried, **params, "d_y": weights["y"][t]})
        carried, total = {"c": out["c"], "trace_c_v": out["trace_c_v"]}, total + out["d_v"]
    np.testing.assert_allclose(total, wanted["v"], rtol=1e-12)


@ro.cell
def remembering(x, target, h, *, w, b, v):
    """A unit that is asked for a mean of what came."""
    keep, new = ro.split(x @ w + b, 2, -1)
    keep = ro.sigmoid(keep)
    h = keep * h + (1.0 - keep) * np.tanh(new)
    error = h @ v - target
    return {"h": h, "loss": error * error}


def test_parameters_may_change_in_a_stream() -> None:
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(1, 16)), "b": np.r_[np.linspace(0, 2, 8), np.zeros(8)], "v": np.zeros((8, 1))}
    params = {name: array.astype("float32") for name, array in params.items()}
    online = ro.online_net(remembering, x=(1, 1), target=(1, 1), h=(1, 8), **params)
    stream = ro.compile(online.net).stream(online.states, shapes={"h": (1, 8), **online.traces})
    losses, target = [], np.zeros((1, 1), "float32")
    for _ in range(3000):
        x = rng.choice([-1.0, 1.0], size=(1, 1)).astype("float32")
        target = np.float32(0.8) * target + np.float32(0.2) * x
        out = stream(x=x, target=target, **params, d_loss=np.ones((1, 1), "float32"))
        losses.append(float(out["loss"][0, 0]))
        params = {name: array - np.float32(0.05) * out[f"d_{name}"] for name, array in params.items()}
    assert np.mean(losses[-200:]) < 0.3 * np.mean(losses[:200])


@ro.cell
def two_layers(x, h, *, w, v):
    return {"h": 0.9 * h + np.tanh(x @ w) @ v}


@ro.cell
def rolled(x, h, *, w):
    return {"h": x @ w + ro.concat([h[:, 1:], h[:, :1]], 1)}


@ro.cell
def flipped(x, h, *, w):
    return {"h": x @ w + h[:, ::-1]}


@ro.cell
def other_rows(x, h, *, w):
    return {"h": 0.9 * h + (x @ w)[::-1]}


@ro.cell
def of_two_sizes(x, h, g, *, w):
    return {"h": x @ w + h + g, "g": 0.5 * g + ro.reduce_mean(x @ w, [1])}


@ro.cell
def columns_as_rows(row, h_t, *, w):
    return {"h_t": 0.9 * h_t + ro.transpose(row @ w)}


@ro.cell
def in_two_rows(row, h_2, *, w_2):
    return {"h_2": 0.9 * h_2 + ro.reshape(row @ w_2, (2, H))}


@ro.cell
def filled(row, h_p, *, w):
    return {"h_p": 0.9 * h_p + ro.pad(row @ w, [0, 1, 0, 1], 1.0)}


@ro.cell
def filled_by_parameter(x, h, *, w, c):
    return {"h": ro.pad(h[:, 1:], [0, 1, 0, 0], c) + x @ w}


@ro.cell
def bound_by_parameter(x, h, *, w, c):
    return {"h": ro.clip(h, None, c) + x @ w}


@ro.cell
def dropped(x, h, *, w):
    return {"h": 0.9 * h + x @ ro.dropout(w, 0.5)}


@ro.cell
def dropping(a, g):
    return {"g": 0.5 * g + ro.dropout(a, 0.5)}


@ro.cell
def dropped_in_scan(x, h, *, w, b):
    last, _ = ro.scan(dropping, ro.unsqueeze(b, [0]), g=np.zeros((1, H)))
    return {"h": last["g"] * h + x @ w}


SIZES = {"x": (N, D), "h": (N, H), "w": (D, H), "v": (H, H), "g": (N, 1), "b": (1, H), "c": ()}
SIZES |= {"row": (1, D), "h_t": (H, 1), "h_2": (2, H), "w_2": (D, 2 * H), "h_p": (1, H + 2)}


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (two_layers, "MatMul -> mat_mul_1': this op mixes elements of parameters"),
        (rolled, "Concat -> concat_0': this op mixes elements that depend on states"),
        (flipped, r"Slice -> slice_0': this op mixes elements that depend on states \(h\)"),
        (other_rows, "Slice -> slice_0': this op mixes elements of parameters"),
        (of_two_sizes, r"blob 'g': a state \[3, 5\] depends on this one.*Train such a step by run.vjp"),
        (
            columns_as_rows,
            "Transpose -> transpose_0': this op mixes elements of parameters.*Train such a step by run.vjp",
        ),
        (in_two_rows, "Reshape -> reshape_0': this op mixes elements of parameters"),
        (filled, "Pad -> pad_0': this op mixes elements of parameters"),
        (filled_by_parameter, r"Pad -> pad_0': this op mixes elements that depend on states \(slice_0\)"),
        (bound_by_parameter, "Clip -> clip_0': this op mixes elements that depend on states"),
        (dropped, "MatMul -> mat_mul_0': this op mixes elements of parameters"),
        (dropped_in_scan, "RecurrentNetwork -> .*: this op mixes elements of parameters"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_other_cells_are_refused_by_op(cell: Any, message: str) -> None:
    sizes = {name: SIZES[name] for name in cell.net.input_names}
    with pytest.raises(ro.GradientError, match=message):
        ro.online_net(cell, **sizes)


def test_approximate_leaves_out_what_mixes_states() -> None:
    for cell in (rolled, flipped):
        online = ro.online_net(cell, approximate=True, x=(N, D), h=(N, H), w=(D, H))
        assert dict(online.traces) == {"trace_h_w": (N, D, H)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": ["q"]}, "parameters: not a float of the step; wanted some of x, w, u, b; got q"),
        ({"parameters": ["h"]}, "parameters: not a float of the step.*got h"),
        ({"parameters": []}, "got none"),
        ({"outputs": ["q"]}, "outputs: not a float of the step; wanted some of h; got q"),
        ({"h": (H,)}, r"blob 'h': a state has another shape; wanted \[3, 5\], as output 'h' has"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    sizes = {"x": (N, D), "h": (N, H), **EXACT[ind_rnn][1]}
    with pytest.raises(ro.FeedError, match=message):
        ro.online_net(ind_rnn, **{**sizes, **options})


def test_bad_states() -> None:
    with pytest.raises(ro.FeedError, match=r"states names no output and input.*got new -> h"):
        ro.online_net(ind_rnn.net, ["w"], states={"new": "h"}, x=(N, D), h=(N, H), **EXACT[ind_rnn][1])
    sizes = {"x": (N, D), "h": (N, H), "w": (D, H), "b": (1, H), "v": (1, H)}
    for states, message in (({"h": "h", "y": "h"}, "two outputs feed one input"), ("h", "states= is not a dict")):
        with pytest.raises(ro.FeedError, match=message):
            ro.online_net(with_scans.net, ["w"], states=states, **{n: sizes[n] for n in with_scans.net.input_names})
    with pytest.raises(ro.NetError, match=r"this is not a net.*ro.cell"):
        ro.online_net("cell")
