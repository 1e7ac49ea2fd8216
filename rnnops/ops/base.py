"""Bases of many ops: classes for one operand, two, any number, and how shape-valued inputs are given and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, ParamSpec, TypeVar, Union

import numpy as np

from rnnops.errors import NetError, OpError
from rnnops.net.blob import Blob, Operand
from rnnops.net.loop_forms import ADDING, LoopForm, Pointwise, arguments_problem
from rnnops.net.net import Net, common_net
from rnnops.net.schema import Call, Gradients, OpSchema
from rnnops.sizes import whole
from rnnops.types import BOOL, FLOATS, NUMERIC, Array, Shape

MANY_OPERANDS = 64  # of one scalar expression: compilers give up on one that is a thousand operators deep
Sizes = Union[Blob, int, Sequence[int], Array]  # noqa: UP007 - a shape-valued input: a blob, or a Python value
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def quiet(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Run a reference without NumPy's warnings, where infinities and NaN are results like any other."""
    return np.errstate(all="ignore")(function)  # twice as quick as `with` in a function


def elementwise(function: Callable[..., Any]) -> Callable[..., Array]:
    """A reference that applies a function of arrays; a function of NumPy's of two operands folds any number of them."""
    folds = isinstance(function, np.ufunc) and function.nin == 2

    @quiet
    def reference(schema: OpSchema, call: Call, *arrays: Array) -> Array:
        return fold(function, arrays) if folds else np.asarray(function(*arrays))

    return reference


@dataclass(frozen=True)
class OpRow:
    """An elementwise op in one line.

    Args:
        function: of NumPy's arrays.
        text: the scalar expression of its loop form.
        gradient: from operands, result and its gradient to gradients of operands; None where gradients stop.
        keeps: ports whose values `gradient` reads.
    """

    function: Callable[..., Any]
    text: str
    gradient: Callable[..., Gradients] | None
    keeps: tuple[str, ...] = ()


BY_ROW = {"loop", "keeps", "differentiable", "reference", "gradient"}  # attributes of an op that a row stands for


class WithRow(OpSchema):
    """Base of ops that may have a `row`: it stands for reference, loop form, gradient and what is kept."""

    row: ClassVar[OpRow]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "row" in vars(cls):
            _check_row(cls)
            row = cls.row
            cls.loop, cls.keeps, cls.differentiable = Pointwise(row.text), row.keeps, row.gradient is not None
            setattr(cls, "reference", elementwise(row.function))  # noqa: B010 - as mypy has it
            rule: Any = row.gradient
            setattr(cls, "gradient", lambda schema, call, *blobs: rule(*blobs))  # noqa: B010


def _check_row(cls: type[WithRow]) -> None:
    """Raise OpError for a row that is not an OpRow, says what the class says too, or has a gradient of other blobs."""
    row, own, blobs = cls.row, BY_ROW & vars(cls).keys(), "inputs, outputs, gradients of outputs"
    if not isinstance(row, OpRow):
        raise OpError("its row is of another type", op=cls.__name__, wanted="an OpRow", came=repr(row), hint=ADDING)
    problem = f"it has a row and its own {', '.join(sorted(own))}; leave one of both out" if own else ""
    if row.gradient is not None and not problem:
        count = len(cls.inputs) + 2 * len(cls.outputs)
        problem = arguments_problem(row.gradient, "row.gradient", count, which=blobs)
    if problem:
        raise OpError(problem, op=cls.__name__, hint=ADDING)


class Unary(WithRow):
    """One operand, one result of its shape and dtype.

    Args:
        x: [...] {dtypes}.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is not {dtypes}.
    """

    accepts: ClassVar[tuple[str, ...]] = FLOATS

    def __call__(self, x: Blob) -> Blob:
        return common_net([x]).apply(self.name, [x])

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.shape(0),)


class Binary(WithRow):
    """Two operands that broadcast, one result of their dtype.

    Args:
        a, b: {dtypes}, of one dtype, that broadcast, one of them a blob; a number or an array takes the blob's dtype.

    Returns:
        The same dtype, of the shape that both broadcast to.

    Raises:
        NetError: neither is a blob, they are of two nets, or a number does not fit the blob's dtype.
        TypeRuleError: their dtypes differ or are none of these, or they do not broadcast.
    """

    inputs = ("A", "B")
    outputs = ("C",)
    accepts: ClassVar[tuple[str, ...]] = NUMERIC
    broadcasts = True

    def __call__(self, a: Operand, b: Operand) -> Blob:
        return common_net([a, b]).apply(self.name, [a, b])

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.broadcast(call.shape(0), call.shape(1)),)


class Comparison(Binary):
    """Two operands that broadcast, a bool result; gradients stop here.

    Returns:
        bool, of the shape that both broadcast to.
    """

    differentiable = False

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, object]) -> tuple[str, ...]:
        return (BOOL,)


