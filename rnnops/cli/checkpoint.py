"""Checkpoint files: named arrays and one JSON document in an .npz, read without pickle and without trust.

    checkpoint.npy      uint8: a JSON document with the format's name and version, each array's name, dtype and shape,
                        the state, and a SHA-256 over all of these and the arrays' bytes
    arrays/<name>.npy   one array each, little-endian, in C order

Members are stored, never compressed, so that nothing that is read can be larger than the file; the zip adds a CRC to
each. `numpy.load` opens such a file, but loading here never parses a .npy header: types and shapes come from the
document, which allows plain numbers only, and a header must be the text that follows from them. Saving writes a
temporary file beside the target, forces it to disk and renames it, so that the target holds the old or the new
checkpoint, whatever happens.

Limits: NumPy's booleans, integers and floats of at most 8 bytes; loading holds one array twice for a moment; a process
that is killed while it saves leaves a `.rnnops-*.tmp` behind.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rnnops.errors import RnnopsError

FORMAT, VERSION = "rnnops checkpoint", 1
DOCUMENT, ARRAYS, SUFFIX = "checkpoint.npy", "arrays/", ".npy"
DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
NPY_START = b"\x93NUMPY\x01\x00"
MAX_NAME = 1_000

JSON: TypeAlias = Any  # None, bool, int, finite float, str, a list of these, or a dict of these by str
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


class CheckpointError(RnnopsError):
    """A checkpoint cannot be written, or a file is no intact checkpoint of this format."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a checkpoint file holds: writable arrays by name, and a JSON document."""

    arrays: Arrays
    state: dict[str, JSON]


def save_checkpoint(path: Path | str, arrays: Mapping[str, npt.NDArray[Any]], state: Mapping[str, JSON]) -> None:
    """Write `path`, or leave what was there untouched and raise."""
    plain = {name: _plain_array(name, array) for name, array in arrays.items()}
    document = json.dumps(_document(plain, _plain_state(state)), allow_nan=False).encode()
    members = {DOCUMENT: np.frombuffer(document, np.uint8)}
    members.update({f"{ARRAYS}{name}{SUFFIX}": array for name, array in plain.items()})
    try:
        _replace(Path(os.path.realpath(path)), members)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the checkpoint {path} cannot be written ({error})") from error


def load_checkpoint(path: Path | str) -> Checkpoint:
    """Read and verify `path`; anything but an intact checkpoint is a `CheckpointError`."""
    if not os.path.isfile(path):
        problem = "is no file" if os.path.exists(path) else "does not exist"
        raise CheckpointError(f"the checkpoint {path} {problem}")
    try:
        with open(path, "rb") as handle, zipfile.ZipFile(handle) as archive:
            return _read_archive(archive, os.fstat(handle.fileno()).st_size)
    except CheckpointError as error:
        raise CheckpointError(f"{path} is no usable checkpoint: {error.problem}") from error.__cause__
    except zipfile.BadZipFile as error:
        raise CheckpointError(f"{path} is no checkpoint, or a damaged one ({error})") from error
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} is damaged or cannot be read ({error})") from error
    except Exception as error:  # what parsers of damaged files raise has no common base
        raise CheckpointError(f"{path} is a damaged checkpoint ({type(error).__name__}: {error})") from error


def _plain_array(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a little-endian array in C order, or say why this one cannot be saved."""
    if not isinstance(name, str) or not name or not name.isprintable() or "\\" in name or len(name) > MAX_NAME:
        wanted = f"1 to {MAX_NAME} printable characters without a backslash"
        raise CheckpointError("an array's name cannot be saved", wanted=wanted, came=repr(name))
    if not isinstance(array, np.ndarray) or array.dtype.newbyteorder("<").str not in DTYPES:
        came = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise CheckpointError("an array cannot be saved", blob=name, wanted=" ".join(DTYPES), came=came)
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _plain_state(state: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return a copy of the state, or raise where JSON would not give it back as it is."""
    given = dict(state)
    try:
        copy: dict[str, JSON] = json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"the state is no JSON ({error})") from error
    if copy != given:
        hint = "Use lists instead of tuples, and strings as keys."
        raise CheckpointError("the state would come back from JSON as something else", hint=hint)
    return copy


