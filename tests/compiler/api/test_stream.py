"""Streams: step by step and in chunks they give what one call gives; resets, rows that come and go, forks, errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import random_arrays
from devices import on_device
from rejection import rejects
from small_runs import same

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")
T, N, D, H = 7, 3, 4, 5
STATES = {"h_out": "h_in", "c_out": "c_in"}
SHAPES = {"h_in": (1, "N", H), "c_in": (1, "N", H)}
X = random_arrays(x=(T, N, D))["x"]


def lstm_run(dtype: str = "float64", **changes: Any) -> ro.Run:
    """An LSTM and scores of each step, states as inputs and outputs, parameters bound."""
    net = ro.Net("keyword")
    x, h_in, c_in = net.inputs("x", "h_in", "c_in")
    h_all, h_last, _, c_last = ro.LSTM(net, x, None, [h_in, c_in], D, H, scope="lstm")
    net.outputs(y=h_all @ net.parameter("w", (H, 2)), h_out=h_last, c_out=c_last)
    return on_device(net).bind(**ro.init_params(net, 0, dtype), **changes)


def lstm_stream(rows: int = N, dtype: str = "float64", **given: Any) -> Any:
    return lstm_run(dtype).stream(STATES, rows=rows, shapes=SHAPES, dtype=dtype, **given)


def whole(x: np.ndarray, states: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The same in one call."""
    start = states or dict.fromkeys(("h_in", "c_in"), np.zeros((1, x.shape[1], H), x.dtype))
    return lstm_run(str(x.dtype))(start, x=x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_and_chunks_are_bit_for_bit_one_call(dtype: str) -> None:
    x = X.astype(dtype)
    wanted = whole(x)
    for ends in ([*range(T + 1)], [0, 2, 2, 3, 7], [0, 7]):
        stream = lstm_stream(dtype=dtype)
        parts = [stream(x=x[begin:end]) for begin, end in pairwise(ends)]
        assert all(part.keys() == {"y"} for part in parts)
        same({"y": np.concatenate([part["y"] for part in parts])}, {"y": wanted["y"]})
        same(dict(stream.states), {"h_in": wanted["h_out"], "c_in": wanted["c_out"]})


def test_an_array_alone_is_for_the_one_input_that_is_left() -> None:
    same(lstm_stream()(X), {"y": whole(X)["y"]})
    same(lstm_stream()({"x": X}), {"y": whole(X)["y"]})
    net = ro.Net("two")
    a, b, s = net.inputs("a", "b", "s")
    net.outputs(s_out=a + b + s)
    stream = on_device(net).stream({"s_out": "s"}, initial={"s": np.zeros(2)})
    rejects(ro.StreamError, lambda: stream(np.ones(2)), "net 'two'", "without a name", "a, b")


def test_a_step_without_a_recurrence() -> None:
    net = ro.Net("cell")
    x, h = net.inputs("x", "h")
    net.outputs(h_out=ro.tanh(x + h), y=h * 2.0)
    stream, h = on_device(net).stream({"h_out": "h"}, rows=2, shapes={"h": ("N", 3)}, dtype="float64"), np.zeros((2, 3))
    for x in random_arrays(x=(4, 2, 3))["x"]:
        np.testing.assert_allclose(stream(x=x)["y"], h * 2, rtol=1e-12)
        h = np.tanh(x + h)
        np.testing.assert_allclose(stream.states["h"], h, rtol=1e-12)


def test_rows_are_reset_by_mask_or_number() -> None:
    start = {"h_in": np.full(H, 0.25), "c_in": random_arrays(c=(1, N, H))["c"]}
    stream = lstm_stream(initial=start)
    stream(X[:4])
    first = {"h_in": np.full((1, N, H), 0.25), "c_in": start["c_in"]}
    stream.reset(np.array([False, True, False]))
    stream.reset(2)
    y = stream(X[4:])["y"]
    assert np.array_equal(y[:, :1], whole(X, first)["y"][4:, :1])
    assert np.array_equal(y[:, 1:], whole(X[4:], first)["y"][:, 1:])
    stream.reset()
    same(dict(stream.states), first)


def test_rows_that_take_no_part_keep_their_states() -> None:
    stream, apart = lstm_stream(), [lstm_stream(1) for _ in range(N)]
    for t, active in enumerate([[True, True, False], [False, True, True], [False, False, False], [True] * 3]):
        x = np.where(np.array(active)[:, None], X[t : t + 1], np.nan)
        y = stream(x, rows=active)["y"]
        for row in np.flatnonzero(active):
            wanted = apart[row](X[t : t + 1, row : row + 1])["y"]
            np.testing.assert_allclose(y[:, row : row + 1], wanted, rtol=1e-12, atol=1e-14)
    for row in range(N):
        np.testing.assert_allclose(stream.states["c_in"][:, row], apart[row].states["c_in"][:, 0], rtol=1e-12)


def test_rows_join_and_leave() -> None:
    stream = lstm_stream(0)
    assert stream.rows == 0
    assert [stream.join() for _ in range(3)] == [0, 1, 2]
    stream(X[:2])
    middle = stream.copy([1]).states
    stream.leave(1)
    assert stream.present.tolist() == [True, False, True]
    assert not stream.states["h_in"][:, 1].any()
    y = stream(np.where([[True], [False], [True]], X[2:4], np.nan))["y"]
    np.testing.assert_array_equal(y[:, ::2], whole(X)["y"][2:4, ::2])
    assert not stream.states["h_in"][:, 1].any()
    assert stream.join(middle) == 1
    assert stream.join({"h_in": np.ones((1, 1, H))}) == 3
    assert np.all(stream.states["h_in"][:, 3] == 1)
    assert not stream.states["c_in"][:, 3].any()
    y = stream(np.concatenate([X[4:5, :1], X[2:3, 1:2], X[4:5, 2:], X[:1, :1]], 1))["y"]
    np.testing.assert_array_equal(y[0, :3], [whole(X)["y"][t, row] for t, row in ((4, 0), (2, 1), (4, 2))])
    stream.leave(stream.present)
    assert not stream.present.any()
    assert not any(array.any() for array in stream.states.values())


def test_a_row_that_joins_begins_with_initial_states() -> None:
    stream = lstm_stream(1, initial={"h_in": np.full(H, 0.5)})
    stream.load({"h_in": np.full((1, 1, H), 7.0)})
    assert stream.join() == 1
    assert stream.states["h_in"][0, :, 0].tolist() == [7.0, 0.5]
    stream.leave([True, False])
    stream.load({"h_in": np.full(H, 9.0)})  # of the free place, too
    assert stream.join() == 0
    assert stream.states["h_in"][0, :, 0].tolist() == [0.5, 9.0]
    told_apart = lstm_stream(2, initial={"h_in": random_arrays(h=(1, 2, H))["h"]})
    rejects(ro.StreamError, told_apart.join, "h_in", "float64[1, 3, 5]", "float64[1, 2, 5]")
    assert told_apart.rows == 2


def test_copies_go_their_own_ways() -> None:
    stream = lstm_stream()
    stream(X[:3])
    fork, beams = stream.copy(), stream.copy([2, 0, 2, 2])
    fork(X[:1])
    np.testing.assert_array_equal(stream(X[3:])["y"], whole(X)["y"][3:])
    np.testing.assert_array_equal(beams(X[3:, [2, 0, 2, 2]])["y"], whole(X)["y"][3:, [2, 0, 2, 2]])
    fork.leave(1)
    assert stream.present.all()
    assert fork.copy([1, 0]).present.tolist() == [False, True]
    told_apart = lstm_stream(2, initial={"h_in": np.arange(2.0 * H).reshape(1, 2, H)}).copy(np.array([1, 0]))
    told_apart.reset()
    assert told_apart.states["h_in"][0, :, 0].tolist() == [H, 0]


def test_states_are_saved_and_loaded() -> None:
    stream, other = lstm_stream(), lstm_stream()
    stream(X[:3])
    saved = dict(stream.states)
    bytes_of = {name: array.tobytes() for name, array in saved.items()}
    wanted = stream(X[3:])["y"]
    assert {name: array.tobytes() for name, array in saved.items()} == bytes_of
    other.load(saved)
    np.testing.assert_array_equal(other(X[3:])["y"], wanted)
    other.load({"h_in": np.zeros(H)}, rows=1)
    assert [bool(row.any()) for row in other.states["h_in"][0]] == [True, False, True]
    with pytest.raises(ValueError, match="read-only"):
        saved["h_in"][...] = 0
    with pytest.raises(TypeError):
        stream.states["h_in"] = saved["h_in"]


def test_what_the_caller_does_to_outputs_reaches_no_state() -> None:
    net = ro.Net("views")
    x, h = net.inputs("x", "h")
    cell = ro.Net("cell")
    x_t, h_prev = cell.inputs("x_t", "h_prev")
    cell.outputs(h_t=ro.tanh(x_t + h_prev))
    h_all, h_last = ro.recurrent_net(net, cell, [("x_t", x)], [("h_prev", h)], {"h_prev": "h_t"})
    net.outputs(y=h_all, h_out=h_last, last=h_last)  # `h_out` is a view of `y`
    given = np.full((1, 2, 3), 0.5)
    stream = on_device(net).stream({"h_out": "h"}, initial={"h": given})
    given[...] = 9
    assert np.all(stream.states["h"] == 0.5)
    out = stream(np.ones((9, 2, 3)))
    before = stream.states["h"].tobytes()
    assert before == out["last"].tobytes() == out["y"][-1].tobytes()
    for array in out.values():
        array[...] = 9
    assert stream.states["h"].tobytes() == before


def test_states_of_other_dtypes_and_states_without_rows() -> None:
    net = ro.Net("counting")
    x, total = net.input("x", "int32"), net.input("total", "int32")
    count = net.input("count", "int64", shape=())
    net.outputs(total_out=x + total, count_out=count + 1)
    states, shapes = {"total_out": "total", "count_out": "count"}, {"total": ("N",), "count": ()}
    stream = on_device(net).stream(states, rows=2, shapes=shapes)
    for _ in range(3):
        assert stream(np.array([1, 2], "int32"), rows=[True, False]) == {}
    assert stream.states["total"].tolist() == [3, 0]
    assert stream.states["count"] == 3
    stream.reset(0)
    stream.join({name: np.full((), 5, array.dtype) for name, array in stream.states.items()})
    assert (stream.states["total"].tolist(), int(stream.states["count"])) == ([0, 0, 5], 3)
    stream.reset()
    assert stream.states["count"] == 0


def test_the_axis_of_rows() -> None:
    net = ro.Net("declared")
    h, x = net.input("h", shape=(2, 4, 3)), net.input("x")
    net.outputs(h_out=h + x)
    run = on_device(net)
    stream = run.stream({"h_out": "h"}, rows=4)
    stream(np.ones((2, 4, 3), "float32"), rows=2)
    assert stream.states["h"].any(axis=(0, 2)).tolist() == [False, False, True, False]
    rejects(ro.StreamError, stream.join, "blob 'h'", "fixes the number of rows", "wanted 4", "got 5")
    rejects(ro.StreamError, lambda: stream.copy([0]), "blob 'h'", "fixes the number of rows")
    assert stream.copy([3, 2, 1, 0]).states["h"].any(axis=(0, 2)).tolist() == [False, True, False, False]
    rejects(ro.StreamError, lambda: run.stream({"h_out": "h"}, rows=5), "blob 'h'", "no axis", "[2, 4, 3]")
    rejects(ro.StreamError, lambda: run.stream({"h_out": "h"}, shapes={"h": (2, "N", 3)}), "declared", "(2, 4, 3)")
    one = run.stream({"h_out": "h"})  # all of it is one stream
    one(np.ones((2, 4, 3), "float32"))
    rejects(ro.StreamError, lambda: one.reset(0), "axis of rows", "rows=")
    rejects(ro.StreamError, one.join, "axis of rows")
    free = lstm_run()
    start = {name: np.zeros((1, 1, H)) for name in SHAPES}
    rejects(
        ro.StreamError, lambda: free.stream(STATES, rows=1, initial=start), "blob 'h_in'", "several axes", "(1, 'N'"
    )


def opened(**changes: Any) -> Callable[[], Any]:
    arguments = {"states": STATES, "rows": N, "shapes": SHAPES, "initial": None, **changes}
    return lambda: lstm_run().stream(**arguments)


def test_a_state_of_a_recurrence_that_goes_backwards_is_refused(tmp_path: Path) -> None:
    net = ro.Net("both")
    x, ahead, back = net.inputs("x", "ahead", "back")
    _, (_, first) = ro.cells.GRUCell(D, H, name="f").apply_over_sequence(net, x, initial_states=[ahead])
    _, (_, second) = ro.cells.GRUCell(D, H, name="r").apply_over_sequence(
        net, x, initial_states=[back * 1.0], reverse=True
    )
    net.outputs(first=first, second=second)
    run = ro.compile(net).bind(**ro.init_params(net, 0))
    shapes = {"ahead": (1, "N", H), "back": (1, "N", H)}
    assert run.stream({"first": "ahead"}, rows=1, shapes=shapes)
    words = "net 'both'", "blob 'back'", "RecurrentNetwork -> r/", "reversed recurrence"
    rejects(ro.StreamError, lambda: run.stream({"second": "back"}, rows=1, shapes=shapes), *words)
    sizes = {"x": (1, 1, D), "ahead": (1, 1, H), "back": (1, 1, H)}
    rejects(ro.FeedError, lambda: run.export_native(tmp_path, states={"second": "back"}, **sizes), *words)


def test_what_no_stream_can_be_opened_with() -> None:
    rejects(ro.StreamError, opened(states={}), "net 'keyword'", "states=")
    rejects(ro.StreamError, opened(states=["h_out"]), "states=")
    rejects(ro.StreamError, opened(states={"h": "h_in"}), "blob 'h'", "no output", "y, h_out, c_out")
    rejects(ro.StreamError, opened(states={"h_out": "h"}), "blob 'h'", "no input", "x, h_in, c_in")
    rejects(ro.StreamError, opened(states={"h_out": "h_in", "c_out": "h_in"}), "blob 'h_in'", "two outputs")
    rejects(ro.StreamError, opened(states={"h_out": "lstm/i2h_w"}), "blob 'lstm/i2h_w'", "is bound")
    rejects(ro.StreamError, opened(shapes=None), "blob 'h_in'", "not known", "shapes=")
    rejects(ro.StreamError, opened(shapes=(1, "N", H)), "shapes=")
    rejects(ro.StreamError, opened(shapes={"h": (1,)}), "blob 'h'", "shapes=")
    rejects(ro.StreamError, opened(shapes={**SHAPES, "h_in": (None, "N", H)}), "blob 'h_in'", "several axes")
    for shape in ((1, "N", -1), (1, True, H), (1, 2.0, H), 5, "N"):
        rejects(ro.StreamError, opened(shapes={**SHAPES, "h_in": shape}), "blob 'h_in'", "not a shape")
    rejects(ro.StreamError, opened(shapes={"h_in": (1, 3, H), "c_in": (1, 3, H)}), "rows=")
    for rows in (-1, True, 1.0, "2"):
        rejects(ro.StreamError, opened(rows=rows), "rows")
    rejects(ro.StreamError, opened(initial={"x": np.zeros(H)}), "blob 'x'", "initial=")
    rejects(ro.StreamError, opened(initial={"h_in": np.zeros((1, 2, H))}), "blob 'h_in'", "float64[1, 3, 5]")
    rejects(ro.StreamError, opened(initial={"h_in": np.zeros((1, 1, N, H))}), "blob 'h_in'", "does not fit")
    rejects(ro.FeedError, opened(initial={"h_in": 0.0}), "blob 'h_in'", "not an array")
    rejects(ro.FeedError, opened(initial={"h_in": np.zeros(H, "float32")}), "two dtypes")
    rejects(ro.FeedError, opened(dtype="float32"), "dtype")
    net = ro.Net("mixed")
    x, n = net.input("x"), net.input("n", "int32")
    net.outputs(x_out=x + ro.cast(n, "float"))
    trial = lambda: on_device(net).stream({"x_out": "n"}, shapes={"n": ("N",)})  # noqa: E731
    rejects(ro.StreamError, trial, "blob 'n'", "int32", "float32", "'x_out'")


def test_a_call_that_fails_leaves_states_as_they_were() -> None:
    stream = lstm_stream()
    stream(X[:2])
    before = stream.states
    rejects(ro.FeedError, stream, "blob 'x'", "not fed")
    rejects(ro.FeedError, lambda: stream(x=X, z=X), "blob 'z'", "no such input")
    rejects(ro.FeedError, lambda: stream(X, training=True), "blob 'training'")
    rejects(ro.FeedError, lambda: stream(X.astype("float32")), "float32")
    rejects(ro.StreamError, lambda: stream({"h_in": X}, x=X), "blob 'h_in'", "load")
    with pytest.raises(ro.RnnopsError, match="net 'keyword'"):
        stream(X[:, :2])
    for rows in ([True], [0, 1], 3, -1, np.array([0, 1, 1]), np.array([1.0, 0, 0]), "all", True):
        for use in (lambda rows: stream(X, rows=rows), stream.reset, stream.leave):
            rejects(ro.StreamError, lambda use=use, rows=rows: use(rows), "net 'keyword'", "bool[3]")
    for rows in ([3], [True], 1, ["a"], np.array([0.0])):
        rejects(ro.StreamError, lambda rows=rows: stream.copy(rows), "from 0 to 2")
    rejects(ro.StreamError, lambda: stream.load({"h": X}), "blob 'h'", "h_in, c_in")
    rejects(ro.StreamError, lambda: stream.load([X]), "dict")
    rejects(ro.StreamError, lambda: stream.load({"h_in": X, "c_in": np.zeros(H)}), "blob 'h_in'", "float64[7, 3, 4]")
    rejects(ro.StreamError, lambda: stream.join({"c_in": np.zeros(H), "h_in": np.zeros(H, "float32")}), "float32[5]")
    assert dict(stream.states) == dict(before)
    assert stream.rows == N
    stream.leave(0)
    rejects(ro.StreamError, lambda: stream.leave(0), "row 0", "not taken")
    rejects(ro.StreamError, lambda: stream(X, rows=[True, True, False]), "row 0", "not taken")


def test_an_output_that_does_not_fit_its_input() -> None:
    net = ro.Net("grows")
    x, h = net.inputs("x", "h")
    net.outputs(h_out=x + h)
    stream = on_device(net).stream({"h_out": "h"}, shapes={"h": ("N", 2)}, dtype="float64")
    rejects(ro.StreamError, lambda: stream(np.ones((3, 2))), "blob 'h'", "'h_out'", "float64[1, 2]", "float64[3, 2]")
    assert not stream.states["h"].any()
    assert stream(np.ones((1, 2))) == {}


def test_two_threads_on_one_stream_are_an_error() -> None:
    stream, inside, goes_on = lstm_stream(), threading.Event(), threading.Event()
    run = stream.run

    def slow(*feeds: Any, **options: Any) -> Any:
        inside.set()
        assert goes_on.wait(60)
        return run(*feeds, **options)

    stream.run = slow
    slow.net, slow.device = run.net, run.device  # type: ignore[attr-defined]
    thread = threading.Thread(target=stream, args=(X,))
    thread.start()
    assert inside.wait(60)
    for use in (lambda: stream(X), stream.reset, stream.copy, stream.join, lambda: stream.leave(0)):
        rejects(ro.StreamError, use, "net 'keyword'", "two threads")
    rejects(ro.StreamError, lambda: stream.load({}), "two threads")
    assert not stream.states["h_in"].any()
    goes_on.set()
    thread.join()
    np.testing.assert_array_equal(stream.states["h_in"], whole(X)["h_out"])


def test_random_ops_draw_by_the_seed_of_each_call_and_dropout_rests() -> None:
    net = ro.Net("noisy")
    x, h = net.inputs("x", "h")
    net.outputs(h_out=ro.dropout(x + h, 0.5), y=ro.random_uniform_like(x))
    stream = on_device(net).stream({"h_out": "h"}, shapes={"h": ("N", 3)}, dtype="float64")
    drawn = [stream(np.ones((1, 3)), seed=seed)["y"].tobytes() for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert np.all(stream.states["h"] == 3)
    rejects(ro.FeedError, lambda: stream(np.ones((1, 3))), "no seed")
