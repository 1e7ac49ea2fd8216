"""Bound weights as whole numbers and scales: texts before and after, in cells too, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.rewrite.bound_weights import int8_weights
from rnnops.errors import FeedError
from rnnops.ops.linear_algebra import as_int8
from rnnops.recurrent.cell_rewrites import without_unread_references
from rnnops.recurrent.recurrence import Recurrence

TEXT = """
net n(a, w, v, c)
    x = MatMul(a, w)
    y = Gemm(x, v, c, alpha=0.5, beta=2.0, transB=1) @ top
    z = MatMul(x, w)
    u = MatMul(w, y)
    return z, u, y
"""


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng([*shape]).standard_normal(shape).astype("f")


def lines(net: ro.Net) -> list[str]:
    return [line.strip() for line in str(net).splitlines()[1:-1]]


def test_products_alone_change() -> None:
    w, v = floats(4, 4), floats(4, 4)
    net, bound = int8_weights(ro.parse_net(TEXT), {"w": w, "v": v}, {})
    assert lines(net) == [
        "x/whole = Int8MatMul(a, w/int8)",
        "x = Mul(x/whole, w/scale)",
        "y/whole = Int8MatMul(x, v/int8) @ top",
        "y/product = Mul(y/whole, v/scale) @ top",
        'y/beta = Constant(value=2.0, dtype="float") @ top',
        "y/addend = Mul(c, y/beta) @ top",
        "y = Add(y/product, y/addend) @ top",
        "z/whole = Int8MatMul(x, w/int8)",
        "z = Mul(z/whole, w/scale)",
        "u = MatMul(w, y)",
    ]
    assert [*bound] == ["w", "w/int8", "w/scale", "v/int8", "v/scale"]  # `w` is on the left of a product as it was
    whole, scale = as_int8(v.T)
    np.testing.assert_array_equal(bound["v/int8"], whole)
    np.testing.assert_array_equal(bound["v/scale"], scale * np.float32(0.5))
    assert bound["v/int8"].flags.c_contiguous


def test_a_weight_as_it_is_and_turned_is_two() -> None:
    net = ro.Net("n")
    x, w = net.inputs("x", "w")
    net.outputs(y=ro.gemm(x @ w, w, transB=1, transA=1))
    changed, bound = int8_weights(net, {"w": floats(4, 4)}, {})
    assert lines(changed)[2:] == [
        "gemm_0/left = Transpose(mat_mul_0)",
        "gemm_0/whole = Int8MatMul(gemm_0/left, w/int8_1)",
        "gemm_0 = Mul(gemm_0/whole, w/scale_1)",
    ]
    assert [*bound] == ["w/int8", "w/scale", "w/int8_1", "w/scale_1"]


def test_stacks_of_matrices() -> None:
    net = ro.Net("n")
    x, w = net.inputs("x", "w")
    net.outputs(y=x @ w)
    changed, bound = int8_weights(net, {"w": floats(3, 4, 5)}, {})
    assert lines(changed)[-1] == "mat_mul_0 = ScaleColumns(mat_mul_0/whole, w/scale)"
    assert bound["w/scale"].shape == (3, 5)


def test_cells_change() -> None:
    """One that two cells share is stored once; what one of them adds, it still reads."""
    net = ro.Net("net")
    xs, h0, h1, shared = net.inputs("xs", "h0", "h1", "w")
    for name, initial in (("a", h0), ("b", h1)):
        cell = ro.Net(name)
        x, h, w = cell.inputs("x", "h", "w")
        cell.outputs(h_t=ro.tanh(x + h @ w) if name == "a" else ro.tanh(x + h @ w) + w)
        states, links, references = [("h", initial)], {"h": "h_t"}, {"w": shared}
        inputs = [("x", xs)]
        xs = ro.recurrent_net(net, cell, inputs, states, links, scope=name, references=references)[0]
    net.outputs(y=xs)
    changed, bound = int8_weights(net, {"w": floats(4, 4)}, {})
    first, second = (Recurrence(op, "net") for op in changed.ops)
    assert first.references == ("w/int8", "w/scale")
    assert second.references == ("w", "w/int8", "w/scale")
    assert first.op.inputs[-2:] == second.op.inputs[-2:] == ("w/int8", "w/scale")
    assert [op.type for op in first.cell.ops] == ["Int8MatMul", "Mul", "Add", "Tanh"]
    assert [*bound] == ["w", "w/int8", "w/scale"]
    assert without_unread_references(second.op) is second.op


def test_what_is_refused() -> None:
    net = ro.Net("refused")
    x, w = net.inputs("x", "w")
    net.outputs(y=x @ w)
    nan = floats(2, 3)
    nan[1, 2] = np.inf
    with pytest.raises(FeedError, match=r"net 'refused', op 'MatMul -> mat_mul_0', blob 'w': .* Not finite: of_user"):
        int8_weights(net, {"w": nan}, {"of_user": nan})
    with pytest.raises(FeedError, match="wanted float32; got float64"):
        int8_weights(net, {"w": np.ones((2, 3))}, {})
    with pytest.raises(FeedError, match="no bound input is a weight of a product"):
        int8_weights(net, {"x": floats(2, 3)}, {})


def test_what_follows_from_constants_is_no_weight() -> None:
    """Tables of transforms, say, whatever is done to them: nobody bound them."""
    table, w = floats(64, 64), floats(64, 8)
    net = ro.Net("n")
    x = net.input("x")
    net.outputs(y=x @ ro.transpose(net.constant(table), perm=[1, 0]), z=x @ net.input("w"))
    x_value = floats(3, 64)
    got = ro.compile(net).bind(w=w, weights="int8")(x=x_value)
    np.testing.assert_allclose(got["y"], x_value @ table.T, rtol=1e-4, atol=1e-4)
