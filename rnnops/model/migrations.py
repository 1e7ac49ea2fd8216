"""Older versions of model files: one function for each, which gives the arrays that the version after it has.

    1  names as nets have them: `encoder/layer_0/w`, `optimizer/mean/encoder/layer_0/w`; no `optimizer.updates.<name>`
    2  names with dots; Adam counts updates by parameter

The user's arrays, whose names begin with `state.`, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rnnops.errors import SaveError
from rnnops.types import Array

STATE = "state."
Arrays = dict[str, Array]


def _from_1(arrays: Arrays) -> Arrays:
    """Dots for slashes; every parameter that Adam moves was updated at every step."""
    found = {name if name.startswith(STATE) else name.replace("/", "."): array for name, array in arrays.items()}
    if len(found) < len(arrays):
        raise SaveError("two arrays of a file of version 1 have one name today")
    mean, updates = "optimizer.mean.", "optimizer.updates."
    counts = {updates + name.removeprefix(mean): found["optimizer.step"] for name in found if name.startswith(mean)}
    return {**found, **counts}


MIGRATIONS: Mapping[int, Callable[[Arrays], Arrays]] = {1: _from_1}


def migrated(arrays: Mapping[str, Array], version: int) -> Arrays:
    """Arrays of a version as they are today. Raises SaveError where that cannot be."""
    found = dict(arrays)
    for older in range(version, max(MIGRATIONS) + 1):
        try:
            found = MIGRATIONS[older](found)
        except KeyError as missing:
            raise SaveError(f"a file of version {older} lacks the array {missing}") from None
    return found
