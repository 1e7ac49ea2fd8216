"""Deep copies of step functions: `copy.deepcopy` takes a function as it is, so that a copy of a model would go on using
the modules of the original that the function closes over.

A copied step closes over copies, as a bound method does. What cannot be copied is named in a warning.
"""

from __future__ import annotations

import copy
import types
import warnings
from typing import Any

from torch.nn import Module

from rnnops.torch.code_reads import reads_of
from rnnops.torch.errors import UnseenWarning

HINT = "Give a method as the step: rnnops.torch.RNN(cell, self._step)."


def copied_step(step: Any, memo: dict[int, Any]) -> Any:
    """A step of a copied module.

    Args:
        memo: copies that were made before, by the ids of the originals, as `copy.deepcopy` has it.
    """
    if isinstance(step, types.FunctionType):
        return _copied_function(step, memo)
    return _copied("the step", step, memo)


def _copied_function(function: types.FunctionType, memo: dict[int, Any]) -> types.FunctionType:
    if id(function) in memo:
        found: types.FunctionType = memo[id(function)]
        return found
    memo[id(function)] = function  # where it closes over itself
    _warn_of_globals(function, memo)
    names = function.__code__.co_freevars
    cells = [_copied_cell(name, cell, memo) for name, cell in zip(names, function.__closure__ or (), strict=True)]
    defaults = _copied("a default", function.__defaults__, memo)
    named = _copied("a default", function.__kwdefaults__, memo)
    is_same = all(map(_is, cells, function.__closure__ or ())) and defaults is function.__defaults__
    if is_same and named == function.__kwdefaults__:
        return function
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, defaults, tuple(cells))
    made.__kwdefaults__, made.__qualname__ = named, function.__qualname__
    made.__module__, made.__doc__ = function.__module__, function.__doc__
    made.__dict__.update(function.__dict__)
    memo[id(function)] = made
    return made


def _is(one: Any, other: Any) -> bool:
    return one is other


def _copied_cell(name: str, cell: types.CellType, memo: dict[int, Any]) -> types.CellType:
    """A cell with a copy; the same one where its content is copied as itself."""
    try:
        content = cell.cell_contents
    except ValueError:  # a name that has no value yet
        return cell
    made = _copied(f"'{name}'", content, memo)
    return cell if made is content else types.CellType(made)


def _copied(what: str, value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, types.FunctionType):
        return _copied_function(value, memo)
    if isinstance(value, types.ModuleType):
        return value
    try:
        return copy.deepcopy(value, memo)
    except Exception as error:
        text = f"the copy of an rnnops.torch.RNN goes on using {what} of the original ({type(value).__name__})"
        warnings.warn(f"{text}, which cannot be copied: {error}. {HINT}", UnseenWarning, stacklevel=2)
        return value


def _warn_of_globals(function: types.FunctionType, memo: dict[int, Any]) -> None:
    for name in sorted(reads_of(function.__code__).globals):
        value = function.__globals__.get(name)
        if isinstance(value, Module) and id(value) in memo:
            text = f"the copy of an rnnops.torch.RNN goes on using the original {type(value).__name__}"
            warnings.warn(f"{text}, which its step reads as the global {name!r}. {HINT}", UnseenWarning, stacklevel=2)
