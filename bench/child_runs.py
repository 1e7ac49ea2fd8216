"""Measurements that need a process of their own: peak memory, and compile times with caches that are empty or full."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from bench.case import Entry
from bench.contender import ENGINES, Settings, require_libraries
from bench.load import Quiet
from bench.place import HostPlace

GIVEN_BACK = {"MALLOC_TOP_PAD_": "0"}  # any setting stops glibc from raising its threshold for large blocks
ROOT = Path(__file__).parent.parent


class ChildError(Exception):
    """A process that measures did not end well."""


def peak_bytes(entry: Entry, settings: Settings, environment: Mapping[str, str]) -> float:
    """Peak memory of one training step over what was resident before it.

    A first process of rnnops only fills the caches on the disk, so that the one that counts compiles nothing.
    """
    require_libraries(entry.engine, HostPlace())
    if ENGINES[entry.engine].module == "rnnops_engine":
        run_child("memory", entry, settings, environment)
    return run_child("memory", entry, settings, environment)


def compile_seconds(entry: Entry, settings: Settings, quiet: Quiet) -> dict[str, float]:
    """Seconds to the first gradients: nothing cached, everything cached, only the generated code not cached."""

    def seconds(folder: str) -> float:
        return run_child("compile", entry, settings, {"RNNOPS_CACHE_DIR": folder})

    def from_nothing() -> float:
        with tempfile.TemporaryDirectory() as empty:
            return seconds(empty)

    def kernels_only() -> float:
        """In a copy of the folder without objects of generated code."""
        with tempfile.TemporaryDirectory() as copied:
            shutil.copytree(full, copied, dirs_exist_ok=True, ignore=shutil.ignore_patterns("objects"))
            return seconds(copied)

    with tempfile.TemporaryDirectory() as full:
        seconds(full)
        return {
            "empty cache": quiet.block(from_nothing),
            "kernels cached": quiet.block(kernels_only),
            "from disk": median(quiet.block(lambda: seconds(full)) for _ in range(3)),
        }


def run_child(what: str, entry: Entry, settings: Settings, environment: Mapping[str, str]) -> float:
    """The number that `bench.child` prints. Raises ChildError with its last words where it fails."""
    words = {"engine": entry.engine, "device": settings.device, "threads": settings.threads}
    words |= {**vars(entry.problem), "size": str(entry.problem.size)}
    command = [sys.executable, "-m", "bench.child", what, json.dumps(words)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-3:]
        raise ChildError(f"{what} {' '.join(map(str, words.values()))} ended with {done.returncode}: {' '.join(said)}")
    return float(done.stdout.splitlines()[-1])
