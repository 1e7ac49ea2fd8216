"""Kernels compiled without LLVM's optimisations: three times as many programs in the same time.

What rnnops makes of a program is the same, and as long as this lasts objects lie in a cache folder of their own.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from rnnops.kernels.cpu import native


@contextmanager
def unoptimised() -> Iterator[None]:
    """Compile so within."""
    compiled = native.compiled
    with (
        tempfile.TemporaryDirectory(prefix="rnnops-quick-") as folder,
        mock.patch.dict(os.environ, {"RNNOPS_CACHE_DIR": folder}),
        mock.patch.object(native, "compiled", lambda text, level=0: compiled(text, 0)),
    ):
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
