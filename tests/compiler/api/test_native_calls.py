"""Bound runs answer feeds of known types by one call of compiled code, with the values of the reference."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from masked_presets import PRESETS, D, H, preset
from rejection import rejects

import rnnops as ro
from rnnops.compiler.api.bound_run import BoundRun
from rnnops.compiler.api.planned_run import KINDS

Arrays = Mapping[str, np.ndarray]
LENGTHS = np.array([3, 0, 5, 1], "int32")


def bound_run(net: ro.Net, threads: int = 1, dtype: str = "float32", **options: Any) -> tuple[BoundRun, Arrays]:
    params = ro.init_params(net, 0, dtype)
    run = ro.compile(net, threads=threads, **options).bind(**params)
    assert isinstance(run, BoundRun)
    return run, params


def lists_of(run: BoundRun) -> int:
    return sum(len(lists.idle) for lists in run._calls._lists.values() if not isinstance(lists, str))


def check(run: BoundRun, params: Arrays, feeds: Arrays, native: bool = True) -> None:
    """Calls with the same types of feeds agree in all bits, and with the reference."""
    wanted = ro.compile(run.net, "reference")({**params, **feeds})
    first = run(feeds)
    for name, array in wanted.items():
        tolerance = 1e-5 if array.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(first[name], array, tolerance, tolerance, err_msg=name)
    for _ in range(3):
        again = run(feeds)
        for name, array in first.items():
            np.testing.assert_array_equal(again[name], array, err_msg=name)
    assert bool(lists_of(run)) == native
    other = {name: (np.asarray(array + 1) if array.dtype.kind == "f" else array) for name, array in feeds.items()}
    wanted = ro.compile(run.net, "reference")({**params, **other})
    for name, array in run(other).items():
        np.testing.assert_allclose(array, wanted[name], 1e-4, 1e-5, err_msg=name)


@pytest.mark.covering(2)
@pytest.mark.parametrize("options", [{}, {"dim_out": [H, D]}, {"drop_states": True}], ids=["one", "stack", "drop"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str, threads: int, dtype: str, options: dict[str, Any]) -> None:
    run, params = bound_run(preset(name, **options), threads, dtype)
    rng = np.random.default_rng(1)
    check(run, params, {"x": rng.normal(size=(5, 4, D)).astype(dtype), "lengths": LENGTHS})


def large_net() -> ro.Net:
    net = ro.Net("large")
    x = net.input("x")
    h_all, h_last, c_all, _ = ro.LSTM(net, x, None, None, 96, 160)
    net.outputs(h_all=h_all, h_last=h_last, y=ro.softmax(c_all, axis=-1))
    return net


@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (40, 24)])
def test_threads_do_not_change_results(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(2).normal(size=(*shape, 96)).astype("float32")
    (one, params), (two, _) = bound_run(large_net(), 1), bound_run(large_net(), 2)
    check(two, params, {"x": x})
    for _ in range(3):
        found = one(x=x), two(x=x)
    for name, array in found[0].items():
        np.testing.assert_array_equal(found[1][name], array, err_msg=name)


def around_net() -> ro.Net:
    """Ops around a recurrence: a lookup, views, sums over rows, constants, outputs that are inputs or each other."""
    net = ro.Net("around")
    ids, scale = net.input("ids", "int64"), net.input("scale")
    table = net.parameter("table", (7, D))
    x = ro.gather(table, ids, axis=0)
    h_all, h_last, _, c_last = ro.LSTM(net, x, None, None, D, H)
    rows = ro.reduce_sum(ro.transpose(h_all, perm=[1, 0, 2]), axes=[1], keepdims=0)
    net.outputs(
        h=h_all, backwards=ro.slice(h_all, [-1], [-100], [0], [-1]), both=ro.concat([h_last, c_last], axis=-1),
        rows=rows, total=ro.reduce_mean(rows * scale), scale=scale, again=h_all, count=ids + 1,
    )  # fmt: skip
    return net


def test_ops_around_recurrences() -> None:
    run, params = bound_run(around_net())
    rng = np.random.default_rng(5)
    feeds = {"ids": rng.integers(0, 7, (5, 3)), "scale": np.array(2.0, "float32")}
    check(run, params, feeds)


def test_nothing_is_joined_to_what_is_computed() -> None:
    """What is known joined to an array: no view of that, though no op that runs in kernels as nothing is."""
    net = ro.Net("joined")
    x, w = net.inputs("x", "w")
    net.outputs(y=ro.concat(x @ w, net.constant(np.zeros((0, 4))) * 2.0, axis=0))
    run, x_value = ro.compile(net).bind(w=np.eye(4)), np.arange(12.0).reshape(3, 4)
    for _ in range(4):
        np.testing.assert_array_equal(run(x=x_value)["y"], x_value)


def test_outputs_are_the_callers_own() -> None:
    run, _ = bound_run(around_net())
    feeds = {"ids": np.zeros((5, 3), "int64"), "scale": np.array(2.0, "float32")}
    first, second, third = run(feeds), run(feeds), run(feeds)
    kept = {name: array.copy() for name, array in second.items()}
    for array in (*first.values(), *third.values()):
        array[...] = 5
    run(feeds)
    for name, array in second.items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)
    arrays = [*first.values(), *second.values(), *third.values()]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    assert feeds["scale"] == 2


def test_frames_cut_out_of_a_recording_are_one_native_call(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = bound_run(around_net())
    ids, scale = np.arange(60).reshape(4, 3, 5) % 7, np.array(2.0, "float32")
    wanted = [run(ids=np.ascontiguousarray(frame.T), scale=scale) for frame in ids]
    assert lists_of(run)
    monkeypatch.setattr(run, "_called", None)  # which runs op by op
    for frame, kept in zip(ids, wanted, strict=True):
        for name, array in run(ids=frame.T, scale=scale).items():
            np.testing.assert_array_equal(array, kept[name], err_msg=name)


def test_wrong_feeds_are_named_once_there_is_a_list() -> None:
    run, _ = bound_run(around_net())
    feeds = {"ids": np.zeros((5, 3), "int64"), "scale": np.array(2.0, "float32")}
    for _ in range(3):
        run(feeds)
    assert lists_of(run)
    with pytest.raises(ro.FeedError, match="'scale'"):
        run(ids=feeds["ids"])
    with pytest.raises(ro.FeedError, match=r"'table'.*twice"):
        run(feeds, table=np.zeros((7, D), "float32"))
    with pytest.raises(ro.FeedError, match="no such input"):
        run(feeds, tabel=np.zeros((7, D), "float32"))
    for _ in range(3):
        with pytest.raises(ro.FeedError, match="ids"):
            run(ids=feeds["ids"].astype("float32"), scale=feeds["scale"])
        with pytest.raises(ro.TypeRuleError, match="Gather"):
            run(ids=feeds["ids"] + 7, scale=feeds["scale"])
    np.testing.assert_array_equal(run(feeds)["count"], feeds["ids"] + 1)


def test_many_types_of_feeds_in_turn() -> None:
    run, params = bound_run(preset("GRU"))
    rng = np.random.default_rng(6)
    for steps in (*range(1, 2 * KINDS), 1, 2, 2, 2):
        x = rng.normal(size=(steps, 4, D)).astype("float32")
        for _ in range(1 + steps % 3):
            found = run(x=x, lengths=LENGTHS)
        wanted = ro.compile(run.net, "reference")({**params, "x": x, "lengths": LENGTHS})
        for name, array in found.items():
            np.testing.assert_allclose(array, wanted[name], 1e-5, 1e-6)
    assert len(run._calls._lists) <= KINDS


def test_calls_from_several_threads() -> None:
    run, _ = bound_run(large_net(), 2)
    rng = np.random.default_rng(7)
    feeds = [rng.normal(size=(3, 2, 96)).astype("float32") for _ in range(8)]
    wanted = [run(x=x) for x in feeds]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            for found, right in zip(pool.map(lambda x: run(x=x), feeds), wanted, strict=True):
                for name, array in right.items():
                    np.testing.assert_array_equal(found[name], array)
    assert 1 <= lists_of(run) <= 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore:os.fork")  # JAX's, where other tests of the process have loaded it
def test_forked_children_call() -> None:
    run, _ = bound_run(large_net(), 2)
    x = np.ones((40, 24, 96), "float32")
    wanted = [run(x=x)["h_last"] for _ in range(3)][-1]
    child = os.fork()
    if child == 0:
        os._exit(0 if all(np.array_equal(run(x=x)["h_last"], wanted) for _ in range(3)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def nested_net() -> ro.Net:
    """A cell that holds a recurrence, which Python steps through."""
    inner = ro.Net("inner")
    a, s = inner.inputs("a", "s")
    inner.outputs(s_t=ro.tanh(a + s))
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    s_all, _ = ro.recurrent_net(cell, inner, [("a", ro.unsqueeze(x @ w, [0]))], [("s", h)], {"s": "s_t"})
    cell.outputs(h_t=ro.squeeze(s_all, [0]))
    net = ro.Net("nested")
    xs, h0 = net.inputs("xs", "h0")
    net.parameter("w", (D, D))
    net.outputs(ro.recurrent_net(net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"})[0])
    return net


def test_plans_say_what_answers_a_call() -> None:
    run, _ = bound_run(preset("LSTM"))
    shapes = {"x": (5, 4, D), "lengths": (4,)}
    assert "native call of" in run.plan(shapes, backward=False).describe()
    assert "native call" not in run.plan(shapes).describe()


def test_what_python_steps_through_has_no_list() -> None:
    run, params = bound_run(nested_net())
    feeds = {"xs": np.ones((3, 2, D), "float32"), "h0": np.zeros((2, D), "float32")}
    check(run, params, feeds, native=False)
    kinds = tuple((array.dtype, array.shape) for array in feeds.values())
    assert "stepped from Python" in run._calls._lists[kinds, None, False]
    assert "stepped from Python" in run.plan(feeds, backward=False).describe()
    told = "stepped from Python", "Write the steps of a recurrence inside of a cell as a loop of Python"
    rejects(ro.DeviceError, lambda: run.export_native("nowhere", feeds), *told)


def test_random_numbers_come_from_python() -> None:
    net = ro.Net("dropped")
    x, w = net.input("x"), net.parameter("w", (D, D))
    net.outputs(ro.dropout(x @ w, 0.5))
    run, params = bound_run(net)
    check(run, params, {"x": np.ones((2, D), "float32")})
    drawn = [run(x=np.ones((2, D), "float32"), seed=seed, training=True) for seed in (1, 1, 2)]
    one, same, other = (next(iter(found.values())) for found in drawn)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize("shape", [(5, 3), (7, 1), (8, 1), (31, 1), (128, 1), (200, 3), (1, 4), (300, 2, 2)])
def test_sums_over_all_rows(shape: tuple[int, ...]) -> None:
    net = ro.Net("rows")
    x, i = net.input("x"), net.input("i", "int8")
    net.outputs(ro.reduce_sum(x, axes=[0]), ro.softmax(x, axis=0), ro.reduce_sum(i, axes=[0], keepdims=0))
    rng = np.random.default_rng(1)
    for dtype in ("float32", "float64"):
        run, params = bound_run(net, 2, dtype)
        check(run, params, {"x": rng.normal(size=shape).astype(dtype), "i": rng.integers(-99, 99, shape, "int8")})


def test_sums_of_a_column_are_one_native_call() -> None:
    """Parts of them are added in NumPy's own order (tests/compiler/run/test_added_rows.py)."""
    net = ro.Net("column")
    net.outputs(ro.reduce_sum(net.input("x"), axes=[0]))
    run, params = bound_run(net)
    for rows in (50, 129, 5000):
        check(run, params, {"x": np.random.default_rng(1).normal(size=(rows, 1)).astype("f")})
        assert "one native call" in run.plan(x=(rows, 1), backward=False).calls
