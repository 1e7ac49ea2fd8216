"""Typed scalar expressions: what a kernel computes from variables, constants and elements of memory.

Expressions are values: made once, compared by what they say, printed as Python. Each has a dtype, which its operands
share unless an operator says otherwise. Only `CastExpr` converts. An expression has no effect, and both sides of a
`Choice` may be computed.

**Texts of loop forms** give one output element in terms of its operands' elements, without dtypes: `1.0 / {0}` stands
for float32 and for float64. Each text is parsed and becomes a typed expression. Every number becomes a constant with
the dtype of the operand that it meets. Every integer result is cut to its dtype, because numba widens integers. The
result has the dtype of the op's output, whether it is compiled or run on NumPy scalars. An expression holds only
numbers and names made by the compiler. Powers with a known exponent become products, quotients and roots.

Limit: a float outside the range of the integer that it is cast to gives any integer.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnops.errors import OpError
from rnnops.kernels.scalar_functions import SCALAR_FUNCTIONS
from rnnops.net.blob import Number
from rnnops.net.loop_forms import NUMBERS, PREFIX, Pointwise, read_text
from rnnops.net.schema import Call as OpCall, form_of, is_number, schema_of
from rnnops.types import BOOL, INTEGERS

OPERATORS: dict[str, Any] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "&": ast.BitAnd,
    ">>": ast.RShift, "==": ast.Eq, "!=": ast.NotEq, "<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE,
    "and": ast.And, "or": ast.Or,
}  # fmt: skip
SIGNS = {kind: sign for sign, kind in OPERATORS.items()}
IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
INDEX = "int64"  # the dtype of sizes, places and counts


@dataclass(frozen=True)
class Expr:
    """An expression with a value of one dtype.

    Python's operators give expressions of the same dtype. Comparisons give bools. A whole number becomes a literal.
    """

    dtype: str = field(kw_only=True, default=INDEX)

    def __add__(self, other: Operand) -> Expr:
        return BinaryExpr("+", self, _beside(self, other), dtype=self.dtype)

    def __sub__(self, other: Operand) -> Expr:
        return BinaryExpr("-", self, _beside(self, other), dtype=self.dtype)

    def __mul__(self, other: Operand) -> Expr:
        return BinaryExpr("*", self, _beside(self, other), dtype=self.dtype)

    def __floordiv__(self, other: Operand) -> Expr:
        return BinaryExpr("//", self, _beside(self, other), dtype=self.dtype)

    def __mod__(self, other: Operand) -> Expr:
        return BinaryExpr("%", self, _beside(self, other), dtype=self.dtype)

    def __and__(self, other: Operand) -> Expr:
        return BinaryExpr("&", self, _beside(self, other), dtype=self.dtype)

    def __rshift__(self, other: Operand) -> Expr:
        return BinaryExpr(">>", self, _beside(self, other), dtype=self.dtype)

    def __lt__(self, other: Operand) -> Expr:
        return compare("<", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return compare(">", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return compare(">=", self, other)

    def __str__(self) -> str:
        return ast.unparse(self.tree())

    def tree(self) -> ast.expr:
        """The expression as Python's syntax tree."""
        raise NotImplementedError


Operand = Expr | int


@dataclass(frozen=True)
class Literal(Expr):
    """A whole number or a bool, written as such in the text."""

    value: bool | int

    def tree(self) -> ast.expr:
        return ast.Constant(self.value) if self.value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-self.value))


@dataclass(frozen=True)
class Name(Expr):
    """A variable, a parameter or a size."""

    name: str

    def __post_init__(self) -> None:
        if not IDENTIFIER.fullmatch(self.name):
            raise ValueError(f"not an identifier: {self.name!r}")

    def tree(self) -> ast.expr:
        return ast.Name(self.name)


