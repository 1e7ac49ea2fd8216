"""Base classes of many ops, and the ops that rnnops inserts itself.

First come base classes for one operand, two operands and any number, and functions for inputs that hold sizes.

**bfloat16 as uint16**: NumPy has no bfloat16, so values that are stored between the passes with `residuals="bfloat16"`
are uint16. A bfloat16 is the upper half of a float32: its sign, its exponent, and 8 of its 24 digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, ParamSpec, TypeVar, Union

import numpy as np

from rnnops.errors import NetError, OpError
from rnnops.net.blob import Blob, Operand
from rnnops.net.loop_forms import ADDING, Kernel, LoopForm, Pointwise, Reduction, View, arguments_problem
from rnnops.net.net import Net, common_net
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, no_gradient, register
from rnnops.sizes import whole
from rnnops.types import ANY, BOOL, FLOATS, NUMERIC, Array, Shape, broadcast_shapes

MANY_OPERANDS = 64  # most operands of one scalar expression; compilers give up on one that is a thousand operators deep
Sizes = Union[Blob, int, Sequence[int], Array]  # noqa: UP007 - an input that holds sizes: a blob, or a Python value
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def quiet(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Runs a reference without NumPy's warnings. Infinities and NaN are results like any other."""
    return np.errstate(all="ignore")(function)  # twice as fast as `with` in a function


def elementwise(function: Callable[..., Any]) -> Callable[..., Array]:
    """A reference that applies a NumPy function. A function of two operands is folded over any number of operands."""
    folds = isinstance(function, np.ufunc) and function.nin == 2

    @quiet
    def reference(schema: OpSchema, call: Call, *arrays: Array) -> Array:
        return fold(function, arrays) if folds else np.asarray(function(*arrays))

    return reference


@dataclass(frozen=True)
class OpRow:
    """An elementwise op in one line.

    Args:
        function: a function of NumPy arrays.
        text: the scalar expression of its loop form.
        gradient: a function of operands, result and the result's gradient. It returns gradients of the operands. None
            if gradients stop.
        keeps: ports whose values `gradient` reads.
    """

    function: Callable[..., Any]
    text: str
    gradient: Callable[..., Gradients] | None
    keeps: tuple[str, ...] = ()


BY_ROW = {"loop", "keeps", "differentiable", "reference", "gradient"}  # the attributes of an op that a row replaces


class WithRow(OpSchema):
    """Base of ops that may have a `row`. The row replaces reference, loop form, gradient and `keeps`."""

    row: ClassVar[OpRow]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "row" in vars(cls):
            _check_row(cls)
            row = cls.row
            cls.loop, cls.keeps, cls.differentiable = Pointwise(row.text), row.keeps, row.gradient is not None
            setattr(cls, "reference", elementwise(row.function))  # noqa: B010 - mypy wants it
            rule: Any = row.gradient
            setattr(cls, "gradient", lambda schema, call, *blobs: rule(*blobs))  # noqa: B010


def _check_row(cls: type[WithRow]) -> None:
    """Raise OpError for a row that is not an OpRow, repeats attributes, or has a gradient with wrong arguments."""
    row, own, blobs = cls.row, BY_ROW & vars(cls).keys(), "inputs, outputs, gradients of outputs"
    if not isinstance(row, OpRow):
        raise OpError("its row is not an OpRow", op=cls.__name__, wanted="an OpRow", came=repr(row), hint=ADDING)
    problem = f"it has a row and its own {', '.join(sorted(own))}; leave one of both out" if own else ""
    if row.gradient is not None and not problem:
        count = len(cls.inputs) + 2 * len(cls.outputs)
        problem = arguments_problem(row.gradient, "row.gradient", count, which=blobs)
    if problem:
        raise OpError(problem, op=cls.__name__, hint=ADDING)


