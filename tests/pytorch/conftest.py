"""Fixtures of tests with PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyTorch's log of sizes is off: pytest would write it down, and a step that writes is not compiled."""
    import torch

    monkeypatch.setattr(logging.getLogger("torch.__trace"), "disabled", True)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