@dataclass(frozen=True)
class ModuleConstant(Expr):
    """A named number of a module.

    Args:
        value: a NumPy scalar of the dtype.
    """

    name: str
    value: Any = field(compare=False)

    def tree(self) -> ast.expr:
        return ast.Name(self.name)


@dataclass(frozen=True)
class Load(Expr):
    """An element of memory."""

    buffer: str
    index: Expr

    def tree(self) -> ast.expr:
        return ast.Subscript(ast.Name(self.buffer), self.index.tree())


@dataclass(frozen=True)
class BinaryExpr(Expr):
    """Arithmetic, or an operator on bits. Integers wrap. Operands of `//` and `%` are not negative."""

    operator: str
    left: Expr
    right: Expr

    def tree(self) -> ast.expr:
        return ast.BinOp(self.left.tree(), OPERATORS[self.operator](), self.right.tree())


@dataclass(frozen=True)
class Negated(Expr):
    """`-x`, or `not x` of a bool."""

    x: Expr

    def tree(self) -> ast.expr:
        return ast.UnaryOp(ast.Not() if self.dtype == BOOL else ast.USub(), self.x.tree())


@dataclass(frozen=True)
class CompareExpr(Expr):
    """A comparison of expressions of one dtype: a bool."""

    operator: str
    left: Expr
    right: Expr

    def tree(self) -> ast.expr:
        return ast.Compare(self.left.tree(), [OPERATORS[self.operator]()], [self.right.tree()])


@dataclass(frozen=True)
class Logic(Expr):
    """Bools joined by `and` or `or`; all of them may be computed."""

    operator: str
    parts: tuple[Expr, ...]

    def tree(self) -> ast.expr:
        return ast.BoolOp(OPERATORS[self.operator](), [part.tree() for part in self.parts])


@dataclass(frozen=True)
class Choice(Expr):
    """`a if test else b`."""

    test: Expr
    a: Expr
    b: Expr

    def tree(self) -> ast.expr:
        return ast.IfExp(self.test.tree(), self.a.tree(), self.b.tree())


@dataclass(frozen=True)
class CastExpr(Expr):
    """A number converted to another dtype. Integers are cut. Floats are rounded, towards zero if the result is an
    integer."""

    x: Expr

    def tree(self) -> ast.expr:
        return ast.Call(ast.Attribute(ast.Name("np"), self.dtype), [self.x.tree()], [])


@dataclass(frozen=True)
class ScalarCall(Expr):
    """A call of a scalar function, of one step of a fold, or of `min` or `max` of sizes.

    Operands have the dtype of the result, except those of `uniform`, which are int64.
    """

    function: str
    operands: tuple[Expr, ...]

    def tree(self) -> ast.expr:
        return ast.Call(ast.Name(self.function), [operand.tree() for operand in self.operands], [])


def compare(operator: str, left: Expr, right: Operand) -> Expr:
    """A comparison. A whole number takes the dtype of the left side."""
    return CompareExpr(operator, left, _beside(left, right), dtype=BOOL)


def choice(test: Expr, a: Operand, b: Operand) -> Expr:
    """`a if test else b`. If one of the two is a plain number, it takes the dtype of the other."""
    one = a if isinstance(a, Expr) else b
    assert isinstance(one, Expr)
    return Choice(test, _beside(one, a), _beside(one, b), dtype=one.dtype)


def both(*parts: Expr) -> Expr:
    """True if all are true."""
    return Logic("and", parts, dtype=BOOL)


def any_of(*parts: Expr) -> Expr:
    """True if one is true."""
    return Logic("or", parts, dtype=BOOL)


def least(a: Expr, b: Expr) -> Expr:
    """The smaller of two sizes."""
    return ScalarCall("min", (a, b), dtype=a.dtype)


def most(a: Expr, b: Operand) -> Expr:
    """The larger of two sizes."""
    return ScalarCall("max", (a, _beside(a, b)), dtype=a.dtype)


