"""Measurements that need a process of their own: peak memory, and compile times with caches that are empty or full."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.case import Entry
from bench.contender import ENGINES, Settings, require_libraries
from bench.load import Quiet
from bench.place import HostPlace

GIVEN_BACK = {"MALLOC_TOP_PAD_": "0"}  # any setting stops glibc from raising its threshold for large blocks
ROOT = Path(__file__).parent.parent
OTHER = "gru"  # a net that fills the cache with what all nets share


class ChildError(Exception):
    """A process that measures did not end well."""


def peak_bytes(entry: Entry, settings: Settings, environment: Mapping[str, str]) -> float:
    """Peak memory of one training step over what was resident before it.

    A first process of rnnops only fills the caches on the disk, so that the one that counts compiles nothing.
    """
    require_libraries(entry.engine, HostPlace())
    if ENGINES[entry.engine].module == "rnnops_engine":
        run_child("memory", entry, settings, environment)
    return float(run_child("memory", entry, settings, environment))


def compile_seconds(entry: Entry, settings: Settings, quiet: Quiet) -> dict[str, float]:
    """Seconds to the first gradients: nothing cached, all but the net itself cached, everything cached.

    The last are seconds of the processor, the others by the clock. Bytecode is there, as pip puts it there.
    """
    with tempfile.TemporaryDirectory() as scratch:
        bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{scratch}/bytecode"}
        kept = f"{scratch}/{entry.problem.net}"

        def seconds(folder: str, net: str = entry.problem.net) -> list[float]:
            asked = replace(entry, problem=replace(entry.problem, net=net))
            found: list[float] = run_child("compile", asked, settings, {**bytecode, "RNNOPS_CACHE_DIR": folder})
            return found

        def from_nothing() -> float:
            shutil.rmtree(kept, ignore_errors=True)
            return seconds(kept)[0]

        def beside_others() -> float:
            shutil.rmtree(kept, ignore_errors=True)
            seconds(kept, OTHER)
            return seconds(kept)[0]

        seconds(kept)
        return {
            "empty cache": quiet.block(from_nothing),
            "another net cached": quiet.block(beside_others),
            "from disk": min(quiet.block(lambda: seconds(kept)[1]) for _ in range(3)),
        }


def run_child(what: str, entry: Entry, settings: Settings, environment: Mapping[str, str]) -> Any:
    """What `bench.child` prints. Raises ChildError with its last words where it fails."""
    words = {"engine": entry.engine, "device": settings.device, "threads": settings.threads}
    words |= {**vars(entry.problem), "size": str(entry.problem.size)}
    command = [sys.executable, "-m", "bench.child", what, json.dumps(words)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-3:]
        raise ChildError(f"{what} {' '.join(map(str, words.values()))} ended with {done.returncode}: {' '.join(said)}")
    return json.loads(done.stdout.splitlines()[-1])
