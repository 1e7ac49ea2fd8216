"""What planning costs grows with the number of ops, not with its square: calls of Python functions, counted."""

from __future__ import annotations

from collections.abc import Callable
from cProfile import Profile

import numpy as np
import pytest

import rnnops as ro
from rnnops.net.blob import Blob

SMALL = 80  # ops
MORE = 1.3  # times as many calls for each op
Body = Callable[[int, Blob, Blob, Blob], Blob]


def chain(count: int, x: Blob, h: Blob, w: Blob) -> Blob:
    for _ in range(count // 2):
        h = ro.tanh(h) + x
    return h


def sums(count: int, x: Blob, h: Blob, w: Blob) -> Blob:
    for _ in range(count):
        h = h + x
    return h


def products(count: int, x: Blob, h: Blob, w: Blob) -> Blob:
    for _ in range(count // 2):
        h = ro.tanh(h @ w)
    return h


def reductions(count: int, x: Blob, h: Blob, w: Blob) -> Blob:
    for _ in range(count // 2):
        h = h - ro.reduce_mean(h, axes=[-1], keepdims=1)
    return h


def views(count: int, x: Blob, h: Blob, w: Blob) -> Blob:
    """Many parts of one blob, each turned, and put together again."""
    parts = ro.split(ro.concat(*[h] * (count // 3), axis=-1), count // 3, axis=-1)
    turned = [ro.tanh(ro.transpose(part, (1, 0))) for part in parts]
    return ro.transpose(ro.reduce_sum(ro.reshape(ro.concat(*turned, axis=0), (-1, 3, 4)), axes=[0], keepdims=0), (1, 0))


def operands(count: int, x: Blob, h: Blob, w: Blob) -> Blob:
    """One op of very many operands."""
    return ro.sum(*[x * (0.1 * i + 0.1) for i in range(count)])


BODIES: list[Body] = [chain, sums, products, reductions, views, operands]


def flat(body: Body, count: int) -> ro.Net:
    net = ro.Net("net")
    x, h, w = (net.input(name, shape=shape) for name, shape in (("x", (4, 3)), ("h", (4, 3)), ("w", (3, 3))))
    net.outputs(y=body(count, x, h, w))
    return net


def stepped(body: Body, count: int) -> ro.Net:
    """The ops as a cell."""
    cell, net = ro.Net("cell"), ro.Net("net")
    cell.outputs(h_t=ro.tanh(body(count, *cell.inputs("x_t", "h", "w"))))
    x, h, _ = (net.input(name, shape=shape) for name, shape in (("x", (5, 4, 3)), ("h0", (4, 3)), ("w", (3, 3))))
    net.outputs(y=ro.recurrent_net(net, cell, [("x_t", x)], [("h", h)], {"h": "h_t"})[0])
    return net


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions are called, with those of C."""
    profile = Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


CASES = [(made, body) for made in (flat, stepped) for body in BODIES]
CASES.remove((stepped, views))  # within a cell the parts of one blob are compared with each other: 1.5 times here


@pytest.mark.parametrize("large", [3 * SMALL, pytest.param(8 * SMALL, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("made", "body"), CASES)
def test_plans_grow_with_the_number_of_ops(made: Callable[[Body, int], ro.Net], body: Body, large: int) -> None:
    nets = {count: made(body, count) for count in (SMALL, large)}
    ro.compile(nets[SMALL]).plan()  # what is looked up once
    calls = {count: calls_of(ro.compile(net).plan) for count, net in nets.items()}
    assert calls[large] <= MORE * large / SMALL * calls[SMALL]


@pytest.mark.parametrize(
    ("made", "body", "count"),
    [(flat, sums, 1200), (stepped, sums, 1200), (flat, operands, 1200), (stepped, operands, 100)],
)
def test_deep_and_wide_sums_run(made: Callable[[Body, int], ro.Net], body: Body, count: int) -> None:
    """Deeper than Python's recursion goes, and wider than a compiler's expressions."""
    net = made(body, count)
    random = np.random.default_rng(3)
    feeds = {spec.name: random.uniform(-1, 1, spec.shape).astype("float32") / count for spec in net.input_specs}
    wanted = ro.compile(net, device="reference")(feeds)["y"]
    np.testing.assert_allclose(ro.compile(net)(feeds)["y"], wanted, rtol=1e-4, atol=1e-6)
