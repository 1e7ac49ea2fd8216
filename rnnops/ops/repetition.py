"""Ops that repeat elements: Expand and Tile."""

from __future__ import annotations

from itertools import chain
from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.net import common_net
from rnnops.ops.base import Sizes, append_sized, required_sizes
from rnnops.ops.internal import sum_to
from rnnops.ops.movement import Movement, first_only, reshape_to
from rnnops.schema import Call, Gradients, register
from rnnops.types import Array, Shape


class Expand(Movement):
    """An array broadcast to a shape.

    ONNX: Expand, op set 13. Where the shape says 1, the size stays. The gradient is summed over what was repeated.

    Args:
        x: [...] any dtype.
        shape: sizes, or an int64 blob that follows from shapes and constants.

    Returns:
        The shape that both broadcast to, x's dtype.

    Raises:
        NetError: x is no blob, or sizes are no integers.
        TypeRuleError: once shapes are known, they do not broadcast, a size is below 0, or the value of a blob of
            sizes is
            not known.

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
        repeats: how often, one number of 0 or more for each axis, or an int64 blob that follows from shapes and
            constants.

    Returns:
        Each size times its number, x's dtype.

    Raises:
        NetError: x is no blob, or repeats are no integers.
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


expand, tile = register(Expand()), register(Tile())
