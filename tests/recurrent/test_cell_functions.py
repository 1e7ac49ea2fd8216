"""Cells that are written as functions: the net that `recurrent_net` would step, and errors that name the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rejection import rejects

import rnnops as ro

T, N, D, H = 5, 3, 2, 4
RANDOM = np.random.default_rng(0)
SHAPES = {"xs": (T, N, D), "h0": (N, H), "c0": (H,), "w_x": (D, 4 * H), "w_h": (H, 4 * H), "b": (4 * H,)}
FEEDS = {name: RANDOM.normal(size=shape) for name, shape in SHAPES.items()}


@ro.cell
def lstm(x: Any, h: Any, c: Any, *, w_x: Any, w_h: Any, b: Any) -> dict[str, Any]:
    """One step."""
    i, f, o, g = ro.split((x @ w_x + h @ w_h + b).named("gates"), 4, axis=-1)
    c = ro.sigmoid(f) * c + ro.sigmoid(i) * np.tanh(g)
    return {"h": ro.sigmoid(o) * np.tanh(c), "c": c}


@ro.cell(timestep="t", dtypes={"ids": "int32"})
def counting(ids: Any, h: Any, kept: Any, *, table: Any, t: Any, rate: float = 0.5) -> dict[str, Any]:
    h = rate * h + table[ids] * ro.cast(t + 1, "float")
    return {"h": h, "kept": kept, "y": np.tanh(h)}


def test_the_net_is_that_of_recurrent_net() -> None:
    net, other = ro.Net("m"), ro.Net("m")
    xs, h0, c0 = net.inputs("xs", "h0", "c0")
    states, ys = ro.scan(lstm, xs, h=h0, c=c0, recompute="gates", reverse=True)
    net.outputs(y=ys["h"], c=states["c"])
    xs, h0, c0 = other.inputs("xs", "h0", "c0")
    h_all, h_last, _, c_last = ro.recurrent_net(
        other, lstm.net, [("x", xs)], [("h", h0), ("c", c0)], {"h": "h", "c": "c"},
        recompute_blobs_on_backward=["gates"], reverse=True,
    )  # fmt: skip
    ro.squeeze(h_last, [0])
    other.outputs(y=h_all, c=ro.squeeze(c_last, [0]))
    assert str(net) == str(other)
    ro.testing.check_gradient(net, FEEDS)


def test_a_cell_says_what_is_what() -> None:
    assert repr(lstm) == "<cell lstm: sequences x; states h, c; parameters w_x, w_h, b>"
    assert (counting.sequences, counting.states, counting.outputs) == (("ids",), ("h", "kept"), ("y",))
    assert lstm.__doc__ == "One step."
    assert str(lstm) == str(lstm.net)


def test_a_cell_is_a_function_of_blobs_still() -> None:
    net = ro.Net("one_step")
    x, h, c, w_x, w_h, b = net.inputs("x", "h", "c", "w_x", "w_h", "b")
    net.outputs(**lstm(x, h, c, w_x=w_x, w_h=w_h, b=b))
    first = {**FEEDS, "x": FEEDS["xs"][0], "h": FEEDS["h0"], "c": FEEDS["c0"]}
    out = ro.compile(net, device="reference")({name: first[name] for name in net.input_names})
    gates = np.split(first["x"] @ first["w_x"] + first["h"] @ first["w_h"] + first["b"], 4, axis=-1)
    i, f, o = (1 / (1 + np.exp(-gate)) for gate in gates[:3])
    np.testing.assert_allclose(out["h"], o * np.tanh(f * first["c"] + i * np.tanh(gates[3])), rtol=1e-12)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_rows_that_end(device: str) -> None:
    """Past its end a row's states stay, and what is not a state is zero; as each row by itself."""
    net = ro.Net("ends")
    ids, lengths = net.input("ids", "int32"), net.input("lengths", "int32")
    states, ys = ro.scan(counting, ids, lengths=lengths, h=np.zeros(H), kept=np.ones((N, H)))
    net.outputs(y=ys, **states)
    ids_fed, table = RANDOM.integers(0, 3, (T, N)).astype("int32"), RANDOM.normal(size=(3, H))
    out = ro.compile(net, device=device)(ids=ids_fed, lengths=np.array([5, 0, 2], "int32"), table=table)
    for n, length in enumerate((5, 0, 2)):
        h = np.zeros(H)
        for t in range(length):
            h = 0.5 * h + table[ids_fed[t, n]] * (t + 1)
            np.testing.assert_allclose(out["y"][t, n], np.tanh(h), rtol=1e-12)
        assert not out["y"][length:, n].any()
        np.testing.assert_allclose(out["h"][n], h, rtol=1e-12)
    assert out["kept"].shape == (N, H)


