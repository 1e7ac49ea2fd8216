"""Products of products: what one thread computes of its rows, a gradient of a weight reads of all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rnnops as ro

T, N, H, RANK = 12, 32, 64, 16


def low_rank() -> ro.Net:
    """A gate of low rank, as decays of recent cells are, of which all products leave the loop."""

    @ro.cell
    def cell(x, h, *, down, up, u):  # type: ignore[no-untyped-def]
        return {"h": ro.sigmoid(x @ down @ up) * h + x @ u}

    net = ro.Net("net")
    _, ys = ro.scan(cell, net.input("xs"), h=net.input("h0"))
    net.outputs(y=ys["h"])
    return net


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_gradients_of_a_product_of_a_product(threads: int) -> None:
    rng = np.random.default_rng(0)
    shapes = {"xs": (T, N, H), "h0": (N, H), "down": (H, RANK), "up": (RANK, H), "u": (H, H)}
    feeds = {name: rng.normal(size=shape) / 4 for name, shape in shapes.items()}
    run = ro.compile(low_rank(), threads=threads)
    assert threads == 1 or f"{threads} threads" in str(run.plan(feeds))
    for _ in range(5):  # a race that is won by chance is lost by the next
        ro.testing.check_devices(low_rank(), feeds, {"cpu": lambda net: ro.compile(net, threads=threads)})


# steps in which something else reads a product that is added up: the gradient of a weight does, over all steps
READ_TWICE: dict[str, Callable[..., Any]] = {
    "a looked-up row beside a state": lambda x, h, e, w: np.tanh((h + x @ e) @ w) + 0.5 * h,
    "a looked-up row that is mixed": lambda x, h, e, w: np.tanh(h + x @ e + (x @ e) @ w),
    "a product that gates itself": lambda x, h, e, w: ro.sigmoid(x @ e) * (x @ e + h @ w) + h,
    "tied weights": lambda x, h, e, w: np.tanh((h @ w + x @ e) @ w) @ w + h,
    "a residual around each product": lambda x, h, e, w: (h + x @ e) + ((h + x @ e) + h @ w) @ w,
}


@pytest.mark.parametrize("name", READ_TWICE)
@pytest.mark.parametrize("N", [1, 3])
def test_gradients_where_a_product_is_added_up_and_read_by_itself(name: str, N: int) -> None:
    net, step = ro.Net("net"), READ_TWICE[name]

    @ro.cell(dtypes={"i": "int32"})
    def cell(i, h, *, e, w):  # type: ignore[no-untyped-def]
        return {"h": step(ro.one_hot(i, 6), h, e, w)}

    _, ys = ro.scan(cell, net.input("ids", "int32"), h=net.input("h0"))
    net.outputs(y=ys["h"])
    shapes = {"h0": (N, 4), "e": (6, 4), "w": (4, 4)}
    feeds = {name: np.random.default_rng(0).normal(size=shape) / 2 for name, shape in shapes.items()}
    feeds["ids"] = np.random.default_rng(1).integers(0, 6, (3, N)).astype("int32")
    ro.testing.check_devices(net, feeds, ["cpu"])


@pytest.mark.parametrize("N", [1, 2])
@pytest.mark.parametrize("column", [0, 1])
def test_a_part_of_a_product_is_added_to_something(N: int, column: int) -> None:
    """In a batch of one row a column lies in memory as all of a product with one column would."""

    @ro.cell
    def cell(x, c, *, w):  # type: ignore[no-untyped-def]
        return {"c": np.tanh(c + (x @ w)[:, column : column + 1])}

    net = ro.Net("net")
    _, ys = ro.scan(cell, net.input("xs"), c=net.input("c0"))
    net.outputs(y=ys["c"])
    random = np.random.default_rng(0)
    feeds = {name: random.normal(size=shape) for name, shape in {"xs": (2, N, 3), "c0": (N, 1), "w": (3, 2)}.items()}
    ro.testing.check_devices(net, feeds, ["cpu"])
