"""Typed scalar expressions: what a kernel computes from variables, constants and elements of memory.

Expressions are values: made once, compared by what they say, printed as Python. Each has a dtype, which its operands
share unless an operator says otherwise; nothing is converted but by `CastExpr`.

Limits: no expression has an effect, and both sides of a `Choice` may be computed.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from rnnops.types import BOOL

ARITHMETIC = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod}
WORDS = {"&": ast.BitAnd, ">>": ast.RShift}
COMPARISONS = {"==": ast.Eq, "!=": ast.NotEq, "<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE}
LOGIC = {"and": ast.And, "or": ast.Or}
IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
INDEX = "int64"  # the dtype of sizes, places and counts


@dataclass(frozen=True)
class Expr:
    """An expression with a value of one dtype.

    The operators of Python make expressions of the same dtype, or bools; whole numbers among them become literals.
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
    """A whole number or a truth that stands in the text."""

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
    """A number of a module, under a name.

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
    """An operator of `ARITHMETIC` or `WORDS`; integers wrap, and `//` and `%` take numbers of 0 or more."""

    operator: str
    left: Expr
    right: Expr

    def tree(self) -> ast.expr:
        operators: dict[str, Any] = {**ARITHMETIC, **WORDS}
        return ast.BinOp(self.left.tree(), operators[self.operator](), self.right.tree())


@dataclass(frozen=True)
class Negated(Expr):
    """`-x`, or `not x` of a bool."""

    x: Expr

    def tree(self) -> ast.expr:
        return ast.UnaryOp(ast.Not() if self.dtype == BOOL else ast.USub(), self.x.tree())


@dataclass(frozen=True)
class CompareExpr(Expr):
    """An operator of `COMPARISONS` between expressions of one dtype: a bool."""

    operator: str
    left: Expr
    right: Expr

    def tree(self) -> ast.expr:
        operators: dict[str, Any] = {**COMPARISONS}
        return ast.Compare(self.left.tree(), [operators[self.operator]()], [self.right.tree()])


@dataclass(frozen=True)
class Logic(Expr):
    """Bools joined by `and` or `or`; all of them may be computed."""

    operator: str
    parts: tuple[Expr, ...]

    def tree(self) -> ast.expr:
        operators: dict[str, Any] = {**LOGIC}
        return ast.BoolOp(operators[self.operator](), [part.tree() for part in self.parts])


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
    """A number as one of another dtype: integers are cut, floats rounded, or towards zero where an integer is made."""

    x: Expr

    def tree(self) -> ast.expr:
        return ast.Call(ast.Attribute(ast.Name("np"), self.dtype), [self.x.tree()], [])


@dataclass(frozen=True)
class ScalarCall(Expr):
    """A scalar function, or a step of a fold, of operands of its own dtype; `min` and `max` of sizes."""

    function: str
    operands: tuple[Expr, ...]

    def tree(self) -> ast.expr:
        return ast.Call(ast.Name(self.function), [operand.tree() for operand in self.operands], [])


def compare(operator: str, left: Expr, right: Operand) -> Expr:
    """A comparison; a whole number is one of the dtype of what it meets."""
    return CompareExpr(operator, left, _beside(left, right), dtype=BOOL)


def choice(test: Expr, a: Operand, b: Operand) -> Expr:
    """`a if test else b`; one of both has a dtype, which the other takes."""
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
    """An index counted from the end where negative, moved into `[0, size)` where it is out of range."""
    return least(most(choice(index < 0, index + size, index), 0), size - 1)


def share_of(rank: Expr, parts: Expr, count: Expr, block: Expr) -> tuple[Expr, Expr]:
    """First and last, not included, of the `count` things that one of several takes: whole blocks but for the last."""
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
    """The expressions that one is made of, one level down."""
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