def test_layers_of_one_cell_have_parameters_of_their_own() -> None:
    net = ro.Net("stack")
    xs, h0, c0 = net.inputs("xs", "h0", "c0")
    _, below = ro.scan(lstm, xs, h=h0, c=c0)
    _, above = ro.scan(lstm, below["h"], h=h0, c=c0, scope="above")
    shared, _ = ro.scan(lstm, x=above["h"], h=h0, c=c0, scope="third", w_x=net.blob("above/w_x"))
    net.outputs(**shared)
    made = {"w_x", "w_h", "b", "above/w_x", "above/w_h", "above/b", "third/w_h", "third/b"}
    assert set(net.input_names) == {"xs", "h0", "c0"} | made
    with ro.name_scope("outer"):
        ro.scan(lstm, xs, h=h0, c=c0, scope="above")
    assert {"outer/above/w_x", "outer/above/w_h"} <= set(net.input_names)


def test_without_sequences_and_with_more_outputs_than_one() -> None:
    @ro.cell
    def halved(h: Any) -> dict[str, Any]:
        return {"h": 0.5 * h, "y": h, "square": h * h}

    net = ro.Net("halving")
    states, ys = ro.scan(halved, h=net.input("h0"), steps=3, forward_only=True)
    net.outputs(last=states["h"], **ys)
    out = ro.compile(net)(h0=np.full((2, 1), 8.0))
    assert out["last"].tolist() == [[1.0], [1.0]]
    assert out["square"][:, 0, 0].tolist() == [64.0, 16.0, 4.0]


def test_states_that_are_matrices() -> None:
    @ro.cell
    def outer(k: Any, v: Any, S: Any) -> dict[str, Any]:
        S = 0.9 * S + k[..., None] * v[:, None]
        return {"S": S, "y": (S * k[..., None]).sum(axis=1)}

    net = ro.Net("outer")
    ks, vs, S0 = net.inputs("ks", "vs", "S0")
    states, y = ro.scan(outer, ks, vs, S=S0, state_shapes={"S": (H, D)})
    net.outputs(y=y, **states)
    feeds = {"ks": RANDOM.normal(size=(T, N, H)), "vs": RANDOM.normal(size=(T, N, D)), "S0": np.zeros((N, H, D))}
    ro.testing.check_gradient(net, feeds)
    ro.testing.check_devices(net, feeds)


def test_arrays_take_the_dtypes_of_a_cell() -> None:
    """Initial states, parameters and lengths are blobs or arrays, whole numbers too."""

    @ro.cell(dtypes={"n": "int32", "k": "int64"})
    def counted(x: Any, n: Any, *, k: Any) -> dict[str, Any]:
        return {"n": n + 1, "y": x * ro.cast(n, "float") * ro.cast(k, "float")}

    net = ro.Net("counted")
    xs = net.input("xs")
    states, ys = ro.scan(counted, xs, n=np.zeros(D, int), k=np.arange(D), lengths=np.array([5, 0, 2]))
    net.outputs(y=ys, n=states["n"])
    for device in ("reference", "cpu"):
        out = ro.compile(net, device=device)(xs=FEEDS["xs"])
        assert out["n"].tolist() == [[5, 5], [0, 0], [2, 2]]
        assert np.array_equal(out["y"][:2, 2], FEEDS["xs"][:2, 2] * [[0], [1]] * np.arange(D))
        assert not out["y"][2:, 2].any()


