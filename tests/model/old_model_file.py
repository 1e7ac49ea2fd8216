"""Writes `old_version_1.safetensors`, a model file of version 1, as this library once wrote it.

    python tests/model/old_model_file.py

The file is a `Perceptron` after three steps of Adam, with the user's state `{"epoch": 3, "curve": [...]}`. Arrays had
the names that they have in nets, and Adam did not count updates by parameter.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

FILE = Path(__file__).with_name("old_version_1.safetensors")
SHAPES = {"hidden/w": (7, 5), "hidden/b": (7,), "scores/w": (4, 7), "scores/b": (4,)}
CURVE = np.array([1.5, 1.25, 1.0], np.float32)


def old_arrays() -> dict[str, np.ndarray]:
    """Arrays by the names that they had."""
    rng = np.random.default_rng(5)
    arrays = {"optimizer/step": np.array(3, np.int64), "state.curve": CURVE}
    for prefix in ("", "optimizer/mean/", "optimizer/square/"):
        for name, shape in SHAPES.items():
            arrays[prefix + name] = rng.uniform(0.1, 1.0, shape).astype("float32")
    return arrays


def write(path: Path) -> None:
    """Write the file."""
    arrays, document = old_arrays(), json.dumps({"epoch": 3}, sort_keys=True)
    digest = hashlib.sha256(document.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        digest.update(array.tobytes())
    metadata = {"format": "rnnops model", "version": "1", "document": document, "sha256": digest.hexdigest()}
    save_file(arrays, path, metadata)


if __name__ == "__main__":
    write(FILE)
