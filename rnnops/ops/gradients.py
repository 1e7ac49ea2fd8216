"""Ops that say what a gradient is: none at all, or that of a function which is not there."""

from __future__ import annotations

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Pointwise
from rnnops.net import common_net
from rnnops.ops.base import Unary
from rnnops.schema import Call, Gradients, OpSchema, register
from rnnops.types import ANY, FLOATS, Array, Shape


class StopGradient(Unary):
    """A copy; gradients stop here."""

    accepts = ANY
    differentiable = False
    loop = Pointwise("{0}")

    def reference(self, call: Call, x: Array) -> Array:
        return np.array(x)


class WithGradient(OpSchema):
    """`y`, with `slope` as its derivative by `x`: a surrogate gradient.

    y, x, slope: of one shape. The gradient of `x` is that of the result times `slope`; that of `y` passes through, so
    that a `y` which is to have none comes from `stop_gradient`; none goes to `slope`. A spike that is differentiated
    as a sigmoid (Neftci and others, IEEE SPM 36(6), 2019):

        s = ro.sigmoid(x)
        spike = ro.with_gradient(ro.stop_gradient(ro.cast(x > 0.0, "float")), x, ro.stop_gradient(s * (1.0 - s)))
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
                wanted = f"{list(call.shape(0))}, as Y has"
                call.fail("operands of several shapes", blob=call.op.inputs[i], wanted=wanted, came=list(call.shape(i)))
        return (call.shape(0),)

    def reference(self, call: Call, y: Array, x: Array, slope: Array) -> Array:
        return np.array(y)

    def gradient(self, call: Call, y: Blob, x: Blob, slope: Blob, z: Blob, dz: Blob) -> Gradients:
        return dz, dz * slope, None


stop_gradient, with_gradient = register(StopGradient()), register(WithGradient())
