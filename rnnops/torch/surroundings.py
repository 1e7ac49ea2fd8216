"""What a step function reaches beside its arguments: tensors, modules and plain values, however it got hold of them.

A trace is used again where modules are the same objects, tensors have the same places and types, and plain values are
equal; tensors themselves may be others at each call, as the encoder's outputs are that an attention's step closes over.
Limit: objects are searched to a depth of four; what lies deeper counts as the object that holds it.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
DEPTH = 4
EMPTY = (dict, OrderedDict, set)  # of which each module has a dozen, for hooks
OWN = ("_prepared", "_number")  # of rnnops.torch.RNN, which a step may reach by the module that holds it
LOOKED_INTO = (Tensor, Module, types.FunctionType, list, tuple, dict)  # of globals; others count by identity


@dataclass
class Surroundings:
    """What a function reaches, in the order in which it is found.

    Args:
        modules, tensors: each once.
        values: all else that a trace depends on; objects count by identity, and `objects` keeps them alive.
    """

    modules: list[Module] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def key(self) -> Any:
        """What must be equal for a trace to be used again."""
        kinds = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in self.tensors)
        return tuple(map(id, self.modules)), kinds, tuple(self.values), fingerprint(self.modules)

    def add(self, value: Any, depth: int = DEPTH) -> None:
        """Add a value and what it holds."""
        if isinstance(value, SCALARS):
            self.values.append(value)
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            if isinstance(value, Tensor):
                self.tensors.append(value)
            elif isinstance(value, Module):
                self.modules.append(value)
            else:
                self._add_object(value, depth)

    def _add_object(self, value: Any, depth: int) -> None:
        self.objects.append(value)
        parts = list(_parts(value)) if depth else []
        self.values.append(id(value) if not parts or _is_opaque(value) else type(value))
        for part in parts:
            self.add(part, depth - 1)
        if depth and isinstance(value, types.FunctionType):
            for known in _globals(value):
                self.add(known, depth - 1 if isinstance(known, LOOKED_INTO) else 0)


def surroundings_of(function: Callable[..., Any]) -> Surroundings:
    """What a function reaches: its closure, defaults, globals that it names, the object that it is a method of."""
    found = Surroundings()
    found.add(function)
    return found


class Same:
    """An object in a key, which counts by identity and stays alive."""

    __slots__ = ("known",)

    def __init__(self, known: Any) -> None:
        self.known = known

    def __hash__(self) -> int:
        return id(self.known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.known is self.known


def fingerprint(modules: list[Module] | tuple[Module, ...]) -> tuple[Any, ...]:
    """What a trace of modules depends on beside the values of their tensors.

    That is which modules they are, modes and other values that they hold, hooks, names and types of parameters, buffers
    and other tensors, and which of these are the same tensor.
    """
    parts: list[Any] = []
    tensors: list[int] = []
    for module in (module for root in modules for module in root.modules()):
        parts.append(Same(module))
        for name, value in module.__dict__.items():
            if name in ("_parameters", "_buffers"):
                held = [(key, tensor) for key, tensor in value.items() if tensor is not None]
                parts.extend((key, tensor.dtype) for key, tensor in held)
                tensors.extend(id(tensor) for _, tensor in held)
            elif name not in OWN and (type(value) not in EMPTY or value):
                parts.append((name, _part_of_key(value, tensors)))
    if len(set(tensors)) < len(tensors):
        parts.append(tuple(map(tensors.index, tensors)))
    return tuple(parts)


def _part_of_key(value: Any, tensors: list[int]) -> Any:
    if type(value) in SCALARS:
        return type(value), value
    if isinstance(value, Tensor):
        tensors.append(id(value))
        return Tensor, value.dtype, value.shape, value.requires_grad
    if type(value) in (list, tuple):
        return tuple(_part_of_key(part, tensors) for part in value)
    if isinstance(value, dict):
        return tuple((_part_of_key(key, []), _part_of_key(part, tensors)) for key, part in value.items())
    return frozenset(map(Same, value)) if type(value) is set else Same(value)


def other_tensors(module: Module) -> Iterator[tuple[Any, ...]]:
    """Where a module holds tensors that are neither parameters nor buffers: its attributes, then keys to follow."""
    for name, value in module.__dict__.items():
        if name not in ("_parameters", "_buffers", *OWN):
            yield from ((module.__dict__, name, *path) for path in _tensor_paths(value))


def _tensor_paths(value: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, Tensor):
        yield ()
    elif type(value) in (list, tuple) or isinstance(value, dict):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((key, *path) for path in _tensor_paths(part))


def _is_opaque(value: Any) -> bool:
    """Whether two objects of the same parts may still differ."""
    return not isinstance(value, tuple | list | dict | types.FunctionType | types.MethodType | partial)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, types.FunctionType):
        yield value.__code__
        yield from (value.__defaults__ or ())
        yield from (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, dict):
        yield from (part for pair in value.items() for part in pair)
    elif isinstance(value, tuple | list):
        yield from value
    elif not isinstance(value, type | types.ModuleType | types.CodeType | types.BuiltinFunctionType):
        yield from getattr(value, "__dict__", {}).values()


def _globals(function: types.FunctionType) -> Iterator[Any]:
    return (function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a name that has no value yet
        return False
