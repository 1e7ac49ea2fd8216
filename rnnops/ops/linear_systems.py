"""Ops on square matrices over the last two axes: systems of equations, Cholesky factors, determinants.

References call LAPACK through NumPy. There are no loop forms, so these ops run in the interpreter on every device. Not
in ONNX: exports refuse them. A matrix without a result is an error, as in PyTorch. Limit: results of NaN and infinities
are not finite, where PyTorch's Cholesky raises an error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rnnops.errors import NumericsError
from rnnops.net.blob import Blob
from rnnops.net.net import common_net
from rnnops.net.schema import Call, Gradients, OpSchema, register
from rnnops.ops.base import Binary, Unary, quiet
from rnnops.ops.movement import unsqueeze
from rnnops.ops.products import matmul, swap_last_axes
from rnnops.types import FLOATS, Array, Shape


@quiet
def by_lapack(call: Call, function: Callable[..., Array], *arrays: Array) -> Array:
    """A function of NumPy on matrices. Raises NumericsError where a matrix has no result."""
    try:
        return np.asarray(function(*arrays))
    except np.linalg.LinAlgError as error:
        hint = "Add a small multiple of the unit matrix, or find out which state or parameter makes it so."
        raise NumericsError(
            "a matrix is singular or not positive definite", net=call.net, op=call.op.label, came=str(error), hint=hint
        ) from error


def square(call: Call) -> Shape:
    """The shape of the first input, whose last two axes have one size."""
    shape = call.shape(0)
    if len(shape) < 2 or shape[-2] != shape[-1]:
        call.fail("the last two axes are not a square matrix", wanted="[..., n, n]", came=list(shape))
    return shape


class Solve(Binary):
    """`x` with `a @ x = b`, over the last two axes, the others broadcast.

    Not in ONNX: exports refuse it. The inverse of a is `ro.solve(a, np.eye(n))`. The gradient of b is `solve(a.T, dx)`;
    that of a is its negative product with `x.T`. The op runs in the interpreter.

    Args:
        a: [..., n, n] float, a blob or an array.
        b: [..., n, k] float, a blob or an array; one of both is a blob. A vector is `ro.unsqueeze(b, [-1])`.

    Returns:
        [..., n, k] of the same dtype.

    Raises:
        NetError: neither is a blob, or they are of two nets.
        TypeRuleError: one is not float; once shapes are known, a is not square, b has not n rows, or the other axes do
            not broadcast.
        NumericsError: a is singular, found in a run.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(x=ro.solve(net.input("a"), net.input("b")))
        >>> feeds = {"a": np.array([[2.0, 0.0], [1.0, 1.0]]), "b": np.array([[4.0], [5.0]])}
        >>> ro.compile(net, device="reference")(feeds)["x"]
        array([[2.],
               [3.]])
    """

    outputs = ("X",)
    accepts = FLOATS
    keeps = ("A", "X")

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        a, b = square(call), call.shape(1)
        if len(b) < 2 or b[-2] != a[-1]:
            hint = "A vector is ro.unsqueeze(b, [-1])." if len(b) < len(a) else None
            call.fail("b has not a row for each row of a", wanted=f"[..., {a[-1]}, k]", came=list(b), hint=hint)
        return (call.broadcast(a[:-2], b[:-2]) + b[-2:],)

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return by_lapack(call, np.linalg.solve, a, b)

    def gradient(self, call: Call, a: Blob, b: Blob, x: Blob, dx: Blob) -> Gradients:
        db = solve(swap_last_axes(a, call.rank(0)), dx)
        return -matmul(db, swap_last_axes(x, max(call.rank(0), call.rank(1)))), db


class Cholesky(Unary):
    """The lower triangular `l` with `l @ l.T = x`, over the last two axes.

    Not in ONNX: exports refuse it. It is the factor of `(x + x.T) / 2`, so that the gradient is symmetric (Murray,
    arXiv 1602.07527). The op runs in the interpreter.

    Args:
        x: [..., n, n] float, positive definite.

    Returns:
        The same shape and dtype; 0 above the diagonal.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is not float, or not square, once shapes are known.
        NumericsError: x is not positive definite, found in a run.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(l=ro.cholesky(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([[4.0, 2.0], [2.0, 2.0]])})["l"]
        array([[2., 0.],
               [1., 1.]])
    """

    keeps = ("Y",)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (square(call),)

    def reference(self, call: Call, x: Array) -> Array:
        return by_lapack(call, np.linalg.cholesky, (x + np.swapaxes(x, -1, -2)) * x.dtype.type(0.5))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        # P = the lower half of L^T dL; dx = the symmetric part of L^-T P L^-1
        rank, size = call.rank(0), call.shape(0)[-1]
        upper, half = swap_last_axes(y, rank), np.tril(np.ones((size, size))) - 0.5 * np.eye(size)
        left = solve(upper, matmul(upper, dy) * half)
        both = solve(upper, swap_last_axes(left, rank))
        return (both + swap_last_axes(both, rank)) * 0.5


class Slogdet(OpSchema):
    """Sign, and logarithm of the absolute value, of the determinant over the last two axes.

    Not in ONNX: exports refuse it. The determinant is `sign * ro.exp(logarithm)`. The sign has no gradient. Where x
    is singular, the gradient is a NumericsError. The op runs in the interpreter.

    Args:
        x: [..., n, n] float.

    Returns:
        Two blobs [...] of the same dtype; 0 and minus infinity where x is singular.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is not float, or not square, once shapes are known.

    Example:
        >>> net = ro.Net("n")
        >>> sign, logarithm = ro.slogdet(net.input("x"))
        >>> net.outputs(det=sign * ro.exp(logarithm))
        >>> ro.compile(net, device="reference")({"x": np.array([[0.0, 2.0], [1.0, 0.0]])})["det"]
        array(-2.)
    """

    outputs = ("Sign", "Logarithm")
    accepts = FLOATS
    keeps = ("X",)

    def __call__(self, x: Blob) -> tuple[Blob, Blob]:
        sign, logarithm = common_net([x]).append(self.name, [x])
        return sign, logarithm

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (square(call)[:-2],) * 2

    @quiet
    def reference(self, call: Call, x: Array) -> tuple[Array, ...]:
        return tuple(map(np.asarray, np.linalg.slogdet(x)))

    def gradient(self, call: Call, x: Blob, sign: Blob, y: Blob, dsign: Blob, dy: Blob) -> Gradients:
        unit = unsqueeze(dy, [-2, -1]) * np.eye(call.shape(0)[-1])
        return solve(swap_last_axes(x, call.rank(0)), unit)


solve, cholesky, slogdet = register(Solve()), register(Cholesky()), register(Slogdet())