class Variadic(OpSchema):
    """Any number of operands that broadcast, one result of their dtype; more than `MANY_OPERANDS` run by reference.

    Args:
        operands: {dtypes}, of one dtype, that broadcast, two or more, one of them a blob.

    Returns:
        The same dtype, of the shape that all broadcast to.

    Raises:
        NetError: fewer than two, none is a blob, they are of several nets, or a number does not fit their dtype.
        TypeRuleError: their dtypes differ or are none of these, or they do not broadcast.
    """

    inputs = ("A", "more*")
    outputs = ("C",)
    accepts: ClassVar[tuple[str, ...]] = NUMERIC
    broadcasts = True

    def __call__(self, *operands: Operand) -> Blob:
        if len(operands) < 2:
            hint = f"ro.reduce_{self.name.lower()}(x, axes=[...]) reduces one blob over its axes."
            raise NetError("this function joins several operands", op=self.name, came=len(operands), hint=hint)
        return common_net(operands).apply(self.name, operands)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.broadcast(*(call.shape(i) for i in range(len(call.types)))),)

    def text(self, count: int) -> str:
        """The scalar expression of so many operands."""
        raise NotImplementedError

    def loop_form(self, call: Call) -> LoopForm | None:
        return Pointwise(self.text(len(call.op.inputs))) if len(call.op.inputs) <= MANY_OPERANDS else None


def fold(function: Callable[..., Any], arrays: Sequence[Array]) -> Array:
    """`function` over all arrays, left to right; a copy where there is but one."""
    return np.asarray(reduce(function, arrays)) if len(arrays) > 1 else np.array(arrays[0])


def summed(count: int) -> str:
    """`{0} + {1} + {2}`: a sum as a scalar expression."""
    return " + ".join(f"{{{i}}}" for i in range(count))


def nested(function: str, count: int) -> str:
    """`f(f({0}, {1}), {2})`: a variadic op as a scalar expression."""
    text = "{0}"
    for i in range(1, count):
        text = f"{function}({text}, {{{i}}})"
    return text


def append_sized(
    schema: OpSchema, net: Net, operands: Mapping[str, Any], attributes: Mapping[str, Any] | None = None
) -> tuple[Blob, ...]:
    """Append an op with shape-valued inputs: by port name, blobs become inputs and Python values attributes."""
    values = [operands.get(port.rstrip("?*")) for port in schema.inputs]
    inputs = [value if isinstance(value, Blob) else None for value in values]
    while inputs and inputs[-1] is None:
        inputs.pop()
    sizes = {
        name: _integers(value, name, net, schema.name)
        for name, value in operands.items()
        if value is not None and not isinstance(value, Blob)
    }
    return net.append(schema.name, inputs, {**sizes, **(attributes or {})})


def axes_given(axes: Sizes | None, axis: Sizes | None, op: str) -> Sizes | None:
    """Axes by the op's own name, `axes=`, or by NumPy's, `axis=`. Raises NetError for both."""
    if axes is not None and axis is not None:
        raise NetError("axes are given twice", op=op, wanted="axes= or axis=", came=f"axes={axes}, axis={axis}")
    return axis if axes is None else axes


def sizes_of(call: Call, name: str, i: int) -> tuple[int, ...] | None:
    """The value of a shape-valued input, attribute `name` or else input `i`; None where it is left out."""
    if name in call.op.attributes and call.has(i):
        call.fail(f"'{name}' is given both as an attribute and as an input", blob=call.op.inputs[i])
    value = call.static(name, i)
    values = value if isinstance(value, list | tuple) else () if value is None else (value,)
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in values):
        call.fail(f"'{name}' is a list of integers", came=value)
    return None if value is None else tuple(values)


def required_sizes(call: Call, name: str, i: int) -> tuple[int, ...]:
    """As `sizes_of`, where the value must be given."""
    value = sizes_of(call, name, i)
    if value is None:
        call.fail(f"'{name}' is missing")
    return value


def choice(call: Call, name: str, *known: str) -> str:
    """A string attribute that is one of a few words."""
    value = call.attr(name)
    if value not in known:
        call.fail(f"unknown {name}", wanted=" or ".join(known), came=repr(value))
    return str(value)


def number(value: object, op: str) -> float:
    """A number that an op takes as an attribute. Raises NetError for anything else."""
    if not isinstance(value, int | float | np.integer | np.floating):
        raise NetError("an attribute is not a number", op=op, came=repr(value))
    return float(value)


def flag(value: object, op: str) -> int:
    """0 or 1 for an attribute that is on or off. Raises NetError for what is neither a bool nor an integer."""
    if not isinstance(value, int | np.integer | np.bool_):
        raise NetError("an attribute is neither on nor off", op=op, wanted="True, False, 1 or 0", came=repr(value))
    return int(bool(value))


def _integers(value: Any, name: str, net: Net, op: str) -> tuple[int, ...]:
    items = value.ravel().tolist() if isinstance(value, np.ndarray) else value
    try:
        return tuple(whole(item) for item in (items if isinstance(items, list | tuple) else [items]))
    except TypeError:
        raise NetError(f"'{name}' is a list of integers", net=net.name, op=op, came=repr(value)) from None
