"""Scalar functions as LLVM IR, by tracing: the Python of a kernel runs once on symbols, which write instructions.

Scalar functions are straight Python without a branch on their operands, so they do to a symbol what they do to any
number. Operands of one dtype give that dtype. A Python number takes the dtype of the symbol that it is combined with. A
float combined with an integer makes both float64, as in NumPy.

A product and the addition or subtraction that reads it are one multiply-add (`llvm.fmuladd`), rounded once if the
processor can do so. In a sum of two products, the first product is fused. Tracing fixes this. LLVM's flag `contract`
would fuse or not depending on the code around the function.

Instructions carry one of LLVM's fast-math flags, `nsz`: the sign of a zero may be lost. (Functions that promise it set
it with integer instructions.) The other flags are never used. With `afn` and `arcp`, LLVM may estimate roots and
reciprocals. `nnan` and `ninf` delete tests for NaN and infinity. `reassoc` deletes rounding by magic numbers and lets
sums depend on the vector width.

Limits: a function that branches on an operand, or asks for its value, raises a TypeError. Such functions are written
out here (`divide_towards_zero` and `pow` of integers).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from llvmlite import ir

FLAGS = ("nsz",)
BOOL, I64 = "bool", ir.IntType(64)
INTRINSICS = {np.sqrt: "sqrt", np.floor: "floor", np.rint: "rint", np.trunc: "trunc"}
LIBRARY = {np.arctan: "atan"}


def llvm_type(dtype: str) -> Any:
    """The LLVM type of a scalar in a register."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return ir.FloatType() if kind.itemsize == 4 else ir.DoubleType()
    return ir.IntType(1 if kind.kind == "b" else 8 * kind.itemsize)


