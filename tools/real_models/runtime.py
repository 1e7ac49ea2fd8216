"""ONNX Runtime as what files are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from rnnops.onnx.compare import Session


def run_onnxruntime(path: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a file by name."""
    return Session(path)(feeds)


def is_there() -> bool:
    """Whether it is installed."""
    return find_spec("onnxruntime") is not None
