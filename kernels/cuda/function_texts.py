"""The text of functions that generated modules of kernels hold, each read once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any


def device_functions(functions: Iterable[Callable[..., Any]]) -> list[str]:
    """The text of each as a function of the device, for modules that define `device_function`."""
    return [f"@device_function\n{_text(function)}" for function in functions]


@cache
def _text(function: Callable[..., Any]) -> str:
    return inspect.getsource(function).rstrip()
