"""Matrix products with whole numbers of a byte each: what MatMul becomes whose weights are bound as int8.

A weight w [..., K, N] is kept as q [..., K, N] and a scale [..., N]: `scale = max |column| / 127`, 1 for a column of
zeros, and `q = w / scale`, rounded to the nearest whole number, of two that are as near to the even one. So q is from
-127 to 127, and each number of w is off by half a scale at most. `x @ w` is `(x @ q) * scale` then, all in float32.

VNNI, and what is like it, would round x to a byte as well; that is another meaning, and x stays what it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Expansion, Product
from rnnops.ops.base import Binary
from rnnops.ops.movement import unsqueeze
from rnnops.ops.products import MatMul, matmul
from rnnops.schema import Call, register
from rnnops.types import FLOATS, Array, Shape

INT8 = "int8"
LARGEST = 127


class Columns(NamedTuple):
    """A weight column by column: whole numbers, and what they are multiplied by."""

    whole: Array
    scale: Array


def as_int8(w: Array) -> Columns:
    """Finite float32 numbers [..., K, N], or [K], as whole ones, which are float32 too: the meaning of it."""
    largest = np.max(np.abs(w), axis=max(-2, -w.ndim), initial=0)
    scale = np.asarray(largest / np.float32(LARGEST), np.float32)
    scale = np.where(scale > 0, scale, np.float32(1))  # of a column of zeros, or of numbers next to zero
    by_row = scale[..., None, :] if w.ndim > 1 else scale
    return Columns(np.clip(np.rint(w / by_row), -LARGEST, LARGEST), scale)


class Int8MatMul(MatMul):
    """MatMul whose right operand is whole numbers from -127 to 127, which may lie in memory as bytes."""

    internal = True
    loop = Product(INT8)

    def again(self, call: Call, a: Blob, b: Blob) -> Blob:
        return matmul(a, b)


class ScaleColumns(Binary):
    """Products A [..., M, N] with a stack of matrices times their scales B [..., N]; a single row of A has no M."""

    accepts = FLOATS
    internal = True
    differentiable = False
    loop = Expansion()

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.shape(0),)

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(a * (b if a.ndim == b.ndim else b[..., None, :]))

    def expand(self, call: Call, a: Blob, b: Blob) -> Blob:
        return a * (b if call.rank(0) == call.rank(1) else unsqueeze(b, [-2]))


int8_matmul, scale_columns = register(Int8MatMul()), register(ScaleColumns())
