"""Tangent nets: `<u, J v>` is `<J^T u, v>` with the gradients of `run.vjp`, for every op, cell and recurrence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import DEVICES
from each import check_each
from gradient_cases import Case
from random_feeds import random_feeds
from test_gradient_net import EVERY_CELL, NETS, SEED, coupled, output_grads, shapes_of
from test_second_derivatives import ALL

import rnnops as ro
from rnnops.testing.gradient_check import rotation

Array = np.ndarray


def assert_transposed(net: ro.Net, feeds: dict[str, Array], device: str = "reference", **options: Any) -> None:
    outputs, pullback = ro.compile(net, device="reference").vjp(feeds, seed=SEED, **options)
    floats = {name: array for name, array in outputs.items() if array.dtype.kind == "f"}
    weights = output_grads(floats)
    grads = pullback(weights)
    directions = {f"t_{name}": rotation(grad.shape, 7 * i) for i, (name, grad) in enumerate(grads.items())}
    tangent = ro.tangent_net(net, **shapes_of(feeds))
    found = DEVICES[device](tangent)(feeds, directions, seed=SEED, training=True)
    for name, array in outputs.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-11, atol=1e-11, err_msg=name)
    ahead = [weights[name] * found[f"t_{name}"] for name in floats]
    behind = [grad * directions[f"t_{name}"] for name, grad in grads.items()]
    total = sum(np.abs(term).sum() for term in (*ahead, *behind))
    assert abs(sum(term.sum() for term in ahead) - sum(term.sum() for term in behind)) <= 1e-12 * max(1.0, total)


@pytest.mark.parametrize("op", sorted({case.op for case in ALL}))
def test_every_op(op: str) -> None:
    check_each([case for case in ALL if case.op == op], assert_case)


def assert_case(case: Case) -> None:
    net, feeds = case.net()
    assert_transposed(net, {name: np.asarray(array) for name, array in feeds.items()})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NETS)
def test_recurrences(name: str, device: str) -> None:
    net, given = NETS[name]()
    assert_transposed(net, random_feeds(net, **given), device)


@pytest.mark.parametrize("name", EVERY_CELL)
def test_every_cell(name: str) -> None:
    net, given = EVERY_CELL[name]()
    assert_transposed(net, random_feeds(net, **given))


@pytest.mark.parametrize("name", ["LSTM", "coupled", "dropped", "window of 2 of 3", "nested"])
def test_tangents_of_gradients_are_products_of_the_hessian(name: str) -> None:
    """Both ways, forward over backward and backward over backward, as it is symmetric."""
    net, given = NETS[name]()
    feeds = random_feeds(net, **given)
    names = [n for n, array in feeds.items() if array.dtype.kind == "f"]
    first = ro.gradient_net(net, **shapes_of(feeds))
    feeds.update({spec.name: rotation(spec.shape or ()) for spec in first.input_specs if spec.name not in feeds})
    vectors = {n: rotation(feeds[n].shape, 5) for n in names}
    forward = ro.compile(ro.tangent_net(first, wrt=names, **shapes_of(feeds)), device="reference")
    found = forward(feeds, {f"t_{n}": array for n, array in vectors.items()}, seed=SEED, training=True)
    _, pullback = ro.compile(first, device="reference").vjp(feeds, seed=SEED, wrt=names)
    for n, wanted in pullback({f"d_{n}": array for n, array in vectors.items()}).items():
        np.testing.assert_allclose(found[f"t_d_{n}"], wanted, rtol=1e-10, atol=1e-11, err_msg=n)


def test_what_does_not_move_has_no_tangent() -> None:
    net, given = coupled()
    feeds = random_feeds(net, **given)
    tangent = ro.tangent_net(net, wrt="b", **shapes_of(feeds))
    assert [name for name in tangent.input_names if name.startswith("t_")] == ["t_b"]
    assert str(ro.parse_net(str(tangent))) == str(tangent)
    still = ro.Net("still")
    x, k = still.input("x"), still.input("k", "int32")
    still.outputs(y=ro.stop_gradient(x), k=k)
    found = ro.compile(ro.tangent_net(still, x=(2,), k=(2,)))(x=np.ones(2), k=np.ones(2, np.int32), t_x=np.ones(2))
    assert list(found) == ["y", "k", "t_y"]
    assert found["t_y"].tolist() == [0.0, 0.0]


def test_nan_in_padding_reaches_no_tangent() -> None:
    net, given = NETS["LayerNormLSTM"]()
    feeds = random_feeds(net, **given)
    directions = {f"t_{n}": np.ones_like(array) for n, array in feeds.items() if array.dtype.kind == "f"}
    feeds["x"][3:, 1] = np.nan
    tangent = ro.tangent_net(net, **shapes_of(feeds))
    for device in DEVICES.values():
        assert all(np.isfinite(array).all() for array in device(tangent)(feeds, directions).values())