def _document(arrays: Arrays, state: dict[str, JSON]) -> dict[str, JSON]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "sha256": _digest(arrays, state),
        "arrays": {name: {"dtype": array.dtype.str, "shape": list(array.shape)} for name, array in arrays.items()},
        "state": state,
    }


def _digest(arrays: Arrays, state: dict[str, JSON]) -> str:
    digest = hashlib.sha256(json.dumps(state, sort_keys=True, allow_nan=False).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _replace(target: Path, members: Arrays) -> None:
    """Write a new file beside `target`, force it to disk and give it the target's name."""
    temporary = target.parent / f".rnnops-{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as handle:
            _write_archive(handle, members)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(target.parent)


def _write_archive(handle: IO[bytes], members: Arrays) -> None:
    with zipfile.ZipFile(handle, "w", zipfile.ZIP_STORED) as archive:
        for name, array in members.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def _sync_directory(directory: Path) -> None:
    """Force a rename to disk, where directories can be opened."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return  # some file systems cannot; the file itself is on disk
    finally:
        os.close(descriptor)


def _read_archive(archive: zipfile.ZipFile, file_size: int) -> Checkpoint:
    members = archive.infolist()
    if DOCUMENT not in archive.namelist():
        raise CheckpointError(f"it is a zip archive without {DOCUMENT}")
    _check_members(members, file_size)
    document = _read_document(str(_split_member(archive, DOCUMENT)[1], "ascii"))
    expected = [DOCUMENT, *(f"{ARRAYS}{name}{SUFFIX}" for name in document["arrays"])]
    if sorted(expected) != sorted(archive.namelist()):
        raise CheckpointError("its arrays are not those that its document lists")
    arrays = {name: _read_array(archive, name, entry) for name, entry in document["arrays"].items()}
    if _digest(arrays, document["state"]) != document["sha256"]:
        raise CheckpointError("its content does not have the SHA-256 that its document states")
    return Checkpoint(arrays, document["state"])


def _check_members(members: list[zipfile.ZipInfo], file_size: int) -> None:
    """Refuse whatever could make reading cost more than the file's own size."""
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise CheckpointError(f"its member {member.filename!r} is compressed, which checkpoints never are")
        if member.flag_bits & 1:
            raise CheckpointError(f"its member {member.filename!r} is encrypted, which checkpoints never are")
    if sum(member.file_size for member in members) > file_size:
        raise CheckpointError("its members claim more bytes than the file has")


def _split_member(archive: zipfile.ZipFile, name: str) -> tuple[bytes, memoryview]:
    """Return the header's text and the bytes after the header of a .npy member."""
    data = archive.read(name)
    start = 10 + int.from_bytes(data[8:10], "little")
    if not data.startswith(NPY_START) or start > len(data):
        raise CheckpointError(f"its member {name!r} is no array")
    return data[10:start], memoryview(data)[start:]


def _read_document(text: str) -> dict[str, JSON]:
    """Return the document after checking its format, version and outer structure."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"its document is no JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CheckpointError(f"its document does not say {FORMAT!r}")
    if document.get("version") != VERSION:
        came = document.get("version")
        raise CheckpointError(f"it has format version {came!r}, and this rnnops reads version {VERSION}")
    if not all(isinstance(document.get(part), dict) for part in ("arrays", "state")):
        raise CheckpointError("its document has no arrays or no state")
    return document


def _read_array(archive: zipfile.ZipFile, name: str, entry: JSON) -> npt.NDArray[Any]:
    """Return an array whose stored bytes are exactly those of the listed type and shape."""
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype not in DTYPES or not all(type(size) is int and size >= 0 for size in shape):
        raise CheckpointError(f"its array {name!r} has an unknown type or shape")
    header, data = _split_member(archive, f"{ARRAYS}{name}{SUFFIX}")
    if header.rstrip() != f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {tuple(shape)!r}, }}".encode():
        raise CheckpointError(f"its array {name!r} has a header that its document contradicts")
    if math.prod(shape) * np.dtype(dtype).itemsize != len(data):
        raise CheckpointError(f"its array {name!r} has {len(data)} bytes, which do not fill {dtype} {shape}")
    return np.array(np.ndarray(tuple(shape), dtype, data))  # a copy: aligned, and writable
