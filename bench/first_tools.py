"""NVIDIA's tools for `first_minutes.py`: where they are, and what their last words mean."""

from __future__ import annotations

import os
import re
import shutil
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Any

SANITIZER, PROFILER, TESTER = "compute-sanitizer", "ncu", "pytest"
NO_TESTS = 5  # pytest's exit status where it has found none
FOLDERS = (  # of toolkits and of Nsight Compute, that are not on the path
    "/usr/local/cuda*/bin", "/usr/local/cuda*/compute-sanitizer", "/usr/local/cuda*/nsight-compute*",
)  # fmt: skip
ERRORS = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
REFUSALS = ("ERR_NVGPUCTRPERM", "Failed to initialize the profiler", "No kernels were profiled", "Device not supported")
PERMISSION = "the driver lets only root read counters (ERR_NVGPUCTRPERM): run as root"


def find_tool(name: str) -> str:
    """The path of a tool, empty where it is not found: the path, NVIDIA's finder, CUDA_HOME, the usual folders."""
    found = shutil.which(name) or _by_pathfinder(name)
    if found:
        return found
    homes = [os.path.join(os.environ[key], "bin") for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    for folder in (*homes, *(one for pattern in FOLDERS for one in sorted(glob(pattern), reverse=True))):
        path = Path(folder) / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return ""


def _by_pathfinder(name: str) -> str:
    try:
        finder: Any = import_module("cuda.pathfinder")
        return str(finder.find_nvidia_binary_utility(name) or "")
    except Exception:  # it is not there, is too old, or does not know the tool
        return ""


def refusal(text: str) -> str:
    """Why a tool did not work here; empty where it says nothing of the kind."""
    said = next((words for words in REFUSALS if words in text), "")
    return PERMISSION if said == REFUSALS[0] else said


def only_skipped(text: str) -> str:
    """What pytest says last where no test ran; empty where one did."""
    last = next((line for line in reversed(text.splitlines()) if " skipped" in line or " passed" in line), "")
    return "" if " passed" in last or " failed" in last or " error" in last else last.strip("= ")


def errors_found(text: str) -> int | None:
    """Errors and hazards that compute-sanitizer has counted; None where it has not come to that."""
    found = [int(one or other) for one, other in ERRORS.findall(text)]
    return sum(found) if found else None
