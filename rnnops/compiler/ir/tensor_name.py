"""Names of the tensors of a scan: what their steps are, and of which blob."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Role(str, Enum):
    """What the steps of a tensor are; as text, what stands before the blob in the tensor's name."""

    SEQUENCE = ""  # given to a recurrence
    INPUT = "input"  # given to a group of fused ops
    STATE = "state"
    OUTPUT = "output"  # of the cell, and no state
    KEPT = "kept"  # what backward reads beside states and outputs
    RESULT = "result"
    GRADIENT = "grad"  # of a state
    BORDER = "border"  # of a state: as it is before the first step of each segment
    GIVEN = "given"  # a gradient from outside

    def of(self, blob: str) -> TensorName:
        """The name of a tensor of this role."""
        return TensorName(self, blob)


class TensorName(NamedTuple):
    """What scans and runs know a tensor by; a call looks up many, so that hashing is left to tuples and strings."""

    role: Role
    blob: str

    def __str__(self) -> str:
        return self.blob if self.role is Role.SEQUENCE else f"{self.role.value} {self.blob}"