@dataclass(frozen=True, eq=False)
class Symbol:
    """A number that is not known yet: an LLVM value, and the dtype that it stands for.

    Args:
        factors: the two factors, if the number is a product of floats.
    """

    builder: Any
    value: Any
    dtype: str
    factors: tuple[Any, Any] | None = None

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Symbol:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._binary("sub", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return self._binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._binary("div", other, self)

    def __and__(self, other: Any) -> Symbol:
        return self._bits("and_", other)

    def __or__(self, other: Any) -> Symbol:
        return self._bits("or_", other)

    def __xor__(self, other: Any) -> Symbol:
        return self._bits("xor", other)

    def __lshift__(self, other: Any) -> Symbol:
        return self._bits("shl", other)

    def __rshift__(self, other: Any) -> Symbol:
        return self._bits("ashr" if self.is_signed else "lshr", other)

    def __neg__(self) -> Symbol:
        if self.is_float:
            return self.like(self.builder.fneg(self.value, flags=FLAGS))
        return self.like(self.builder.neg(self.value))

    def __abs__(self) -> Symbol:
        if self.is_float:
            return self._intrinsic("fabs")
        return self.like(self.builder.select((self < 0).value, (-self).value, self.value)) if self.is_signed else self

    # -- comparisons ---------------------------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Symbol:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Symbol:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Symbol:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Symbol:
        return self._compared(">=", other)

    def __eq__(self, other: Any) -> Any:
        return self._compared("==", other)

    def __ne__(self, other: Any) -> Any:
        return self._compared("!=", other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("a branch on a number that is not known: use `select`")

    # -- NumPy ---------------------------------------------------------------------------------------------------

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **_: Any) -> Any:
        """NumPy's functions of symbols, also with NumPy scalars among the operands."""
        if method == "__call__" and function in UFUNCS:
            b = self.builder
            return UFUNCS[function](*(x if isinstance(x, Symbol) else constant(b, x, x.dtype.name) for x in operands))
        if method == "__call__" and function in INTRINSICS:
            return self._intrinsic(INTRINSICS[function])
        if method == "__call__" and function in LIBRARY:
            return self._library(LIBRARY[function])
        return NotImplemented

    # -- values and dtypes ---------------------------------------------------------------------------------------

    @property
    def is_float(self) -> bool:
        return np.dtype(self.dtype).kind == "f"

    @property
    def is_signed(self) -> bool:
        return np.dtype(self.dtype).kind == "i"

    def like(self, value: Any) -> Symbol:
        """A symbol of the same dtype for an LLVM value."""
        return Symbol(self.builder, value, self.dtype)

    def as_dtype(self, dtype: str) -> Symbol:
        """The number converted to another dtype, as C does."""
        return Symbol(self.builder, cast(self.builder, self.value, self.dtype, dtype), dtype)

    def view(self, dtype: str) -> Symbol:
        """The same bits as another dtype of that width."""
        return Symbol(self.builder, self.builder.bitcast(self.value, llvm_type(dtype)), dtype)

    def constant(self, number: Any) -> Symbol:
        """A known number as a symbol of the same dtype."""
        return constant(self.builder, number, self.dtype)

    def _binary(self, name: str, a: Any, b: Any) -> Symbol:
        a, b = together(self.builder, a, b)
        if not a.is_float:
            return a.like(getattr(self.builder, name)(a.value, b.value))
        if name in ("add", "sub") and (a.factors or b.factors):
            return a.multiply_add(b, name == "sub")
        value = getattr(self.builder, f"f{name}")(a.value, b.value, flags=FLAGS)
        return Symbol(self.builder, value, a.dtype, (a.value, b.value) if name == "mul" else None)

    def multiply_add(self, other: Symbol, minus: bool) -> Symbol:
        """`self + other` or `self - other`. One of the two is a product."""
        negated, kind = partial(self.builder.fneg, flags=FLAGS), self.value.type
        if self.factors:
            operands = *self.factors, negated(other.value) if minus else other.value
        else:
            assert other.factors
            x, y = other.factors
            operands = negated(x) if minus else x, y, self.value
        function = self.builder.module.declare_intrinsic("llvm.fmuladd", [kind], ir.FunctionType(kind, [kind] * 3))
        return self.like(self.builder.call(function, operands, fastmath=FLAGS))

    def _bits(self, name: str, other: Any) -> Symbol:
        a, b = together(self.builder, self, other)
        return Symbol(self.builder, getattr(self.builder, name)(a.value, b.value), a.dtype)

    def _compared(self, sign: str, other: Any) -> Symbol:
        a, b = together(self.builder, self, other)
        if a.is_float:
            compare = self.builder.fcmp_unordered if sign == "!=" else self.builder.fcmp_ordered
            return Symbol(self.builder, compare(sign, a.value, b.value, flags=FLAGS), BOOL)
        compare = self.builder.icmp_signed if a.is_signed else self.builder.icmp_unsigned
        return Symbol(self.builder, compare(sign, a.value, b.value), BOOL)

    def _intrinsic(self, name: str) -> Symbol:
        """One of LLVM's instructions. Integers stay, as they need no rounding."""
        if not self.is_float:
            return self
        kind = self.value.type
        function = self.builder.module.declare_intrinsic(f"llvm.{name}", [kind], ir.FunctionType(kind, [kind]))
        return self.like(self.builder.call(function, [self.value], fastmath=FLAGS))

    def _library(self, name: str) -> Symbol:
        """A function of the C library."""
        name = name if self.dtype == "float64" else f"{name}f"
        module, kind = self.builder.module, self.value.type
        if name not in module.globals:
            ir.Function(module, ir.FunctionType(kind, [kind]), name)
        return self.like(self.builder.call(module.globals[name], [self.value]))


def is_traced(*operands: Any) -> bool:
    """True if one of them is a symbol."""
    return any(isinstance(operand, Symbol) for operand in operands)


def dtype_of(x: Any) -> Any:
    """NumPy's dtype of a number, an array or a symbol."""
    return np.dtype(x.dtype) if isinstance(x, Symbol) else np.asarray(x).dtype


def constant(builder: Any, number: Any, dtype: str) -> Symbol:
    """A known number as a symbol."""
    item = np.asarray(number).astype(dtype).item()
    return Symbol(builder, ir.Constant(llvm_type(dtype), item), dtype)


def together(builder: Any, a: Any, b: Any) -> tuple[Symbol, Symbol]:
    """The two operands of an operator as symbols of one dtype."""
    (known,) = [x for x in (a, b) if isinstance(x, Symbol)][:1]
    kinds = [x.dtype if isinstance(x, Symbol) else _dtype_beside(known, x) for x in (a, b)]
    shared = kinds[0] if kinds[0] == kinds[1] else str(np.result_type(*kinds))
    first, second = (_shared(builder, x, shared) for x in (a, b))
    return first, second


def _shared(builder: Any, x: Any, dtype: str) -> Symbol:
    if not isinstance(x, Symbol):
        return constant(builder, x, dtype)
    return x if x.dtype == dtype else x.as_dtype(dtype)


def _dtype_beside(known: Symbol, number: Any) -> str:
    if isinstance(number, np.generic):
        return number.dtype.name
    is_wider = isinstance(number, float) and not known.is_float
    return "float64" if is_wider else known.dtype


def cast(builder: Any, value: Any, old: str, new: str) -> Any:
    """A number converted from one dtype to another."""
    if old == new:
        return value
    kind, source, target = llvm_type(new), np.dtype(old), np.dtype(new)
    if target.kind == "b":
        zero = ir.Constant(value.type, 0)
        return (
            builder.fcmp_unordered("!=", value, zero) if source.kind == "f" else builder.icmp_signed("!=", value, zero)
        )
    if source.kind == "f" and target.kind == "f":
        return builder.fptrunc(value, kind) if target.itemsize < source.itemsize else builder.fpext(value, kind)
    if source.kind == "f":
        return builder.fptosi(value, kind) if target.kind == "i" else builder.fptoui(value, kind)
    if target.kind == "f":
        return builder.sitofp(value, kind) if source.kind == "i" else builder.uitofp(value, kind)
    if kind.width < value.type.width:
        return builder.trunc(value, kind)
    if kind.width == value.type.width:
        return value
    return builder.sext(value, kind) if source.kind == "i" else builder.zext(value, kind)


def select(condition: Any, a: Any, b: Any) -> Any:
    """`a if condition else b`. Both are computed, and have one dtype."""
    if not isinstance(condition, Symbol):
        return np.where(condition, a, b)[()]
    builder = condition.builder
    if is_traced(a, b):
        first, second = together(builder, a, b)
    else:
        first, second = (constant(builder, x, dtype_of(a).name) for x in (a, b))
    return first.like(builder.select(condition.value, first.value, second.value))


def as_dtype(dtype: Any, x: Any) -> Any:
    """A number, an array or a symbol, converted to a NumPy dtype."""
    return x.as_dtype(np.dtype(dtype).name) if isinstance(x, Symbol) else dtype(x)


def entry_of(table: Any, index: Any) -> Any:
    """`table[index]` of a constant array. The index is not checked."""
    if not isinstance(index, Symbol):
        return table[index]
    builder, dtype = index.builder, table.dtype.name
    kind = ir.ArrayType(llvm_type(dtype), table.size)
    name = f"table_{sha256(table.tobytes()).hexdigest()}"
    if name not in builder.module.globals:
        held = ir.GlobalVariable(builder.module, kind, name)
        held.linkage, held.global_constant = "internal", True
        held.initializer = ir.Constant(kind, [int(x) for x in table])
    place = builder.gep(builder.module.globals[name], [ir.Constant(I64, 0), index.value], inbounds=True)
    return Symbol(builder, builder.load(place), dtype)


def _sign(x: Symbol) -> Symbol:
    zero, one, b = x.constant(0), x.constant(1), x.builder
    if not x.is_float and not x.is_signed:
        return x.like(b.select((x > zero).value, one.value, zero.value))
    below = b.select((x < zero).value, (-one).value, x.value if x.is_float else zero.value)  # NaN and zeros stay
    return x.like(b.select((x > zero).value, one.value, below))


def _greater(a: Any, b: Any) -> Symbol:
    first, second = together((a if isinstance(a, Symbol) else b).builder, a, b)
    return first.like(first.builder.select((first > second).value, first.value, second.value))


def _remainder(a: Symbol, b: Symbol) -> Symbol:
    return a.like(a.builder.frem(a.value, b.value))


UFUNCS: Mapping[Any, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.sign: _sign,
    np.maximum: _greater,
    np.fmod: _remainder,
}


def divide_integers(a: Symbol, b: Symbol) -> Symbol:
    """`a / b`, rounded towards zero. Processors trap in two cases: b = 0 gives 0 here, and the least integer divided by
    -1 wraps."""
    builder = a.builder
    is_zero, is_minus = b == b.constant(0), b == b.constant(-1 if b.is_signed else 1)
    safe = builder.select((is_zero | is_minus).value, b.constant(1).value, b.value)
    quotient = (builder.sdiv if a.is_signed else builder.udiv)(a.value, safe)
    by_one = -a if a.is_signed else a
    inside = builder.select(is_minus.value, by_one.value, quotient)
    return a.like(builder.select(is_zero.value, a.constant(0).value, inside))


def integer_power(x: Symbol, y: Symbol) -> Symbol:
    """`x ** y` by repeated squaring. It wraps, and is 1 for y below 0."""
    builder, kind = x.builder, x.value.type
    before, loop, end = builder.block, builder.append_basic_block("power"), builder.append_basic_block("done")
    builder.cbranch((y > y.constant(0)).value, loop, end)
    builder.position_at_end(loop)
    result, base, left = (builder.phi(kind) for _ in range(3))
    is_odd = builder.icmp_signed("!=", builder.and_(left, kind(1)), kind(0))
    product, square = builder.select(is_odd, builder.mul(result, base), result), builder.mul(base, base)
    rest = builder.lshr(left, kind(1))
    for phi, first, next_one in ((result, kind(1), product), (base, x.value, square), (left, y.value, rest)):
        phi.add_incoming(first, before)
        phi.add_incoming(next_one, loop)
    builder.cbranch(builder.icmp_signed("!=", rest, kind(0)), loop, end)
    builder.position_at_end(end)
    power = builder.phi(kind)
    power.add_incoming(kind(1), before)
    power.add_incoming(product, loop)
    return x.like(power)


def define(module: Any, function: Callable[..., Any], name: str, dtypes: Sequence[str], result: str) -> Any:
    """Define a scalar function in an LLVM module, to be inlined.

    Args:
        name: of the function in LLVM.
        dtypes: of the operands.
        result: the dtype of the result.
    """
    kind = ir.FunctionType(llvm_type(result), [llvm_type(dtype) for dtype in dtypes])
    defined = ir.Function(module, kind, name)
    defined.linkage = "internal"
    defined.attributes.add("alwaysinline")
    defined.attributes.add("nounwind")
    builder = ir.IRBuilder(defined.append_basic_block())
    operands = [Symbol(builder, value, dtype) for value, dtype in zip(defined.args, dtypes, strict=True)]
    builder.ret(function(*operands).as_dtype(result).value)
    return defined
