"""A scan: one step of ops, and where its blobs lie in tensors over time.

Forward and backward passes of a recurrence are both scans; a backward one runs the other way, and sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rnnops.compiler.ir.layouts import Layout
from rnnops.compiler.ir.statements import Access
from rnnops.compiler.ir.tensor_name import TensorName
from rnnops.interpreter import Program
from rnnops.types import Shape


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
    """What runs once for each timestep.

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
        unseen: tensors that nobody reads where a row is over.
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