class Unary(WithRow):
    """One operand, and one result of its shape and dtype.

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
    """Two operands that broadcast, and one result of their dtype.

    Args:
        a, b: {dtypes}, of one dtype, that broadcast. At least one is a blob. A number or an array takes the blob's
            dtype.

    Returns:
        The same dtype, of the shape that both broadcast to.

    Raises:
        NetError: neither is a blob, they are of two nets, or a number does not fit the blob's dtype.
        TypeRuleError: the dtypes differ or are not accepted, or the operands do not broadcast.
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
    """Two operands that broadcast, and a bool result. Gradients stop here.

    Returns:
        bool, of the shape that both broadcast to.
    """

    differentiable = False

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, object]) -> tuple[str, ...]:
        return (BOOL,)


class Variadic(OpSchema):
    """Any number of operands that broadcast, and one result of their dtype.

    Above `MANY_OPERANDS` the op runs by its reference.

    Args:
        operands: two or more, {dtypes}, of one dtype, that broadcast. At least one is a blob.

    Returns:
        The same dtype, of the shape that all broadcast to.

    Raises:
        NetError: there are fewer than two operands, none is a blob, they are of several nets, or a number does not fit.
        TypeRuleError: the dtypes differ or are not accepted, or the operands do not broadcast.
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
        """The scalar expression for `count` operands."""
        raise NotImplementedError

    def loop_form(self, call: Call) -> LoopForm | None:
        return Pointwise(self.text(len(call.op.inputs))) if len(call.op.inputs) <= MANY_OPERANDS else None


def fold(function: Callable[..., Any], arrays: Sequence[Array]) -> Array:
    """Folds `function` over all arrays, from left to right. A single array is copied."""
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
    """Append an op with inputs that hold sizes.

    Operands go by port name: blobs become inputs, Python values attributes.
    """
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
    """The axes, given as `axes=` (the op's own name) or `axis=` (NumPy's). Raises NetError if both are given."""
    if axes is not None and axis is not None:
        raise NetError("axes are given twice", op=op, wanted="axes= or axis=", came=f"axes={axes}, axis={axis}")
    return axis if axes is None else axes


def sizes_of(call: Call, name: str, i: int) -> tuple[int, ...] | None:
    """The value of an input that holds sizes: attribute `name`, or else input `i`. None if it is left out."""
    if name in call.op.attributes and call.has(i):
        call.fail(f"'{name}' is given both as an attribute and as an input", blob=call.op.inputs[i])
    value = call.static(name, i)
    values = value if isinstance(value, list | tuple) else () if value is None else (value,)
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in values):
        call.fail(f"'{name}' must be a list of integers", came=value)
    return None if value is None else tuple(values)


def required_sizes(call: Call, name: str, i: int) -> tuple[int, ...]:
    """As `sizes_of`, for a value that must be given."""
    value = sizes_of(call, name, i)
    if value is None:
        call.fail(f"'{name}' is missing")
    return value


def choice(call: Call, name: str, *known: str) -> str:
    """A string attribute that must be one of the known words."""
    value = call.attr(name)
    if value not in known:
        call.fail(f"unknown {name}", wanted=" or ".join(known), came=repr(value))
    return str(value)


def number(value: object, op: str) -> float:
    """A number that an op takes as an attribute. Raises NetError for all other values."""
    if not isinstance(value, int | float | np.integer | np.floating):
        raise NetError("an attribute is not a number", op=op, came=repr(value))
    return float(value)


def flag(value: object, op: str) -> int:
    """0 or 1 for a flag. Raises NetError for a value that is neither a bool nor an integer."""
    if not isinstance(value, int | np.integer | np.bool_):
        raise NetError("a flag is neither on nor off", op=op, wanted="True, False, 1 or 0", came=repr(value))
    return int(bool(value))


def _integers(value: Any, name: str, net: Net, op: str) -> tuple[int, ...]:
    items = value.ravel().tolist() if isinstance(value, np.ndarray) else value
    try:
        return tuple(whole(item) for item in (items if isinstance(items, list | tuple) else [items]))
    except TypeError:
        raise NetError(f"'{name}' must be a list of integers", net=net.name, op=op, came=repr(value)) from None


BITS = "uint16"


def bits_of(x: Array) -> Array:
    """The bits of the nearest bfloat16 numbers (ties to even). All NaN get the same bits."""
    pattern = np.where(np.isnan(x), np.float32(np.nan), x.astype(np.float32)).view(np.uint32)
    odd = (pattern >> np.uint32(16)) & np.uint32(1)
    return np.asarray(((pattern + odd + np.uint32(0x7FFF)) >> np.uint32(16)).astype(BITS))


def numbers_of(bits: Array) -> Array:
    """The float32 numbers that bits of bfloat16 stand for."""
    return np.asarray((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))


class ToBfloat16(Unary):
    """The bits of floats as bfloat16. float64 is rounded to float32 first."""

    internal = True
    gradient = no_gradient
    loop = Pointwise("bfloat16_code({0})")
    reference = elementwise(bits_of)

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return (BITS,)


class FromBfloat16(Unary):
    """The numbers that bits of bfloat16 stand for. The bits come as whole numbers of the run's float dtype.

    x: whole numbers from 0 to 65535. For other numbers the result is undefined.
    """

    internal = True
    gradient = no_gradient
    loop = Pointwise("bfloat16_value({0})")
    reference = elementwise(lambda x: numbers_of(x.astype(BITS)).astype(x.dtype))


to_bfloat16, from_bfloat16 = register(ToBfloat16()), register(FromBfloat16())


# elements; above this size NumPy's own transposed copy is 2 to 4 times slower
LARGE_MATRIX, BLOCK_ELEMENTS = 16384, 8192


def transposed_copy(data: Array, order: Sequence[int]) -> Array:
    """A copy in C order with axes in another order. Large matrices are copied in blocks of rows that fit the cache."""
    if data.ndim != 2 or data.size < LARGE_MATRIX or tuple(order) != (1, 0):
        return np.array(np.transpose(data, order), order="C")
    rows, columns = data.shape
    result = np.empty((columns, rows), data.dtype)
    block = max(8, BLOCK_ELEMENTS // columns)
    for first in range(0, rows, block):
        result[:, first : first + block] = data[first : first + block].T
    return result


class StopGradient(Unary):
    """A copy. Gradients stop here: the gradient of x is 0.

    Not in ONNX: a file gets Identity.

    Raises:
        NetError: x is not a blob.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> net.outputs(y=x * ro.stop_gradient(x))
        >>> out, pullback = ro.compile(net, device="reference").vjp({"x": np.array([2.0, 3.0])})
        >>> pullback(np.ones(2))["x"]
        array([2., 3.])
    """

    accepts = ANY
    row = OpRow(np.array, "{0}", gradient=None)


class WithGradient(OpSchema):
    """`y`, with `slope` as its derivative with respect to `x`: a surrogate gradient.

    Not in ONNX: a file gets Identity. The gradient of `x` is the result's gradient times `slope`. The gradient of `y`
    passes through; use `stop_gradient` for a `y` without a gradient. `slope` gets no gradient.

    Args:
        y, x, slope: [...] float, of one shape.

    Returns:
        `y`, of its shape and dtype.

    Raises:
        NetError: an argument is not a blob, or they are of several nets.
        TypeRuleError: an argument is not float. Once shapes are known: the shapes differ.

    Example:
        A spike that is differentiated as a sigmoid (Neftci and others, IEEE SPM 36(6), 2019):

        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> s = ro.sigmoid(x)
        >>> spike = ro.stop_gradient(ro.cast(x > 0.0, "float"))
        >>> net.outputs(y=ro.with_gradient(spike, x, ro.stop_gradient(s * (1.0 - s))))
        >>> out, pullback = ro.compile(net, device="reference").vjp({"x": np.array([-1.0, 0.5])})
        >>> out["y"], pullback(np.ones(2))["x"]
        (array([0., 1.]), array([0.1966, 0.235 ]))
    """

    inputs = ("Y", "X", "slope")
    outputs = ("Z",)
    accepts = FLOATS
    keeps = ("slope",)
    loop = Pointwise("{0}")

    def __call__(self, y: Blob, x: Blob, slope: Blob) -> Blob:
        return common_net([y, x, slope]).apply(self.name, [y, x, slope])

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        for i in (1, 2):
            if call.shape(i) != call.shape(0):
                wanted = f"{list(call.shape(0))}, the shape of Y"
                call.fail("operands differ in shape", blob=call.op.inputs[i], wanted=wanted, came=list(call.shape(i)))
        return (call.shape(0),)

    def reference(self, call: Call, y: Array, x: Array, slope: Array) -> Array:
        return np.array(y)

    def gradient(self, call: Call, y: Blob, x: Blob, slope: Blob, z: Blob, dz: Blob) -> Gradients:
        return dz, dz * slope, None


stop_gradient, with_gradient = register(StopGradient()), register(WithGradient())


INDEX_DTYPES = ("int32", "int64")


class SumTo(OpSchema):
    """Sum over the axes that broadcasting repeated. It is the gradient of every broadcast.

    x: an array. `shape` broadcasts to its shape. y: of shape `shape`.
    """

    attributes: ClassVar[dict[str, Any]] = {"shape": REQUIRED}
    accepts = NUMERIC
    internal = True
    loop = Reduction("{a} + {b}", 0)

    def __call__(self, x: Blob, shape: Shape) -> Blob:
        return common_net([x]).append(self.name, [x], {"shape": tuple(shape)})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape = tuple(call.attr("shape"))
        if broadcast_shapes([shape, call.shape(0)]) != call.shape(0):
            call.fail("a sum to a shape that does not broadcast to the operand's shape", wanted=list(shape))
        return (shape,)

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        total = np.asarray(x.sum(axis=self.reduced_axes(call), dtype=x.dtype))
        return total.reshape(call.output_types[0].shape)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy.net.append("Expand", [dy], {"shape": call.shape(0)})[0]

    def reduced_axes(self, call: Call) -> tuple[int, ...]:
        came, shape = call.shape(0), tuple(call.attr("shape"))
        extra = len(came) - len(shape)
        repeated = (extra + i for i, size in enumerate(shape) if size == 1 and came[extra + i] != 1)
        return (*range(extra), *repeated)


class ScatterAdd(OpSchema):
    """The gradient of Gather: slices of `x` are added at the places in `indices`, in the order of `x`.

    x: [..., *indices.shape, ...], with the axes of indices from `axis` on. y: [..., size, ...].
    """

    inputs = ("X", "indices")
    attributes: ClassVar[dict[str, Any]] = {"axis": REQUIRED, "size": REQUIRED}
    accepts = NUMERIC
    same_dtype = (0,)
    keeps = ("indices",)
    internal = True
    loop = Kernel("scatter_add")

    def __call__(self, x: Blob, indices: Blob, axis: int, size: int) -> Blob:
        return common_net([x]).append(self.name, [x, indices], {"axis": axis, "size": size})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis, rank = call.shape(0), call.attr("axis"), call.rank(1)
        if shape[axis : axis + rank] != call.shape(1) or call.dtype(1) not in INDEX_DTYPES:
            call.fail("indices do not match the axes they scatter", came=f"{list(call.shape(1))} from axis {axis}")
        return ((*shape[:axis], call.attr("size"), *shape[axis + rank :]),)

    @quiet
    def reference(self, call: Call, x: Array, indices: Array) -> Array:
        shape, axis = call.output_types[0].shape, call.attr("axis")
        targets = check_indices(call, indices, shape[axis])
        result = np.zeros(shape, x.dtype)
        np.add.at(result, (*(slice(None),) * axis, targets), x)
        return result

    def gradient(self, call: Call, x: Blob, indices: Blob, y: Blob, dy: Blob) -> Gradients:
        return dy.net.append("Gather", [dy, indices], {"axis": call.attr("axis")})[0], None


class ScatterSlice(OpSchema):
    """The gradient of a Slice with steps: `x` is put at the places that the slice took, with 0 elsewhere.

    Starts are 0 or more. Element `k` along `axes[j]` goes to place `starts[j] + k * steps[j]` in y, which has shape
    `shape`.
    """

    attributes: ClassVar[dict[str, Any]] = {"shape": REQUIRED, "starts": REQUIRED, "axes": REQUIRED, "steps": REQUIRED}
    internal = True
    loop = View()

    def __call__(self, x: Blob, shape: Shape, starts: Sequence[int], axes: Sequence[int], steps: Sequence[int]) -> Blob:
        attributes = {"shape": shape, "starts": starts, "axes": axes, "steps": steps}
        return common_net([x]).append(self.name, [x], attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (tuple(call.attr("shape")),)

    def reference(self, call: Call, x: Array) -> Array:
        result = np.zeros(call.output_types[0].shape, x.dtype)
        places = [np.arange(size) for size in x.shape]
        for axis, start, step in zip(call.attr("axes"), call.attr("starts"), call.attr("steps"), strict=True):
            places[axis] = start + step * places[axis]
        result[np.ix_(*places)] = x
        return result

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        cut: dict[str, Sequence[int]] = {name: tuple(call.attr(name)) for name in ("starts", "axes", "steps")}
        places = zip(cut["starts"], cut["axes"], cut["steps"], strict=True)
        ends = tuple(_end(start, call.shape(0)[axis], step) for start, axis, step in places)
        return dy.net.append("Slice", [dy], {**cut, "ends": ends})[0]


IN_FRONT = -(2**60)  # before the first place of any axis; the end of a Slice that goes backwards


def _end(start: int, count: int, step: int) -> int:
    """The end of a Slice that takes `count` places from `start` on."""
    end = start + step * count
    return end if end >= 0 else IN_FRONT


class Normalize(OpSchema):
    """Y of LayerNormalization, from known statistics of rows: `(x - mean) * inv_std_dev * scale + bias`.

    The result has the same bits as LayerNormalization. Mean and InvStdDev have x's shape, with size 1 from `axis` on.
    """

    inputs = ("X", "Mean", "InvStdDev", "Scale", "B?")
    attributes: ClassVar[dict[str, Any]] = {"axis": -1}
    accepts = FLOATS
    keeps = ("X", "Mean", "InvStdDev", "Scale")
    internal = True

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.axis(call.attr("axis"), call.rank(0))
        rows = (*shape[:axis], *(1,) * (len(shape) - axis))
        for i in (1, 2):
            if call.shape(i) != rows:
                call.fail("not the statistics of these rows", blob=call.op.inputs[i], wanted=list(rows))
        return (shape,)

    @quiet
    def reference(self, call: Call, *arrays: Array) -> Array:
        return normalized(*arrays)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        (x, mean, inv_std_dev, scale), dy = blobs[:4], blobs[-1]
        away, scaled = x - mean, dy * scale
        dx, rows = scaled * inv_std_dev, call.shape(1)
        grads = [dx, sum_to(-dx, rows), sum_to(scaled * away, rows), sum_to(dy * away * inv_std_dev, call.shape(3))]
        return [*grads, *(sum_to(dy, call.shape(4)) if call.has(4) else None for _ in call.op.inputs[4:])]

    def loop_form(self, call: Call) -> LoopForm:
        return Pointwise("({0} - {1}) * {2} * {3}" + (" + {4}" if call.has(4) else ""))


def normalized(x: Array, mean: Array, inv_std_dev: Array, scale: Array, bias: Array | None = None) -> Array:
    """The last step of layer normalization, in one fixed order of operations."""
    scaled = (x - mean) * inv_std_dev * scale
    return np.asarray(scaled if bias is None else scaled + bias)


def check_indices(call: Call, indices: Array, size: int) -> Array:
    """Returns the indices. Raises TypeRuleError for an index outside of `[-size, size)`."""
    wrong = indices[(indices < -size) | (indices >= size)]
    if wrong.size:
        call.fail(
            "an index is out of range", blob=call.op.inputs[1], wanted=f"{-size} to {size - 1}", came=int(wrong.flat[0])
        )
    return indices


sum_to, scatter_add, scatter_slice = register(SumTo()), register(ScatterAdd()), register(ScatterSlice())
register(Normalize())
