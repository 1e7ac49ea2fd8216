"""Nets for whole sequences, called in chunks: all frames together are what one call gives, and errors name the op."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from by_hand import random_arrays
from devices import chosen, on_device
from each import check_each
from native_programs import exported, needs_compiler
from rejection import rejects
from streamed_nets import NAMED, OPS, gtcrn, random_net, tcn, two_convolutions

import rnnops as ro

Shapes = Mapping[str, Sequence[Any]]
X = {"x": ("N", 3, "T")}
SPECTRUM = {"x": ("N", 2, "T", 8)}


def params_of(net: ro.Net, dtype: str = "float64") -> dict[str, np.ndarray]:
    return ro.init_params(net, seed=0, dtype=dtype)


def feeds_of(shapes: Shapes, frames: int, rows: int = 2) -> dict[str, np.ndarray]:
    sizes = {name: tuple({"N": rows, "T": frames}.get(size, size) for size in dims) for name, dims in shapes.items()}
    return random_arrays(**sizes)


def cut(feeds: Mapping[str, np.ndarray], shapes: Shapes, begin: int, end: int) -> dict[str, np.ndarray]:
    places = {name: tuple(slice(begin, end) if size == "T" else slice(None) for size in shapes[name]) for name in feeds}
    return {name: array[places[name]] for name, array in feeds.items()}


def check(
    net: ro.Net, shapes: Shapes = X, frames: int = 23, chunks: int = 1, tail: int = 0, atol: float = 1e-11, **given: Any
) -> Any:
    """A stream in chunks, the last of `tail` frames, beside one call."""
    run = on_device(net).bind(**params_of(net))
    rows = given.pop("rows", 2)
    feeds = feeds_of(shapes, frames, rows)
    stream = run.stream(shapes=shapes, steps="T", rows=rows, dtype="float64", **given)
    size, whole = stream.chunk * chunks, run(feeds)
    for _ in range(2):  # `finish` begins anew
        done = (frames - tail) // size * size
        parts = [stream(cut(feeds, shapes, begin, begin + size)) for begin in range(0, done, size)]
        last = cut(feeds, shapes, done, frames)
        made = stream.joined([*parts, stream.finish(last) if done < frames else stream.finish()])
        for name, array in whole.items():
            np.testing.assert_allclose(made[name], array, atol=atol, err_msg=f"{net.name}, {name}")
    return stream


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("chunks", [1, 3])
def test_a_causal_convolutional_net(chunks: int) -> None:
    stream = check(tcn(), chunks=chunks)
    assert stream.delay == {"y": 0}
    assert not any(array.dtype == np.int64 for array in stream.states.values())  # no counters where nothing waits


@pytest.mark.parametrize(("causal", "delay"), [(True, 0), (False, 6)])
def test_a_net_of_convolutions_and_recurrences_over_both_axes(causal: bool, delay: int) -> None:
    for chunks in (1, 2):
        stream = check(gtcrn(causal), SPECTRUM, frames=9, chunks=chunks)
    assert stream.delay == {"y": delay, "mask": delay}
    check(gtcrn(causal), SPECTRUM, frames=2)  # shorter than what it looks ahead
    if causal:
        with chosen("cpu"):
            check(gtcrn(causal), SPECTRUM, frames=9)


def test_each_op() -> None:
    def check_op(name: str) -> None:
        for chunks, tail in ((1, 0), (2, 1)):
            check(NAMED[name](), chunks=chunks, tail=tail)

    check_each(OPS, check_op)


def test_pads_around_no_frame() -> None:
    net = ro.Net("none_left")
    net.outputs(y=ro.pad(ro.tanh(net.input("x")[:, :, 1::2]), [2, 2], 1.0, axes=[2]))
    for frames in (1, 2, 5):
        check(net, frames=frames)


ENDED: dict[str, tuple[Callable[[ro.Blob], ro.Blob], int]] = {  # and the least number of frames
    "a window": (lambda x: ro.max_pool(x, [3], strides=[2]), 3),
    "a window beside a cut": (lambda x: ro.concat(ro.max_pool(x, [3]), x[:, :, 2:], axis=1), 3),
    "a cut beside a window": (lambda x: ro.concat(x[:, :, 2:], ro.max_pool(x, [3]), axis=1), 3),
    "a window, padded": (lambda x: ro.pad(ro.max_pool(x, [4]), [1, 1], 1.0, axes=[2]), 4),
    "a cut, padded": (lambda x: ro.pad(x[:, :, 3:], [2, 2], 1.0, axes=[2]), 3),
    "a cut of the end, padded": (lambda x: ro.pad(x[:, :, :-3], [2, 0], 1.0, axes=[2]), 3),
    "cuts": (lambda x: x[:, :, 2:-3], 1),
}


def test_a_stream_that_ends_within_a_window_or_a_cut() -> None:
    def check_ended(name: str) -> None:
        build, least = ENDED[name]
        net = ro.Net("ended")
        net.outputs(y=build(net.input("x")))
        check(net, frames=least)
        stream = on_device(net).stream(shapes=X, steps="T", rows=2, dtype="float64")
        for tail in range(least if least > 1 else 0):
            words = ("net 'ended', blob 'x': the stream is shorter than", f"wanted {least} frames or more; got {tail}")
            rejects(ro.StreamError, lambda tail=tail: stream.finish(feeds_of(X, tail)), *words)

    check_each(ENDED, check_ended)


def test_rows_that_end_within_a_window_are_told_apart() -> None:
    net = ro.Net("rows")
    net.outputs(y=ro.max_pool(net.input("x"), [3]))
    stream = on_device(net).stream(shapes=X, steps="T", rows=2, dtype="float64")
    x = feeds_of(X, 5)["x"]
    stream(x[..., :1], rows=0)
    stream(x[..., 1:2])
    rejects(ro.StreamError, lambda: stream.finish(x[..., 2:3]), "wanted 3 frames or more; got 2")
    assert stream.states["stream/position"].tolist() == [2, 1]  # an error changes nothing
    assert stream.finish(x[..., 2:3], rows=0)["y"].shape == (2, 3, 1)
    rejects(ro.StreamError, lambda: stream.finish(x[..., :0], rows=1), "got 1")


def runs_with(net: ro.Net, frames: int) -> bool:
    """False where windows are larger than all frames that are left."""
    try:
        on_device(net).bind(**params_of(net))(feeds_of(X, frames))
    except ro.TypeRuleError:
        return False
    return True


def test_random_nets() -> None:
    def check_random(seed: int) -> None:
        net = random_net(seed)
        if runs_with(net, 18 + seed % 13):
            check(net, frames=18 + seed % 13, chunks=1 + seed % 2, tail=seed % 3, atol=1e-9)

    check_each(range(60), check_random)


def test_rows_begin_and_end_by_themselves() -> None:
    net, frames = two_convolutions(), 9
    run = on_device(net).bind(**params_of(net))
    feeds = feeds_of(X, frames, 3)["x"]
    whole = run(x=feeds)["y"]
    stream = run.stream(shapes=X, steps="T", rows=2, dtype="float64")
    delay = stream.delay["y"]
    made: dict[int, list[np.ndarray]] = {0: [], 1: [], 2: []}

    def step(place_of: Mapping[int, int], at: Mapping[int, int]) -> None:
        """One frame of each row: row -> its place and its frame."""
        x = np.full((stream.rows, 3, 1), np.nan)
        for row, place in place_of.items():
            x[place, :, 0] = feeds[row, :, at[row]]
        y = stream(np.nan_to_num(x), rows=np.isin(np.arange(stream.rows), [*place_of.values()]))["y"]
        for row, place in place_of.items():
            made[row].append(y[place])

    for t in range(4):
        step({0: 0, 1: 1}, {0: t, 1: t})
    made[0].clear()
    stream.reset(0)  # row 0 begins anew
    for t in range(frames):
        step({0: 0}, {0: t})
    place = stream.join()
    for t in range(4, frames):
        step({1: 1, 2: place}, {1: t, 2: t - 4})
    for row, at in ((0, 0), (1, 1)):
        made[row].append(stream.finish(rows=at)["y"][at])
        np.testing.assert_allclose(np.concatenate(made[row], -1)[:, delay:], whole[row], atol=1e-12)
    for t in range(5, frames):
        step({2: place}, {2: t})
    made[2].append(stream.finish(rows=place)["y"][place])
    np.testing.assert_allclose(np.concatenate(made[2], -1)[:, delay:], whole[2], atol=1e-12)


def test_states_are_saved_and_go_on() -> None:
    net = two_convolutions()
    run = on_device(net).bind(**params_of(net))
    x = feeds_of(X, 8)["x"]
    stream, other = (run.stream(shapes=X, steps="T", rows=2, dtype="float64") for _ in range(2))
    parts = [stream(x[..., :3])]
    other.load(dict(stream.states))
    parts += [other(x[..., 3:7]), other.copy().finish(x[..., 7:])]
    np.testing.assert_allclose(other.joined(parts)["y"], run(x=x)["y"], atol=1e-12)


def test_states_that_the_net_hands_out() -> None:
    net = ro.Net("handed out")
    x, h = net.inputs("x", "h")
    seen = ro.conv(x, net.parameter("w", (4, 3, 3)), pads=[1, 1])
    h_all, h_last = ro.GRU(net, ro.transpose(seen, [2, 0, 1]), None, [h], 4, 5)
    net.outputs(y=h_all, h_out=h_last)
    run = on_device(net).bind(**params_of(net))
    feeds = feeds_of({"x": ("N", 3, "T"), "h": (1, "N", 5)}, 7)
    shapes = {**X, "h": (1, "N", 5)}
    stream = run.stream({"h_out": "h"}, shapes=shapes, steps="T", rows=2, dtype="float64", initial={"h": feeds["h"]})
    assert "h" in stream.states
    parts = [stream(feeds["x"][..., t : t + 1]) for t in range(7)]
    np.testing.assert_allclose(stream.joined([*parts, stream.finish()])["y"], run(feeds)["y"], atol=1e-12)


def test_shapes_that_inputs_declare_and_no_rows() -> None:
    net = ro.Net("declared")
    x = net.input("x", shape=(5, 3))
    net.outputs(y=x[1:] * 2.0)
    run = on_device(net)
    rejects(
        ro.StreamError, lambda: run.stream(steps="T", shapes={"x": (5, 3)}), "blob 'x'", "no input has an axis", "'T'"
    )
    stream = run.stream(steps="T", shapes={"x": ("T", 3)}, dtype="float64")
    x = random_arrays(x=(5, 3))["x"]
    np.testing.assert_array_equal(stream.joined([stream(x[:2]), stream(x[2:]), stream.finish()])["y"], x[1:] * 2.0)


def refused(build: Callable[[ro.Net, ro.Blob], ro.Blob], shapes: Shapes = X) -> Callable[[], Any]:
    net = ro.Net("refused")
    net.outputs(y=build(net, net.input("x")))
    given = {**shapes, **{spec.name: spec.shape for spec in net.parameters}}
    return lambda: ro.streamed_net(net, "T", given)


def positions(net: ro.Net, x: ro.Blob) -> ro.Blob:
    size = ro.squeeze(ro.shape(x)[2:3], [0])
    return x * ro.cast(ro.range(net.constant(0), size, net.constant(1)), "float")


def backwards(net: ro.Net, x: ro.Blob) -> ro.Blob:
    cell = ro.Net("cell")
    x_t, h = cell.inputs("x_t", "h")
    cell.outputs(h_t=ro.tanh(x_t + h))
    sequence = ro.transpose(x, [2, 0, 1])
    return ro.recurrent_net(
        net, cell, [("x_t", sequence)], [("h", net.constant(np.zeros(3)))], {"h": "h_t"}, reverse=True
    )[0]


def earlier(net: ro.Net, x: ro.Blob, **seen: int) -> ro.Blob:
    """A recurrence that reads steps of its state before the last one."""
    cell = ro.Net("cell")
    x_t, h = cell.inputs("x_t", "h")
    cell.outputs(h_t=ro.tanh(x_t + (h if "offset" in seen else ro.reduce_sum(h, [0], keepdims=0))))
    first, links = net.constant(np.ones((3, 2, 3))), {"h": ro.Link("h_t", **seen)}
    return ro.recurrent_net(net, cell, [("x_t", ro.transpose(x, [2, 0, 1]))], [("h", first)], links)[0]


def cut_short(net: ro.Net, x: ro.Blob, **options: Any) -> ro.Blob:
    """A recurrence whose steps depend on their number."""
    cell = ro.cell(lambda x_t, h: {"h": ro.tanh(x_t + h)})
    return ro.scan(cell, ro.transpose(x, [2, 0, 1]), h=np.zeros(3), **options)[1]["h"]


def at_the_end(net: ro.Net, x: ro.Blob) -> ro.Blob:
    h_all, h_last = ro.GRU(net, ro.transpose(x, [2, 0, 1]), None, None, 3, 3)
    return h_all + ro.tanh(h_last)


def filled_up(net: ro.Net, x: ro.Blob) -> ro.Blob:
    """Windows of four over frames that are filled up to a multiple of four."""
    more = ro.mod(net.constant(np.zeros(1, "int64"), "int64") - ro.shape(x)[2:3], net.constant(np.array([4]), "int64"))
    pads = ro.concat(net.constant(np.zeros(5, "int64"), "int64"), more, axis=0)
    return ro.max_pool(net.append("Pad", [x, pads], {})[0], [4], strides=[4])


REFUSED: dict[str, tuple[Callable[[ro.Net, ro.Blob], ro.Blob], str, str]] = {
    "a sum": (lambda net, x: x - ro.reduce_mean(x, [2]), "ReduceMean", "folds all frames"),
    "softmax": (lambda net, x: ro.softmax(x, axis=2), "Softmax", "folds all frames"),
    "cumsum": (lambda net, x: ro.cumsum(x, 2), "CumSum", ""),
    "attention": (lambda net, x: ro.transpose(x, [0, 2, 1]) @ x, "MatMul", "along different axes"),
    "context": (lambda net, x: x @ ro.transpose(x, [0, 2, 1]), "MatMul", "sums over frames"),
    "the last frame": (lambda net, x: ro.gather(x, 0, axis=2), "Gather", "looks up single frames"),
    "the last frames": (lambda net, x: x[:, :, -2:], "Slice", "by their total number"),
    "the first frames": (lambda net, x: x[:, :, :2], "Slice", "by their total number"),
    "the first hundred": (lambda net, x: x[:, :, :100], "Slice", "by their total number"),
    "the last hundred": (lambda net, x: x[:, :, -100:], "Slice", "by their total number"),
    "a multiple of frames": (filled_up, "Pad", "by their total number"),
    "strides over the same": (
        lambda net, x: ro.max_pool(x, [3], strides=[2], auto_pad="SAME_UPPER"),
        "MaxPool",
        "its pads depend",
    ),
    "windows over merged frames": (
        lambda net, x: ro.max_pool(ro.reshape(ro.transpose(x, [0, 2, 1]), [0, 1, -1]), [3], strides=[3]),
        "",
        "merged",
    ),
    "a cut of merged frames": (
        lambda net, x: ro.reshape(ro.reshape(ro.transpose(x, [0, 2, 1]), [0, 1, -1])[:, :, 3:], [0, -1, 3]),
        "Slice",
        "merged with another axis",
    ),
    "reverse order": (lambda net, x: x[:, :, ::-1], "Slice", "reverse order"),
    "reflected": (lambda net, x: ro.pad(x, [1, 1], mode="reflect", axes=[2]), "Pad", "'reflect'"),
    "the mean": (lambda net, x: x * (1.0 / ro.cast(ro.shape(x)[2:3], "float")), "", "computes with the number"),
    "positions": (positions, "", "computes with the number"),
    "backwards": (backwards, "RecurrentNetwork", "backwards"),
    "a window of states": (lambda net, x: earlier(net, x, window=3), "RecurrentNetwork", "before the last one"),
    "the oldest state": (lambda net, x: earlier(net, x, offset=0), "RecurrentNetwork", "before the last one"),
    "the state before": (lambda net, x: earlier(net, x, offset=1), "RecurrentNetwork", "before the last one"),
    "lengths": (lambda net, x: cut_short(net, x, lengths=np.array([3, 2], "int32")), "RecurrentNetwork", "lengths="),
    "truncate": (lambda net, x: cut_short(net, x, truncate=2), "RecurrentNetwork", "truncate="),
    "frames from 20 000 on": (lambda net, x: x[:, :, 20_000:], "Slice", "by their total number"),
    "a table": (lambda net, x: x + ro.slice(net.parameter("p", (99999,)), 0, ro.shape(x)[2:3], [0]), "Add", "number"),
    "context of the end": (at_the_end, "Add", "known only at the end"),
    "twice": (lambda net, x: ro.concat(x, x, axis=2), "Concat", "joins frames"),
    "norm": (lambda net, x: ro.global_max_pool(x) + x, "GlobalMaxPool", "folds all frames"),
    "short means": (lambda net, x: ro.average_pool(x, [3], pads=[1, 1]), "AveragePool", "count_include_pad=1"),
    "spread": (lambda net, x: ro.reshape(x, [0, -1, 2, 3]), "Reshape", "several axes"),
    "groups": (lambda net, x: ro.reshape(x, [0, 3, -1, 2]), "Reshape", "several axes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_all_frames_is_refused(name: str) -> None:
    build, op, problem = REFUSED[name]
    rejects(ro.StreamError, refused(build), "net 'refused'", f"op '{op}", problem)


def test_shapes_and_chunks_that_do_not_fit() -> None:
    net = ro.Net("strided")
    net.outputs(y=ro.max_pool(net.input("x"), [2], strides=[2]))
    run = on_device(net)
    rejects(
        ro.StreamError, lambda: run.stream(steps="T"), "blob 'x'", "shape of an input is not known", "('N', 3, 'T')"
    )
    rejects(
        ro.StreamError,
        lambda: run.stream(steps="T", shapes={"x": ("N", "F", "T")}),
        "blob 'x'",
        "several names",
        "F, N",
    )
    rejects(ro.StreamError, lambda: run.stream(steps="T", shapes=("N", 3, "T")), "shapes= is not a dict")
    rejects(ro.StreamError, lambda: run.stream(steps="T", shapes={"z": (1,)}), "blob 'z'", "names no input")
    rejects(ro.StreamError, lambda: ro.streamed_net(net, "T", {"x": (1, 3, "T")}, {"y": "h"}), "blob 'h'")
    rejects(ro.StreamError, lambda: run.stream(shapes={"x": (1, 3, "T")}), "states=")
    stream = run.stream(steps="T", shapes={"x": (1, 3, "T")}, dtype="float64")
    assert stream.chunk == 2
    rejects(
        ro.StreamError,
        lambda: stream(np.ones((1, 3, 3))),
        "wrong number of frames",
        "a multiple of 2",
        "got 3",
        "finish",
    )
    rejects(ro.StreamError, lambda: stream(np.ones((1, 3, 0))), "wrong number of frames")
    rejects(ro.FeedError, lambda: stream(z=np.ones((1, 3, 2))), "blob 'z'")
    assert stream.finish(np.ones((1, 3, 5)))["y"].shape == (1, 3, 2)
    plain = run.stream({"y": "x"}, shapes={"x": (1, 3, 2)})
    assert plain.delay == {}
    rejects(ro.StreamError, plain.finish, "opened without steps=")
    net = ro.Net("two")
    a, b = net.inputs("a", "b")
    net.outputs(y=a + b)
    two = on_device(net).stream(steps="T", shapes={"a": ("T", 2), "b": ("T", 2)}, dtype="float64")
    for feeds in ({"a": np.ones((2, 2)), "b": np.ones((1, 2))}, {"a": np.ones((2, 2))}):
        wrong = ("different numbers of frames", f"2 of 'a', {len(feeds) - 1} of 'b'")
        rejects(ro.StreamError, lambda feeds=feeds: two(feeds), *wrong)
        rejects(ro.StreamError, lambda feeds=feeds: two.finish(feeds), *wrong)


def test_names_of_sizes_and_outputs() -> None:
    net = ro.Net("named")
    net.outputs(y=ro.max_pool(net.input("x"), [2]))
    x = random_arrays(x=(2, 3, 7))["x"]
    stream = on_device(net).stream(steps="N", shapes={"x": ("rows", 3, "N")}, rows=2, dtype="float64")
    parts = [stream(x[..., :4]), stream(x[..., 4:]), stream.finish()]
    np.testing.assert_array_equal(stream.joined(parts)["y"], on_device(net)(x=x)["y"])
    for build in (
        lambda x: ro.reshape(ro.transpose(x, [0, 2, 1]), [-1, 3]),
        lambda x: ro.shape(x),
        lambda x: ro.expand(x.net.constant(1.0), ro.shape(x)),
    ):
        net = ro.Net("merged")
        net.outputs(y=build(net.input("x")))
        rejects(ro.StreamError, lambda net=net: ro.streamed_net(net, "T", X), "number of frames, or has frames merged")


def test_rows_that_are_mixed_are_refused() -> None:
    net = ro.Net("mixed")
    net.outputs(y=ro.max_pool(net.input("x") - ro.reduce_mean(net.input("y"), [0]), [3], pads=[2, 0]))
    shapes = {"x": ("N", 3, "T"), "y": ("N", 3, "T")}
    ro.streamed_net(net, "T", shapes)  # the other operand has rows
    net = ro.Net("mixed")
    net.outputs(y=ro.max_pool(ro.reduce_mean(net.input("x"), [0]), [3], pads=[2, 0]))
    rejects(ro.StreamError, lambda: ro.streamed_net(net, "T", X), "op 'MaxPool", "rows are mixed")


def in_c(streamed: ro.StreamedNet, params: Mapping[str, Any], frames: int, folder: Path, **options: Any) -> Any:
    """A streamed net of one row as a program, for calls of so many frames."""
    sizes = {n: tuple({"N": 1, "T": frames}.get(one, one) for one in dims) for n, dims in streamed.shapes.items()}
    run = ro.compile(streamed.net, threads=1).bind(**params)
    return exported(
        run, folder, {name: sizes[name] for name in streamed.net.input_names if name not in params}, **options
    )


@needs_compiler
@pytest.mark.parametrize("build", [tcn, two_convolutions])
def test_a_streamed_net_in_c(build: Callable[[], ro.Net], tmp_path: Path) -> None:
    net, frames = build(), 12
    params = params_of(net, "float32")
    streamed = ro.streamed_net(net, "T", {**X, **{name: array.shape for name, array in params.items()}})
    x = feeds_of(X, frames, 1)["x"].astype("float32")
    stream = ro.compile(net, threads=1).bind(**params).stream(shapes=X, steps="T", rows=1)
    delay = stream.delay["y"]
    parts = [stream(x[..., t : t + 1])["y"] for t in range(frames)]
    wanted = [*parts, stream.finish()["y"]]
    axis = streamed.outputs["y"].place.axis
    sizes = {name: [{"N": 1, "T": 1}.get(size, size) for size in dims] for name, dims in streamed.shapes.items()}
    zeros = {name: np.zeros(sizes[name], "float32") for name in streamed.axes}
    zeros |= {} if streamed.fed is None else {streamed.fed: np.zeros(1, "int64")}
    program = in_c(streamed, params, 1, tmp_path, states=dict(streamed.states))
    made = []
    for t in range(frames + delay):
        feeds = {**zeros, "x": np.ascontiguousarray(x[..., t : t + 1])} if t < frames else dict(zeros)
        if streamed.fed is not None:
            feeds[streamed.fed] = np.full(1, t < frames, "int64")
        out = {"y": np.zeros_like(parts[0])}
        assert program(feeds, out) == 0
        made.append(out["y"])
    np.testing.assert_array_equal(np.concatenate(made, axis), np.concatenate(wanted, axis))


def test_a_streamed_net_as_text_and_onnx(tmp_path: Path) -> None:
    net = two_convolutions()
    streamed = ro.streamed_net(net, "T", {**X, **{spec.name: spec.shape for spec in net.parameters}})
    assert str(ro.parse_net(str(streamed.net))) == str(streamed) == str(streamed.net)
    params = params_of(net, "float32")
    shapes = {name: dims for name, dims in streamed.shapes.items() if name not in params}
    ro.onnx.export(streamed.net, tmp_path / "streamed.onnx", params=params, shapes=shapes)
    assert set(ro.onnx.load(tmp_path / "streamed.onnx").input_names) >= {*streamed.states.values()}


def spotter(lookahead: int = 0) -> ro.Net:
    """A convolution over frames before a GRU whose initial state is a parameter."""
    net = ro.Net("spotter")
    h = ro.conv(net.input("x"), net.parameter("w", (4, 3, 3)), pads=[2 - lookahead, lookahead])
    net.outputs(y=ro.GRU(net, ro.transpose(h, [2, 0, 1]), None, None, 4, 5, scope="gru")[0])
    return net


def opened_spotter(net: ro.Net, **options: Any) -> tuple[ro.Stream, dict[str, np.ndarray]]:
    """A stream of it after six frames, and the states without counters."""
    params = params_of(net, "float32")
    params["gru/initial_hidden_state"] = params["gru/initial_hidden_state"] + 1
    stream = ro.compile(net, threads=1).bind(**params).stream(shapes=X, steps="T", **options)
    stream(feeds_of(X, 6, stream.rows)["x"].astype("float32"))
    return stream, {name: array for name, array in stream.states.items() if array.dtype == "float32"}


def test_states_that_are_given_replace_the_initial_ones_of_a_recurrence() -> None:
    stream, states = opened_spotter(spotter(), rows=2)
    assert "stream/position" in stream.states
    x = feeds_of(X, 1)["x"].astype("float32")
    wanted = stream.copy()(x)["y"]
    begun = stream.run.stream
    shapes = {name: array.shape for name, array in stream.states.items()}
    links = {f"{name}_next": name for name in stream.states}
    again = begun(links, shapes=shapes | {n: ("N", *s[1:]) for n, s in shapes.items() if len(s) == 1}, initial=states)
    np.testing.assert_array_equal(again(x)["y"], wanted)
    stream.reset()
    first = stream.copy()(x)["y"]
    for rows in (None, 1):
        loaded = stream.copy()
        loaded.load(states, rows=rows)
        made = loaded(x)["y"]
        np.testing.assert_array_equal(made[:, 1], wanted[:, 1])
        np.testing.assert_array_equal(made[:, 0], (wanted if rows is None else first)[:, 0])
    joined = stream.copy()
    row = joined.join({name: array.take([0], array.shape.index(2)) for name, array in states.items()})
    np.testing.assert_array_equal(joined(x[[0, 1, 0]])["y"][:, row], wanted[:, 0])


def test_states_without_counters_that_do_not_follow_are_refused() -> None:
    stream, states = opened_spotter(spotter(lookahead=1))
    stream.load(states)  # after frames, the counters are there
    stream.reset()
    wrong = "without its counters of frames", "stream/position"
    rejects(ro.StreamError, lambda: stream.load(states), *wrong)
    shapes = {"x": (1, 3, 1), "stream/fed": (1,), **{name: array.shape for name, array in stream.states.items()}}
    links = {f"{name}_next": name for name in stream.states}
    shapes = {name: shapes[name] for name in stream.run.net.input_names if name in shapes}
    rejects(ro.FeedError, lambda: stream.run.export_native("c", shapes, states=links, initial=states), *wrong)
    counters = [name for name in stream.states if name.startswith("stream/")]
    stream.load({**states, **{name: stream.states[name] for name in counters}})


@needs_compiler
@pytest.mark.parametrize("source", [None, "c99"])
def test_initial_states_of_a_recurrence_in_c(source: str | None, tmp_path: Path) -> None:
    stream, states = opened_spotter(spotter())
    x = feeds_of(X, 1, 1)["x"].astype("float32")
    wanted = stream.copy()(x)["y"]
    shapes = {"x": (1, 3, 1), **{name: array.shape for name, array in stream.states.items()}}
    links = {f"{name}_next": name for name in stream.states}
    program = exported(stream.run, tmp_path, shapes, states=links, initial=states, source=source)
    out = {"y": np.zeros_like(wanted)}
    assert program({"x": x}, out) == 0
    np.testing.assert_allclose(out["y"], wanted, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("source", [None, "c99"])
def test_a_number_of_frames_that_a_call_does_not_have(source: str | None, tmp_path: Path) -> None:
    """Such a number gave other last frames, silently."""
    net = two_convolutions()
    params = params_of(net, "float32")
    streamed = ro.streamed_net(net, "T", {**X, **{spec.name: spec.shape for spec in net.parameters}})
    program = in_c(streamed, params, 2, tmp_path, states=streamed, source=source)
    told = json.loads(program.files.manifest.read_text())
    assert told["inputs"][1] == {
        "name": "stream/fed", "c": "stream_fed", "dtype": "int64", "shape": [1],
        "meaning": "frames of this call, 0 behind the last", "least": 0, "greatest": 2,
    }  # fmt: skip
    assert [one["delay"] for one in told["outputs"]] == [*streamed.delay.values()]
    x = feeds_of(X, 2, 1)["x"].astype("float32")
    stream = ro.compile(net).bind(**params).stream(shapes=X, steps="T")
    out = {name: np.zeros_like(array) for name, array in stream(x).items()}
    before = dict(stream.states)
    for count, status in ((-1, 1), (3, 1), (40, 1), (-(2**40), 1), (0, 0), (1, 0), (2, 0)):
        feeds = {"x": x, "stream/fed": np.full(1, count)}
        assert program(feeds, out) == status, count
        if status:
            wrong = "blob 'stream/fed': a call does not have so many frames; wanted 0 to 2; got"
            rejects(ro.TypeRuleError, lambda feeds=feeds: stream(feeds), wrong)
            assert all(stream.states[name] is before[name] for name in before)


def test_errors_say_which_sizes_a_stream_reads() -> None:
    net = two_convolutions()
    bound = ro.compile(net).bind(**params_of(net, "float32"))
    stream = bound.stream(shapes=X, steps="T", rows=2)
    for shape in ((2, 2, 1), (1, 3, 1), (3,), (2, 3)):
        wrong = f"blob 'x': a feed has another shape; wanted [2, 3, T], of T frames; got {[*shape]}"
        rejects(ro.StreamError, lambda shape=shape: stream(np.zeros(shape, "float32")), wrong)
        rejects(ro.StreamError, lambda shape=shape: stream.finish(np.zeros(shape, "float32")), wrong)
    wrong = "no input has an axis of frames; wanted 'time'; got x [N, 3, T]. Name the axis of frames 'time' in shapes="
    rejects(ro.StreamError, lambda: bound.stream(shapes=X, steps="time"), wrong)
    wrong = "channels do not fit the weights; wanted 3; got 7680. Does shapes= name the right axis? An unrolled"
    rejects(ro.StreamError, lambda: bound.stream(shapes={"x": ("N", "T", 3)}, steps="T"), "Conv", wrong)
    wrong = "no state has an axis of rows; got 1. Leave rows= out, or"
    rejects(ro.StreamError, lambda: bound.stream(shapes={"x": (1, 3, "T")}, steps="T", rows=1), wrong)
