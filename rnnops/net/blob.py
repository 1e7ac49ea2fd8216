"""Blobs: named values of a net. They have operators, methods and subscripts like arrays.

**Subscripts**, `x[0, ..., :H]`, become the ops Slice, Gather, Squeeze and Unsqueeze, with NumPy's meaning. Axes before
an Ellipsis count from the front, and axes behind it from the back, so the rank need not be known.

Limits: an array of indices goes only with full slices, and only one is allowed. Masks are not allowed, because sizes
would depend on values.

**NumPy's functions**: `np.tanh(blob)` and `np.concatenate([a, b])` append ops, like operators. They have NumPy's names,
argument order and defaults, and ONNX's ops. A function without an op raises an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Union

import numpy as np

from rnnops.errors import Attributes, NetError, named_arguments
from rnnops.types import COMPLEX, Array, Shape, Type
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.net import schema as schema
    from rnnops.net.net import Net
else:  # which reads this module: an op gives blobs
    schema = LazyModule("rnnops.net.schema")

FIRST, LAST = -(2**63), 2**63 - 1  # ONNX's numbers for "from the first" and "to the last"
WANTED = "integers, slices of integers, None, `...`, or one array of integers"


def subscript(blob: Blob, key: Any) -> Blob:
    """The blob `blob[key]`.

    Args:
        key: integers, slices of integers, None (a new axis of size 1), and at most one Ellipsis. Or one array, list or
            blob of integers.

    Raises NetError for other keys.
    """
    items = [_with_dtype(blob, item) for item in (key if isinstance(key, tuple) else [key])]
    split = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    del items[split : split + 1]
    for item in items:
        _check(blob, item)
    found = _gathered(blob, items, split)
    found = _sliced(found, items, split)
    for op, wanted, counted in (("Squeeze", _is_integer, _is_old), ("Unsqueeze", _is_none, _is_left)):
        axes = [_axis(items, split, i, counted) for i, item in enumerate(items) if wanted(item)]
        found = found.net.call(op, found, axes) if axes else found
    return found


def _with_dtype(blob: Blob, item: Any) -> Any:
    """An item of a subscript. An empty list counts as integers, as in NumPy.

    Raises NetError for lists of unequal lengths.
    """
    try:
        return np.zeros(np.shape(item), np.int64) if isinstance(item, list) and not np.size(item) else item
    except ValueError:
        _refuse(blob, "indices are not an array", item)


def _axis(items: Sequence[Any], split: int, i: int, counted: Any) -> int:
    """The axis of item i. It counts from the front, or from the back if an Ellipsis comes before it."""
    return sum(map(counted, items[:i])) if i < split else -sum(map(counted, items[i:]))


def _is_integer(item: Any) -> bool:
    return hasattr(item, "__index__") and not _is_array(item)


def _is_array(item: Any) -> bool:
    return isinstance(item, list | np.ndarray) or hasattr(item, "net")


def _is_none(item: Any) -> bool:
    return item is None


def _is_old(item: Any) -> bool:
    """True if an item uses an axis of the operand."""
    return item is not None


def _is_left(item: Any) -> bool:
    """True if an item makes an axis of the result."""
    return not _is_integer(item)


def _check(blob: Blob, item: Any) -> None:
    """Raise NetError for an item that cannot be part of a subscript."""
    if item is Ellipsis:
        _refuse(blob, "a subscript has one `...` at most", item)
    dtype = _dtype(item) if _is_array(item) else None
    if isinstance(item, bool | np.bool_) or dtype == "bool":
        _refuse(blob, "masks are not subscripts", item, "ro.where(mask, x, 0.0) keeps the shape.")
    if dtype is not None and not dtype.startswith(("int", "uint")):
        _refuse(blob, "indices are not integers", item)
    bounds = (item.start, item.stop, item.step) if isinstance(item, slice) else ()
    if any(bound is not None and not _is_integer(bound) for bound in bounds):
        _refuse(blob, "a bound is not an integer", item, "ro.slice takes blobs of integers.")
    if not (item is None or isinstance(item, slice) or _is_integer(item) or _is_array(item)):
        _refuse(blob, "this is not a subscript", item)


def _dtype(item: Any) -> str:
    """The dtype of an array of indices."""
    return str(np.asarray(item).dtype if isinstance(item, list) else item.dtype)


def _refuse(blob: Blob, problem: str, item: Any, hint: str | None = None) -> NoReturn:
    raise NetError(problem, net=blob.net.name, blob=blob.name, wanted=WANTED, came=repr(item)[:60], hint=hint)


def _gathered(blob: Blob, items: list[Any], split: int) -> Blob:
    """The elements that an array of indices takes. Its place among the items becomes a full slice."""
    arrays = [i for i, item in enumerate(items) if _is_array(item)]
    if not arrays:
        return blob
    if any(item != slice(None) for i, item in enumerate(items) if i != arrays[0]):
        hint = "Take one subscript after the other: x[:, indices][0]."
        _refuse(blob, "an array of indices cannot go with other subscripts", tuple(items), hint)
    found = blob.net.call("Gather", blob, items[arrays[0]], _axis(items, split, arrays[0], _is_old))
    items.clear()
    return found


def _sliced(blob: Blob, items: Sequence[Any], split: int) -> Blob:
    """The part that integers and slices select. Axes with integers stay, with size 1."""
    cuts = [(_axis(items, split, i, _is_old), *_bounds(item)) for i, item in enumerate(items) if item is not None]
    cuts = [cut for cut in cuts if cut[1:] != (0, LAST, 1)]
    if not cuts:
        return blob
    axes, starts, ends, steps = (list(column) for column in zip(*cuts, strict=True))
    return blob.net.call("Slice", blob, starts, ends, axes, steps)


def _bounds(item: Any) -> tuple[int, int, int]:
    """Start, end and step of a slice, or of the one element at an integer."""
    if not isinstance(item, slice):
        return index(item), index(item) + 1 or LAST, 1
    step = 1 if item.step is None else index(item.step)
    start = (0 if step > 0 else LAST) if item.start is None else index(item.start)
    end = (LAST if step > 0 else FIRST) if item.stop is None else index(item.stop)
    return start, end, step


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
INSTEAD = {  # hints for functions that have no op
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
    """Appends the op of an elementwise function. Raises NetError if it has none, or for `out=`, `where=`, `dtype=`."""
    name = ufunc.__name__
    if method != "__call__":
        _refuse_function(net, f"{name}.{method}", f"np.{name} itself; np.sum, np.max, np.cumsum fold")
    if options:
        _refuse_function(net, name, "only operands", came=", ".join(f"{key}=" for key in options))
    if name == "square":
        return net.apply("Mul", [operands[0], operands[0]])
    if name == "not_equal":
        return net.apply("Not", [net.apply("Equal", operands)])
    if name not in UFUNCS:
        _refuse_function(net, name, ", ".join(sorted({*UFUNCS, "square", "not_equal"})))
    return net.apply(UFUNCS[name], operands)


def call_function(net: Net, function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Applies a function of NumPy to blobs. Raises NetError for functions and arguments without an op."""
    name = function.__name__
    made = FUNCTIONS.get(function)
    if made is None:
        _refuse_function(net, name, ", ".join(sorted({known.__name__ for known in FUNCTIONS})))
    try:
        bound = signature(made).bind(net, *args, **options)
    except TypeError as error:
        known = list(signature(made).parameters)[1:]
        raise NetError(f"np.{name}, of blobs: {error}", net=net.name, wanted=f"({', '.join(known)})") from error
    return made(*bound.args, **bound.kwargs)


