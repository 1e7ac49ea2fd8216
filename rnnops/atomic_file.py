"""Files that are written whole or not at all: beside the target first, forced to disk, then renamed."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file to write, which takes the target's place and rights when this ends well, and is removed otherwise.

    Raises OSError, and leaves the target as it was, where it cannot be a file. A link goes on pointing at its file. A
    process that is killed meanwhile leaves a `.rnnops-*.tmp` behind.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError("there is something that is no file")
    if not target.parent.is_dir():
        raise OSError(f"there is no folder {target.parent}")
    temporary = target.parent / f".rnnops-{secrets.token_hex(8)}.tmp"
    try:
        temporary.touch(exist_ok=False)
        mode = (target if target.exists() else temporary).stat().st_mode
        yield temporary
        temporary.chmod(stat.S_IMODE(mode))  # writers may have made it their own
        _sync(temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    try:
        _sync(target.parent)
    except OSError:
        return  # not every system opens folders; the file itself is on disk


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
