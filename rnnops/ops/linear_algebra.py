"""Matrix products (exact, with rounded operands, with int8 weights, of bytes), and systems of equations.

**Matrix products of rounded operands** replace MatMul and Gemm if `ro.compile` gets a precision. Each operand is
rounded to the nearest number of a format, with ties to even:

- bfloat16, the upper half of a float32: 8 of its 24 digits;
- float16, IEEE 754: 11 digits, and at most 65504;
- tfloat32, the part of a float32 that tensor cores use: 11 digits. Ties go to the number of larger size, as on devices.

Infinities stay. A number beyond the largest one by half a step or more becomes an infinity, and NaN stays NaN. Numbers
below the smallest normal one are rounded too. A product of two such numbers has at most 22 digits, which float32 holds
unless the product is tiny or huge. Products are summed in float32. Gradients are products of the same kind, with
rounded operands. For them, rounding is the identity.

**Matrix products with int8 weights** replace MatMul if weights are bound as int8. A weight w [..., K, N] is kept as q
[..., K, N] and a scale [..., N]. The scale is `max |column| / 127`, or 1 for a column of zeros. q is `w / scale`,
rounded to the nearest whole number with ties to even. So q is from -127 to 127, and each number of w is off by at most
half a scale. Then `x @ w` is `(x @ q) * scale`, all in float32.

VNNI would also round x to a byte, which gives another result. Here x is not rounded.

**Products of bytes** replace MatMul if both operands are already whole numbers of a byte. VNNI then gives the same
sums.

**Square matrices over the last two axes**: systems of equations, Cholesky factors, determinants. References call LAPACK
through NumPy. There are no loop forms, so these ops run in the interpreter on every device. Not in ONNX: exports refuse
them. A matrix without a result is an error, as in PyTorch. Limit: for NaN and infinities the results are not finite,
while PyTorch's Cholesky raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rnnops.errors import NumericsError
from rnnops.net.blob import Blob, Operand
from rnnops.net.loop_forms import Expansion, ProductForm
from rnnops.net.net import common_net
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, register
from rnnops.ops.base import Binary, Unary, choice, flag, number, quiet
from rnnops.ops.movement import squeeze, transpose, unsqueeze
from rnnops.types import FLOATS, Array, Shape


class MatMul(Binary):
    """Matrix product over the last two axes. Other axes broadcast. Also written `a @ b`.

    ONNX: MatMul, op set 13. An operand with one axis is a row on the left, or a column on the right. The result does
    not have that axis. For matrices the gradients are `dy @ b.T` and `a.T @ dy`. `precision=` of `ro.compile` may round
    operands.

    Args:
        a: [..., M, K] or [K] float, a blob or an array.
        b: [..., K, N] or [K] float, a blob or an array. At least one operand is a blob.

    Returns:
        [..., M, N] of the same dtype.

    Raises:
        NetError: neither is a blob, or they are of two nets.
        TypeRuleError: an operand is not float. Once shapes are known: K differs, an operand has no axis, or the other
            axes do not broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.matmul(net.input("x"), net.input("w")))
        >>> feeds = {"x": np.array([[1.0, 2.0]]), "w": np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 3.0]])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[1., 2., 8.]])
    """

    accepts = FLOATS
    keeps = ("A", "B")
    loop = ProductForm()

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        a, b = call.shape(0), call.shape(1)
        if not a or not b:
            call.fail("a product needs operands of rank 1 or more", came=f"{list(a)} @ {list(b)}")
        inner = b[-2] if len(b) > 1 else b[0]
        if a[-1] != inner:
            came = f"{list(a)} @ {list(b)}"
            call.fail(
                "inner sizes of a product differ", wanted="as many columns on the left as rows on the right", came=came
            )
        return (call.broadcast(a[:-2], b[:-2]) + a[-2:-1] + (b[-1:] if len(b) > 1 else ()),)

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.matmul(a, b))

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, dc: Blob) -> Gradients:
        # As matrices: dA = dC B^T, dB = A^T dC. Operands with one axis are widened first, and their gradients narrowed
        # last.
        row, column = call.rank(0) == 1, call.rank(1) == 1
        dc = unsqueeze(dc, [-1]) if column else dc
        dc = unsqueeze(dc, [-2]) if row else dc
        left, right = unsqueeze(a, [0]) if row else a, unsqueeze(b, [1]) if column else b
        da = self.again(call, dc, swap_last_axes(right, max(call.rank(1), 2)))
        db = self.again(call, swap_last_axes(left, max(call.rank(0), 2)), dc)
        return squeeze(da, [-2]) if row else da, squeeze(db, [-1]) if column else db

    def again(self, call: Call, a: Blob, b: Blob) -> Blob:
        """Another product of the same kind."""
        return a.net.append(self.name, [a, b], call.op.attributes)[0]


class Gemm(OpSchema):
    """`alpha * A @ B + beta * C` of matrices; A and B may be transposed first.

    ONNX: Gemm, op set 13. Gradients of a and b are such products too. The gradient of c is summed over repeated axes.

    Args:
        a: [M, K] float, or [K, M] with `transA`.
        b: [K, N] float, or [N, K] with `transB`.
        c: float, a blob, a number or an array that broadcasts to [M, N]. By default none.
        alpha, beta: numbers.
        transA, transB: 1 or True to transpose.

    Returns:
        [M, N] of the same dtype.

    Raises:
        NetError: a or b is not a blob, they are of several nets, or an attribute is not a number or flag.
        TypeRuleError: an operand is not float. Once shapes are known: a or b is not a matrix, K differs, or c does not
            broadcast.

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
        """A product of matrices in the form of this op."""
        return matmul(a, b)


