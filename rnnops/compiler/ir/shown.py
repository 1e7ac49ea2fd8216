"""Kernel IR for people: buffers and variables under the names of the blobs that they hold.

Names of blobs may be any text, and stand for different things at different places: one that is no identifier, or is
taken already, is not shown, and the name of the IR stays. Nothing that runs is made from what is shown.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from rnnops.compiler.ir.device import DeviceModule
from rnnops.compiler.ir.expressions import IDENTIFIER
from rnnops.compiler.ir.kernel import Assign, Function, Module, statements_of

Value = TypeVar("Value")
AnyModule = TypeVar("AnyModule", bound=Module | DeviceModule)
NAMES = ("name", "buffer")  # fields that name variables and memory


def beside(blob: str) -> str:
    """A comment that says whose memory an array is; empty where a name could end the line."""
    return f"  # {' '.join(blob.split())}" if blob.isprintable() and blob else ""


def shown(module: AnyModule) -> AnyModule:
    """The same module with pointwise kernels that name blobs."""
    return replace(module, programs=tuple(map(_shown, module.programs)))


def _shown(program: Function) -> Function:
    labels = [(one.name, one.blob) for one in program.parameters if one.is_memory]
    labels += [(s.name, s.blob) for s in statements_of(program.body) if isinstance(s, Assign)]
    taken = {one.name for one in program.parameters} | {name for name, _ in labels}
    names = _chosen(labels, taken)
    parameters, body = renamed(program.parameters, names), renamed(program.body, names)
    return replace(program, parameters=parameters, body=body)


def _chosen(labels: Iterable[tuple[str, str]], taken: set[str]) -> dict[str, str]:
    """A name of the IR -> the last part of its blob's name; where memory and a variable want one, memory has it."""
    chosen: dict[str, str] = {}
    for name, blob in labels:
        label = blob.rsplit("/", 1)[-1]
        if name not in chosen and label not in taken and IDENTIFIER.fullmatch(label) and not keyword.iskeyword(label):
            chosen[name] = label
            taken.add(label)
    return chosen


def renamed(value: Value, names: Mapping[str, str]) -> Value:
    """A value of the IR with other names in it."""
    if isinstance(value, tuple):
        return tuple(renamed(one, names) for one in value)  # type: ignore[return-value]
    if not is_dataclass(value):
        return value
    changed: dict[str, Any] = {}
    for field in fields(value):
        old = getattr(value, field.name)
        changed[field.name] = names.get(old, old) if field.name in NAMES else renamed(old, names)
    return replace(value, **changed)  # type: ignore[type-var]
