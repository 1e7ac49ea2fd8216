"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import devices
import pytest


@pytest.fixture(params=["reference", "plain"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each device that a module runs on which asks for this fixture."""
    with devices.chosen(request.param) as name:
        yield name