def _refuse_function(net: Net, name: str, wanted: str, came: str | None = None) -> NoReturn:
    if came:
        raise NetError(f"np.{name} has no such form for blobs", net=net.name, wanted=wanted, came=came, hint=LISTED)
    own = own_name(name)
    hint = f"Use ro.{own}." if own else INSTEAD.get(name)
    told = None if hint else wanted  # shown only if no name is near
    raise NetError(f"np.{name} has no op for blobs", net=net.name, wanted=told, hint=hint or LISTED)


def own_name(name: str) -> str | None:
    """The function of ro with this name, or for this name of NumPy. None if there is none."""
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


def _stack(net: Net, arrays: Sequence[Any], axis: int = 0) -> Blob:
    return net.call("Concat", *(net.call("Unsqueeze", part, [axis]) for part in net.operands(arrays)), axis=axis)


def _split(net: Net, ary: Blob, indices_or_sections: int, axis: int = 0) -> list[Blob]:
    if not isinstance(indices_or_sections, int | np.integer):
        _refuse_function(
            net, "split", "a number of parts; x[..., a:b] takes a part", came=repr(indices_or_sections)[:60]
        )
    return list(net.append("Split", [ary], {"num_outputs": int(indices_or_sections), "axis": axis}))


FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.sum: reduction("ReduceSum"), np.mean: reduction("ReduceMean"), np.max: reduction("ReduceMax"),
    np.amax: reduction("ReduceMax"), np.min: reduction("ReduceMin"), np.amin: reduction("ReduceMin"),
    np.prod: reduction("ReduceProd"), np.stack: _stack, np.split: _split,
    np.shape: lambda net, a: a.shape,
    np.ndim: lambda net, a: a.ndim,
    np.reshape: lambda net, a, shape: a.reshape(shape),
    np.transpose: lambda net, a, axes=None: net.call("Transpose", a, axes),
    np.concatenate: lambda net, arrays, axis=0: net.call("Concat", *net.operands(arrays), axis=axis),
    np.where: lambda net, condition, x, y: net.call("Where", condition, x, y),
    np.clip: lambda net, a, a_min=None, a_max=None: net.call("Clip", a, a_min, a_max),
    np.expand_dims: lambda net, a, axis: net.call("Unsqueeze", a, axes_of(axis)),
    np.squeeze: lambda net, a, axis=None: net.call("Squeeze", a, axes_of(axis)),
    np.broadcast_to: lambda net, array, shape: net.call("Expand", array, shape),
    np.cumsum: lambda net, a, axis: net.call("CumSum", a, axis),
    np.take: lambda net, a, indices, axis: net.call("Gather", a, indices, axis),
}  # fmt: skip


