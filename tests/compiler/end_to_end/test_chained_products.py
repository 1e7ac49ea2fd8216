"""Products of products: what one thread computes of its rows, a gradient of a weight reads of all rows."""

from __future__ import annotations

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
