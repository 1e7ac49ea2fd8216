"""Whether two plans are the same, field by field, however they were made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnops.compiler.api.planned_run import PlannedRun
from rnnops.sizes import Size
from rnnops.templates import Fresh, Shared

WORKED_OUT = ("derived", "memory")  # at the first use


def differences(one: PlannedRun, other: PlannedRun) -> list[str]:
    """Where two plans differ: in what they say, and in what they are."""
    found = []
    for name in ("describe", "memory"):
        if str(getattr(one, name)()) != str(getattr(other, name)()):
            found.append(f"{name}()")
    if one.source != other.source:
        found.append("source")
    return [*found, *_Comparison().of(one.plan, other.plan, "plan")]


class _Comparison:
    """A walk through two values at once, each pair of objects once."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], Any] = {}  # what was seen is kept, so that ids are of one object

    def of(self, one: Any, other: Any, path: str) -> list[str]:
        """The paths at which they differ, the first ones."""
        if one is other or isinstance(one, Shared | Fresh) or (id(one), id(other)) in self.seen:
            return []
        self.seen[id(one), id(other)] = one, other
        if type(one) is Size or one.__class__ is not other.__class__:
            return [f"{path}: {type(one).__name__}, {type(other).__name__}"]
        if isinstance(one, np.ndarray):
            return [] if one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True) else [path]
        if isinstance(one, tuple | list):
            one, other = dict(enumerate(one)), dict(enumerate(other))
        elif not isinstance(one, Mapping) and type(one).__module__.startswith("rnnops."):
            one, other = _attributes(one, other), _attributes(other, one)
        if not isinstance(one, Mapping):
            return [] if one == other or one != one else [f"{path}: {one!r}, {other!r}"]
        if list(one) != list(other):
            return [f"{path}: {list(one)}, {list(other)}"]
        found = []
        for key in one:
            found += self.of(one[key], other[key], f"{path}.{key}") if len(found) < 5 else []
        return found


def _attributes(one: Any, other: Any) -> dict[str, Any]:
    """What an object holds, less what has been worked out of one alone."""
    fields = getattr(type(one), "__dataclass_fields__", {})
    names = fields or {name for name in vars(one) if name in vars(other)}
    return {name: getattr(one, name) for name in sorted(names) if name not in WORKED_OUT}
