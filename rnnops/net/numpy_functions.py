"""NumPy's functions on blobs: `np.tanh(blob)` and `np.concatenate([a, b])` append ops, as operators do.

NumPy's names, argument order and defaults; the ops are ONNX's. What has no op here is a named error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rnnops.errors import NetError
from rnnops.types import COMPLEX
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.net import schema as schema
    from rnnops.net.blob import Blob
    from rnnops.net.net import Net
else:  # which reads this module: an op gives blobs
    schema = LazyModule("rnnops.net.schema")

SAME = "exp log log1p expm1 tanh sin cos tan sinh cosh sqrt sign floor ceil reciprocal less greater equal"
UFUNCS: dict[str, str] = {
    **{name: name.capitalize() for name in SAME.split()},
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow", "matmul": "MatMul",
    "negative": "Neg", "absolute": "Abs", "fabs": "Abs", "rint": "Round", "arctan": "Atan", "maximum": "Max",
    "minimum": "Min", "less_equal": "LessOrEqual", "greater_equal": "GreaterOrEqual", "remainder": "Mod",
    "logical_and": "And", "logical_or": "Or", "logical_not": "Not", "bitwise_and": "And", "bitwise_or": "Or",
    "invert": "Not",
}  # fmt: skip
LISTED = "ro.op_names() lists all ops."
PRODUCT = "A product of matrices, over the last axis of x, is x @ w."
INSTEAD = {  # of functions that have no op
    **dict.fromkeys(("dot", "inner", "vdot"), PRODUCT),
    **dict.fromkeys(("tensordot", "outer"), 'Use ro.einsum("ni,nj->nij", x, y), say.'),
    **dict.fromkeys(("trace", "diagonal"), 'Use ro.einsum("nii->ni", x), say.'),
    **dict.fromkeys(("hstack", "vstack", "dstack"), "Use np.concatenate or np.stack."),
    **dict.fromkeys(("swapaxes", "moveaxis", "rollaxis"), "Use ro.transpose(x, [1, 0, 2]), say."),
    **dict.fromkeys(("var", "std"), "Use d = x - np.mean(x, axis=-1, keepdims=True), and np.mean(d * d, axis=-1)."),
    **dict.fromkeys(("any", "all"), 'Use ro.reduce_max and ro.reduce_min of ro.cast(mask, "int32").'),
    **dict.fromkeys(("log2", "log10"), "Use np.log(x) / np.log(2.0), say."),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), "Numbers broadcast; ro.expand(x, shape) repeats them."),
    **dict.fromkeys(("conjugate", "angle"), COMPLEX),
    "norm": "Use ro.sqrt(ro.reduce_sum_square(x, axes=[-1])).", "ravel": "Use x.reshape(-1).", "flip": "Use x[::-1].",
    "isnan": "x != x is True where x is NaN.", "floor_divide": "Use ro.floor(x / y).", "sort": "Use ro.topk.",
    "inv": "Use ro.solve(a, np.eye(n)).", "det": "Use sign, logarithm = ro.slogdet(x).",
    "exp2": "Use 2.0 ** x.", "fmax": "Use np.maximum.", "fmin": "Use np.minimum.", "repeat": "Use ro.tile.",
}  # fmt: skip
Axis = int | Sequence[int] | None


def call_ufunc(net: Net, ufunc: np.ufunc, method: str, operands: Sequence[Any], options: dict[str, Any]) -> Any:
    """The op of an elementwise function. Raises NetError where there is none, and for `out=`, `where=`, `dtype=`."""
    name = ufunc.__name__
    if method != "__call__":
        _refuse(net, f"{name}.{method}", f"np.{name} itself; np.sum, np.max, np.cumsum fold")
    if options:
        _refuse(net, name, "only operands", came=", ".join(f"{key}=" for key in options))
    if name == "square":
        return net.apply("Mul", [operands[0], operands[0]])
    if name == "not_equal":
        return net.apply("Not", [net.apply("Equal", operands)])
    if name not in UFUNCS:
        _refuse(net, name, ", ".join(sorted({*UFUNCS, "square", "not_equal"})))
    return net.apply(UFUNCS[name], operands)


def call_function(net: Net, function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> Any:
    """A function of NumPy applied to blobs. Raises NetError for functions and arguments that have no op."""
    name = function.__name__
    made = FUNCTIONS.get(function)
    if made is None:
        _refuse(net, name, ", ".join(sorted({known.__name__ for known in FUNCTIONS})))
    try:
        bound = signature(made).bind(net, *args, **options)
    except TypeError as error:
        known = list(signature(made).parameters)[1:]
        raise NetError(f"np.{name}, of blobs: {error}", net=net.name, wanted=f"({', '.join(known)})") from error
    return made(*bound.args, **bound.kwargs)


def _refuse(net: Net, name: str, wanted: str, came: str | None = None) -> NoReturn:
    if came:
        raise NetError(f"np.{name} has no such form for blobs", net=net.name, wanted=wanted, came=came, hint=LISTED)
    own = own_name(name)
    hint = f"Use ro.{own}." if own else INSTEAD.get(name)
    told = None if hint else wanted  # all that there is, where nothing is near
    raise NetError(f"np.{name} has no op for blobs", net=net.name, wanted=told, hint=hint or LISTED)


def own_name(name: str) -> str | None:
    """The function of ro that has this name, or this name of NumPy; None where there is none."""
    known = {op.lower(): schema.schema_of(op).__name__ for op in schema.op_names()}
    return known.get(name.replace("_", "").lower())


def axes_of(axis: Axis) -> list[int] | None:
    """NumPy's `axis=` as axes of an op."""
    return None if axis is None else list(axis) if isinstance(axis, tuple | list) else [axis]  # type: ignore[list-item]


