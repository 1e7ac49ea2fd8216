"""Older versions of model files: what names their arrays had, one function for each version.

1  names as nets have them: `encoder/layer_0/w`, `optimizer/mean/encoder/layer_0/w`
2  names with dots
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rnnops.errors import SaveError
from rnnops.types import Array

Migration = Callable[[str], str]


def _with_dots(name: str) -> str:
    return name.replace("/", ".")


MIGRATIONS: Mapping[int, Migration] = {1: _with_dots}  # version -> the name in the version after it


def migrated(arrays: Mapping[str, Array], version: int) -> dict[str, Array]:
    """Arrays of a version by the names of today. Raises SaveError where two get one name."""
    found = dict(arrays)
    for older in range(version, max(MIGRATIONS) + 1):
        renamed = {MIGRATIONS[older](name): array for name, array in found.items()}
        if len(renamed) < len(found):
            raise SaveError(f"two arrays of a file of version {older} have one name today")
        found = renamed
    return found
