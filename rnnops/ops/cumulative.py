"""CumSum: sums of all elements up to each one."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rnnops.blob import Blob
from rnnops.loops import Expansion
from rnnops.net import common_net
from rnnops.ops.base import flag, quiet
from rnnops.ops.indexing import pad
from rnnops.schema import Call, Gradients, OpSchema, register
from rnnops.types import NUMERIC, Array, Shape


class CumSum(OpSchema):
    """The sum of all elements up to each one along an axis.

    ONNX: CumSum, op set 14. Integers wrap around. The gradient is the sum from the other end. Compiled code adds in
    log2(n) passes, of which each adds what lies twice as far (Hillis and Steele, CACM 29(12), 1986), so that results
    differ from sums one after another by rounding.

    Args:
        x: [...] float or integer.
        axis: along which; negative ones count from the end.
        exclusive: 1 or True leaves each element out of its own sum.
        reverse: 1 or True sums from the end.

    Returns:
        The same shape and dtype.

    Raises:
        NetError: x is no blob, or a flag is neither on nor off.
        TypeRuleError: x is bool; once shapes are known, the axis is out of range.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.cumsum(net.input("x")))
        >>> ro.compile(net, device="reference")({"x": np.array([1.0, 2.0, 3.0])})["y"]
        array([1., 3., 6.])
    """

    inputs = ("x",)
    outputs = ("y",)
    attributes: ClassVar[dict[str, Any]] = {"axis": -1, "exclusive": 0, "reverse": 0}
    accepts = NUMERIC
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
            turned[(slice(None),) * axis + (slice(0, 1),)] = 0
        total = np.cumsum(turned, axis, dtype=x.dtype)
        return np.asarray(np.flip(total, axis) if call.attr("reverse") else total)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Gradients:
        """Each element is in the sums from its own place on."""
        return self(dy, call.attr("axis"), call.attr("exclusive"), not call.attr("reverse"))

    def expand(self, call: Call, x: Blob) -> Blob:
        axis, reverse = call.axis(call.attr("axis"), call.rank(0)), bool(call.attr("reverse"))
        total, distance = (moved(x, axis, 1, reverse) if call.attr("exclusive") else x), 1
        while distance < call.shape(0)[axis]:
            total = total + moved(total, axis, distance, reverse)
            distance *= 2
        return total


def moved(x: Blob, axis: int, distance: int, back: bool) -> Blob:
    """Elements so much further along an axis, or so much less, zeros in their places."""
    return pad(x, [-distance, distance] if back else [distance, -distance], axes=[axis])


cumsum = register(CumSum())
