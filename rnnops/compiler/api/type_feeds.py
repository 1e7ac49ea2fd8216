"""Types of feeds: from arrays or shapes, as `run.plan` takes them, to the type of each input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rnnops.compiler.api.feeds import as_array, as_declared, check_type, float_dtype_of, merge_given
from rnnops.errors import FeedError
from rnnops.net import Net
from rnnops.op import Input
from rnnops.types import FLOAT, FLOATS, Array, Shape, Type, is_too_large, type_of


def types_of_feeds(
    net: Net,
    dicts: tuple[Mapping[str, Any], ...],
    named: Mapping[str, Any],
    dtype: Any = None,
    read: Callable[[str, str, Any], Any] = as_array,
) -> tuple[dict[str, Type], str]:
    """The type of each input, in the order of the net, and the float dtype of the run.

    Args:
        dicts, named: input name -> array or shape; an input with a declared shape may be left out.
        dtype: of floats; that of the arrays where there are some, else float32.
        read: net, input and feed -> array.

    Raises FeedError for names that are twice, unknown or missing, and for arrays and shapes that do not fit.
    """
    given = merge_given(net, dicts, named)
    missing = [spec.name for spec in net.input_specs if spec.name not in given and spec.shape is None]
    if missing:
        wanted = "an array or a shape, as no shape is declared"
        hint = "Bind what stays the same, as parameters do, first: run.bind(**params)."
        raise FeedError("an input is left out", net=net.name, blob=", ".join(missing), wanted=wanted, hint=hint)
    fed = [spec for spec in net.input_specs if spec.name in given and not _is_shape(given[spec.name])]
    arrays = {spec.name: as_declared(net, spec, read(net.name, spec.name, given[spec.name])) for spec in fed}
    floats = asked_float_dtype(net, arrays, dtype)
    types = {}
    for spec in net.input_specs:
        name = spec.name
        types[name] = type_of(arrays[name]) if name in arrays else _type(net, spec, given.get(name), floats)
        check_type(net, spec, types[name], floats)
    return types, floats


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple | list)


def asked_float_dtype(net: Net, arrays: Mapping[str, Array], dtype: Any) -> str:
    """The float dtype that was asked for. Raises FeedError where that is none, or not that of the arrays."""
    came = "float32" if dtype is None else _name(dtype)
    if came not in FLOATS[1:]:
        raise FeedError("no dtype of floats", net=net.name, wanted="float32 or float64", came=came)
    found = float_dtype_of(net, arrays)
    if found is not None and dtype is not None and found != came:
        raise FeedError("float feeds of another dtype than dtype=", net=net.name, wanted=came, came=found)
    return found or came


def _name(dtype: Any) -> str:
    try:
        return str(np.dtype(dtype))
    except TypeError:
        return repr(dtype)


def _type(net: Net, spec: Input, shape: Any, float_dtype: str) -> Type:
    """The type of an input of which a shape is given, or declared."""
    dtype = float_dtype if spec.dtype == FLOAT else spec.dtype
    return Type(dtype, _checked_shape(net, spec.name, spec.shape if shape is None else shape))


def _checked_shape(net: Net, name: str, shape: Any) -> Shape:
    wrong = [size for size in shape if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 0]
    if wrong:
        raise FeedError("no shape", net=net.name, blob=name, wanted="integers of 0 or more", came=repr(shape))
    sizes = tuple(int(size) for size in shape)
    if is_too_large(sizes):
        raise FeedError("no memory can hold an array of this shape", net=net.name, blob=name, came=list(sizes))
    return sizes
