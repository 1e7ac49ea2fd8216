"""Calls and training steps with feeds of the same types as those before, which are recorded: the same bits."""

from __future__ import annotations

import copy
import pickle
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.api.derivatives import RepeatedPullback
from rnnops.errors import FeedError, GradientError, TypeRuleError

T, N, D, H = 5, 3, 4, 8
Feeds = dict[str, Any]
RNG = np.random.default_rng(0)


def lstm(net: ro.Net) -> ro.Blob:
    return ro.LSTM(net, net.input("x"), None, None, D, H, scope="r")[0]


def two_layers(net: ro.Net) -> ro.Blob:
    y = ro.GRU(net, net.input("x"), None, None, D, H, scope="below")[0]
    return ro.LSTM(net, y, None, None, H, H, scope="above")[0]


def with_lengths(net: ro.Net) -> ro.Blob:
    return ro.GRU(net, net.input("x"), net.input("lengths", "int32"), None, D, H, scope="r")[0]


NETS: dict[str, Callable[[ro.Net], ro.Blob]] = {"lstm": lstm, "two layers": two_layers, "lengths": with_lengths}


def made(name: str, **options: Any) -> tuple[ro.Run, Feeds]:
    net = ro.Net("model")
    net.outputs(y=NETS[name](net))
    feeds = {"x": RNG.normal(size=(T, N, D)).astype("float32"), **ro.init_params(net, 0)}
    if name == "lengths":
        feeds["lengths"] = np.array([T, 2, 0], "int32")
    return ro.compile(net, **options), feeds


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    assert list(one) == list(other)
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NETS)
def test_repeated_calls_and_steps_have_the_bits_of_the_first(name: str, threads: int) -> None:
    run, feeds = made(name, threads=threads)
    dy = RNG.normal(size=(T, N, H)).astype("float32")
    first, (out, pullback) = run(feeds), run.vjp(feeds)
    grads = pullback({"y": dy})
    assert not isinstance(pullback, RepeatedPullback)
    for _ in range(3):
        same(run(feeds), first)
        again, repeated = run.vjp(feeds)
        same(again, out)
        same(repeated({"y": dy}), grads)
    assert isinstance(repeated, RepeatedPullback), "this test shows nothing otherwise"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("output", ["h_t", "y"])
