"""Uses of every elementwise op with every dtype that it accepts, on special values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from rnnops.net.loop_forms import Pointwise, ProductForm
from rnnops.net.schema import REGISTRY, OpSchema
from rnnops.ops.base import Binary, Unary, Variadic
from rnnops.ops.reduction import SumOfProducts
from rnnops.types import ANY, BOOL, FLOAT, FLOATS, INTEGERS

Array = npt.NDArray[Any]
Use = tuple[str, Mapping[str, Any], tuple[Array, ...]]
DTYPES = tuple(dtype for dtype in ANY if dtype != FLOAT)
INF, NAN = math.inf, math.nan
POWERS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, INF, NAN)
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "Elu": [{}, {"alpha": -0.5}],
    "Gelu": [{}, {"approximate": "tanh"}],
    "HardSigmoid": [{}, {"alpha": 1 / 3, "beta": 2}],
    "LeakyRelu": [{}, {"alpha": 0.3}],
    "Selu": [{}, {"alpha": 2, "gamma": 0.1}],
}


def special(dtype: str) -> Array:
    """Edges of the dtype, and ordinary numbers between them."""
    if dtype == BOOL:
        return np.array([False, True])
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        near_zero = [x for x in (-7, -2, -1) if x >= limits.min]
        return np.array([limits.min, *near_zero, 0, 1, 2, 3, 7, limits.max - 1, limits.max], dtype)
    limits = np.finfo(dtype)
    edge = np.log(limits.max) + 0.3  # where exp is infinite, and half of it is not
    usual = [0.1, 0.5, 1.0, 2.5, 3.0, 10.0, 100.0]
    sizes = [0.0, limits.smallest_subnormal, limits.tiny, *usual, edge, 1e30, limits.max, INF]
    return np.array([*sizes, *(-x for x in sizes), NAN], dtype)


def few(dtype: str) -> Array:
    """Some of them, for ops of many operands."""
    if dtype == BOOL:
        return special(dtype)
    return special(dtype)[::3] if dtype in INTEGERS else np.array([-INF, -2.5, -0.0, 0.0, 0.1, 3.0, INF, NAN], dtype)


def combined(*values: Array) -> tuple[Array, ...]:
    """All combinations, as flat arrays."""
    return tuple(grid.ravel() for grid in np.meshgrid(*values, indexing="ij"))


def accepted(schema: OpSchema) -> list[str]:
    return [dtype for dtype in DTYPES if dtype in schema.accepts]


def may_be_elementwise(schema: OpSchema) -> bool:
    """Whether the op is elementwise, or says so for each call."""
    says_so = type(schema).loop_form is not OpSchema.loop_form
    return isinstance(schema.loop, Pointwise) or (says_so and not isinstance(schema.loop, ProductForm))


def sweep() -> Iterator[Use]:
    """All operands are arrays, but for bounds of Clip."""
    for name, schema in REGISTRY.items():
        if may_be_elementwise(schema):
            for dtype in accepted(schema):
                yield from regular_uses(name, schema, dtype)
    for dtype in DTYPES:
        yield from casts(dtype)
        yield from choices(dtype)
    for dtype in accepted(REGISTRY["Clip"]):
        yield "Clip", {}, (special(dtype), special(dtype)[1], special(dtype)[-2])
        yield "Clip", {}, (special(dtype),)
    for dtype in accepted(REGISTRY["Normalize"]):
        columns = tuple(x[:, None] for x in combined(*[few(dtype)[1:6]] * 3, *[few(dtype)[::2]] * 2))
        yield "Normalize", {}, columns
        yield "Normalize", {}, columns[:-1]


def regular_uses(name: str, schema: OpSchema, dtype: str) -> Iterator[Use]:
    """Uses of ops of one operand, two or any number."""
    if name == "FromBfloat16":  # whose operand is codes
        yield name, {}, (np.arange(0, 2**16, 97).astype(dtype),)
    elif isinstance(schema, Unary) and name != "Cast":  # which `casts` has to every dtype
        for attributes in ATTRIBUTES.get(name, [{}]):
            yield name, attributes, (special(dtype),)
    elif isinstance(schema, SumOfProducts):
        yield name, {}, combined(special(dtype), special(dtype))
        yield name, {}, combined(*[few(dtype)[::2]] * 4)
    elif isinstance(schema, Variadic):
        yield name, {}, (special(dtype),)
        yield name, {}, combined(few(dtype), few(dtype), few(dtype))
    elif isinstance(schema, Binary):
        yield name, {}, combined(special(dtype), second_operand(name, dtype))


def second_operand(name: str, dtype: str) -> Array:
    """Integers have no powers below 0."""
    return np.arange(5).astype(dtype) if name == "Pow" and dtype in INTEGERS else special(dtype)


def casts(dtype: str) -> Iterator[Use]:
    for to in DTYPES:
        values = special(dtype)
        if dtype in FLOATS and to in INTEGERS:
            limits = np.iinfo(to)
            values = np.append(values, np.array([-2.75, -0.5, 2.75], dtype))
            values = values[(values >= limits.min) & (values < limits.max / 2)]
        yield "Cast", {"to": to}, (values,)


def choices(dtype: str) -> Iterator[Use]:
    yield "Where", {}, combined(special(BOOL), special(dtype), special(dtype))
    rows, lengths = combined(special(dtype), np.arange(3, dtype=np.int32))
    for drop, t in product((0, 1), (0, 1)):
        yield "SelectValid", {"drop": drop}, (rows, rows[::-1].copy(), lengths, np.array([t], np.int32))
    if dtype in FLOATS:
        yield "MaskRows", {}, (rows, lengths, np.array([1], np.int32))
        yield "WithGradient", {}, (special(dtype), special(dtype)[::-1].copy(), special(dtype))


def number_sweep(dtype: str) -> Iterator[Use]:
    """Uses of ops with known operands, which are arrays without axes, and constants; none is a divisor below normal."""
    values = special(dtype)
    for name, schema in REGISTRY.items():
        if may_be_elementwise(schema) and dtype in accepted(schema):
            yield from uses_of_numbers(name, schema, dtype)
    for value in values[-3:].tolist():
        yield "Constant", {"value": value, "dtype": dtype}, ()
        yield "Constant", {"value": np.array(value, dtype), "dtype": dtype}, ()
        yield "ConstantOfShape", {"shape": (3,), "value": value, "dtype": dtype}, ()
    yield "ConstantOfShape", {"shape": (), "value": 1, "dtype": dtype}, ()
    yield "Constant", {"value": True, "dtype": dtype}, ()
    yield "Where", {}, (*combined(special(BOOL), values), values[-1])
    yield "Where", {}, (special(BOOL), values[1], values[-1])
    yield "Where", {}, (special(BOOL)[1], values, values)
    if dtype != BOOL:
        yield "Clip", {}, (values, values[-2], values[1])
        yield "Clip", {}, (values, values[3])


def uses_of_numbers(name: str, schema: OpSchema, dtype: str) -> Iterator[Use]:
    values = special(dtype)
    if isinstance(schema, Unary) and name != "Cast":
        yield name, {}, (values[-2],)
    elif isinstance(schema, SumOfProducts):
        yield name, {}, (values, values[-2], values[1], values)
    elif isinstance(schema, Variadic):
        yield name, {}, (values, values[-2], values[1])
    elif isinstance(schema, Binary):
        second = second_operand(name, dtype)
        yield name, {}, (values[-2], second)
        for number in POWERS if name == "Pow" and dtype in FLOATS else second[-2:]:
            yield name, {}, (values, np.asarray(number, dtype))
