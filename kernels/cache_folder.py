"""Where generated modules and machine code lie: never inside the installed package, which belongs to its installer.

The folder is `RNNOPS_CACHE_DIR`, else `rnnops` in the user's cache folder, else one that goes with this process. It may
be deleted at any time; what is missing is compiled again.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path


def cache_folder() -> Path:
    """The folder, which need not exist yet where `RNNOPS_CACHE_DIR` names it."""
    given = os.environ.get("RNNOPS_CACHE_DIR")
    if given:
        return Path(given).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(home) / "rnnops"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return folder_of_process()
    return folder if os.access(folder, os.W_OK) else folder_of_process()


@cache
def folder_of_process() -> Path:
    """A folder that goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="rnnops-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


@cache
def warn_once(what: str, folder: str, problem: str) -> None:
    """Say once in a process what is not kept in a folder, and why.

    Args:
        what: cannot be kept.
    """
    text = f"{what} cannot be kept in {folder} ({problem}), so every process makes them anew: "
    warnings.warn(
        text + "set RNNOPS_CACHE_DIR to a folder of your own that can be written", RuntimeWarning, stacklevel=3
    )


def reason(error: OSError) -> str:
    """An error of a file system in words."""
    return error.strerror or str(error)


def _remove(folder: Path, owner: int) -> None:
    """Remove what a process made; its forked children end first, or go on without."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
