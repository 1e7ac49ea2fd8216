"""Bound weights kept as int8: on all devices the numbers of float64 with weights that are rounded by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import PLAIN
from masked_presets import PRESETS, D, preset
from native_programs import exported, needs_compiler

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options
from rnnops.errors import FeedError
from rnnops.ops.linear_algebra import as_int8
from rnnops.testing import random_net

Arrays = dict[str, Any]
T, N, H = 4, 3, 32
TUNINGS = {"cpu": Options(), "256 bits": Options(width=256), "plain": PLAIN}


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype(np.float32)


def nearest(w: Any, turned: bool = False) -> Any:
    """A weight as 127ths of the largest number of each column, or of each row, in float64."""
    largest = np.abs(w).max(-1 if turned else max(-2, -w.ndim), keepdims=True)
    scale = largest / np.float32(127)
    return np.rint(w / scale).astype(np.float64) * scale


def bound_run(net: ro.Net, params: Arrays, device: str = "cpu", **options: Any) -> ro.Run:
    return ro.compile(net, device, **options).bind(**params, weights="int8")


def assert_near(came: Arrays, wanted: Arrays) -> None:
    for name, array in wanted.items():
        size = np.abs(array).max(initial=1e-6)
        np.testing.assert_allclose(came[name], array, rtol=1e-5, atol=1e-5 * size, err_msg=name)


def check(net: ro.Net, params: Arrays, feeds: Arrays, near: Mapping[str, Any], apart: ro.Net | None = None) -> None:
    """All devices, called until calls are native ones.

    Args:
        near: weights as they are when they are rounded.
        apart: the net where what else reads a weight reads something else.
    """
    given = {**params, **near, **feeds}
    wide = {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in given.items()}
    exact = ro.compile(apart or net, "reference")(wide)
    wanted = bound_run(net, params, "reference")(feeds)
    assert_near(wanted, exact)
    unchanged = ro.compile(net, "reference")({**params, **feeds})
    difference = max(np.abs(unchanged[name] - array).max(initial=0) for name, array in wanted.items())
    assert difference > 1e-4, "rounding changes nothing here, so that nothing is tested"
    for tuning, options in TUNINGS.items():
        run = bound_run(net, params, tuning=options)
        for _ in range(3 if tuning == "cpu" else 1):
            assert_near(run(feeds), wanted)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_with_lengths(name: str) -> None:
    """Their cells turn weights: rows of a parameter are columns of a product."""
    net = preset(name, dim_out=[H, 20])
    shapes = {name: array.shape for name, array in ro.init_params(net, 0, "float32").items()}
    params = {name: floats(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    near = {name: nearest(array, turned=True) for name, array in params.items() if array.ndim == 2}
    check(net, params, {"x": floats(T, N, D), "lengths": np.array([T, 0, 2], np.int32)}, near)


def heads(h: ro.Blob, a: ro.Blob) -> ro.Blob:
    """Parts of h times a matrix each, summed."""
    return ro.reduce_sum(ro.reshape(h, (-1, 2, 1, H // 2)) @ a, axes=[1, 2], keepdims=0)


# Of x, h, weights w, u, a (a stack), b, and what else reads w: v.
BODIES: dict[str, Callable[..., ro.Blob]] = {
    "rows times weights": lambda x, h, w, u, a, b, v: ro.tanh(x @ w + h @ u + b),
    "Gemm": lambda x, h, w, u, a, b, v: ro.tanh(ro.gemm(x, w, h, alpha=0.7, beta=0.5) + ro.gemm(h, u, b)),
    "a column": lambda x, h, w, u, a, b, v: ro.tanh(x @ w + ro.sigmoid(ro.unsqueeze(h @ b, [-1]))),
    "read elsewhere": lambda x, h, w, u, a, b, v: ro.tanh(x @ w + h @ u + ro.reduce_mean(v, axes=[0], keepdims=0)),
    "on the left": lambda x, h, w, u, a, b, v: ro.tanh(x @ w + ro.transpose(v @ ro.transpose(h))),
    "used twice": lambda x, h, w, u, a, b, v: ro.tanh(x @ w) + ro.sigmoid(h @ w @ u),
    "heads": lambda x, h, w, u, a, b, v: ro.tanh(x @ w + heads(h, a)),
}


def recurrence(body: Callable[..., ro.Blob], apart: bool = False) -> ro.Net:
    """A net of a cell of one state.

    Args:
        apart: whether `v` is an input of its own, in place of `w`.
    """
    cell, net = ro.Net("cell"), ro.Net("net")
    x, h, w, *rest = cell.inputs("x", "h", "w", "u", "a", "b")
    cell.outputs(h_t=body(x, h, w, *rest, cell.input("v") if apart else w))
    xs, h0 = net.inputs("xs", "h0")
    states = [("h", h0)]
    h_all, h_last = ro.recurrent_net(net, cell, inputs=[("x", xs)], initial_cell_inputs=states, links={"h": "h_t"})
    net.outputs(y=h_all, last=h_last)
    return net


SHAPES = {"w": (H, H), "u": (H, H), "a": (2, H // 2, H), "b": (H,)}


def feeds_of(rows: int = N) -> Arrays:
    return {"xs": floats(T, rows, H), "h0": floats(rows, H)}


@pytest.mark.parametrize("name", BODIES)
def test_whatever_runs_a_product(name: str) -> None:
    params = {weight: floats(*shape, seed=ord(weight)) for weight, shape in SHAPES.items()}
    near = {k: nearest(array) for k, array in params.items() if k != "b" or name == "a column"}
    near["v"] = params["w"]
    check(recurrence(BODIES[name]), params, feeds_of(), near, recurrence(BODIES[name], apart=True))


def test_products_around_recurrences() -> None:
    """Large ones and small ones, turned by Gemm, of tied weights that a look-up reads as they are."""
    for rows in (3, 300):
        nets = [ro.Net("tied"), ro.Net("apart")]
        for net in nets:
            words, w, table = net.input("words", "int32"), net.input("w"), net.input("table")
            read = net.input("read") if net.name == "apart" else table
            net.outputs(y=ro.gemm(ro.tanh(ro.gather(read, words) @ w), table, transB=1))
        params = {"w": floats(40, 50), "table": floats(70, 40)}
        params["w"] = params["w"][:, :40]
        feeds = {"words": (np.arange(rows) * 7 % 70).astype(np.int32)}
        near = {"w": nearest(params["w"]), "table": nearest(params["table"], turned=True), "read": params["table"]}
        check(nets[0], params, feeds, near, nets[1])


def test_whole_weights_give_the_bits_of_float32() -> None:
    """Where scales are 1, all is as it would be: whatever sums rows, in whatever blocks."""
    net = recurrence(BODIES["used twice"])
    whole = {k: np.rint(127 * floats(*shape, seed=1)) for k, shape in SHAPES.items()}
    for k in "wu":
        whole[k][3] = 127
    feeds = feeds_of()
    for tuning in (Options(), Options(width=256)):
        came = bound_run(net, whole, tuning=tuning)(feeds)
        wanted = ro.compile(net, tuning=tuning).bind(**whole)(feeds)
        assert all(came[name].tobytes() == array.tobytes() for name, array in wanted.items())


def test_columns_that_are_joined_keep_their_scales() -> None:
    """Many steps of narrow products, which are merged."""
    cell, net = ro.Net("cell"), ro.Net("net")
    x, h, w, u = cell.inputs("x", "h", "w", "u")
    cell.outputs(h_t=ro.tanh(x + h @ w) * ro.sigmoid(h @ u))
    xs, h0 = net.inputs("xs", "h0")
    states = [("h", h0)]
    net.outputs(ro.recurrent_net(net, cell, inputs=[("x", xs)], initial_cell_inputs=states, links={"h": "h_t"})[0])
    params = {"w": floats(8, 8), "u": 1e-3 * floats(8, 8, seed=1)}
    params["u"][:, 0] = 100
    feeds = {"xs": floats(60, 2, 8), "h0": floats(2, 8)}
    near = {name: nearest(array) for name, array in params.items()}
    check(net, params, feeds, near)
    assert "joined" in str(bound_run(net, params).plan(feeds, backward=False))


def test_dropout() -> None:
    """Weights that cells turn are found beside random ops, and what is dropped is what float32 drops."""
    net = ro.Net("dropped")
    y = ro.LSTM(net, net.input("x"), None, None, D, H, scope="lstm")[0]
    net.outputs(y=ro.dropout(y, 0.5) @ net.parameter("w", (H, 7)), mask=ro.dropout(y, 0.5))
    params = {k: floats(*v.shape, seed=1) for k, v in ro.init_params(net, 0, "float32").items()}
    x = floats(T, N, D)
    runs = [bound_run(net, params, device) for device in ("reference", "cpu")]
    assert str(runs[1].plan(x=x, backward=False)).count("of int8") == 3
    floats_run = ro.compile(net).bind(**params)
    for options in ({}, {"training": True, "seed": 3}):
        wanted, came, exact = (run(x=x, **options) for run in (*runs, floats_run))
        assert_near(came, wanted)
        np.testing.assert_array_equal(came["mask"] == 0, exact["mask"] == 0)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    """Rows shared out, and columns of few rows shared out."""
    for rows, features in ((13, 33), (1, 200)):
        net = preset("LSTM", dim_out=features)
        params = ro.init_params(net, 0, "float32")
        feeds = {"x": floats(T, rows, D), "lengths": np.full(rows, T, np.int32)}
        wanted, *others = (bound_run(net, params, threads=threads)(feeds) for threads in (1, 2, 3))
        assert all(other[name].tobytes() == array.tobytes() for other in others for name, array in wanted.items())


def test_streams_and_other_numbers_of_rows() -> None:
    net, params = recurrence(BODIES["rows times weights"]), {k: floats(*s, seed=1) for k, s in SHAPES.items()}
    run = bound_run(net, params)
    stream = run.stream({"last": "h0"}, rows=2, shapes={"h0": (1, "N", H)})
    xs, state = floats(3, 2, H), np.zeros((1, 2, H), np.float32)
    for x in xs:
        wanted = run(xs=x[None], h0=state)
        state = wanted["last"]
        assert stream(x[None])["y"].tobytes() == wanted["y"].tobytes()
    reference = bound_run(net, params, "reference")
    for rows in (1, 2, 9, 20):
        assert_near(run(feeds_of(rows)), reference(feeds_of(rows)))


@needs_compiler
@pytest.mark.parametrize("source", [None, "c99"])
def test_exported_weights_are_bytes(source: str | None, tmp_path: Path) -> None:
    net, params = recurrence(BODIES["rows times weights"]), {k: floats(*s, seed=1) for k, s in SHAPES.items()}
    feeds = feeds_of(1)
    run = bound_run(net, params)
    program = exported(run, tmp_path / "int8", feeds, source=source)
    wanted = run(feeds)
    came = {name: np.zeros_like(array) for name, array in wanted.items()}
    assert program(feeds, came) == 0
    assert_near(came, wanted)
    assert source or all(came[name].tobytes() == array.tobytes() for name, array in wanted.items())
    weights = program.files.weights.read_bytes()
    in_float32 = ro.compile(net).bind(**params).export_native(tmp_path / "float32", feeds, source=source)
    assert len(weights) < 0.4 * in_float32.weights.stat().st_size  # biases and scales are there beside them
    for name in "wu":
        first = as_int8(params[name])[0][0, :8].astype(np.int8).tobytes()
        assert first in weights


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_random_nets(first: int) -> None:
    """Bound but for the sequences; as plain Python, one of ten compiled."""
    tried = 0
    for seed in range(first, first + 10):
        made = random_net(seed)
        feeds = {name: a.astype(np.float32) if a.dtype.kind == "f" else a for name, a in made.feeds.items()}
        params = {name: array for name, array in feeds.items() if array.dtype.kind == "f" and array.ndim < 3}
        rest = {name: array for name, array in feeds.items() if name not in params}
        tuning = Options() if seed % 10 == 0 else PLAIN
        try:
            reference = bound_run(made.net, params, "reference")
        except FeedError:  # a net without weights of products
            continue
        wanted, came = (run(rest, seed=seed) for run in (reference, bound_run(made.net, params, tuning=tuning)))
        tried += 1
        for name, array in wanted.items():
            np.testing.assert_allclose(came[name], array, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}: {name}")
    assert tried >= 3
