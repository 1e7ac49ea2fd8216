"""Matrix products: MatMul (batched, 1-D operands, broadcasting) and Gemm."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob, Operand
from rnnops.loops import Expansion, Product
from rnnops.net import common_net
from rnnops.ops.base import Binary, flag, number, quiet
from rnnops.ops.movement import squeeze, transpose, unsqueeze
from rnnops.schema import Call, Gradients, OpSchema, register
from rnnops.types import FLOATS, Array, Shape


class MatMul(Binary):
    """Matrix product over the last two axes, the others broadcast; also written `a @ b`.

    ONNX: MatMul, op set 13. An operand of one axis is a row on the left and a column on the right, and that axis is not
    in the result. As matrices the gradients are `dy @ b.T` and `a.T @ dy`. `precision=` of `ro.compile` may round
    operands.

    Args:
        a: [..., M, K] or [K] float, a blob or an array.
        b: [..., K, N] or [K] float, a blob or an array; one of both is a blob.

    Returns:
        [..., M, N] of the same dtype.

    Raises:
        NetError: neither is a blob, or they are of two nets.
        TypeRuleError: one is not float; once shapes are known, K differs, one has no axis, or the others do not
            broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.matmul(net.input("x"), net.input("w")))
        >>> feeds = {"x": np.array([[1.0, 2.0]]), "w": np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 3.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[1., 2., 8.]])
    """

    accepts = FLOATS
    keeps = ("A", "B")
    loop = Product()

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        a, b = call.shape(0), call.shape(1)
        if not a or not b:
            call.fail("a product needs operands of rank 1 or more", came=f"{list(a)} @ {list(b)}")
        inner = b[-2] if len(b) > 1 else b[0]
        if a[-1] != inner:
            came = f"{list(a)} @ {list(b)}"
            call.fail("inner sizes of a product differ", wanted=f"{a[-1]} rows on the right", came=came)
        return (call.broadcast(a[:-2], b[:-2]) + a[-2:-1] + (b[-1:] if len(b) > 1 else ()),)

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.matmul(a, b))

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, dc: Blob) -> Gradients:
        # As matrices: dA = dC B^T, dB = A^T dC; 1-D operands are widened first and narrowed last.
        row, column = call.rank(0) == 1, call.rank(1) == 1
        dc = unsqueeze(dc, [-1]) if column else dc
        dc = unsqueeze(dc, [-2]) if row else dc
        left, right = unsqueeze(a, [0]) if row else a, unsqueeze(b, [1]) if column else b
        da = self.again(call, dc, swap_last_axes(right, max(call.rank(1), 2)))
        db = self.again(call, swap_last_axes(left, max(call.rank(0), 2)), dc)
        return squeeze(da, [-2]) if row else da, squeeze(db, [-1]) if column else db

    def again(self, call: Call, a: Blob, b: Blob) -> Blob:
        """Another product of the same kind."""
        return self(a, b)


class Gemm(OpSchema):
    """`alpha * A @ B + beta * C` of matrices, of which A and B may be transposed first.

    ONNX: Gemm, op set 13. Gradients are products like these; that of c is summed over what was repeated.

    Args:
        a: [M, K] float, or [K, M] with `transA`.
        b: [K, N] float, or [N, K] with `transB`.
        c: float, a blob, a number or an array that broadcasts to [M, N]; none if left out.
        alpha, beta: numbers.
        transA, transB: 1 or True to transpose.

    Returns:
        [M, N] of the same dtype.

    Raises:
        NetError: a or b is no blob, they are of several nets, or an attribute is no number or flag.
        TypeRuleError: one is not float; once shapes are known, a or b is no matrix, K differs, or c does not broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> x, w = net.inputs("x", "w")
        >>> net.outputs(y=ro.gemm(x, w, np.array([10.0, 20.0]), transB=1))
        >>> feeds = {"x": np.array([[1.0, 2.0]]), "w": np.array([[1.0, 0.0], [3.0, 4.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[11., 31.]])
    """

    inputs = ("A", "B", "C?")
    attributes: ClassVar[dict[str, Any]] = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    accepts = FLOATS
    keeps = ("A", "B")
    broadcasts = True
    loop = Expansion()

    def __call__(
        self,
        a: Blob,
        b: Blob,
        c: Operand | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,
        transB: int = 0,
    ) -> Blob:
        net = common_net([a, b])
        bias = [] if c is None else net.operands([c], a.dtype)
        scales = {"alpha": number(alpha, self.name), "beta": number(beta, self.name)}
        attributes = {**scales, "transA": flag(transA, self.name), "transB": flag(transB, self.name)}
        return net.append(self.name, [a, b, *bias], attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if call.rank(0) != 2 or call.rank(1) != 2:
            call.fail("Gemm multiplies matrices", wanted="rank 2", came=f"{list(call.shape(0))}, {list(call.shape(1))}")
        a = call.shape(0)[::-1] if call.attr("transA") else call.shape(0)
        b = call.shape(1)[::-1] if call.attr("transB") else call.shape(1)
        if a[1] != b[0]:
            call.fail("inner sizes of a product differ", came=f"{list(a)} @ {list(b)}")
        result = (a[0], b[1])
        if call.has(2) and call.broadcast(call.shape(2), result) != result:
            call.fail("C does not broadcast to the product", wanted=list(result), came=list(call.shape(2)))
        return (result,)

    @quiet
    def reference(self, call: Call, a: Array, b: Array, c: Array | None = None) -> Array:
        product = np.matmul(a.T if call.attr("transA") else a, b.T if call.attr("transB") else b)
        product = product * a.dtype.type(call.attr("alpha"))
        return np.asarray(product if c is None else product + a.dtype.type(call.attr("beta")) * c)

    def gradient(self, call: Call, a: Blob, b: Blob, *rest: Blob) -> Gradients:
        dy = rest[-1]
        scaled = dy * call.attr("alpha")
        left, right = (transpose(a) if call.attr("transA") else a), (transpose(b) if call.attr("transB") else b)
        da, db = self.product(call, scaled, transpose(right)), self.product(call, transpose(left), scaled)
        da, db = (transpose(da) if call.attr("transA") else da), (transpose(db) if call.attr("transB") else db)
        return (da, db, dy * call.attr("beta")) if call.has(2) else (da, db)

    def expand(self, call: Call, a: Blob, b: Blob, c: Blob | None = None) -> Blob:
        left, right = (transpose(a) if call.attr("transA") else a), (transpose(b) if call.attr("transB") else b)
        scaled: Blob = self.product(call, left, right) * call.attr("alpha")
        return scaled if c is None else scaled + c * call.attr("beta")

    def product(self, call: Call, a: Blob, b: Blob) -> Blob:
        """A product of matrices as this op does it."""
        return matmul(a, b)


def swap_last_axes(x: Blob, rank: int) -> Blob:
    """The transposes of a stack of matrices."""
    return transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


matmul, gemm = register(MatMul()), register(Gemm())
