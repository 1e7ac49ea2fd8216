"""Where a run that stopped goes on: a machine's newest file, if it was measured there by the same sources.

`python -m bench --resume`, `--full` and `--first-minutes --resume` all go on this way. A file of another machine or of
other sources is refused by name, so that no table mixes what cannot be compared; `--restart` begins a new one then.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCES = ("bench", "kernels", "rnnops")
UNKNOWN = "unknown"


class ResumeError(Exception):
    """The file in which a run would go on is of another machine or of other sources, or cannot be read."""


@dataclass(frozen=True)
class Found:
    """Where results go.

    Args:
        path: of the JSON file.
        saved: what is in it already; empty for a new one.
    """

    path: Path
    saved: Mapping[str, Any] = field(default_factory=dict)


def revision() -> dict[str, str]:
    """What measures: the commit, for people, and a digest of the sources, which decides; there may be no repository."""
    digest = hashlib.sha256()
    for path in sorted(one for folder in SOURCES for one in (ROOT / folder).rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return {"commit": _commit(), "sources": digest.hexdigest()[:12]}


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN


def now() -> str:
    """To the minute, with the zone."""
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z").strip()


def paths_of(machine: Mapping[str, str], date: str, folder: Path, kind: str = "cuda") -> tuple[Path | None, Path]:
    """The newest file of a machine, and a name for the next: `cuda-nvidia-h200-2030-01-31.json`, `...-2`.

    Without a GPU both are `bench.json`.
    """
    if "gpu" not in machine:
        path = folder / "bench.json"
        return path if path.exists() else None, path
    begin = f"{kind}-{re.sub(r'[^a-z0-9]+', '-', machine['gpu'].lower()).strip('-')}"
    named = re.compile(rf"{re.escape(begin)}-(\d{{4}}-\d\d-\d\d)(?:-(\d+))?\.json")
    there = {
        (match[1], int(match[2] or 1)): path for path in folder.glob("*.json") if (match := named.fullmatch(path.name))
    }
    number = next(k for k in count(1) if (date, k) not in there)
    following = folder / f"{begin}-{date}{f'-{number}' if number > 1 else ''}.json"
    return (there[max(there)] if there else None), following


def find(
    machine: Mapping[str, str], made_by: Mapping[str, str], date: str, folder: Path, kind: str, on: bool, restart: bool
) -> Found:
    """The file that a run writes, with what it has.

    Args:
        machine: that measures; `made_by`, a `revision`.
        on: whether to go on in the newest file; without one a new file begins.
        restart: whether to begin a new file where the newest does not fit.

    Raises:
        ResumeError: the newest file does not fit; it says which, why, and what to do.
    """
    newest, following = paths_of(machine, date, folder, kind)
    if not on or newest is None:
        return Found(following)
    try:
        saved = json.loads(newest.read_text())
        reasons = differences(saved, machine, made_by)
    except (ValueError, AttributeError) as error:
        saved, reasons = {}, [f"it is not a file of a run ({error})"]
    if not reasons:
        return Found(newest, saved)
    if restart:
        return Found(following)
    raise ResumeError(
        f"cannot go on in {newest}: {'; '.join(reasons)}; --restart begins a new file"
        + (", in its place" if following == newest else "")
    )


def differences(saved: Mapping[str, Any], machine: Mapping[str, str], made_by: Mapping[str, str]) -> list[str]:
    """Why what was saved is not to be gone on with here, in words."""
    there, found = saved.get("revision", {}), []
    if there.get("sources") != made_by["sources"]:
        found.append(f"it was measured by {_shown(there)}, and these are {_shown(made_by)}")
    before = saved.get("machine", {})
    for name in before.keys() & machine.keys():
        if before[name] != machine[name]:
            found.append(f"its {name} was {before[name]}, and is {machine[name]} now")
    return sorted(found)


def _shown(made_by: Mapping[str, str]) -> str:
    return f"sources {made_by.get('sources', UNKNOWN)} (commit {made_by.get('commit', UNKNOWN)})"
