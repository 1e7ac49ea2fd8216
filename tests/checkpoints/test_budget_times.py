"""The time that budgets take: never more for more bytes, and near what is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time

import numpy as np
import pytest

import rnnops as ro

Arrays = dict[str, np.ndarray]
FACTOR, TRIES = 1.25, 3  # between predicted and measured time; other work on a processor may take it away meanwhile


def language_model(T: int, N: int, H: int, layers: int = 1, classes: int = 96) -> ro.Net:
    net = ro.Net("language model", sizes_for="float32")
    x = ro.model.Embedding(classes, H)(net.input("tokens", "int32", shape=(T, N)))
    for layer in range(layers):
        x, *_ = ro.LSTM(net, x, None, None, H, H, scope=f"layer{layer}")
    scores = ro.model.Dense(classes)(x)
    net.outputs(loss=ro.model.softmax_cross_entropy(scores, net.input("labels", "int32", shape=(T, N))))
    return net


def of_one_cell(cell: Callable[..., Sequence[ro.Blob]], T: int, N: int, D: int, H: int) -> ro.Net:
    net = ro.Net("cell")
    net.outputs(y=cell(net, net.input("x", shape=(T, N, D)), None, None, D, H, scope="cell")[0])
    return net


def of_two_lengths() -> ro.Net:
    """Of 40 and of 300 steps, side by side."""
    net = ro.Net("two")
    for name, steps in (("short", 40), ("long", 300)):
        h_all, *_ = ro.GRU(net, net.input(name, shape=(steps, 4, 8)), None, None, 8, 16, scope=f"{name}/cell")
        net.outputs(**{f"of_{name}": ro.tanh(h_all)})
    return net


@pytest.mark.parametrize(
    "net",
    [
        pytest.param(language_model(1000, 4, 256), id="language model"),
        pytest.param(language_model(300, 8, 512, 2, 2000), id="two layers", marks=pytest.mark.slow),
        pytest.param(of_one_cell(ro.LSTM, 300, 16, 16, 32), id="LSTM"),
        pytest.param(of_one_cell(ro.GRU, 2000, 64, 3, 16), id="GRU", marks=pytest.mark.slow),
        pytest.param(of_one_cell(ro.LSTM, 60, 2, 3, 8), id="small"),
        pytest.param(of_two_lengths(), id="two lengths"),
    ],
)
def test_more_bytes_never_take_more_time(net: ro.Net) -> None:
    """Each row is the choice of a budget below the bytes of the row before."""
    rows = ro.compile(net, threads=1).budget_curve().rows
    assert len(rows) > 10
    times = [row.time for row in rows]
    assert times == sorted(times)


@pytest.mark.slow
def test_times_are_near_those_measured() -> None:
    """Of a language model at T = 2000, where parts of two steps were once taken for as fast as those of 64."""
    net = language_model(2000, 4, 256)
    labels = np.random.default_rng(0).integers(0, 96, (2000, 4)).astype("int32")
    feeds = {**ro.init_params(net, 0), "tokens": labels, "labels": labels[::-1].copy()}
    rows = [row for row in ro.compile(net, threads=1).budget_curve(feeds).rows if row.time < 4]
    rows = [rows[place] for place in np.linspace(0, len(rows) - 1, 10).astype(int)]
    runs = [ro.compile(net, threads=1, memory_budget=row.nbytes) for row in rows]
    for _ in range(TRIES):
        times = np.array([[training_time(run, feeds) for run in runs] for _ in range(5)])[1:].min(axis=0)
        off = times / times[0] / [row.time for row in rows]
        falls = times[1:] < 0.9 * np.maximum.accumulate(times)[:-1]
        if off.min() > 1 / FACTOR and off.max() < FACTOR and not falls.any():
            return
    pytest.fail(f"measured over predicted: {off}; seconds: {times}")


def training_time(run: ro.Run, feeds: Arrays) -> float:
    """Processor time of a training step."""
    start = process_time()
    run.vjp(feeds)[1]({"loss": np.ones((), "float32")})
    return process_time() - start
