"""Uses of ops that rnnops makes itself, for the table of ops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from op_cases import EDGES, SHAPES, Array, Case, Shapes, appended, floats, integers, use

from rnnops.ops.base import from_bfloat16, quiet, scatter_add, scatter_slice, sum_to, to_bfloat16
from rnnops.ops.indexing import mask_rows
from rnnops.ops.linear_algebra import scale_columns
from rnnops.ops.reduction import sum_of_products
from rnnops.ops.shapes import dropout_grad


def internal_cases() -> Iterator[Case]:
    sums: Shapes = [((2, 7), (7,), 0), ((2, 7), (2, 1), 1), ((2, 7), (), (0, 1)), ((2, 7), (2, 7), ())]
    for shape, wanted, axes in (*sums, ((0, 7), (1, 7), 0)):
        total = use(lambda x, axes, wanted: (x.sum(axis=axes).reshape(wanted),), axes, wanted)
        yield Case("SumTo", f"{wanted}", use(sum_to, wanted), (floats(*shape),), total)

    def scattered(x: Array, indices: Array) -> tuple[Array]:
        result = np.zeros((2, 5), x.dtype)
        for place in np.ndindex(indices.shape):
            result[:, indices[place]] += np.moveaxis(x, 0, -1)[place]
        return (result,)

    for indices in (np.array([[0, 4, -1], [0, 0, 2]]), np.array(3), np.zeros((0,), np.int64)):
        yield Case("ScatterAdd", "", use(scatter_add, 1, 5), (floats(2, *indices.shape), indices), scattered)

    for left in ((2, 4), (2, 3, 4), (5, 2, 3, 4)):
        by_row = lambda x, scale: (x * (scale if x.ndim == 2 else scale[:, None]),)  # noqa: E731
        yield Case("ScaleColumns", "", scale_columns, (floats(*left), floats(2, 4)), by_row)

    def placed(x: Array) -> tuple[Array]:
        result = np.zeros((2, 7), x.dtype)
        result[:, 5:0:-2] = x
        return (result,)

    def normal(x: Array, mean: Array, inv_std_dev: Array, scale: Array, *bias: Array) -> tuple[Array]:
        return ((x - mean) * inv_std_dev * scale + sum(bias),)

    yield Case("ScatterSlice", "", use(scatter_slice, (2, 7), [5], [1], [-2]), (floats(2, 3),), placed)
    rows = (floats(2, 7), floats(2, 1), floats(2, 1), floats(7))
    yield Case("Normalize", "", appended("Normalize"), rows, normal)
    yield Case("Normalize", "bias", appended("Normalize"), (*rows, floats(7)), normal)
    masked = (floats(7), np.ones(7, bool))
    yield Case("DropoutGrad", "inactive", use(dropout_grad, 0.5), masked, lambda dy, mask: (dy,))

    def valid(x: Array, lengths: Array, t: Array, axis: int) -> tuple[Array]:
        rows = zip(np.moveaxis(x, axis, 0), lengths, strict=True)
        return (np.moveaxis(np.array([row * (t[0] < n) for row, n in rows]), 0, axis),)

    lengths, step = np.array([1, 0, 3, 2, 2, 9, 0], np.int32), np.array([1], np.int32)
    for axis, shape in ((0, (7,)), (0, (7, 2)), (1, (2, 7)), (1, (2, 7, 3)), (-1, (2, 3, 7))):
        inputs = (floats(*shape), lengths, step)
        yield Case("MaskRows", f"{axis}", use(mask_rows, axis), inputs, use(valid, axis))
    pairs = (floats(2, 7), floats(3, 2, 7), floats(2, 1), floats(7), floats(7), floats(2, 7))
    products = lambda a, b, c, x, y, z: (a * x + b * y + c * z,)  # noqa: E731
    yield Case("SumOfProducts", "", lambda *blobs: sum_of_products(blobs[:3], blobs[3:]), pairs, products)
    check = use(lambda i: i.net.append("CheckLabels", [i], {"classes": 7, "ignore_index": -1}))
    yield Case("CheckLabels", "", check, (integers(7, low=-1),), lambda i: (i,))
    check = use(lambda i, like: i.net.append("CheckCount", [i, like], {"axis": 1}))
    yield Case("CheckCount", "", check, (integers(7, low=0), floats(2, 9)), lambda i, like: (i,))


def bfloat16_cases() -> Iterator[Case]:
    def nearest(x: Array) -> tuple[Array]:
        """Found by its distance, in float64; the bits are the sign, the exponent and seven digits."""
        x = np.asarray(x, "float32").astype("float64")
        unit = np.ldexp(1.0, np.maximum(np.frexp(np.where(np.isfinite(x), x, 1))[1], -125) - 8)
        rounded = np.where(np.isfinite(x), np.rint(x / unit) * unit, np.where(np.isnan(x), np.nan, x))
        return (np.frombuffer(rounded.astype("float32").tobytes(), "uint16")[1::2].reshape(x.shape),)

    def numbers(x: Array) -> tuple[Array]:
        pairs = np.stack([np.zeros(x.shape, "uint16"), x.astype("uint16")], -1)
        return (np.frombuffer(pairs.tobytes(), "float32").reshape(x.shape).astype(x.dtype),)

    ties = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -3 - 2.0**-7, 2.0**-133 * 1.5, 3.4e38])
    for x in (*(floats(*shape) for shape in SHAPES), EDGES, ties):
        yield Case("ToBfloat16", "", to_bfloat16, (x,), quiet(nearest))
    bits = np.array([0.0, 0x8000, 0x3F80, 0xC049, 0x0001, 0x7F80, 0xFF80, 0x7F7F])
    for codes in (bits, bits[:0], bits[:6].reshape(2, 1, 3), bits[2]):
        yield Case("FromBfloat16", "", from_bfloat16, (np.asarray(codes),), numbers)