def reduction(op: str) -> Callable[..., Blob]:
    """A reduction with NumPy's arguments."""

    def reduced(net: Net, a: Blob, axis: Axis = None, *, keepdims: bool = False) -> Blob:
        if isinstance(axis, tuple | list) and not axis:
            return net.apply("Identity", [a])
        return net.call(op, a, axes_of(axis), keepdims)

    return reduced


def _shape(net: Net, a: Blob) -> tuple[int, ...]:
    return a.shape


def _ndim(net: Net, a: Blob) -> int:
    return a.ndim


def _reshape(net: Net, a: Blob, shape: Any) -> Blob:
    return a.reshape(shape)


def _transpose(net: Net, a: Blob, axes: Sequence[int] | None = None) -> Blob:
    return net.call("Transpose", a, axes)


def _concatenate(net: Net, arrays: Sequence[Any], axis: int = 0) -> Blob:
    return net.call("Concat", *net.operands(arrays), axis=axis)


def _stack(net: Net, arrays: Sequence[Any], axis: int = 0) -> Blob:
    return net.call("Concat", *(net.call("Unsqueeze", part, [axis]) for part in net.operands(arrays)), axis=axis)


def _split(net: Net, ary: Blob, indices_or_sections: int, axis: int = 0) -> list[Blob]:
    if not isinstance(indices_or_sections, int | np.integer):
        _refuse(net, "split", "a number of parts; x[..., a:b] takes a part", came=repr(indices_or_sections)[:60])
    return list(net.append("Split", [ary], {"num_outputs": int(indices_or_sections), "axis": axis}))


def _where(net: Net, condition: Any, x: Any, y: Any) -> Blob:
    return net.call("Where", condition, x, y)


def _clip(net: Net, a: Blob, a_min: Any = None, a_max: Any = None) -> Blob:
    return net.call("Clip", a, a_min, a_max)


def _expand_dims(net: Net, a: Blob, axis: int | Sequence[int]) -> Blob:
    return net.call("Unsqueeze", a, axes_of(axis))


def _squeeze(net: Net, a: Blob, axis: Axis = None) -> Blob:
    return net.call("Squeeze", a, axes_of(axis))


def _broadcast_to(net: Net, array: Blob, shape: Sequence[int]) -> Blob:
    return net.call("Expand", array, shape)


def _cumsum(net: Net, a: Blob, axis: int) -> Blob:
    return net.call("CumSum", a, axis)


def _take(net: Net, a: Blob, indices: Any, axis: int) -> Blob:
    return net.call("Gather", a, indices, axis)


FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.sum: reduction("ReduceSum"), np.mean: reduction("ReduceMean"), np.max: reduction("ReduceMax"),
    np.amax: reduction("ReduceMax"), np.min: reduction("ReduceMin"), np.amin: reduction("ReduceMin"),
    np.prod: reduction("ReduceProd"),
    np.shape: _shape, np.ndim: _ndim, np.reshape: _reshape, np.transpose: _transpose, np.concatenate: _concatenate,
    np.stack: _stack, np.split: _split, np.where: _where, np.clip: _clip, np.expand_dims: _expand_dims,
    np.squeeze: _squeeze, np.broadcast_to: _broadcast_to, np.cumsum: _cumsum, np.take: _take,
}  # fmt: skip
