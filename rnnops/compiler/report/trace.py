"""Events of a profile as a file that Perfetto and Chrome show: what ran when, and for how long.

The format is that of the Trace Event Format document ("complete" events), times in microseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rnnops.atomic_file import replaced

MICROSECONDS = 1e6  # in a second


@dataclass(frozen=True)
class Event:
    """Something that ran.

    Args:
        kind: `pass`, `compiled` or `interpreter`.
        start, seconds: when, by the clock of the profile, and for how long.
        more: what else is shown of it.
    """

    name: str
    kind: str
    start: float
    seconds: float
    more: dict[str, Any] = field(default_factory=dict)


def write_trace(path: str | os.PathLike[str], events: Iterable[Event], title: str) -> None:
    """Write events, the first of which is at 0. Raises OSError where no file can be written; an old one stays then."""
    listed = sorted(events, key=lambda event: (event.start, -event.seconds))
    first = listed[0].start if listed else 0.0
    place = {"pid": 1, "tid": 1}
    named = {"name": "process_name", "ph": "M", **place, "args": {"name": title}}
    shown = [
        {
            "name": event.name,
            "cat": event.kind,
            "ph": "X",
            "ts": MICROSECONDS * (event.start - first),
            "dur": MICROSECONDS * event.seconds,
            **place,
            "args": event.more,
        }
        for event in listed
    ]
    with replaced(path) as file:
        file.write_text(json.dumps({"traceEvents": [named, *shown], "displayTimeUnit": "ms"}), encoding="utf-8")
