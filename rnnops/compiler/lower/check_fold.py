"""Whether a reduction can be done in any order and in parts: its combination is tried on some numbers.

Processors fold in order, lanes of a CUDA device in parts that all begin with `start`; a start that changes what it
meets, or a combination that asks who came first, would give each its own result. Limit: numbers that are not tried.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from rnnops.errors import OpError
from rnnops.loops import NUMBERS, PREFIX, Reduction, places_of, read_text
from rnnops.schema import Call, is_number, schema_of
from rnnops.types import BOOL, FLOATS
from rnnops.util import LazyModule

OPERATIONS: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
pointwise = LazyModule("rnnops.kernels.cpu.pointwise")  # for folds that are written as texts alone
SAMPLES = {"float": (-2.5, -0.5, 0.0, 0.75, 3.0), "int": (0, 1, 2, 5), "bool": (False, True)}
CASTS: Mapping[str, Callable[[Any], Any]] = {"float": np.float64, "int": int, "bool": bool}  # integers of any size
TOLERANCE = 1e-9  # in float64, of combinations of a few numbers
Numbers = tuple[tuple[str, Any], ...]


def check_fold(call: Call, form: Reduction) -> None:
    """Raise OpError where a call's combination is not one that parts can be folded by."""
    numbers = tuple((name, call.attr(name)) for name in schema_of(call.op.type).attributes)
    known = tuple((name, np.asarray(value).item()) for name, value in numbers if is_number(value))
    problem = _problem(form, _kind(call.dtype(0)), _kind(call.output_types[0].dtype), known)
    if problem:
        raise OpError(problem, net=call.net, op=call.op.label, hint="Leave the form out, and it runs by its reference.")


def _kind(dtype: str) -> str:
    return "float" if dtype in FLOATS else "bool" if dtype == BOOL else "int"


@cache
def _problem(form: Reduction, operands: str, kind: str, numbers: Numbers) -> str:
    """What is wrong with a form for dtypes of these kinds; empty where nothing is."""
    cast = CASTS[kind]

    def combine(a: Any, b: Any) -> Any:
        return cast(evaluate(form.combine, {"a": a, "b": b, **dict(numbers)}))

    with np.errstate(all="ignore"):
        found = [cast(evaluate(form.element, dict(given))) for given in _elements(form, operands, numbers)]
        start, tried = cast(form.start), [x for x in dict.fromkeys(found) if np.isfinite(x)][:6]
        for x in (start, *tried):
            for made in (combine(start, x), combine(x, start)):
                if not _same(made, x):
                    return f"'{form.combine}' from `start` {form.start!r} on makes {made} of {x}"
        for a, b, c in product(tried, repeat=3):
            if not _same(combine(a, b), combine(b, a)):
                return f"'{form.combine}' is {combine(a, b)} for {a}, {b} and {combine(b, a)} for {b}, {a}"
            if not _same(combine(combine(a, b), c), combine(a, combine(b, c))):
                return f"'{form.combine}' of {a}, {b}, {c} depends on which two are combined first"
    return ""


def _elements(form: Reduction, kind: str, numbers: Numbers) -> list[Numbers]:
    """What the places of `element` stand for, one try after another."""
    operands = [place for place in places_of(form.element) if place.isdigit()]
    samples = SAMPLES[kind]
    return [
        (*numbers, *((place, samples[(i + number) % len(samples)]) for number, place in enumerate(operands)))
        for i in range(len(samples))
    ]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int):
        return bool(a == b)
    return bool(np.isclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """The value of a text of a loop form for numbers in its places."""
    return _value(read_text(text), values)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return NUMBERS[node.id] if node.id in NUMBERS else values[node.id.removeprefix(PREFIX)]
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, values) else node.orelse, values)
    if isinstance(node, ast.BoolOp):
        parts = [bool(_value(part, values)) for part in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.Compare):
        sides = [_value(side, values) for side in (node.left, *node.comparators)]
        return all(OPERATIONS[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
    if isinstance(node, ast.UnaryOp):
        return OPERATIONS[type(node.op)](_value(node.operand, values))
    if isinstance(node, ast.BinOp):
        left = _value(node.left, values)
        left = np.float64(left) if isinstance(left, float) else left  # which divides by 0
        return OPERATIONS[type(node.op)](left, _value(node.right, values))
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    result = pointwise.FUNCTIONS[node.func.id](*(_scalar(_value(argument, values)) for argument in node.args))
    return np.asarray(result).item()


def _scalar(value: Any) -> Any:
    """A number as kernels take it."""
    if isinstance(value, int):
        return np.uint64(value) if value > np.iinfo(np.int64).max else np.int64(value)
    return np.float64(value)
