"""Order of gates in weights and biases, written once."""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.blob import Blob
from rnnops.ops.movement import split

GATES = "ifog"  # LSTM and its kin: input, forget, output, candidate
GRU_GATES = ("reset", "update", "output")


def by_gate(gates: Blob, order: Sequence[str] = GATES) -> dict[str, Blob]:
    """The parts of gates `[N, 4H]`, each by its name."""
    return dict(zip(order, split(gates, len(order), axis=-1), strict=True))