def _unary(op: str) -> Callable[[Blob], Blob]:
    return lambda self: self.net.apply(op, [self])


def _binary(op: str) -> Callable[[Blob, Operand], Blob]:
    return lambda self, other: self.net.apply(op, [self, other])


def _reflected(op: str) -> Callable[[Blob, Operand], Blob]:
    return lambda self, other: self.net.apply(op, [other, self])


class Blob(Attributes):
    """A handle on a value of a net. `net.inputs`, `net.parameter` and ops make blobs; users do not.

    `+ - * / % ** @ == != < <= > >= & | ~ -x +x abs(x)` append ops. One side may be a Python number or a NumPy array.
    Subscripts (`x[0, ..., :H]`), `x.T`, methods of arrays (`x.sum(axis=-1)`) and NumPy's functions (`np.tanh(x)`)
    append ops too, with NumPy's arguments and defaults.

    Args:
        net: the net to which it belongs.
        name: unique in the net.

    Raises:
        NetError: for a value that exists only in a run, as with `bool(x)`, `float(x)`, `len(x)` or a loop.
        UnknownNameError: for an attribute of arrays that blobs do not have. It says what to use instead.

    Example:
        >>> net = ro.Net("n")
        >>> x = net.input("x")
        >>> y = np.tanh(2.0 * x[0] + 1.0).named("y")
        >>> x, y, y.dtype
        (<Blob x of net n>, <Blob y of net n>, 'float')
        >>> net.outputs(y)
        >>> ro.compile(net, device="reference")({"x": np.array([[0.0, 1.0]])})
        {'y': array([0.7616, 0.9951])}
    """

    __slots__ = ("__weakref__", "name", "net")
    _attribute_meanings: ClassVar = {
        "permute": "transpose", "view": "reshape", "size": "shape", "dim": "ndim", "amax": "max",
        "swapaxes": "transpose", "flatten": "reshape", "ravel": "reshape", "astype": "ro.cast", "to": "ro.cast",
        "dot": "x @ y", "argmax": "ro.argmax", "detach": "ro.stop_gradient", "masked_fill": "ro.where",
        "repeat": "ro.tile", "chunk": "ro.split", "cuda": 'ro.compile(net, device="cuda")',
        **dict.fromkeys(("grad", "backward"), "run.vjp, whose pullback gives gradients"),
        **dict.fromkeys(("item", "numpy", "tolist", "cpu", "data"), "ro.compile(net)(feeds), which gives arrays"),
        **dict.fromkeys(("real", "imag", "conj"), "a blob for each part: complex numbers are pairs of reals"),
        **{name: f"np.{name}" for name in ("clip", "cumsum", "squeeze", "take")},
    }  # fmt: skip
    __hash__ = object.__hash__

    def __init__(self, net: Net, name: str) -> None:
        self.net, self.name = net, name

    @property
    def dtype(self) -> str:
        """`"float"` (the run's float dtype) or a fixed dtype such as `"int32"`."""
        return self.net.dtype_of(self.name)

    @property
    def type(self) -> Type | None:
        """Dtype and shape if sizes are known already, as in a gradient net; else None."""
        return self.net.type_of(self.name)

    @property
    def shape(self) -> Shape:
        """Sizes, if inputs declare theirs.

        Raises:
            NetError: they are known only once there are feeds. Use the blob `ro.shape(x)` then.
        """
        return self.net.shape_of(self.name)

    @property
    def ndim(self) -> int:
        """Number of axes.

        Raises:
            NetError: the shape is known only once there are feeds.
        """
        return len(self.shape)

    def named(self, name: str) -> Blob:
        """Gives this blob a name. Errors and printed nets show it, and cells and `recompute=` can refer to it.

        Args:
            name: printable, and not taken in the net. Open name scopes are put before it.

        Returns:
            The same blob.

        Raises:
            NetError: the name is taken or not a name, or the net is a snapshot.

        Example:
            >>> net = ro.Net("n")
            >>> (net.input("x") * 2.0).named("twice").name
            'twice'
        """
        self.net.rename(self, name)
        return self

    def __repr__(self) -> str:
        return f"<Blob {self.name} of net {self.net.name}>"

    def _place(self) -> dict[str, str]:
        net, name = (object.__getattribute__(self, one) for one in ("net", "name"))
        return {"net": net.name, "blob": name}

    def _attribute_hint(self, name: str) -> str:
        own = own_name(name)
        return f"ro.{own} takes blobs." if own else "ro.op_names() lists the ops, whose functions take blobs."

    # -- what arrays do and blobs do not ---------------------------------------------------------------------------

    def _refuse(self, problem: str, hint: str) -> NoReturn:
        raise NetError(f"{problem} while the net is built", net=self.net.name, blob=self.name, hint=hint)

    def __bool__(self) -> NoReturn:
        self._refuse("a blob has no truth value", "Use ro.where to choose between values, and `is` to compare handles.")

    def __iter__(self) -> NoReturn:
        self._refuse("a blob has no elements", "ro.split(x, 4, axis=-1) gives parts, ro.recurrent_net goes over time.")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        hint = "ro.where(mask, value, x) and ro.concat([x[:1], value], axis=0) make another blob, as scatter_nd does."
        raise NetError("values of a blob never change", net=self.net.name, blob=self.name, hint=hint)

    def __len__(self) -> NoReturn:
        self._refuse("a blob has no length", "Use x.shape where inputs declare theirs, else ro.shape(x).")

    def __float__(self) -> NoReturn:
        hint = "A run gives numbers: ro.compile(net)(feeds). For functions of `math` use ro.tanh(x), ro.exp(x), ..."
        self._refuse("a blob is not a number", hint)

    __int__ = __complex__ = __index__ = __float__

    def __format__(self, form: str) -> str:
        return self.__float__() if form else str(self)

    def __array__(self, *arguments: Any, **options: Any) -> NoReturn:
        self._refuse("a blob has no numbers", "ro.compile(net)(feeds) gives arrays.")

    # -- NumPy -----------------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **options: Any) -> Any:
        return call_ufunc(self.net, ufunc, method, operands, options)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, options: dict[str, Any]) -> Any:
        return call_function(self.net, function, args, options)

    def __getitem__(self, key: Any) -> Blob:
        return subscript(self, key)

    @property
    def T(self) -> Blob:  # noqa: N802 - as NumPy has it
        """All axes in reverse order."""
        return self.net.call("Transpose", self)

    @named_arguments
    def transpose(self, *axes: Any) -> Blob:
        """Axes in another order, as `x.transpose(1, 0)` or `x.transpose([1, 0])`.

        Args:
            axes: axes of x, in the order of the result, one by one or as a list. Reversed if left out.

        Returns:
            A blob with the sizes in that order.

        Raises:
            TypeRuleError: once shapes are known, they do not name every axis once.
        """
        return self.net.call("Transpose", self, _unpacked(axes) or None)

    @named_arguments
    def reshape(self, *shape: Any) -> Blob:
        """The same elements in other sizes, as `x.reshape(2, -1)` or `x.reshape([2, -1])`.

        Args:
            shape: sizes, one by one, as a list, or as an int64 blob. One -1 is computed from the others. 0 is a size of
                0, as in NumPy.

        Returns:
            A blob of this shape.

        Raises:
            NetError: sizes are not integers.
            TypeRuleError: once shapes are known, the elements do not fit.
        """
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], Blob) else _unpacked(shape)
        literal = isinstance(sizes, Blob) or any(isinstance(size, int | np.integer) and size == 0 for size in sizes)
        return self.net.call("Reshape", self, sizes, allowzero=int(literal))

    @named_arguments
    def sum(self, axis: Axis = None, keepdims: bool = False) -> Blob:
        """The sum over some axes, or over all; `ro.reduce_sum` with NumPy's defaults.

        Args:
            axis: an axis, or several as a tuple. Negative ones count from the end. None for all.
            keepdims: True to keep the reduced axes, with size 1.

        Returns:
            The other axes, x's dtype.

        Raises:
            TypeRuleError: x is bool; once shapes are known, an axis is out of range or there twice.
        """
        return _SUM(self.net, self, axis, keepdims=keepdims)

    @named_arguments
    def mean(self, axis: Axis = None, keepdims: bool = False) -> Blob:
        """The mean over some axes, or over all; `ro.reduce_mean` with NumPy's defaults.

        Args:
            axis: an axis, or several as a tuple. Negative ones count from the end. None for all.
            keepdims: True to keep the reduced axes, with size 1.

        Returns:
            The other axes, x's dtype.

        Raises:
            TypeRuleError: x is not float; once shapes are known, an axis is out of range or there twice.
        """
        return _MEAN(self.net, self, axis, keepdims=keepdims)

    @named_arguments
    def max(self, axis: Axis = None, keepdims: bool = False) -> Blob:
        """The largest element along some axes, or of all; `ro.reduce_max` with NumPy's defaults.

        Args:
            axis: an axis, or several as a tuple. Negative ones count from the end. None for all.
            keepdims: True to keep the reduced axes, with size 1.

        Returns:
            The other axes, x's dtype.

        Raises:
            TypeRuleError: once shapes are known, an axis is out of range or there twice.
        """
        return _MAX(self.net, self, axis, keepdims=keepdims)

    @named_arguments
    def min(self, axis: Axis = None, keepdims: bool = False) -> Blob:
        """The smallest element along some axes, or of all; `ro.reduce_min` with NumPy's defaults.

        Args:
            axis: an axis, or several as a tuple. Negative ones count from the end. None for all.
            keepdims: True to keep the reduced axes, with size 1.

        Returns:
            The other axes, x's dtype.

        Raises:
            TypeRuleError: once shapes are known, an axis is out of range or there twice.
        """
        return _MIN(self.net, self, axis, keepdims=keepdims)

    # -- operators -------------------------------------------------------------------------------------------------

    __add__, __radd__ = _binary("Add"), _reflected("Add")
    __sub__, __rsub__ = _binary("Sub"), _reflected("Sub")
    __mul__, __rmul__ = _binary("Mul"), _reflected("Mul")
    __truediv__, __rtruediv__ = _binary("Div"), _reflected("Div")
    __mod__, __rmod__ = _binary("Mod"), _reflected("Mod")
    __pow__, __rpow__ = _binary("Pow"), _reflected("Pow")
    __matmul__, __rmatmul__ = _binary("MatMul"), _reflected("MatMul")
    __and__, __rand__ = _binary("And"), _reflected("And")
    __or__, __ror__ = _binary("Or"), _reflected("Or")
    __lt__, __gt__ = _binary("Less"), _binary("Greater")
    __le__, __ge__ = _binary("LessOrEqual"), _binary("GreaterOrEqual")
    __eq__ = _binary("Equal")  # type: ignore[assignment]
    __invert__, __neg__ = _unary("Not"), _unary("Neg")
    __pos__, __abs__ = _unary("Identity"), _unary("Abs")

    def __ne__(self, other: object) -> Blob:  # type: ignore[override]
        return self.net.apply("Not", [self == other])

    def __floordiv__(self, other: Operand) -> NoReturn:
        self._refuse("a blob has no //", "Use ro.floor(x / y).")

    __rfloordiv__ = __floordiv__


for _name, _operator in vars(Blob).items():
    if getattr(_operator, "__name__", "") == "<lambda>":  # `help` shows the name
        _operator.__name__ = _name


def _unpacked(values: tuple[Any, ...]) -> Sequence[Any]:
    """Sizes or axes that came one by one, or as one sequence."""
    (first, *more) = values or ((),)
    first = first.tolist() if isinstance(first, np.ndarray) else first
    return first if not more and isinstance(first, Sequence) else values


_SUM, _MEAN, _MAX, _MIN = map(reduction, ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"))
Number = Union[int, float, bool, np.number, np.bool_]  # noqa: UP007 - a runtime alias under Python 3.10
Operand = Union[Blob, Number, Array]  # noqa: UP007
