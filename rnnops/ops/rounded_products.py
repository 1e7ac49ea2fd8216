"""Matrix products of rounded operands: what MatMul and Gemm of a net become where `ro.compile` is told a precision.

Each operand is rounded to the nearest number of a format, of two that are as near to the even one:

- bfloat16, the upper half of a float32: 8 of its 24 digits;
- float16, IEEE 754's: 11 digits, and nothing beyond 65504;
- tfloat32, what tensor cores take of a float32: 11 digits; of two that are as near to the one that is larger in size,
  as devices round.

Infinities stay, what is beyond the largest number by half a step or more becomes one, NaN stays NaN, numbers below the
smallest normal one are rounded as well. A product of two such numbers has 22 bits at most, which float32 holds unless
it is tiny or huge; products are summed in float32. Gradients are products of the same kind, of rounded operands too,
and do not see rounding: to them it is the identity.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob, Operand
from rnnops.loops import Product
from rnnops.net import common_net
from rnnops.ops.base import choice, quiet
from rnnops.ops.products import Gemm, MatMul
from rnnops.schema import REQUIRED, Call, register
from rnnops.types import Array, Shape

BFLOAT16, FLOAT16, TFLOAT32 = "bfloat16", "float16", "tfloat32"
FORMATS = (BFLOAT16, FLOAT16, TFLOAT32)
FORMS = {operands: Product(operands) for operands in FORMATS}


def rounded(x: Array, operands: str = BFLOAT16) -> Array:
    """Float32 numbers rounded to a format, as float32: the meaning of it, which compiled code is compared with."""
    if operands == FLOAT16:
        with np.errstate(over="ignore"):  # infinity is what is meant
            return np.asarray(x).astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(x).view(np.uint32)
    digits, half = (np.uint32(0xFFFFE000), 0x1000) if operands == TFLOAT32 else (np.uint32(0xFFFF0000), 0x7FFF)
    odd = (bits >> np.uint32(16)) & np.uint32(operands == BFLOAT16)  # of two that are as near, the even one
    more = np.uint32(half) + odd
    quiet_nan, nearest = (bits | np.uint32(0x400000)) & digits, (bits + more) & digits
    return np.asarray(np.where(np.isnan(x), quiet_nan.reshape(x.shape), nearest.reshape(x.shape))).view(np.float32)


def check_operands(call: Call) -> str:
    """What operands are rounded to. Raises TypeRuleError for what cannot be rounded, and for no such format."""
    operands = choice(call, "operands", *FORMATS)
    for i in range(2):
        if call.dtype(i) == "float64":
            call.fail("operands that are rounded are float32", blob=call.op.inputs[i], came="float64")
    return operands


class RoundedMatMul(MatMul):
    """MatMul of rounded operands."""

    attributes: ClassVar[dict[str, Any]] = {"operands": REQUIRED}
    internal = True
    loop = FORMS[BFLOAT16]

    def __call__(self, a: Operand, b: Operand, operands: str = BFLOAT16) -> Blob:
        net = common_net([a, b])
        return net.append(self.name, net.operands([a, b]), {"operands": operands})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        check_operands(call)
        return super().shapes(call)

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        operands = call.attr("operands")
        return super().reference(call, rounded(a, operands), rounded(b, operands))

    def loop_form(self, call: Call) -> Product:
        return FORMS[check_operands(call)]

    def again(self, call: Call, a: Blob, b: Blob) -> Blob:
        return self(a, b, call.attr("operands"))


class RoundedGemm(Gemm):
    """Gemm whose product is of rounded operands; what it is scaled with, and what is added, is not rounded."""

    attributes: ClassVar[dict[str, Any]] = {**Gemm.attributes, "operands": REQUIRED}
    internal = True

    def __call__(
        self,
        a: Blob,
        b: Blob,
        c: Operand | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        operands: str = BFLOAT16,
    ) -> Blob:
        net = common_net([a, b])
        bias = [] if c is None else net.operands([c], a.dtype)
        options = {"alpha": alpha, "beta": beta, "transA": transA, "transB": transB, "operands": operands}
        return net.append(self.name, [a, b, *bias], options)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        check_operands(call)
        return super().shapes(call)

    @quiet
    def reference(self, call: Call, a: Array, b: Array, c: Array | None = None) -> Array:
        operands = call.attr("operands")
        return super().reference(call, rounded(a, operands), rounded(b, operands), c)

    def product(self, call: Call, a: Blob, b: Blob) -> Blob:
        return rounded_matmul(a, b, call.attr("operands"))


rounded_matmul, rounded_gemm = register(RoundedMatMul()), register(RoundedGemm())
ROUNDED = {"MatMul": rounded_matmul.name, "Gemm": rounded_gemm.name}
