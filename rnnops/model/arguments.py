"""Arguments of a model's functions: nested structures, placeholders, names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import BoundArguments, Parameter, Signature, signature
from typing import Any

import numpy as np

from rnnops.errors import ModelError
from rnnops.types import FLOAT, Shape, Type, dtype_name, is_float


def leaves(structure: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a structure, with names: the structure's own, followed by `_<place or key>` for each level."""
    if isinstance(structure, dict | list | tuple):
        for key, part in _parts(structure):
            yield from leaves(part, f"{name}_{key}")
    else:
        yield name, structure


def mapped(structure: Any, function: Callable[[str, Any], Any], name: str) -> Any:
    """A structure of the same kind with `function(name, leaf)` in place of each leaf; names as in `leaves`."""
    if not isinstance(structure, dict | list | tuple):
        return function(name, structure)
    parts = [(key, mapped(part, function, f"{name}_{key}")) for key, part in _parts(structure)]
    if isinstance(structure, dict):
        return dict(parts)
    values = [part for _, part in parts]
    return structure._make(values) if hasattr(structure, "_make") else type(structure)(values)


def form_of(structure: Any, describe: Callable[[str, Any], object], name: str) -> object:
    """Equal for structures of equal kinds, with `describe(name, leaf)` for leaves, and None for those that are."""
    if not isinstance(structure, dict | list | tuple):
        return None if structure is None else describe(name, structure)
    parts = [(key, form_of(part, describe, f"{name}_{key}")) for key, part in _parts(structure)]
    return (type(structure), *parts)


def _parts(structure: Any) -> Iterator[tuple[Any, Any]]:
    yield from structure.items() if isinstance(structure, dict) else enumerate(structure)


class Placeholder:
    """The shape and dtype of data that is not there yet: what a model is compiled for in place of an array.

    Args:
        shape: sizes, such as `(T, N, D)`.
        dtype: `"float"` is the model's own float dtype; labels, tokens and lengths are `"int32"`.

    Raises:
        ModelError: shape is not a list of sizes.
        NetError: dtype is none.

    Example:
        >>> ro.model.Placeholder((7, 2), "int32")
        Placeholder([7, 2], 'int32')
    """

    def __init__(self, shape: Sequence[int], dtype: object = FLOAT) -> None:
        self.shape, self.dtype = _sizes(shape), dtype_name(dtype)

    def type(self, float_dtype: str) -> Type:
        """Its type in a model.

        Args:
            float_dtype: that `"float"` stands for.
        """
        return Type(float_dtype if self.dtype == FLOAT else self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"Placeholder({list(self.shape)}, {self.dtype!r})"


def as_placeholder(name: str, value: Any, float_dtype: str) -> Placeholder:
    """The placeholder of an array, or the one that is given.

    Raises ModelError for anything else, and for floats that are not the model's.
    """
    if isinstance(value, Placeholder):
        shape, dtype = value.shape, value.dtype
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        shape, dtype = tuple(value.shape), str(value.dtype).rpartition(".")[2]
    else:
        raise ModelError(
            "this is not an array", blob=name, wanted="an array or a Placeholder", came=type(value).__name__
        )
    if is_float(dtype) and dtype not in (FLOAT, float_dtype):
        hint = "Convert the array, or compile the model with dtype=."
        raise ModelError("floats of another dtype", blob=name, wanted=float_dtype, came=dtype, hint=hint)
    return Placeholder(shape, FLOAT if is_float(dtype) else dtype)


def _sizes(shape: object) -> Shape:
    listed = isinstance(shape, Sequence) and not isinstance(shape, str)
    sizes: tuple[Any, ...] = tuple(shape) if listed else ()  # type: ignore[arg-type]
    if not listed or not all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0 for size in sizes
    ):
        raise ModelError("not a shape", wanted="a tuple of integers of 0 or more", came=repr(shape))
    return tuple(int(size) for size in sizes)


@dataclass(frozen=True)
class Arguments:
    """Arguments of one function; each may be a structure of several."""

    function: Callable[..., Any]
    bound: BoundArguments

    @property
    def name(self) -> str:
        """The function's."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def leaves(self) -> dict[str, Any]:
        """Everything that is there, by the names of net inputs; what is None is left out.

        Raises ModelError where two have one name.
        """
        named = [pair for key, value in self.bound.arguments.items() for pair in leaves(value, key)]
        return unique([(name, leaf) for name, leaf in named if leaf is not None], "inputs")

    def form(self, describe: Callable[[str, Any], object]) -> object:
        """A key that is equal for equal arguments, with `describe(name, leaf)` for arrays."""
        return tuple((key, form_of(value, describe, key)) for key, value in self.bound.arguments.items())

    def call(self, replacements: Mapping[str, Any]) -> Any:
        """Call the function with other leaves."""
        values = BoundArguments(self.bound.signature, type(self.bound.arguments)())
        for key, value in self.bound.arguments.items():
            values.arguments[key] = mapped(value, lambda name, leaf: replacements.get(name), key)
        return self.function(*values.args, **values.kwargs)

    def given_to(self, other: Callable[..., Any]) -> Arguments | None:
        """The arguments of these names for another function; None where it needs more."""
        given: dict[str, Any] = {}
        for name, value in self.bound.arguments.items():
            given.update(value if _kind(self.bound.signature, name) == Parameter.VAR_KEYWORD else {name: value})
        wanted = signature(other)
        if not any(one.kind == Parameter.VAR_KEYWORD for one in wanted.parameters.values()):
            given = {name: value for name, value in given.items() if name in wanted.parameters}
        try:
            return arguments_of(other, (), given)
        except ModelError:
            return None


def arguments_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Bind arguments. Raises ModelError where the function does not take them."""
    if not callable(function):
        raise ModelError("this is not a function", wanted="a method of the model", came=repr(function)[:80])
    try:
        return Arguments(function, signature(function).bind(*args, **kwargs))
    except TypeError as error:
        came = f"{len(args)} in a row" + "".join(f", {name}" for name in kwargs)
        name = getattr(function, "__name__", "the function")
        raise ModelError(
            f"inputs do not fit {name}: {error}", wanted=f"{name}{signature(function)}", came=came
        ) from None


def takes(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """True if a function takes such arguments."""
    try:
        signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def unique(named: Sequence[tuple[str, Any]], what: str) -> dict[str, Any]:
    """Leaves by name. Raises ModelError where two have one, as `{"a": [x], "a_0": y}` would give."""
    found: dict[str, Any] = {}
    for name, leaf in named:
        if name in found:
            raise ModelError(f"two {what} have one name", blob=name, hint="Rename a key or an argument.")
        found[name] = leaf
    return found


def _kind(form: Signature, name: str) -> object:
    return form.parameters[name].kind
