"""Recompute: what is listed is not stored, its producers run again, transitively and each once, and no bit changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from by_hand import assert_agrees, random_arrays
from devices import on_device

import rnnops as ro
from rnnops.net.schema import REGISTRY, Call
from rnnops.ops.base import Unary

pytestmark = pytest.mark.usefixtures("device")

T, N, D = 4, 3, 2


class CountedTanh(Unary):
    """tanh that counts how often it runs, by the attribute `tag`; without a loop form it is not free to redo."""

    attributes = {"tag": ""}
    keeps = ("Y",)
    runs: Counter[str] = Counter()

    def reference(self, call: Call, x: np.ndarray) -> np.ndarray:
        self.runs[call.attr("tag")] += 1
        return np.tanh(x)

    def gradient(self, call: Call, x: Any, y: ro.Blob, dy: ro.Blob) -> ro.Blob:
        return dy * (1.0 - y * y)


@pytest.fixture
def runs() -> Iterator[Counter[str]]:
    schema = CountedTanh()
    REGISTRY[schema.name] = schema
    schema.runs.clear()
    yield schema.runs
    del REGISTRY[schema.name]


def counted(x: ro.Blob, tag: str) -> ro.Blob:
    return x.net.apply("CountedTanh", [x], tag=tag).named(tag)


def chain_cell() -> ro.Net:
    """`a` feeds `b` and `c`, which feed the state: a diamond of dear ops."""
    cell = ro.Net("chain")
    x, h = cell.inputs("x", "h")
    a = counted(x + h, "a")
    b, c = counted(a * 2.0, "b"), counted(a * h, "c")
    cell.outputs(h_t=b * c + h)
    return cell


def chain_loop(xs: np.ndarray, h0: np.ndarray) -> dict[str, np.ndarray]:
    h, steps = h0, []
    for x in xs:
        a = np.tanh(x + h)
        h = np.tanh(a * 2) * np.tanh(a * h) + h
        steps.append(h)
    return {"h_t_all": np.stack(steps), "h_t_last": h[None]}


def net_of(cell: ro.Net, listed: Any = None, **options: Any) -> ro.Net:
    net = ro.Net("outer")
    xs, h0 = net.inputs("xs", "h0")
    net.outputs(
        *ro.recurrent_net(
            net,
            cell,
            [("x", xs)],
            [("h", h0)],
            {"h": "h_t"},
            recompute_blobs_on_backward=listed,
            **options,
        )
    )
    return net


LISTS = {(): "", ("a",): "a", ("b",): "ab", ("b", "c"): "abc", ("a", "b", "c"): "abc"}  # listed -> what runs again


@pytest.mark.parametrize("listed", LISTS, ids="+".join)
def test_every_producer_runs_again_once_a_step(runs: Counter[str], listed: tuple[str, ...]) -> None:
    feeds = random_arrays(xs=(T, N, D), h0=(N, D))
    out, pullback = on_device(net_of(chain_cell(), list(listed))).vjp(feeds)
    assert runs == {"a": T, "b": T, "c": T}
    runs.clear()
    pullback({"h_t_all": np.ones_like(out["h_t_all"])})
    assert runs == dict.fromkeys(LISTS[listed], T)


@pytest.mark.covering(1)
@pytest.mark.parametrize("listed", LISTS, ids="+".join)
def test_values_do_not_depend_on_the_list(runs: Counter[str], listed: tuple[str, ...]) -> None:
    feeds = random_arrays(xs=(T, N, D), h0=(N, D))
    _, wanted = assert_agrees(net_of(chain_cell()), feeds, chain_loop)
    _, came = assert_agrees(net_of(chain_cell(), list(listed)), feeds, chain_loop)
    assert all(came[name].tobytes() == wanted[name].tobytes() for name in wanted)


def test_a_blob_handle_or_a_single_name_may_be_listed(runs: Counter[str]) -> None:
    cell = chain_cell()
    for listed in ([cell.blob("a")], ["a"], "a"):
        runs.clear()
        out, pullback = on_device(net_of(cell, listed)).vjp(random_arrays(xs=(T, N, D), h0=(N, D)))
        pullback({"h_t_all": np.ones_like(out["h_t_all"])})
        assert runs["a"] == 2 * T


def test_what_follows_from_a_listed_blob_by_cheap_ops_is_not_stored_either() -> None:
    cell = ro.Net("follows")
    x, h = cell.inputs("x", "h")
    gates = (x @ cell.inputs("w") + h).named("gates")
    first = ro.sigmoid(gates).named("first")
    cell.outputs(h_t=ro.tanh(first * h).named("new"))
    feeds = random_arrays(xs=(T, N, D), h0=(N, D), w=(D, D))
    pullback = on_device(net_of(cell, ["gates"])).vjp(feeds)[1]
    for name in ("gates", "first"):
        with pytest.raises(ro.GradientError, match="not kept"):
            pullback.step_blobs(name)
    assert pullback.step_blobs("new").shape == (T, N, D)


def test_what_follows_from_a_listed_and_an_unlisted_product_is_not_stored_either() -> None:
    cell = ro.Net("two_products")
    x, h, w, v = cell.inputs("x", "h", "w", "v")
    gates, other = (x @ w).named("gates"), (x @ v).named("other")
    cell.outputs(h_t=h + ro.sin((gates + other).named("sum")))
    feeds = random_arrays(xs=(T, N, D), h0=(N, D), w=(D, D), v=(D, D))
    for listed, kept in ((None, "sum"), (["gates"], "other")):
        pullback = on_device(net_of(cell, listed)).vjp(feeds)[1]
        assert pullback.step_blobs(kept).shape == (T, N, D)
        for name in {"gates", "other", "sum"} - {kept}:
            with pytest.raises(ro.GradientError, match="not kept"):
                pullback.step_blobs(name)


def test_listed_blob_that_is_a_step_output_is_computed_again_too(runs: Counter[str]) -> None:
    cell = ro.Net("exported")
    x, h = cell.inputs("x", "h")
    a = counted(x + h, "a")
    cell.outputs(h_t=a * h, a=a)

    def loop(xs: np.ndarray, h0: np.ndarray) -> dict[str, np.ndarray]:
        h, rows = h0, []
        for x in xs:
            a = np.tanh(x + h)
            h = a * h
            rows.append((h, a))
        hs, as_ = (np.stack(column) for column in zip(*rows, strict=True))
        return {"h_t_all": hs, "h_t_last": hs[-1:], "a_all": as_, "a_last": as_[-1:]}

    feeds = random_arrays(xs=(T, N, D), h0=(N, D))
    for listed in (None, ["a"]):
        assert_agrees(net_of(cell, listed), feeds, loop)
    runs.clear()
    out, pullback = on_device(net_of(cell, ["a"])).vjp(feeds)
    assert out["a_all"].flags.writeable, "backward computes it again and does not read the output"
    pullback({"h_t_all": np.ones_like(out["h_t_all"])})
    assert runs["a"] == 2 * T


@pytest.mark.parametrize("reverse", [False, True])
def test_random_ops_replay_in_a_recomputed_path(reverse: bool) -> None:
    """The masks of forward, read off the outputs, explain every gradient."""
    cell = ro.Net("noisy")
    x, h = cell.inputs("x", "h")
    noisy = ro.dropout((x * 1.0).named("copy"), 0.5).named("noisy")
    cell.outputs(h_t=h * 0.5 + ro.tanh(noisy).named("squashed"), seen=noisy * 1.0)
    feeds = random_arrays(xs=(6, N, D), h0=(N, D))
    results = []
    for listed in (None, ["copy"], ["noisy"], ["noisy", "squashed"]):
        out, pullback = on_device(net_of(cell, listed, reverse=reverse)).vjp(feeds, seed=11)
        results.append((out, pullback({"h_t_last": np.ones((1, N, D))})))
    (out, grads), *others = results
    mask = out["seen_all"] != 0
    assert 0 < mask.mean() < 1
    assert np.array_equal(out["seen_all"], np.where(mask, 2 * feeds["xs"], 0))
    decay = 0.5 ** np.arange(6)[:: 1 if reverse else -1, None, None]
    slope = 1 - np.tanh(out["seen_all"]) ** 2
    np.testing.assert_allclose(grads["xs"], np.where(mask, 2 * slope * decay, 0), rtol=1e-12)
    for _, other in others:
        assert all(np.array_equal(other[name], grads[name]) for name in grads)


@pytest.mark.parametrize("listed", [["unknown"], ["x"], ["h"], [3], [None]])
def test_lists_that_do_not_fit(listed: list[Any]) -> None:
    cell = ro.Net("plain")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh(x + h))
    with pytest.raises(ro.RecurrentError) as caught:
        net_of(cell, listed)
    assert caught.value.net == "outer"
    assert "plain" in caught.value.op


def test_blob_of_another_net_is_not_taken_for_a_blob_of_the_cell() -> None:
    cell = ro.Net("plain")
    x, h = cell.inputs("x", "h")
    cell.outputs(h_t=ro.tanh((x + h).named("sum")))
    other = ro.Net("other").input("sum")
    with pytest.raises(ro.RecurrentError, match="other"):
        net_of(cell, [other])
