"""Weights as whole numbers of a byte, beside the words that say it, and products with them on the reference device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import DEVICES

import rnnops as ro
from rnnops.errors import DeviceError
from rnnops.kernels.cpu.processor import has_quads, vector_width
from rnnops.ops.linear_algebra import as_int8, byte_matmul, int8_matmul, scale_columns

Array = Any


def floats(*shape: int) -> Array:
    return np.random.default_rng([*shape]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(7, 5), (1, 4), (6,), (3, 4, 5), (0, 3), (4, 0)])
def test_columns(shape: tuple[int, ...]) -> None:
    w = floats(*shape)
    whole, scale = as_int8(w)
    assert whole.dtype == scale.dtype == np.float32
    columns, numbers = (w[:, None], whole[:, None]) if w.ndim == 1 else (w, whole)
    assert scale.shape == columns.shape[:-2] + columns.shape[-1:] or w.ndim == 1
    wanted = np.abs(columns).max(-2, initial=0) / np.float32(127)
    np.testing.assert_array_equal(np.atleast_1d(scale), np.where(wanted == 0, 1, wanted))
    assert np.array_equal(numbers, np.rint(numbers))
    if w.size:
        assert (np.abs(numbers).max(-2) == 127).all()
    error = np.abs(columns - numbers * np.atleast_1d(scale)[..., None, :].astype(np.float64))
    assert (error <= np.atleast_1d(scale)[..., None, :] * 0.50001).all()


def test_halves_go_to_the_even_number_and_zeros_stay() -> None:
    w = np.array([[127, 0, 254], [0.5, 0, 1], [1.5, 0, -3], [-2.5, 0, 5]], np.float32)
    whole, scale = as_int8(w)
    assert scale.tolist() == [1, 1, 2]
    assert whole.T.tolist() == [[127, 0, 2, -2], [0, 0, 0, 0], [127, 0, -2, 2]]


def test_numbers_next_to_zero_are_no_infinities() -> None:
    tiny = np.float32(1e-45)
    for w in (np.full((3, 2), tiny), np.full((3, 2), 126 * tiny), np.full((3, 2), np.float32(3e38))):
        whole, scale = as_int8(w)
        assert np.isfinite(whole).all()
        assert (np.abs(whole) <= 127).all()
        np.testing.assert_allclose(whole * scale, w, rtol=1e-6, atol=1e-42)


@pytest.mark.parametrize(("left", "right"), [((2, 3, 4), (4, 5)), ((4,), (3, 4, 5)), ((6, 3, 1, 4), (3, 4, 5))])
def test_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    net = ro.Net("n")
    a, b, scale = net.inputs("a", "b", "scale")
    net.outputs(y=scale_columns(int8_matmul(a, b), scale))
    w = floats(*right)
    whole, scales = as_int8(w)
    feeds = {"a": floats(*left), "b": whole, "scale": scales}
    wanted = feeds["a"].astype(float) @ (whole * np.expand_dims(scales, -2).astype(float))
    for device in ("reference", "cpu"):
        np.testing.assert_allclose(ro.compile(net, device)(feeds)["y"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("left", "right"), [((2, 3, 40), (40, 5)), ((40,), (40, 5)), ((6, 9, 40), (40, 70))])
def test_products_of_bytes(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Compiled code has them where the processor multiplies bytes."""
    net, draw = ro.Net("n"), np.random.default_rng(0)
    net.outputs(y=byte_matmul(*net.inputs("a", "b")))
    feeds = {"a": draw.integers(0, 256, left).astype("f"), "b": draw.integers(-128, 128, right).astype("f")}
    for name, make in DEVICES.items():
        if name == "cpu" and not has_quads(vector_width()):
            with pytest.raises(DeviceError, match="VNNI"):
                make(net).bind(b=feeds["b"])(a=np.zeros((99, 40), "f"))
            continue
        np.testing.assert_array_equal(make(net)(feeds)["y"], feeds["a"].astype(int) @ feeds["b"].astype(int), name)
