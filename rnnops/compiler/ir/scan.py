"""A scan: one step of ops, the tensors over time that it reads and writes, and their names.

A scan: one step of ops, and where its blobs lie in tensors over time.

Forward and backward passes of a recurrence are both scans; a backward one runs the other way, and sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

import numpy as np

from rnnops.compiler.ir.statements import Access, Layout, Number, Statement, dense
from rnnops.interpreter import Program
from rnnops.types import Array, Shape, Type


class Role(str, Enum):
    """The meaning of a tensor's steps; as text, the prefix of the tensor's name."""

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
    """The key of a tensor in scans and runs. A call looks up many, so that hashing is left to tuples and strings."""

    role: Role
    blob: str

    def __str__(self) -> str:
        return self.blob if self.role is Role.SEQUENCE else f"{self.role.value} {self.blob}"


@dataclass(frozen=True)
class Tensor:
    """Steps of one kind, one behind the other in memory.

    Args:
        shape: of one step.
        length: steps that it holds.
        ring: whether position p lies at place p modulo `length`.
        segment: whether it holds the steps of a segment of one row at a time, in scratch of a thread.
    """

    dtype: str
    shape: Shape
    length: int
    ring: bool = False
    segment: bool = False


@dataclass(frozen=True)
class Slot:
    """The position of a tensor that step t touches: t + shift, and as many steps on as the blob has more axes."""

    tensor: TensorName
    shift: int = 0


@dataclass(frozen=True)
class Scan:
    """A step of ops that runs once for each timestep.

    Args:
        program: one step, of primitive ops.
        steps, batch: T and N.
        reverse: whether t runs from T - 1 to 0.
        reads: input -> slot.
        references: inputs that are the same at every step.
        timestep: the input that holds t.
        writes: blob -> slots that store it.
        additions: blob, slot to whose content it is added, and how the blob lies there.
        sums: result -> blob that is summed over all steps.
        tensors: by name.
        states: tensors whose contents depend on earlier steps of the forward pass; their products are added last.
        batch_axes: inputs whose batch axis is known by meaning -> that axis.
        accesses: how inputs lie at their slots, where that is not row by row.
        row_tensors: tensors each step of which has the batch axis first.
        unseen: tensors that are not read where a row is over.
        gradients: tensors of gradients; products of what depends on them stay in order, whatever is computed again.
    """

    program: Program
    steps: int
    batch: int
    reverse: bool
    reads: Mapping[str, Slot]
    references: tuple[str, ...]
    timestep: str | None
    writes: tuple[tuple[str, Slot], ...]
    additions: tuple[tuple[str, Slot, Layout], ...]
    sums: Mapping[str, str]
    tensors: Mapping[TensorName, Tensor]
    states: tuple[TensorName, ...] = ()
    batch_axes: Mapping[str, int] = field(default_factory=dict)
    accesses: Mapping[str, Access] = field(default_factory=dict)
    row_tensors: frozenset[TensorName] = frozenset()
    gradients: frozenset[TensorName] = frozenset()
    unseen: frozenset[TensorName] = frozenset()


class UnsupportedError(Exception):
    """An op that has no compiled form within a scan; its recurrence is stepped from Python, and the plan says so."""


class NothingToDoError(UnsupportedError):
    """No steps, or no elements; the interpreter does nothing as fast as anybody."""


@dataclass
class Lowered:
    """A step as statements.

    Args:
        views: where the elements of each blob lie.
        numbers: blobs that are one known number.
        constants: arrays that are known before a run.
        types: of blobs that own memory.
        statements: in order.
    """

    views: dict[str, Access] = field(default_factory=dict)
    numbers: dict[str, Number] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)

    def copy(self) -> Lowered:
        """A copy that can grow by itself."""
        return Lowered(
            dict(self.views), dict(self.numbers), dict(self.constants), dict(self.types), list(self.statements)
        )

    def own(self, name: str, kind: Type) -> Access:
        """Give a blob memory of its own."""
        self.types[name] = kind
        self.views[name] = Access(name, dense(kind.shape))
        return self.views[name]

    def operand(self, name: str, shape: Shape) -> Access | Number:
        """A blob as an operand over axes of `shape`."""
        if name in self.numbers:
            return self.numbers[name]
        access = self.views[name]
        return replace(access, layout=access.layout.broadcast_to(shape))

    def fresh(self, name: str) -> str:
        """A name like this one that no blob has."""
        count = 0
        while f"{name}.{count}" in self.views:
            count += 1
        return f"{name}.{count}"

    def know(self, name: str, value: Array) -> None:
        """Take a blob's value down, known before a run."""
        if value.size == 1:
            self.numbers[name] = value.reshape(()).item()
        else:
            self.own(name, Type(str(value.dtype), value.shape))
            self.constants[name] = np.ascontiguousarray(value)

    def in_memory(self, name: str, kind: Type) -> Access:
        """Where a blob lies, also one that is a known number."""
        if name not in self.views:
            self.constants[name] = np.full(kind.shape, self.numbers[name], kind.dtype)
            self.own(name, kind)
        return self.views[name]
