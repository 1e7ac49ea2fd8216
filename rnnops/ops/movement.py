"""Ops that regroup or repeat elements and compute nothing: shapes, axes, pieces, copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, ClassVar, overload

import numpy as np

from rnnops.blob import Blob
from rnnops.errors import NetError
from rnnops.loops import LoopForm, View
from rnnops.net import common_net
from rnnops.ops.base import Sizes, append_sized, axes_given, flag, required_sizes, sizes_of
from rnnops.ops.internal import sum_to
from rnnops.schema import REQUIRED, Call, Gradients, OpSchema, register
from rnnops.types import Array, Shape

LARGE_MATRIX, BLOCK_ELEMENTS = 16384, 8192  # elements; NumPy's own transposed copy is 2 to 4 times slower there


class Movement(OpSchema):
    """One array whose elements are moved, with at most one shape-valued input beside it."""

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
    """The same elements in another shape: 0 copies a size (unless `allowzero`), one -1 is inferred.

    Sizes that 0 copies take no part in what -1 becomes, so `[0, -1]` works for an empty batch too.
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
    """A matrix: axes before `axis` become its rows, the others its columns."""

    attributes: ClassVar[dict[str, Any]] = {"axis": 1}

    def __call__(self, data: Blob, axis: int = 1) -> Blob:
        return common_net([data]).apply(self.name, [data], axis=axis)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        shape, axis = call.shape(0), call.attr("axis")
        if not -len(shape) <= axis <= len(shape):
            call.fail("axis out of range", wanted=f"{-len(shape)} to {len(shape)}", came=axis)
        axis = axis + len(shape) if axis < 0 else axis
        return ((prod(shape[:axis]), prod(shape[axis:])),)


class Squeeze(Regrouping):
    """Axes of size 1 left out; all of them where `axes` is not given."""

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
    """Axes of size 1 put in, numbered as in the result."""

    inputs = ("data", "axes?")
    static = ("axes",)
    attributes: ClassVar[dict[str, Any]] = {"axes": None}

    def __call__(self, data: Blob, axes: Sizes | None = None, axis: Sizes | None = None) -> Blob:
        axes = axes_given(axes, axis, self.name)
        if axes is None:
            raise NetError("where the new axes go is missing", op=self.name, wanted="axes= or axis=, as in the result")
        return append_sized(self, common_net([data]), {"data": data, "axes": axes})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        axes = required_sizes(call, "axes", 1)
        rank = call.rank(0) + len(axes)
        new, old = call.axes(axes, rank), iter(call.shape(0))
        return (tuple(1 if axis in new else next(old) for axis in range(rank)),)


class Transpose(Movement):
    """Axes in another order; reversed where `perm` is not given."""

    attributes: ClassVar[dict[str, Any]] = {"perm": None}

    def __call__(self, data: Blob, perm: Sequence[int] | None = None) -> Blob:
        return common_net([data]).apply(self.name, [data], perm=perm)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (tuple(call.shape(0)[axis] for axis in self.order(call)),)

    def reference(self, call: Call, data: Array) -> Array:
        return transposed_copy(data, self.order(call))

    def gradient(self, call: Call, data: Blob, y: Blob, dy: Blob) -> Gradients:
        order = self.order(call)
        return self(dy, [order.index(axis) for axis in range(len(order))])

    def order(self, call: Call) -> tuple[int, ...]:
        """`perm` in full."""
        rank, perm = call.rank(0), call.attr("perm")
        order = tuple(range(rank))[::-1] if perm is None else call.axes(perm, rank)
        if len(order) != rank:
            call.fail("perm names every axis once", wanted=f"{rank} axes", came=list(order))
        return order


class Expand(Movement):
    """Broadcast to a shape; where the shape says 1, the operand's size stays."""

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
    """The array repeated along each axis."""

    inputs = ("input", "repeats?")
    static = ("repeats",)
    attributes: ClassVar[dict[str, Any]] = {"repeats": None}

    def __call__(self, x: Blob, repeats: Sizes) -> Blob:
        return append_sized(self, common_net([x]), {"input": x, "repeats": repeats})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        repeats = required_sizes(call, "repeats", 1)
        if len(repeats) != call.rank(0) or min(repeats, default=0) < 0:
            call.fail("repeats has one number of 0 or more per axis", wanted=call.rank(0), came=list(repeats))
        return (tuple(size * count for size, count in zip(call.shape(0), repeats, strict=True)),)

    def reference(self, call: Call, x: Array, *sizes: Array) -> Array:
        shape = call.output_types[0].shape
        return np.tile(x, required_sizes(call, "repeats", 1)) if 0 not in shape else np.empty(shape, x.dtype)

    def gradient(self, call: Call, *blobs: Blob) -> Gradients:
        pairs = list(zip(required_sizes(call, "repeats", 1), call.shape(0), strict=True))
        copies = reshape_to(blobs[-1], tuple(chain.from_iterable(pairs)))
        total = sum_to(copies, tuple(chain.from_iterable((1, size) for _, size in pairs)))
        return first_only(call, reshape_to(total, call.shape(0)))


class Concat(Movement):
    """Arrays joined along one axis."""

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
    """Pieces along one axis: of given sizes, or `num_outputs` of one size (the last may be smaller)."""

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
            hint = "Give a number, the sizes as a list, or num_outputs beside a blob of sizes."
            raise NetError("a split into no pieces", net=net.name, op=self.name, hint=hint)
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


def transposed_copy(data: Array, order: Sequence[int]) -> Array:
    """A copy in C order with axes in another order; a large matrix goes in blocks of rows that fit the cache."""
    if data.ndim != 2 or data.size < LARGE_MATRIX or tuple(order) != (1, 0):
        return np.array(np.transpose(data, order), order="C")
    rows, columns = data.shape
    result = np.empty((columns, rows), data.dtype)
    block = max(8, BLOCK_ELEMENTS // columns)
    for first in range(0, rows, block):
        result[:, first : first + block] = data[first : first + block].T
    return result


def reshape_to(x: Blob, shape: Shape) -> Blob:
    """Reshape to sizes that are all meant literally."""
    return reshape(x, list(shape), allowzero=int(0 in shape))


def first_only(call: Call, grad: Blob) -> Gradients:
    """Gradients of an op whose other inputs are integers."""
    return (grad, *(None,) * (len(call.op.inputs) - 1))


reshape, flatten, squeeze, unsqueeze = (
    register(Reshape()),
    register(Flatten()),
    register(Squeeze()),
    register(Unsqueeze()),
)
transpose, expand, tile = register(Transpose()), register(Expand()), register(Tile())
concat, split = register(Concat()), register(Split())
