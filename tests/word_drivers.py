"""Drivers written as functions of words, compiled: what threads are tested by."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from rnnops.kernels.cpu.native import NativeFunction, native_function
from rnnops.kernels.cpu.words import Text

NUMBERS = count()


def driver(function: Callable[..., Any]) -> NativeFunction:
    """A function `(rank: int, threads: int, words: Address)` as what threads run."""
    text, name = Text(), f"test_{function.__name__}_{next(NUMBERS)}"
    text.export(name, function)
    return native_function(str(text), name)


def call(made: NativeFunction, rank: int, threads: int, *arrays: Any) -> None:
    """Run a driver as one rank, in this thread."""
    words = np.array([array.ctypes.data for array in arrays], np.int64)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    kind(made.address)(rank, threads, words.ctypes.data)
