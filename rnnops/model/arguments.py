"""What a model's functions are called with: arguments by name, flattened to the inputs of a net."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import BoundArguments, Parameter, Signature, signature
from typing import Any

from rnnops.errors import ModelError
from rnnops.model.structure import form_of, leaves, mapped


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
        """What is equal where the function would be given equal things, with `describe(name, leaf)` for arrays."""
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
        raise ModelError("this is no function", wanted="a method of the model", came=repr(function)[:80])
    try:
        return Arguments(function, signature(function).bind(*args, **kwargs))
    except TypeError as error:
        came = f"{len(args)} in a row" + "".join(f", {name}" for name in kwargs)
        name = getattr(function, "__name__", "the function")
        raise ModelError(
            f"inputs do not fit {name}: {error}", wanted=f"{name}{signature(function)}", came=came
        ) from None


def takes(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function takes such arguments."""
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
