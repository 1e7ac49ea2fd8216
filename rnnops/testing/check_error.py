"""CheckError: what the checkers of `rnnops.testing` raise."""

from __future__ import annotations

from rnnops.errors import RnnopsError


class CheckError(RnnopsError):
    """A check failed: a wrong gradient, devices that disagree, a lent array that was changed."""
