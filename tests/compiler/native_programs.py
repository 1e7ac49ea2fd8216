"""Exported plans, built by the system's C compiler and called as libraries of this process."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.run.export_native import ExportedFiles

CC = os.environ.get("CC") or "cc"
SOURCE_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wdouble-promotion", "-Werror", "-pedantic")
needs_compiler = pytest.mark.skipif(shutil.which(CC) is None, reason="no C compiler")
Arrays = Mapping[str, np.ndarray]


class Program:
    """An exported plan as a library of this process.

    Args:
        name: that its functions begin with.
    """

    def __init__(self, files: ExportedFiles, name: str) -> None:
        self.files = files
        library = files.header.with_suffix(".so")
        built = [str(self.files.object)] if self.files.source is None else [*SOURCE_FLAGS, str(self.files.source)]
        done = subprocess.run([CC, *built, "-shared", "-fPIC", "-o", str(library), "-lm"], capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        self.library, self.name = ctypes.CDLL(str(library)), name
        sizes = dict(re.findall(rf"{name}_(MEMORY|WEIGHTS) = (\d+)", self.files.header.read_text()))
        self.memory_bytes = int(sizes["MEMORY"])
        self.weights = aligned(int(sizes["WEIGHTS"]))
        self.weights[:] = np.frombuffer(self.files.weights.read_bytes(), np.uint8)
        self.memory = self.new_memory()

    def new_memory(self) -> np.ndarray:
        memory = aligned(self.memory_bytes)
        memory[:] = 0xFF  # NaN, where floats are read that nobody has written
        self.function("init")(pointer(memory), pointer(self.weights))
        return memory

    def function(self, name: str) -> Any:
        return getattr(self.library, f"{self.name}_{name}")

    def __call__(self, feeds: Arrays, outputs: Arrays, memory: np.ndarray | None = None) -> int:
        arrays = [*map(feeds.__getitem__, self.files.inputs), *map(outputs.__getitem__, self.files.outputs)]
        given = [*map(pointer, arrays)]
        done: int = self.function("run")(pointer(self.memory if memory is None else memory), *given)
        return done


def exported(run: ro.Run, folder: Path, feeds: Arrays, name: str = "plan", **options: Any) -> Program:
    """Export a run and load what came out."""
    return Program(run.export_native(folder, feeds, name=name, **options), name)


def aligned(nbytes: int) -> np.ndarray:
    whole = np.zeros(nbytes + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + nbytes]


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)
