"""Errors of the PyTorch front end."""

from __future__ import annotations

from rnnops.errors import RnnopsError


class StepError(RnnopsError):
    """A step does what cannot be translated, or is called with tensors that it cannot take."""


class SelfCheckError(StepError):
    """The translated step and PyTorch's own do not agree."""
