"""Fixtures of all tests. CUDA kernels run in numba's simulator, unless NUMBA_ENABLE_CUDASIM=0 is set for a device."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")  # before anything imports numba

import devices
import pytest


@pytest.fixture(autouse=True, scope="module")
def _old_objects_are_not_looked_at() -> None:
    """What earlier modules left (plans, compiled functions) is in no later collection, which would take seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["reference", "plain"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each device that a module runs on which asks for this fixture."""
    with devices.chosen(request.param) as name:
        yield name
