"""Files of models: named arrays and a JSON document in a safetensors file, written atomically, read without trust.

A safetensors file is a JSON header with the dtype, shape and place of each array, and their bytes; the library refuses
places that overlap, leave gaps or lie outside of the file. Its metadata hold here:

    format     "rnnops model"
    version    of this layout, 2; older ones are read through `rnnops.model.migrations`
    document   JSON: the user's state but for its arrays
    sha256     over the document and every array's name, dtype, shape and bytes

Arrays have the names of `model.get_states()`; those of the user's state begin with `state.`. Other programs can read
the parameters as they would any safetensors file. Saving writes a temporary file beside the target, forces it to disk
and renames it. Limits: NumPy's booleans, integers and floats of at most 8 bytes; a process that is killed while it
saves leaves a `.rnnops-*.tmp` behind.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rnnops.atomic_file import replaced
from rnnops.errors import SaveError
from rnnops.model.arrays import Arrays
from rnnops.model.migrations import STATE, migrated
from rnnops.types import FLOATS, Array

FORMAT, VERSION = "rnnops model", 2
DTYPES = ("bool", *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")), "float16", *FLOATS[1:])


def save(path: str | os.PathLike[str], arrays: Mapping[str, Array], state: Mapping[str, Any]) -> None:
    """Write a file, or leave what was there untouched and raise SaveError.

    Args:
        arrays: of the model.
        state: the user's arrays and JSON values, by name.
    """
    for name in (*arrays, *state):
        if not isinstance(name, str):
            raise SaveError("no name for something that is saved", wanted="a string", came=repr(name))
    if any(name.startswith(STATE) for name in arrays):
        raise SaveError(f"an array of the model begins with '{STATE}'", hint="Give the layer another name.")
    own = {f"{STATE}{name}": value for name, value in state.items() if isinstance(value, np.ndarray)}
    plain = {name: _plain(name, array) for name, array in {**arrays, **own}.items()}
    document = _document({name: value for name, value in state.items() if not isinstance(value, np.ndarray)})
    metadata = {"format": FORMAT, "version": str(VERSION), "document": document, "sha256": _digest(plain, document)}
    try:
        with replaced(_text(path)) as temporary:
            save_file(plain, temporary, metadata)
    except (OSError, ValueError, SafetensorError) as error:
        raise SaveError(f"{_text(path)} cannot be written ({error})") from error


def load(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any]]:
    """The model's arrays and the user's state. Raises SaveError for anything but an intact file of a known version."""
    name = _text(path)
    if not os.path.isfile(name):
        raise SaveError(f"{name} {'is no file' if os.path.exists(name) else 'does not exist'}")
    try:
        with safe_open(name, framework="np") as file:
            metadata = _metadata(name, file.metadata())
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - the file is no dict
    except (OSError, SafetensorError, ValueError, TypeError, LookupError, AttributeError, MemoryError) as error:
        raise SaveError(f"{name} is no file of a model, or a damaged one ({error})") from error
    if _digest(arrays, metadata["document"]) != metadata["sha256"]:
        raise SaveError(f"{name} is damaged: its content does not have the SHA-256 that it states")
    arrays = migrated(arrays, int(metadata["version"]))
    state: dict[str, Any] = _read_document(name, metadata["document"])
    state.update({key.removeprefix(STATE): array for key, array in arrays.items() if key.startswith(STATE)})
    return {key: array for key, array in arrays.items() if not key.startswith(STATE)}, state


def _text(path: object) -> str:
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise SaveError("this is no path", wanted="a string or a pathlib.Path", came=repr(path)[:80])
    return os.fspath(path)


def _plain(name: str, array: Any) -> Array:
    """A little-endian array in C order, or the reason why this one cannot be saved."""
    if not name or not name.isprintable() or name == "__metadata__":
        raise SaveError("an array's name cannot be saved", wanted="printable characters", came=repr(name))
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray) or array.dtype.name not in DTYPES:
        came = f"{type(array).__name__} {getattr(array, 'dtype', '')}"
        raise SaveError("an array cannot be saved", blob=name, wanted=" ".join(DTYPES), came=came)
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _document(state: Mapping[str, Any]) -> str:
    """The state as JSON. Raises SaveError with the name of a value that JSON would not give back as it is."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in state.items()}
    for name, value in plain.items():
        try:
            same = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError, RecursionError) as error:
            raise SaveError(f"a value is neither an array nor JSON ({error})", blob=name) from error
        if not same:
            hint = "Use lists instead of tuples, and strings as keys."
            raise SaveError("a value would come back from JSON as something else", blob=name, hint=hint)
    return json.dumps(plain, sort_keys=True)


def _digest(arrays: Mapping[str, Array], document: str) -> str:
    digest = hashlib.sha256(document.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _metadata(name: str, metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    """The metadata. Raises SaveError where they are not those of a model, or of a version to come."""
    found = metadata or {}
    if found.get("format") != FORMAT or not {"version", "document", "sha256"} <= found.keys():
        hint = "Read files of other programs with safetensors, and give the arrays to model.set_params."
        raise SaveError(f"{name} is a safetensors file, but not one of a model", hint=hint)
    version = found["version"]
    if version not in [str(number) for number in range(1, VERSION + 1)]:
        newer = "Update rnnops." if version.isdecimal() and int(version[:9]) > VERSION else None
        raise SaveError(f"{name} has an unknown version", wanted=f"1 to {VERSION}", came=repr(version)[:80], hint=newer)
    return found


def _read_document(name: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise SaveError(f"{name} is damaged: its document is no JSON ({error})") from error
    if not isinstance(document, dict):
        raise SaveError(f"{name} is damaged: its document is no JSON object")
    return document


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
