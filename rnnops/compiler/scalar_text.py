"""Scalar expressions of generated code: what one output element is, in terms of its operands' elements.

The text of a loop form says nothing of dtypes: `1.0 / {0}` stands for float32 and for float64. In code that numba
compiles a literal 1.0 is float64, and a sum of two int8 is int64. So each text is parsed and written out again, with
every number as a constant of its dtype and every integer result cut to its dtype; a number has the dtype of what it
meets. The result has the dtype of the op's output, whether it is compiled or run on NumPy scalars.

Nothing but numbers and identifiers made by the compiler reaches the text. Powers that are known become products,
quotients and roots.

Limit: a float outside the range of the integer that it is cast to gives any integer.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rnnops.blob import Number
from rnnops.loops import Pointwise
from rnnops.schema import Call, schema_of
from rnnops.types import BOOL, INTEGERS

PLACEHOLDER = re.compile(r"{(\w+)}")
PREFIX = "place_"  # of placeholders' names in a parsed text
NUMBERS = {"inf": math.inf}  # words of texts that are numbers
FUNCTIONS = frozenset(  # words of texts that are functions; results have the operands' dtype
    (
        *("abs", "cos", "divide_towards_zero", "erf", "exp", "expm1", "floor", "log", "log1p"),
        *("maximum", "minimum", "pow", "sigmoid", "sign", "sin", "sqrt", "tanh"),
    )
)

# The root of -inf is NaN, but its power of 1/2 is inf; that of -0 is 0.
POWERS = {
    -1.0: "1 / {0}",
    0.0: "1",
    0.5: "inf if {0} == -inf else abs(sqrt({0}))",
    1.0: "{0}",
    2.0: "{0} * {0}",
    3.0: "{0} * {0} * {0}",
}


class Constants:
    """The numbers of a generated module, each of its dtype and under a name of its own: `k0`, `k1`, ..."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, bytes], str] = {}
        self._lines: list[str] = []

    def name(self, value: Number, dtype: str) -> str:
        """The name of a number of this dtype; the same bits have one name. Raises ValueError where it does not fit."""
        number = _as_dtype(value, dtype)
        key = (dtype, number.tobytes())
        if key not in self._names:
            self._names[key] = f"k{len(self._names)}"
            self._lines.append(f"{self._names[key]} = {_constant_text(number)}")
        return self._names[key]

    def lines(self) -> list[str]:
        """What the module says before its functions, which wants `import numpy as np`."""
        return list(self._lines)


def scalar_expression(call: Call, operands: Sequence[str | Number], constants: Constants) -> str:
    """One output element of an op of loop form `Pointwise`, as Python over `FUNCTIONS`, `np` and constants.

    Args:
        operands: for each input of the op an identifier of a scalar of the input's dtype (bools as bools), or a number
            where the input is known before a run; what stands for an input left out is not looked at.
    """
    form = schema_of(call.op.type).loop_form(call)
    if not isinstance(form, Pointwise):
        raise TypeError(f"{call.op.type} is not elementwise: {form}")
    given = {
        str(i): Place(operand, kind.dtype)
        for i, (operand, kind) in enumerate(zip(operands, call.types, strict=True))
        if kind is not None
    }
    values = {name: call.attr(name) for name in schema_of(call.op.type).attributes}
    numbers = {name: Place(value) for name, value in values.items() if _is_number(value)}
    text = _power_text(call, operands) or form.text
    return typed_expression(text, {**given, **numbers}, call.output_types[0].dtype, constants)


@dataclass(frozen=True)
class Place:
    """What a placeholder stands for: an identifier or a number; a number may do without a dtype."""

    value: str | Number
    dtype: str | None = None


def typed_expression(text: str, places: Mapping[str, Place], dtype: str, constants: Constants) -> str:
    """The text of a loop form as an expression of a dtype, for scalars or numbers in its places.

    rewrite: `{alpha} * {0}`  -->  `k0 * b3`, where k0 is alpha
    """
    tree, typing = _parsed(text), _Typing(places, constants)
    own = typing.dtype_of(tree) or dtype
    result = typing.typed(tree, own)
    return ast.unparse(result if own == dtype else _converted(result, dtype))


