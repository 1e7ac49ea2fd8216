"""Comparisons, logic, choice by a condition, casts and copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob, Operand
from rnnops.loops import LoopForm, Pointwise
from rnnops.net import common_net
from rnnops.ops.base import Comparison, Unary
from rnnops.schema import REQUIRED, Call, Gradients, OpSchema, register
from rnnops.types import ANY, BOOL, FLOAT, FLOATS, Array, Shape, dtype_name, is_float


class Equal(Comparison):
    """`a == b`."""

    accepts = ANY
    loop = Pointwise("{0} == {1}")

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.equal(a, b))


class Greater(Comparison):
    """`a > b`."""

    loop = Pointwise("{0} > {1}")

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.greater(a, b))


class GreaterOrEqual(Comparison):
    """`a >= b`."""

    loop = Pointwise("{0} >= {1}")

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.greater_equal(a, b))


class Less(Comparison):
    """`a < b`."""

    loop = Pointwise("{0} < {1}")

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.less(a, b))


class LessOrEqual(Comparison):
    """`a <= b`."""

    loop = Pointwise("{0} <= {1}")

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.less_equal(a, b))


class And(Comparison):
    """`a and b`, of bools."""

    accepts = (BOOL,)
    loop = Pointwise("{0} and {1}")

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.logical_and(a, b))


class Or(Comparison):
    """`a or b`, of bools."""

    accepts = (BOOL,)
    loop = Pointwise("{0} or {1}")

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.logical_or(a, b))


class Not(Unary):
    """`not x`, of bools."""

    accepts = (BOOL,)
    differentiable = False
    loop = Pointwise("not {0}")

    def reference(self, call: Call, x: Array) -> Array:
        return np.asarray(np.logical_not(x))


class Where(OpSchema):
    """`x` where the bool condition holds, else `y`; all three broadcast."""

    inputs = ("condition", "X", "Y")
    outputs = ("output",)
    same_dtype = (1, 2)
    keeps = ("condition",)
    broadcasts = True
    loop = Pointwise("{1} if {0} else {2}")

    def __call__(self, condition: Operand, x: Operand, y: Operand) -> Blob:
        net = common_net([condition, x, y])
        return net.append(self.name, [*net.operands([condition], BOOL), *net.operands([x, y])])[0]

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return (dtypes[1] or "",)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if call.dtype(0) != BOOL:
            call.fail("a condition is bool", blob=call.op.inputs[0], wanted=BOOL, came=call.dtype(0))
        return (call.broadcast(call.shape(0), call.shape(1), call.shape(2)),)

    def reference(self, call: Call, condition: Array, x: Array, y: Array) -> Array:
        return np.asarray(np.where(condition, x, y))

    def gradient(self, call: Call, condition: Blob, x: Blob, y: Blob, output: Blob, dy: Blob) -> Gradients:
        return None, self(condition, dy, 0.0), self(condition, 0.0, dy)


class Cast(OpSchema):
    """Another dtype: floats lose their fraction on the way to integers, only 0 is False.

    Gradients pass from float to float.
    """

    inputs = ("input",)
    outputs = ("output",)
    attributes: ClassVar[dict[str, Any]] = {"to": REQUIRED}

    def __call__(self, x: Blob, to: object) -> Blob:
        return common_net([x]).apply(self.name, [x], to=dtype_name(to))

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return (dtype_name(attributes["to"]),)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.shape(0),)

    def reference(self, call: Call, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(x.astype(call.output_types[0].dtype))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        dtype = call.dtype(0)
        if not (is_float(dtype) and is_float(call.output_types[0].dtype)):
            return None
        # A gradient net may name its floats by "float" or by the dtype that this stands for.
        return self(dy, FLOAT if dy.dtype == FLOAT and dtype == dy.net.float_dtype else dtype)

    def loop_form(self, call: Call) -> LoopForm:
        if call.output_types[0].dtype == BOOL:
            return Pointwise("{0}" if call.dtype(0) == BOOL else "{0} != 0")
        if call.dtype(0) == BOOL:
            return Pointwise("1 if {0} else 0")
        truncated = call.dtype(0) in FLOATS and call.output_types[0].dtype not in FLOATS
        return Pointwise("floor({0}) if {0} >= 0 else -floor(-{0})" if truncated else "{0}")


class Identity(Unary):
    """A copy."""

    accepts = ANY
    loop = Pointwise("{0}")

    def reference(self, call: Call, x: Array) -> Array:
        return np.array(x)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy


equal, greater, greater_or_equal = register(Equal()), register(Greater()), register(GreaterOrEqual())
less, less_or_equal = register(Less()), register(LessOrEqual())
and_, or_, not_ = register(And()), register(Or()), register(Not())
where, cast, identity = register(Where()), register(Cast()), register(Identity())
