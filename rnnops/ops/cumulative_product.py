"""CumProd: products of all elements up to each one."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Expansion
from rnnops.net import common_net
from rnnops.ops.base import flag, quiet
from rnnops.ops.comparison import identity
from rnnops.ops.indexing import pad
from rnnops.schema import Call, Gradients, OpSchema, register
from rnnops.types import NUMERIC, Array, Shape


class CumProd(OpSchema):
    """The product of all elements up to each one along an axis.

    ONNX: CumProd, op set 26. Integers wrap around. Gradients divide by nothing, so that they hold where elements are
    zero. Compiled code multiplies in log2(n) passes, as `ro.cumsum` adds.

    Args:
        x: [...] float or integer.
        axis: along which; negative ones count from the end.
        exclusive: 1 or True leaves each element out of its own product.
        reverse: 1 or True multiplies from the end.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob, or a flag is neither on nor off.
        TypeRuleError: x is bool; once shapes are known, the axis is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.cumprod(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([1.0, 2.0, 3.0])})["y"]
        array([1., 2., 6.])
    """

    inputs = ("x",)
    outputs = ("y",)
    attributes: ClassVar[dict[str, Any]] = {"axis": -1, "exclusive": 0, "reverse": 0}
    accepts = NUMERIC
    keeps = ("x",)
    loop = Expansion()

    def __call__(self, x: Blob, axis: int = -1, exclusive: int = 0, reverse: int = 0) -> Blob:
        flags = {
            name: flag(value, self.name) or None for name, value in (("exclusive", exclusive), ("reverse", reverse))
        }
        return common_net([x]).append(self.name, [x], {"axis": axis, **flags})[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        call.axis(call.attr("axis"), call.rank(0))
        return (call.shape(0),)

    @quiet
    def reference(self, call: Call, x: Array) -> Array:
        axis = call.axis(call.attr("axis"), x.ndim)
        turned = np.flip(x, axis) if call.attr("reverse") else x
        if call.attr("exclusive"):
            turned = np.roll(turned, 1, axis)
            turned[(slice(None),) * axis + (slice(0, 1),)] = 1
        total = np.cumprod(turned, axis, dtype=x.dtype)
        return np.array(np.flip(total, axis) if call.attr("reverse") else total)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        """The product before each element, times what comes after it: `s[i] = dy[i] + x[i + 1] * s[i + 1]`."""
        axis, reverse = call.axis(call.attr("axis"), call.rank(0)), call.attr("reverse")
        if not call.shape(0)[axis]:
            return dy
        total = shifted(dy, axis, 1, not reverse, 0.0) if call.attr("exclusive") else dy
        factor, distance = shifted(x, axis, 1, not reverse, 0.0), 1
        while distance < call.shape(0)[axis]:
            total = total + factor * shifted(total, axis, distance, not reverse, 0.0)
            factor = factor * shifted(factor, axis, distance, not reverse, 0.0)
            distance *= 2
        return self(x, call.attr("axis"), True, reverse) * total

    def expand(self, call: Call, x: Blob) -> Blob:
        axis, reverse = call.axis(call.attr("axis"), call.rank(0)), bool(call.attr("reverse"))
        if not call.shape(0)[axis]:
            return identity(x)
        total, distance = (shifted(x, axis, 1, reverse, 1) if call.attr("exclusive") else identity(x)), 1
        while distance < call.shape(0)[axis]:
            total = total * shifted(total, axis, distance, reverse, 1)
            distance *= 2
        return total


def shifted(x: Blob, axis: int, distance: int, back: bool, fill: float) -> Blob:
    """Elements so much further along an axis, or so much less, a number in their places."""
    return pad(x, [-distance, distance] if back else [distance, -distance], fill, axes=[axis])


cumprod = register(CumProd())