def swap_last_axes(x: Blob, rank: int) -> Blob:
    """The transposes in a stack of matrices."""
    return transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


matmul, gemm = register(MatMul()), register(Gemm())


BFLOAT16, FLOAT16, TFLOAT32 = "bfloat16", "float16", "tfloat32"
FORMATS = (BFLOAT16, FLOAT16, TFLOAT32)
FORMS = {operands: ProductForm(operands) for operands in FORMATS}


def rounded(x: Array, operands: str = BFLOAT16) -> Array:
    """Float32 numbers, rounded to a format, as float32.

    This defines the rounding, and compiled code is compared with it.
    """
    if operands == FLOAT16:
        with np.errstate(over="ignore"):  # the result is meant to be infinite
            return np.asarray(x).astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(x).view(np.uint32)
    digits, half = (np.uint32(0xFFFFE000), 0x1000) if operands == TFLOAT32 else (np.uint32(0xFFFF0000), 0x7FFF)
    odd = (bits >> np.uint32(16)) & np.uint32(operands == BFLOAT16)  # ties to even
    more = np.uint32(half) + odd
    quiet_nan, nearest = (bits | np.uint32(0x400000)) & digits, (bits + more) & digits
    return np.asarray(np.where(np.isnan(x), quiet_nan.reshape(x.shape), nearest.reshape(x.shape))).view(np.float32)


def check_operands(call: Call) -> str:
    """The format of the rounded operands. Raises TypeRuleError for another dtype, and for an unknown format."""
    operands = choice(call, "operands", *FORMATS)
    for i in range(2):
        if call.dtype(i) == "float64":
            call.fail("operands that are rounded must be float32", blob=call.op.inputs[i], came="float64")
    return operands


class RoundedMatMul(MatMul):
    """MatMul of rounded operands."""

    attributes: ClassVar[dict[str, Any]] = {"operands": REQUIRED}
    internal = True
    loop = FORMS[BFLOAT16]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        check_operands(call)
        return super().shapes(call)

    @quiet
    def reference(self, call: Call, a: Array, b: Array) -> Array:
        operands = call.attr("operands")
        return super().reference(call, rounded(a, operands), rounded(b, operands))

    def loop_form(self, call: Call) -> ProductForm:
        return FORMS[check_operands(call)]


class RoundedGemm(Gemm):
    """Gemm with a product of rounded operands. Scaling and addition are not rounded."""

    attributes: ClassVar[dict[str, Any]] = {**Gemm.attributes, "operands": REQUIRED}
    internal = True

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        check_operands(call)
        return super().shapes(call)

    @quiet
    def reference(self, call: Call, a: Array, b: Array, c: Array | None = None) -> Array:
        operands = call.attr("operands")
        return super().reference(call, rounded(a, operands), rounded(b, operands), c)

    def product(self, call: Call, a: Blob, b: Blob) -> Blob:
        return a.net.append("RoundedMatMul", [a, b], {"operands": call.attr("operands")})[0]


ROUNDED = {"MatMul": register(RoundedMatMul()).name, "Gemm": register(RoundedGemm()).name}


INT8, BYTES = "int8", "bytes"
LARGEST = 127


class Columns(NamedTuple):
    """A weight by columns: whole numbers, and the scale of each column."""

    whole: Array
    scale: Array