class _Typing:
    """Writes a parsed text out again with a dtype for each of its parts."""

    def __init__(self, places: Mapping[str, Place], constants: Constants) -> None:
        self.places, self.constants = places, constants

    def dtype_of(self, *nodes: ast.expr) -> str | None:
        """The dtype that expressions share; None where they are numbers that fit any."""
        return next(filter(None, map(self._dtype_of_one, nodes)), None)

    def typed(self, node: ast.expr, dtype: str) -> ast.expr:
        """The expression with all its parts of the dtypes that they have in a result of this dtype."""
        number = self._number(node)
        if number is not None:
            return ast.Name(self.constants.name(number, self.dtype_of(node) or dtype))
        if isinstance(node, ast.Name):
            return ast.Name(_identifier(str(self._place(node).value)))
        if isinstance(node, ast.IfExp):
            branches = self.typed(node.body, dtype), self.typed(node.orelse, dtype)
            return ast.IfExp(self.typed(node.test, BOOL), *branches)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.BoolOp):
            return ast.BoolOp(node.op, [self.typed(value, BOOL) for value in node.values])
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
            return None if isinstance(value, str) else value
        return None

    def _place(self, node: ast.Name) -> Place:
        return self.places[node.id.removeprefix(PREFIX)]

    def _comparison(self, node: ast.Compare) -> ast.expr:
        sides = [node.left, *node.comparators]
        shared = self.dtype_of(*sides)
        if shared is None:
            raise TypeError("a comparison of two numbers")
        left, *others = (self.typed(side, shared) for side in sides)
        return ast.Compare(left, node.ops, others)

    def _arithmetic(self, node: ast.expr, dtype: str) -> ast.expr:
        parts = [self.typed(part, dtype) for part in _parts(node)]
        if dtype == "int64" and isinstance(node, ast.BinOp):
            parts = [_converted(part, "uint64") for part in parts]  # which wraps; numba leaves int64 undefined there
        result = _rebuilt(node, parts)
        return _converted(result, dtype) if dtype in INTEGERS else result


def _parts(node: ast.expr) -> list[ast.expr]:
    """What a result takes its dtype from."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    return node.args if isinstance(node, ast.Call) else []


def _rebuilt(node: ast.expr, parts: list[ast.expr]) -> ast.expr:
    if isinstance(node, ast.BinOp):
        return ast.BinOp(parts[0], node.op, parts[1])
    if isinstance(node, ast.UnaryOp):
        return ast.UnaryOp(node.op, parts[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        return ast.Call(node.func, parts, [])
    raise TypeError(f"not part of a scalar expression: {ast.unparse(node)}")


def _converted(node: ast.expr, dtype: str) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name("np"), dtype), [node], [])


@cache
def _parsed(text: str) -> ast.expr:
    """A text with names such as `place_0` and `place_alpha` for its places."""
    return ast.parse(PLACEHOLDER.sub(rf"{PREFIX}\1", text), mode="eval").body


def _identifier(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise ValueError(f"not an identifier: {name!r}")
    return name


def _is_number(value: object) -> bool:
    """Whether an attribute is a number; an array without axes is one."""
    return isinstance(value, int | float | np.ndarray) and np.ndim(value) == 0


def _power_text(call: Call, operands: Sequence[str | Number]) -> str | None:
    """A simpler text for a power that is known, None where there is none."""
    if call.op.type != "Pow" or isinstance(operands[1], str):
        return None
    power = float(operands[1])
    return None if power < 0 and call.dtype(0) in INTEGERS else POWERS.get(power)


def _as_dtype(value: Number, dtype: str) -> Any:
    with np.errstate(all="ignore"):
        number = np.asarray(value).astype(dtype)[()]
    if dtype in INTEGERS and number != value:
        raise ValueError(f"{value!r} is no {dtype}")
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
