"""Every public name of the library, as users reach it: what the reference pages list and docstrings are held to."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import rnnops as ro

MODULES = ("cells", "checkpoints", "model", "onnx", "testing")
"""Public modules that need no further package to be looked through; `rnnops.torch` needs PyTorch."""


def public_names(with_torch: bool = False) -> dict[str, Any]:
    """`rnnops.compile`, `rnnops.model.Dense`, ... and what each is; a name that `rnnops` has too is listed once."""
    modules = [*MODULES, "torch"] if with_torch else [*MODULES]
    found = {f"rnnops.{name}": value for name, value in _names_of(ro)}
    for module in modules:
        for name, value in _names_of(import_module(f"rnnops.{module}")):
            if found.get(f"rnnops.{name}") is not value:
                found[f"rnnops.{module}.{name}"] = value
    return found


def _names_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in dir(module):
        value = getattr(module, name)
        if not name.startswith("_") and not isinstance(value, ModuleType):
            yield name, value
