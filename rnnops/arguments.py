"""Checks of arguments: misspelt names, unknown arguments, flags that are not bools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ClassVar, NoReturn, ParamSpec, TypeVar

import numpy as np

from rnnops.errors import ArgumentError, UnknownNameError

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
Settings = TypeVar("Settings", bound=type)
MEANINGS = {  # of arguments
    "dim": "axis",
    "dims": "axes",
    "keepdim": "keepdims",
    "eps": "epsilon",
    "shapes": "shape",
    "lr": "learning_rate",
}


def did_you_mean(name: object, known: Iterable[str], meanings: Mapping[str, str] | None = None) -> str | None:
    """A hint for a misspelt name, None where nothing is near.

    Args:
        meanings: what names of other libraries are called here.
    """
    word, names = str(name), list(known)
    lower = {known.lower(): known for known in names}
    found = (meanings or {}).get(word.lower()) or lower.get(word.lower())
    near = [found] if found else [lower[close] for close in get_close_matches(word.lower(), lower, 1)]
    return f"Did you mean {near[0]}?" if near else None


def is_flag(value: object) -> bool:
    """True if a value says on or off: a bool of Python or NumPy, or the integer 1 or 0."""
    return isinstance(value, bool | np.bool_) or (isinstance(value, int | np.integer) and value in (0, 1))


def check_flags(owner: str, **flags: object) -> None:
    """Raise ArgumentError for options of `owner` that are on or off, and were given neither: `"no"` would be true."""
    for name, value in flags.items():
        if not is_flag(value):
            came = repr(value)[:60]
            raise ArgumentError(f"{owner}: {name}= is neither on nor off", wanted="True or False", came=came)


def named_arguments(
    function: Callable[Parameters, Returned], hints: Mapping[str, str] | None = None
) -> Callable[Parameters, Returned]:
    """Let a call with arguments that a function has not be an error that says which it has.

    Args:
        hints: name of an argument that it has not -> what to do.
    """

    @wraps(function)
    def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            _check_call(function, args, kwargs, error, hints or {})
            raise

    return called


def named_options(init: Callable[..., None]) -> Callable[..., None]:
    """As `named_arguments`, for an `__init__`; errors are told by the class that is made, not by a base of it."""

    @wraps(init)
    def called(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            if type(self).__init__ is called:
                _check_call(type(self), args, kwargs, error, {})
            raise

    return called


def named_settings(settings: Settings) -> Settings:
    """The same for a class whose `__init__` others wrote, a dataclass, as a decorator above theirs."""
    settings.__init__ = named_options(settings.__init__)  # type: ignore[misc]
    return settings


def _check_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    cause: TypeError,
    hints: Mapping[str, str],
) -> None:
    """Raise ArgumentError where arguments do not fit; else a TypeError came from within."""
    shape = signature(function)
    try:
        shape.bind(*args, **kwargs)
    except TypeError as error:
        names = [name for name in shape.parameters if name != "self"]
        unknown = [name for name in kwargs if name not in names]
        meanings = {other: here for other, here in MEANINGS.items() if here in names}
        hint = hints.get(unknown[0]) or did_you_mean(unknown[0], names, meanings) if unknown else None
        is_op = function.__name__ == "__call__"  # of an op, which is told by its own name and not by its base's
        called = type(args[0]).__name__ if is_op and args else function.__qualname__
        hint = hint or (getattr(args[0], "call_hint", None) if is_op and args else None)
        kinds = {parameter.kind: name for name, parameter in shape.parameters.items()}
        if not unknown and Parameter.VAR_KEYWORD in kinds and any(isinstance(given, Mapping) for given in args):
            hint = hint or f"A dict is unpacked: {function.__name__}(**{kinds[Parameter.VAR_KEYWORD]})."
        raise ArgumentError(f"{called}: {error}", wanted=f"({', '.join(names)})", hint=hint) from cause


class Attributes:
    """A class whose unknown attributes are errors that say what is near.

    `_attribute_meanings`: what attributes of other libraries are called here.
    """

    __slots__ = ()
    _attribute_meanings: ClassVar[Mapping[str, str]] = {}

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(type(self), name):  # a property that lacks another attribute: its own error tells which
            object.__getattribute__(self, name)
        problem = f"a {type(self).__name__} has no attribute '{name}'"
        if name.startswith("_"):  # what Python itself asks for, before there is a name to tell
            raise UnknownNameError(problem)
        known = [known for known in dir(type(self)) if not known.startswith("_")]
        hint = did_you_mean(name, known, self._attribute_meanings) or self._attribute_hint(name)
        raise UnknownNameError(problem, hint=hint, **self._place())

    def _place(self) -> dict[str, str]:
        """The net and the blob that this is, or belongs to, for errors.

        It reads attributes by `object.__getattribute__`, as one that is not there yet would be asked for without end.
        """
        return {}

    def _attribute_hint(self, name: str) -> str | None:
        """A hint for an unknown attribute."""
        return None
