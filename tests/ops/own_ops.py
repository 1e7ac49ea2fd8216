"""Ops as users register them: reductions of new kinds, and ops without a loop form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

import rnnops as ro
from rnnops.net.blob import Blob
from rnnops.net.loop_forms import Pointwise, Reduction, View
from rnnops.net.schema import REGISTRY, Call, OpSchema, no_gradient, register
from rnnops.ops.base import Binary, Unary
from rnnops.ops.reduction import Reduce
from rnnops.types import ANY, BOOL, FLOATS, NUMERIC, Array, Shape


class Mirror(Unary):
    """The last axis from back to front; no loop form."""

    def reference(self, call: Call, x: Array) -> Array:
        return np.flip(x, -1) if x.ndim else np.array(x)

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Any:
        return self(dy)


class Ranked(Binary):
    """The product of two operands, each of rows that are sorted by the first; no loop form, two outputs, two dtypes."""

    outputs = ("C", "order")
    accepts = FLOATS
    keeps = ("A", "B")

    def __call__(self, a: Any, b: Any) -> Any:
        return a.net.append(self.name, [a, b])

    def dtypes(self, dtypes: Any, attributes: Any) -> tuple[str, ...]:
        return dtypes[0], "int64"

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.broadcast(call.shape(0), call.shape(1)),) * 2

    def reference(self, call: Call, a: Array, b: Array) -> tuple[Array, Array]:
        product = np.asarray(a * b)
        return product, np.argsort(product, axis=-1)

    def gradient(self, call: Call, a: Blob, b: Blob, c: Blob, order: Blob, dc: Blob, dorder: Any) -> Any:
        return dc * b, dc * a


class NonzeroProduct(Reduce):
    """The product; its gradient is right where no element is 0."""

    accepts = NUMERIC
    keeps = ("data", "reduced")
    loop = Reduction("{a} * {b}", 1)

    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        axis, keepdims = self.reduced_axes(call), bool(call.attr("keepdims"))
        return np.asarray(np.multiply.reduce(x, axis=axis, keepdims=keepdims, dtype=x.dtype))

    def gradient(self, call: Call, *blobs: Blob) -> Any:
        return self.widened(call, blobs[-1] * blobs[-2]) / blobs[0], *[None] * (len(call.op.inputs) - 1)


class ReduceSumAbs(Reduce):
    """The sum of absolute values, times a number."""

    attributes: ClassVar[dict[str, Any]] = {**Reduce.attributes, "scale": 1.0}
    accepts = NUMERIC
    keeps = ("data",)
    loop = Reduction("{b} + {a}", 0, "abs({0})", "{scale} * {acc}")  # a sum, written the other way round

    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        total = np.abs(x).sum(axis=self.reduced_axes(call), keepdims=bool(call.attr("keepdims")), dtype=x.dtype)
        return np.asarray(total * x.dtype.type(call.attr("scale")))

    def gradient(self, call: Call, *blobs: Blob) -> Any:
        dy = self.widened(call, blobs[-1]) * call.attr("scale")
        return ro.sign(blobs[0]) * dy, *[None] * (len(call.op.inputs) - 1)


class ReduceLogAddExp(Reduce):
    """The log of the sum of exponentials, two by two."""

    keeps = ("data", "reduced")
    loop = Reduction(
        "{b} if {a} == -inf else {a} if {b} == -inf else maximum({a}, {b}) + log1p(exp(-abs({a} - {b})))",
        -float("inf"),
    )

    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        keepdims = bool(call.attr("keepdims"))
        return np.asarray(np.logaddexp.reduce(x, axis=self.reduced_axes(call), keepdims=keepdims, initial=-np.inf))

    def gradient(self, call: Call, *blobs: Blob) -> Any:
        x, y, dy = blobs[0], blobs[-2], blobs[-1]
        return ro.exp(x - self.widened(call, y)) * self.widened(call, dy), *[None] * (len(call.op.inputs) - 1)


class ReduceAnyAbove(Reduce):
    """Whether any element is above 0: bools of numbers."""

    accepts = NUMERIC
    differentiable = False
    loop = Reduction("{a} or {b}", False, "{0} > 0")

    def dtypes(self, dtypes: Any, attributes: Any) -> tuple[str, ...]:
        return (BOOL,)

    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        return np.asarray((x > 0).any(axis=self.reduced_axes(call), keepdims=bool(call.attr("keepdims"))))


class ReduceCount(ReduceAnyAbove):
    """How many elements are above 0: int64 of numbers."""

    loop = Reduction("{a} + {b}", 0, "1 if {0} > 0 else 0")

    def dtypes(self, dtypes: Any, attributes: Any) -> tuple[str, ...]:
        return ("int64",)

    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        return np.asarray((x > 0).sum(axis=self.reduced_axes(call), keepdims=bool(call.attr("keepdims"))))


class ReduceOdd(Reduce):
    """Whether an odd number of bools hold."""

    accepts = (BOOL,)
    differentiable = False
    loop = Reduction("{a} != {b}", False)

    def reference(self, call: Call, x: Array, axes: Array | None = None) -> Array:
        keepdims = bool(call.attr("keepdims"))
        return np.asarray(np.logical_xor.reduce(x, axis=self.reduced_axes(call), keepdims=keepdims))


class Distance(OpSchema):
    """The root of the sum of squared differences along the last axis, of two operands; the second broadcasts."""

    inputs = ("A", "B")
    accepts = FLOATS
    keeps = ("A", "B", "Y")
    broadcasts = True
    loop = Reduction("{a} + {b}", 0, "({0} - {1}) * ({0} - {1})", "sqrt({acc})")

    def __call__(self, a: Blob, b: Blob) -> Blob:
        return a.net.append(self.name, [a, b])[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        call.broadcast(call.shape(0), call.shape(1))
        return (call.shape(0)[:-1],)

    def reduced_axes(self, call: Call) -> tuple[int, ...]:
        return (call.rank(0) - 1,)

    def reference(self, call: Call, a: Array, b: Array) -> Array:
        return np.asarray(np.sqrt(((a - b) ** 2).sum(axis=-1, dtype=a.dtype)))

    def gradient(self, call: Call, a: Blob, b: Blob, y: Blob, dy: Blob) -> Any:
        slope = (a - b) * ro.unsqueeze(dy / y, [-1])
        return slope, -slope


class Swap(Unary):
    """The halves of the last axis the other way round, the last but one place filled with 0: a view of no ONNX op."""

    accepts = ANY
    loop = View()

    def reference(self, call: Call, x: Array) -> Array:
        result = np.roll(x, x.shape[-1] // 2, axis=-1)
        result[..., -2:-1] = 0
        return result

    def gradient(self, call: Call, x: Blob, y: Blob, dy: Blob) -> Any:
        return swap_back(dy)


class SwapBack(Swap):
    """The gradient of Swap."""

    gradient = no_gradient

    def reference(self, call: Call, x: Array) -> Array:
        result = np.array(x)
        result[..., -2:-1] = 0
        return np.roll(result, -(x.shape[-1] // 2), axis=-1)


class WeightRows(OpSchema):
    """x: [N, ...] times w: [N], row by row."""

    inputs = ("X", "W")
    accepts = FLOATS
    keeps = ("X", "W")
    loop = Pointwise("{0} * {1}", begins=((1, 0),))

    def __call__(self, x: Blob, w: Blob) -> Blob:
        return x.net.append(self.name, [x, w])[0]

    def shapes(self, call: Call) -> tuple[Shape, ...]:
        return (call.shape(0),)

    def reference(self, call: Call, x: Array, w: Array) -> Array:
        return np.asarray(x * w.reshape(-1, *(1,) * (x.ndim - 1)))

    def gradient(self, call: Call, x: Blob, w: Blob, y: Blob, dy: Blob) -> Any:
        return self(dy, w), ro.reduce_sum(x * dy, axes=list(range(1, call.rank(0))), keepdims=0)


mirror, ranked, swap, swap_back, distance, weight_rows = (
    *(Mirror(), Ranked(), Swap(), SwapBack(), Distance(), WeightRows()),
)
reduce_prod, reduce_sum_abs, reduce_log_add_exp = NonzeroProduct(), ReduceSumAbs(), ReduceLogAddExp()
reduce_any_above, reduce_count, reduce_odd = ReduceAnyAbove(), ReduceCount(), ReduceOdd()
OWN = (
    *(mirror, ranked, swap, swap_back, distance, weight_rows, reduce_prod, reduce_sum_abs, reduce_log_add_exp),
    *(reduce_any_above, reduce_count, reduce_odd),
)


@contextmanager
def registered(*schemas: OpSchema) -> Iterator[None]:
    """Ops of one's own, as long as this is open."""
    before = dict(REGISTRY)
    try:
        for schema in schemas:
            register(schema)
        yield
    finally:
        REGISTRY.clear()
        REGISTRY.update(before)
