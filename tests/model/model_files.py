"""A file of a model that says nothing, and what must come back of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

ARRAYS = {
    "encoder.w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "optimizer.step": np.array(7, np.int64),
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 5)),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "reversed": np.arange(5, dtype=np.int16)[::-1],
    "half": np.ones(3, np.float16),
    "größe": np.arange(3, dtype=np.uint8),
}
STATE = {
    "best": 2.25,
    "seen": 10**15,
    "name": "é\n",
    "history": [[1, 2.5], [2, None]],
    "more": {"a": True},
    "curve": np.arange(3.0),
}
TRACES: list[str] = []


class Exploit:
    """Leaves a trace when unpickled."""

    def __reduce__(self) -> Any:
        return leave_trace, ("ran",)


def leave_trace(text: str) -> None:
    TRACES.append(text)


def assert_is_original(loaded: tuple[dict[str, np.ndarray], dict[str, Any]]) -> None:
    arrays, state = loaded
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
    np.testing.assert_array_equal(state.pop("curve"), STATE["curve"], strict=True)
    assert state == {name: value for name, value in STATE.items() if name != "curve"}


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, framework="np") as file:
        return dict(file.metadata())


def with_metadata(path: Path, **change: str | None) -> None:
    """Write the file again, with other metadata."""
    metadata = {name: value for name, value in {**metadata_of(path), **change}.items() if value is not None}
    save_file(load_file(path), path, metadata)
