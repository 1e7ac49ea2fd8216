"""bfloat16 of processors: every number that lies half way, every code, and NaN of any bits."""

from __future__ import annotations

import numpy as np

from rnnops.kernels.cpu.pointwise import bfloat16_code, bfloat16_value
from rnnops.ops.base import bits_of, numbers_of


def test_codes_are_nearest_and_even() -> None:
    between = (np.arange(1, 2**17, 2, dtype="uint32") << np.uint32(15)).view("float32")
    finite = between[np.isfinite(between)]
    below = finite.view("uint32") >> np.uint32(16)
    codes = bfloat16_code(finite)
    assert not (codes % 2).any()
    np.testing.assert_array_equal(codes, bits_of(finite))
    for towards, wanted in ((0, below), (np.copysign(np.inf, finite), below + 1)):
        side = np.nextafter(finite, np.float32(towards))
        np.testing.assert_array_equal(bfloat16_code(side), wanted)
        np.testing.assert_array_equal(bits_of(side), wanted)


def test_every_number_has_its_code() -> None:
    codes = np.arange(2**16)
    found = numbers_of(codes)
    assert np.array_equal(found.view("uint32"), codes << 16)
    assert np.array_equal(bfloat16_value(codes.astype("float32")), found, equal_nan=True)
    known = ~np.isnan(found)
    assert np.array_equal(bfloat16_code(found[known]), codes[known])


def test_nan_has_one_code() -> None:
    nan = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], "uint32").view("float32")
    assert set(bfloat16_code(nan)) == set(bits_of(nan)) == {0x7FC0}
