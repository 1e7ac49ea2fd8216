"""Chains of hidden states: values by going through every path, gradients, devices, padding."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.model import CRF, HMM, log_partition

T, N, K, V = 4, 3, 3, 5
LENGTHS = np.array([4, 1, 3], "int32")
TAGS = np.random.default_rng(3).integers(0, K, (T, N)).astype("int32")
SYMBOLS = np.random.default_rng(4).integers(0, V, (T, N)).astype("int32")
Feeds = dict[str, np.ndarray]


def chain(kind: str, masked: bool) -> tuple[ro.Net, Feeds]:
    net = ro.Net("chain", sizes_for="float64")
    lengths = net.input("lengths", "int32", (N,)) if masked else None
    if kind == "crf":
        scores, tags = net.input("scores", None, (T, N, K)), net.input("tags", "int32", (T, N))
        net.outputs(y=CRF(K).named("crf")(scores, tags, lengths))
        feeds: Feeds = {"scores": np.random.default_rng(0).normal(size=(T, N, K)), "tags": TAGS}
    else:
        net.outputs(y=HMM(K, V).named("hmm")(net.input("symbols", "int32", (T, N)), lengths))
        feeds = {"symbols": SYMBOLS}
    rng = np.random.default_rng(1)
    feeds |= {spec.name: rng.normal(size=spec.shape or ()) for spec in net.parameters}
    return net, {**feeds, **({"lengths": LENGTHS} if masked else {})}


def by_paths(kind: str, feeds: Feeds, n: int, length: int) -> float:
    """One row, its paths one by one."""
    if kind == "crf":
        start, end, A, scores = *(feeds[f"crf/{name}"] for name in ("start", "end", "transitions")), feeds["scores"]

        def score(path: tuple[int, ...]) -> float:
            steps = sum(scores[t, n, k] for t, k in enumerate(path))
            moves = sum(A[i, j] for i, j in pairwise(path))
            return float(start[path[0]] + steps + moves + end[path[-1]])

        whole = sum(np.exp(score(path)) for path in product(range(K), repeat=length))
        return float(np.log(whole)) - score(tuple(TAGS[:length, n]))
    start, A, B = (np.exp(feeds[f"hmm/{name}"]) for name in ("start", "transitions", "emissions"))
    start, A, B = (table / table.sum(axis=-1, keepdims=True) for table in (start, A, B))
    total = 0.0
    for path in product(range(K), repeat=length):
        p = start[path[0]]
        for t, k in enumerate(path):
            p *= B[k, SYMBOLS[t, n]] * (A[path[t - 1], k] if t else 1.0)
        total += p
    return float(np.log(total))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["crf", "hmm"])
def test_values_of_all_paths(kind: str, masked: bool) -> None:
    net, feeds = chain(kind, masked)
    wanted = np.array([by_paths(kind, feeds, n, length if masked else T) for n, length in enumerate(LENGTHS)])
    y = ro.compile(net, device="reference")(feeds)["y"]
    np.testing.assert_allclose(y, wanted.mean() if kind == "crf" else wanted, rtol=1e-12)
    ro.testing.check_gradient(net, feeds)
    ro.testing.check_devices(net, feeds, ["cpu"])


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["crf", "hmm"])
def test_in_the_simulator(kind: str) -> None:
    ro.testing.check_devices(*chain(kind, True), ["cuda"])


def test_what_is_past_an_end_counts_nothing() -> None:
    net, feeds = chain("crf", True)
    run = ro.compile(net)
    out, pullback = run.vjp(feeds)
    grads = pullback({"y": np.ones_like(out["y"])})
    inside = np.arange(T)[:, None] < LENGTHS
    assert not grads["scores"][~inside].any()
    assert grads["scores"][inside].all()
    other = {**feeds, "scores": np.where(inside[..., None], feeds["scores"], 9.0), "tags": np.where(inside, TAGS, 0)}
    np.testing.assert_array_equal(run({**other, "tags": other["tags"].astype("int32")})["y"], out["y"])


def test_probabilities_of_all_rows_sum_to_one() -> None:
    layer, net = HMM(K, 2).named("hmm"), ro.Net("net", sizes_for="float64")
    net.outputs(y=layer(net.input("symbols", "int32", (3, 8))))
    every = np.array(list(product(range(2), repeat=3)), "int32").T
    y = ro.compile(net)(ro.init_params(net, 0, "float64"), symbols=every)["y"]
    np.testing.assert_allclose(np.exp(y).sum(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_lengths_of_none_of_one_and_of_more_than_there_is(dtype: str) -> None:
    net = ro.Net("net", sizes_for="float64")
    scores, tags, lengths = (
        net.input("scores", None, (T, 4, K)),
        net.input("tags", "int32", (T, 4)),
        net.input("n", dtype, (4,)),
    )
    net.outputs(loss=CRF(K).named("crf")(scores, tags, lengths))
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=shape) for name, shape in {"scores": (T, 4, K), "crf/transitions": (K, K)}.items()}
    feeds |= {"crf/start": rng.normal(size=K), "crf/end": rng.normal(size=K), "tags": np.tile(TAGS[:, :1], 4)}
    feeds["scores"] = np.tile(feeds["scores"][:, :1], (1, 4, 1))

    def loss(*lengths: int) -> float:
        return float(ro.compile(net, device="reference")({**feeds, "n": np.array(lengths, dtype)})["loss"])

    assert loss(0, 0, 0, 0) == 0
    assert loss(T, T, T, T + 3) == loss(T, T, T, T)
    np.testing.assert_allclose(loss(0, T, 1, 0), (loss(T, T, T, T) + loss(1, 1, 1, 1)) / 4, rtol=1e-12)


def test_chains_of_one_step() -> None:
    net = ro.Net("net", sizes_for="float64")
    scores = net.input("scores", None, (1, N, K))
    net.outputs(y=log_partition(scores, net.input("start", None, (K,)), net.input("A", None, (K, K))))
    x = np.random.default_rng(0).normal(size=(1, N, K))
    y = ro.compile(net, device="reference")(scores=x, start=np.zeros(K), A=np.ones((K, K)))["y"]
    np.testing.assert_allclose(y, np.log(np.exp(x[0]).sum(axis=1)), rtol=1e-12)


def test_two_chains_in_one_net() -> None:
    net = ro.Net("net")
    scores, start, A = net.inputs("scores", "start", "A")
    net.outputs(one=log_partition(scores, start, A), two=log_partition(scores * 2.0, start, A))
    feeds: dict[str, Any] = {"scores": np.zeros((T, N, K)), "start": np.zeros(K), "A": np.zeros((K, K))}
    for y in ro.compile(net)(feeds).values():
        np.testing.assert_allclose(y, T * np.log(K), rtol=1e-12)


def test_wrong_sizes() -> None:
    net = ro.Net("net", sizes_for="float64")
    scores, tags = net.input("scores", None, (T, N, K)), net.input("tags", "int32", (T, N))
    with pytest.raises(ro.ModelError, match="another number of tags"):
        CRF(K + 1).named("crf")(scores, tags)
    with pytest.raises(ro.ModelError):
        HMM(0, 3)
    with pytest.raises(ro.ModelError, match=r"another rank; wanted \[T, N, K\]"):
        log_partition(scores[0], net.input("start", None, (K,)), net.input("A", None, (K, K)))
    with pytest.raises(ro.ModelError, match=r"another rank; wanted \[T, N\]"):
        HMM(K, V).named("hmm")(tags[0])


@pytest.mark.parametrize("kind", ["crf", "hmm"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_an_index_outside_is_an_error_within_a_row_alone(kind: str, dtype: str) -> None:
    """Negative ones, too, which would count from the end."""
    net = ro.Net("net", sizes_for="float64")
    indices, lengths = net.input("indices", dtype, (T, N)), net.input("lengths", "int32", (N,))
    layer, scores = (CRF(K), [net.input("scores", None, (T, N, K))]) if kind == "crf" else (HMM(K, K), [])
    net.outputs(y=layer.named("chain")(*scores, indices, lengths))
    feeds = {**ro.init_params(net, 0, "float64"), **({"scores": np.ones((T, N, K))} if scores else {})}
    inside = np.arange(T)[:, None] < LENGTHS
    for device in ("reference", "cpu"):
        run = ro.compile(net, device=device)
        padded = [run(feeds, indices=np.where(inside, TAGS, pad).astype(dtype), lengths=LENGTHS) for pad in (0, -1, 99)]
        assert all(np.array_equal(one["y"], padded[0]["y"]) for one in padded)
        for wrong in (-1, K):
            given = TAGS.astype(dtype)
            given[2, 0] = wrong
            with pytest.raises(ro.TypeRuleError, match=f"wanted 0 to {K - 1}; got {wrong}"):
                run(feeds, indices=given, lengths=LENGTHS)
