"""Products of arrays rounded to 8 bits with bound whole numbers: done in bytes where that is exact, with equal bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import PLAIN
from native_programs import exported, needs_compiler

import rnnops as ro
from rnnops.compiler.rewrite.bound_weights import byte_products
from rnnops.kernels.cpu.processor import has_quads, vector_width

Array = np.ndarray[Any, Any]
IN_BYTES = has_quads(vector_width())


def rounded_product(most: float = 255.0, ranged: bool = True) -> ro.Net:
    """x in 8 bits by its own range, as ONNX's files have it, times w; or with a zero point that is given."""
    net = ro.Net("n")
    x, w = net.inputs("x", "w")
    low, high = ro.min(ro.reduce_min(x, keepdims=0), 0.0), ro.max(ro.reduce_max(x, keepdims=0), 0.0)
    width = high - low
    scale = ro.where(ro.equal(width, 0.0), 1.0, width) / 255.0
    zero = ro.round(ro.clip(-low / scale, 0.0, 255.0) if ranged else net.input("zero"))
    numbers = ro.clip(ro.round(x / scale) + zero, 0.0, most)
    net.outputs(y=((numbers - zero) @ w) * scale)
    return net


def weights(low: int = -128, high: int = 127) -> Array:
    draw = np.random.default_rng(0)
    return np.concatenate([[[low] * 20, [high] * 20], draw.integers(low, high + 1, (38, 20))]).astype("f")


def ops(net: ro.Net, w: Array) -> list[str]:
    return [op.type for op in byte_products(net, {"w": w})[0].ops]


def test_the_product_is_of_bytes_and_the_zero_point_comes_after_it() -> None:
    net, bound = byte_products(rounded_product(), {"w": weights()})
    assert [line.strip() for line in str(net).splitlines()[-5:-2]] == [
        "mat_mul_0/bytes = ByteMatMul(clip_1, w)",
        "mat_mul_0/zero = Mul(round_0, w/sum)",
        "mat_mul_0 = Sub(mat_mul_0/bytes, mat_mul_0/zero)",
    ]
    np.testing.assert_array_equal(bound["w/sum"], weights().sum(0))


@pytest.mark.parametrize(
    "w",
    [
        weights(-129, 127),
        weights(-128, 128),
        weights() + np.float32(0.5),
        weights().astype("float64"),
        np.full((600, 20), 127, "f"),  # the sum could be above 2^24
        np.full((1, 40, 20), 1, "f"),
        np.where(weights() == 127, np.float32("nan"), weights()),
        np.zeros((0, 20), "f"),
    ],
)
def test_weights_that_do_not_fit(w: Array) -> None:
    assert "ByteMatMul" in ops(rounded_product(), weights())
    assert "ByteMatMul" not in ops(rounded_product(), w)


def test_arrays_that_may_not_fit() -> None:
    assert "ByteMatMul" not in ops(rounded_product(256.0), weights())
    assert "ByteMatMul" not in ops(rounded_product(254.0), weights())  # only the form that files have is known
    assert "ByteMatMul" not in ops(rounded_product(ranged=False), weights())  # nan in x need not reach it
    assert "ByteMatMul" not in [op.type for op in byte_products(rounded_product(), {})[0].ops]


@pytest.mark.parametrize("kind", ["normal", "zeros", "above", "nan", "inf"])
@pytest.mark.parametrize("tuning", [None, PLAIN])
def test_results_have_the_bits_of_floats(kind: str, tuning: Any) -> None:
    """Not finite ones stay so."""
    x = np.random.default_rng(1).normal(size=(7, 3, 40)).astype("f")
    x = {"zeros": 0 * x, "above": np.abs(x) + 1}.get(kind, x)
    if kind in ("nan", "inf"):
        x[2, 1, 5] = kind
    net, w = rounded_product(), weights()
    wanted = ro.compile(net, device="reference")(x=x, w=w)["y"]
    run = ro.compile(net, threads=1, **({} if tuning is None else {"tuning": tuning})).bind(w=w)
    came = run(x=x)["y"]
    assert ("of bytes" in str(run.plan(x=x, backward=False))) == IN_BYTES
    if kind in ("nan", "inf"):
        assert not np.isfinite(came).any()
        assert not np.isfinite(wanted).any()
    else:
        np.testing.assert_array_equal(came, wanted)


def test_gradients_are_those_of_the_net() -> None:
    x, w = np.random.default_rng(1).normal(size=(7, 40)).astype("f"), weights()
    dy = np.random.default_rng(2).normal(size=(7, 20)).astype("f")
    found = []
    for run in (ro.compile(rounded_product(), device="reference"), ro.compile(rounded_product()).bind(w=w)):
        _, pullback = run.vjp(x=x, **({} if found else {"w": w}))
        found.append(pullback({"y": dy})["x"])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("source", [None, "c99"])
@pytest.mark.parametrize("inner", [40, 41])
def test_exported_weights_are_bytes(source: str | None, inner: int, tmp_path: Path) -> None:
    x, w = np.random.default_rng(1).normal(size=(7, inner)).astype("f"), np.resize(weights(), (inner, 20))
    run = ro.compile(rounded_product(), threads=1).bind(w=w)
    program, wanted = exported(run, tmp_path, {"x": x}, source=source), run(x=x)
    came = {"y": np.zeros((7, 20), "f")}
    assert program({"x": x}, came) == 0
    np.testing.assert_allclose(came["y"], wanted["y"], rtol=1e-6)
    if IN_BYTES:
        lying = w[0, :8] if source else w[:4, :2].T  # row by row, or words of four
        assert lying.astype("int8").tobytes() in program.files.weights.read_bytes()
