"""Ops that make arrays: Shape, Constant, ConstantOfShape, Range, dropout and random numbers.

Random numbers come from a counter-based generator. They are equal on every device and in every repetition of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, isfinite, prod
from typing import Any, ClassVar

import numpy as np

from rnnops.errors import FeedError, NetError
from rnnops.kernels.scalar_functions import uniform_rows
from rnnops.net.blob import Blob, Number, Operand
from rnnops.net.infer import FOLD_LIMIT
from rnnops.net.loop_forms import Kernel, LoopForm, Pointwise
from rnnops.net.net import Net, common_net, require_net
from rnnops.net.op import Op
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, RunContext, no_gradient, register
from rnnops.ops.base import Sizes, Unary, append_sized, quiet, required_sizes
from rnnops.types import BOOL, FLOAT, FLOATS, NUMERIC, Array, Shape as SizesOfAxes, dtype_name


class Shape(OpSchema):
    """The sizes of an array from axis `start` up to `end`, as a blob.

    ONNX: Shape, op set 19. Its value is known before a run, so shapes of other ops may depend on it. Gradients stop
    here.

    Args:
        data: [...] any dtype.
        start, end: axes. Negative ones count from the end. Both are limited to the rank. Without `end`, all axes to the
            last one.

    Returns:
        [axes] int64.

    Raises:
        NetError: data is not a blob.
        TypeRuleError: once shapes are known, start or end is not an integer.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> net.outputs(sizes=ro.shape(x), zeros=ro.constant_of_shape(net, ro.shape(x, 1)))
        >>> ro.compile(net, device="reference")({"x": np.ones((2, 3))})
        {'sizes': array([2, 3]), 'zeros': array([0., 0., 0.])}
    """

    inputs = ("data",)
    outputs = ("shape",)
    attributes: ClassVar[dict[str, Any]] = {"start": 0, "end": None}
    differentiable = False

    def __call__(self, data: Blob, start: int = 0, end: int | None = None) -> Blob:
        return common_net([data]).apply(self.name, [data], start=start or None, end=end)

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return ("int64",)

    def shapes(self, call: Call) -> tuple[SizesOfAxes, ...]:
        for name in ("start", "end"):
            if not isinstance(call.attr(name), int | None):
                call.fail(f"'{name}' is not an integer", came=repr(call.attr(name)))
        return ((len(self.known_value(call)),),)

    def known_value(self, call: Call) -> Array:
        return np.array(call.shape(0)[call.attr("start") : call.attr("end")], np.int64)

    def reference(self, call: Call, data: Array) -> Array:
        return self.known_value(call)


class Constant(OpSchema):
    """A number or an array as a blob. Operators also take numbers and arrays directly.

    ONNX: Constant, op set 19. Gradients stop here.

    Args:
        net: the net that gets it.
        value: a number, or an array of numbers or bools, or lists of them.
        dtype: `"float"` (the float dtype of the run), `"int32"`, `np.bool_`, ... By default the dtype of the value, and
            `"float"` for floats.

    Returns:
        The shape of the value.

    Raises:
        NetError: net is not a net, or there is no such dtype.
        TypeRuleError: once shapes are known, the value does not fit the dtype.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.constant(net, [1.5, 2.5]) * net.input("x"))
        >>> ro.compile(net, device="reference")({"x": np.array([2.0, 4.0])})["y"]
        array([ 3., 10.])
    """

    inputs = ()
    outputs = ("output",)
    attributes: ClassVar[dict[str, Any]] = {"value": REQUIRED, "dtype": REQUIRED}
    call_hint = "Ops take NumPy arrays and numbers directly, x @ A; else use ro.constant(x.net, A)."
    differentiable = False

    def __call__(self, net: Net, value: Any, dtype: object = None) -> Blob:
        require_net(net, self.call_hint)
        return net.constant(value, dtype)

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return (dtype_name(attributes["dtype"]),)

    def shapes(self, call: Call) -> tuple[SizesOfAxes, ...]:
        check_number(call, call.attr("value"))
        return (np.shape(call.attr("value")),)

    def known_value(self, call: Call) -> Array | None:
        return self.reference(call) if call.output_types[0].size <= FOLD_LIMIT else None

    @quiet
    def reference(self, call: Call) -> Array:
        return np.array(call.attr("value")).astype(call.output_types[0].dtype)

    def loop_form(self, call: Call) -> LoopForm | None:
        return None if np.ndim(call.attr("value")) else Pointwise("{value}")


class ConstantOfShape(OpSchema):
    """An array of one number.

    ONNX: ConstantOfShape, op set 20. Gradients stop here.

    Args:
        net: the net that gets it.
        shape: sizes, or an int64 blob that follows from shapes and constants.
        value: the number, or a bool.
        dtype: `"float"` (the float dtype of the run), `"int32"`, ... By default the dtype of the value: `"float"` for a
            float, int64 for an integer.

    Returns:
        The given shape.

    Raises:
        NetError: net is not a net, sizes are not integers, value is not a number, or there is no such dtype.
        TypeRuleError: once shapes are known, a size is below 0, the value does not fit the dtype, or that of a blob of
            sizes is not known.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.constant_of_shape(net, [2, 3], 0.5))
        >>> ro.compile(net, device="reference")({})["y"]
        array([[0.5, 0.5, 0.5],
               [0.5, 0.5, 0.5]], dtype=float32)
    """

    inputs = ("shape?",)
    outputs = ("output",)
    static = ("shape",)
    attributes: ClassVar[dict[str, Any]] = {"shape": None, "value": 0.0, "dtype": None}
    accepts = ("int64",)
    differentiable = False
    loop = Pointwise("{value}")

    def __call__(self, net: Net, shape: Sizes, value: Number = 0.0, dtype: object = None) -> Blob:
        require_net(net)
        name = None if dtype is None else dtype_name(dtype)
        return append_sized(self, net, {"shape": shape}, {"value": value, "dtype": name})[0]

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        kind = np.asarray(attributes.get("value", 0.0)).dtype
        return (dtype_name(attributes.get("dtype") or (FLOAT if kind.kind == "f" else kind)),)

    def shapes(self, call: Call) -> tuple[SizesOfAxes, ...]:
        shape = required_sizes(call, "shape", 0)
        if np.ndim(call.attr("value")) or any(size < 0 for size in shape):
            call.fail("one number and sizes of 0 or more are wanted", came=f"{call.attr('value')!r}, {list(shape)}")
        check_number(call, call.attr("value"))
        return (shape,)

    @quiet
    def reference(self, call: Call, *sizes: Array) -> Array:
        kind = call.output_types[0]
        return np.full(kind.shape, call.attr("value"), kind.dtype)


class Range(OpSchema):
    """`start, start + delta, ...`, up to but not including `limit`. The three numbers must be known before a run.

    ONNX: Range, op set 11. The numbers are constants, so they have no gradients.

    Args:
        start, limit, delta: [] float or integers of one dtype: numbers, or blobs that follow from shapes and constants.
        net: the net that gets it. Needed if no argument is a blob.

    Returns:
        [ceil((limit - start) / delta)] of the same dtype. Empty if this is below 0.

    Raises:
        NetError: no argument is a blob and net is left out, or net is not a net.
        TypeRuleError: the dtypes differ. Once shapes are known: an argument is not a scalar, its value is not known, or
            delta is 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.range(5.0, 0.0, -2.0, net=net))
        >>> ro.compile(net, device="reference")({})["y"]
        array([5., 3., 1.], dtype=float32)
    """

    inputs = ("start", "limit", "delta")
    outputs = ("output",)
    static = inputs
    accepts = NUMERIC
    gradient = no_gradient

    def __call__(self, start: Operand, limit: Operand, delta: Operand = 1, net: Net | None = None) -> Blob:
        operands = [start, limit, delta]
        home = common_net(operands) if net is None else net
        require_net(home)
        if not any(isinstance(value, Blob) for value in operands):
            kind = np.result_type(*(np.asarray(value).dtype for value in operands))
            return home.append(self.name, home.operands(operands, FLOAT if kind.kind == "f" else kind.name))[0]
        return home.append(self.name, home.operands(operands))[0]

    def shapes(self, call: Call) -> tuple[SizesOfAxes, ...]:
        for i, port in enumerate(self.inputs):
            if call.shape(i) != ():
                call.fail(f"'{port}' must be a scalar", blob=call.op.inputs[i], came=list(call.shape(i)))
        start, limit, delta = (call.static(port, i) for i, port in enumerate(self.inputs))
        if delta == 0:
            call.fail("the step of a range must not be 0", came="delta = 0")
        if not isfinite((limit - start) / delta):
            call.fail("the number of elements of a range is not finite", came=f"from {start} to {limit} by {delta}")
        exact = call.dtype(0) not in FLOATS
        count = -((start - limit) // delta) if exact else ceil((limit - start) / delta)
        return ((max(count, 0),),)

    @quiet
    def reference(self, call: Call, start: Array, limit: Array, delta: Array) -> Array:
        steps = np.arange(call.output_types[0].size).astype(start.dtype)
        return np.asarray(start + steps * delta)


def check_number(call: Call, value: Any) -> None:
    """Raise TypeRuleError if a number or array does not fit the output's dtype."""
    array, dtype = np.asarray(value), call.output_types[0].dtype
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and dtype not in FLOATS):
        call.fail("the value does not have this dtype", wanted=dtype, came=repr(value))
    if array.size and dtype not in (*FLOATS, BOOL):
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            call.fail("the value is out of range", wanted=f"{limits.min} to {limits.max} of {dtype}", came=repr(value))


