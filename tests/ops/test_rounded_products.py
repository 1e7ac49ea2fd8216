"""Products of rounded operands on the reference device, beside float64 with operands rounded by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from op_cases import appended
from rounding import as_bfloat16, assert_rounded_alike

import rnnops as ro
from rnnops.errors import NetError, TypeRuleError
from rnnops.ops.linear_algebra import BFLOAT16, rounded

Array = Any
rounded_matmul = appended("RoundedMatMul", operands=BFLOAT16)


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def test_every_upper_half_with_halves_below_it() -> None:
    """All bfloat16 numbers, and what lies between each and the next: just above, half way, just beside that."""
    upper = np.arange(2**16, dtype=np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (upper[:, None] | lower).view(np.float32)
    came = rounded(x)
    finite = np.isfinite(x)
    with np.errstate(over="ignore"):
        wanted = as_bfloat16(np.where(finite, x, 0)).astype(np.float32)
    wanted[np.abs(as_bfloat16(np.where(finite, x, 0))) >= 2.0**128] = np.inf
    assert np.array_equal(np.abs(came[finite]), np.abs(wanted[finite]))
    assert np.array_equal(np.signbit(came[finite]), np.signbit(x[finite]))
    assert np.array_equal(came[~finite], x[~finite], equal_nan=True)
    assert not (came.view(np.uint32) & 0xFFFF).any()


def test_any_strides_and_no_axes() -> None:
    x = floats(4, 6)
    assert np.array_equal(rounded(x[::2, ::-3]), rounded(x)[::2, ::-3])
    assert rounded(np.float32(1.01)[()]).shape == ()
    assert rounded(x[:0]).shape == (0, 6)


PRODUCTS: dict[str, tuple[Callable[..., ro.Blob], Callable[..., ro.Blob], tuple[tuple[int, ...], ...]]] = {
    "matrices": (rounded_matmul, ro.matmul, ((3, 5), (5, 4))),
    "batched": (rounded_matmul, ro.matmul, ((2, 3, 5), (5, 4))),
    "a row": (rounded_matmul, ro.matmul, ((5,), (5, 4))),
    "a column": (rounded_matmul, ro.matmul, ((3, 5), (5,))),
    "gemm": (appended("RoundedGemm", operands=BFLOAT16), ro.gemm, ((3, 5), (5, 4), (4,))),
    "turned": (
        appended("RoundedGemm", operands=BFLOAT16, alpha=0.7, beta=1.3, transA=1, transB=1),
        lambda *blobs: ro.gemm(*blobs, alpha=0.7, beta=1.3, transA=1, transB=1),
        ((5, 3), (4, 5), (3, 4)),
    ),
}


def run_of(product: Callable[..., ro.Blob], count: int) -> ro.Run:
    net = ro.Net("products")
    net.outputs(y=product(*(net.input(name) for name in "abc"[:count])))
    return ro.compile(net, "reference")


@pytest.mark.parametrize("case", PRODUCTS)
def test_values_and_gradients(case: str) -> None:
    """Operands, and gradients that flow back, are rounded; a bias and what scales are not."""
    product, exact, shapes = PRODUCTS[case]
    feeds = {name: floats(*shape, seed=ord(name)) for name, shape in zip("abc", shapes, strict=False)}
    by_hand = {name: x if name == "c" else as_bfloat16(x) for name, x in feeds.items()}
    out, pullback = run_of(product, len(shapes)).vjp(feeds)
    wanted, back = run_of(exact, len(shapes)).vjp({name: x.astype(np.float64) for name, x in by_hand.items()})
    plain, plain_back = run_of(exact, len(shapes)).vjp(feeds)
    assert_rounded_alike(out["y"], wanted["y"], plain["y"])
    dy = floats(*out["y"].shape, seed=9)
    scale = np.float32(0.7) if case == "turned" else np.float32(1)
    grads, plain_grads = pullback(dy), plain_back(dy)
    found = back(as_bfloat16(scale * dy) / scale)
    for name in "ab":
        assert_rounded_alike(grads[name], found[name], plain_grads[name])
    if "c" in grads:
        assert np.array_equal(grads["c"], plain_grads["c"])


def test_infinities_and_nan() -> None:
    run = run_of(rounded_matmul, 2)
    out = run(a=np.array([[np.inf, 1.0], [np.nan, 1.0], [3.4e38, 0.0]], np.float32), b=np.ones((2, 1), np.float32))
    assert np.array_equal(out["y"], [[np.inf], [np.nan], [np.inf]], equal_nan=True)


def test_float64_and_unknown_operands_are_errors() -> None:
    with pytest.raises(TypeRuleError, match=r"RoundedMatMul -> .* blob 'a': operands that are rounded must be float32"):
        run_of(rounded_matmul, 2)(a=np.ones((2, 2)), b=np.ones((2, 2)))
    with pytest.raises(TypeRuleError, match="unknown operands; wanted bfloat16 or float16 or tfloat32; got 'float8'"):
        run_of(appended("RoundedMatMul", operands="float8"), 2)(a=floats(2, 2), b=floats(2, 2))
    net = ro.Net("n")
    with pytest.raises(NetError, match="attribute 'operands' is missing"):
        net.append("RoundedMatMul", [net.input("a"), net.input("b")])
