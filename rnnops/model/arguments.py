"""What a model's functions are called with: arguments by name, flattened to the inputs of a net."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import BoundArguments, signature
from typing import Any

from rnnops.errors import ModelError
from rnnops.model.structure import leaves, mapped


@dataclass(frozen=True)
class Arguments:
    """Arguments of one function; each may be a structure of several."""

    function: Callable[..., Any]
    bound: BoundArguments

    def leaves(self) -> dict[str, Any]:
        """Everything that is there, by the names of net inputs; what is None is left out."""
        found: dict[str, Any] = {}
        for name, leaf in (pair for key, value in self.bound.arguments.items() for pair in leaves(value, key)):
            if name in found:
                raise ModelError("two inputs have one name", net=self.function.__name__, blob=name)
            if leaf is not None:
                found[name] = leaf
        return found

    def call(self, replacements: Mapping[str, Any]) -> Any:
        """Call the function with other leaves."""
        values = BoundArguments(self.bound.signature, type(self.bound.arguments)())
        for key, value in self.bound.arguments.items():
            values.arguments[key] = mapped(value, lambda name, leaf: replacements.get(name), key)
        return self.function(*values.args, **values.kwargs)

    def given_to(self, other: Callable[..., Any]) -> Arguments | None:
        """The arguments of these names for another function; None where it needs more."""
        names = [name for name in signature(other).parameters if name in self.bound.arguments]
        try:
            return arguments_of(other, (), {name: self.bound.arguments[name] for name in names})
        except ModelError:
            return None


def arguments_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Bind arguments. Raises ModelError where the function does not take them."""
    try:
        return Arguments(function, signature(function).bind(*args, **kwargs))
    except TypeError as error:
        came = f"{len(args)} in a row" + "".join(f", {name}" for name in kwargs)
        wanted = f"{function.__name__}{signature(function)}"
        raise ModelError(f"inputs do not fit {function.__name__}: {error}", wanted=wanted, came=came) from None


def takes(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function takes such arguments."""
    try:
        signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True