shape, constant, constant_of_shape = register(Shape()), register(Constant()), register(ConstantOfShape())
range = register(Range())  # noqa: A001


class DropoutOp(OpSchema):
    """In training, elements become 0 with probability `ratio`, and others are multiplied by `1 / (1 - ratio)`.

    Else a copy.

    ONNX: Dropout, op set 13. Random numbers come from a counter (Philox): they depend only on the run's seed, the op
    and the step. So they are equal on every device, for any number of threads, and when backward computes them again.
    The gradient is masked and scaled like the elements.

    Args:
        x: [...] float.
        ratio: the probability, from 0 to less than 1.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is not a blob, or ratio is out of range.
        TypeRuleError: x is not float.
        FeedError: a run in training has no `seed=`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.dropout(net.input("x"), 0.5))
        >>> run = ro.compile(net, device="reference")
        >>> run({"x": np.ones(6)}, training=True, seed=3)["y"]
        array([2., 0., 0., 0., 2., 2.])
        >>> run({"x": np.ones(6)})["y"]
        array([1., 1., 1., 1., 1., 1.])
    """

    name = "Dropout"

    inputs = ("data",)
    outputs = ("output", "mask")
    attributes: ClassVar[dict[str, Any]] = {"ratio": 0.5, "ordinal": 0}
    accepts = FLOATS
    keeps = ("mask",)
    uses_context = True
    random = True
    loop = Kernel("dropout")

    def __call__(self, x: Blob, ratio: float = 0.5) -> Blob:
        net = common_net([x])
        if not isinstance(ratio, int | float | np.integer | np.floating) or not 0 <= ratio < 1:
            raise NetError("ratio out of range", net=net.name, op=self.name, wanted="0 <= ratio < 1", came=repr(ratio))
        return net.append(self.name, [x], {"ratio": float(ratio)})[0]

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return (dtypes[0] or "", BOOL)

    def shapes(self, call: Call) -> tuple[SizesOfAxes, ...]:
        if not 0 <= call.attr("ratio") < 1:
            call.fail("ratio out of range", wanted="0 <= ratio < 1", came=call.attr("ratio"))
        return call.shape(0), call.shape(0)

    @quiet
    def reference(self, call: Call, x: Array, *, context: RunContext) -> tuple[Array, Array]:
        mask = dropout_mask(call, x.shape, context)
        return dropped(call, x, mask, context), mask

    def gradient(self, call: Call, x: Blob, y: Blob, mask: Blob, dy: Blob, dmask: Blob | None) -> Gradients:
        return dropout_grad(dy, mask, call.attr("ratio"))

    def draws(self, op: Op, training: bool) -> bool:
        return training and bool(op.attributes.get("ratio", self.attributes["ratio"]) > 0)