def test_functions_that_are_no_cells() -> None:
    def returning(value: Callable[[Any, Any, Any], Any], **options: Any) -> Callable[[], Any]:
        def step(x: Any, h: Any, *, w: Any) -> Any:
            return value(x, h, w)

        return lambda: ro.cell(step, **options)

    trials: list[tuple[Callable[[], Any], str]] = [
        (lambda: ro.cell(3), "int"),  # type: ignore[arg-type]
        (lambda: ro.cell(dict), "def step"),
        (lambda: ro.cell(lambda x, h=0.0: {"h": h + x}), "no default"),
        (returning(lambda x, h, w: {"h": h, 3: x}), "int: Blob"),
        (returning(lambda x, h, w: {"h": h}, dtypes=["x"]), "['x']"),
        (lambda: ro.cell(lambda *xs: {"y": xs[0]}), "*args"),
        (lambda: ro.cell(lambda x, **more: {"y": x}), "**kwargs"),
        (lambda: ro.cell(lambda x, steps: {"y": x}), "option of ro.scan"),
        (lambda: ro.cell(lambda x, seq_lengths: {"y": x}), "option of ro.scan"),
        (returning(lambda x, h, w: (x, h)), "tuple"),
        (returning(lambda x, h, w: {}), "dict"),
        (returning(lambda x, h, w: {"h": 1.0}), "float"),
        (returning(lambda x, h, w: {"h": h, "w": w}), "before the `*`"),
        (returning(lambda x, h, w: {"h": h}, timestep="t"), "blob 't'"),
        (returning(lambda x, h, w: {"h": h}, dtypes={"ids": "int32"}), "blob 'ids'"),
        (returning(lambda x, h, w: {"h": h}, timestep="w", dtypes={"w": "float32"}), "blob 'w': the timestep argument"),
    ]
    for trial, mentioned in trials:
        rejects(ro.RecurrentError, trial, mentioned)


def test_the_dtype_of_a_timestep_may_be_said() -> None:
    assert ro.cell(lambda x, h, t: {"h": h}, timestep="t", dtypes={"t": np.int32}).timestep == "t"


def test_options_of_scan_that_a_cell_is_given() -> None:
    options: dict[str, Any] = {"state_shapes": {"h": (2, 2)}, "reverse": True, "timesteps": "t"}
    for name, hint in zip(options, ("state_shapes= is an option of ro.scan", "ro.scan", "timestep?"), strict=True):
        rejects(ro.ArgumentError, lambda name=name: ro.cell(**{name: options[name]}), f"'{name}'", hint)


def test_arguments_that_do_not_fit() -> None:
    net = ro.Net("m")
    xs, h0, c0 = net.inputs("xs", "h0", "c0")
    trials: list[tuple[Callable[[], Any], str]] = [
        (lambda: ro.scan(lstm.net, xs, h=h0, c=c0), "lstm in place of lstm.net"),  # type: ignore[arg-type]
        (lambda: ro.scan(lstm, xs, h=h0), "Give c="),
        (lambda: ro.scan(lstm, xs, h0, c0), "States go by name: h=, c=."),
        (lambda: ro.scan(lstm, h=h0, c=c0), "1 (x)"),
        (lambda: ro.scan(lstm, FEEDS["xs"], h=h0, c=c0), "ndarray"),  # type: ignore[arg-type]
        (lambda: ro.scan(lstm, xs, h=h0, c=c0, w_y=c0), "Did you mean w_x?"),
        (lambda: ro.scan(lstm, xs, h=h0, c=c0, recompute="gate"), "gates"),
        (lambda: ro.scan(counting, net.input("ids"), h=h0, kept=c0), "int32"),
        (lambda: ro.scan(counting, net.input("i", "int32"), h=h0, kept=c0, rate=0.1), "has a default"),
        (lambda: ro.scan(lstm, xs, h=h0, c=c0, lengths=net.input("n", "int64")), 'net.input("n", "int32")'),
    ]
    for trial, mentioned in trials:
        rejects(ro.RecurrentError, trial, mentioned)
    rejects(ro.ArgumentError, lambda: ro.cell(timestp="t"), "Did you mean timestep?")


def test_a_state_of_several_axes_that_nobody_declared() -> None:
    @ro.cell
    def outer(k: Any, S: Any) -> dict[str, Any]:
        return {"S": 0.9 * S + k[..., None] * k[:, None]}

    for lengths, rows, kind in ((None, 2, ro.RecurrentError), (np.array([T, 1, 0]), N, ro.TypeRuleError)):
        net = ro.Net("outer")
        states, _ = ro.scan(outer, net.input("ks"), S=net.input("S0"), lengths=lengths)
        net.outputs(**states)
        feeds = {"ks": np.zeros((T, N, rows)), "S0": np.zeros((rows, rows))}
        rejects(kind, lambda net=net, feeds=feeds: ro.compile(net, device="reference")(feeds), "state_shapes=")
