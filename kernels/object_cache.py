"""The cache folder, and the object code that lies in it, by the text that it was compiled from.

**The folder** is never inside the installed package, which belongs to its installer. It is `RNNOPS_CACHE_DIR`, else
`rnnops` in the user's cache folder, else one that goes with this process. It may be deleted at any time; what is
missing is compiled again.

**Object code** has one file for each text that was compiled, checked before it is used. A file is a hash of its name
and the object, and the object. The name is a hash of all that the object depends on: the text, the processor and its
features, the compiler's version. Files are written whole or not at all; one that is damaged is as good as none, and is
written anew. Ownership keeps foreign code out: files and folders count only where they belong to this user or to the
system's, and where only this user may write. When there are too many, the oldest go.

Limit: who may write as this user, or as the system's, may change what runs.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import secrets
import shutil
import stat
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


FOLDER, KERNELS = "objects", "compiled kernels"
MOST_FILES = 8192  # of 6 to 60 KB each
DIGEST_BYTES = hashlib.sha256().digest_size
FOLDER_MODE, FILE_MODE = 0o755, 0o644  # less what the user's mask takes away
FOREIGN_WRITES = stat.S_IWGRP | stat.S_IWOTH
NOT_WAITING = getattr(os, "O_NONBLOCK", 0)  # for whoever writes to a pipe that has a file's name


class ForeignFilesError(OSError):
    """A folder or a file that others may write to, or that belongs to others."""


def key_of(*parts: str) -> str:
    """A name for what follows from these texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def load_object(key: str) -> bytes | None:
    """The object of a key, None where there is none that may be used."""
    path = cache_folder() / FOLDER / f"{key}.o"
    try:
        _check_ours(path.parent)
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NOT_WAITING)) as file:
            _check_ours(path, os.fstat(file.fileno()))
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        warn_once(KERNELS, str(path.parent), reason(error))
        return None
    digest, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    return code if digest == _digest(key, code) else None


def save_object(key: str, code: bytes) -> None:
    """Put an object on disk, where the disk takes it; where it does not, that is said once."""
    folder = cache_folder() / FOLDER
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        _check_ours(folder)
        _write(folder / f"{key}.o", _digest(key, code) + code)
        _drop_oldest(folder)
    except OSError as error:
        warn_once(KERNELS, str(folder), reason(error))


def _digest(key: str, code: bytes) -> bytes:
    """The digest at the head of a file. It covers the key, as a file may have been renamed to another's key."""
    return hashlib.sha256(key.encode() + code).digest()


def _check_ours(path: Path, found: os.stat_result | None = None) -> None:
    """Raise ForeignFilesError where others own a folder or an open file, or may write to it.

    Args:
        found: of an open file.
    """
    if not hasattr(os, "getuid"):
        return  # on Windows a user's folders are the user's
    status = found or path.stat()
    if found and not stat.S_ISREG(status.st_mode):
        raise ForeignFilesError(f"{path} is not a file")
    if status.st_uid not in (os.getuid(), 0):
        raise ForeignFilesError(f"{path} belongs to another user")
    if status.st_mode & FOREIGN_WRITES:
        raise ForeignFilesError(f"others may write to {path}")


def _write(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all, with rights of its own; not forced to disk, as it can be made again."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), FILE_MODE)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _drop_oldest(folder: Path) -> None:
    """Keep as many files as may be, the newest ones; what a process left that was killed goes with the others."""
    names = os.listdir(folder)
    if len(names) > MOST_FILES:
        ages = {name: age for name in names if (age := _age(folder / name)) is not None}
        for name in sorted(ages, key=lambda name: ages[name])[: len(ages) - MOST_FILES * 3 // 4]:
            (folder / name).unlink(missing_ok=True)


def _age(path: Path) -> float | None:
    """When a file was written; None where another process has just removed it."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None