class RandomUniformLike(Unary):
    """Uniform random numbers in [0, 1), in the operand's shape. They are drawn in training and outside of it.

    ONNX: RandomUniformLike, op set 1. Random numbers come from a counter (Philox): they depend only on the run's seed,
    the op and the step, and are equal on every device. They have 24 random bits in float32 and 32 in float64. Gradients
    stop here.

    Args:
        x: [...] float. Its values do not matter.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is not a blob.
        TypeRuleError: x is not float.
        FeedError: a run has no `seed=`.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.random_uniform_like(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.zeros(4)}, seed=1)["y"]
        array([0.8903, 0.5127, 0.8993, 0.9139])
    """

    inputs = ("input",)
    outputs = ("output",)
    attributes: ClassVar[dict[str, Any]] = {"ordinal": 0}
    differentiable = False
    uses_context = True
    random = True
    loop = Kernel("uniform")

    def reference(self, call: Call, x: Array, *, context: RunContext) -> Array:
        return as_floats(uniform_array(call, x.shape, context), x.dtype)


class DropoutGrad(OpSchema):
    """The gradient of Dropout: scaled where the mask is True and 0 elsewhere. A copy if Dropout is not active."""

    inputs = ("dY", "mask")
    outputs = ("dX",)
    attributes: ClassVar[dict[str, Any]] = {"ratio": 0.5}
    accepts = FLOATS
    same_dtype = (0,)
    keeps = ("mask",)
    uses_context = True
    internal = True
    loop = Kernel("dropout_grad")

    def __call__(self, dy: Blob, mask: Blob, ratio: float) -> Blob:
        return common_net([dy]).append(self.name, [dy, mask], {"ratio": ratio})[0]

    def shapes(self, call: Call) -> tuple[SizesOfAxes, ...]:
        if call.shape(1) != call.shape(0) or call.dtype(1) != BOOL:
            call.fail("the mask does not fit the array", blob=call.op.inputs[1], wanted=f"bool{list(call.shape(0))}")
        return (call.shape(0),)

    @quiet
    def reference(self, call: Call, dy: Array, mask: Array, *, context: RunContext) -> Array:
        return dropped(call, dy, mask, context)

    def gradient(self, call: Call, dy: Blob, mask: Blob, dx: Blob, ddx: Blob) -> Gradients:
        return self(ddx, mask, call.attr("ratio")), None


