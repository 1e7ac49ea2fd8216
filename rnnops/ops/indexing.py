"""Ops that pick or pad elements: Slice, Gather, Pad. SelectValid and MaskRows are for rows past their end."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rnnops.net.blob import Blob, Number
from rnnops.net.loop_forms import Kernel, LoopForm, Pointwise
from rnnops.net.net import common_net
from rnnops.net.schema import Call, Gradients, OpSchema, register
from rnnops.ops.base import (
    INDEX_DTYPES,
    Sizes,
    append_sized,
    check_indices,
    choice,
    flag,
    required_sizes,
    scatter_add,
    scatter_slice,
    sizes_of,
    sum_to,
)
from rnnops.ops.comparison import cast, greater_or_equal, less, or_, where
from rnnops.ops.movement import Movement, first_only, reshape, reshape_to
from rnnops.types import BOOL, FLOATS, Array, Shape, is_float

FEATURE_AXES = "For a state with several feature axes give state_shapes={name: sizes}."
TIME_MAJOR = "Sequences are time-major, [T, N, ...]: feed an array [N, T, ...] as x.swapaxes(0, 1)."


class SelectValid(OpSchema):
    """`new` in rows that have not ended (`timestep < seq_lengths[n]`). In other rows `previous`, or 0 with `drop`.

    Not in ONNX: a file gets Less and Where. Cells use it for their states if they get lengths. The operand that was
    taken gets the gradient.

    Args:
        new, previous: [N, ...] of any one dtype and one shape.
        seq_lengths: [N] int32, number of steps of each row.
        timestep: [1] int32, number of this step.
        drop: 1 or True for 0 instead of `previous`.

    Returns:
        The shape and dtype of new.

    Raises:
        NetError: an argument is not a blob, they are of several nets, or drop is neither on nor off.
        TypeRuleError: dtypes of new and previous differ. Once shapes are known: their shapes differ, or lengths or
            timestep are not int32 of these sizes.

    Example:
        >>> net = ro.Net("n")
        >>> new, old = net.inputs("new", "old")
        >>> lengths, t = net.input("lengths", "int32"), net.input("t", "int32")
        >>> net.outputs(y=ro.select_valid(new, old, lengths, t))
        >>> feeds = {"new": np.ones((2, 2)), "old": np.zeros((2, 2))}
        >>> feeds |= {"lengths": np.array([1, 3], "int32"), "t": np.array([2], "int32")}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[0., 0.],
               [1., 1.]])
    """

    inputs = ("new", "previous", "seq_lengths", "timestep")
    outputs = ("selected",)
    attributes: ClassVar[dict[str, Any]] = {"drop": 0}
    same_dtype = (0, 1)
    keeps = ("seq_lengths", "timestep")

    def __call__(self, new: Blob, previous: Blob, seq_lengths: Blob, timestep: Blob, drop: int = 0) -> Blob:
        inputs = [new, previous, seq_lengths, timestep]
        return common_net([new]).append(self.name, inputs, {"drop": flag(drop, self.name)})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape = call.shape(0)
        if not shape or call.shape(1) != shape:
            came = f"{list(shape)} and {list(call.shape(1))}"
            call.fail("new and previous must have rows and one shape", came=came, hint=FEATURE_AXES)
        for i, sizes in ((2, shape[:1]), (3, (1,))):
            if call.shape(i) != sizes or call.dtype(i) != "int32":
                blob, came = call.op.inputs[i], f"{call.dtype(i)}{list(call.shape(i))}"
                hint = f"Each row needs one length. {TIME_MAJOR}" if i == 2 else None
                call.fail(
                    f"not {self.inputs[i]} of these rows", blob=blob, wanted=f"int32{list(sizes)}", came=came, hint=hint
                )
        return (shape,)

    def reference(self, call: Call, new: Array, previous: Array, seq_lengths: Array, timestep: Array) -> Array:
        valid = (timestep < seq_lengths).reshape(-1, *(1,) * (new.ndim - 1))
        return np.asarray(np.where(valid, new, np.zeros_like(previous) if call.attr("drop") else previous))

    def gradient(
        self, call: Call, new: Blob, previous: Blob, lengths: Blob, timestep: Blob, y: Blob, dy: Blob
    ) -> Gradients:
        shape = call.shape(0)
        valid = reshape_to(less(timestep, lengths), (shape[0], *(1,) * (len(shape) - 1)))
        return where(valid, dy, 0.0), None if call.attr("drop") else where(valid, 0.0, dy), None, None

    def loop_form(self, call: Call) -> LoopForm:
        return Pointwise("{0} if {3} < {2} else " + ("0" if call.attr("drop") else "{1}"), begins=((2, 0),))


class MaskRows(OpSchema):
    """`x` in rows that have not ended (`timestep < seq_lengths[n]`), else `fill`.

    x: float, with rows along `axis`. seq_lengths: int32 [N]. timestep: int32 [1]. With `gradient`, the gradient of x is
        masked too. Without it, the gradient passes unchanged: the caller knows that it is zero in finished rows.
    """

    inputs = ("x", "seq_lengths", "timestep")
    outputs = ("masked",)
    attributes: ClassVar[dict[str, Any]] = {"axis": 0, "gradient": 0, "fill": 0}
    accepts = FLOATS
    same_dtype = (0,)
    keeps = ("seq_lengths", "timestep")
    internal = True

    def __call__(self, x: Blob, seq_lengths: Blob, timestep: Blob, axis: int = 0, gradient: int = 0) -> Blob:
        inputs, attributes = [x, seq_lengths, timestep], {"axis": axis, "gradient": flag(gradient, self.name)}
        return common_net([x]).append(self.name, inputs, attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        axis = call.axis(call.attr("axis"), call.rank(0))
        if (call.shape(1), call.shape(2)) != (call.shape(0)[axis : axis + 1], (1,)):
            call.fail("lengths and timestep do not fit the rows", wanted=f"[{call.shape(0)[axis]}] and [1]")
        return (call.shape(0),)

    def reference(self, call: Call, x: Array, seq_lengths: Array, timestep: Array) -> Array:
        valid = (timestep < seq_lengths).reshape(self.shape_of_rows(call))
        return np.where(valid, x, x.dtype.type(call.attr("fill")))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        _, lengths, timestep, _, dy = blobs
        axis = call.attr("axis")
        return (self(dy, lengths, timestep, axis, 1) if call.attr("gradient") else dy), None, None

    def loop_form(self, call: Call) -> LoopForm:
        axis = call.axis(call.attr("axis"), call.rank(0))
        return Pointwise("{0} if {2} < {1} else {fill}", begins=((1, axis),))

    def shape_of_rows(self, call: Call) -> Shape:
        """The shape of the lengths among the axes of x."""
        axis = call.axis(call.attr("axis"), call.rank(0))
        return (call.shape(0)[axis], *(1,) * (call.rank(0) - axis - 1))


select_valid, mask_rows = register(SelectValid()), register(MaskRows())


def check_places(call: Call, indices: Array, size: int) -> Array:
    """Indices counted from the start. Raises TypeRuleError for an index outside of `[-size, size)`."""
    wrong = indices[(indices < -size) | (indices >= size)]
    if wrong.size:
        wanted = f"{-size} to {size - 1}"
        call.fail("an index is out of range", blob=call.op.inputs[1], wanted=wanted, came=int(wrong.flat[0]))
    return np.where(indices < 0, indices + size, indices)


def places_of(indices: Blob, base: Array, columns: Sequence[tuple[int | None, int, int]], count: int) -> Blob:
    """`base + sum(index * stride)` over columns, for each row of indices.

    Args:
        columns: triples: a column of indices (None for all of them), the size of its axis, its stride.
        count: number of rows. A place beyond it means that an index is out of range.
    """
    whole, place = cast(indices, "int64"), None
    for column, size, stride in columns:
        part = whole if column is None else slice(whole, [column], [column + 1], [-1])
        flat = reshape(part, [len(base)])
        index = where(less(flat, 0), flat + size, flat)
        wrong = or_(less(index, 0), greater_or_equal(index, size))
        moved = where(wrong, count + 1, index * stride)
        place = moved if place is None else place + moved
    own = indices.net.constant(base, "int64")
    return own if place is None else place if not base.any() else place + own


class Slice(Movement):
    """Elements from `starts` up to `ends` in steps of `steps`, along `axes`. Also written as a subscript, `x[1:, ::2]`.

    ONNX: Slice, op set 13. Elements that were not taken get the gradient 0.

    Args:
        data: [...] any dtype.
        starts, ends: integers, one for each sliced axis. Negative ones count from the end, and those beyond the axis
            are limited to it. An int64 blob must follow from shapes and constants, here and below.
        axes: the sliced axes. By default the first ones.
        steps: not 0. Negative steps go backwards. By default 1.

    Returns:
        The sizes that are left along each axis, data's dtype.

    Raises:
        NetError: data is not a blob, or a list has values that are not integers.
        TypeRuleError: once shapes are known, lists differ in length, an axis is out of range or named twice, or a step
            is 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.slice(net.input("x"), [-1], [-9], axes=[0], steps=[-2]))
        >>> ro.compile(net, device="reference")({"x": np.arange(6.0)})["y"]
        array([5., 3., 1.])
    """

    inputs = ("data", "starts?", "ends?", "axes?", "steps?")
    static = ("starts", "ends", "axes", "steps")
    attributes: ClassVar[dict[str, Any]] = {"starts": None, "ends": None, "axes": None, "steps": None}

    def __call__(
        self, data: Blob, starts: Sizes, ends: Sizes, axes: Sizes | None = None, steps: Sizes | None = None
    ) -> Blob:
        operands = {"data": data, "starts": starts, "ends": ends, "axes": axes, "steps": steps}
        return append_sized(self, common_net([data]), operands)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        sizes = list(call.shape(0))
        for axis, cut in self.cuts(call).items():
            sizes[axis] = len(range(*cut.indices(sizes[axis])))
        return (tuple(sizes),)

    def reference(self, call: Call, data: Array, *sizes: Array) -> Array:
        cuts = self.cuts(call)
        return np.array(data[tuple(cuts.get(axis, builtins.slice(None)) for axis in range(data.ndim))])

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        dy, shape, cuts = blobs[-1], call.shape(0), self.cuts(call)
        spans = {axis: range(*cut.indices(shape[axis])) for axis, cut in cuts.items()}
        if any(span.step != 1 for span in spans.values()):
            starts, steps = [span.start for span in spans.values()], [span.step for span in spans.values()]
            return first_only(call, scatter_slice(dy, shape, starts, list(spans), steps))
        before = [span.start for span in spans.values()]
        after = [shape[axis] - span.start - len(span) for axis, span in spans.items()]
        return first_only(call, pad(dy, [*before, *after], axes=list(spans)))

    def cuts(self, call: Call) -> dict[int, builtins.slice]:
        """The range along each sliced axis."""
        starts, ends = required_sizes(call, "starts", 1), required_sizes(call, "ends", 2)
        axes, steps = sizes_of(call, "axes", 3), sizes_of(call, "steps", 4)
        axes = tuple(range(len(starts))) if axes is None else axes
        steps = (1,) * len(starts) if steps is None else steps
        if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
            problem = "starts, ends, axes and steps must be lists of one length, and no step may be 0"
            call.fail(problem, came=", ".join(map(str, (starts, ends, axes, steps))))
        return dict(zip(call.axes(axes, call.rank(0)), map(builtins.slice, starts, ends, steps), strict=True))


class Gather(Movement):
    """Looks up slices of data along an axis by index: `data[indices]` for axis 0, as in an embedding.

    ONNX: Gather, op set 13. Each slice of data gets the sum of the gradients of all places that took it.

    Args:
        data: [...] any dtype.
        indices: [...] int32 or int64, a blob or integers. Negative ones count from the end.
        axis: the axis. Negative numbers count from the end.

    Returns:
        The shape of data with the shape of indices in place of the axis, data's dtype.

    Raises:
        NetError: data is not a blob, or indices are of another net.
        TypeRuleError: once shapes are known, the axis is out of range or indices are not integers. In a run, an index
            is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.gather(net.input("table"), net.input("word", "int64")))
        >>> table = np.array([[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]])
        >>> ro.compile(net, device="reference")({"table": table, "word": np.array([2, 0])})["y"]
        array([[2. , 2.5],
               [0. , 0.5]])
    """

    inputs = ("data", "indices")
    attributes: ClassVar[dict[str, Any]] = {"axis": 0}
    keeps = ("indices",)
    loop = Kernel("gather")

    def __call__(self, data: Blob, indices: Blob | Array | Sequence[int] | int, axis: int = 0) -> Blob:
        net = common_net([data, indices])
        if not isinstance(indices, Blob):
            indices = net.constant(np.asarray(indices), "int64")
        return net.append(self.name, [data, indices], {"axis": axis})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.axis(call.attr("axis"), call.rank(0))
        if call.dtype(1) not in INDEX_DTYPES:
            call.fail(
                "indices must be integers", blob=call.op.inputs[1], wanted=" or ".join(INDEX_DTYPES), came=call.dtype(1)
            )
        return ((*shape[:axis], *call.shape(1), *shape[axis + 1 :]),)

    def reference(self, call: Call, data: Array, indices: Array) -> Array:
        axis = call.axis(call.attr("axis"), data.ndim)
        return np.asarray(np.take(data, check_indices(call, indices, data.shape[axis]), axis=axis))

    def gradient(self, call: Call, data: Blob, indices: Blob, y: Blob, dy: Blob) -> Gradients:
        axis = call.axis(call.attr("axis"), call.rank(0))
        return scatter_add(dy, indices, axis, call.shape(0)[axis]), None


class Pad(Movement):
    """Puts elements around the array. A negative number cuts elements off.

    ONNX: Pad, op set 19. Each element gets the sum of the gradients of all places that show it.

    Args:
        data: [...] any dtype.
        pads: numbers of elements, all begins, then all ends: two numbers for each axis, or an int64 blob that follows
            from shapes and constants.
        constant_value: the value of the padding in mode `"constant"`: a number or a blob of one element.
        mode: `"constant"`, `"reflect"` (the mirror image without the border), `"edge"` (the border again) or `"wrap"`
            (the array once more).
        axes: the axes of `pads`. By default all.

    Returns:
        Each size plus its padding, data's dtype.

    Raises:
        NetError: data is not a blob, or pads or axes are not integers.
        TypeRuleError: once shapes are known, pads does not have two numbers for each axis, too much is cut off, the
            mode is unknown, an empty axis has nothing to repeat, or the value does not fit the dtype.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.pad(net.input("x"), [1, 2], mode="reflect"))
        >>> ro.compile(net, device="reference")({"x": np.array([0.0, 1.0, 2.0])})["y"]
        array([1., 0., 1., 2., 1., 0.])
    """

    inputs = ("data", "pads?", "constant_value?", "axes?")
    static = ("pads", "axes")
    attributes: ClassVar[dict[str, Any]] = {"pads": None, "constant_value": 0, "axes": None, "mode": "constant"}
    same_dtype = (0, 2)

    def __call__(
        self,
        data: Blob,
        pads: Sizes,
        constant_value: Blob | Number = 0,
        mode: str = "constant",
        axes: Sizes | None = None,
    ) -> Blob:
        operands: dict[str, Any] = {"data": data, "pads": pads, "axes": axes}
        attributes: dict[str, Any] = {"mode": mode}
        (operands if isinstance(constant_value, Blob) else attributes)["constant_value"] = constant_value
        return append_sized(self, common_net([data]), operands, attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        mode, sizes = choice(call, "mode", "constant", "reflect", "edge", "wrap"), list(call.shape(0))
        self.check_value(call)
        for axis, (before, after) in self.widths(call).items():
            if mode != "constant" and sizes[axis] == 0 and max(before, after) > 0:
                call.fail(f"an empty axis has nothing for mode '{mode}'", came=f"axis {axis} of {sizes}")
            sizes[axis] += before + after
        if min(sizes, default=0) < 0:
            call.fail("more elements are cut off than there are", came=sizes)
        return (tuple(sizes),)

    def reference(self, call: Call, data: Array, *others: Array | None) -> Array:
        value = others[1] if call.has(2) else call.attr("constant_value")
        result, mode, shape = data, call.attr("mode"), call.output_types[0].shape
        if 0 in shape:
            return np.empty(shape, data.dtype)
        for axis, (before, after) in sorted(self.widths(call).items(), key=lambda item: sum(item[1])):  # cuts first
            source = pad_sources(mode, data.shape[axis], before, after)
            result = filled_take(result, source, axis, value)
        return np.array(result)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        dy = blobs[-1]
        dvalue = self.value_gradient(call, dy) if call.has(2) else None
        return (self.data_gradient(call, dy), None, dvalue, None)[: len(call.op.inputs)]

    def data_gradient(self, call: Call, dy: Blob) -> Blob:
        """Each element of `dy` goes back to the element of data from which it came."""
        widths, shape, mode = self.widths(call), call.shape(0), call.attr("mode")
        if 0 in call.output_types[0].shape:
            return dy.net.append("ConstantOfShape", [], {"shape": shape, "value": 0.0})[0]
        if mode == "constant":
            back = [-width for side in zip(*widths.values(), strict=True) for width in side]
            return pad(dy, back, axes=list(widths)) if widths else dy
        for axis, (before, after) in widths.items():
            source = dy.net.constant(pad_sources(mode, shape[axis], before, after), "int64")
            dy = scatter_add(dy, source, axis, shape[axis])
        return dy

    def value_gradient(self, call: Call, dy: Blob) -> Blob | None:
        """The sum of `dy` over the padding. The padding is found by padding a block of False with True."""
        if not is_float(call.dtype(0)) or call.attr("mode") != "constant":
            return None
        block = dy.net.append("ConstantOfShape", [], {"shape": call.shape(0), "value": False})[0]
        widths = self.widths(call)
        pads = [width for side in zip(*widths.values(), strict=True) for width in side]
        around = pad(block, pads, constant_value=True, axes=list(widths))
        return sum_to(where(around, dy, 0.0), call.shape(2))

    def widths(self, call: Call) -> dict[int, tuple[int, int]]:
        """Padding before and after, by axis."""
        pads, axes = required_sizes(call, "pads", 1), sizes_of(call, "axes", 3)
        axes = call.axes(tuple(range(call.rank(0))) if axes is None else axes, call.rank(0))
        if len(pads) != 2 * len(axes):
            call.fail("pads must have two numbers for each axis", wanted=f"{2 * len(axes)} numbers", came=list(pads))
        return dict(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))

    def check_value(self, call: Call) -> None:
        value, dtype = call.attr("constant_value"), call.dtype(0)
        if not isinstance(value, int | float):
            call.fail("constant_value is not a number", came=repr(value))
        if call.has(2) and call.shape(2) not in ((), (1,)):
            call.fail("constant_value must be one number", blob=call.op.inputs[2], came=list(call.shape(2)))
        unfit = isinstance(value, float) or (dtype == BOOL and value not in (0, 1))
        if not call.has(2) and dtype not in FLOATS and unfit:
            call.fail("constant_value does not fit the data", wanted=dtype, came=value)


def cuts_and_fills(pads: Sequence[int] | Array) -> bool:
    """True if an axis is cut on one side and filled on the other. Runtimes differ in which they do first."""
    widths = np.sign(pads)
    before, after = widths[: len(widths) // 2], widths[len(widths) // 2 :]
    return any(a * b < 0 for a, b in zip(before, after, strict=False))


def pad_sources(mode: str, size: int, before: int, after: int) -> Array:
    """For each place along a padded axis, the index of its element. It is -1 for the constant."""
    place = np.arange(-before, size + after)
    if mode == "edge":
        return np.clip(place, 0, max(size - 1, 0))
    if mode == "wrap":
        return place % max(size, 1)
    if mode == "reflect":
        place = place % max(2 * size - 2, 1)
        return np.minimum(place, 2 * size - 2 - place)
    return np.where((place >= 0) & (place < size), place, -1)


def filled_take(data: Array, source: Array, axis: int, value: Any) -> Array:
    """`data` looked up along an axis, with `value` where the index is -1."""
    shape = (*data.shape[:axis], len(source), *data.shape[axis + 1 :])
    result = np.full(shape, value, dtype=data.dtype)
    inside = np.flatnonzero(source >= 0)
    target: tuple[Any, ...] = (*(builtins.slice(None),) * axis, inside)
    result[target] = np.take(data, source[inside], axis=axis)
    return result


slice, gather, pad = register(Slice()), register(Gather()), register(Pad())  # noqa: A001
