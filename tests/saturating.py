"""MatMulInteger as processors without VNNI compute it in ONNX Runtime: pairs of products stop at 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


def saturated_product(a: Array, b: Array, a_zero: Any = 0) -> Array:
    """`(a - a_zero) @ b` of uint8 and int8, as `vpmaddubsw` adds pairs of `a * b`."""
    wide, whole = a.astype("int64"), b.astype("int64")
    total = -np.int64(a_zero) * whole.sum(-2, keepdims=a.ndim > 1)
    for k in range(0, a.shape[-1], 2):
        total = total + np.clip(wide[..., k : k + 2] @ whole[..., k : k + 2, :], -32768, 32767)
    return np.asarray(total, "int32")


class MatMulInteger(OpRun):  # type: ignore[misc]
    """The op for `onnx.reference`."""

    op_domain = ""

    def _run(self, a: Array, b: Array, a_zero: Any = 0, b_zero: Any = 0) -> tuple[Array]:
        assert not np.any(b_zero)
        return (saturated_product(a, b, a_zero),)