def is_active(call: Call, context: RunContext) -> bool:
    return context.training and call.attr("ratio") > 0


def dropout_mask(call: Call, shape: SizesOfAxes, context: RunContext) -> Array:
    """True for elements that stay. Raises FeedError if Dropout is active and the run has no seed."""
    if not is_active(call, context):
        return np.ones(shape, bool)
    return np.asarray(uniform_array(call, shape, context) >= call.attr("ratio"))


def uniform_array(call: Call, shape: SizesOfAxes, context: RunContext) -> Array:
    """The op's random numbers in [0, 1). Raises FeedError if the run has no seed."""
    if context.seed is None:
        problem = "the run draws random numbers and has no seed"
        hint = "Pass seed=, or training=False if only dropout draws numbers."
        raise FeedError(problem, net=call.net, op=call.op.label, hint=hint)
    rows, row_size = (shape[0], prod(shape[1:])) if shape else (1, 1)
    numbers: Array = uniform_rows(context.seed, call.attr("ordinal"), context.t, rows, row_size)
    return numbers.reshape(shape)


def dropped(call: Call, x: Array, mask: Array, context: RunContext) -> Array:
    if not is_active(call, context):
        return np.array(x)
    return np.asarray(np.where(mask, x * x.dtype.type(1.0 / (1.0 - call.attr("ratio"))), x.dtype.type(0)))


def as_floats(drawn: Array, dtype: Any) -> Array:
    """Numbers in [0, 1) in a float dtype. Bits that do not fit are cut off, so that no number is rounded to 1."""
    return np.asarray((np.floor(drawn * 2.0**24) * 2.0**-24 if dtype == np.float32 else drawn).astype(dtype))


dropout, dropout_grad = register(DropoutOp()), register(DropoutGrad())
random_uniform_like = register(RandomUniformLike())
