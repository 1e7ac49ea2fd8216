"""Fixtures of all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

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