def as_int8(w: Array) -> Columns:
    """Finite float32 numbers [..., K, N], or [K], as whole numbers (in float32) and scales.

    This defines the format int8.
    """
    largest = np.max(np.abs(w), axis=max(-2, -w.ndim), initial=0)
    scale = np.asarray(largest / np.float32(LARGEST), np.float32)
    scale = np.where(scale > 0, scale, np.float32(1))  # 1 for a column of zeros, or of numbers close to zero
    by_row = scale[..., None, :] if w.ndim > 1 else scale
    return Columns(np.clip(np.rint(w / by_row), -LARGEST, LARGEST), scale)


class Int8MatMul(MatMul):
    """MatMul with a right operand of whole numbers from -127 to 127, which may be stored as bytes."""

    internal = True
    loop = ProductForm(INT8)

    def again(self, call: Call, a: Blob, b: Blob) -> Blob:
        return matmul(a, b)


class ByteMatMul(MatMul):
    """MatMul of whole numbers: from 0 to 255 on the left, and from -128 to 127 on the right.

    Sums are at most 2^24, so floats hold them exactly. For NaN the result is undefined.
    """

    internal = True
    loop = ProductForm(BYTES)

    def again(self, call: Call, a: Blob, b: Blob) -> Blob:
        return matmul(a, b)


class ScaleColumns(Binary):
    """Products A [..., M, N] with a stack of matrices, times scales B [..., N]. A single row A has no M."""

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


int8_matmul, byte_matmul, scale_columns = register(Int8MatMul()), register(ByteMatMul()), register(ScaleColumns())


@quiet
def by_lapack(call: Call, function: Callable[..., Array], *arrays: Array) -> Array:
    """A function of NumPy on matrices. Raises NumericsError if a matrix has no result."""
    try:
        return np.asarray(function(*arrays))
    except np.linalg.LinAlgError as error:
        hint = "Add a small multiple of the unit matrix, or find the state or parameter that causes it."
        raise NumericsError(
            "a matrix is singular or not positive definite", net=call.net, op=call.op.label, came=str(error), hint=hint
        ) from error


def square(call: Call) -> Shape:
    """The shape of the first input, whose last two axes must have one size."""
    shape = call.shape(0)
    if len(shape) < 2 or shape[-2] != shape[-1]:
        call.fail("the last two axes are not a square matrix", wanted="[..., n, n]", came=list(shape))
    return shape


class Solve(Binary):
    """`x` with `a @ x = b`, over the last two axes. Other axes broadcast.

    Not in ONNX: exports refuse it. The inverse of a is `ro.solve(a, np.eye(n))`. The gradient of b is `solve(a.T, dx)`.
    The gradient of a is minus that, times `x.T`. The op runs in the interpreter.

    Args:
        a: [..., n, n] float, a blob or an array.
        b: [..., n, k] float, a blob or an array. At least one operand is a blob. Give a vector as `ro.unsqueeze(b,
            [-1])`.

    Returns:
        [..., n, k] of the same dtype.

    Raises:
        NetError: neither is a blob, or they are of two nets.
        TypeRuleError: an operand is not float. Once shapes are known: a is not square, b does not have n rows, or the
            other axes do not broadcast.
        NumericsError: (in a run) a is singular.

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
            hint = "Give a vector as ro.unsqueeze(b, [-1])." if len(b) < len(a) else None
            call.fail("b needs as many rows as a", wanted=f"[..., {a[-1]}, k]", came=list(b), hint=hint)
        return (call.broadcast(a[:-2], b[:-2]) + b[-2:],)

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return by_lapack(call, np.linalg.solve, a, b)

    def gradient(self, call: Call, a: Blob, b: Blob, x: Blob, dx: Blob) -> Gradients:
        db = solve(swap_last_axes(a, call.rank(0)), dx)
        return -matmul(db, swap_last_axes(x, max(call.rank(0), call.rank(1)))), db


class Cholesky(Unary):
    """The lower triangular `l` with `l @ l.T = x`, over the last two axes.

    Not in ONNX: exports refuse it. It is the factor of `(x + x.T) / 2`, which makes the gradient symmetric (Murray,
    arXiv 1602.07527). The op runs in the interpreter.

    Args:
        x: [..., n, n] float, positive definite.

    Returns:
        The same shape and dtype. Elements above the diagonal are 0.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is not float, or not square, once shapes are known.
        NumericsError: (in a run) x is not positive definite.

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
    """The sign of the determinant over the last two axes, and the logarithm of its absolute value.

    Not in ONNX: exports refuse it. The determinant is `sign * ro.exp(logarithm)`. The sign has no gradient. If x is
    singular, the gradient is a NumericsError. The op runs in the interpreter.

    Args:
        x: [..., n, n] float.

    Returns:
        Two blobs [...] of the same dtype. If x is singular, they are 0 and minus infinity.

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
