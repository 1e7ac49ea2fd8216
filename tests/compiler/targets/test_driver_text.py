"""Bodies that a driver has many times are one function, in loops: less text, the same bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.targets import driver_text
from rnnops.kernels.cpu.native import PRODUCTS
from rnnops.kernels.cpu.threads import CALLED, GIVEN

T, N, H = 5, 3, 7
Feeds = dict[str, Any]
Step = Callable[..., Any]


def chain(layers: int) -> Step:
    """Linear and tanh; every fourth layer has no bias, so that bodies are the same in places only."""

    def step(x: Any, h: Any, weights: list[Any], biases: list[Any]) -> Any:
        h = h + x
        for k in range(layers):
            h = np.tanh(h @ weights[k] + (biases[k] if k % 4 else 0.1 * h))
        return h

    return step


def residual(layers: int) -> Step:
    """Layers of two kinds in turn, whose products are not of the state alone."""

    def step(x: Any, h: Any, weights: list[Any], biases: list[Any]) -> Any:
        for k in range(layers):
            inner = x @ weights[k] + biases[k]
            h = h + 0.1 * (ro.sigmoid(inner) * h if k % 2 else np.tanh(inner + h @ weights[k - 1]))
        return 0.1 * h

    return step


def build(step: Step, layers: int, lengths: bool = False) -> ro.Net:
    net, cell = ro.Net("layers"), ro.Net("step")
    x, h = cell.inputs("x", "h")
    weights, biases = ([cell.input(f"{kind}{k}") for k in range(layers)] for kind in "wb")
    new = step(x, h, weights, biases)
    if lengths:
        new = ro.select_valid(new, h, cell.input("ends", "int32"), cell.input("t", "int32"))
    cell.outputs(new=new)
    y, last = ro.recurrent_net(
        net, cell, inputs=[("x", net.input("xs"))], initial_cell_inputs=[("h", net.input("h0"))],
        links={"h": "new"}, timestep="t" if lengths else None,
    )  # fmt: skip
    net.outputs(y=y, last=last)
    return net


def feeds_of(layers: int, lengths: bool = False, dtype: str = "float32") -> Feeds:
    rng = np.random.default_rng(layers)
    feeds = {"xs": (T, N, H), "h0": (N, H)}
    feeds |= {f"w{k}": (H, H) for k in range(layers)} | {f"b{k}": (H,) for k in range(layers)}
    made: Feeds = {name: rng.normal(size=shape, scale=0.4).astype(dtype) for name, shape in feeds.items()}
    return {**made, "ends": np.array([3, 5, 1], "int32")} if lengths else made


def results(net: ro.Net, feeds: Feeds, **options: Any) -> Feeds:
    outputs, pullback = ro.compile(net, **options).vjp(feeds)
    return {**outputs, **{f"{name}_grad": g for name, g in pullback({"y": np.ones_like(outputs["y"])}).items()}}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("make", [chain, residual])
def test_bits_are_those_of_a_driver_without_functions(
    make: Callable[[int], Step], lengths: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = 20
    net, feeds = build(make(layers), layers, lengths), feeds_of(layers, lengths)
    shared = results(net, feeds, threads=threads)
    monkeypatch.setattr(driver_text, "MANY", 10**6)
    plain = results(net, feeds, threads=threads)
    assert list(shared) == list(plain)
    for name, array in plain.items():
        assert np.array_equal(array, shared[name]), name
    reference = results(net, feeds_of(layers, lengths, "float64"), device="reference")
    for name, array in reference.items():
        np.testing.assert_allclose(shared[name], array, rtol=0, atol=1e-4 * np.abs(array).max(initial=1), err_msg=name)


def texts(layers: int) -> list[str]:
    """The LLVM modules of the chain, forward and backward."""
    run = ro.compile(build(chain(layers), layers), threads=1)
    symbols = {name: f"rnnops_{name}" for name in (*PRODUCTS, *CALLED)}
    kernels = run.plan(feeds_of(layers), backward=True).plan.compiled.kernels
    return [driver_text.llvm_text(kernel.compiled.text.module, "scan", symbols, GIVEN)[0] for kernel in kernels]


def test_more_layers_bring_no_more_functions_and_calls() -> None:
    for less, more in zip(texts(80), texts(120), strict=True):
        for what in (r"define .* @part_\d+\(", "call .*gemm"):
            assert len(re.findall(what, more)) == len(re.findall(what, less)) > 0
    assert len(re.findall("@rows", texts(80)[0])) < 12


def test_a_driver_of_few_bodies_has_no_functions() -> None:
    for text in texts(4):
        assert "@part" not in text
        assert "@table" not in text
