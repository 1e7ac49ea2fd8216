"""Peak bytes of a backward pass by layers: two neighbouring layers in a plain loop, one where the loop deletes."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.run.compiled_scan import Options

WIDTH, LAYERS, ROWS = 200, 6, 2
LAYER = WIDTH * WIDTH * 8
SLACK = 100_000  # bytes: activations, plans, Python
RUNS = {
    "reference": lambda net: ro.compile(net, device="reference"),
    "cpu": lambda net: ro.compile(net, threads=1, tuning=Options(around="rows")),
}


def chain() -> tuple[ro.Net, dict[str, np.ndarray]]:
    """Layers of equal size; products of few rows, so that all but weights is small."""
    net = ro.Net("chain")
    h = net.input("x")
    for k in range(LAYERS):
        with net.layer(f"fc{k}"):
            h = ro.tanh(h @ net.parameter(f"w{k}", (WIDTH, WIDTH)))
    net.outputs(y=h)
    return net, {**ro.init_params(net, 0, "float64"), "x": np.ones((ROWS, WIDTH))}


def loop(layers: Iterator[object]) -> None:
    for _step in layers:
        pass


def deleting_loop(layers: Iterator[object]) -> None:
    for step in layers:
        del step


def peak(run: ro.Run, feeds: dict[str, np.ndarray], use: Callable[[ro.Pullback], object]) -> int:
    """The most bytes that a use of a pullback has at once, beyond what was there."""
    wrt = [name for name in feeds if name != "x"]
    dy = np.ones((ROWS, WIDTH))
    use(run.vjp(feeds, wrt=wrt)[1])  # plans are made
    gc.collect()
    _, pullback = run.vjp(feeds, wrt=wrt)
    tracemalloc.start()
    try:
        use(pullback)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        del dy


@pytest.mark.parametrize("device", RUNS)
def test_peak_is_that_of_two_layers_or_one(device: str) -> None:
    net, feeds = chain()
    run, dy = RUNS[device](net), np.ones((ROWS, WIDTH))
    assert peak(run, feeds, lambda pullback: pullback(dy)) >= LAYERS * LAYER
    assert peak(run, feeds, lambda pullback: loop(pullback.layers(dy))) <= 2 * LAYER + SLACK
    assert peak(run, feeds, lambda pullback: deleting_loop(pullback.layers(dy))) <= LAYER + SLACK


@pytest.mark.parametrize("device", RUNS)
def test_activations_are_freed_on_the_way(device: str) -> None:
    """Wide batches, narrow layers: what the forward pass kept becomes less from layer to layer."""
    net = ro.Net("wide")
    h = net.input("x")
    for k in range(LAYERS):
        with net.layer(f"fc{k}"):
            h = ro.tanh(h @ net.parameter(f"w{k}", (8, 8)))
    net.outputs(y=ro.reduce_sum(h, keepdims=0))
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.ones((5_000, 8))}
    run = RUNS[device](net)
    wrt, one, held = [name for name in feeds if name != "x"], feeds["x"].nbytes, []
    for warm in (True, False):
        tracemalloc.start()
        _, pullback = run.vjp(feeds, wrt=wrt)
        for _ in pullback.layers(np.ones(())):
            held += [] if warm else [tracemalloc.get_traced_memory()[0]]
        tracemalloc.stop()
    assert held[0] - held[-1] >= (LAYERS - 1) * one
    assert held[-1] <= 100_000


@pytest.mark.parametrize("device", RUNS)
def test_a_stack_gives_back_what_its_upper_layers_kept(device: str) -> None:
    T, N, H, layers = 40, 8, 16, 4
    net = ro.Net("stack")
    h, *_ = ro.LSTM(net, net.input("x"), None, None, H, [H] * layers, scope="s")
    net.outputs(y=ro.reduce_sum(h, keepdims=0))
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.ones((T, N, H))}
    run = RUNS[device](net)
    wrt, held = [name for name in feeds if name != "x"], []
    for warm in (True, False):
        tracemalloc.start()
        _, pullback = run.vjp(feeds, wrt=wrt)
        for names, *_ in pullback.layers(np.ones(())):
            held += [tracemalloc.get_traced_memory()[0]] if names and not warm else []
        tracemalloc.stop()
    assert len(held) == layers
    falls = -np.diff(held)
    assert falls[:-1].min() >= 3 * T * N * H * 8  # gates at least, and states that no layer below reads
