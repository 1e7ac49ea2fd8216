"""LLVM's library, which is mapped as a whole: its own initialisation ends the process where memory runs out."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from rnnops.kernels.cpu.room import MIB, demand

INITIAL = 8 * MIB  # beside the file


def _demand_library() -> None:
    spec = find_spec("llvmlite")
    folders = spec.submodule_search_locations if spec else None
    files = [file for folder in folders or () for file in Path(folder, "binding").glob("*llvmlite.*")]
    size = sum(file.stat().st_size for file in files if file.suffix in (".so", ".dylib", ".dll"))
    demand(size + INITIAL, "load LLVM's library")


if "llvmlite.binding" not in sys.modules:
    _demand_library()

import llvmlite.binding as llvm  # noqa: E402

__all__ = ["llvm"]
