"""Layouts of weights in other libraries: the gates side by side in another order."""

from __future__ import annotations

import numpy as np

from bench.problems import Array

TORCH_LSTM = (0, 1, 3, 2)  # input, forget, candidate, output; the same way back
TORCH_GRU = (0, 1, 2)  # reset, update, candidate, as ours
ONNX_LSTM = (0, 2, 1, 3)  # input, output, forget, candidate


def reorder(array: Array, order: tuple[int, ...]) -> Array:
    """Parts of the last axis, one for each gate, in another order."""
    parts = np.split(array, len(order), axis=-1)
    return np.concatenate([parts[k] for k in order], axis=-1)
