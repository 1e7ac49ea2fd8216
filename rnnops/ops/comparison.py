"""Comparisons, logic, casts, and elementwise extrema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob, Operand
from rnnops.net.loop_forms import LoopForm, Pointwise
from rnnops.net.net import common_net
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, register
from rnnops.ops.base import Comparison, OpRow, Unary, Variadic, elementwise, nested, sum_to
from rnnops.types import ANY, BOOL, FLOAT, FLOATS, NUMERIC, Array, Shape, dtype_name, is_float


class Equal(Comparison):
    """`a == b`, with broadcasting. The operator appends it too.

    ONNX: Equal, op set 19. NaN equals nothing. Gradients stop here.

    Args:
        a, b: of one dtype, any, that broadcast, one of them a blob; a number or an array takes the blob's dtype.

    Raises:
        NetError: neither is a blob, they are of two nets, or a number does not fit the blob's dtype.
        TypeRuleError: their dtypes differ, or they do not broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.equal(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0]), "b": np.array([1.0, 3.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([ True, False])
    """

    accepts = ANY
    row = OpRow(np.equal, "{0} == {1}", gradient=None)


class Greater(Comparison):
    """`a > b`, with broadcasting. The operator appends it too.

    ONNX: Greater, op set 13. False for NaN. Gradients stop here.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.greater(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([2.0, 2.0, 2.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([False, False,  True])
    """

    row = OpRow(np.greater, "{0} > {1}", gradient=None)


class GreaterOrEqual(Comparison):
    """`a >= b`, with broadcasting. The operator appends it too.

    ONNX: GreaterOrEqual, op set 16. False for NaN. Gradients stop here.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.greater_or_equal(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([2.0, 2.0, 2.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([False,  True,  True])
    """

    row = OpRow(np.greater_equal, "{0} >= {1}", gradient=None)


class Less(Comparison):
    """`a < b`, with broadcasting. The operator appends it too.

    ONNX: Less, op set 13. False for NaN. Gradients stop here.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.less(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([2.0, 2.0, 2.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([ True, False, False])
    """

    row = OpRow(np.less, "{0} < {1}", gradient=None)


class LessOrEqual(Comparison):
    """`a <= b`, with broadcasting. The operator appends it too.

    ONNX: LessOrEqual, op set 16. False for NaN. Gradients stop here.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.less_or_equal(a, b))
        >>> feeds = {"a": np.array([1.0, 2.0, 3.0]), "b": np.array([2.0, 2.0, 2.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([ True,  True, False])
    """

    row = OpRow(np.less_equal, "{0} <= {1}", gradient=None)


class And(Comparison):
    """`a and b` of bools, with broadcasting; also written `a & b`.

    ONNX: And, op set 7. Gradients stop here.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> net.outputs(y=ro.and_(x > 0.0, x < 2.0))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 1.0, 3.0])})["y"]
        array([False,  True, False])
    """

    accepts = (BOOL,)
    row = OpRow(np.logical_and, "{0} and {1}", gradient=None)


class Or(Comparison):
    """`a or b` of bools, with broadcasting; also written `a | b`.

    ONNX: Or, op set 7. Gradients stop here.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> net.outputs(y=ro.or_(x < 0.0, x > 2.0))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 1.0, 3.0])})["y"]
        array([ True, False,  True])
    """

    accepts = (BOOL,)
    row = OpRow(np.logical_or, "{0} or {1}", gradient=None)


class Not(Unary):
    """`not x` of bools; also written `~x`.

    ONNX: Not, op set 1. Gradients stop here.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.not_(net.input("x") > 0.0))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.0, 1.0])})["y"]
        array([ True, False])
    """

    accepts = (BOOL,)
    row = OpRow(np.logical_not, "not {0}", gradient=None)


class Where(OpSchema):
    """`x` where a condition is True, else `y`. All three broadcast.

    ONNX: Where, op set 16. The operand that was taken gets the gradient, and the other one gets 0. The condition gets
    none.

    Args:
        condition: bool: a blob, a bool, or an array of bools.
        x, y: of any one dtype. A number or an array takes the dtype of the other.

    Returns:
        The dtype of x and y, and the shape that all three broadcast to.

    Raises:
        NetError: none is a blob, they are of several nets, or a number does not fit the dtype.
        TypeRuleError: the dtypes of x and y differ. Once shapes are known: the condition is not bool, or they do not
            broadcast.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> net.outputs(y=ro.where(x > 0.0, x, -1.0))
        >>> ro.compile(net, device="reference")({"x": np.array([-3.0, 0.0, 2.0])})["y"]
        array([-1., -1.,  2.])
    """

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
            call.fail("a condition must be bool", blob=call.op.inputs[0], wanted=BOOL, came=call.dtype(0))
        return (call.broadcast(call.shape(0), call.shape(1), call.shape(2)),)

    def reference(self, call: Call, condition: Array, x: Array, y: Array) -> Array:
        return np.asarray(np.where(condition, x, y))

    def gradient(self, call: Call, condition: Blob, x: Blob, y: Blob, output: Blob, dy: Blob) -> Gradients:
        return None, self(condition, dy, 0.0), self(condition, 0.0, dy)


class Cast(Unary):
    """The same values in another dtype.

    ONNX: Cast, op set 19. Floats lose their fraction when they become integers. Every number except 0 becomes True,
    also NaN. A float outside of an integer's range becomes an undefined number. Gradients pass from float to float and
    stop elsewhere.

    Args:
        x: [...] any dtype.
        to: `"float"` (the float dtype of the run), `"float32"`, `"int32"`, `"bool"`, `np.int64`, ...

    Returns:
        The same shape, of dtype `to`.

    Raises:
        NetError: x is not a blob, or there is no such dtype.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.cast(net.input("x"), "int32"))
        >>> ro.compile(net, device="reference")({"x": np.array([-1.7, 0.0, 1.7])})["y"]
        array([-1,  0,  1], dtype=int32)
    """

    inputs = ("input",)
    outputs = ("output",)
    attributes: ClassVar[dict[str, Any]] = {"to": REQUIRED}
    accepts = ANY

    def __call__(self, x: Blob, to: object) -> Blob:  # type: ignore[override]
        return common_net([x]).apply(self.name, [x], to=dtype_name(to))

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return (dtype_name(attributes["to"]),)

    def reference(self, call: Call, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(x.astype(call.output_types[0].dtype))

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        dtype = call.dtype(0)
        if not (is_float(dtype) and is_float(call.output_types[0].dtype)):
            return None
        # A gradient net may name its float dtype "float", or by the dtype for which "float" stands.
        return self(dy, FLOAT if dy.dtype == FLOAT and dtype == dy.net.float_dtype else dtype)

    def loop_form(self, call: Call) -> LoopForm:
        if call.output_types[0].dtype == BOOL:
            return Pointwise("{0}" if call.dtype(0) == BOOL else "{0} != 0")
        if call.dtype(0) == BOOL:
            return Pointwise("1 if {0} else 0")
        truncated = call.dtype(0) in FLOATS and call.output_types[0].dtype not in FLOATS
        return Pointwise("floor({0}) if {0} >= 0 else -floor(-{0})" if truncated else "{0}")


class Identity(Unary):
    """A copy; also written `+x`.

    ONNX: Identity, op set 19. The gradient passes.

    Raises:
        NetError: x is not a blob.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.identity(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([1.0, 2.0])})["y"]
        array([1., 2.])
    """

    accepts = ANY
    row = OpRow(np.array, "{0}", lambda x, y, dy: dy)


equal, greater, greater_or_equal = register(Equal()), register(Greater()), register(GreaterOrEqual())
less, less_or_equal = register(Less()), register(LessOrEqual())
and_, or_, not_ = register(And()), register(Or()), register(Not())
where, cast, identity = register(Where()), register(Cast()), register(Identity())


class ExtremumOfSeveral(Variadic):
    """The largest or smallest operand. Operands that tie share the gradient equally."""

    keeps = ("A", "more")
    function: ClassVar[str]  # name of the function in texts

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        operands = blobs[: len(call.op.inputs)]
        return shared_among_ties(operands, blobs[-1].net.apply(self.name, operands), blobs[-1])

    def text(self, count: int) -> str:
        return nested(self.function, count)


class Min(ExtremumOfSeveral):
    """The smallest of two or more operands, element by element with broadcasting. NaN if one is NaN.

    ONNX: Min, op set 13. Operands that tie share the gradient equally. If one is NaN, none gets any. For axes of one
    blob use `ro.reduce_min`.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.min(a, b))
        >>> feeds = {"a": np.array([1.0, np.nan]), "b": np.array([2.0, 3.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([ 1., nan])
    """

    function = "minimum"
    reference = elementwise(np.minimum)


class Max(ExtremumOfSeveral):
    """The largest of two or more operands, element by element with broadcasting. NaN if one is NaN.

    ONNX: Max, op set 13. Operands that tie share the gradient equally. If one is NaN, none gets any. For axes of one
    blob use `ro.reduce_max`.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.max(a, b))
        >>> feeds = {"a": np.array([1.0, np.nan]), "b": np.array([2.0, 3.0])}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([ 2., nan])
    """

    function = "maximum"
    reference = elementwise(np.maximum)


class Clip(OpSchema):
    """`minimum(maximum(x, min), max)`. If min is above max, the result is `max`. NaN stays NaN.

    ONNX: Clip, op set 13. x gets the gradient between the bounds and on them. Outside, the bound gets it.

    Args:
        x: [...] float or integer.
        min, max: [] of x's dtype, a blob or a number. By default no bound.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is not a blob, or a float bounds integers.
        TypeRuleError: a bound has another dtype, or x is bool. Once shapes are known: a bound is not a scalar.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.clip(net.input("x"), 0.0, 1.0))
        >>> ro.compile(net, device="reference")({"x": np.array([-2.0, 0.5, 3.0])})["y"]
        array([0. , 0.5, 1. ])
    """

    inputs = ("input", "min?", "max?")
    outputs = ("output",)
    accepts = NUMERIC
    keeps = ("input", "min", "max")

    def __call__(self, x: Blob, min: Operand | None = None, max: Operand | None = None) -> Blob:  # noqa: A002
        net = common_net([x])
        low, high = (None if bound is None else net.operands([bound], x.dtype)[0] for bound in (min, max))
        inputs = [x, low, high] if high is not None else [x, low] if low is not None else [x]
        return net.append(self.name, inputs)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        for i in (1, 2):
            if call.has(i) and call.shape(i) != ():
                call.fail("a bound must be a scalar", blob=call.op.inputs[i], came=list(call.shape(i)))
        return (call.shape(0),)

    def reference(self, call: Call, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
        bounded = x.copy() if low is None else np.maximum(x, low)
        return np.asarray(bounded if high is None else np.minimum(bounded, high))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        x, low, high, dy = blobs[0], blobs[1] if call.has(1) else None, blobs[2] if call.has(2) else None, blobs[-1]
        inner, dlow, dhigh = dy, None, None  # inner: the gradient of maximum(x, low)
        if high is not None:
            above = greater(x if low is None else max(x, low), high)
            inner, dhigh = where(above, 0.0, dy), sum_to(where(above, dy, 0.0), ())
        dx = inner
        if low is not None:
            below = less(x, low)
            dx, dlow = where(below, 0.0, inner), sum_to(where(below, inner, 0.0), ())
        return (dx, dlow, dhigh)[: len(call.op.inputs)]

    def loop_form(self, call: Call) -> LoopForm:
        text = "maximum({0}, {1})" if call.has(1) else "{0}"
        return Pointwise(f"minimum({text}, {{2}})" if call.has(2) else text)


def shared_among_ties(operands: tuple[Blob, ...], y: Blob, dy: Blob) -> Gradients:
    """`dy` in equal shares for the operands that are equal to `y`."""
    tied = [equal(operand, y) for operand in operands]
    count = cast(tied[0], dy.dtype)
    for mask in tied[1:]:
        count = count + cast(mask, dy.dtype)
    share = dy / count
    return tuple(where(mask, share, 0.0) for mask in tied)


min, max, clip = register(Min()), register(Max()), register(Clip())  # noqa: A001
