"""Rows past their end: SelectValid for states, MaskRows for values that nothing depends on there."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import LoopForm, Pointwise
from rnnops.net import common_net
from rnnops.ops.base import flag
from rnnops.ops.comparison import less, where
from rnnops.ops.movement import reshape_to
from rnnops.schema import Call, Gradients, OpSchema, register
from rnnops.types import FLOATS, Array, Shape

FEATURE_AXES = "Of a state with several feature axes state_shapes= says so: state_shapes={name: sizes}."
TIME_MAJOR = "Sequences are time-major, [T, N, ...]: one of [N, T, ...] is fed as x.swapaxes(0, 1)."


class SelectValid(OpSchema):
    """`new` in the rows that are not over yet (`timestep < seq_lengths[n]`), else `previous`, or 0 with `drop`.

    Not in ONNX: a file gets Less and Where. Cells that take lengths use it for their states. The gradient goes to what
    was taken.

    Args:
        new, previous: [N, ...] of one dtype, any, and one shape.
        seq_lengths: [N] int32, steps of each row.
        timestep: [1] int32, the number of this step.
        drop: 1 or True puts 0 in place of `previous`.

    Returns:
        The shape and dtype of new.

    Raises:
        NetError: one is not a blob, they are of several nets, or drop is neither on nor off.
        TypeRuleError: dtypes of new and previous differ; once shapes are known, their shapes differ, or lengths or
            timestep
            are not int32 of these sizes.

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
            call.fail("new and previous have rows and one shape", came=came, hint=FEATURE_AXES)
        for i, sizes in ((2, shape[:1]), (3, (1,))):
            if call.shape(i) != sizes or call.dtype(i) != "int32":
                blob, came = call.op.inputs[i], f"{call.dtype(i)}{list(call.shape(i))}"
                hint = f"One length is wanted for each row. {TIME_MAJOR}" if i == 2 else None
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
    """`x` in the rows that are not over yet (`timestep < seq_lengths[n]`), else `fill`.

    x: float, rows along `axis`; seq_lengths: int32 [N]; timestep: int32 [1]. With `gradient`, that of x is masked as
    well; without, what comes back is zero in finished rows already, and passes.
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
        """The lengths' shape among the axes of x."""
        axis = call.axis(call.attr("axis"), call.rank(0))
        return (call.shape(0)[axis], *(1,) * (call.rank(0) - axis - 1))


select_valid, mask_rows = register(SelectValid()), register(MaskRows())
