"""The driver of a scan as text: where threads that share out columns of products wait for each other."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import rnnops as ro

H = 64
Build = Callable[..., ro.Blob]


def step_of(build: Build) -> list[str]:
    """What a driver does at each step of `h_t = build(x, h, w, u)`: its products, its row programs, and its waits."""
    cell, net = ro.Net("cell"), ro.Net("net")
    cell.outputs(h_t=build(*cell.inputs("x", "h", "w", "u")))
    given = {name: net.input(name) for name in ("w", "u")}
    first = [("x", net.input("xs"))], [("h", net.input("h0"))], {"h": "h_t"}
    net.outputs(y=ro.recurrent_net(net, cell, *first, references=given)[0])
    plan = ro.compile(net, threads=2).plan(xs=(4, 2, H), h0=(2, H), w=(H, H), u=(H, H), backward=False)
    steps = plan.source.partition("for step in range(steps):")[2]
    return re.findall(r"\b(gemm_packed|rows_\d+|wait)\(", steps)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda x, h, w, u: ro.tanh(x + h @ w), "wait gemm_packed wait rows_0"),
        (lambda x, h, w, u: ro.tanh((h @ w) @ u) * x, "wait gemm_packed wait gemm_packed wait rows_0"),
        (lambda x, h, w, u: ro.tanh(h @ w) * ro.exp(h @ u) * x, "wait gemm_packed gemm_packed wait rows_0"),
    ],
    ids=["one", "a product of a product", "two of the same state"],
)
def test_products_wait_for_all_that_they_read(build: Build, wanted: str) -> None:
    assert step_of(build) == wanted.split()
