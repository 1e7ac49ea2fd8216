"""Kernels compiled without LLVM's optimisations: three times as many small programs in the same time.

rnnops makes the same LLVM modules of a program.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from rnnops.kernels.cpu import native


@contextmanager
def unoptimised() -> Iterator[None]:
    """Compile so within. Objects lie in a cache folder of their own meanwhile, so that many programs fill no other."""
    compiled = native.compiled
    with (
        tempfile.TemporaryDirectory(prefix="rnnops-quick-") as folder,
        mock.patch.dict(os.environ, {"RNNOPS_CACHE_DIR": folder}),
        mock.patch.object(native, "compiled", lambda text, level=0: compiled(text, 0)),
    ):
        yield


@contextmanager
def unoptimised_scans() -> Iterator[None]:
    """Compile scans so within, which the cache tells from others; products stay as they are."""
    object_of = native.object_of

    def quick(text: str, write: Any = None, level: int = 0, room: int = native.WRITE) -> bytes:
        return object_of(text, write, level, room)

    with mock.patch.object(native, "object_of", quick):
        yield


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for circles of dead objects less often within."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
