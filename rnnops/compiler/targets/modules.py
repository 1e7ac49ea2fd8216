"""Generated modules on disk: text goes into a file named by its hash, and is imported from there.

The folder is that of `rnnops.kernels.object_cache`, where machine code lies too, so that a text is compiled once on a
machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

from rnnops.kernels.object_cache import cache_folder, folder_of_process, reason, warn_once
from rnnops.util import LOADING


def load_module(source: str) -> ModuleType:
    """The module of a generated text."""
    with LOADING:
        return _load(source)


@cache
def _load(source: str) -> ModuleType:
    name = f"rnnops_generated_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    path = _placed(f"{name}.py", source)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"generated module {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # numba-cuda looks modules up when it loads kernels from disk
    spec.loader.exec_module(module)
    return module


def _placed(name: str, source: str) -> Path:
    """Write a module into the cache folder, or into one that goes with this process where that takes none."""
    try:
        return _written(cache_folder() / name, source)
    except OSError as error:
        warn_once("generated modules", str(cache_folder()), reason(error))
        return _written(folder_of_process() / name, source)


def _written(path: Path, source: str) -> Path:
    """Write a file as a whole or not at all; what is there already has the same text, by its name."""
    if not path.is_file() or path.read_text(encoding="utf-8") != source:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(source)
        os.replace(temporary, path)
    return path