def inside(index: Expr, size: Expr) -> Expr:
    """The index as a number in `[0, size)`. A negative one counts from the end; one out of range is moved inside."""
    return least(most(choice(index < 0, index + size, index), 0), size - 1)


def share_of(rank: Expr, parts: Expr, count: Expr, block: Expr) -> tuple[Expr, Expr]:
    """The range `[first, last)` that one rank takes of `count` things. Only the last block may be cut off."""
    blocks = count if block == Literal(1) else (count + block - 1) // block
    first, last = (blocks * number // parts * block for number in (rank, rank + 1))
    return least(count, first), least(count, last)


def as_index(x: Expr) -> Expr:
    """An integer as a place in memory."""
    return x if x.dtype == INDEX else CastExpr(x, dtype=INDEX)


def total(terms: list[Expr]) -> Expr:
    """The sum of terms, 0 where there are none."""
    result: Expr = terms[0] if terms else Literal(0)
    for term in terms[1:]:
        result = result + term
    return result


def _beside(known: Expr, other: Operand) -> Expr:
    return other if isinstance(other, Expr) else Literal(other, dtype=known.dtype)


def parts_of(expression: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression."""
    if isinstance(expression, BinaryExpr | CompareExpr):
        return expression.left, expression.right
    if isinstance(expression, Negated | CastExpr):
        return (expression.x,)
    if isinstance(expression, Choice):
        return expression.test, expression.a, expression.b
    if isinstance(expression, Logic):
        return expression.parts
    if isinstance(expression, ScalarCall):
        return expression.operands
    return (expression.index,) if isinstance(expression, Load) else ()


def names_in(expression: Expr) -> set[str]:
    """The variables that an expression reads."""
    if isinstance(expression, Name):
        return {expression.name}
    return set[str]().union(*map(names_in, parts_of(expression)))


def loads_in(expression: Expr) -> list[Load]:
    """The elements of memory that an expression reads, in the order of its text."""
    inner = [load for part in parts_of(expression) for load in loads_in(part)]
    return [*inner, expression] if isinstance(expression, Load) else inner


# The square root of -inf is NaN, but (-inf) ** 0.5 is inf. The root of -0 is -0, but (-0) ** 0.5 is 0.
POWERS = {
    -1.0: "1 / {0}",
    0.0: "1",
    0.5: "inf if {0} == -inf else abs(sqrt({0}))",
    1.0: "{0}",
    2.0: "{0} * {0}",
    3.0: "{0} * {0} * {0}",
}


class Constants:
    """The numbers of a generated module. Each has a dtype and a name: `k0`, `k1`, ..."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], ModuleConstant] = {}

    def of(self, value: Number, dtype: str) -> ModuleConstant:
        """The constant for a number of this dtype; equal bits share one name. Raises ValueError if it does not fit."""
        number = _as_dtype(value, dtype)
        key = (dtype, number.tobytes())
        return self._known.setdefault(key, ModuleConstant(f"k{len(self._known)}", number, dtype=dtype))

    def lines(self) -> list[str]:
        """The lines of Python that define all constants. They need `import numpy as np`."""
        return [f"{constant.name} = {_constant_text(constant.value)}" for constant in self._known.values()]


def scalar_expression(call: OpCall, operands: Sequence[Expr | Number], constants: Constants) -> Expr:
    """One output element of an op of loop form `Pointwise`, over scalar functions and constants.

    Args:
        operands: for each input of the op an expression of the input's dtype, or a number if the input is known
            before a run. The entry of an omitted input is ignored.

    Raises OpError where the text has no meaning for operands of these dtypes.
    """
    form = form_of(call)
    if not isinstance(form, Pointwise):
        raise TypeError(f"{call.op.type} is not elementwise: {form}")
    text = _power_text(call, operands) or form.text
    return expression_of(call, text, places_of_operands(call, operands), call.output_types[0].dtype, constants)


def places_of_operands(call: OpCall, operands: Sequence[Expr | Number]) -> dict[str, OperandPlace]:
    """The operands by placeholder: `{0}`, `{1}`, ... Operands are as for `scalar_expression`."""
    return {
        str(i): OperandPlace(operand, kind.dtype)
        for i, (operand, kind) in enumerate(zip(operands, call.types, strict=True))
        if kind is not None
    }


def expression_of(
    call: OpCall, text: str, places: Mapping[str, OperandPlace], dtype: str, constants: Constants
) -> Expr:
    """A text of an op's loop form as an expression of a dtype. Attributes that are numbers are placeholders, too.

    Raises OpError if the text has no meaning for the operands.
    """
    values = {name: call.attr(name) for name in schema_of(call.op.type).attributes}
    numbers = {name: OperandPlace(value) for name, value in values.items() if is_number(value)}
    try:
        return typed_expression(text, {**numbers, **places}, dtype, constants)
    except (TypeError, ValueError) as problem:
        kinds = ", ".join(f"{{{name}}} {place.dtype}" for name, place in places.items())
        raise OpError(
            f"its loop form, '{text}', has no meaning for these dtypes: {problem}",
            net=call.net,
            op=call.op.label,
            came=f"{kinds}, for a result of {dtype}",
            hint="Leave these dtypes out of `accepts`, or give them a form of their own by `loop_form(call)`.",
        ) from None


@dataclass(frozen=True)
class OperandPlace:
    """The value of a placeholder: an expression or a number. Only a number may lack a dtype."""

    value: Expr | Number
    dtype: str | None = None


def typed_expression(text: str, places: Mapping[str, OperandPlace], dtype: str, constants: Constants) -> Expr:
    """The text of a loop form as an expression of a dtype.

    rewrite: `{alpha} * {0}`  -->  `k0 * b3`, where k0 is alpha
    """
    tree, typing = read_text(text), _Typing(places, constants)
    own = typing.dtype_of(tree) or dtype
    result = typing.typed(tree, own)
    return result if own == dtype else CastExpr(result, dtype=dtype)


class _Typing:
    """Makes a typed expression of a parsed text."""

    def __init__(self, places: Mapping[str, OperandPlace], constants: Constants) -> None:
        self.places, self.constants = places, constants

    def dtype_of(self, *nodes: ast.expr) -> str | None:
        """The dtype that expressions share; None if all are numbers, which fit any dtype."""
        return next(filter(None, map(self._dtype_of_one, nodes)), None)

    def typed(self, node: ast.expr, dtype: str) -> Expr:
        """The typed expression of a node whose result has this dtype. Its parts get their dtypes from that."""
        number = self._number(node)
        if number is not None:
            return self.constants.of(number, self.dtype_of(node) or dtype)
        if isinstance(node, ast.Name):
            return self._place(node).value  # type: ignore[return-value]
        if isinstance(node, ast.IfExp):
            test, a, b = self.typed(node.test, BOOL), self.typed(node.body, dtype), self.typed(node.orelse, dtype)
            return Choice(test, a, b, dtype=a.dtype)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.BoolOp):
            if any(self.dtype_of(value) != BOOL for value in node.values):
                raise TypeError("'and' and 'or' join bools; compare a number first, as in `{0} != 0`")
            parts = tuple(self.typed(value, BOOL) for value in node.values)
            return Logic(SIGNS[type(node.op)], parts, dtype=BOOL)
        return self._arithmetic(node, dtype)

    def _dtype_of_one(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return None if node.id in NUMBERS else self._place(node).dtype
        if isinstance(node, ast.Compare | ast.BoolOp):
            return BOOL
        return self.dtype_of(*_parts(node))

    def _number(self, node: ast.expr) -> Any:
        """The value of a literal or of a known operand, with its sign; None for anything else."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and self.dtype_of(node) is None:
            return -self._number(node.operand)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            value = NUMBERS[node.id] if node.id in NUMBERS else self._place(node).value
            return None if isinstance(value, Expr) else value
        return None

    def _place(self, node: ast.Name) -> OperandPlace:
        return self.places[node.id.removeprefix(PREFIX)]

    def _comparison(self, node: ast.Compare) -> Expr:
        sides = [node.left, *node.comparators]
        shared = self.dtype_of(*sides)
        if shared is None:
            raise TypeError("a comparison of two numbers")
        typed = [self.typed(side, shared) for side in sides]
        if len({side.dtype for side in typed}) > 1:
            raise TypeError("a comparison of " + " with ".join(side.dtype for side in typed))
        tests = tuple(
            compare(SIGNS[type(operator)], a, b) for operator, a, b in zip(node.ops, typed, typed[1:], strict=False)
        )
        return tests[0] if len(tests) == 1 else Logic("and", tests, dtype=BOOL)

    def _arithmetic(self, node: ast.expr, dtype: str) -> Expr:
        _check_dtype(node, dtype)
        parts = [self.typed(part, dtype) for part in _parts(node)]
        if dtype == "int64" and isinstance(node, ast.BinOp):
            parts = [CastExpr(part, dtype="uint64") for part in parts]  # uint64 wraps; the IR's int64 are for places
        result = _rebuilt(node, parts)
        return CastExpr(result, dtype=dtype) if dtype in INTEGERS else result


def _parts(node: ast.expr) -> list[ast.expr]:
    """The operands of a node that have the dtype of its result."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    return node.args if isinstance(node, ast.Call) else []


def _rebuilt(node: ast.expr, parts: list[Expr]) -> Expr:
    dtype = parts[0].dtype
    if any(part.dtype != dtype for part in parts):
        raise TypeError(" and ".join(part.dtype for part in parts) + " together")
    if isinstance(node, ast.BinOp):
        return BinaryExpr(SIGNS[type(node.op)], *parts, dtype=dtype)
    if isinstance(node, ast.UnaryOp):
        return Negated(parts[0], dtype=dtype)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return ScalarCall(node.func.id, tuple(parts), dtype=dtype)
    raise TypeError(f"not part of a scalar expression: {ast.unparse(node)}")


def _check_dtype(node: ast.expr, dtype: str) -> None:
    """Raise TypeError if an operator or a function does not take this dtype."""
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    if is_not != (dtype == BOOL):
        raise TypeError(f"'not' of {dtype}" if is_not else "arithmetic with bools")
    if isinstance(node, ast.Call) and dtype in INTEGERS:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if not SCALAR_FUNCTIONS[name].integers:
            raise TypeError(f"{name} takes floats only")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and dtype in INTEGERS:
        raise TypeError("integers have no '/', but divide_towards_zero")


def _power_text(call: OpCall, operands: Sequence[Expr | Number]) -> str | None:
    """A simpler text for a known power; None if there is none."""
    if call.op.type != "Pow" or isinstance(operands[1], Expr):
        return None
    power = float(operands[1])
    return None if power < 0 and call.dtype(0) in INTEGERS else POWERS.get(power)


def _as_dtype(value: Number, dtype: str) -> Any:
    with np.errstate(all="ignore"):
        number = np.asarray(value).astype(dtype)[()]
    if dtype in INTEGERS and number != value:
        raise ValueError(f"{value!r} is not a number of {dtype}")
    return number


def _constant_text(number: Any) -> str:
    """The number as Python: `True`, `np.int8(-3)`, `np.float32(0.2)`; the shortest text that gives the same bits."""
    value = number.item()
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, float) and not math.isfinite(value):
        text = "np.nan" if math.isnan(value) else "np.inf" if value > 0 else "-np.inf"
    else:
        short = str(number)
        text = short if number.dtype.type(type(value)(short)) == number else repr(value)
    return f"np.{number.dtype.name}({text})"
