"""`rejects`: a trial must raise one kind of error that mentions what it is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rnnops as ro


def rejects(kind: type[ro.RnnopsError], trial: Callable[[], Any], *mentioned: str) -> ro.RnnopsError:
    """The error that a trial raises, which must be of this very kind and mention these words."""
    with pytest.raises(ro.RnnopsError) as caught:
        trial()
    error = caught.value
    assert type(error) is kind, f"{type(error).__name__}: {error}"
    for word in mentioned:
        assert word in str(error), f"'{word}' is not in: {error}"
    return error
