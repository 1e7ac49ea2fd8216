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
    """A copy through which no gradient passes: that of x is 0.

    Not in ONNX: a file gets Identity.

    Args:
        x: [...] any dtype.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> net.outputs(y=x * ro.stop_gradient(x))
        >>> out, pullback = ro.compile(net, device="reference").vjp({"x": np.array([2.0, 3.0])})
        >>> pullback(np.ones(2))["x"]
        array([2., 3.])
    """

    accepts = ANY
    differentiable = False
    loop = Pointwise("{0}")

    def reference(self, call: Call, x: Array) -> Array:
        return np.array(x)


class WithGradient(OpSchema):
    """`y`, with `slope` as its derivative by `x`: a surrogate gradient.

    Not in ONNX: a file gets Identity. The gradient of `x` is that of the result times `slope`; that of `y` passes
    through, so that a `y` which is to have none comes from `stop_gradient`; none goes to `slope`.

    Args:
        y, x, slope: [...] float, of one shape.

    Returns:
        `y`, of its shape and dtype.

    Raises:
        NetError: one is no blob, or they are of several nets.
        TypeRuleError: one is not float; once shapes are known, they differ.

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
                wanted = f"{list(call.shape(0))}, as Y has"
                call.fail("operands of several shapes", blob=call.op.inputs[i], wanted=wanted, came=list(call.shape(i)))
        return (call.shape(0),)

    def reference(self, call: Call, y: Array, x: Array, slope: Array) -> Array:
        return np.array(y)

    def gradient(self, call: Call, y: Blob, x: Blob, slope: Blob, z: Blob, dz: Blob) -> Gradients:
        return dz, dz * slope, None


stop_gradient, with_gradient = register(StopGradient()), register(WithGradient())
