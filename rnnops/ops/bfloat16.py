"""bfloat16 as uint16, which NumPy has: what is stored between the passes where `residuals="bfloat16"` asks for it.

A bfloat16 is the upper half of a float32: its sign, its exponent, and 8 of its 24 digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Pointwise
from rnnops.net import common_net
from rnnops.ops.base import Unary, quiet
from rnnops.schema import Call, OpSchema, no_gradient, register
from rnnops.types import FLOATS, Array, Shape

BITS = "uint16"


def bits_of(x: Array) -> Array:
    """Floats as bits of bfloat16: of the nearest one, the even one of two that are as near; NaN has the same always."""
    pattern = np.where(np.isnan(x), np.float32(np.nan), x.astype(np.float32)).view(np.uint32)
    odd = (pattern >> np.uint32(16)) & np.uint32(1)
    return np.asarray(((pattern + odd + np.uint32(0x7FFF)) >> np.uint32(16)).astype(BITS))


def numbers_of(bits: Array) -> Array:
    """The float32 numbers that bits of bfloat16 stand for."""
    return np.asarray((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))


class ToBfloat16(Unary):
    """The bits of floats as bfloat16; float64 becomes float32 first."""

    internal = True
    gradient = no_gradient
    loop = Pointwise("bfloat16_code({0})")

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return (BITS,)

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        return bits_of(x)


class FromBfloat16(OpSchema):
    """The numbers that bits of bfloat16 stand for, which come as whole numbers of the run's float dtype.

    x: whole numbers from 0 to 65535; others give any numbers.
    """

    accepts = FLOATS
    internal = True
    gradient = no_gradient
    loop = Pointwise("bfloat16_value({0})")

    def __call__(self, x: Blob) -> Blob:
        return common_net([x]).apply(self.name, [x])

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.shape(0),)

    def reference(self, call: Call, x: Array) -> Array:
        return numbers_of(x.astype(BITS)).astype(x.dtype)


to_bfloat16, from_bfloat16 = register(ToBfloat16()), register(FromBfloat16())
