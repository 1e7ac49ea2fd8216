"""`ro.scan(..., truncate=k)`: gradients of states end where steps written one by one would stop them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from devices import on_device
from each import check_each
from rejection import rejects

import rnnops as ro

pytestmark = pytest.mark.usefixtures("device")

T, N, D = 7, 3, 4
RANDOM = np.random.default_rng(0)
FEEDS = {name: RANDOM.normal(size=shape) for name, shape in {"xs": (T, N, D), "h0": (N, D), "w": (D, D)}.items()}
GRADS = {"y": RANDOM.normal(size=(T, N, D)), "last": RANDOM.normal(size=(N, D))}
LENGTHS = np.array([7, 2, 5], np.int32)


@ro.cell(dtypes={"count": "int32"})
def counts(x: Any, h: Any, count: Any, *, w: Any) -> dict[str, Any]:
    h = ro.tanh(h @ w + x)
    return {"h": h, "count": count + 1, "y": h * h}


@ro.cell(timestep="t")
def alone(h: Any, *, w: Any, t: Any) -> dict[str, Any]:
    h = ro.tanh(h @ w + ro.cast(t, "float"))
    return {"h": h, "y": h * h}


def scanned(has_xs: bool, **options: Any) -> ro.Net:
    net = ro.Net("scanned")
    h, w = net.input("h0"), net.input("w")
    if has_xs:
        last, y = ro.scan(counts, net.input("xs"), h=h, count=np.zeros((N, 1), np.int32), w=w, **options)
    else:
        last, y = ro.scan(alone, h=h, w=w, steps=T, **options)
    net.outputs(y=y, last=last["h"])
    return net


def unrolled(has_xs: bool, truncate: int, reverse: bool, lengths: Any) -> ro.Net:
    """The same steps one by one."""
    net = ro.Net("unrolled")
    h, w, ys = net.input("h0"), net.input("w"), {}
    xs = net.input("xs") if has_xs else None
    for ran in range(T):
        t = T - 1 - ran if reverse else ran
        h = ro.stop_gradient(h) if ran and ran % truncate == 0 else h
        new = ro.tanh(h @ w + (t if xs is None else xs[t]))
        live = np.ones((N, 1)) if lengths is None else (t < lengths)[:, None].astype("float64")
        ys[t], h = new * new * live, new * live + h * (1.0 - live)
    net.outputs(y=ro.concat([ro.unsqueeze(ys[t], [0]) for t in range(T)], axis=0), last=h)
    return net


def test_gradients_end_where_steps_one_by_one_would_stop_them() -> None:
    def check(case: tuple[bool, int, bool, Any]) -> None:
        has_xs, truncate, reverse, lengths = case
        feeds = {name: array for name, array in FEEDS.items() if has_xs or name != "xs"}
        nets = scanned(has_xs, truncate=truncate, reverse=reverse, lengths=lengths), unrolled(*case)
        results = [on_device(net).vjp(feeds) for net in nets]
        for name in GRADS:
            np.testing.assert_allclose(*(out[name] for out, _ in results), rtol=1e-10, atol=1e-12)
        mine, theirs = (pullback(GRADS) for _, pullback in results)
        for name in feeds:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-9, atol=1e-12)

    check_each(product((True, False), (1, 3, T), (False, True), (None, LENGTHS)), check)


def test_without_a_border_gradients_are_those_of_differences() -> None:
    for reverse in (False, True):
        ro.testing.check_gradient(scanned(True, truncate=T, reverse=reverse, lengths=LENGTHS), FEEDS)


def test_a_number_of_steps_that_is_none_is_refused() -> None:
    for wrong in (0, -1, True, 2.0, "3"):
        rejects(
            ro.RecurrentError, lambda wrong=wrong: scanned(True, truncate=wrong),
            "truncate= is not a number of steps", "wanted an integer of 1 or more",
        )  # fmt: skip
