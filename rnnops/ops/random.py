"""Dropout and random numbers, from a counter-based generator: equal on every device and on every replay."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar

import numpy as np

from rnnops.errors import FeedError, NetError
from rnnops.kernels.scalar_functions import uniform_rows
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Kernel
from rnnops.net.net import common_net
from rnnops.net.op import Op
from rnnops.net.schema import Call, Gradients, OpSchema, RunContext, register
from rnnops.ops.base import Unary, quiet
from rnnops.types import BOOL, FLOATS, Array, Shape


class DropoutOp(OpSchema):
    """In training, elements are zeroed with probability `ratio` and the others grow by `1 / (1 - ratio)`; else a copy.

    ONNX: Dropout, op set 13. Numbers come from a counter (Philox) by the run's seed, the op and the step, the same ones
    on every device, for any number of threads and when backward computes them again. The gradient is masked and scaled
    like the elements.

    Args:
        x: [...] float.
        ratio: the probability, from 0 up to but without 1.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is not a blob, or ratio is no such number.
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
            raise NetError("not a dropout ratio", net=net.name, op=self.name, wanted="0 <= ratio < 1", came=repr(ratio))
        return net.append(self.name, [x], {"ratio": float(ratio)})[0]

    def dtypes(self, dtypes: tuple[str | None, ...], attributes: Mapping[str, Any]) -> tuple[str, ...]:
        return (dtypes[0] or "", BOOL)

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if not 0 <= call.attr("ratio") < 1:
            call.fail("not a dropout ratio", wanted="0 <= ratio < 1", came=call.attr("ratio"))
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
    """Numbers that are uniform in [0, 1), as many as the operand has elements; in training and outside of it.

    ONNX: RandomUniformLike, op set 1. Numbers come from a counter (Philox) by the run's seed, the op and the step, the
    same ones on every device. They have 24 random bits in float32 and 32 in float64. Gradients stop here.

    Args:
        x: [...] float, whose values do not matter.

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
    """The gradient of Dropout: scaled where the mask is True and 0 elsewhere, or a copy where Dropout is not active."""

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

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        if call.shape(1) != call.shape(0) or call.dtype(1) != BOOL:
            call.fail("not the mask of this array", blob=call.op.inputs[1], wanted=f"bool{list(call.shape(0))}")
        return (call.shape(0),)

    @quiet
    def reference(self, call: Call, dy: Array, mask: Array, *, context: RunContext) -> Array:
        return dropped(call, dy, mask, context)

    def gradient(self, call: Call, dy: Blob, mask: Blob, dx: Blob, ddx: Blob) -> Gradients:
        return self(ddx, mask, call.attr("ratio")), None


def is_active(call: Call, context: RunContext) -> bool:
    return context.training and call.attr("ratio") > 0


def dropout_mask(call: Call, shape: Shape, context: RunContext) -> Array:
    """Which elements stay. Raises FeedError where randomness is wanted and the run has no seed."""
    if not is_active(call, context):
        return np.ones(shape, bool)
    return np.asarray(uniform_array(call, shape, context) >= call.attr("ratio"))


def uniform_array(call: Call, shape: Shape, context: RunContext) -> Array:
    """The op's own numbers in [0, 1). Raises FeedError where the run has no seed."""
    if context.seed is None:
        problem = "random numbers are wanted, but the run has no seed"
        hint = "Pass seed=; dropout wants none with training=False."
        raise FeedError(problem, net=call.net, op=call.op.label, hint=hint)
    rows, row_size = (shape[0], prod(shape[1:])) if shape else (1, 1)
    numbers: Array = uniform_rows(context.seed, call.attr("ordinal"), context.t, rows, row_size)
    return numbers.reshape(shape)


def dropped(call: Call, x: Array, mask: Array, context: RunContext) -> Array:
    if not is_active(call, context):
        return np.array(x)
    return np.asarray(np.where(mask, x * x.dtype.type(1.0 / (1.0 - call.attr("ratio"))), x.dtype.type(0)))


def as_floats(drawn: Array, dtype: Any) -> Array:
    """Numbers in [0, 1) in a float dtype, cut to the bits that it holds, so that none is rounded to 1."""
    return np.asarray((np.floor(drawn * 2.0**24) * 2.0**-24 if dtype == np.float32 else drawn).astype(dtype))


dropout, dropout_grad = register(DropoutOp()), register(DropoutGrad())
random_uniform_like = register(RandomUniformLike())
