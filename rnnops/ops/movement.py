"""Ops that move or repeat elements and compute nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, ClassVar, overload

import numpy as np

from rnnops.errors import NetError
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import LoopForm, View
from rnnops.net.net import common_net
from rnnops.net.schema import REQUIRED, Call, Gradients, OpSchema, register
from rnnops.ops.base import Sizes, append_sized, axes_given, flag, required_sizes, sizes_of, sum_to, transposed_copy
from rnnops.types import Array, Shape


class Movement(OpSchema):
    """One array whose elements are moved. It has at most one more input, which holds sizes."""

    inputs: ClassVar[tuple[str, ...]] = ("data",)
    outputs = ("output",)
    same_dtype: ClassVar[tuple[int, ...] | None] = (0,)
    loop: ClassVar[LoopForm] = View()


class Regrouping(Movement):
    """Elements keep their order and get another shape."""

    def reference(self, call: Call, data: Array, *sizes: Array) -> Array:
        return np.array(data).reshape(call.output_types[0].shape)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        return first_only(call, reshape_to(blobs[-1], call.shape(0)))


class Reshape(Regrouping):
    """The same elements in another shape; also written `x.reshape(2, -1)`.

    ONNX: Reshape, op set 19. -1 is computed without the sizes that 0 copies, so `[0, -1]` also works for an empty
    batch. The gradient is reshaped back.

    Args:
        data: [...] any dtype.
        shape: sizes, or an int64 blob that follows from shapes and constants. 0 copies the size of that axis. One -1 is
            computed from the others.
        allowzero: 1 or True makes 0 a size of 0 instead.

    Returns:
        The given shape, data's dtype.

    Raises:
        NetError: data is not a blob, or sizes are not integers.
        TypeRuleError: once shapes are known, the elements do not fit, or a blob of sizes has no known value.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.reshape(net.input("x"), [2, -1]))
        >>> ro.compile(net, device="reference")({"x": np.arange(6.0)})["y"]
        array([[0., 1., 2.],
               [3., 4., 5.]])
    """

    inputs = ("data", "shape?")
    static = ("shape",)
    attributes: ClassVar[dict[str, Any]] = {"shape": None, "allowzero": 0}

    def __call__(self, data: Blob, shape: Sizes, allowzero: int = 0) -> Blob:
        attributes = {"allowzero": 1} if flag(allowzero, self.name) else {}
        return append_sized(self, common_net([data]), {"data": data, "shape": shape}, attributes)[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        old, wanted = call.shape(0), required_sizes(call, "shape", 1)
        copied = set() if call.attr("allowzero") else {i for i, size in enumerate(wanted) if size == 0}
        if any(i >= len(old) for i in copied) or any(size < -1 for size in wanted) or wanted.count(-1) > 1:
            call.fail("not a shape to reshape to", came=list(wanted))
        sizes = [old[i] if i in copied else size for i, size in enumerate(wanted)]
        if -1 in wanted:
            rest = prod(size for i, size in enumerate(old) if i not in copied)
            known = prod(size for i, size in enumerate(sizes) if i not in copied and size != -1)
            sizes[wanted.index(-1)] = rest // known if known else -1
        if -1 in sizes or prod(sizes) != prod(old):
            call.fail("elements do not fit the shape", wanted=f"{prod(old)} elements", came=list(wanted))
        return (tuple(sizes),)


class Flatten(Regrouping):
    """A matrix: axes before `axis` become its rows, the others its columns.

    ONNX: Flatten, op set 13. The gradient is reshaped back.

    Args:
        data: [...] any dtype.
        axis: number of axes that become rows, from 0 on. Negative numbers count from the end.

    Returns:
        [rows, columns] of data's dtype.

    Raises:
        NetError: data is not a blob.
        TypeRuleError: once shapes are known, the axis is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.flatten(net.input("x"), axis=2))
        >>> ro.compile(net, device="reference")({"x": np.zeros((2, 3, 4))})["y"].shape
        (6, 4)
    """

    attributes: ClassVar[dict[str, Any]] = {"axis": 1}

    def __call__(self, data: Blob, axis: int = 1) -> Blob:
        return common_net([data]).apply(self.name, [data], axis=axis)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.attr("axis")
        if not isinstance(axis, int) or not -len(shape) <= axis <= len(shape):
            call.fail("axis out of range", wanted=f"{-len(shape)} to {len(shape)}", came=repr(axis))
        axis = axis + len(shape) if axis < 0 else axis
        return ((prod(shape[:axis]), prod(shape[axis:])),)


class Squeeze(Regrouping):
    """Removes axes of size 1.

    ONNX: Squeeze, op set 13. The gradient is reshaped back.

    Args:
        data: [...] any dtype.
        axes: the axes to remove: numbers, or an int64 blob that follows from shapes and constants. By default all axes
            of size 1.
        axis: NumPy's name for axes.

    Returns:
        The shape without these axes, data's dtype.

    Raises:
        NetError: data is not a blob, or axes are given twice or are not integers.
        TypeRuleError: once shapes are known, an axis is out of range or not of size 1.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.squeeze(net.input("x"), axis=0))
        >>> ro.compile(net, device="reference")({"x": np.zeros((1, 3, 1))})["y"].shape
        (3, 1)
    """

    inputs = ("data", "axes?")
    static = ("axes",)
    attributes: ClassVar[dict[str, Any]] = {"axes": None}

    def __call__(self, data: Blob, axes: Sizes | None = None, axis: Sizes | None = None) -> Blob:
        axes = axes_given(axes, axis, self.name)
        return append_sized(self, common_net([data]), {"data": data, "axes": axes})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axes = call.shape(0), sizes_of(call, "axes", 1)
        if axes is None:
            return (tuple(size for size in shape if size != 1),)
        gone = call.axes(axes, len(shape))
        if any(shape[axis] != 1 for axis in gone):
            hint = (
                "An integer subscript beyond the end takes nothing." if any(shape[axis] == 0 for axis in gone) else None
            )
            call.fail("only axes of size 1 can be squeezed", came=f"axes {list(axes)} of {list(shape)}", hint=hint)
        return (tuple(size for axis, size in enumerate(shape) if axis not in gone),)


class Unsqueeze(Regrouping):
    """Inserts axes of size 1.

    ONNX: Unsqueeze, op set 13. The gradient is reshaped back.

    Args:
        data: [...] any dtype.
        axes: their places in the result: numbers, or an int64 blob that follows from shapes and constants.
        axis: NumPy's name for axes.

    Returns:
        The shape with these axes, data's dtype.

    Raises:
        NetError: data is not a blob, or axes are left out, given twice or not integers.
        TypeRuleError: once shapes are known, an axis is out of range or there twice.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.unsqueeze(net.input("x"), [0, -1]))
        >>> ro.compile(net, device="reference")({"x": np.zeros((2, 3))})["y"].shape
        (1, 2, 3, 1)
    """

    inputs = ("data", "axes?")
    static = ("axes",)
    attributes: ClassVar[dict[str, Any]] = {"axes": None}

    def __call__(self, data: Blob, axes: Sizes | None = None, axis: Sizes | None = None) -> Blob:
        axes = axes_given(axes, axis, self.name)
        if axes is None:
            raise NetError("the new axes' places are missing", op=self.name, wanted="axes= or axis=, as in the result")
        return append_sized(self, common_net([data]), {"data": data, "axes": axes})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        axes = required_sizes(call, "axes", 1)
        rank = call.rank(0) + len(axes)
        new, old = call.axes(axes, rank), iter(call.shape(0))
        return (tuple(1 if axis in new else next(old) for axis in range(rank)),)


class Transpose(Movement):
    """Axes in another order; also written `x.T` and `x.transpose(1, 0)`.

    ONNX: Transpose, op set 13. The gradient is transposed back.

    Args:
        data: [...] any dtype.
        perm: the axes of data in the order of the result; reversed if left out.

    Returns:
        The sizes in that order, data's dtype.

    Raises:
        NetError: data is not a blob.
        TypeRuleError: once shapes are known, perm does not name every axis once.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.transpose(net.input("x"), [1, 0, 2]))
        >>> ro.compile(net, device="reference")({"x": np.zeros((2, 3, 4))})["y"].shape
        (3, 2, 4)
    """

    attributes: ClassVar[dict[str, Any]] = {"perm": None}

    def __call__(self, data: Blob, perm: Sequence[int] | Array | None = None) -> Blob:
        order = perm.tolist() if isinstance(perm, np.ndarray) else perm
        return common_net([data]).apply(self.name, [data], perm=order)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (tuple(call.shape(0)[axis] for axis in self.order(call)),)

    def reference(self, call: Call, data: Array) -> Array:
        return transposed_copy(data, self.order(call))

    def gradient(self, call: Call, data: Blob, y: Blob, dy: Blob) -> Gradients:
        order = self.order(call)
        return self(dy, [order.index(axis) for axis in range(len(order))])

    def order(self, call: Call) -> tuple[int, ...]:
        """`perm`, with its default filled in."""
        rank, perm = call.rank(0), call.attr("perm")
        order = tuple(range(rank))[::-1] if perm is None else call.axes(perm, rank)
        if len(order) != rank:
            call.fail("perm must name every axis once", wanted=f"{rank} axes", came=list(order))
        return order


class Concat(Movement):
    """Arrays joined along one axis.

    ONNX: Concat, op set 13. Each part gets its part of the gradient.

    Args:
        blobs: of any one dtype. Only sizes along the axis may differ. They come one by one, or as one list.
        axis: the axis. Negative numbers count from the end. After a list it may be given by position.

    Returns:
        The sum of the sizes along the axis, the same dtype.

    Raises:
        NetError: there is no blob, an argument is not a blob, or the axis is left out.
        TypeRuleError: dtypes differ; once shapes are known, other sizes differ or the axis is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> a, b = net.inputs("a", "b")
        >>> net.outputs(y=ro.concat(a, b, axis=-1))
        >>> feeds = {"a": np.ones((2, 1)), "b": np.zeros((2, 2))}
        >>> ro.compile(net, device="reference")(feeds)["y"]
        array([[1., 0., 0.],
               [1., 0., 0.]])
    """

    inputs = ("A", "more*")
    attributes: ClassVar[dict[str, Any]] = {"axis": REQUIRED}
    same_dtype = None
    loop = View(all_inputs=True)

    @overload
    def __call__(self, blobs: Sequence[Blob], /, axis: int) -> Blob: ...
    @overload
    def __call__(self, *blobs: Blob, axis: int) -> Blob: ...
    def __call__(self, *blobs: Any, axis: int | None = None) -> Blob:
        if blobs and isinstance(blobs[0], list | tuple):
            first, *rest = blobs
            axis = rest.pop(0) if rest and axis is None else axis
            blobs = (*first, *rest)
        return common_net(blobs).append(self.name, blobs, {"axis": axis})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        first, axis = call.shape(0), call.axis(call.attr("axis"), call.rank(0))
        shapes = [call.shape(i) for i in range(len(call.types))]
        for shape in shapes:
            if len(shape) != len(first) or (*shape[:axis], *shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]):
                call.fail(f"only axis {axis} may differ", came=" and ".join(str(list(part)) for part in shapes))
        return ((*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :]),)

    def reference(self, call: Call, *arrays: Array) -> Array:
        return np.concatenate(arrays, axis=call.attr("axis"))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        axis = call.axis(call.attr("axis"), call.rank(0))
        return split(blobs[-1], [call.shape(i)[axis] for i in range(len(call.types))], axis=axis)


class Split(Movement):
    """Pieces along one axis.

    ONNX: Split, op set 18. The gradient joins the gradients of the pieces.

    Args:
        x: [...] any dtype.
        split: the number of pieces, their sizes, or an int64 blob of sizes that follows from shapes and constants.
        axis: the axis. Negative numbers count from the end.
        num_outputs: the number of pieces, if `split` is None or a blob.

    Returns:
        A tuple of blobs of x's dtype. With a number of pieces all have one size, except that the last may be smaller.

    Raises:
        NetError: x is not a blob, there are no pieces, or their number is not known.
        TypeRuleError: once shapes are known, the pieces do not add up to the axis, or the axis is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> left, right = ro.split(net.input("x"), 2, axis=-1)
        >>> net.outputs(left=left, right=right)
        >>> ro.compile(net, device="reference")({"x": np.arange(5.0)})
        {'left': array([0., 1., 2.]), 'right': array([3., 4.])}
    """

    inputs = ("input", "split?")
    outputs = ("outputs",)
    static = ("split",)
    attributes: ClassVar[dict[str, Any]] = {"axis": 0, "split": None, "num_outputs": None}

    def __call__(self, x: Blob, split: Sizes | None, axis: int = 0, num_outputs: int | None = None) -> tuple[Blob, ...]:
        net = common_net([x])
        if isinstance(split, int | np.integer):
            num_outputs, split = int(split), None
        sizes = () if split is None or isinstance(split, Blob) else split
        listed = isinstance(sizes, Sequence) or np.ndim(sizes) == 1
        pieces = len(sizes) if num_outputs is None and listed else num_outputs
        if not isinstance(pieces, int | np.integer) or pieces < 1:
            hint = "Give a number, the sizes as a list, or num_outputs with a blob of sizes."
            raise NetError("a split has no pieces", net=net.name, op=self.name, hint=hint)
        return append_sized(self, net, {"input": x, "split": split}, {"axis": axis, "num_outputs": num_outputs})

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        count, sizes = attributes.get("num_outputs"), attributes.get("split")
        return int(count if count is not None else len(sizes or ()))

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.axis(call.attr("axis"), call.rank(0))
        return tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in self.sizes(call, shape[axis]))

    def reference(self, call: Call, x: Array, *sizes: Array) -> tuple[Array, ...]:
        axis = call.axis(call.attr("axis"), x.ndim)
        ends = np.cumsum([kind.shape[axis] for kind in call.output_types])[:-1]
        return tuple(piece.copy() for piece in np.split(x, ends, axis=axis))

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        return first_only(call, concat(blobs[-len(call.output_types) :], axis=call.attr("axis")))

    def sizes(self, call: Call, total: int) -> tuple[int, ...]:
        """Sizes of the pieces along the axis."""
        count, sizes = self.output_count(call.op.attributes), sizes_of(call, "split", 1)
        if sizes is None:
            size = -(-total // count)
            sizes = (*(size,) * (count - 1), total - size * (count - 1))
        if len(sizes) != count or sum(sizes) != total or min(sizes) < 0:
            call.fail("the pieces do not add up to the axis", wanted=f"{count} pieces of {total}", came=list(sizes))
        return sizes


def reshape_to(x: Blob, shape: Shape) -> Blob:
    """Reshape to sizes, where 0 is a size too."""
    return reshape(x, list(shape), allowzero=int(0 in shape))


def first_only(call: Call, grad: Blob) -> Gradients:
    """Gradients of an op whose inputs are integers except for the first."""
    return (grad, *(None,) * (len(call.op.inputs) - 1))


reshape, flatten, squeeze, unsqueeze = (
    register(Reshape()),
    register(Flatten()),
    register(Squeeze()),
    register(Unsqueeze()),
)
transpose, concat, split = register(Transpose()), register(Concat()), register(Split())


class Expand(Movement):
    """An array broadcast to a shape.

    ONNX: Expand, op set 13. An axis for which the shape says 1 keeps its size. The gradient is summed over repeated
    axes.

    Args:
        x: [...] any dtype.
        shape: sizes, or an int64 blob that follows from shapes and constants.

    Returns:
        The common shape, x's dtype.

    Raises:
        NetError: x is not a blob, or sizes are not integers.
        TypeRuleError: once shapes are known, they do not broadcast, a size is below 0, or a blob of sizes has no known
            value.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.expand(net.input("x"), [2, 3]))
        >>> ro.compile(net, device="reference")({"x": np.array([[1.0], [2.0]])})["y"]
        array([[1., 1., 1.],
               [2., 2., 2.]])
    """

    inputs = ("input", "shape?")
    static = ("shape",)
    attributes: ClassVar[dict[str, Any]] = {"shape": None}

    def __call__(self, x: Blob, shape: Sizes) -> Blob:
        return append_sized(self, common_net([x]), {"input": x, "shape": shape})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape = required_sizes(call, "shape", 1)
        if min(shape, default=0) < 0:
            call.fail("not a shape", came=list(shape))
        return (call.broadcast(call.shape(0), shape),)

    def reference(self, call: Call, x: Array, *sizes: Array) -> Array:
        return np.array(np.broadcast_to(x, call.output_types[0].shape), order="C")

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        return first_only(call, sum_to(blobs[-1], call.shape(0)))


class Tile(Movement):
    """The array repeated along each axis.

    ONNX: Tile, op set 13. The gradient is summed over the copies.

    Args:
        x: [...] any dtype.
        repeats: for each axis the number of copies, 0 or more: numbers, or an int64 blob that follows from shapes and
            constants.

    Returns:
        Each size times its number, x's dtype.

    Raises:
        NetError: x is not a blob, or repeats are not integers.
        TypeRuleError: once shapes are known, there is not one number for each axis, or one is below 0.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.tile(net.input("x"), [2, 2]))
        >>> ro.compile(net, device="reference")({"x": np.array([[1.0, 2.0]])})["y"]
        array([[1., 2., 1., 2.],
               [1., 2., 1., 2.]])
    """

    inputs = ("input", "repeats?")
    static = ("repeats",)
    attributes: ClassVar[dict[str, Any]] = {"repeats": None}

    def __call__(self, x: Blob, repeats: Sizes) -> Blob:
        return append_sized(self, common_net([x]), {"input": x, "repeats": repeats})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        repeats = required_sizes(call, "repeats", 1)
        if len(repeats) != call.rank(0) or min(repeats, default=0) < 0:
            call.fail("repeats must be one number of 0 or more per axis", wanted=call.rank(0), came=list(repeats))
        return (tuple(size * count for size, count in zip(call.shape(0), repeats, strict=True)),)

    def reference(self, call: Call, x: Array, *sizes: Array) -> Array:
        shape = call.output_types[0].shape
        return np.tile(x, required_sizes(call, "repeats", 1)) if 0 not in shape else np.empty(shape, x.dtype)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        pairs = list(zip(required_sizes(call, "repeats", 1), call.shape(0), strict=True))
        copies = reshape_to(blobs[-1], tuple(chain.from_iterable(pairs)))
        total = sum_to(copies, tuple(chain.from_iterable((1, size) for _, size in pairs)))
        return first_only(call, reshape_to(total, call.shape(0)))


expand, tile = register(Expand()), register(Tile())