def test_gradients_of_all_steps_and_of_the_last(output: str, reverse: bool) -> None:
    """Both are given, for a state whose gradients are kept for all steps, and for an output."""
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    h_t = ro.tanh((x @ w + h) * 0.5)
    cell.outputs(h_t=h_t, y=h_t * h)
    net = ro.Net("net")
    xs, h0, weight = net.inputs("xs", "h0", "weight")
    found = ro.recurrent_net(
        net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, references={"w": weight}, reverse=reverse
    )
    blobs = {blob.name: blob for blob in found}
    net.outputs(every=blobs[f"{output}_all"], last=blobs[f"{output}_last"])
    shapes = {"xs": (T, N, D), "h0": (N, D), "weight": (D, D)}
    feeds = {name: RNG.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    run, reference = ro.compile(net, threads=1), ro.compile(net, device="reference")
    grads = []
    for device in (run, run, run, reference):
        out, pullback = device.vjp(feeds)
        grads.append(pullback({"every": np.cos(out["every"]), "last": np.sin(out["last"])}))
        repeated = device is run and len(grads) > 1
        assert isinstance(pullback, RepeatedPullback) == repeated
    same(grads[1], grads[0])
    same(grads[2], grads[0])
    for name, wanted in grads[3].items():
        np.testing.assert_allclose(grads[0][name], wanted, 1e-4, 1e-5, err_msg=name)


def test_a_gradient_of_an_output_that_takes_none_is_refused_in_every_step() -> None:
    cell = ro.Net("cell")
    x, h, w = cell.inputs("x", "h", "w")
    h_t = ro.tanh(x @ w + h)
    cell.outputs(h_t=h_t, y=h_t * 2.0)
    net = ro.Net("net")
    xs, h0, weight = net.inputs("xs", "h0", "weight")
    every, _, ys, _ = ro.recurrent_net(
        net, cell, [("x", xs)], [("h", h0)], {"h": "h_t"}, references={"w": weight}, outputs_with_grads=[0]
    )
    net.outputs(every=every, ys=ys)
    run, feeds = ro.compile(net), {"xs": RNG.normal(size=(T, N, D)), "h0": np.ones((N, D)), "weight": np.eye(D)}
    for _ in range(4):
        out, pullback = run.vjp(feeds)
        with pytest.raises(GradientError, match=r"'y_all'.*takes no gradient"):
            pullback({"ys": np.ones_like(out["ys"])})
        assert pullback({"every": np.ones_like(out["every"])})["weight"].any()
    assert isinstance(pullback, RepeatedPullback)


def test_outputs_that_are_views() -> None:
    net = ro.Net("views")
    y = ro.tanh(net.input("x"))
    net.outputs(
        rows=ro.expand(y, [4, 3]),
        columns=ro.transpose(ro.expand(y, [4, 3]), [1, 0]),
        same=y,
        part=y[1:],
        turned=y[::-1],
    )
    run, x = ro.compile(net), RNG.normal(size=3)
    wanted = ro.compile(net, device="reference")(x=x)
    for _ in range(4):
        for name, array in run(x=x).items():
            np.testing.assert_allclose(array, wanted[name], 1e-12, err_msg=name)


def test_results_are_the_callers_own() -> None:
    run, feeds = made("lstm")
    steps = []
    for scale in range(1, 6):
        out, pullback = run.vjp(feeds)
        grads = pullback({"y": np.full_like(out["y"], scale)})
        steps.append(({**out, **grads}, {name: array.copy() for name, array in {**out, **grads}.items()}))
    for now, then in steps:
        same(now, then)
    arrays = [array for now, _ in steps for array in now.values()]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_other_numbers_of_the_same_types() -> None:
    run, feeds = made("lstm")
    fresh, _ = made("lstm")
    for _ in range(4):
        other = {name: array + RNG.normal(size=array.shape).astype(array.dtype) for name, array in feeds.items()}
        same(run(other), fresh(other))
        (out, pullback), (wanted, reference) = run.vjp(other), ro.compile(run.net).vjp(other)
        same(out, wanted)
        same(pullback(np.ones_like(out["y"])), reference(np.ones_like(out["y"])))


def test_several_pullbacks_may_wait() -> None:
    run, feeds = made("two layers")
    wanted = [run.vjp({**feeds, "x": feeds["x"] * k})[1](np.ones((T, N, H), "float32")) for k in range(3)]
    waiting = [run.vjp({**feeds, "x": feeds["x"] * k}) for k in range(3)]
    for k in (2, 0, 1):
        same(waiting[k][1](np.ones((T, N, H), "float32")), wanted[k])


def test_several_threads_at_once() -> None:
    run, feeds = made("lstm")

    def step(k: int) -> Mapping[str, Any]:
        out, pullback = run.vjp({**feeds, "x": feeds["x"] * k})
        return {**out, **pullback(np.ones_like(out["y"]))}

    wanted = [step(k) for k in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for k, found in enumerate(pool.map(step, [*range(4)] * 8)):
            same(found, wanted[k % 4])


def repeated(name: str = "two layers") -> tuple[ro.Run, Feeds, dict[str, Any], Any]:
    run, feeds = made(name)
    for _ in range(3):
        out, pullback = run.vjp(feeds)
    assert isinstance(pullback, RepeatedPullback)
    return run, feeds, out, pullback


def test_outputs_are_the_callers_own() -> None:
    _, _, out, pullback = repeated()
    wanted = pullback._by_plan()(np.ones_like(out["y"]))
    _, _, out, pullback = repeated()
    del wanted
    assert out["y"].flags.writeable
    out["y"][...] = np.nan
    assert all(np.isfinite(grad).all() for grad in pullback(np.ones((T, N, H), "float32")).values())


def test_a_pullback_is_used_once() -> None:
    _, _, out, pullback = repeated()
    pullback(np.ones_like(out["y"]))
    for use in (lambda: pullback(np.ones_like(out["y"])), pullback.layers, lambda: pullback.step_blobs("c")):
        with pytest.raises(GradientError):
            use()
    assert pullback.held_arrays() == {}


def test_wrong_gradients_and_feeds_are_named() -> None:
    run, feeds, _, pullback = repeated()
    with pytest.raises(GradientError, match="wrong type"):
        pullback(np.ones((T, N, H + 1), "float32"))
    with pytest.raises(GradientError, match="no float output"):
        pullback({"z": np.ones((T, N, H), "float32")})
    assert pullback(np.ones((T, N, H), "float32")), "a wrong gradient does not use it up"
    for wrong in ({**feeds, "more": feeds["x"]}, {name: array for name, array in feeds.items() if name != "x"}):
        with pytest.raises(FeedError):
            run(wrong)
        with pytest.raises(FeedError):
            run.vjp(wrong)
    with pytest.raises(FeedError, match="seed"):
        run.vjp(feeds, seed=-1)
    with pytest.raises(FeedError, match="wrt"):
        run.vjp(feeds, wrt=["nothing"])


def test_parts_of_a_pullback_by_name() -> None:
    run, feeds, out, pullback = repeated("lstm")
    plain = ro.compile(run.net).vjp(feeds)[1]
    same(pullback.held_arrays(), plain.held_arrays())
    same(pullback(np.ones_like(out["y"])), plain(np.ones_like(out["y"])))
    _, _, out, pullback = repeated("lstm")
    ((names, _, grads, _),) = pullback.layers(np.ones_like(out["y"]))
    assert len(names) == len(grads)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
def test_copies_of_a_run(copied: Callable[[ro.Run], ro.Run]) -> None:
    run, feeds, out, pullback = repeated()
    grads = pullback(np.ones_like(out["y"]))
    other = copied(run)
    for _ in range(3):
        found, back = other.vjp(feeds)
        same(found, out)
        same(back(np.ones_like(out["y"])), grads)


def test_gradients_of_some_inputs() -> None:
    run, feeds = made("lstm")
    names = ["x", "r/gates_t_w"]
    for _ in range(3):
        out, pullback = run.vjp(feeds, wrt=names)
        assert sorted(pullback(np.ones_like(out["y"]))) == sorted(names)
        assert list(run.vjp(feeds, wrt=("x",))[1](np.ones_like(out["y"]))) == ["x"]


def test_dropout_draws_anew() -> None:
    net = ro.Net("model")
    net.outputs(y=ro.dropout(lstm(net), ratio=0.5))
    run, feeds = ro.compile(net), {"x": RNG.normal(size=(T, N, D)).astype("float32"), **ro.init_params(net, 0)}
    drawn = [run.vjp(feeds, seed=k)[0]["y"] for k in range(4)]
    assert not any(np.array_equal(drawn[k], drawn[k + 1]) for k in range(3))
    with pytest.raises(FeedError, match="seed"):
        run.vjp(feeds)


def test_an_index_out_of_range_is_named_at_any_call() -> None:
    net = ro.Net("model")
    xs, w = net.input("i", "int64"), net.input("w")
    cell = ro.Net("cell")
    i, h, table = cell.input("i", "int64"), cell.input("h"), cell.input("w")
    cell.outputs(h_t=ro.tanh(h + ro.gather(table, i)))
    net.outputs(y=ro.recurrent_net(net, cell, [("i", xs)], [("h", net.input("h0"))], {"h": "h_t"})[0])
    run = ro.compile(net)
    feeds = {"i": np.zeros((T, N), "int64"), "w": np.ones((4, H), "float32"), "h0": np.zeros((N, H), "float32")}
    for k in range(6):
        wrong = {**feeds, "i": np.full((T, N), 9)}
        with pytest.raises(TypeRuleError):
            (run if k % 2 else run.vjp)(wrong)
        assert np.isfinite(run(feeds)["y"]).all()
        assert run.vjp(feeds)
    del w


def test_numbers_are_looked_at_in_every_step() -> None:
    net = ro.Net("model")
    net.outputs(y=ro.log(lstm(net)))
    run = ro.compile(net, check_numerics=True)
    feeds = {"x": RNG.normal(size=(T, N, D)).astype("float32"), **ro.init_params(net, 0)}
    for _ in range(4):
        with pytest.raises(ro.NumericsError):
            run(feeds)
        with pytest.raises(ro.NumericsError):
            run.vjp(feeds)


def test_layers_after_recorded_steps_run_by_the_plan_from_then_on() -> None:
    run, feeds, out, pullback = repeated()
    assert len(list(pullback.layers(np.ones_like(out["y"])))) >= 1
    for _ in range(3):
        out, pullback = run.vjp(feeds)
        assert not isinstance(pullback, RepeatedPullback)


def around(net: ro.Net) -> ro.Blob:
    """Ops around a recurrence: arithmetic, a number times an array, copies."""
    w, v = net.parameter("w", (H, H)), net.parameter("v", (H, H))
    both = (w - v) * 0.5 + w * v / 3.0 + v / (w + 9.0)
    cell = ro.Net("cell")
    x, h, u = cell.inputs("x", "h", "u")
    cell.outputs(h_t=ro.tanh(h @ u + x))
    steps = [("x", net.input("x"))]
    return ro.recurrent_net(net, cell, steps, [("h", net.input("h0"))], {"h": "h_t"}, references={"u": both})[0]


def layers_in_one_state(net: ro.Net) -> ro.Blob:
    """A state that is split and joined around its recurrence (rnnops/compiler/rewrite/fuse_ops.py)."""

    @ro.cell
    def step(x: ro.Blob, h: ro.Blob) -> dict[str, ro.Blob]:
        below = ro.tanh(x + h[:, : H // 2])
        above = ro.tanh(below + h[:, H // 2 :])
        return {"h": ro.concat(below, above, axis=1), "y": above}

    first, rest = ro.split(net.input("x"), [1, T - 1], axis=0)
    left, right = ro.split(rest, 2, axis=-1)
    last, ys = ro.scan(step, left, h=net.input("h0"))
    return ro.concat(first + ro.unsqueeze(last["h"], [0]), ro.concat(ys, right, axis=-1), axis=0)


@pytest.mark.parametrize("around", [around, layers_in_one_state])
def test_arithmetic_and_copies_around_recurrences_are_recorded_with_their_bits(around: Any) -> None:
    net = ro.Net("model")
    net.outputs(y=around(net))
    run = ro.compile(net, threads=1)
    feeds = {"x": RNG.normal(size=(T, N, H)).astype("float32"), "h0": np.zeros((N, H), "float32")}
    feeds |= {name: RNG.normal(size=array.shape).astype("float32") for name, array in ro.init_params(net, 0).items()}
    dy = RNG.normal(size=(T, N, H)).astype("float32")
    (out, pullback), called = run.vjp(feeds), run(feeds)
    grads = pullback(dy)
    for _ in range(3):
        again, repeated = run.vjp(feeds)
        same(again, out)
        same(repeated(dy), grads)
        same(run(feeds), called)
    assert isinstance(repeated, RepeatedPullback), "this test shows nothing otherwise"


def with_dropout(net: ro.Net) -> ro.Blob:
    cell = ro.Net("cell")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.dropout(ro.tanh(h + x), 0.5))
    return ro.recurrent_net(net, cell, [("x", net.input("x"))], [("h", net.input("h0"))], {"h": "h_t"})[0]


def test_recorded_steps_keep_the_mode() -> None:
    net = ro.Net("model")
    net.outputs(y=with_dropout(net))
    run, feeds = ro.compile(net), {"x": np.ones((T, N, H), "float32"), "h0": np.ones((N, H), "float32")}
    out, pullback = run.vjp(feeds, training=False)
    grads = pullback(np.ones_like(out["y"]))
    for _ in range(3):
        again, repeated = run.vjp(feeds, training=False)
        same(again, out)
        same(repeated(np.ones_like(out["y"])), grads)
    assert isinstance(repeated, RepeatedPullback), "this test shows nothing otherwise"


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8"])
def test_integers_of_another_dtype_than_declared(dtype: str) -> None:
    run, feeds = made("lengths")
    out, _ = run.vjp(feeds)
    for _ in range(3):
        same(run.vjp({**feeds, "lengths": feeds["lengths"].astype(dtype)})[0], out)
        same(run({**feeds, "lengths": feeds["lengths"].astype(dtype)}), out)


@pytest.mark.parametrize("shape", [(0, 3), (0,), (2, 0)])
def test_arithmetic_of_no_elements_keeps_its_shape(shape: tuple[int, ...]) -> None:
    net = ro.Net("model")
    net.outputs(y=-(net.input("x") * 0.5) / 2.0)
    run, feeds = ro.compile(net), {"x": np.zeros(shape, "float32")}
    for _ in range(3):
        out, pullback = run.vjp(feeds)
        assert run(feeds)["y"].shape == out["y"].shape == pullback(out["y"])["x"].shape == shape


def test_layers_of_a_recorded_step_have_the_arrays_that_were_fed() -> None:
    run, feeds = made("lstm")
    feeds = {name: np.asfortranarray(array) for name, array in feeds.items()}
    for _ in range(3):
        out, pullback = run.vjp(feeds)
    assert isinstance(pullback, RepeatedPullback)
    for names, values, *_ in pullback.layers(np.ones_like(out["y"])):
        assert all(value is feeds[name] for name, value in zip(names, values, strict=True))


def test_a_used_pullback_lets_go_of_its_feeds() -> None:
    run, feeds = made("lstm")
    for _ in range(3):
        x = feeds["x"].copy()
        out, pullback = run.vjp({**feeds, "x": x})
        pullback(np.ones_like(out["y"]))
    held = weakref.ref(x)
    del x
    assert isinstance(pullback, RepeatedPullback)
    assert held() is None


def test_arguments_that_are_wrong_are_named_after_recorded_steps() -> None:
    run, feeds = made("lstm")
    for _ in range(3):
        run.vjp(feeds)
    with pytest.raises(FeedError, match="wrt names no float input"):
        run.vjp(feeds, wrt=[["x"]])
    for training in (1.0, np.zeros(2)):
        with pytest.raises(ro.ArgumentError, match="training= is neither on nor off"):
            run.vjp(feeds, training=training)  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NETS)
def test_training_steps_of_bound_runs_are_recorded(name: str, threads: int) -> None:
    plain, feeds = made(name, threads=threads)
    fed = {name: array for name, array in feeds.items() if name in ("x", "lengths")}
    run = plain.bind(**{name: array for name, array in feeds.items() if name not in fed})
    dy = RNG.normal(size=(T, N, H)).astype("float32")
    for wrt in (None, ["x"]):
        out, pullback = run.vjp(fed, wrt=wrt)
        grads = pullback({"y": dy})
        same(out, plain.vjp(feeds, wrt=wrt)[0])
        for _ in range(3):
            again, repeated = run.vjp(fed, wrt=wrt)
            same(again, out)
            same(repeated({"y": dy}), grads)
        assert isinstance(repeated, RepeatedPullback), "this test shows nothing otherwise"
    _, repeated = run.vjp(fed)
    assert repeated.held_arrays()
    same(repeated({"y": dy}), plain.vjp(feeds)[1]({"y": dy}))


def read_only(array: np.ndarray) -> np.ndarray:
    copied = array.copy()
    copied.flags.writeable = False
    return copied


def crooked(array: np.ndarray) -> np.ndarray:
    """The same numbers at an address that is not a multiple of their size."""
    memory = np.empty(array.nbytes + 1, np.uint8)
    found = memory[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


RIGHT: dict[str, Callable[[np.ndarray], Any]] = {
    "order": np.asfortranarray,
    "steps": lambda array: np.repeat(array, 2, axis=0)[::2],
    "address": crooked,
    "read-only": read_only,
    "dtype of its own": lambda array: array.astype(np.dtype(array.dtype, metadata={"unit": "m"})),
    "class": lambda array: array.view(np.recarray),
}
WRONG: dict[str, Callable[[np.ndarray], Any]] = {
    "float64": lambda array: array.astype("float64"),
    "bytes the other way round": lambda array: array.astype(">f4"),
    "one more axis": lambda array: array[None],
    "features": lambda array: array[..., :-1].copy(),
    "list": lambda array: array.tolist(),
    "nothing": lambda array: None,
    "integers": lambda array: array.view("int32"),
}


@pytest.mark.parametrize("bound", [False, True])
def test_arrays_of_any_layout_are_right_and_of_other_types_named_errors_after_recorded_calls(bound: bool) -> None:
    run, feeds = made("lstm")
    if bound:
        run, feeds = run.bind(**{name: array for name, array in feeds.items() if name != "x"}), {"x": feeds["x"]}
    dy = RNG.normal(size=(T, N, H)).astype("float32")
    for _ in range(3):
        called, (out, pullback) = run(feeds), run.vjp(feeds)
        grads = pullback({"y": dy})
    assert isinstance(pullback, RepeatedPullback), "this test shows nothing otherwise"
    for name, changed in RIGHT.items():
        other = {**feeds, "x": changed(feeds["x"])}
        same(run(other), called)
        again, repeated = run.vjp(other)
        same(again, out)
        same(repeated({"y": changed(dy)}), grads)
        assert isinstance(repeated, RepeatedPullback) or name == "class"
    for changed in WRONG.values():
        for call in (run, run.vjp):
            with pytest.raises((FeedError, TypeRuleError)):
                call({**feeds, "x": changed(feeds["x"])})
        pullback = run.vjp(feeds)[1]
        with pytest.raises(GradientError):
            pullback({"y": changed(dy)})
        same(pullback({"y": dy}), grads)
    same(run(feeds), called)


def test_a_feed_whose_shape_changes_in_place_is_looked_at() -> None:
    run, feeds = made("lstm")
    x = feeds["x"].copy()
    for _ in range(3):
        run({**feeds, "x": x})
    x.resize((N, T, D), refcheck=False)
    same(run({**feeds, "x": x}), ro.compile(run.net)({**feeds, "x": x}))


def test_names_that_only_compare_as_equal_are_refused_after_recorded_steps() -> None:
    run, feeds = made("lstm")
    for wrt in (["x"], None):
        for _ in range(3):
            run.vjp(feeds, wrt=wrt)
        for other in ([next(iter(run.net.ops)).outputs[0]], [None], [np.array("x")], [ro.Net("other").input("x")]):
            with pytest.raises(FeedError, match="wrt names no float input"):
                run.vjp(feeds, wrt=other)
    assert list(run.vjp(feeds, wrt=["".join(("x", ""))])[1](np.ones((T, N, H), "float32"))) == ["x"]
